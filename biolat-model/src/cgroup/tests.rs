use std::{fs, os::unix::fs::symlink};

use proptest::{collection::vec, prelude::*, sample::select};

use super::{Identity, Kind, PodNames, unit};

mod paths;

/// Container ids. If a test has two, the second is inside the first.
const A: &str = "ae836c95b4c3c9e9179e0e91015512da89fdec91612f63cebae57df9a5444c79";
const B: &str = "2227daf62df6694645fee5df53c1f91271546a9560e8600a525690ae252b7f63";
const UID: &str = "1858680e-b044-4fd5-9dd4-f137e30e2180";
const STATIC_UID: &str = "187bff14cccb94f179e943eacce55bb3";
const TASK: &str = "03752a671e744971a862edcee6195646";

/// Formats the kind and all non-empty fields.
fn fields(identity: &Identity) -> String {
    let Identity { kind, unit, pod_uid, qos, container_id, container, namespace, pod } = identity;
    let fields = [
        ("unit", unit),
        ("uid", pod_uid),
        ("qos", qos),
        ("id", container_id),
        ("container", container),
        ("namespace", namespace),
        ("pod", pod),
    ];
    let fields = fields.into_iter().filter(|(_, value)| !value.is_empty());
    fields.fold(kind.name().to_owned(), |text, (name, value)| format!("{text} {name}={value}"))
}

#[test]
fn limits_length_of_unit_names() {
    let longest = format!("{}.service", "a".repeat(247));
    assert_eq!(unit::parse(&longest), Some((longest.as_str(), Kind::Service)));
    assert_eq!(unit::parse(&format!("a{longest}")), None);
}

#[test]
fn unescapes_unit_names() {
    for (escaped, expected) in [
        ("a\\x2db", "a-b"),
        ("\\xc3\\xa4\\x5cx", "ä\\x"),
        ("\\x", "\\x"),
        ("\\x2", "\\x2"),
        ("\\xzz", "\\xzz"),
        ("a\\xff", "a\\xff"),
        ("\\xä", "\\xä"),
    ] {
        assert_eq!(unit::unescape(escaped), expected, "{escaped}");
    }
}

/// Returns the path of a container in a pod.
fn container_path(uid: &str, id: &str) -> String {
    format!("/kubepods/burstable/pod{uid}/{id}")
}

#[test]
fn reads_names_from_links() {
    let names =
        [format!("web-0_shop_nginx-{A}.log"), format!("web-0_shop_side-car-{B}.log"), "notes.txt".to_owned()];
    let names = PodNames::from_file_names(names.iter());
    for (id, container) in [(A, "nginx"), (B, "side-car")] {
        let path = container_path(UID, id);
        let identity = Identity::of_path(&path).with_names(&names);
        let expected = format!(
            "container uid={UID} qos=burstable id={id} container={container} namespace=shop pod=web-0"
        );
        assert_eq!(fields(&identity), expected);
        assert_eq!(identity.short_name(&path), format!("shop/web-0/{container}"));
    }
    // No link name contains the UID.
    let pod = Identity::of_path(&format!("/kubepods/burstable/pod{UID}"));
    assert_eq!(pod.clone().with_names(&names), pod);
    let service = Identity::of_path("/system.slice/cron.service");
    assert_eq!(service.clone().with_names(&names), service);
}

#[test]
fn ignores_links_without_container() {
    for name in [
        format!("web-0_shop-{A}.log"),
        format!("web-0_shop_nginx_x-{A}.log"),
        format!("web-0__nginx-{A}.log"),
        format!("web\u{1b}_shop_nginx-{A}.log"),
        format!("web-0_shop_nginx-{A}"),
        format!("web-0_shop_nginx-{}.log", &A[..60]),
        format!("{A}.log"),
    ] {
        assert_eq!(PodNames::from_file_names([&name].into_iter()), PodNames::default(), "{name}");
    }
}

/// A directory as found on a node: <https://github.com/vectordotdev/vector/issues/6001>.
#[test]
fn reads_names_from_targets() {
    let directory = std::env::temp_dir().join(format!("biolat-pod-names-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let link = |name: String, target: String| symlink(target, directory.join(name)).unwrap();
    link(format!("web-0_shop_nginx-{A}.log"), format!("/var/log/pods/shop_web-0_{UID}/nginx/3.log"));
    // Too long for a file name, so the end of the id is lost.
    let long = "a".repeat(180);
    link(
        format!("{long}_shop_nginx-{}.log", &B[..50]),
        format!("/elsewhere/shop_{long}_{STATIC_UID}/nginx/0.log"),
    );
    // Kubernetes 1.13 and older.
    link("old.log".to_owned(), format!("/var/log/pods/{UID}/nginx/0.log"));
    fs::write(directory.join("a-file.log"), "").unwrap();
    let names = PodNames::read(&directory).unwrap();
    fs::remove_dir_all(&directory).unwrap();

    for (path, expected) in [
        (container_path(UID, A), "shop/web-0/nginx".to_owned()),
        (format!("/kubepods/burstable/pod{UID}"), "shop/web-0".to_owned()),
        (
            format!("/kubepods.slice/kubepods-pod{0}.slice/crio-conmon-{A}.scope", UID.replace('-', "_")),
            format!("shop/web-0/crio-conmon-{A}.scope"),
        ),
        // The sandbox has no log, and a container inside a container has none on this node.
        (container_path(UID, B), format!("shop/web-0/{}", &B[..12])),
        (format!("{}/docker/{B}", container_path(UID, A)), format!("shop/web-0/{}", &B[..12])),
        (
            format!("{}/system.slice/cron.service", container_path(UID, A)),
            "shop/web-0/nginx/cron.service".to_owned(),
        ),
        (format!("/kubepods/burstable/pod{STATIC_UID}"), format!("shop/{long}")),
    ] {
        assert_eq!(Identity::of_path(&path).with_names(&names).short_name(&path), expected, "{path}");
    }
    assert!(PodNames::read(&directory).is_err(), "no such directory");
}

/// Path fragments, to be combined in any order.
const PARTS: &[&str] = &[
    "/",
    "/",
    "/",
    "-",
    "_",
    ":",
    "@",
    ".",
    "..",
    "\\x",
    "\\x2d",
    "\\x1b",
    "\n",
    "é",
    "1",
    "kubepods",
    "burstable",
    "pod",
    UID,
    STATIC_UID,
    A,
    TASK,
    "crio",
    "conmon",
    "docker",
    "libpod_parent",
    "libpod_pod_",
    "libpod-payload-",
    "lxc",
    "lxc.payload.",
    "machine-",
    "systemd-nspawn@",
    "qemu-1-",
    "qemu.slice",
    ".libvirt-qemu",
    ".slice",
    ".scope",
    ".service",
    ".log",
    " (deleted)",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sanitizes_name_of_any_path(
        path in prop_oneof![any::<String>(), vec(select(PARTS), 0..24).prop_map(|parts| parts.concat())],
    ) {
        let names = PodNames::from_file_names([&path].into_iter());
        let identity = Identity::of_path(&path).with_names(&names);
        let name = identity.short_name(&path);
        prop_assert!(!fields(&identity).contains(char::is_control), "{identity:?}");
        prop_assert!(!name.contains(char::is_control) && name.is_empty() == path.is_empty(), "{name:?}");
    }
}

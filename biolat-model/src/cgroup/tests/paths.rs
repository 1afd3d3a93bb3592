//! Paths as spelled by runtimes and service managers, each with its source.

use super::{A, B, STATIC_UID, TASK, UID, fields};
use crate::cgroup::{Identity, Kind};

/// A path, its identity as formatted by [`fields`], and its short name. Placeholders: see [`expand`].
type Row = (&'static str, &'static str, &'static str);

fn expand(text: &str) -> String {
    [
        ("{A}", A),
        ("{B}", B),
        ("{a}", &A[..12]),
        ("{b}", &B[..12]),
        ("{uid}", UID),
        ("{u_i_d}", &UID.replace('-', "_")),
        ("{static}", STATIC_UID),
        ("{task}", TASK),
    ]
    .into_iter()
    .fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
}

const SYSTEMD: &[Row] = &[
    // The root, and a process in a cgroup that was removed:
    // https://github.com/torvalds/linux/blob/v6.12/kernel/cgroup/cgroup.c (`proc_cgroup_show`)
    ("/", "root", "root cgroup"),
    ("/system.slice/cron.service (deleted)", "service unit=cron.service", "cron.service"),
    // https://github.com/systemd/systemd/blob/018333725f9d8565a47abc54b7a6e301e8492f39/src/test/test-cgroup-util.c
    ("/system.slice/postgresql.service", "service unit=postgresql.service", "postgresql.service"),
    ("/system.slice/foobar.service/sdfdsaf", "service unit=foobar.service", "foobar.service"),
    ("/system.slice/getty@tty5.service/aaa/bbb", "service unit=getty@tty5.service", "getty@tty5.service"),
    ("/system.slice/system-waldo.slice/_cpu.service/sdfdsaf", "service unit=cpu.service", "cpu.service"),
    (
        "/user.slice/user-1000.slice/session-2.scope/waldo/waldo",
        "session unit=session-2.scope",
        "session-2.scope",
    ),
    (
        "/user.slice/user-1000.slice/session-2.scope/foobar.service",
        "service unit=foobar.service",
        "foobar.service",
    ),
    ("/session-.scope", "scope unit=session-.scope", "session-.scope"),
    // A template without an instance, and characters that are invalid in a unit name.
    ("/user.slice/user-1000.slice/user@.service", "slice unit=user-1000.slice", "user-1000.slice"),
    ("/system.slice/getty####@tty6.service/xxx", "slice unit=system.slice", "system.slice"),
    ("/sadfdsafsda", "other", "/sadfdsafsda"),
    // Slices of templates: https://www.freedesktop.org/software/systemd/man/latest/systemd.service.html
    (
        "/system.slice/system-postgresql.slice/postgresql@14-main.service",
        "service unit=postgresql@14-main.service",
        "postgresql@14-main.service",
    ),
    // Units that have a cgroup: https://www.freedesktop.org/software/systemd/man/latest/systemd.resource-control.html
    ("/init.scope", "scope unit=init.scope", "init.scope"),
    ("/system.slice/home-alice.mount", "unit unit=home-alice.mount", "home-alice.mount"),
    (
        "/system.slice/dev-disk-by\\x2duuid-0a1b.swap",
        "unit unit=dev-disk-by\\x2duuid-0a1b.swap",
        "dev-disk-by\\x2duuid-0a1b.swap",
    ),
    ("/system.slice/docker.socket", "unit unit=docker.socket", "docker.socket"),
    ("/system.slice/docker-{A}.mount", "unit unit=docker-{A}.mount", "docker-{A}.mount"),
    ("/system.slice", "slice unit=system.slice", "system.slice"),
    // Applications: https://systemd.io/DESKTOP_ENVIRONMENTS/
    (
        "/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-firefox-1234.scope",
        "scope unit=app-gnome-firefox-1234.scope",
        "app-gnome-firefox-1234.scope",
    ),
];

const KUBERNETES: &[Row] = &[
    // Both drivers: https://github.com/cilium/cilium/blob/524bc3d6803797ede26599a1b6d6903cd9a03d27/pkg/cgroups/manager/provider_test.go
    (
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{u_i_d}.slice/cri-containerd-{A}.scope",
        "container unit=cri-containerd-{A}.scope uid={uid} qos=burstable id={A}",
        "{a}",
    ),
    (
        "/kubepods.slice/kubepods-pod{u_i_d}.slice/crio-{A}.scope",
        "container unit=crio-{A}.scope uid={uid} qos=guaranteed id={A}",
        "{a}",
    ),
    ("/kubepods/burstable/pod{uid}/{A}", "container uid={uid} qos=burstable id={A}", "{a}"),
    ("/kubepods/pod{uid}/{A}", "container uid={uid} qos=guaranteed id={A}", "{a}"),
    ("/kubelet/kubepods/burstable/pod{uid}/{A}", "container uid={uid} qos=burstable id={A}", "{a}"),
    // Cgroups of pods and of QoS classes:
    // https://github.com/kubernetes/kubernetes/blob/00ac878efc72b054488300fe600d8a75283b6605/pkg/kubelet/cm/cgroup_manager_linux.go
    (
        "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{u_i_d}.slice",
        "pod unit=kubepods-besteffort-pod{u_i_d}.slice uid={uid} qos=besteffort",
        "pod{uid}",
    ),
    ("/kubepods/besteffort/pod{uid}", "pod uid={uid} qos=besteffort", "pod{uid}"),
    (
        "/kubepods.slice/kubepods-burstable.slice",
        "slice unit=kubepods-burstable.slice",
        "kubepods-burstable.slice",
    ),
    ("/kubepods/burstable", "other", "/kubepods/burstable"),
    // Seen from a private cgroup namespace; `..` leads out of it.
    ("/../../pod{uid}/{A}", "container uid={uid} id={A}", "{a}"),
    // Docker: https://github.com/elastic/apm/blob/0c09458bafa7c5a4ebc7555a71147cfd43bbe111/tests/agents/json-specs/cgroup_parsing.json
    (
        "/kubepods.slice/kubepods-pod{u_i_d}.slice/docker-{B}.scope",
        "container unit=docker-{B}.scope uid={uid} qos=guaranteed id={B}",
        "{b}",
    ),
    // Static pods: https://github.com/netdata/netdata/issues/4868
    (
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{static}.slice/cri-containerd-{A}.scope",
        "container unit=cri-containerd-{A}.scope uid={static} qos=burstable id={A}",
        "{a}",
    ),
    ("/kubepods/burstable/pod{static}/{A}", "container uid={static} qos=burstable id={A}", "{a}"),
    // CRI-O with the systemd driver, which creates the sandbox itself:
    // https://github.com/cri-o/cri-o/blob/006205f3a717975f0710e4da59ae79697f7d3859/internal/config/cgmgr/systemd_linux.go
    (
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{u_i_d}.slice/crio-conmon-{A}.scope",
        "pod unit=crio-conmon-{A}.scope uid={uid} qos=burstable",
        "pod{uid}/crio-conmon-{A}.scope",
    ),
    (
        "/kubepods.slice/kubepods-pod{u_i_d}.slice/crio-{A}",
        "container unit=kubepods-pod{u_i_d}.slice uid={uid} qos=guaranteed id={A}",
        "{a}",
    ),
    // cgroupfs: https://github.com/cri-o/cri-o/blob/09a0030e755587fbbf0303878084c32c056d54d9/internal/config/cgmgr/cgmgr_linux.go
    ("/kubepods/besteffort/pod{uid}/crio-{A}", "container uid={uid} qos=besteffort id={A}", "{a}"),
    ("/kubepods/besteffort/pod{uid}/crio-conmon-{A}", "pod uid={uid} qos=besteffort", "pod{uid}"),
    // crun's group inside it: https://github.com/opencontainers/runc/issues/4072
    (
        "/kubepods.slice/kubepods-pod{u_i_d}.slice/crio-{A}.scope/container",
        "container unit=crio-{A}.scope uid={uid} qos=guaranteed id={A}",
        "{a}",
    ),
    // The kubelet uses systemd, containerd uses cgroupfs: https://github.com/containerd/containerd/issues/4900
    (
        "/system.slice/containerd.service/kubepods-besteffort-pod{u_i_d}.slice:cri-containerd:{A}",
        "container unit=containerd.service uid={uid} qos=besteffort id={A}",
        "{a}",
    ),
    // kind: https://github.com/kubernetes-sigs/kind/issues/3947
    (
        "/system.slice/docker-{A}.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/\
         kubelet-kubepods-burstable-pod{u_i_d}.slice/cri-containerd-{B}.scope",
        "container unit=cri-containerd-{B}.scope uid={uid} qos=burstable id={B}",
        "{b}",
    ),
    (
        "/system.slice/docker-{A}.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{u_i_d}.slice",
        "pod unit=kubelet-kubepods-pod{u_i_d}.slice uid={uid} qos=guaranteed",
        "pod{uid}",
    ),
    (
        "/system.slice/docker-{A}.scope/kubelet.slice/kubelet.service",
        "container unit=kubelet.service id={A}",
        "{a}/kubelet.service",
    ),
    // minikube: https://github.com/kubernetes/minikube/issues/11280
    (
        "/docker/{A}/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{u_i_d}.slice/crio-{B}.scope",
        "container unit=crio-{B}.scope uid={uid} qos=besteffort id={B}",
        "{b}",
    ),
];

const DOCKER: &[Row] = &[
    // https://docs.docker.com/engine/containers/runmetrics/#find-the-cgroup-for-a-given-container
    ("/docker/{A}", "container id={A}", "{a}"),
    ("/system.slice/docker-{A}.scope", "container unit=docker-{A}.scope id={A}", "{a}"),
    ("/docker", "other", "/docker"),
    // systemd inside a container.
    (
        "/system.slice/docker-{A}.scope/system.slice/nginx.service",
        "container unit=nginx.service id={A}",
        "{a}/nginx.service",
    ),
    // Docker in Docker: https://github.com/DataDog/datadog-agent/pull/999, https://github.com/jpetazzo/dind/issues/87
    ("/docker/{A}/docker/{B}", "container id={B}", "{b}"),
    ("/system.slice/docker-{A}.scope/docker/{B}", "container unit=docker-{A}.scope id={B}", "{b}"),
    // In a pod. The pod's container has a name, but the inner one does not.
    ("/kubepods/pod{uid}/{A}/docker/{B}", "container uid={uid} qos=guaranteed id={B}", "{b}"),
    // Not ids.
    ("/docker/not-an-id", "other", "/docker/not-an-id"),
    (
        "/system.slice/docker-AE836C95B4C3.scope",
        "scope unit=docker-AE836C95B4C3.scope",
        "docker-AE836C95B4C3.scope",
    ),
    // BuildKit: https://github.com/moby/buildkit/blob/083dfc9f63932cf84bae189b929684288bac6cae/executor/oci/spec.go
    (
        "/docker/buildkit/n4eu0udvbz9vfzjy71jkvgkwh",
        "container id=n4eu0udvbz9vfzjy71jkvgkwh",
        "n4eu0udvbz9vfzjy71jkvgkwh",
    ),
    (
        "/system.slice/docker-n4eu0udvbz9vfzjy71jkvgkwh.scope",
        "container unit=docker-n4eu0udvbz9vfzjy71jkvgkwh.scope id=n4eu0udvbz9vfzjy71jkvgkwh",
        "n4eu0udvbz9vfzjy71jkvgkwh",
    ),
    // ECS:
    // https://github.com/aws/amazon-ecs-agent/blob/7ac5c2a6aa9ab1d7c331b0e6641171e221f5a0bc/agent/api/task/task_linux.go
    // https://github.com/elastic/apm/blob/0c09458bafa7c5a4ebc7555a71147cfd43bbe111/tests/agents/json-specs/cgroup_parsing.json
    ("/ecs/{task}/{A}", "container id={A}", "{a}"),
    (
        "/ecstasks.slice/ecstasks-{task}.slice/docker-{A}.scope",
        "container unit=docker-{A}.scope id={A}",
        "{a}",
    ),
    ("/ecs/{task}/{task}-4015103728", "container id={task}-4015103728", "{task}-4015103728"),
    ("/ecs/{task}/4015103728", "other", "/ecs/{task}/4015103728"),
    ("/app/app-12", "other", "/app/app-12"),
];

const PODMAN: &[Row] = &[
    // https://github.com/containers/podman/blob/4f6a8f0d500230600e25fdfafe85f4234967974a/libpod/container_internal_linux.go
    ("/machine.slice/libpod-{A}.scope/container", "container unit=libpod-{A}.scope id={A}", "{a}"),
    ("/libpod_parent/libpod-{A}", "container id={A}", "{a}"),
    ("/system.slice/web.service/libpod-payload-{A}", "container unit=web.service id={A}", "web.service"),
    ("/system.slice/web.service/runtime", "service unit=web.service", "web.service"),
    ("/system.slice/web.service/libpod-payload-{A}/docker/{B}", "container unit=web.service id={B}", "{b}"),
    (
        "/system.slice/web.service/libpod-payload-{A}/system.slice/nginx.service",
        "container unit=nginx.service id={A}",
        "web.service/nginx.service",
    ),
    // conmon: https://github.com/containers/podman/pull/507
    (
        "/machine.slice/libpod-conmon-{A}.scope",
        "scope unit=libpod-conmon-{A}.scope",
        "libpod-conmon-{A}.scope",
    ),
    // Rootless: https://github.com/containers/podman/issues/6400
    (
        "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{A}.scope/container",
        "container unit=libpod-{A}.scope id={A}",
        "{a}",
    ),
    (
        "/user.slice/user-1000.slice/user@1000.service/user.slice/user-libpod_pod_{B}.slice/libpod-{A}.scope/container",
        "container unit=libpod-{A}.scope uid={B} id={A}",
        "{a}",
    ),
    // Pods: https://github.com/containers/podman/blob/01297c21ac73389f092b2c3ae515e673399714eb/libpod/runtime_pod_linux.go
    (
        "/machine.slice/machine-libpod_pod_{B}.slice",
        "pod unit=machine-libpod_pod_{B}.slice uid={B}",
        "pod{b}",
    ),
    (
        "/machine.slice/machine-libpod_pod_{B}.slice/libpod-{A}.scope",
        "container unit=libpod-{A}.scope uid={B} id={A}",
        "{a}",
    ),
    ("/libpod_parent/{B}", "pod uid={B}", "pod{b}"),
    ("/libpod_parent/{B}/libpod-{A}", "container uid={B} id={A}", "{a}"),
];

const LXC: &[Row] = &[
    // https://linuxcontainers.org/lxc/news/2020_03_25_13_03.html
    ("/lxc.payload.web", "container container=web", "web"),
    ("/lxc.monitor.web", "other", "/lxc.monitor.web"),
    (
        "/lxc.payload.web/system.slice/nginx.service",
        "container unit=nginx.service container=web",
        "web/nginx.service",
    ),
    ("/lxc.payload.web/system.slice/docker-{A}.scope", "container unit=docker-{A}.scope id={A}", "{a}"),
    // Unprivileged: https://github.com/lxc/lxc/blob/2202afc960d7d90df1fd5a1bb27be2529fcc235b/src/lxc/cgroups/cgroup.h (`base_cgroup`)
    (
        "/user.slice/user-1000.slice/session-3.scope/lxc.payload.web",
        "container unit=session-3.scope container=web",
        "web",
    ),
    // LXC 3.1: https://github.com/lxc/lxc/pull/2606. Older versions and Proxmox VE: https://github.com/lxc/lxc/pull/3353,
    // https://github.com/netdata/netdata/issues/3199
    ("/lxc.payload/web", "container container=web", "web"),
    ("/lxc.monitor/web", "other", "/lxc.monitor/web"),
    ("/lxc/web", "container container=web", "web"),
    (
        "/lxc/101/ns/system.slice/irqbalance.service",
        "container unit=irqbalance.service container=101",
        "101/irqbalance.service",
    ),
    ("/lxc", "other", "/lxc"),
    ("/lxc.payload.", "other", "/lxc.payload."),
    ("/lxc.payload.a\u{1b}[2J", "other", "/lxc.payload.a\u{fffd}[2J"),
    // A project in LXD or Incus: https://github.com/liske/needrestart/pull/188
    ("/lxc.payload.shop_web-0", "container container=shop_web-0", "shop_web-0"),
];

const MACHINES: &[Row] = &[
    // libvirt: https://libvirt.org/cgroups.html
    (
        "/machine.slice/machine-qemu\\x2d1\\x2dvm1.scope/libvirt/emulator",
        "machine unit=machine-qemu\\x2d1\\x2dvm1.scope container=vm1",
        "vm1",
    ),
    (
        "/machine.slice/machine-qemu\\x2d12\\x2dalpine\\x2dvm.scope",
        "machine unit=machine-qemu\\x2d12\\x2dalpine\\x2dvm.scope container=alpine-vm",
        "alpine-vm",
    ),
    (
        "/machine.slice/machine-engineering.slice/machine-engineering-testing.slice/machine-lxc\\x2d11111\\x2dcontainer1.scope",
        "machine unit=machine-lxc\\x2d11111\\x2dcontainer1.scope container=container1",
        "container1",
    ),
    (
        "/machine.slice/machine-engineering.slice",
        "slice unit=machine-engineering.slice",
        "machine-engineering.slice",
    ),
    ("/machine/qemu-1-vm1.libvirt-qemu/vcpu0", "machine container=vm1", "vm1"),
    (
        "/machine/production.partition/lxc-22222-container2.libvirt-lxc",
        "machine container=container2",
        "container2",
    ),
    // systemd-nspawn: https://github.com/systemd/systemd/blob/0377c44b22dd2479fa68e328f42b25aa69723c8d/src/nspawn/nspawn-cgroup.c
    (
        "/machine.slice/systemd-nspawn@my\\x2dbox.service/payload",
        "machine unit=systemd-nspawn@my\\x2dbox.service container=my-box",
        "my-box",
    ),
    (
        "/machine.slice/systemd-nspawn@web.service/payload/system.slice/nginx.service",
        "machine unit=nginx.service container=web",
        "web/nginx.service",
    ),
    ("/machine.slice/machine-web.scope/payload", "machine unit=machine-web.scope container=web", "web"),
    (
        "/machine.slice/machine-qemu\\x2dtest\\x2d1.scope",
        "machine unit=machine-qemu\\x2dtest\\x2d1.scope container=qemu-test-1",
        "qemu-test-1",
    ),
    // systemd-vmspawn: https://github.com/systemd/systemd/blob/052d4514f5868ddcbe5ddf7a447fc1a0d49b8258/units/systemd-vmspawn@.service.in
    (
        "/machine.slice/systemd-vmspawn@web.service",
        "machine unit=systemd-vmspawn@web.service container=web",
        "web",
    ),
    // Proxmox VE: https://github.com/proxmox/qemu-server/blob/54396a397eae67a2c011dc34eb80d3cb8b254411/src/PVE/QemuServer/CGroup.pm
    ("/qemu.slice/100.scope", "machine unit=100.scope container=100", "100"),
    // No name, and a name with a terminal escape sequence.
    ("/machine.slice/machine-.scope", "scope unit=machine-.scope", "machine-.scope"),
    ("/machine.slice/machine-a\\x1b.scope", "scope unit=machine-a\\x1b.scope", "machine-a\\x1b.scope"),
];

const MALFORMED: &[Row] = &[
    ("", "other", ""),
    ("//", "other", "//"),
    ("/..", "other", "/.."),
    ("/lxc/..", "other", "/lxc/.."),
    ("system.slice//cron.service/", "service unit=cron.service", "cron.service"),
    (
        "/kubepods.slice/kubepods-burstable-pod.slice",
        "slice unit=kubepods-burstable-pod.slice",
        "kubepods-burstable-pod.slice",
    ),
    ("/kubepods/podcast", "other", "/kubepods/podcast"),
    ("/système.service", "other", "/système.service"),
    ("/.service", "other", "/.service"),
];

fn rows() -> impl Iterator<Item = [String; 3]> {
    let tables = [SYSTEMD, KUBERNETES, DOCKER, PODMAN, LXC, MACHINES, MALFORMED];
    tables.into_iter().flatten().map(|&(path, fields, name)| [path, fields, name].map(expand))
}

#[test]
fn identifies_paths() {
    for [path, expected, short_name] in rows() {
        let identity = Identity::of_path(&path);
        assert_eq!(fields(&identity), expected, "{path}");
        assert_eq!(identity.short_name(&path), short_name, "{path}");
    }
}

/// Runtimes, services and an init system inside a container create cgroups below their own.
#[test]
fn nested_cgroup_is_the_same_workload() {
    for [path, ..] in rows() {
        let identity = Identity::of_path(&path);
        if !matches!(identity.kind, Kind::Root | Kind::Other) && !path.ends_with(" (deleted)") {
            assert_eq!(Identity::of_path(&format!("{path}/worker")), identity, "{path}");
        }
    }
}

//! `biolat-daemon check` without privileges: port checks, text and JSON output, exit codes.

use std::{
    io::Write as _,
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Command, Output},
    sync::Arc,
    thread,
};

use biolat_daemon::{
    http::{Limits, Service, serve},
    web_config::WebConfig,
};
use serde_json::Value;
use tokio::sync::watch;

use crate::support::certificates::{Authority, Folder};
use crate::support::snapshots::{serve_config, snapshot};

fn check(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_biolat-daemon"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BIOLAT_")) {
        command.env_remove(name);
    }
    command.arg("check").args(arguments).output().unwrap()
}

fn text(output: Output) -> String {
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_slice(&check(&[&["--json"], arguments].concat()).stdout).unwrap()
}

/// Returns the finding with this ID.
fn finding(arguments: &[&str], id: &str) -> Value {
    let document = json(arguments);
    let findings = document["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["id"] == id).cloned().unwrap_or_default()
}

/// Starts biolat's own server, which runs until the process ends.
fn server(has_figures: bool, web_config: Option<&Path>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let web_config = web_config.map(|path| WebConfig::open(path).unwrap());
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (_snapshots, seen) = watch::channel(has_figures.then(|| Arc::new(snapshot(1))));
            let (_stop, stopped) = watch::channel(false);
            let listeners = vec![listener.try_into().unwrap()];
            let mut service = Service::new(seen, serve_config());
            if let Some(web_config) = web_config {
                service = service.with_web_config(web_config);
            }
            serve(listeners, service, Limits::default(), stopped).await;
        });
    });
    address
}

#[test]
fn recognizes_running_biolat() {
    let folder = Folder::new("check");
    let authority = Authority::new("authority");
    authority.issue("server").write(&folder);
    folder.write("authority.pem", authority.pem());
    let password = format!("basic_auth_users:\n  alice: {}\n", bcrypt::hash("hunter2", 5).unwrap());
    let tls = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n";
    let clients = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: authority.pem\n";
    let guarded = |name: &str, text: &str| server(true, Some(&folder.write(name, text)));
    let version = format!("and ready: {} (", env!("CARGO_PKG_VERSION"));
    for (address, expected) in [
        (server(true, None), version.as_str()),
        (server(false, None), "and not ready yet"),
        (guarded("password.yml", &password), "requires a password"),
        (guarded("tls.yml", tls), "with TLS"),
        (guarded("all.yml", &format!("{tls}{clients}{password}")), "with TLS"),
    ] {
        let found = finding(&["--listen", &address.to_string()], "port");
        assert_eq!(found["verdict"], "note", "{found}");
        assert_eq!(found["subject"], format!("port {}", address.port()));
        let text = found["text"].as_str().unwrap();
        assert!(text.starts_with("biolat is already running, ") && text.contains(expected), "{text}");
    }
}

#[test]
fn port_of_other_program_fails() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            stream.unwrap().write_all(b"220 mail ESMTP\r\n").unwrap();
        }
    });
    let arguments = ["--listen", &address.to_string()];
    let found = finding(&arguments, "port");
    assert_eq!(found["verdict"], "fail", "{found}");
    assert!(found["text"].as_str().unwrap().contains("another program"), "{found}");
    assert_eq!(check(&arguments).status.code(), Some(1));
}

#[test]
fn reports_finding_per_address() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let document = json(&["--listen", &free.to_string(), "--listen", "192.0.2.1:9976"]);
    let findings = document["findings"].as_array().unwrap();
    let ports: Vec<_> = findings.iter().filter(|finding| finding["id"] == "port").collect();
    let [free, other] = &ports[..] else { panic!("{ports:?}") };
    assert_eq!((&free["verdict"], &other["verdict"]), (&"ok".into(), &"fail".into()));
    assert!(other["fix"][0]["step"].as_str().unwrap().contains("does not have that address"), "{other}");
    assert_eq!(document["works"], false);
}

/// An unsupported kernel, a device without iostats and an invalid web config: text and JSON must agree.
#[test]
fn text_and_json_agree() {
    let folder = Folder::new("check-agree");
    for (path, text) in [
        ("block/sda/mq/0/x", ""),
        ("block/sda/diskseq", "3"),
        ("block/sda/queue/iostats", "0"),
        ("block/sda/device/model", "A\u{1b}[2JB"),
        ("kernel/btf/vmlinux", "no BTF"),
        ("web.yml", "tls_server_config: ["),
    ] {
        std::fs::create_dir_all(folder.0.join(path).parent().unwrap()).unwrap();
        folder.write(path, text);
    }
    let sysfs = folder.0.to_str().unwrap();
    let web_config = folder.0.join("web.yml");
    let arguments =
        ["--sysfs", sysfs, "--listen", "127.0.0.1:0", "--web-config", web_config.to_str().unwrap()];
    let document = json(&arguments);
    assert_eq!((&document["version"], &document["works"]), (&1.into(), &false.into()));
    let output = check(&arguments);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = text(output);
    let mut lines = printed.lines();
    let findings = document["findings"].as_array().unwrap();
    for finding in findings {
        let word = match finding["verdict"].as_str().unwrap() {
            "fail" => "FAIL",
            other => other,
        };
        let line = lines.next().unwrap();
        let text = finding["text"].as_str().unwrap().replace('\u{1b}', "\u{fffd}");
        assert!(line.starts_with(word) && line.contains(finding["subject"].as_str().unwrap()), "{line}");
        assert!(line.ends_with(&text), "{line} does not end with {text}");
        for fix in finding["fix"].as_array().unwrap() {
            let line = lines.next().unwrap().trim();
            let fix = fix["command"].as_str().or(fix["step"].as_str()).unwrap();
            assert!(line.ends_with(fix), "{line} does not end with {fix}");
        }
    }
    let of = |id: &str| {
        let found = findings.iter().find(|finding| finding["id"] == id);
        found.unwrap_or_else(|| panic!("no {id} in {printed}"))["verdict"].clone()
    };
    assert_eq!([of("kernel.btf"), of("device.latencies"), of("web_config")], ["fail", "fail", "fail"]);
    assert_eq!(of("probe.load"), "note");
    assert!(printed.contains(&format!("{sysfs}/block/sda/queue/iostats")), "{printed}");
    assert!(!printed.contains('\u{1b}') && !printed.contains('✗'), "colours or symbols in a pipe: {printed}");
}

#[test]
fn colours_on_request() {
    let coloured = text(check(&["--listen", "127.0.0.1:0", "--color", "always"]));
    assert!(coloured.contains("\u{1b}[32mok"), "{coloured}");
}

#[test]
fn usage_errors_exit_with_2() {
    for (arguments, expected) in [
        (&["--device", "nvme["][..], "--device 'nvme[' is not a regular expression"),
        (&["--listen", "localhost"], "127.0.0.1:9976"),
        (&["--color", "red"], "auto, always, never"),
        (&["everything"], "unexpected argument 'everything'"),
    ] {
        let output = check(arguments);
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{printed}");
        assert!(printed.lines().count() == 1 && printed.contains(expected), "{printed}");
    }
    let output = check(&["--procfs", "/nonexistent"]);
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(printed.starts_with("error: ") && printed.contains("--procfs"), "{printed}");
}

#[test]
fn uses_daemon_environment_variables() {
    let output = Command::new(env!("CARGO_BIN_EXE_biolat-daemon"))
        .args(["check"])
        .env("BIOLAT_LISTEN", "127.0.0.1:0")
        .env("BIOLAT_WEB_CONFIG", "/nonexistent/web.yml")
        .output()
        .unwrap();
    let printed = text(output);
    assert!(printed.contains("127.0.0.1:0 is free") && printed.contains("/nonexistent/web.yml"), "{printed}");
}

//! TLS and passwords in a sandboxed daemon. `tests/userspace/clients.rs` tests the rest.

#[path = "../support/certificates.rs"]
mod certificates;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use certificates::{Authority, Folder};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::daemon::{Daemon, command, wait_for};

const TLS: &str = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n";

fn with_password(password: &str) -> String {
    format!("{TLS}basic_auth_users:\n  alice: {}\n", bcrypt::hash(password, 5).unwrap())
}

/// A running daemon, killed on drop.
struct TlsDaemon {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
}

impl Drop for TlsDaemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl TlsDaemon {
    fn start(config: &str) -> Self {
        let mut child =
            command(&["--web-config", config]).current_dir("/").stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&log);
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                shared.lock().unwrap().push(line);
            }
        });
        Self { child, log }
    }

    fn log_with(&self, text: &str) -> Vec<String> {
        self.log.lock().unwrap().iter().filter(|line| line.contains(text)).cloned().collect()
    }
}

/// An empty variable counts as unset. SIGHUP, which makes some daemons reload, is harmless.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn warns_of_open_access_with_empty_web_config() {
    let folder = Folder::new("open");
    let config = folder.write("web.yml", "");
    for (path, is_logged) in [("", false), (config.to_str().unwrap(), true)] {
        let daemon = Daemon::start_command(command(&["--interval", "100ms"]).env("BIOLAT_WEB_CONFIG", path));
        kill_process(Pid::from_raw(daemon.pid().cast_signed()).unwrap(), Signal::HUP).unwrap();
        daemon.fresh();
        let warned = daemon.log().iter().any(|line| line.contains("neither TLS nor passwords"));
        assert_eq!(warned, is_logged, "{path}: {:?}", daemon.log());
    }
}

#[test]
#[ignore = "needs root and curl: cargo xtask test"]
fn serves_https_and_reloads_changes() {
    let folder = Folder::new("daemon");
    let authority = Authority::new("authority");
    folder.write("authority.pem", authority.pem());
    authority.issue("server").write(&folder);
    let config = folder.write("web.yml", &with_password("old"));
    let daemon = TlsDaemon::start(config.to_str().unwrap());
    wait_for("the daemon to serve", || !daemon.log_with("serving on").is_empty());
    let line = daemon.log_with("serving on").remove(0);
    let url = line.split_once("serving on ").unwrap().1.to_owned();
    assert!(url.starts_with("https://127.0.0.1:"), "{line}");
    let status = |password: &str| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--output", "/dev/null", "--write-out", "%{http_code}", "--max-time", "10"]);
        let user = format!("alice:{password}");
        curl.current_dir(&folder.0).args(["--cacert", "authority.pem", "--user", &user, &url]);
        String::from_utf8(curl.output().unwrap().stdout).unwrap()
    };
    wait_for("metrics", || status("old") == "200");
    assert_eq!(status("wrong"), "401");

    fs::write(&config, with_password("new")).unwrap();
    wait_for("the new password to be loaded", || status("new") == "200");
    assert_eq!(status("old"), "401");
    assert_eq!(daemon.log_with("has changed: reloaded").len(), 1);

    fs::write(&config, "tls_server_config: [").unwrap();
    wait_for("the broken file to be reported", || {
        let _ = status("new");
        !daemon.log_with("keeping the previous configuration").is_empty()
    });
    thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!((status("new"), status("new")), ("200".into(), "200".into()));
    let lines = daemon.log_with("keeping the previous configuration");
    assert!(lines.len() == 1 && lines[0].contains("web.yml"), "expected one line: {lines:?}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn web_config_errors_are_one_line() {
    let folder = Folder::new("wrong");
    let (authority, other) = (Authority::new("authority"), Authority::new("other"));
    authority.issue("server").write(&folder);
    other.issue("other").write(&folder);
    folder.write("authority.pem", authority.pem());
    folder.write("text.pem", "no PEM");
    let verify = "  client_auth_type: RequireAndVerifyClientCert\n";
    for (text, code, expected) in [
        ("tls_server_config: [".to_owned(), 2, "line 2"),
        ("tls_server_confg: {}".into(), 2, "unknown field `tls_server_confg`"),
        ("basic_auth_users:\n  alice: hunter2\n".into(), 2, "the value of alice is not a bcrypt hash"),
        ("tls_server_config:\n  min_version: TLS12\n".into(), 2, "cert_file is missing"),
        ("tls_server_config:\n  cert_file: server.pem\n".into(), 2, "key_file is missing"),
        ("tls_server_config:\n  cert_file: text.pem\n  key_file: server.key\n".into(), 1, "no certificate"),
        ("tls_server_config:\n  cert_file: server.pem\n  key_file: text.pem\n".into(), 1, "no private key"),
        ("tls_server_config:\n  cert_file: server.pem\n  key: x\n".into(), 2, "key holds no private key"),
        (
            "tls_server_config:\n  cert_file: server.pem\n  key_file: |\n    x\n".into(),
            2,
            "key_file must be a file name",
        ),
        ("tls_server_config:\n  cert_file: server.pem\n  key_file: other.key\n".into(), 1, "do not match"),
        (format!("{TLS}  cert: x\n"), 2, "cert and cert_file are both given"),
        (format!("{TLS}  min_version: TLS14\n"), 2, "'TLS14' is not TLS12 or TLS13"),
        (format!("{TLS}  max_version: TLS11\n"), 2, "TLS12 and TLS13"),
        (format!("{TLS}  min_version: TLS13\n  max_version: TLS12\n"), 2, "no version between"),
        (
            format!("{TLS}  cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]\n"),
            2,
            "unknown suite TLS_RSA_WITH_RC4_128_SHA",
        ),
        (format!("{TLS}  curve_preferences: [CurveP521]\n"), 2, "no supported curve"),
        (format!("{TLS}  client_auth_type: Sometimes\n"), 2, "client_auth_type 'Sometimes'"),
        (format!("{TLS}{verify}"), 2, "requires client_ca_file"),
        (format!("{TLS}{verify}  client_ca_file: text.pem\n"), 1, "no certificate"),
        (format!("{TLS}  client_ca_file: authority.pem\n"), 2, "client certificates are not verified"),
        (format!("{TLS}  client_allowed_sans: [a]\n"), 2, "client_allowed_sans requires"),
        (
            format!("{TLS}  client_auth_type: RequireAnyClientCert\n  client_allowed_sans: [a]\n"),
            2,
            "client_allowed_sans requires",
        ),
        ("http_server_config:\n  headers:\n    Server: x\n".into(), 2, "Server cannot be set"),
        ("http_server_config:\n  headers:\n    X-Frame-Options: maybe\n".into(), 2, "deny or sameorigin"),
        (
            "tls_server_config:\n  cert_file: missing.pem\n  key_file: server.key\n".into(),
            1,
            "missing.pem: No such file",
        ),
    ] {
        let config = folder.write("web.yml", &text);
        let output = command(&["--web-config", config.to_str().unwrap()]).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        let errors: Vec<_> = stderr.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!(output.status.code(), Some(code), "{text}: {stderr}");
        assert!(
            errors.len() == 1 && errors[0].contains("web.yml") && errors[0].contains(expected),
            "{text}: {stderr}"
        );
        assert!(!stderr.contains("hunter2") && !stderr.contains("serving"), "{stderr}");
    }
    let output = command(&["--web-config", "/nonexistent/web.yml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
}

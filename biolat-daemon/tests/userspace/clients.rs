//! TLS and passwords with real clients: curl, openssl and Prometheus. These tests need neither the probe nor privileges; `cargo
//! xtask test` runs them where the programs are installed.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use biolat_daemon::{
    http::{Limits, Service, serve},
    web_config::WebConfig,
};
use tokio::sync::watch;

use crate::support::certificates::{Authority, Folder};
use crate::support::prometheus::PrometheusServer;
use crate::support::snapshots::{serve_config, snapshot};

const PASSWORDS: &str = "basic_auth_users:\n  alice: ";
const TLS: &str = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n";
const CLIENTS: &str = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: authority.pem\n";

fn hash(password: &str) -> String {
    bcrypt::hash(password, 5).unwrap()
}

/// Starts a server with this configuration, which runs until the process ends.
fn server(config: &Path) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let web_config = WebConfig::open(config).unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (_snapshots, seen) = watch::channel(Some(Arc::new(snapshot(1))));
            let (_stop, stopped) = watch::channel(false);
            let listeners = vec![listener.try_into().unwrap()];
            let service = Service::new(seen, serve_config()).with_web_config(web_config);
            serve(listeners, service, Limits::default(), stopped).await;
        });
    });
    address
}

/// Runs curl. Returns its exit code, the status, and the response's head and body.
fn curl(folder: &Folder, arguments: &str) -> (i32, u16, String) {
    let output = Command::new("curl")
        .current_dir(&folder.0)
        .args(["--silent", "--show-error", "--include", "--max-time", "10"])
        .args(arguments.split_whitespace())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (output.status.code().unwrap(), status, text)
}

/// Runs `openssl s_client`, sends these bytes and returns the output.
fn openssl(folder: &Folder, address: SocketAddr, arguments: &str, send: &str) -> String {
    use std::io::Write as _;
    let mut child = Command::new("timeout")
        .current_dir(&folder.0)
        .args(["10", "openssl", "s_client", "-connect", &address.to_string(), "-ign_eof"])
        .args(arguments.split_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = child.stdin.take().unwrap().write_all(send.as_bytes());
    let Output { stdout, stderr, .. } = child.wait_with_output().unwrap();
    String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned()
}

/// Waits for a reload, with extra time for a busy machine.
fn wait_for_reload(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
#[ignore = "needs curl: cargo xtask test"]
fn curl_authenticates_with_password() {
    let folder = Folder::new("passwords");
    let authority = Authority::new("authority");
    authority.issue("server").write(&folder);
    fs::write(folder.0.join("authority.pem"), authority.pem()).unwrap();
    let config = folder.write("web.yml", &format!("{TLS}{PASSWORDS}{}\n", hash("hunter2")));
    let address = server(&config);
    let get = |arguments: &str| curl(&folder, &format!("--cacert authority.pem {arguments}"));

    let (code, status, text) = get(&format!("-u alice:hunter2 https://{address}/metrics"));
    assert_eq!((code, status), (0, 200), "{text}");
    assert!(
        text.contains("biolat_total_latency_seconds_count{device=\"nvme0n1\",op=\"read\"} 481"),
        "{text}"
    );
    for path in ["/metrics", "/", "/-/healthy", "/-/ready", "/nothing"] {
        for wrong in ["", "-u alice:hunter3", "-u alice:", "-u bob:hunter2", "-H Authorization:Basic"] {
            let (code, status, text) = get(&format!("{wrong} https://{address}{path}"));
            assert_eq!((code, status), (0, 401), "{wrong} {path}: {text}");
            assert!(text.to_lowercase().contains("www-authenticate: basic realm=\"biolat\""), "{text}");
        }
    }
    assert_eq!(get(&format!("-u alice:hunter2 https://{address}/-/healthy")).1, 200);
}

#[test]
#[ignore = "needs curl and openssl: cargo xtask test"]
fn rejects_bad_connections() {
    let folder = Folder::new("rejected");
    let authority = Authority::new("authority");
    authority.issue("server").write(&folder);
    fs::write(folder.0.join("authority.pem"), authority.pem()).unwrap();
    let address = server(&folder.write("web.yml", TLS));
    let (code, _, text) = curl(&folder, &format!("https://{address}/metrics"));
    assert_eq!(code, 60, "untrusted CA: {text}");
    let (code, status, text) = curl(&folder, &format!("http://{address}/metrics"));
    assert_eq!((code, status), (0, 400), "plain HTTP: {text}");
    let message = "this is an HTTPS server and got plain HTTP: begin with https://\n";
    assert!(text.to_lowercase().contains(&format!("content-length: {}", message.len())), "{text}");
    assert!(text.ends_with(message), "{text}");
    for version in ["-tls1", "-tls1_1"] {
        // At a higher security level openssl itself rejects these versions.
        let output = openssl(&folder, address, &format!("{version} -cipher ALL:@SECLEVEL=0"), "");
        assert!(
            output.contains("Cipher is (NONE)") && output.contains("SSL alert number"),
            "{version}: {output}"
        );
    }
    for version in ["-tls1_2", "-tls1_3"] {
        let get = "GET /-/healthy HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let arguments = format!("{version} -CAfile authority.pem -verify_return_error -verify_ip 127.0.0.1");
        let output = openssl(&folder, address, &arguments, get);
        assert!(
            output.contains("Verification: OK") && output.contains("HTTP/1.1 200 OK"),
            "{version}: {output}"
        );
    }

    authority.issue_expired("server").write(&folder);
    let address = server(&folder.0.join("web.yml"));
    let (code, _, text) = curl(&folder, &format!("--cacert authority.pem https://{address}/metrics"));
    assert_eq!(code, 60, "expired certificate: {text}");
    assert!(text.contains("expired"), "{text}");
}

#[test]
#[ignore = "needs curl: cargo xtask test"]
fn client_certificates() {
    let folder = Folder::new("certificates");
    let (authority, other) = (Authority::new("authority"), Authority::new("other"));
    fs::write(folder.0.join("authority.pem"), authority.pem()).unwrap();
    authority.issue("server").write(&folder);
    authority.issue("client").write(&folder);
    authority.issue_expired("expired").write(&folder);
    other.issue("untrusted").write(&folder);
    authority.issue("unnamed").write(&folder);
    let get = |address: SocketAddr, client: &str| {
        let client =
            if client.is_empty() { String::new() } else { format!("--cert {client}.pem --key {client}.key") };
        let (code, status, _) =
            curl(&folder, &format!("--cacert authority.pem {client} https://{address}/metrics"));
        if code == 0 { status } else { 0 }
    };

    let verified = server(&folder.write("verified.yml", &format!("{TLS}{CLIENTS}")));
    let named = format!("{TLS}{CLIENTS}  client_allowed_sans: [client.example]\n");
    let named = server(&folder.write("named.yml", &named));
    let if_given = CLIENTS.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven");
    let if_given = server(&folder.write("given.yml", &format!("{TLS}{if_given}")));
    let any = format!("{TLS}  client_auth_type: RequireAnyClientCert\n");
    let any = server(&folder.write("any.yml", &any));
    for (client, expected) in [
        ("", [0, 0, 200, 0]),
        ("client", [200, 200, 200, 200]),
        ("unnamed", [200, 0, 200, 200]),
        ("expired", [0, 0, 0, 200]),
        ("untrusted", [0, 0, 0, 200]),
    ] {
        let found = [verified, named, if_given, any].map(|address| get(address, client));
        assert_eq!(found, expected, "'{client}' with RequireAndVerify, allowed names, IfGiven, RequireAny");
    }
}

#[test]
#[ignore = "needs curl and openssl: cargo xtask test"]
fn reloads_changed_files() {
    let folder = Folder::new("changes");
    let authority = Authority::new("authority");
    fs::write(folder.0.join("authority.pem"), authority.pem()).unwrap();
    // The layout of a secret mounted by Kubernetes.
    for generation in ["first", "second"] {
        fs::create_dir(folder.0.join(generation)).unwrap();
        let issued = authority.issue("server");
        fs::write(folder.0.join(generation).join("server.pem"), issued.certificate).unwrap();
        fs::write(folder.0.join(generation).join("server.key"), issued.key).unwrap();
    }
    symlink("first", folder.0.join("..data")).unwrap();
    for name in ["server.pem", "server.key"] {
        symlink(format!("..data/{name}"), folder.0.join(name)).unwrap();
    }
    let config = folder.write("web.yml", &format!("{TLS}{PASSWORDS}{}\n", hash("old")));
    let address = server(&config);
    let status = |password: &str| {
        let arguments = format!("--cacert authority.pem -u alice:{password} https://{address}/metrics");
        curl(&folder, &arguments).1
    };
    let served = || {
        let output = openssl(&folder, address, "", "GET / HTTP/1.0\r\n\r\n");
        let end = "-----END CERTIFICATE-----\n";
        let begin = output.find("-----BEGIN CERTIFICATE-----").unwrap_or(0);
        output[begin..].split_once(end).map(|(pem, _)| format!("{pem}{end}")).unwrap_or_default()
    };
    let on_disk = |generation: &str| {
        fs::read_to_string(folder.0.join(generation).join("server.pem")).unwrap().replace("\r\n", "\n")
    };
    assert_eq!((status("old"), status("new")), (200, 401));
    assert_eq!(served(), on_disk("first"));

    symlink("second", folder.0.join("..next")).unwrap();
    fs::rename(folder.0.join("..next"), folder.0.join("..data")).unwrap();
    wait_for_reload("the new certificate is served", || served() == on_disk("second"));
    fs::write(&config, format!("{TLS}{PASSWORDS}{}\n", hash("new"))).unwrap();
    wait_for_reload("the new password works", || status("new") == 200);
    assert_eq!(status("old"), 401);

    // Errors, and configurations that would remove a protection, are ignored.
    for broken in ["tls_server_config: [", "", TLS, &format!("{PASSWORDS}{}\n", hash("new"))] {
        fs::write(&config, broken).unwrap();
        thread::sleep(Duration::from_millis(1500));
        assert_eq!((status("new"), status("old"), status("")), (200, 401, 401), "{broken}");
    }
    fs::write(&config, format!("{TLS}{PASSWORDS}{}\n", hash("last"))).unwrap();
    wait_for_reload("the last password works", || status("last") == 200);
}

/// Without a change to the web config, a stream lasts an hour.
#[test]
#[ignore = "needs curl: cargo xtask test"]
fn web_config_change_ends_event_stream() {
    use std::io::{BufRead as _, BufReader};
    let folder = Folder::new("events");
    let authority = Authority::new("authority");
    fs::write(folder.0.join("authority.pem"), authority.pem()).unwrap();
    authority.issue("server").write(&folder);
    let with = |password: &str| format!("{TLS}{PASSWORDS}{}\n", hash(password));
    let config = folder.write("web.yml", &with("old"));
    let url = format!("https://{}/api/v1/events", server(&config));
    let status =
        |password: &str| curl(&folder, &format!("--cacert authority.pem -u alice:{password} {url}")).1;
    assert_eq!((status("wrong"), curl(&folder, &format!("--cacert authority.pem {url}")).1), (401, 401));

    let listen = |password: &str| {
        let mut child = Command::new("curl")
            .current_dir(&folder.0)
            .args(["--silent", "--no-buffer", "--max-time", "30", "--cacert", "authority.pem", &url])
            .args(["--user", &format!("alice:{password}")])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line == "event: collection"), "no event on the stream");
        (child, lines)
    };
    let (mut child, lines) = listen("old");
    let began = Instant::now();
    fs::write(&config, with("new")).unwrap();
    // No other request triggers a check of the file.
    let rest: Vec<_> = lines.collect();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}: {rest:?}", began.elapsed());
    assert!(child.wait().unwrap().success(), "the stream was cut off: {rest:?}");
    assert_eq!(status("old"), 401);

    // The same with a new certificate.
    let (mut child, lines) = listen("new");
    authority.issue("server").write(&folder);
    drop(lines.collect::<Vec<_>>());
    assert!(child.wait().unwrap().success());
    let (mut child, _) = listen("new");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A client that is no longer allowed is not served on its open connection. One that is still allowed reconnects by itself.
#[test]
#[ignore = "needs curl and openssl: cargo xtask test"]
fn web_config_changes_apply_to_open_connections() {
    use std::io::{Read as _, Write as _};
    const REQUEST: &[u8] = b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n";
    let folder = Folder::new("open");
    let authority = Authority::new("authority");
    fs::write(folder.0.join("authority.pem"), authority.pem()).unwrap();
    authority.issue("server").write(&folder);
    authority.issue("client").write(&folder);
    authority.issue("other").write(&folder);
    let named = |name: &str| format!("{TLS}{CLIENTS}  client_allowed_sans: [{name}.example]\n");
    let config = folder.write("web.yml", &named("client"));
    let address = server(&config);
    let status = |client: &str| {
        let certificate = format!("--cacert authority.pem --cert {client}.pem --key {client}.key");
        curl(&folder, &format!("{certificate} https://{address}/metrics")).1
    };
    let mut openssl = Command::new("timeout")
        .current_dir(&folder.0)
        .args(["30", "openssl", "s_client", "-quiet", "-connect", &address.to_string()])
        .args(["-cert", "client.pem", "-key", "client.key"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut to, mut from) = (openssl.stdin.take().unwrap(), openssl.stdout.take().unwrap());
    to.write_all(REQUEST).unwrap();
    from.read_exact(&mut [0; 12]).unwrap();
    fs::write(&config, named("other")).unwrap();
    wait_for_reload("the other client is allowed", || status("other") == 200);
    assert_eq!(status("client"), 0);
    to.write_all(REQUEST).unwrap();
    let mut rest = String::new();
    from.read_to_string(&mut rest).unwrap();
    openssl.wait().unwrap();
    assert!(!rest.contains("HTTP/1.1"), "a second response: {rest}");

    // Two scrapes on one connection, three seconds apart, with a certificate change in between.
    let scrapes = thread::scope(|scope| {
        let scrapes = scope.spawn(|| {
            let certificate = "--cacert authority.pem --cert other.pem --key other.key";
            let healthy = format!("https://{address}/-/healthy");
            curl(&folder, &format!("--verbose --rate 20/m {certificate} {healthy} {healthy}"))
        });
        thread::sleep(Duration::from_secs(1));
        authority.issue("server").write(&folder);
        scrapes.join().unwrap()
    });
    assert_eq!((scrapes.0, scrapes.2.matches("HTTP/1.1 200 OK").count() / 2), (0, 2), "{}", scrapes.2);
    assert!(scrapes.2.contains("Re-using existing connection"), "{}", scrapes.2);

    let config = folder.write("plain.yml", "");
    let address = server(&config);
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(REQUEST).unwrap();
    stream.read_exact(&mut [0; 12]).unwrap();
    fs::write(&config, TLS).unwrap();
    wait_for_reload("the server speaks TLS", || {
        curl(&folder, &format!("--cacert authority.pem https://{address}/metrics")).1 == 200
    });
    stream.write_all(REQUEST).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("HTTP/1.1"), "a second response over plain HTTP: {rest}");
}

/// The page's Content-Security-Policy contains the hashes of its script and style, which a web config cannot know.
#[test]
#[ignore = "needs curl: cargo xtask test"]
fn page_keeps_its_own_policy() {
    let folder = Folder::new("policy");
    let text = "http_server_config:\n  headers:\n    Content-Security-Policy: default-src 'self'\n";
    let address = server(&folder.write("web.yml", text));
    let (_, _, page) = curl(&folder, &format!("http://{address}/"));
    assert!(page.contains("script-src 'sha256-") && !page.contains("default-src 'self'"), "{page}");
    let (_, _, figures) = curl(&folder, &format!("http://{address}/metrics"));
    assert!(figures.contains("content-security-policy: default-src 'self'\r\n"), "{figures}");
}

#[test]
#[ignore = "needs curl: cargo xtask test"]
fn shipped_configuration_works() {
    let folder = Folder::new("shipped");
    let authority = Authority::new("authority");
    let issued = authority.issue("server");
    for (name, text) in
        [("authority.pem", authority.pem()), ("biolat.crt", &issued.certificate), ("biolat.key", &issued.key)]
    {
        folder.write(name, text);
    }
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/web-config.yml");
    let shipped = fs::read_to_string(shipped).unwrap();
    let address = server(&folder.write("as-it-is.yml", &shipped));
    let arguments = format!("--cacert authority.pem -u prometheus:changeme https://{address}/metrics");
    let (_, status, text) = curl(&folder, &arguments);
    assert_eq!(status, 200, "{text}");
    for header in ["x-frame-options: deny\r\n", "x-content-type-options: nosniff\r\n"] {
        assert!(text.contains(header), "{text}");
    }
    // The commented-out settings also work.
    let is_key = |line: &str| {
        line.trim_start().starts_with("# ") && {
            let key = line.trim_start().trim_start_matches("# ");
            key.starts_with("- TLS_")
                || key.split_once(':').is_some_and(|(key, _)| {
                    !key.is_empty()
                        && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
                        && key != "https"
                })
        }
    };
    let all: String = shipped
        .lines()
        .map(|line| if is_key(line) { line.replacen("# ", "", 1) } else { line.to_owned() } + "\n")
        .collect();
    let all =
        all.replace("clients-ca.crt", "authority.pem").replace("prometheus.example.org", "client.example");
    authority.issue("client").write(&folder);
    let address = server(&folder.write("all-of-it.yml", &all));
    let certificate = "--cacert authority.pem --cert client.pem --key client.key -u prometheus:changeme";
    let (_, status, text) = curl(&folder, &format!("{certificate} https://{address}/metrics"));
    assert_eq!(status, 200, "{text}");
    assert!(text.contains("strict-transport-security: max-age=31536000\r\n"), "{text}");
    let without = format!("--cacert authority.pem -u prometheus:changeme https://{address}/metrics");
    assert_ne!(curl(&folder, &without).0, 0, "accepted without a certificate");
}

/// A Prometheus that scrapes one target.
struct Prometheus(PrometheusServer);

impl Prometheus {
    fn scraping(folder: &Folder, name: &str, target: SocketAddr, how: &str) -> Self {
        let config = folder.write(
            &format!("{name}.yml"),
            &format!(
                "scrape_configs:\n- job_name: biolat\n  scheme: https\n  scrape_interval: 500ms\n  \
                 scrape_timeout: 500ms\n  static_configs:\n  - targets: ['{target}']\n{how}"
            ),
        );
        Self(PrometheusServer::start("prometheus".as_ref(), &config, &folder.0.join(name), &[]))
    }

    /// Returns the target's health and last error after a scrape.
    fn health(&self, folder: &Folder) -> (String, String) {
        let mut found = (String::new(), String::new());
        wait_for_reload("Prometheus has scraped", || {
            let (_, _, text) = curl(folder, &format!("http://{}/api/v1/targets", self.0.address));
            let body = text.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
            let json: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
            let target = &json["data"]["activeTargets"][0];
            let text = |name: &str| target[name].as_str().unwrap_or_default().to_owned();
            found = (text("health"), text("lastError"));
            matches!(found.0.as_str(), "up" | "down")
        });
        found
    }
}

#[test]
#[ignore = "needs curl and prometheus: cargo xtask test"]
fn prometheus_scrapes() {
    let folder = Folder::new("prometheus");
    let authority = Authority::new("authority");
    fs::write(folder.0.join("authority.pem"), authority.pem()).unwrap();
    authority.issue("server").write(&folder);
    authority.issue("client").write(&folder);
    let target = server(&folder.write("web.yml", &format!("{TLS}{CLIENTS}{PASSWORDS}{}\n", hash("hunter2"))));
    let path = |name: &str| folder.0.join(name).display().to_string();
    let ca = format!("  tls_config:\n    ca_file: {}\n", path("authority.pem"));
    let certificate =
        format!("    cert_file: {}\n    key_file: {}\n", path("client.pem"), path("client.key"));
    let credentials = |password| format!("  basic_auth:\n    username: alice\n    password: {password}\n");
    for (name, how, expected) in [
        ("right", format!("{ca}{certificate}{}", credentials("hunter2")), ("up", "")),
        (
            "wrong-password",
            format!("{ca}{certificate}{}", credentials("hunter3")),
            ("down", "401 Unauthorized"),
        ),
        ("no-password", format!("{ca}{certificate}"), ("down", "401 Unauthorized")),
        ("no-certificate", format!("{ca}{}", credentials("hunter2")), ("down", "certificate required")),
        ("no-authority", credentials("hunter2"), ("down", "certificate signed by unknown authority")),
    ] {
        let (health, why) = Prometheus::scraping(&folder, name, target, &how).health(&folder);
        assert!(health == expected.0 && why.contains(expected.1), "{name}: {health}, {why}");
    }

    // No scrape fails when the certificate is renewed.
    let how = format!("{ca}{certificate}{}", credentials("hunter2"));
    let prometheus = Prometheus::scraping(&folder, "renewed", target, &how);
    prometheus.health(&folder);
    for _ in 0..3 {
        authority.issue("server").write(&folder);
        thread::sleep(Duration::from_secs(2));
    }
    let query = "query?query=count_over_time(up[1m])*min_over_time(up[1m])";
    let (_, _, text) = curl(&folder, &format!("--globoff http://{}/api/v1/{query}", prometheus.0.address));
    let value = text.rsplit('"').nth(1).and_then(|value| value.parse::<f64>().ok());
    assert!(value.is_some_and(|scrapes| scrapes > 8.0), "{text}");
}

//! `--web-config`: TLS, passwords and headers, in the file format of the [Prometheus exporter toolkit]. Changed files are
//! reloaded while the daemon runs. If the new configuration has an error, the previous one is kept and the error is logged
//! once.
//!
//! biolat is stricter than the toolkit: only TLS 1.2 and 1.3 and HTTP/1.1 are supported. Client certificates are verified against
//! the given `client_ca`, never against the system's trust store. A reload never removes a protection (TLS, its minimum version,
//! client certificates and their names, passwords), because a half-written file can look as if the protection had been removed.
//!
//! [Prometheus exporter toolkit]: https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md

mod client_certificates;
mod file_format;
mod files;
mod passwords;
mod tls;

use std::{
    collections::BTreeMap,
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, Result};
use biolat_model::text::sanitize;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::{task::spawn_blocking, time::timeout};
use tokio_rustls::rustls::ServerConfig;

use files::Files;
use passwords::{Passwords, Users};

pub(crate) use passwords::AuthOutcome;

/// How often the files are checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time that a connection waits for a check; the files may be on a hung drive.
const RELOAD_WAIT: Duration = Duration::from_millis(200);

/// Headers that can be set, as in the exporter toolkit, and their allowed values; an empty list allows any value.
const HEADERS: [(&str, &[&str]); 5] = [
    ("Content-Security-Policy", &[]),
    ("Strict-Transport-Security", &[]),
    ("X-Content-Type-Options", &["nosniff"]),
    ("X-Frame-Options", &["deny", "sameorigin"]),
    ("X-XSS-Protection", &[]),
];

/// An error in the configuration itself, which a restart will not fix.
#[derive(Debug)]
pub struct WebConfigError(String);

/// Prints one line, because names in the file can contain line feeds.
impl fmt::Display for WebConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&sanitize::text(&self.0))
    }
}

impl std::error::Error for WebConfigError {}

/// A loaded configuration.
#[derive(Debug, Default)]
pub(crate) struct Access {
    /// TLS server configuration; `None` for plain HTTP.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// Headers for responses that do not set them themselves.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// Names of the active protections.
    protections: Vec<&'static str>,
    /// Expiry time of the certificate.
    expires: Option<SystemTime>,
    users: Users,
}

/// A configuration file, its last loaded configuration, and the passwords verified so far.
pub struct WebConfig {
    path: PathBuf,
    state: Mutex<LoadState>,
    passwords: Passwords,
}

struct LoadState {
    access: Arc<Access>,
    files: Files,
    checked_at: Instant,
    checking: bool,
    /// Error of the last reload.
    reload_error: Option<String>,
    /// Expiry time of the last certificate whose expiry was logged.
    logged_expiry: Option<SystemTime>,
}

/// A check of the files for changes. Only one exists at a time; dropping it, even in a panic, allows the next one.
struct ReloadCheck(Arc<WebConfig>);

impl Drop for ReloadCheck {
    fn drop(&mut self) {
        let mut state = self.0.state();
        (state.checked_at, state.checking) = (Instant::now(), false);
    }
}

impl WebConfig {
    /// Loads a configuration file and the files it names. An error in the configuration file itself is a [`WebConfigError`].
    pub fn open(path: &Path) -> Result<Self> {
        let (access, files) = load(path);
        let access = Arc::new(access?);
        let state = Mutex::new(LoadState {
            access,
            files,
            checked_at: Instant::now(),
            checking: false,
            reload_error: None,
            logged_expiry: None,
        });
        let web_config = Self { path: path.to_owned(), state, passwords: Passwords::new()? };
        web_config.log_expiry(SystemTime::now());
        Ok(web_config)
    }

    /// Returns `https` or `http`.
    pub fn scheme(&self) -> &'static str {
        if self.state().access.tls.is_some() { "https" } else { "http" }
    }

    /// Expiry time of the server's certificate.
    pub fn certificate_expires(&self) -> Option<SystemTime> {
        self.state().access.expires
    }

    /// Names of the active protections: `TLS`, `passwords`, …
    pub fn protections(&self) -> Vec<&'static str> {
        self.state().access.protections.clone()
    }

    /// Returns the current configuration, checking the files for changes about once a second.
    pub(crate) async fn access(self: &Arc<Self>) -> Arc<Access> {
        if let Some(check) = self.due_check() {
            let checked = spawn_blocking(move || {
                check.0.reload_if_changed();
                check.0.log_expiry(SystemTime::now());
            });
            let _ = timeout(RELOAD_WAIT, checked).await;
        }
        Arc::clone(&self.state().access)
    }

    /// Checks the credentials of a request.
    pub(crate) async fn authenticate(
        &self,
        access: &Access,
        headers: &HeaderMap,
        from: IpAddr,
    ) -> AuthOutcome {
        if access.users.is_empty() {
            return AuthOutcome::Allowed;
        }
        self.passwords.check(&access.users, headers, from).await
    }

    fn due_check(self: &Arc<Self>) -> Option<ReloadCheck> {
        let mut state = self.state();
        if state.checking || state.checked_at.elapsed() < CHECK_INTERVAL {
            return None;
        }
        state.checking = true;
        Some(ReloadCheck(Arc::clone(self)))
    }

    /// Logs once that the certificate has expired. Returns whether it logged.
    fn log_expiry(&self, now: SystemTime) -> bool {
        let mut state = self.state();
        let expired = state.access.expires.filter(|&expires| expires <= now);
        let is_new = expired.is_some() && expired != state.logged_expiry;
        if is_new {
            state.logged_expiry = expired;
            log::warn!("the certificate of {} has expired: clients reject it", self.path.display());
        }
        is_new
    }

    fn reload_if_changed(&self) {
        let before = self.state().files.clone();
        if !before.changed() {
            return;
        }
        let (access, files) = load(&self.path);
        let is_same = files.same_content(&before);
        let (before, last_error) = {
            let mut state = self.state();
            state.files = files;
            (Arc::clone(&state.access), state.reload_error.take())
        };
        if access.is_ok() && last_error.is_none() && is_same {
            // The files were only touched or rewritten with the same content: connections and verified passwords stay valid.
            return;
        }
        match access.and_then(|access| keeps_protections(&before, &access).map(|()| access)) {
            Ok(access) => {
                log::info!("{} has changed: reloaded", self.path.display());
                self.state().access = Arc::new(access);
            }
            Err(error) => {
                let error = format!("{error:#}");
                // Every check retries an unreadable file, so log its error only once.
                if last_error.as_ref() != Some(&error) {
                    log::warn!("{error}; keeping the previous configuration");
                }
                self.state().reload_error = Some(error);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, LoadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fails if the new configuration lacks a protection that the previous one had.
fn keeps_protections(before: &Access, access: &Access) -> Result<()> {
    match before.protections.iter().find(|protection| !access.protections.contains(protection)) {
        Some(protection) => {
            anyhow::bail!("the web config no longer has {protection}: removing it requires a restart")
        }
        None => Ok(()),
    }
}

fn load(path: &Path) -> (Result<Access>, Files) {
    let mut files = Files::default();
    let access = access(path, &mut files).with_context(|| format!("web config {}", path.display()));
    (access, files)
}

fn access(path: &Path, files: &mut Files) -> Result<Access> {
    let text = String::from_utf8(files.read(path)?).map_err(|_| WebConfigError("not UTF-8".into()))?;
    let format = file_format::parse(&text)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let http = format.http_server_config.unwrap_or_default();
    if http.http2 == Some(true) {
        log::info!("http2: ignored, biolat serves HTTP/1.1 only");
    }
    let tls = tls::server(format.tls_server_config.unwrap_or_default(), folder, files)?;
    let users = Users::new(format.basic_auth_users.unwrap_or_default())?;
    let expires = tls.as_ref().and_then(|tls| tls.expires);
    let (tls, mut protections) = tls.map_or_else(Default::default, |tls| (Some(tls.config), tls.protections));
    if !users.is_empty() {
        protections.push("passwords");
    }
    Ok(Access { tls, headers: headers(http.headers.unwrap_or_default())?, protections, expires, users })
}

fn headers(given: BTreeMap<String, String>) -> Result<Vec<(HeaderName, HeaderValue)>, WebConfigError> {
    given
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| {
            let Some((_, values)) = HEADERS.iter().find(|(known, _)| *known == name) else {
                let known = HEADERS.map(|(name, _)| name).join(", ");
                return Err(WebConfigError(format!("headers: {name} cannot be set; allowed: {known}")));
            };
            if !values.is_empty() && !values.contains(&value.as_str()) {
                return Err(WebConfigError(format!("headers: {name} must be {}", values.join(" or "))));
            }
            let invalid =
                |_| WebConfigError(format!("headers: the value of {name} is not valid in a header"));
            let value = HeaderValue::from_str(&value).map_err(invalid)?;
            Ok((HeaderName::from_bytes(name.as_bytes()).map_err(|_| WebConfigError(name))?, value))
        })
        .collect()
}

#[cfg(test)]
#[path = "../../tests/support/certificates.rs"]
mod certificates;

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, OnceLock},
        thread,
        time::{Duration, Instant, SystemTime},
    };

    use proptest::{
        collection::vec,
        prelude::*,
        sample::{Index, select},
    };

    use super::{
        CHECK_INTERVAL, WebConfig, WebConfigError,
        certificates::{Authority, Folder},
        keeps_protections, load,
    };

    const TLS: &str = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n";

    /// Creates a directory with a server certificate and its authority's certificate.
    fn folder(name: &str) -> Folder {
        let folder = Folder::new(name);
        let authority = Authority::new("authority");
        authority.issue("server").write(&folder);
        folder.write("authority.pem", authority.pem());
        folder
    }

    /// Generates files from valid configuration lines, with the errors of half-written or mistyped files.
    fn yaml() -> impl Strategy<Value = String> {
        let line = prop_oneof![
            8 => select(vec![
                "tls_server_config:",
                "  cert_file: server.pem",
                "  key_file: server.key",
                "  cert: x",
                "  client_auth_type: RequireAndVerifyClientCert",
                "  client_ca_file: authority.pem",
                "  client_allowed_sans: [client.example]",
                "  min_version: TLS13",
                "  max_version: TLS12",
                "  cipher_suites: [TLS_NULL]",
                "  curve_preferences: [X25519]",
                "http_server_config:",
                "  http2: true",
                "  headers:",
                "    X-Frame-Options: deny",
                "    X-Frame-Options: \"a\\nb\"",
                "basic_auth_users:",
                "  alice: $2y$10$abc",
                "  alice: [hunter2]",
                "  ? |",
                "&a [*a]",
                "--- !!binary",
                "\t",
            ]).prop_map(str::to_owned),
            1 => "\\PC{0,12}",
        ];
        vec(line, 0..10).prop_map(|lines| lines.join("\n"))
    }

    fn assert_error_has_one_line(config: &[u8]) {
        let folder = FOLDER.get_or_init(|| folder("properties"));
        let path = folder.0.join(format!("{:?}.yml", thread::current().id()));
        std::fs::write(&path, config).unwrap();
        if let Err(error) = load(&path).0 {
            let text = format!("{error:#}");
            assert!(text.starts_with("web config ") && !text.contains('\n'), "{text:?}");
        }
    }

    static FOLDER: OnceLock<Folder> = OnceLock::new();

    #[test]
    fn logs_expired_certificate_once() {
        let folder = folder("expires");
        let config = WebConfig::open(&folder.write("web.yml", TLS)).unwrap();
        let expires = config.certificate_expires().unwrap();
        assert!(!config.log_expiry(expires - Duration::from_secs(1)));
        assert!(config.log_expiry(expires) && !config.log_expiry(expires));
        Authority::new("authority").issue_expired("server").write(&folder);
        config.reload_if_changed();
        assert!(config.log_expiry(SystemTime::now()), "another certificate that has expired");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_file_loads_or_fails_with_one_line(config in yaml()) {
            assert_error_has_one_line(config.as_bytes());
        }

        #[test]
        fn any_damaged_file_loads_or_fails_with_one_line(
            config in yaml(),
            at in any::<Index>(),
            damage in vec(any::<u8>(), 0..4),
        ) {
            let mut bytes = config.into_bytes();
            let at = at.index(bytes.len() + 1);
            bytes.truncate(at);
            bytes.extend(damage);
            assert_error_has_one_line(&bytes);
        }
    }

    #[test]
    fn checks_continue_after_a_panic() {
        let folder = folder("looks");
        let web_config = Arc::new(WebConfig::open(&folder.write("web.yml", TLS)).unwrap());
        let due = || {
            web_config.state().checked_at = Instant::now().checked_sub(CHECK_INTERVAL).unwrap();
            web_config.due_check()
        };
        let check = due().unwrap();
        assert!(due().is_none(), "one at a time");
        let panics = thread::spawn(move || {
            let _check = check;
            panic!("on purpose");
        });
        panics.join().unwrap_err();
        assert!(web_config.due_check().is_none(), "not before the interval has passed");
        folder.write("web.yml", &format!("{TLS}  min_version: TLS13\n"));
        due().unwrap().0.reload_if_changed();
        assert!(web_config.state().access.protections.contains(&"TLS 1.3 only"), "reloaded");
    }

    /// Other files may be about to be replaced, so a restart can fix such an error.
    #[test]
    fn errors_in_other_files_are_not_web_config_errors() {
        let folder = folder("faults");
        Authority::new("other").issue("other").write(&folder);
        folder.write("text.pem", "no PEM");
        let inline = "cert: x\n  key: y";
        let verify = "client_auth_type: RequireAndVerifyClientCert";
        for (tls, expected, is_own) in [
            ("cert_file: server.pem\n  key_file: other.key", "server.pem do not match", false),
            ("cert_file: text.pem\n  key_file: server.key", "text.pem holds no certificate", false),
            ("cert_file: server.pem\n  key_file: text.pem", "text.pem holds no private key", false),
            ("cert_file: missing.pem\n  key_file: server.key", "missing.pem", false),
            (
                &format!(
                    "cert_file: server.pem\n  key_file: server.key\n  {verify}\n  client_ca_file: text.pem"
                ),
                "text.pem holds no certificate",
                false,
            ),
            (inline, "cert holds no certificate", true),
            ("cert_file: server.pem\n  key: y", "key holds no private key", true),
            ("cert_file: server.pem", "key_file is missing", true),
        ] {
            let config = folder.write("web.yml", &format!("tls_server_config:\n  {tls}\n"));
            let error = load(&config).0.unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{tls}: {error:#}");
            assert_eq!(error.is::<WebConfigError>(), is_own, "{tls}: {error:#}");
        }
    }

    #[test]
    fn does_not_log_a_key_given_as_a_file_name() {
        let folder = folder("key");
        let key = std::fs::read_to_string(folder.0.join("server.key")).unwrap();
        let lines: Vec<_> = key.lines().collect();
        for (begin, between) in [("|\n    ", "\n    "), (">\n    ", "\n    "), ("", " ")] {
            let tls = TLS.replace("server.key", &format!("{begin}{}", lines.join(between)));
            let error = load(&folder.write("web.yml", &tls)).0.unwrap_err();
            let message = format!("{error:#}");
            assert!(message.ends_with("key_file must be a file name; put PEM into key"), "{message}");
            assert!(error.is::<WebConfigError>() && !message.contains(lines[1]), "{message}");
        }
    }

    /// Covers keys without a value, as in a half-written file, and weaker values.
    #[test]
    fn reload_keeps_protections() {
        let folder = folder("protections");
        let verified = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: authority.pem\n";
        let named = format!("{TLS}{verified}  client_allowed_sans: [client.example]\n");
        let any = "  client_auth_type: RequireAnyClientCert\n";
        let if_given = verified.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven");
        let users = format!("{TLS}basic_auth_users:\n  alice: {}\n", bcrypt::hash("hunter2", 4).unwrap());
        for (before, after, lost) in [
            (TLS, "", Some("TLS")),
            (
                &format!("{TLS}  min_version: TLS13\n"),
                &format!("{TLS}  min_version:\n"),
                Some("TLS 1.3 only"),
            ),
            (&format!("{TLS}  min_version: TLS12\n"), &format!("{TLS}  min_version: TLS13\n"), None),
            (&named, &named.replace("[client.example]", ""), Some("client_allowed_sans")),
            (&named, &named.replace("client.example", "other.example"), None),
            (&format!("{TLS}{verified}"), &named, None),
            (&format!("{TLS}{verified}"), &format!("{TLS}{any}"), Some("verified client certificates")),
            (&format!("{TLS}{verified}"), &format!("{TLS}{if_given}"), Some("required client certificates")),
            (&format!("{TLS}{any}"), TLS, Some("required client certificates")),
            (&format!("{TLS}{any}"), &format!("{TLS}{verified}"), None),
            (&users, TLS, Some("passwords")),
            (TLS, &users, None),
        ] {
            let [was, is] = [before, after].map(|text: &str| load(&folder.write("web.yml", text)).0.unwrap());
            let message = keeps_protections(&was, &is).err().map(|error| error.to_string());
            let expected = lost
                .map(|lost| format!("the web config no longer has {lost}: removing it requires a restart"));
            assert_eq!(message, expected, "{before} to {after}");
        }
    }
}

//! `--web-config`: TLS, passwords and headers, in the file format that [Prometheus' exporters share]. The files are
//! checked_at at again while the daemon runs; what is broken then changes nothing, and is said once.
//!
//! Stricter than the exporters: TLS is 1.2 or 1.3, HTTP is 1.1, a client's certificate is verified by a `client_ca`
//! that is given and never by the system's, and nothing that keeps strangers out (TLS and its least version, client
//! certificates and their names, passwords) goes away without a restart, as a file that is just being written may look
//! as if it should.
//!
//! [Prometheus' exporters share]: https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md

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
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::{task::spawn_blocking, time::timeout};
use tokio_rustls::rustls::ServerConfig;

use files::Files;
use passwords::{Passwords, Users};

pub(crate) use passwords::AuthOutcome;

/// How long what was seen of the files holds.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a connection waits for a look: the files may be on a sick drive.
const RELOAD_WAIT: Duration = Duration::from_millis(200);

/// The headers that can be set, as for the exporters, and the values where not any will do.
const HEADERS: [(&str, &[&str]); 5] = [
    ("Content-Security-ClientAuthPolicy", &[]),
    ("Strict-Transport-Security", &[]),
    ("X-Content-Type-Options", &["nosniff"]),
    ("X-Frame-Options", &["deny", "sameorigin"]),
    ("X-XSS-Protection", &[]),
];

/// What a file says that it must not.
#[derive(Debug)]
pub struct WebConfigError(String);

impl fmt::Display for WebConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WebConfigError {}

/// What the files say.
#[derive(Debug, Default)]
pub(crate) struct Access {
    /// The TLS server; none for plain HTTP.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// What every answer has, unless it says that itself.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// What keeps strangers out.
    protections: Vec<&'static str>,
    users: Users,
}

/// A file, what it said last, and who has shown a good password since.
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
    /// Why what the files say now is not taken, if it is not.
    refused: Option<String>,
}

/// A look at the files: one at a time, and however it ends there is another one.
struct ReloadCheck(Arc<WebConfig>);

impl Drop for ReloadCheck {
    fn drop(&mut self) {
        let mut state = self.0.state();
        (state.checked_at, state.checking) = (Instant::now(), false);
    }
}

impl WebConfig {
    /// Reads a file and those that it names. What is wrong in the file itself is [`WebConfigError`], as no second try will mend it.
    pub fn open(path: &Path) -> Result<Self> {
        let (access, files) = load(path);
        let access = Arc::new(access?);
        let state = Mutex::new(LoadState {
            access,
            files,
            checked_at: Instant::now(),
            checking: false,
            refused: None,
        });
        Ok(Self { path: path.to_owned(), state, passwords: Passwords::new()? })
    }

    /// `https`, or `http`.
    pub fn scheme(&self) -> &'static str {
        if self.state().access.tls.is_some() { "https" } else { "http" }
    }

    /// What keeps strangers out: `TLS`, `passwords`, …
    pub fn protections(&self) -> Vec<&'static str> {
        self.state().access.protections.clone()
    }

    /// What the files say now, or did a second ago.
    pub(crate) async fn access(self: &Arc<Self>) -> Arc<Access> {
        if let Some(look) = self.due_check() {
            let _ = timeout(RELOAD_WAIT, spawn_blocking(move || look.0.look())).await;
        }
        Arc::clone(&self.state().access)
    }

    /// Whether a request with these headers is let in.
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

    fn look(&self) {
        let before = self.state().files.clone();
        if !before.changed() {
            return;
        }
        let (access, files) = load(&self.path);
        let (before, refused) = {
            let mut state = self.state();
            state.files = files;
            (Arc::clone(&state.access), state.refused.take())
        };
        match access.and_then(|access| keeps_protections(&before, &access).map(|()| access)) {
            Ok(access) => {
                log::info!("{} has changed and was read again", self.path.display());
                self.state().access = Arc::new(access);
            }
            Err(error) => {
                let error = format!("{error:#}");
                // What cannot be read is tried again and again.
                if refused.as_ref() != Some(&error) {
                    log::warn!("{error}; what was read before holds on");
                }
                self.state().refused = Some(error);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, LoadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An error if a protection that was there before is not there any more.
fn keeps_protections(before: &Access, access: &Access) -> Result<()> {
    match before.protections.iter().find(|protection| !access.protections.contains(protection)) {
        Some(protection) => {
            anyhow::bail!("the web config has no {protection} any more: that takes a restart")
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
    let text = String::from_utf8(files.read(path)?).map_err(|_| WebConfigError("it is not UTF-8".into()))?;
    let format = file_format::parse(&text)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let http = format.http_server_config.unwrap_or_default();
    if http.http2 == Some(true) {
        log::info!("http2: biolat speaks HTTP/1.1 alone, as every client does");
    }
    let tls = tls::server(format.tls_server_config.unwrap_or_default(), folder, files)?;
    let users = Users::new(format.basic_auth_users.unwrap_or_default())?;
    let (tls, mut protections) = tls.map_or_else(Default::default, |tls| (Some(tls.config), tls.protections));
    if !users.is_empty() {
        protections.push("passwords");
    }
    Ok(Access { tls, headers: headers(http.headers.unwrap_or_default())?, protections, users })
}

fn headers(given: BTreeMap<String, String>) -> Result<Vec<(HeaderName, HeaderValue)>, WebConfigError> {
    given
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| {
            let Some((_, values)) = HEADERS.iter().find(|(known, _)| *known == name) else {
                let known = HEADERS.map(|(name, _)| name).join(", ");
                return Err(WebConfigError(format!("headers: {name} cannot be set; there is {known}")));
            };
            if !values.is_empty() && !values.contains(&value.as_str()) {
                return Err(WebConfigError(format!("headers: {name} is {}", values.join(" or "))));
            }
            let wrong =
                |_| WebConfigError(format!("headers: what {name} is set to is not allowed in a header"));
            let value = HeaderValue::from_str(&value).map_err(wrong)?;
            Ok((HeaderName::from_bytes(name.as_bytes()).map_err(|_| WebConfigError(name))?, value))
        })
        .collect()
}

#[cfg(test)]
#[path = "../../tests/support/certificates.rs"]
mod certificates;

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread, time::Instant};

    use super::{
        CHECK_INTERVAL, WebConfig, WebConfigError,
        certificates::{Authority, Folder},
        keeps_protections, load,
    };

    const TLS: &str = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n";

    /// A folder with a server's certificate and an authority's.
    fn folder(name: &str) -> Folder {
        let folder = Folder::new(name);
        let authority = Authority::new("authority");
        authority.issue("server").write(&folder);
        folder.write("authority.pem", authority.pem());
        folder
    }

    #[test]
    fn a_look_that_panics_is_not_the_last() {
        let folder = folder("looks");
        let web_config = Arc::new(WebConfig::open(&folder.write("web.yml", TLS)).unwrap());
        let due = || {
            web_config.state().checked_at = Instant::now().checked_sub(CHECK_INTERVAL).unwrap();
            web_config.due_check()
        };
        let look = due().unwrap();
        assert!(due().is_none(), "one at a time");
        let panics = thread::spawn(move || {
            let _look = look;
            panic!("on purpose");
        });
        panics.join().unwrap_err();
        assert!(web_config.due_check().is_none(), "it is not checked_at all the time");
        folder.write("web.yml", &format!("{TLS}  min_version: TLS13\n"));
        due().unwrap().0.look();
        assert!(web_config.state().access.protections.contains(&"TLS 1.3 alone"), "it was read again");
    }

    /// Files that are just being replaced are good a moment later, so that a start that meets them is worth another one.
    #[test]
    fn what_other_files_hold_is_no_fault_of_the_configuration() {
        let folder = folder("faults");
        Authority::new("other").issue("other").write(&folder);
        folder.write("text.pem", "no PEM");
        let inline = "cert: x\n  key: y";
        let verify = "client_auth_type: RequireAndVerifyClientCert";
        for (tls, expected, is_own) in [
            ("cert_file: server.pem\n  key_file: other.key", "server.pem do not go together", false),
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
            ("cert_file: server.pem", "key_file is lacking", true),
        ] {
            let config = folder.write("web.yml", &format!("tls_server_config:\n  {tls}\n"));
            let error = load(&config).0.unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{tls}: {error:#}");
            assert_eq!(error.is::<WebConfigError>(), is_own, "{tls}: {error:#}");
        }
    }

    #[test]
    fn a_key_in_the_place_of_its_name_is_not_shown() {
        let folder = folder("key");
        let key = std::fs::read_to_string(folder.0.join("server.key")).unwrap();
        let lines: Vec<_> = key.lines().collect();
        for (begin, between) in [("|\n    ", "\n    "), (">\n    ", "\n    "), ("", " ")] {
            let tls = TLS.replace("server.key", &format!("{begin}{}", lines.join(between)));
            let error = load(&folder.write("web.yml", &tls)).0.unwrap_err();
            let said = format!("{error:#}");
            assert!(said.ends_with("key_file takes a file's name; PEM goes to key"), "{said}");
            assert!(error.is::<WebConfigError>() && !said.contains(lines[1]), "{said}");
        }
    }

    /// Each without the value of a key, as a half-written file has it, or with a weaker one.
    #[test]
    fn no_guard_goes_away() {
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
                Some("TLS 1.3 alone"),
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
            let said = keeps_protections(&was, &is).err().map(|error| error.to_string());
            let expected =
                lost.map(|lost| format!("the web config has no {lost} any more: that takes a restart"));
            assert_eq!(said, expected, "{before} to {after}");
        }
    }
}

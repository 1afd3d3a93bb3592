//! `--web-config`: TLS, passwords and headers, in the file format that [Prometheus' exporters share]. The files are
//! looked at again while the daemon runs; what is broken then changes nothing, and is said once.
//!
//! Stricter than the exporters: TLS is 1.2 or 1.3, HTTP is 1.1, a client's certificate is verified by a `client_ca`
//! that is given and never by the system's, and neither TLS nor client certificates nor passwords go away without a
//! restart, as a file that is just being written may look as if they should.
//!
//! [Prometheus' exporters share]: https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md

mod clients;
mod files;
mod format;
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

pub(crate) use passwords::Verdict;

/// How long what was seen of the files holds.
const LOOK: Duration = Duration::from_secs(1);
/// How long a connection waits for a look: the files may be on a sick drive.
const PATIENCE: Duration = Duration::from_millis(200);

/// The headers that can be set, as for the exporters, and the values where not any will do.
const HEADERS: [(&str, &[&str]); 5] = [
    ("Content-Security-Policy", &[]),
    ("Strict-Transport-Security", &[]),
    ("X-Content-Type-Options", &["nosniff"]),
    ("X-Frame-Options", &["deny", "sameorigin"]),
    ("X-XSS-Protection", &[]),
];

/// What a file says that it must not.
#[derive(Debug)]
pub struct Wrong(String);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}

/// What the files say.
#[derive(Debug, Default)]
pub(crate) struct Access {
    /// The TLS server; none for plain HTTP.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// What every answer has.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    verifies_clients: bool,
    users: Users,
}

impl Access {
    /// What keeps strangers out.
    fn guards(&self) -> [(&'static str, bool); 3] {
        [
            ("TLS", self.tls.is_some()),
            ("verified client certificates", self.verifies_clients),
            ("passwords", !self.users.is_empty()),
        ]
    }
}

/// A file, what it said last, and who has shown a good password since.
pub struct WebConfig {
    path: PathBuf,
    state: Mutex<State>,
    passwords: Passwords,
}

struct State {
    access: Arc<Access>,
    files: Files,
    looked: Instant,
    looking: bool,
}

impl WebConfig {
    /// Reads a file and those that it names. What is wrong in one of them is [`Wrong`].
    pub fn open(path: &Path) -> Result<Self> {
        let (access, files) = load(path);
        let access = Arc::new(access?);
        let state = Mutex::new(State { access, files, looked: Instant::now(), looking: false });
        Ok(Self { path: path.to_owned(), state, passwords: Passwords::new()? })
    }

    /// `https`, or `http`.
    pub fn scheme(&self) -> &'static str {
        if self.state().access.tls.is_some() { "https" } else { "http" }
    }

    /// What the files say now, or did a second ago.
    pub(crate) async fn access(self: &Arc<Self>) -> Arc<Access> {
        if self.look_is_due() {
            let this = Arc::clone(self);
            let _ = timeout(PATIENCE, spawn_blocking(move || this.look())).await;
        }
        Arc::clone(&self.state().access)
    }

    /// Whether a request with these headers is let in.
    pub(crate) async fn admits(&self, access: &Access, headers: &HeaderMap, from: IpAddr) -> Verdict {
        if access.users.is_empty() {
            return Verdict::Welcome;
        }
        self.passwords.check(&access.users, headers, from).await
    }

    fn look_is_due(&self) -> bool {
        let mut state = self.state();
        let due = !state.looking && state.looked.elapsed() >= LOOK;
        state.looking |= due;
        due
    }

    fn look(&self) {
        let before = std::mem::take(&mut self.state().files);
        let (files, access) = if before.changed() { self.read_again() } else { (before, None) };
        let mut state = self.state();
        state.files = files;
        state.access = access.unwrap_or_else(|| Arc::clone(&state.access));
        (state.looked, state.looking) = (Instant::now(), false);
    }

    fn read_again(&self) -> (Files, Option<Arc<Access>>) {
        let (access, files) = load(&self.path);
        let before = Arc::clone(&self.state().access);
        match access.and_then(|access| no_less(&before, &access).map(|()| access)) {
            Ok(access) => {
                log::info!("{} has changed and was read again", self.path.display());
                (files, Some(Arc::new(access)))
            }
            Err(error) => {
                log::warn!("{error:#}; what was read before holds on");
                (files, None)
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An error if a guard that was there before is not there any more.
fn no_less(before: &Access, access: &Access) -> Result<()> {
    match before.guards().into_iter().zip(access.guards()).find(|((_, was), (_, is))| *was && !is) {
        Some(((guard, _), _)) => {
            anyhow::bail!("the web config has no {guard} any more: that takes a restart")
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
    let text = String::from_utf8(files.read(path)?).map_err(|_| Wrong("it is not UTF-8".into()))?;
    let format = format::parse(&text)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let http = format.http_server_config.unwrap_or_default();
    if http.http2 == Some(true) {
        log::info!("http2: biolat speaks HTTP/1.1 alone, as every client does");
    }
    let tls = tls::server(format.tls_server_config.unwrap_or_default(), folder, files)?;
    Ok(Access {
        verifies_clients: tls.as_ref().is_some_and(|tls| tls.verifies_clients),
        tls: tls.map(|tls| tls.config),
        headers: headers(http.headers.unwrap_or_default())?,
        users: Users::new(format.basic_auth_users.unwrap_or_default())?,
    })
}

fn headers(given: BTreeMap<String, String>) -> Result<Vec<(HeaderName, HeaderValue)>, Wrong> {
    given
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| {
            let Some((_, values)) = HEADERS.iter().find(|(known, _)| *known == name) else {
                let known = HEADERS.map(|(name, _)| name).join(", ");
                return Err(Wrong(format!("headers: {name} cannot be set; there is {known}")));
            };
            if !values.is_empty() && !values.contains(&value.as_str()) {
                return Err(Wrong(format!("headers: {name} is {}", values.join(" or "))));
            }
            let wrong = |_| Wrong(format!("headers: what {name} is set to is not allowed in a header"));
            let value = HeaderValue::from_str(&value).map_err(wrong)?;
            Ok((HeaderName::from_bytes(name.as_bytes()).map_err(|_| Wrong(name))?, value))
        })
        .collect()
}

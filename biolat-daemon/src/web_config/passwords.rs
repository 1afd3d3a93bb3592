//! HTTP basic authentication against bcrypt hashes. A check is expensive by design, so the work that an unauthenticated client
//! can cause is bounded: one check at a time, two per network waiting or running, and a pause after a wrong password.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::IpAddr,
    ops::RangeInclusive,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bcrypt::HashParts;
use hyper::header::{AUTHORIZATION, HeaderMap};
use ring::{hmac, rand::SystemRandom};
use tokio::{sync::Semaphore, time::sleep};

use super::WebConfigError;
use crate::net::network;

/// Maximum number of waiting or running checks per network: enough for two scrapers behind one
/// address.
const MAX_QUEUED: usize = 2;
/// After a wrong password, the check's queue slot stays taken for this multiple of the check's duration, which limits a network
/// to half a CPU.
const PENALTY: u32 = 3;
/// Maximum number of remembered verified passwords. A user can have several, because bcrypt ignores everything after 72 bytes.
const MAX_VERIFIED: usize = 64;
/// Allowed costs of a hash. With a higher cost, a check would take many seconds while all others wait.
const COSTS: RangeInclusive<u32> = 4..=16;

/// Hashes by user.
#[derive(Debug, Default)]
pub(super) struct Users(BTreeMap<String, String>);

impl Users {
    pub(super) fn new(hashes: BTreeMap<String, String>) -> Result<Self, WebConfigError> {
        for (user, hash) in &hashes {
            let problem = match hash.parse::<HashParts>().map(|parts| parts.get_cost()) {
                Ok(cost) if COSTS.contains(&cost) => continue,
                Ok(cost) => format!("the hash of {user} has cost {cost}; allowed: 4 to 16"),
                Err(_) => format!("the value of {user} is not a bcrypt hash"),
            };
            return Err(WebConfigError(format!(
                "basic_auth_users: {problem}; generate one with: htpasswd -nBC 10 {user}"
            )));
        }
        Ok(Self(hashes))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the user's hash and true, or the most expensive hash of all users and false: response times must not reveal
    /// whether a user exists.
    fn hash(&self, user: &str) -> Option<(&str, bool)> {
        let known = self.0.get(user).map(|hash| (hash.as_str(), true));
        // The cost is at the same position in every hash.
        known.or_else(|| self.0.values().max_by_key(|hash| &hash[4..6]).map(|hash| (hash.as_str(), false)))
    }
}

/// Result of a check of credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthOutcome {
    /// A user with the right password.
    Allowed,
    /// Missing or wrong credentials.
    Unauthorized,
    /// Not checked: too many checks from this network are waiting.
    Throttled,
}

/// Checks passwords. Users are passed in because they change with a reload.
pub(super) struct Passwords {
    /// Keyed hashes of verified passwords. The key is random per process, so the hashes are useless elsewhere.
    verified: Arc<Mutex<HashSet<[u8; 32]>>>,
    key: hmac::Key,
    /// Allows one check at a time.
    turn: Arc<Semaphore>,
    queued: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Passwords {
    pub(super) fn new() -> anyhow::Result<Self> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| anyhow::anyhow!("cannot read random numbers from the kernel"))?;
        Ok(Self { verified: Arc::default(), key, turn: Arc::new(Semaphore::new(1)), queued: Arc::default() })
    }

    pub(super) async fn check(&self, users: &Users, headers: &HeaderMap, from: IpAddr) -> AuthOutcome {
        let Some((user, password)) = credentials(headers) else { return AuthOutcome::Unauthorized };
        let Some((hash, is_user)) = users.hash(&user) else { return AuthOutcome::Unauthorized };
        let digest = self.digest(&user, hash, &password);
        if is_user && locked(&self.verified).contains(&digest) {
            return AuthOutcome::Allowed;
        }
        let Some(queue_slot) = QueueSlot::acquire(&self.queued, from) else { return AuthOutcome::Throttled };
        let Ok(turn) = Arc::clone(&self.turn).acquire_owned().await else { return AuthOutcome::Throttled };
        // Another request with the same password may have been checked in the meantime.
        if is_user && locked(&self.verified).contains(&digest) {
            return AuthOutcome::Allowed;
        }
        let began = Instant::now();
        let hash = hash.to_owned();
        let matches = tokio::task::spawn_blocking(move || bcrypt::verify(password, &hash).unwrap_or(false));
        let verified = Arc::clone(&self.verified);
        // A separate task, so the result is remembered even if the client disconnects.
        let checked = tokio::spawn(async move {
            let is_valid = matches.await.unwrap_or(false) && is_user;
            if is_valid {
                remember(&mut locked(&verified), digest);
            }
            drop(turn);
            if !is_valid {
                let penalty = began.elapsed() * PENALTY;
                tokio::spawn(async move {
                    sleep(penalty).await;
                    drop(queue_slot);
                });
            }
            is_valid
        });
        if checked.await.unwrap_or(false) { AuthOutcome::Allowed } else { AuthOutcome::Unauthorized }
    }

    /// Returns a keyed hash of the user, bcrypt hash and password, including their lengths to make it unambiguous.
    fn digest(&self, user: &str, hash: &str, password: &[u8]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.key);
        for part in [user.as_bytes(), hash.as_bytes(), password] {
            context.update(&part.len().to_ne_bytes());
            context.update(part);
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(context.sign().as_ref());
        digest
    }
}

fn remember(verified: &mut HashSet<[u8; 32]>, digest: [u8; 32]) {
    if verified.len() == MAX_VERIFIED {
        verified.clear();
    }
    verified.insert(digest);
}

/// A network's place among waiting and running checks.
struct QueueSlot {
    all: Arc<Mutex<HashMap<IpAddr, usize>>>,
    address: IpAddr,
}

impl QueueSlot {
    fn acquire(all: &Arc<Mutex<HashMap<IpAddr, usize>>>, address: IpAddr) -> Option<Self> {
        let address = network(address);
        let mut all_queued = locked(all);
        let queued = all_queued.entry(address).or_default();
        if *queued == MAX_QUEUED {
            return None;
        }
        *queued += 1;
        Some(Self { all: Arc::clone(all), address })
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        let mut all_queued = locked(&self.all);
        if let Some(queued) = all_queued.get_mut(&self.address) {
            *queued -= 1;
            if *queued == 0 {
                all_queued.remove(&self.address);
            }
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the user and password of a request.
fn credentials(headers: &HeaderMap) -> Option<(String, Vec<u8>)> {
    let (scheme, encoded) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let decoded =
        scheme.eq_ignore_ascii_case("basic").then(|| BASE64_STANDARD.decode(encoded.trim()))?.ok()?;
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    let user = String::from_utf8(decoded[..colon].to_vec()).ok()?;
    Some((user, decoded[colon + 1..].to_vec()))
}

#[cfg(test)]
mod tests {
    use std::{
        net::IpAddr,
        time::{Duration, Instant},
    };

    use base64::{Engine as _, prelude::BASE64_STANDARD};
    use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue};

    use super::{AuthOutcome, HashParts, MAX_QUEUED, Passwords, Users};

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn users(cost: u32) -> Users {
        let hash = |password| bcrypt::hash(password, cost).unwrap();
        Users::new([("alice".into(), hash("hunter2")), ("bob".into(), hash("a:b"))].into()).unwrap()
    }

    fn with(user: &str, password: &str) -> HeaderMap {
        let value = format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")));
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_str(&value).unwrap());
        headers
    }

    /// Checks credentials, retrying while throttled.
    async fn check_until_done(passwords: &Passwords, users: &Users, headers: &HeaderMap) -> AuthOutcome {
        loop {
            match passwords.check(users, headers, HERE).await {
                AuthOutcome::Throttled => tokio::time::sleep(Duration::from_millis(1)).await,
                outcome => return outcome,
            }
        }
    }

    #[test]
    fn rejects_values_that_are_not_hashes() {
        for hash in ["", "hunter2", "$1$abc", &format!("$2y$03${}", "a".repeat(53))] {
            let error = Users::new([("alice".into(), hash.into())].into()).unwrap_err().to_string();
            assert!(error.contains("alice") && (hash.is_empty() || !error.contains(hash)), "{error}");
        }
    }

    #[test]
    fn rejects_expensive_hashes() {
        for (cost, rejected) in [(4, false), (16, false), (17, true), (31, true)] {
            let hash = bcrypt::hash("hunter2", 4).unwrap().replacen("$04$", &format!("${cost:02}$"), 1);
            let error = Users::new([("alice".into(), hash)].into()).err().map(|error| error.to_string());
            assert_eq!(error.is_some(), rejected, "{cost}");
            assert!(error.is_none_or(|error| error.contains(&format!("alice has cost {cost}"))));
        }
    }

    /// A valid password is remembered even if the client disconnects during the check.
    #[tokio::test]
    async fn remembers_a_valid_password() {
        let (users, passwords, headers) = (users(8), Passwords::new().unwrap(), with("alice", "hunter2"));
        let check = passwords.check(&users, &headers, HERE);
        let gone = tokio::time::timeout(Duration::ZERO, check).await;
        assert!(gone.is_err(), "{gone:?}");
        let _all_checked = passwords.turn.acquire().await.unwrap();
        let again = tokio::time::timeout(Duration::ZERO, passwords.check(&users, &headers, HERE)).await;
        assert_eq!(again, Ok(AuthOutcome::Allowed));
    }

    #[tokio::test]
    async fn outcomes() {
        let (users, passwords) = (users(4), Passwords::new().unwrap());
        for _ in 0..2 {
            for (user, password, expected) in [
                ("alice", "hunter2", AuthOutcome::Allowed),
                ("bob", "a:b", AuthOutcome::Allowed),
                ("alice", "a:b", AuthOutcome::Unauthorized),
                ("alice", "", AuthOutcome::Unauthorized),
                ("", "", AuthOutcome::Unauthorized),
                ("nobody", "hunter2", AuthOutcome::Unauthorized),
                ("nobody", "a:b", AuthOutcome::Unauthorized),
            ] {
                let outcome = check_until_done(&passwords, &users, &with(user, password)).await;
                assert_eq!(outcome, expected, "{user}");
            }
        }
        let mut headers = HeaderMap::new();
        assert_eq!(passwords.check(&users, &headers, HERE).await, AuthOutcome::Unauthorized);
        for value in ["Basic", "Basic ", "Basic !!!", "Bearer YTpi", "Basic YWxpY2U="] {
            headers.insert(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
            assert_eq!(passwords.check(&users, &headers, HERE).await, AuthOutcome::Unauthorized, "{value}");
        }
    }

    #[tokio::test]
    async fn changed_hash_invalidates_verified_password() {
        let (before, after, passwords) = (users(4), users(5), Passwords::new().unwrap());
        assert_eq!(passwords.check(&before, &with("alice", "hunter2"), HERE).await, AuthOutcome::Allowed);
        let gone = Users::new([("bob".into(), after.0["bob"].clone())].into()).unwrap();
        assert_eq!(passwords.check(&gone, &with("alice", "hunter2"), HERE).await, AuthOutcome::Unauthorized);
        let changed = Users::new([("alice".into(), after.0["bob"].clone())].into()).unwrap();
        assert_eq!(
            passwords.check(&changed, &with("alice", "hunter2"), HERE).await,
            AuthOutcome::Unauthorized
        );
    }

    /// Password guessing delays only the guessing network, and never a verified password.
    #[tokio::test]
    async fn throttles_guessing() {
        let (users, passwords) = (users(8), Passwords::new().unwrap());
        assert_eq!(passwords.check(&users, &with("alice", "hunter2"), HERE).await, AuthOutcome::Allowed);
        let headers: Vec<_> = (0..50).map(|guess| with("alice", &guess.to_string())).collect();
        let checks = headers.iter().map(|headers| passwords.check(&users, headers, HERE));
        let mut checks: Vec<_> = checks.map(Box::pin).collect();
        // No check runs while the test holds the turn.
        let turn = passwords.turn.acquire().await.unwrap();
        let mut throttled = 0;
        for check in &mut checks {
            let at_once = tokio::time::timeout(Duration::ZERO, check).await;
            throttled += usize::from(at_once == Ok(AuthOutcome::Throttled));
        }
        assert_eq!(throttled, 50 - MAX_QUEUED);
        let alice = with("alice", "hunter2");
        let at_once = tokio::time::timeout(Duration::ZERO, passwords.check(&users, &alice, HERE)).await;
        assert_eq!(at_once, Ok(AuthOutcome::Allowed));
        drop(turn);
        let elsewhere = "192.0.2.1".parse().unwrap();
        let bob = with("bob", "a:b");
        let other = passwords.check(&users, &bob, elsewhere);
        let others = async {
            for check in &mut checks[..MAX_QUEUED] {
                assert_eq!(check.await, AuthOutcome::Unauthorized);
            }
        };
        assert_eq!(tokio::join!(other, others).0, AuthOutcome::Allowed);
    }

    /// An unknown user is treated like a known one: it waits for a turn, and a hash of the same cost is computed. Without the
    /// hash, the check would take a thousandth of the time.
    #[tokio::test]
    async fn response_time_does_not_reveal_users() {
        let (users, passwords) = (users(7), Passwords::new().unwrap());
        let turn = passwords.turn.acquire().await.unwrap();
        for user in ["alice", "nobody"] {
            let headers = with(user, "guess");
            let at_once = tokio::time::timeout(Duration::ZERO, passwords.check(&users, &headers, HERE)).await;
            assert!(at_once.is_err(), "{user} has to wait for a turn");
        }
        drop(turn);
        let cost = |user: &str| users.hash(user).unwrap().0.parse::<HashParts>().unwrap().get_cost();
        assert_eq!(cost("nobody"), cost("alice"));
        let mut times = [Vec::new(), Vec::new()];
        for guess in 0..15 {
            for (user, times) in ["alice", "nobody"].iter().zip(&mut times) {
                let headers = with(user, &guess.to_string());
                while passwords.queued.lock().unwrap().contains_key(&HERE) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                let began = Instant::now();
                assert_eq!(passwords.check(&users, &headers, HERE).await, AuthOutcome::Unauthorized);
                times.push(began.elapsed());
            }
        }
        let [known, unknown] = times.map(|times| times.into_iter().min().unwrap().as_secs_f64());
        assert!((0.1..10.0).contains(&(known / unknown)), "{known} s and {unknown} s");
    }
}

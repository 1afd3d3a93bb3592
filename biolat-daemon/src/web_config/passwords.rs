//! Passwords by HTTP's basic scheme, against bcrypt hashes. A hash takes a CPU for long on purpose, so what a stranger
//! can have computed is bounded: one at a time, two for each address, and of those the wrong ones rest.

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

/// Passwords of one address that may wait for their turn: a pair of scrapers behind one address, and no more.
const WAITING: usize = 2;
/// How many times as long as a check took, a wrong password keeps its place: one address has half a CPU at most.
const REST: u32 = 3;
/// Passwords that are known to be good; a user has one, or its beginning of 72 bytes with any end.
const KNOWN: usize = 64;
/// Costs of a hash: above, a first password would take many seconds, and the turn of all others with it.
const COSTS: RangeInclusive<u32> = 4..=16;

/// Hashes by user.
#[derive(Debug, Default)]
pub(super) struct Users(BTreeMap<String, String>);

impl Users {
    pub(super) fn new(hashes: BTreeMap<String, String>) -> Result<Self, WebConfigError> {
        for (user, hash) in &hashes {
            let wrong = match hash.parse::<HashParts>().map(|parts| parts.get_cost()) {
                Ok(cost) if COSTS.contains(&cost) => continue,
                Ok(cost) => format!("the hash of {user} has cost {cost} and may have 4 to 16"),
                Err(_) => format!("what stands for {user} is no bcrypt hash"),
            };
            return Err(WebConfigError(format!(
                "basic_auth_users: {wrong}; htpasswd -nBC 10 {user} makes one"
            )));
        }
        Ok(Self(hashes))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The hash of the user, or one that takes as long as any, so that the time does not tell who is a user.
    fn hash(&self, user: &str) -> Option<(&str, bool)> {
        let known = self.0.get(user).map(|hash| (hash.as_str(), true));
        // The cost stands in the same place of every hash.
        known.or_else(|| self.0.values().max_by_key(|hash| &hash[4..6]).map(|hash| (hash.as_str(), false)))
    }
}

/// What came of a request's credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthOutcome {
    /// A user, with the password.
    Allowed,
    /// None, or wrong ones.
    Unauthorized,
    /// Not checked_at at: too many are being checked_at at already.
    Throttled,
}

/// Checks passwords, whatever the users are at the time.
pub(super) struct Passwords {
    /// Good ones, under a key that no other process has: nothing to look up elsewhere.
    known: Arc<Mutex<HashSet<[u8; 32]>>>,
    key: hmac::Key,
    turn: Arc<Semaphore>,
    waiting: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Passwords {
    pub(super) fn new() -> anyhow::Result<Self> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| anyhow::anyhow!("the kernel gives no random numbers"))?;
        Ok(Self { known: Arc::default(), key, turn: Arc::new(Semaphore::new(1)), waiting: Arc::default() })
    }

    pub(super) async fn check(&self, users: &Users, headers: &HeaderMap, from: IpAddr) -> AuthOutcome {
        let Some((user, password)) = credentials(headers) else { return AuthOutcome::Unauthorized };
        let Some((hash, is_user)) = users.hash(&user) else { return AuthOutcome::Unauthorized };
        let name = self.name(&user, hash, &password);
        if is_user && locked(&self.known).contains(&name) {
            return AuthOutcome::Allowed;
        }
        let Some(place) = QueueSlot::of(&self.waiting, from) else { return AuthOutcome::Throttled };
        let Ok(turn) = Arc::clone(&self.turn).acquire_owned().await else { return AuthOutcome::Throttled };
        // Another request may have brought the same while this one waited.
        if is_user && locked(&self.known).contains(&name) {
            return AuthOutcome::Allowed;
        }
        let began = Instant::now();
        let hash = hash.to_owned();
        let fits = tokio::task::spawn_blocking(move || bcrypt::verify(password, &hash).unwrap_or(false));
        let known = Arc::clone(&self.known);
        // Not this request's own task: whoever hangs up still has had its turn, and need not have it again.
        let checked = tokio::spawn(async move {
            let good = fits.await.unwrap_or(false) && is_user;
            if good {
                remember(&mut locked(&known), name);
            }
            drop(turn);
            if !good {
                let rest = began.elapsed() * REST;
                tokio::spawn(async move {
                    sleep(rest).await;
                    drop(place);
                });
            }
            good
        });
        if checked.await.unwrap_or(false) { AuthOutcome::Allowed } else { AuthOutcome::Unauthorized }
    }

    /// A name for a user with this hash and this password. Lengths are part of it, so that no two are the same.
    fn name(&self, user: &str, hash: &str, password: &[u8]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.key);
        for part in [user.as_bytes(), hash.as_bytes(), password] {
            context.update(&part.len().to_ne_bytes());
            context.update(part);
        }
        let mut name = [0; 32];
        name.copy_from_slice(context.sign().as_ref());
        name
    }
}

fn remember(known: &mut HashSet<[u8; 32]>, name: [u8; 32]) {
    if known.len() == KNOWN {
        known.clear();
    }
    known.insert(name);
}

/// One of an address's places among those who wait.
struct QueueSlot {
    all: Arc<Mutex<HashMap<IpAddr, usize>>>,
    address: IpAddr,
}

impl QueueSlot {
    fn of(all: &Arc<Mutex<HashMap<IpAddr, usize>>>, address: IpAddr) -> Option<Self> {
        let address = network(address);
        let mut places = locked(all);
        let taken = places.entry(address).or_default();
        if *taken == WAITING {
            return None;
        }
        *taken += 1;
        Some(Self { all: Arc::clone(all), address })
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        let mut places = locked(&self.all);
        if let Some(taken) = places.get_mut(&self.address) {
            *taken -= 1;
            if *taken == 0 {
                places.remove(&self.address);
            }
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// User and password.
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

    use super::{AuthOutcome, Passwords, Users, WAITING};

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

    /// The verdict of somebody who comes again if it is not their turn.
    async fn patient(passwords: &Passwords, users: &Users, headers: &HeaderMap) -> AuthOutcome {
        loop {
            match passwords.check(users, headers, HERE).await {
                AuthOutcome::Throttled => tokio::time::sleep(Duration::from_millis(1)).await,
                verdict => return verdict,
            }
        }
    }

    #[test]
    fn what_is_no_hash() {
        for hash in ["", "hunter2", "$1$abc", &format!("$2y$03${}", "a".repeat(53))] {
            let error = Users::new([("alice".into(), hash.into())].into()).unwrap_err().to_string();
            assert!(error.contains("alice") && (hash.is_empty() || !error.contains(hash)), "{error}");
        }
    }

    #[test]
    fn what_would_take_too_long() {
        for (cost, refused) in [(4, false), (16, false), (17, true), (31, true)] {
            let hash = bcrypt::hash("hunter2", 4).unwrap().replacen("$04$", &format!("${cost:02}$"), 1);
            let error = Users::new([("alice".into(), hash)].into()).err().map(|error| error.to_string());
            assert_eq!(error.is_some(), refused, "{cost}");
            assert!(error.is_none_or(|error| error.contains(&format!("alice has cost {cost}"))));
        }
    }

    /// Who hangs up while the password is checked finds it known when it comes again.
    #[tokio::test]
    async fn a_good_password_is_kept() {
        let (users, passwords, headers) = (users(8), Passwords::new().unwrap(), with("alice", "hunter2"));
        let check = passwords.check(&users, &headers, HERE);
        let gone = tokio::time::timeout(Duration::ZERO, check).await;
        assert!(gone.is_err(), "{gone:?}");
        let _all_checked = passwords.turn.acquire().await.unwrap();
        let again = tokio::time::timeout(Duration::ZERO, passwords.check(&users, &headers, HERE)).await;
        assert_eq!(again, Ok(AuthOutcome::Allowed));
    }

    #[tokio::test]
    async fn verdicts() {
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
                let verdict = patient(&passwords, &users, &with(user, password)).await;
                assert_eq!(verdict, expected, "{user}");
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
    async fn a_new_hash_is_a_new_password() {
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

    /// An address with many wrong passwords waits for itself; who is known waits for nobody.
    #[tokio::test]
    async fn guessing_is_bounded() {
        let (users, passwords) = (users(8), Passwords::new().unwrap());
        assert_eq!(passwords.check(&users, &with("alice", "hunter2"), HERE).await, AuthOutcome::Allowed);
        let headers: Vec<_> = (0..50).map(|guess| with("alice", &guess.to_string())).collect();
        let checks = headers.iter().map(|headers| passwords.check(&users, headers, HERE));
        let mut checks: Vec<_> = checks.map(Box::pin).collect();
        let mut busy = 0;
        for check in &mut checks {
            let at_once = tokio::time::timeout(Duration::ZERO, check).await;
            busy += usize::from(at_once == Ok(AuthOutcome::Throttled));
        }
        assert_eq!(busy, 50 - WAITING);
        let began = Instant::now();
        assert_eq!(passwords.check(&users, &with("alice", "hunter2"), HERE).await, AuthOutcome::Allowed);
        assert!(began.elapsed() < Duration::from_millis(10), "{:?}", began.elapsed());
        let elsewhere = "192.0.2.1".parse().unwrap();
        let bob = with("bob", "a:b");
        let other = passwords.check(&users, &bob, elsewhere);
        let others = async {
            for check in &mut checks[..WAITING] {
                assert_eq!(check.await, AuthOutcome::Unauthorized);
            }
        };
        assert_eq!(tokio::join!(other, others).0, AuthOutcome::Allowed);
    }

    /// Medians, as the machine may be busy. Were an unknown user refused at once, it would be a thousand times less.
    #[tokio::test]
    async fn the_time_does_not_tell_who_is_a_user() {
        let (users, passwords) = (users(7), Passwords::new().unwrap());
        let mut times = [Vec::new(), Vec::new()];
        for guess in 0..15 {
            for (user, times) in ["alice", "nobody"].iter().zip(&mut times) {
                let headers = with(user, &guess.to_string());
                while passwords.waiting.lock().unwrap().contains_key(&HERE) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                let began = Instant::now();
                assert_eq!(passwords.check(&users, &headers, HERE).await, AuthOutcome::Unauthorized);
                times.push(began.elapsed());
            }
        }
        let [known, unknown] = times.map(|mut times| {
            times.sort_unstable();
            times[times.len() / 2].as_secs_f64()
        });
        assert!((0.5..2.0).contains(&(known / unknown)), "{known} s and {unknown} s");
    }
}

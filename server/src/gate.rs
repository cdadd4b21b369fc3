//! Who may do what: the accounts of a running server, and the time that refused logins cost.
//!
//! 1. Without accounts everybody may do everything: such a server listens on loopback alone, unless it was told otherwise.
//! 2. Once there were accounts a login is needed until the server ends, even if the last one is removed.
//! 3. What an account may do is looked up for every command: a change of the file holds from then on for open connections too.

use crate::accounts::{Accounts, AccountsFile, Role};
use crate::client::User;
use crate::error::Failure;
use crate::scram::Verifier;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// An address from which no login was refused for this long is as good as a new one.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// A proof that would have to wait longer than this is not looked at.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Addresses that are remembered; what comes on top is counted as one.
const ADDRESSES_MAX: usize = 10_000;

/// Proofs from one source that are looked at at the same time, until one is refused.
const TOGETHER_MAX: usize = 8;
/// Places for these; sources whose numbers are the same share them.
const PLACES: usize = 64;

/// On whose account something is done.
#[derive(Debug, Clone)]
pub(crate) enum Actor {
    /// Anybody, where there are no accounts.
    Anybody,
    User(User),
    /// Whoever has this token.
    Token(String),
}

/// Who may do what.
#[derive(Debug)]
pub(crate) struct Gate {
    file: Option<AccountsFile>,
    state: RwLock<State>,
    refusals: Mutex<HashMap<IpAddr, Refusals>>,
    places: Vec<Semaphore>,
    numbers: RandomState,
    delay: Duration,
}

#[derive(Debug, Default)]
struct State {
    /// The file as it was read last, or why it could not be read.
    seen: Option<Result<Vec<u8>, String>>,
    accounts: Option<Arc<Accounts>>,
    needs_login: bool,
}

/// The logins that were refused from one address.
#[derive(Debug, Clone, Copy)]
struct Refusals {
    count: u32,
    last: Duration,
    /// When the next proof is looked at.
    next: Duration,
}

impl Gate {
    /// With the accounts of a file. Refused logins cost `delay` and more.
    pub(crate) fn new(file: Option<AccountsFile>, delay: Duration) -> Result<Gate, Failure> {
        let places = (0..PLACES).map(|_| Semaphore::new(TOGETHER_MAX)).collect();
        let (state, refusals, numbers) = (RwLock::default(), Mutex::default(), RandomState::new());
        let gate = Gate { file, state, refusals, places, numbers, delay };
        gate.refresh().map(|()| gate)
    }

    /// Reads the file again if it has changed. After an error the accounts stay as they are.
    pub(crate) fn refresh(&self) -> Result<(), Failure> {
        let Some(file) = &self.file else { return Ok(()) };
        let read = file.bytes();
        let seen = match &read {
            Ok(bytes) => bytes.clone().map(Ok),
            Err(error) => Some(Err(error.to_string())),
        };
        if self.state.read().seen == seen {
            return Ok(());
        }
        let mut state = self.state.write();
        state.seen = seen;
        let Some(bytes) = read? else {
            return match state.accounts {
                None => Ok(()),
                Some(_) => Err(Failure::new(format!("{}: it is gone", file.path().display()))),
            };
        };
        let accounts = file.parse(&bytes)?;
        state.needs_login |= !accounts.is_empty();
        tracing::info!(accounts = accounts.iter().count(), "the accounts were read");
        state.accounts = Some(Arc::new(accounts));
        Ok(())
    }

    /// Whether a client must log in.
    pub(crate) fn needs_login(&self) -> bool {
        self.state.read().needs_login
    }

    /// What a user may do now; nothing if the account is gone or has another password.
    pub(crate) fn role(&self, user: &User) -> Option<Role> {
        let state = self.state.read();
        let account = state.accounts.as_ref()?.get(&user.name)?;
        (account.verifier == user.verifier).then_some(account.role)
    }

    /// What an actor may do now.
    pub(crate) fn role_of(&self, actor: &Actor) -> Option<Role> {
        match actor {
            Actor::Anybody => (!self.needs_login()).then_some(Role::Admin),
            Actor::User(user) => self.role(user),
            Actor::Token(token) => self.by_token(token).map(|(_, role)| role),
        }
    }

    /// The user of this name, if there is one, and what is to be shown of the password: for a name without an account something
    /// that looks the same and fits no password. Nothing without accounts.
    pub(crate) fn verifier(&self, name: &str) -> Option<(Option<User>, Verifier)> {
        let accounts = self.state.read().accounts.clone()?;
        let nobody = Verifier::of_nobody(&accounts.secret, name);
        Some(match accounts.get(name) {
            None => (None, nobody),
            Some(account) => {
                let user = User { name: name.to_owned(), verifier: account.verifier.clone() };
                (Some(user), account.verifier.clone())
            }
        })
    }

    /// The account with this name and password. It takes as long for a name without an account.
    pub(crate) fn by_password(&self, name: &str, password: &str) -> Option<User> {
        let (user, verifier) = self.verifier(name)?;
        let is_right = verifier.is_of(password);
        user.filter(|_| is_right)
    }

    /// The account that has a token, and what it may do.
    pub(crate) fn by_token(&self, token: &str) -> Option<(String, Role)> {
        let accounts = self.state.read().accounts.clone()?;
        accounts.by_token(token).map(|(name, role)| (name.to_owned(), role))
    }

    /// How long a refused login is kept waiting for its reply.
    pub(crate) fn delay(&self) -> Duration {
        self.delay
    }

    /// Where the proofs from this address wait for a place.
    pub(crate) fn place(&self, peer: IpAddr) -> &Semaphore {
        let number = self.numbers.hash_one(source(peer)) % PLACES as u64;
        &self.places[number as usize]
    }

    /// How long a proof from this address has to wait before it is looked at: after refused ones they are looked at one after
    /// the other, with pauses. Nothing if too many wait.
    pub(crate) fn turn(&self, peer: IpAddr, now: Duration) -> Option<Duration> {
        let mut refusals = self.refusals.lock();
        let Some(refused) = refusals.get_mut(&source(peer)) else { return Some(Duration::ZERO) };
        let wait = refused.next.saturating_sub(now);
        if wait > WAIT_MAX {
            return None;
        }
        refused.next = now + wait + self.pause(refused.count);
        Some(wait)
    }

    /// Counts a refused login.
    pub(crate) fn refuse(&self, peer: IpAddr, now: Duration) {
        let mut refusals = self.refusals.lock();
        let is_old = |refused: &Refusals| now.saturating_sub(refused.last) >= FORGOTTEN_AFTER;
        let mut key = source(peer);
        if !refusals.contains_key(&key) && refusals.len() >= ADDRESSES_MAX {
            refusals.retain(|_, refused| !is_old(refused));
            if refusals.len() >= ADDRESSES_MAX {
                key = Ipv4Addr::UNSPECIFIED.into();
            }
        }
        let refused = refusals.entry(key).or_insert(Refusals { count: 0, last: now, next: now });
        let count = if is_old(refused) { 1 } else { refused.count.saturating_add(1) };
        *refused = Refusals { count, last: now, next: refused.next.max(now + self.pause(count)) };
    }

    /// Forgets addresses from which nothing was refused for a while.
    pub(crate) fn forget(&self, now: Duration) {
        self.refusals.lock().retain(|_, refused| now.saturating_sub(refused.last) < FORGOTTEN_AFTER);
    }

    fn pause(&self, count: u32) -> Duration {
        self.delay * (1 << count.saturating_sub(1).min(2))
    }
}

/// What is counted as one source: an address, or a network of the size that one customer gets.
fn source(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide::fs::{Fs, RealFs};

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> Duration {
        SECOND * seconds
    }

    #[test]
    fn proofs_from_an_address_with_refused_ones_wait_for_each_other() {
        let gate = Gate::new(None, SECOND).unwrap();
        let (bad, good) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        assert_eq!(gate.turn(bad, at(5)), Some(Duration::ZERO));
        gate.refuse(bad, at(5));
        assert_eq!(gate.turn(bad, at(5)), Some(at(1)));
        assert_eq!(gate.turn(bad, at(5)), Some(at(2)));
        gate.refuse(bad, at(6));
        gate.refuse(bad, at(7));
        gate.refuse(bad, at(8));
        // Four seconds each now, until too many wait.
        let waits: Vec<_> = std::iter::from_fn(|| gate.turn(bad, at(8))).collect();
        assert_eq!(waits, [4, 8, 12, 16, 20, 24, 28].map(at));
        assert_eq!(gate.turn(good, at(8)), Some(Duration::ZERO));
        gate.forget(at(8) + FORGOTTEN_AFTER);
        assert_eq!(gate.turn(bad, at(8) + FORGOTTEN_AFTER), Some(Duration::ZERO));
    }

    #[test]
    fn addresses_are_remembered_in_bounded_memory() {
        let gate = Gate::new(None, SECOND).unwrap();
        for n in 0..20_000 {
            gate.refuse(Ipv4Addr::from_bits(n + 1).into(), at(1));
        }
        assert!(gate.refusals.lock().len() <= ADDRESSES_MAX + 1);
        let of = |text: &str| source(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }

    #[test]
    fn a_changed_file_holds_at_once_and_a_broken_one_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = AccountsFile::new(folder.path().join(AccountsFile::NAME));
        let gate = Gate::new(Some(file.clone()), SECOND).unwrap();
        assert!(!gate.needs_login() && gate.verifier("ada").is_none());
        file.change(|accounts| accounts.add("ada", Role::Write, "x")).unwrap();
        gate.refresh().unwrap();
        assert!(gate.needs_login());
        let ada = gate.verifier("ada").unwrap().0.unwrap();
        assert_eq!(gate.role(&ada), Some(Role::Write));
        let (nobody, shown) = gate.verifier("eve").unwrap();
        assert!(nobody.is_none() && shown.salt.len() == ada.verifier.salt.len());

        let fs = RealFs::new();
        let good = file.bytes().unwrap().unwrap();
        drop(fs.open_append(file.path(), 10).unwrap());
        let error = gate.refresh().unwrap_err().to_string();
        assert!(error.contains(AccountsFile::NAME), "{error}");
        assert!(gate.refresh().is_ok(), "said once");
        assert_eq!(gate.role(&ada), Some(Role::Write));

        fs.open_append(file.path(), 0).unwrap().append(&good).unwrap();
        file.change(|accounts| accounts.set_password("ada", "y")).unwrap();
        gate.refresh().unwrap();
        assert_eq!(gate.role(&ada), None, "the login was by another password");
        file.change(|accounts| accounts.remove("ada")).unwrap();
        gate.refresh().unwrap();
        assert!(gate.needs_login(), "the door does not open when the last account is removed");
    }
}

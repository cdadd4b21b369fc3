//! Accounts: who may log in, and the file that they are in.
//!
//! 1. The file is replaced as a whole and readable by its owner alone; one that others can read is refused.
//! 2. It is JSON with a number of its format; an unknown member is an error, so that nothing is lost when it is written again.

use crate::error::Failure;
use crate::scram::{Key, Verifier, random};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ebbtide::fs::{Fs, RealFs};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Write as _;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The number of the file's format.
const FORMAT: u32 = 1;
/// Bytes of a name at most.
const NAME_BYTES_MAX: usize = 128;
/// Fewer rounds than this are refused by MongoDB's drivers.
const ITERATIONS_MIN: u32 = 4096;

/// What tokens begin with.
pub(crate) const TOKEN_PREFIX: &str = "ebt_";

/// What an account may do. Each role may do what those before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Ask.
    Read,
    /// Insert, update and delete as well.
    Write,
    /// Create, drop and rename collections, and change rules, parameters and the clock as well.
    Admin,
}

impl Role {
    /// Its name: `read`, `write` or `admin`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Write => "write",
            Role::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = Failure;

    fn from_str(name: &str) -> Result<Role, Failure> {
        let role = [Role::Read, Role::Write, Role::Admin].into_iter().find(|role| role.name() == name);
        role.ok_or_else(|| Failure::new(format!("no role '{}': there are read, write and admin", name.escape_debug())))
    }
}

/// An account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) role: Role,
    pub(crate) verifier: Verifier,
    /// The hashes of its tokens.
    tokens: BTreeSet<Key>,
}

/// The accounts of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accounts {
    /// Decides what names without an account show.
    pub(crate) secret: Key,
    by_name: BTreeMap<String, Account>,
}

impl Accounts {
    fn new() -> Result<Accounts, Failure> {
        Ok(Accounts { secret: random().map_err(Failure::new)?, by_name: BTreeMap::new() })
    }

    /// Adds an account.
    ///
    /// # Errors
    /// If there is one of this name, or if the name or the password cannot be used.
    pub fn add(&mut self, name: &str, role: Role, password: &str) -> Result<(), Failure> {
        check_name(name)?;
        if self.by_name.contains_key(name) {
            return Err(Failure::new(format!("an account '{name}' exists: remove it first, or change its password")));
        }
        let verifier = Verifier::of_password(password).map_err(Failure::new)?;
        self.by_name.insert(name.to_owned(), Account { role, verifier, tokens: BTreeSet::new() });
        Ok(())
    }

    /// Removes an account.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn remove(&mut self, name: &str) -> Result<(), Failure> {
        self.by_name.remove(name).map(drop).ok_or_else(|| nobody(name))
    }

    /// Changes the password of an account.
    ///
    /// # Errors
    /// If there is no account of this name, or if the password cannot be used.
    pub fn set_password(&mut self, name: &str, password: &str) -> Result<(), Failure> {
        let account = self.by_name.get_mut(name).ok_or_else(|| nobody(name))?;
        account.verifier = Verifier::of_password(password).map_err(Failure::new)?;
        Ok(())
    }

    /// Makes a token, with which programs log in to an account over HTTP and gRPC. Only its hash is kept.
    ///
    /// # Errors
    /// If there is no account of this name, or if the system has no random numbers.
    pub fn add_token(&mut self, name: &str) -> Result<String, Failure> {
        let account = self.by_name.get_mut(name).ok_or_else(|| nobody(name))?;
        let secret: Key = random().map_err(Failure::new)?;
        let token = format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(secret));
        account.tokens.insert(hash_of(&token));
        Ok(token)
    }

    /// Makes the tokens of an account useless, and returns how many there were.
    ///
    /// # Errors
    /// If there is no account of this name.
    pub fn remove_tokens(&mut self, name: &str) -> Result<usize, Failure> {
        let account = self.by_name.get_mut(name).ok_or_else(|| nobody(name))?;
        Ok(std::mem::take(&mut account.tokens).len())
    }

    /// The name and the role of the account that has a token.
    pub(crate) fn by_token(&self, token: &str) -> Option<(&str, Role)> {
        let hash = hash_of(token);
        let (name, account) = self.by_name.iter().find(|(_, account)| account.tokens.contains(&hash))?;
        Some((name, account.role))
    }

    /// The names and roles, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Role)> {
        self.by_name.iter().map(|(name, account)| (name.as_str(), account.role))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Account> {
        self.by_name.get(name)
    }

    fn parse(bytes: &[u8]) -> Result<Accounts, String> {
        let stored: Stored = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        if stored.format != FORMAT {
            return Err(format!("format {} is not known: use a newer ebbtide", stored.format));
        }
        let mut by_name = BTreeMap::new();
        for user in stored.users {
            check_name(&user.name).map_err(|e| e.to_string())?;
            let scram = user.scram_sha_256;
            let name = user.name;
            let iterations = NonZero::new(scram.iterations).filter(|n| n.get() >= ITERATIONS_MIN);
            let iterations =
                iterations.ok_or_else(|| format!("account '{name}': fewer than {ITERATIONS_MIN} iterations"))?;
            let wrong = |what: &str| format!("account '{name}': {what} is not what it must be");
            let salt = STANDARD.decode(&scram.salt).ok().filter(|salt| !salt.is_empty());
            let verifier = Verifier {
                iterations,
                salt: salt.ok_or_else(|| wrong("salt"))?,
                stored_key: key(&scram.stored_key).ok_or_else(|| wrong("storedKey"))?,
                server_key: key(&scram.server_key).ok_or_else(|| wrong("serverKey"))?,
            };
            let tokens: Option<BTreeSet<Key>> = user.tokens.iter().map(|hash| key(hash)).collect();
            let tokens = tokens.ok_or_else(|| wrong("a hash in tokens"))?;
            if by_name.insert(name.clone(), Account { role: user.role, verifier, tokens }).is_some() {
                return Err(format!("two accounts '{name}'"));
            }
        }
        Ok(Accounts { secret: key(&stored.secret).ok_or("secret is not 32 bytes in base64")?, by_name })
    }

    fn to_bytes(&self) -> Result<Vec<u8>, Failure> {
        let user = |(name, account): (&String, &Account)| StoredUser {
            name: name.clone(),
            role: account.role,
            scram_sha_256: StoredVerifier {
                iterations: account.verifier.iterations.get(),
                salt: STANDARD.encode(&account.verifier.salt),
                stored_key: STANDARD.encode(account.verifier.stored_key),
                server_key: STANDARD.encode(account.verifier.server_key),
            },
            tokens: account.tokens.iter().map(|hash| STANDARD.encode(hash)).collect(),
        };
        let users = self.by_name.iter().map(user).collect();
        let stored = Stored { format: FORMAT, secret: STANDARD.encode(self.secret), users };
        let mut bytes = serde_json::to_vec_pretty(&stored).map_err(|e| Failure::new(e.to_string()))?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

fn nobody(name: &str) -> Failure {
    Failure::new(format!("no account '{}'", name.escape_debug()))
}

fn key(text: &str) -> Option<Key> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

fn hash_of(token: &str) -> Key {
    let digest = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
    let mut hash = Key::default();
    hash.copy_from_slice(digest.as_ref());
    hash
}

fn check_name(name: &str) -> Result<(), Failure> {
    if !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control) {
        return Ok(());
    }
    let shown: String = name.chars().take(80).collect();
    let what = format!(
        "'{}' is not a valid account name: use 1 to {NAME_BYTES_MAX} bytes without control characters",
        shown.escape_debug()
    );
    Err(Failure::new(what))
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    format: u32,
    secret: String,
    users: Vec<StoredUser>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredUser {
    name: String,
    role: Role,
    #[serde(rename = "scramSha256")]
    scram_sha_256: StoredVerifier,
    /// SHA-256 of each token.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tokens: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct StoredVerifier {
    iterations: u32,
    salt: String,
    stored_key: String,
    server_key: String,
}

/// The file of the accounts. A running server notices within a second that it was replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountsFile {
    path: PathBuf,
}

impl AccountsFile {
    /// The name that the file has where none is given, in the folder that is served.
    pub const NAME: &'static str = "accounts.json";

    /// The file at this path, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> AccountsFile {
        AccountsFile { path: path.into() }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn failure(&self, what: impl fmt::Display) -> Failure {
        Failure::new(format!("{}: {what}", self.path.display()))
    }

    /// Its bytes, if it exists.
    pub(crate) fn bytes(&self) -> Result<Option<Vec<u8>>, Failure> {
        let fs = RealFs::new();
        let failed = |e: std::io::Error| self.failure(e);
        if !fs.exists(&self.path).map_err(failed)? {
            return Ok(None);
        }
        self.check_mode()?;
        fs.read(&self.path).map(Some).map_err(failed)
    }

    #[cfg(unix)]
    fn check_mode(&self) -> Result<(), Failure> {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&self.path).map_err(|e| self.failure(e))?.permissions().mode();
        match mode & 0o077 {
            0 => Ok(()),
            _ => Err(self.failure(format!(
                "others can read or write it (mode {:o}): run chmod 600 on it, and change the passwords",
                mode & 0o777
            ))),
        }
    }

    #[cfg(not(unix))]
    #[expect(clippy::unnecessary_wraps, reason = "elsewhere it can fail")]
    fn check_mode(&self) -> Result<(), Failure> {
        Ok(())
    }

    pub(crate) fn parse(&self, bytes: &[u8]) -> Result<Accounts, Failure> {
        Accounts::parse(bytes).map_err(|e| self.failure(format!("no file of accounts: {e}")))
    }

    /// Reads it; there are no accounts where it does not exist.
    ///
    /// # Errors
    /// If it cannot be read, if others can read it, or if it is no file of accounts.
    pub fn read(&self) -> Result<Accounts, Failure> {
        self.bytes()?.map_or_else(Accounts::new, |bytes| self.parse(&bytes))
    }

    /// Changes the accounts and replaces the file, atomically and durably. Changes of several processes happen one after the
    /// other.
    ///
    /// # Errors
    /// Those of the change, and if the file cannot be read or written.
    pub fn change<T>(&self, change: impl FnOnce(&mut Accounts) -> Result<T, Failure>) -> Result<T, Failure> {
        let fs = RealFs::new();
        let failed = |e: std::io::Error| self.failure(e);
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs.create_dir(folder).map_err(failed)?;
        let lock = fs.lock(&self.path.with_extension("lock"), "ebbtide user");
        let _lock = lock.map_err(|e| self.failure(format!("another program changes it: {e}")))?;
        let mut accounts = self.read()?;
        let outcome = change(&mut accounts)?;
        // Readable by its owner alone from the start.
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
        file.write_all(&accounts.to_bytes()?).and_then(|()| file.as_file().sync_all()).map_err(failed)?;
        file.persist(&self.path).map_err(|e| self.failure(e.error))?;
        fs.sync_dir(folder).map_err(failed)?;
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_there_for_the_next_reader_and_the_file_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let file = AccountsFile::new(folder.path().join("new").join(AccountsFile::NAME));
        assert!(file.read().unwrap().is_empty());
        file.change(|accounts| {
            accounts.add("ada", Role::Admin, "first")?;
            accounts.add("bob", Role::Read, "second")
        })
        .unwrap();
        let read = file.read().unwrap();
        assert_eq!(read.iter().collect::<Vec<_>>(), [("ada", Role::Admin), ("bob", Role::Read)]);
        assert!(read.get("ada").unwrap().verifier.is_of("first"));
        file.change(|accounts| accounts.set_password("ada", "third").and(accounts.remove("bob"))).unwrap();
        let again = file.read().unwrap();
        assert!(again.get("ada").unwrap().verifier.is_of("third") && again.get("bob").is_none());
        assert_eq!(read.secret, again.secret);
        let bytes = String::from_utf8(file.bytes().unwrap().unwrap()).unwrap();
        assert!(!bytes.contains("third"), "{bytes}");
        let failed = file.change(|accounts| accounts.add("ada", Role::Read, "x")).unwrap_err();
        assert!(failed.to_string().contains("exists"), "{failed}");
        for name in ["", "a\nb", &"x".repeat(129)] {
            assert!(file.change(|accounts| accounts.add(name, Role::Read, "x")).is_err());
        }
        assert_eq!(file.read().unwrap(), again);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = AccountsFile::new(folder.path().join(AccountsFile::NAME));
        file.change(|accounts| accounts.add("ada", Role::Admin, "first")).unwrap();
        let mode = std::fs::metadata(file.path()).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(file.read().unwrap_err().to_string().contains("chmod 600"));
    }

    #[test]
    fn what_is_no_file_of_accounts_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = AccountsFile::new(folder.path().join(AccountsFile::NAME));
        let good = file
            .change(|accounts| {
                accounts.add("ada", Role::Admin, "first")?;
                accounts.to_bytes()
            })
            .unwrap();
        let good = String::from_utf8(good).unwrap();
        assert!(file.parse(good.as_bytes()).is_ok());
        for (from, to, says) in [
            ("\"format\": 1", "\"format\": 2", "newer"),
            ("\"role\": \"admin\"", "\"role\": \"root\"", "root"),
            ("\"iterations\": 15000", "\"iterations\": 1", "iterations"),
            ("\"name\": \"ada\"", "\"name\": \"\"", "name"),
            ("\"name\": \"ada\"", "\"name\": \"ada\", \"x\": 1", "unknown field `x`"),
            ("\"storedKey\": \"", "\"storedKey\": \"!", "storedKey"),
            ("\"salt\": \"", "\"salt\": \"!", "salt"),
            ("\"secret\": \"", "\"secret\": \"!", "secret"),
            ("]\n}", "]", "EOF"),
        ] {
            let wrong = good.replacen(from, to, 1);
            assert_ne!(wrong, good);
            let error = file.parse(wrong.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains(AccountsFile::NAME), "{error}");
        }
    }
}

//! The databases that a server has.

use crate::error::{CommandError, Failure, Result};
use crate::profiler::COLLECTION as PROFILE;
use ebbtide::fs::{Fs, RealFs};
use ebbtide::{Background, Database};
use ebbtide_ttl::{Code, Parameters, Value};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::{Path, PathBuf};

/// Characters that the name of a database may have, beside letters and digits.
const NAME_CHARACTERS: [char; 2] = ['_', '-'];
/// Bytes of a database's name at most.
const NAME_BYTES_MAX: usize = 63;
/// What the names of collections begin with that `$out` is filling. Clients cannot create such ones.
const UNFINISHED: &str = "tmp.agg_out.";
/// Names that clients use for the server's own data, of which there is none here.
const EMPTY: [&str; 3] = ["admin", "local", "config"];

/// A name for a collection that `$out` fills: one that no other has.
pub(crate) fn unfinished_name() -> String {
    // A fresh RandomState has random keys.
    let part = || RandomState::new().hash_one(0);
    format!("{UNFINISHED}{:016x}{:016x}", part(), part())
}

/// Refuses names of collections that the server keeps for itself.
pub(crate) fn check_collection(name: &str) -> Result<()> {
    if name == PROFILE {
        let what = format!("{PROFILE} has the records of the profiler: it cannot be written to");
        return Err(CommandError::new(Code::InvalidNamespace, what));
    }
    if !name.starts_with(UNFINISHED) {
        return Ok(());
    }
    let what = format!("the names that begin with '{UNFINISHED}' are those of results of $out that are being written");
    Err(CommandError::new(Code::InvalidNamespace, what))
}

/// Refuses names for collections that commands of MongoDB's protocol create. Measurements that come otherwise may have names such as
/// `system.cpu.time`.
pub(crate) fn check_new_collection(name: &str) -> Result<()> {
    check_collection(name)?;
    if !name.starts_with("system.") || name == "system.js" {
        return Ok(());
    }
    let shown: String = name.chars().take(60).collect();
    let what =
        format!("the name '{}' is not allowed: names that begin with 'system.' are MongoDB's", shown.escape_debug());
    Err(CommandError::new(Code::InvalidNamespace, what))
}

/// How a database is opened.
pub type Opener = fn(&Path) -> ebbtide::Result<Database>;

fn open_plainly(path: &Path) -> ebbtide::Result<Database> {
    Database::open(path)
}

/// Opens a database, without what a crash left of results of `$out`.
fn open_database(path: impl AsRef<Path>, opener: Opener) -> ebbtide::Result<Database> {
    let database = opener(path.as_ref())?;
    without_unfinished(&database)?;
    Ok(database)
}

fn without_unfinished(database: &Database) -> ebbtide::Result<()> {
    if database.is_read_only() {
        return Ok(());
    }
    for name in database.document_collections().iter().filter(|name| is_unfinished(name)) {
        tracing::info!(name, "what a $out that did not end had written is removed");
        database.drop_collection(name)?;
    }
    Ok(())
}

/// Whether it is a name of [`unfinished_name`].
fn is_unfinished(name: &str) -> bool {
    let digits = name.strip_prefix(UNFINISHED);
    digits.is_some_and(|digits| digits.len() == 32 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
}

/// The databases that a server has: one, or a folder with one in each of its folders.
#[derive(Debug)]
pub struct Databases {
    layout: Layout,
    opener: Opener,
    open: Mutex<Open>,
}

#[derive(Debug)]
enum Layout {
    One(String),
    Folder(PathBuf),
}

#[derive(Debug, Default)]
struct Open {
    databases: BTreeMap<String, Served>,
    /// Parameters for databases that are opened later.
    parameters: Parameters,
    is_started: bool,
}

#[derive(Debug)]
struct Served {
    database: Database,
    /// Seals, compacts and sweeps until it is dropped.
    background: Option<Background>,
}

impl Databases {
    /// One database, which clients call by the name of its folder. It is created if it does not exist.
    ///
    /// # Errors
    /// If it cannot be opened, or its folder's name is not one that a client can use.
    pub fn one(path: impl AsRef<Path>) -> std::result::Result<Databases, Failure> {
        Databases::one_with(path, open_plainly)
    }

    /// As [`Databases::one`], opened by `opener`.
    ///
    /// # Errors
    /// As for [`Databases::one`].
    pub fn one_with(path: impl AsRef<Path>, opener: Opener) -> std::result::Result<Databases, Failure> {
        let path = path.as_ref();
        let name = name_of(path)?;
        Databases::of(name, opener(path)?)
    }

    /// A database that is open already, under the name of its folder. The server runs its background work and closes it.
    ///
    /// # Errors
    /// If the folder has not a name that a client can use.
    pub fn one_open(path: impl AsRef<Path>, database: Database) -> std::result::Result<Databases, Failure> {
        Databases::of(name_of(path.as_ref())?, database)
    }

    /// One database that is open already, under a name for clients. The server runs its background work and closes it.
    ///
    /// # Errors
    /// If it is not a name that a client can use.
    pub fn of(name: impl Into<String>, database: Database) -> std::result::Result<Databases, Failure> {
        let name = name.into();
        check_name(&name).map_err(|e| Failure::new(e.message))?;
        without_unfinished(&database)?;
        let databases =
            Databases { layout: Layout::One(name.clone()), opener: open_plainly, open: Mutex::new(Open::default()) };
        databases.open.lock().databases.insert(name, Served { database, background: None });
        Ok(databases)
    }

    /// The database, if it is only one.
    #[must_use]
    pub fn only(&self) -> Option<Database> {
        let Layout::One(name) = &self.layout else { return None };
        self.open.lock().databases.get(name).map(|served| served.database.clone())
    }

    /// A folder, in which each folder is a database of its name. A write to a database that does not exist creates it.
    ///
    /// # Errors
    /// If the folder cannot be read, or a database in it cannot be opened.
    pub fn in_folder(path: impl AsRef<Path>) -> std::result::Result<Databases, Failure> {
        Databases::in_folder_with(path, open_plainly)
    }

    /// As [`Databases::in_folder`], each opened by `opener`.
    ///
    /// # Errors
    /// As for [`Databases::in_folder`].
    pub fn in_folder_with(path: impl AsRef<Path>, opener: Opener) -> std::result::Result<Databases, Failure> {
        let (root, fs) = (path.as_ref().to_owned(), RealFs::new());
        let failed = |e: std::io::Error| Failure::new(format!("{}: {e}", root.display()));
        if !fs.exists(&root).map_err(failed)? {
            fs.create_dir(&root).map_err(failed)?;
        }
        let databases = Databases { layout: Layout::Folder(root.clone()), opener, open: Mutex::new(Open::default()) };
        for name in fs.list(&root).map_err(failed)? {
            let folder = root.join(&name);
            if check_name(&name).is_ok() && is_folder(&folder).map_err(failed)? && Database::exists(&folder)? {
                let served = Served { database: open_database(folder, opener)?, background: None };
                databases.open.lock().databases.insert(name, served);
            }
        }
        Ok(databases)
    }

    /// The database of this name; nothing if there is none, which reads see as empty.
    pub(crate) fn get(&self, name: &str) -> Result<Option<Database>> {
        if EMPTY.contains(&name) {
            return Ok(None);
        }
        check_name(name)?;
        Ok(self.open.lock().databases.get(name).map(|served| served.database.clone()))
    }

    /// The database of this name, which is created where that is possible.
    pub(crate) fn get_or_create(&self, name: &str) -> Result<Database> {
        if let Some(database) = self.get(name)? {
            return Ok(database);
        }
        let invalid = |what: String| CommandError::new(Code::InvalidNamespace, what);
        if EMPTY.contains(&name) {
            return Err(invalid(format!("database '{name}' holds nothing here: use another name")));
        }
        let root = match &self.layout {
            Layout::Folder(root) => root,
            Layout::One(only) => {
                let what = format!(
                    "this server has one database, '{only}', and '{name}' cannot be created: use that name, or start \
                     the server with --dbs"
                );
                return Err(invalid(what));
            }
        };
        let mut open = self.open.lock();
        if let Some(served) = open.databases.get(name) {
            return Ok(served.database.clone());
        }
        if let Some(other) = open.databases.keys().find(|other| other.eq_ignore_ascii_case(name)) {
            return Err(invalid(format!("database '{other}' exists, whose name differs in capitals alone: use that")));
        }
        let database = open_database(root.join(name), self.opener)?;
        for (parameter, value) in all_parameters(&open.parameters) {
            database.set_parameter(parameter, &value)?;
        }
        let background = if open.is_started { background(&database)? } else { None };
        open.databases.insert(name.to_owned(), Served { database: database.clone(), background });
        Ok(database)
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> Vec<(String, Database)> {
        let open = self.open.lock();
        open.databases.iter().map(|(name, served)| (name.clone(), served.database.clone())).collect()
    }

    /// The parameters of all databases.
    pub(crate) fn parameters(&self) -> Vec<(&'static str, Value)> {
        let open = self.open.lock();
        match open.databases.values().next() {
            Some(served) => served.database.parameters(),
            None => all_parameters(&open.parameters),
        }
    }

    /// Sets parameters of all databases, all of them or none. Returns what the first one was.
    pub(crate) fn set_parameters(&self, parameters: &[(String, Value)]) -> Result<Option<Value>> {
        let mut open = self.open.lock();
        let mut changed = match open.databases.values().next() {
            Some(served) => {
                let mut now = Parameters::default();
                for (name, value) in served.database.parameters() {
                    now.set(name, &value)?;
                }
                now
            }
            None => open.parameters.clone(),
        };
        let mut was = None;
        for (name, value) in parameters {
            let old = changed.set(name, value)?;
            was.get_or_insert(old);
        }
        for served in open.databases.values() {
            for (name, value) in parameters {
                served.database.set_parameter(name, value)?;
            }
        }
        open.parameters = changed;
        Ok(was)
    }

    /// Begins sealing, compaction and sweeps. Must be called in a tokio runtime.
    pub(crate) fn start(&self) -> std::result::Result<(), Failure> {
        let mut open = self.open.lock();
        open.is_started = true;
        for served in open.databases.values_mut() {
            served.background = background(&served.database)?;
        }
        Ok(())
    }

    /// Makes everything durable and closes the databases.
    pub(crate) fn close(&self) -> std::result::Result<(), Failure> {
        let databases = std::mem::take(&mut self.open.lock().databases);
        let mut outcome = Ok(());
        for (_, Served { database, background }) in databases {
            drop(background);
            outcome = outcome.and(database.close().map_err(Failure::from));
        }
        outcome
    }
}

fn all_parameters(parameters: &Parameters) -> Vec<(&'static str, Value)> {
    Parameters::names().filter_map(|name| Some((name, parameters.get(name).ok()?))).collect()
}

/// The background work of a database, unless its clock is a virtual one.
fn background(database: &Database) -> ebbtide::Result<Option<Background>> {
    if database.clock().is_virtual() || database.is_read_only() {
        return Ok(None);
    }
    database.start_background().map(Some)
}

/// Whether it is a folder, also through a link. A link to nothing is none.
fn is_folder(path: &Path) -> std::io::Result<bool> {
    match path.metadata() {
        Ok(data) => Ok(data.is_dir()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The name under which clients know the database in a folder.
fn name_of(path: &Path) -> std::result::Result<String, Failure> {
    let absolute = std::path::absolute(path).map_err(|e| Failure::new(format!("{}: {e}", path.display())))?;
    let name = absolute.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    check_name(&name).map_err(|e| Failure::new(format!("{}: {}", path.display(), e.message)))?;
    Ok(name)
}

fn check_name(name: &str) -> Result<()> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || NAME_CHARACTERS.contains(&c);
    if !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_allowed) {
        return Ok(());
    }
    let shown: String = name.chars().take(80).collect();
    let what = format!(
        "'{}' is not the name of a database: letters, digits, '_' and '-' are allowed, at most {NAME_BYTES_MAX}",
        shown.escape_debug()
    );
    Err(CommandError::new(Code::InvalidNamespace, what))
}

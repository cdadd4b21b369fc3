//! Opening the database that the command line names.

use crate::Failure;
use crate::args::{Cli, Command};
use crate::replicas::Replicas;
use ebbtide::{Builder, Database, Following};
use ebbtide_lake::Lake;
use ebbtide_query::statement::{Statement, StatementKind};
use ebbtide_query::{Session, SessionSettings};
use ebbtide_ttl::Code;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// How often a replica looks for what was shipped.
pub(crate) const FOLLOW_EVERY: Duration = Duration::from_millis(500);

/// How a database is opened: with access to archives.
#[must_use]
pub fn builder(path: impl AsRef<Path>) -> Builder {
    Database::builder(path).archives(Arc::new(Lake::new()))
}

/// Opens a read replica in this folder, which follows its copy until it is dropped.
pub(crate) fn replica(folder: &Path, url: &str) -> Result<Following, Failure> {
    Ok(builder(folder).follow(url)?.follow(FOLLOW_EVERY))
}

/// Opens an existing database read-only.
pub(crate) fn for_reading(cli: &Cli) -> Result<Database, Failure> {
    must_exist(cli)?;
    Ok(builder(&cli.db).read_only().open()?)
}

/// Opens an existing database for writing, or read-only with `--read-only`.
pub(crate) fn for_writing(cli: &Cli) -> Result<Database, Failure> {
    must_exist(cli)?;
    or_new(cli)
}

/// Opens a database for writing and creates it if it does not exist.
pub(crate) fn or_new(cli: &Cli) -> Result<Database, Failure> {
    if cli.read_only {
        return for_reading(cli);
    }
    Ok(builder(&cli.db).open()?)
}

/// Checks that the database that the command line names is there.
pub(crate) fn must_exist(cli: &Cli) -> Result<(), Failure> {
    if Database::exists(&cli.db)? {
        return Ok(());
    }
    Err(Failure::new(format!(
        "there is no database at {}; name one with --db or EBBTIDE_DB, or create one with ebbtide import or CREATE COLLECTION",
        cli.db.display()
    )))
}

/// What a statement needs of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    Read,
    Write,
    Create,
}

/// What a statement needs of the database.
pub(crate) fn need(statement: &Statement) -> Need {
    match &statement.kind {
        StatementKind::Command { document, .. } if document.contains_key("create") => Need::Create,
        StatementKind::CreateAs(_) => Need::Create,
        StatementKind::Show(_)
        | StatementKind::Describe(_)
        | StatementKind::Pivot(_)
        | StatementKind::Summarize(_)
        | StatementKind::ExplainExpiry { .. } => Need::Read,
        StatementKind::Sql => {
            let first: String = statement.text.trim_start_matches(['(', ' ', '\n']).chars().take(8).collect();
            let first = first.to_uppercase();
            let words: Vec<String> = statement.text.split_whitespace().take(4).map(str::to_uppercase).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            if matches!(
                words.as_slice(),
                ["CREATE", "VIEW", ..] | ["CREATE", "OR", "REPLACE", "VIEW"] | ["DROP", "VIEW", ..]
            ) {
                return Need::Write;
            }
            let writes = ["INSERT", "DELETE", "UPDATE", "TRUNCATE", "MERGE"].iter().any(|w| first.starts_with(w));
            if writes { Need::Write } else { Need::Read }
        }
        _ => Need::Write,
    }
}

/// A session that is opened by the first statement, with the access that the statements need.
pub(crate) struct LazySession<'a> {
    cli: &'a Cli,
    settings: SessionSettings,
    need: Need,
    session: Option<Session>,
    /// An empty database for statements that need none, as long as there is no other.
    scratch: Option<(Session, TempDir)>,
    /// The replicas that the session reads, if it does.
    replicas: Option<Replicas>,
}

impl<'a> LazySession<'a> {
    /// `need` is the greatest access that any statement known in advance needs.
    pub(crate) fn new(cli: &'a Cli, settings: SessionSettings, need: Need) -> Self {
        LazySession { cli, settings, need, session: None, scratch: None, replicas: None }
    }

    /// The folder of the database.
    pub(crate) fn folder(&self) -> &'a Path {
        &self.cli.db
    }

    /// The session, opened for `statement` if it is the first.
    pub(crate) fn get(&mut self, statement: Option<&Statement>) -> Result<&Session, Failure> {
        if self.session.is_none() && !self.follow()? {
            if statement.is_some_and(|s| need(s) == Need::Read && ebbtide_query::reads_only_files(s))
                && !Database::exists(&self.cli.db)?
            {
                return self.scratch();
            }
            let need = statement.map_or(self.need, need).max(self.need);
            let database = match need {
                _ if self.settings.now.is_some() => for_reading(self.cli)?,
                Need::Read => for_reading(self.cli)?,
                Need::Write => for_writing(self.cli)?,
                Need::Create => or_new(self.cli)?,
            };
            self.session = Some(Session::with_settings(database, &self.settings)?);
        }
        self.session.as_ref().ok_or_else(|| Failure::new("no session"))
    }

    /// Opens the replicas that the command line asks for, if it does.
    fn follow(&mut self) -> Result<bool, Failure> {
        let Command::Sql(args) = &self.cli.command else { return Ok(false) };
        let Some((replicas, session)) = Replicas::open(self.cli, args, &self.settings)? else { return Ok(false) };
        (self.session, self.replicas) = (Some(session), Some(replicas));
        Ok(true)
    }

    fn scratch(&mut self) -> Result<&Session, Failure> {
        if self.scratch.is_none() {
            let folder = tempfile::tempdir()?;
            drop(Database::open(folder.path())?);
            let database = Database::builder(folder.path()).read_only().open()?;
            let session = Session::with_settings(database, &self.settings)?;
            self.scratch = Some((session, folder));
        }
        self.scratch.as_ref().map(|(session, _)| session).ok_or_else(|| Failure::new("no session"))
    }

    /// Opens an existing database for a shell: for writing, or read-only if another program has it open for writing.
    pub(crate) fn open_shell(&mut self) -> Result<(), Failure> {
        if self.follow()? {
            return Ok(());
        }
        if !Database::exists(&self.cli.db)? {
            return Ok(());
        }
        let database = if self.cli.read_only || self.settings.now.is_some() {
            for_reading(self.cli)?
        } else {
            match builder(&self.cli.db).open() {
                Err(error) if error.code() == Code::LockBusy => {
                    eprintln!("{error}; opened read-only, as of now");
                    for_reading(self.cli)?
                }
                other => other?,
            }
        };
        self.session = Some(Session::with_settings(database, &self.settings)?);
        Ok(())
    }

    pub(crate) fn opened(&self) -> Option<&Session> {
        self.session.as_ref()
    }
}

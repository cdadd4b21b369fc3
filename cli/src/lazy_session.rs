//! A session that is opened when a statement needs it.

use crate::Failure;
use crate::args::{Cli, Command};
use crate::open::{Need, builder, for_reading, for_writing, need, or_new};
use crate::replicas::Replicas;
use ebbtide::Database;
use ebbtide_query::statement::Statement;
use ebbtide_query::{Session, SessionSettings};
use ebbtide_ttl::Code;
use std::path::Path;
use tempfile::TempDir;

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

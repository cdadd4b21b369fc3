//! Statements that a connection has prepared, and those that are bound to values.

use super::error::{LIMIT_EXCEEDED, Refusal};
use super::own::{self, Asked, Copy, Own};
use super::rows::{self, Rows};
use super::values::Parameter;
use crate::sql::{SqlSession, SqlStatement};
use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// Statements, and portals, that a connection may keep by name.
const KEPT_MAX: usize = 1000;

/// What is to be done.
#[derive(Debug, Clone)]
pub(super) enum Work {
    Empty,
    Own(Own),
    Copy(Copy, Arc<dyn SqlStatement>),
    Sql(Arc<dyn SqlStatement>),
}

impl Work {
    /// That of one statement. `session` is asked for if the engine is needed.
    pub(super) fn of(
        text: &str,
        session: impl FnOnce() -> Result<Arc<dyn SqlSession>, Refusal>,
    ) -> Result<Work, Refusal> {
        let parse = |text: &str| {
            let mut statements = session()?.parse(text)?;
            statements.pop().ok_or_else(|| Refusal::new(super::error::SYNTAX_ERROR, "there is no statement"))
        };
        Ok(match own::asked(text)? {
            Asked::Empty => Work::Empty,
            Asked::Own(own) => Work::Own(own),
            Asked::Copy(copy) => {
                let statement = parse(&copy.query)?;
                Work::Copy(copy, statement)
            }
            Asked::Sql => Work::Sql(parse(text)?),
        })
    }
}

/// A statement that was parsed.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) work: Work,
    /// The types of parameters that the client has named; 0 for those that it has not.
    pub(super) named: Vec<u32>,
    /// What it takes and returns, once that was asked for.
    pub(super) described: OnceLock<Described>,
    /// The columns that the client knows: those it was told last.
    pub(super) told: Mutex<Option<SchemaRef>>,
}

impl Prepared {
    pub(super) fn new(work: Work, named: Vec<u32>) -> Prepared {
        Prepared { work, named, described: OnceLock::new(), told: Mutex::default() }
    }

    /// Refuses rows of other columns than the client knows: it would read their values as those of the columns that it was told.
    pub(super) fn check_told(&self, columns: &SchemaRef) -> Result<(), Refusal> {
        // With parameters, columns may be named by the values.
        let by_name = !matches!(&self.work, Work::Sql(statement) if statement.takes() > 0);
        match &*self.told.lock() {
            Some(told) if !rows::is_as_told(told, columns, by_name)? => Err(Refusal::changed_columns()),
            _ => Ok(()),
        }
    }
}

/// What a statement takes and returns.
#[derive(Debug, Clone)]
pub(super) struct Described {
    pub(super) parameters: Vec<Parameter>,
    pub(super) columns: Option<SchemaRef>,
    /// Why nothing is known of its columns without values.
    pub(super) unknown: Option<Refusal>,
}

/// A statement with values.
pub(super) struct Portal {
    pub(super) prepared: Arc<Prepared>,
    pub(super) values: Vec<ArrayRef>,
    pub(super) formats: Vec<i16>,
    pub(super) state: State,
}

/// How far a portal is.
pub(super) enum State {
    Ready,
    /// It was started, and returns rows.
    Rows(Box<Rows>),
    /// It was started, and has done all that it does: the tag that says so.
    Done(String),
}

/// Things by name, of which there may only be so many.
pub(super) struct Kept<T>(HashMap<String, T>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Kept(HashMap::new())
    }
}

impl<T> Kept<T> {
    pub(super) fn get(&self, name: &str) -> Option<&T> {
        self.0.get(name)
    }

    pub(super) fn take(&mut self, name: &str) -> Option<T> {
        self.0.remove(name)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Keeps one. The one without a name replaces the one before it; `taken` is the error if another has the name.
    pub(super) fn put(&mut self, name: &str, thing: T, taken: super::error::State) -> Result<(), Refusal> {
        if !name.is_empty() {
            if self.0.contains_key(name) {
                return Err(Refusal::new(taken, format!("\"{name}\" already exists")));
            }
            if self.0.len() >= KEPT_MAX {
                let what = format!("a connection may keep {KEPT_MAX} of these: close some");
                return Err(Refusal::new(LIMIT_EXCEEDED, what));
            }
        }
        self.0.insert(name.to_owned(), thing);
        Ok(())
    }
}

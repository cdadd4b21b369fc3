//! What scripts are made of.

use ebbtide::Settings;

use crate::documents::{Command, NewDocument};
use crate::expect::Row;

/// Noon of some day, in milliseconds; a multiple of the bucket span.
pub(crate) const NOON: i64 = 1_700_049_600_000;
pub(crate) const HOUR: i64 = 3_600_000;

/// One step of a script.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Makes a collection, with its own rule in seconds.
    Create(&'static str, Option<i64>),
    DropCollection(&'static str),
    /// Gives a collection another name, which none has.
    Rename(&'static str, &'static str),
    /// Gives an ordinary collection the name of another one, which it replaces.
    Replace(&'static str, &'static str),
    /// Gives the field `x` of a collection the name `y`. What is inserted later is in `x` again.
    RenameField(&'static str),
    /// Drops the field `extra`.
    DropField(&'static str),
    /// Copies a collection.
    Copy(&'static str, &'static str),
    /// Makes a view, or changes it: its name, and its statement.
    PutView(&'static str, &'static str),
    DropView(&'static str),
    /// Makes an ordinary collection, with its default time to live in seconds.
    CreateDocuments(&'static str, Option<i64>),
    /// One command on an ordinary collection, which is atomic.
    Documents(&'static str, Command),
    /// Several commands at once on different documents, each atomic.
    DocumentsTogether(&'static str, Vec<Command>),
    /// A seal, compaction or sweep, and a command at the moment when it begins to write a segment.
    Beside(Box<Step>, &'static str, Command),
    /// One insert, which is atomic.
    Insert(&'static str, Vec<Row>, Fields),
    /// Inserts into several collections that are atomic together; with a number they are a request that is stored once, however
    /// often the step comes.
    InsertAcross(Vec<(&'static str, Vec<Row>)>, Option<u64>),
    /// Several inserts at once, each atomic.
    InsertTogether(&'static str, Vec<Vec<Row>>),
    Flush,
    Compact,
    Sweep,
    /// Lets this many seconds pass.
    Wait(i64),
    /// Changes the collection's own rule.
    SetOwn(&'static str, Option<i64>),
    /// A partial index: collection, name, meta, seconds.
    AddRule(&'static str, &'static str, &'static str, i64),
    /// As [`Step::AddRule`], with a filter of many kilobytes.
    AddWideRule(&'static str, &'static str, &'static str, i64),
    ModifyRule(&'static str, &'static str, i64),
    RemoveRule(&'static str, &'static str),
    /// Deletes all measurements of a meta.
    Delete(&'static str, &'static str),
    /// Takes a snapshot of the collection and keeps it.
    Hold(&'static str),
    /// Reads the snapshot once more and lets it go.
    Release,
    /// Closes the database and opens it again.
    Reopen,
}

/// Which fields a measurement has besides its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fields {
    /// A double.
    Plain,
    /// A text more.
    Extra,
    /// A long text more, to fill files.
    Long,
    /// A double more, with so many digits after the point.
    Digits(i32),
}

#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) settings: Settings,
    pub(crate) steps: Vec<Step>,
}

/// Measurements with ids from `first` on, one a minute from `t` on, over the metas in turn.
pub(crate) fn rows(first: i64, count: i64, t: i64, metas: &[&str]) -> Vec<Row> {
    let meta = |id: i64| metas.get(usize::try_from(id).unwrap_or(0) % metas.len()).copied().unwrap_or("a");
    (first..first + count).map(|id| Row { id, t: t + (id - first) * 60_000, meta: meta(id).to_owned() }).collect()
}

/// Documents with `_id`s from `first` on, all with one number, and without a life or date of their own.
pub(crate) fn kept(first: i64, count: i64, number: i64) -> Vec<NewDocument> {
    (first..first + count).map(|id| NewDocument { id, number, ttl: None, date: None }).collect()
}

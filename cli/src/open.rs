//! Opening the database that the command line names.

use crate::Failure;
use crate::args::Cli;
use ebbtide::fs::RealFs;
use ebbtide::{Builder, CopyCache, Database, Following};
use ebbtide_lake::{Cancellation, Lake};
use ebbtide_query::changes_database;
use ebbtide_query::statement::{Statement, StatementKind};
use ebbtide_ttl::{Code, SystemClock};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// How often a replica looks for what was shipped.
pub(crate) const FOLLOW_EVERY: Duration = Duration::from_millis(500);

static REQUESTS: LazyLock<Cancellation> = LazyLock::new(Cancellation::default);

/// How a database is opened: with access to archives.
#[must_use]
pub fn builder(path: impl AsRef<Path>) -> Builder {
    Database::builder(path).archives(Arc::new(Lake::new().cancelled_by(&REQUESTS)))
}

/// A program that ends cancels requests to object storage once none has been answered for this long.
const LAST_TRY: Duration = Duration::from_secs(5);
/// How often the program waits for further answers before it cancels requests.
const WAITS_MAX: u32 = 12;

/// Cancels the requests to object storage of all databases that the program has opened, once none has been answered for [`LAST_TRY`],
/// and at the latest after [`WAITS_MAX`] times that.
pub(crate) async fn cancel_requests() {
    until_unchanged(|| REQUESTS.answered(), || tokio::time::sleep(LAST_TRY)).await;
    REQUESTS.cancel();
}

/// Waits until a number has not changed meanwhile, [`WAITS_MAX`] times at most.
async fn until_unchanged<W: Future<Output = ()>>(number: impl Fn() -> u64, wait: impl Fn() -> W) {
    for _ in 0..WAITS_MAX {
        let before = number();
        wait().await;
        if number() == before {
            return;
        }
    }
}

/// Opens a read replica in this folder, which follows its copy until it is dropped.
pub(crate) fn replica(folder: &Path, url: &str) -> Result<Following, Failure> {
    Ok(builder(folder).follow(url)?.follow(FOLLOW_EVERY))
}

/// A folder for files that are fetched when they are read.
pub(crate) fn cache(folder: &Path, bytes_max: u64) -> Result<Arc<CopyCache>, Failure> {
    Ok(Arc::new(CopyCache::open(Arc::new(RealFs::new()), &SystemClock::new(), folder, bytes_max)?))
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
    // A replica or a restore that has not ended may be there.
    if let Err(error) = builder(&cli.db).read_only().open()
        && error.code() != Code::NamespaceNotFound
    {
        return Err(error.into());
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
        _ if changes_database(statement) => Need::Write,
        _ => Need::Read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[tokio::test]
    async fn requests_are_cancelled_once_none_was_answered_for_a_while_and_not_before() {
        for (answering, expected) in [(0, 1), (1, 2), (5, 6), (1_000, u64::from(WAITS_MAX))] {
            let (answered, waits) = (AtomicU64::new(7), AtomicU64::new(0));
            let wait = || {
                if waits.fetch_add(1, Ordering::Relaxed) < answering {
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                std::future::ready(())
            };
            until_unchanged(|| answered.load(Ordering::Relaxed), wait).await;
            assert_eq!(waits.load(Ordering::Relaxed), expected);
        }
    }
}

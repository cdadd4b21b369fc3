//! The read replicas that `ebbtide sql --follow` queries: one, or several as one database; and the one that `ebbtide status` looks at.

use crate::args::{Cli, SqlArgs};
use crate::{Failure, open};
use ebbtide::{Following, Replica};
use ebbtide_query::{Session, SessionSettings};
use std::path::Path;
use tempfile::TempDir;

/// How much is kept of files that are fetched when they are read.
const CACHE_BYTES: u64 = 10 << 30;

/// Replicas that follow their copies until they are dropped.
pub(crate) struct Replicas {
    _following: Vec<Following>,
    /// Their folder, if that is a temporary one.
    _temporary: Option<TempDir>,
}

impl Replicas {
    /// Opens the replicas that the command line names, and a session over them; `None` if it names none.
    pub(crate) fn open(
        cli: &Cli,
        args: &SqlArgs,
        settings: &SessionSettings,
    ) -> Result<Option<(Replicas, Session)>, Failure> {
        check(&args.follow)?;
        if args.follow.is_empty() {
            return Ok(None);
        }
        let temporary = if cli.names_db { None } else { Some(tempfile::tempdir()?) };
        let folder = temporary.as_ref().map_or(cli.db.clone(), |folder| folder.path().join("replica"));
        let (following, settings) = follow(args, &folder, settings)?;
        let mut databases = following.iter().map(|replica| replica.database().clone());
        let Some(first) = databases.next() else { return Ok(None) };
        let session = Session::with_settings(first, &settings)?.beside(databases.collect())?;
        Ok(Some((Replicas { _following: following, _temporary: temporary }, session)))
    }
}

/// The replicas, and the settings of their session.
fn follow(
    args: &SqlArgs,
    folder: &Path,
    settings: &SessionSettings,
) -> Result<(Vec<Following>, SessionSettings), Failure> {
    #[cfg(feature = "workers")]
    if let Some(workers) = crate::worker::workers(args)? {
        let cache = open::cache(folder, CACHE_BYTES)?;
        let follow = |url: &String| Ok(open::builder(folder).follow_on_demand(url, &cache)?.follow(open::FOLLOW_EVERY));
        let following = args.follow.iter().map(follow).collect::<Result<_, Failure>>()?;
        return Ok((following, SessionSettings { workers: Some(workers), ..settings.clone() }));
    }
    if !args.workers.is_empty() {
        return Err(Failure::usage("this program was built without workers"));
    }
    let follow = |url: &String| match args.follow.len() {
        1 => open::replica(folder, url),
        _ => open::replica(&folder.join(folder_name(url)), url),
    };
    let following = args.follow.iter().map(follow).collect::<Result<_, Failure>>()?;
    Ok((following, settings.clone()))
}

/// The newest state of a copy, whose files are fetched into a temporary folder when they are read.
pub(crate) fn newest(url: &str) -> Result<(Replica, TempDir), Failure> {
    let folder = tempfile::tempdir()?;
    let cache = open::cache(folder.path(), CACHE_BYTES)?;
    Ok((open::builder(folder.path()).follow_on_demand(url, &cache)?, folder))
}

/// Refuses a URL that is named twice, whose rows would count twice.
fn check(urls: &[String]) -> Result<(), Failure> {
    let plain = |url: &String| url.trim_end_matches('/').to_owned();
    for (at, url) in urls.iter().enumerate() {
        if urls[..at].iter().any(|before| plain(before) == plain(url)) {
            return Err(Failure::usage(format!("--follow {url} is given twice: its rows would count twice")));
        }
    }
    Ok(())
}

/// The folder of one of several replicas: the same for a URL whatever the others are.
fn folder_name(url: &str) -> String {
    let url = url.trim_end_matches('/');
    let last = url.rsplit('/').next().unwrap_or_default();
    let readable: String = last.chars().filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).take(40).collect();
    format!("{readable}-{:08x}", crc32fast::hash(url.as_bytes()))
}

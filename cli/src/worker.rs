//! `ebbtide worker`, and what sessions need to use workers.

use crate::args::{SqlArgs, WorkerArgs};
use crate::signals::Signals;
use crate::{Failure, files, open};
use ebbtide::{CopyReader, Settings};
use ebbtide_lake::Lake;
use ebbtide_query::{Serving, WorkerSettings, WorkerToken, Workers};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Where the secret is, without a file.
const TOKEN: &str = "EBBTIDE_WORKER_TOKEN";

/// Runs `ebbtide worker`.
pub(crate) fn run(args: &WorkerArgs, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
    let temporary = if args.cache.is_none() { Some(tempfile::tempdir()?) } else { None };
    let folder = args.cache.as_deref().or(temporary.as_ref().map(tempfile::TempDir::path));
    let cache = open::cache(folder.unwrap_or(Path::new(".")), args.cache_bytes as u64)?;
    let settings = WorkerSettings {
        reader: CopyReader::new(Arc::new(Lake::new()), cache, Settings::default()),
        allowed: args.allow.clone(),
        token: token(args.token_file.as_deref())?,
        memory_bytes: args.memory,
    };
    runtime.block_on(async {
        let mut signals = Signals::new()?;
        let serving = Serving::bind(args.listen, settings).await?;
        // It answers also if nobody reads this.
        drop(writeln!(std::io::stdout(), "worker listens at {}", serving.address()));
        serving.run(async { signals.next().await }).await?;
        Ok(())
    })
}

/// The workers that a session names, if it does.
pub(crate) fn workers(args: &SqlArgs) -> Result<Option<Workers>, Failure> {
    if args.workers.is_empty() {
        return Ok(None);
    }
    Ok(Some(Workers::new(&args.workers, token(args.token_file.as_deref())?)?))
}

fn token(file: Option<&Path>) -> Result<Option<WorkerToken>, Failure> {
    let secret = match file {
        Some(path) => Some(files::read_text(path)?),
        None => std::env::var_os(TOKEN).map(|secret| secret.to_string_lossy().into_owned()),
    };
    Ok(secret.as_deref().map(WorkerToken::new).transpose()?)
}

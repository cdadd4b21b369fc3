//! `ebbtide archive`: what the archives of collections have, and looking after them.

use crate::args::{ArchiveArgs, ArchiveTask, Cli};
use crate::human::{bytes, counted};
use crate::{Failure, open, say};
use ebbtide::{ArchiveInfo, ArchivePlace, CollectionSnapshot};
use ebbtide_ttl::{Timestamp, retention_text};
use std::sync::Arc;

/// Runs `ebbtide archive`.
pub(crate) fn run(cli: &Cli, args: &ArchiveArgs) -> Result<(), Failure> {
    match &args.task {
        ArchiveTask::Status => status(cli),
        ArchiveTask::Vacuum(of) => {
            if cli.read_only {
                return Err(Failure::usage("vacuum removes files from the archive: drop --read-only"));
            }
            let mut removed = 0;
            for (place, _) in places(cli, &of.collection)? {
                removed += place.vacuum().map_err(|error| Failure::new(error.to_string()))?;
            }
            say!("removed {}", counted(removed, "file"));
            Ok(())
        }
        ArchiveTask::Verify(of) => {
            let (mut faults, mut is_any) = (Vec::new(), false);
            for (place, archive) in places(cli, &of.collection)? {
                let Some(version) = archive.version else { continue };
                is_any = true;
                let found = place.verify(version).map_err(|error| Failure::new(error.to_string()))?;
                faults.extend(found.into_iter().map(|fault| format!("{}: {fault}", archive.url)));
            }
            if !is_any {
                say!("nothing has been archived yet");
            } else if faults.is_empty() {
                say!("every file of the archive is as it was written");
            }
            for fault in &faults {
                say!("{fault}");
            }
            match faults.len() as u64 {
                0 => Ok(()),
                count => Err(Failure::new(format!("{} found", counted(count, "fault")))),
            }
        }
        ArchiveTask::Adopt(of) => {
            if cli.read_only {
                return Err(Failure::usage("adopting an archive writes to the database: drop --read-only"));
            }
            open::for_writing(cli)?.adopt_archive(&of.collection)?;
            say!("{} archives from this database now", of.collection);
            Ok(())
        }
    }
}

/// An archive and its place.
type Place = (Arc<dyn ArchivePlace>, ArchiveInfo);

/// The archives of a collection.
fn places(cli: &Cli, name: &str) -> Result<Vec<Place>, Failure> {
    let collection = open::for_reading(cli)?.snapshot().collection(name)?;
    let archives = collection.archives();
    if archives.is_empty() {
        return Err(Failure::new(format!("collection '{name}' has no archive: ALTER COLLECTION ... INTO names one")));
    }
    archives.into_iter().map(|archive| Ok((collection.archive_place(&archive.url)?, archive))).collect()
}

fn status(cli: &Cli) -> Result<(), Failure> {
    let snapshot = open::for_reading(cli)?.snapshot();
    let mut is_any = false;
    for name in snapshot.collections() {
        let collection = snapshot.collection(&name)?;
        let archives = collection.archives();
        let rules = if archives.is_empty() { Vec::new() } else { collection.rule_infos()? };
        for archive in archives {
            is_any = true;
            let of_index = archive.index.as_ref().map_or(String::new(), |index| format!(", index {index}"));
            say!("{name}{of_index}: into {}", archive.url);
            if let Some(keep) = archive.keep_seconds {
                say!("  kept for: {}", retention_text(keep));
            }
            match archived(&collection, &archive) {
                Ok(text) => say!("  archived: {text}"),
                // What is stored here is known all the same.
                Err(error) => say!("  archived: not known, {error}"),
            }
            let moved = rules.iter().filter(|rule| rule.expire_into.as_ref() == Some(&archive.url));
            let due: (u64, u64) =
                moved.fold((0, 0), |sum, rule| (sum.0 + rule.due_buckets, sum.1 + rule.due_measurements));
            say!("  due: {} in {}", counted(due.1, "measurement"), counted(due.0, "bucket"));
        }
    }
    if !is_any {
        say!("no collection has an archive");
    }
    Ok(())
}

fn archived(collection: &CollectionSnapshot, archive: &ArchiveInfo) -> Result<String, Failure> {
    let files = match archive.version {
        Some(version) => collection.archive_place(&archive.url)?.files(version),
        None => Ok(Vec::new()),
    };
    let files = files.map_err(|error| Failure::new(error.to_string()))?;
    let instant = |time| Timestamp::from_units(time, collection.schema().precision);
    let (Some(first), Some(last)) =
        (files.iter().map(|file| file.times.0).min(), files.iter().map(|file| file.times.1).max())
    else {
        return Ok("nothing yet".to_owned());
    };
    let rows = files.iter().map(|file| file.rows).sum();
    let size = files.iter().map(|file| file.bytes).sum();
    let files = counted(files.len() as u64, "file");
    Ok(format!("{}, {} to {}, {files}, {}", counted(rows, "measurement"), instant(first), instant(last), bytes(size)))
}

//! `ebbtide archive`: what the archives of collections have, and looking after them.

use crate::args::{ArchiveArgs, ArchiveTask, Cli};
use crate::human::{bytes, counted};
use crate::{Failure, open, say};
use ebbtide::{CollectionSnapshot, ScanRequest};
use ebbtide_ttl::{Timestamp, retention_text};

/// Runs `ebbtide archive`.
pub(crate) fn run(cli: &Cli, args: &ArchiveArgs) -> Result<(), Failure> {
    match &args.task {
        ArchiveTask::Status => status(cli),
        ArchiveTask::Vacuum(of) => {
            let (place, _) = open::for_reading(cli)?.snapshot().collection(&of.collection)?.archive()?;
            let removed = place.vacuum().map_err(|error| Failure::new(error.to_string()))?;
            say!("removed {}", counted(removed, "file"));
            Ok(())
        }
        ArchiveTask::Verify(of) => {
            let (place, version) = open::for_reading(cli)?.snapshot().collection(&of.collection)?.archive()?;
            let Some(version) = version else {
                say!("nothing has been archived yet");
                return Ok(());
            };
            let faults = place.verify(version).map_err(|error| Failure::new(error.to_string()))?;
            if faults.is_empty() {
                say!("every file of the archive is as it was written");
                return Ok(());
            }
            Err(Failure::new(faults.join("\n")))
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

fn status(cli: &Cli) -> Result<(), Failure> {
    let snapshot = open::for_reading(cli)?.snapshot();
    let mut is_any = false;
    for name in snapshot.collections() {
        let collection = snapshot.collection(&name)?;
        let Some(url) = collection.options().expire_into.clone() else { continue };
        is_any = true;
        say!("{name}: into {url}");
        if let Some(keep) = collection.options().keep_seconds {
            say!("  kept for: {}", retention_text(keep));
        }
        let due: (u64, u64) = collection
            .rule_infos()?
            .iter()
            .fold((0, 0), |sum, rule| (sum.0 + rule.due_buckets, sum.1 + rule.due_measurements));
        match archived(&collection) {
            Ok(text) => say!("  archived: {text}"),
            // What is stored here is known all the same.
            Err(error) => say!("  archived: not known, {error}"),
        }
        say!("  due: {} in {}", counted(due.1, "measurement"), counted(due.0, "bucket"));
    }
    if !is_any {
        say!("no collection has an archive");
    }
    Ok(())
}

fn archived(collection: &CollectionSnapshot) -> Result<String, Failure> {
    let files: Vec<_> = collection.archived(&ScanRequest::default())?.units.into_iter().map(|unit| unit.file).collect();
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

//! Verification: every file read, every checksum and count compared.

use crate::closed::Mark;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::manifest;
use crate::segment::Segment;
use crate::snapshot::Snapshot;
use crate::wal;
use ebbtide_buckets::Schema;

/// What [`crate::Database::verify`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Segment files read.
    pub segments: u64,
    /// Rows read from them.
    pub rows: u64,
    /// Bytes of those files.
    pub bytes: u64,
    /// What is wrong, a sentence each with path and offset; empty if all is well.
    pub faults: Vec<String>,
}

pub(crate) fn verify(core: &Core) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    let snapshot = Snapshot::take_now(core);
    for name in snapshot.collections() {
        let collection = snapshot.collection(&name)?;
        for segment in collection.state.segments.values() {
            report.segments += 1;
            report.bytes += segment.file.meta.bytes;
            match verify_segment(segment, &collection.state.schema) {
                Ok(rows) => report.rows += rows,
                Err(error) => report.faults.push(format!("collection '{name}': {error}")),
            }
        }
    }
    // The manifest and the log were checked when the database was opened; they are read again as they are now.
    report.faults.extend(verify_manifest(core)?.map(|fault| fault.to_string()));
    report.faults.extend(verify_logs(core).into_iter().map(|fault| fault.to_string()));
    if report.faults.is_empty() {
        report.faults.extend(verify_end(core).map(|fault| fault.to_string()));
    }
    Ok(report)
}

fn verify_manifest(core: &Core) -> Result<Option<Error>> {
    // While nobody can append, a half-written end is a fault; but another process may be writing beside a reader.
    let _writer = core.manifest.lock();
    let Some(number) = manifest::numbers(core.fs.as_ref(), &core.dir)?.pop() else { return Ok(None) };
    Ok(match manifest::read(core.fs.as_ref(), &core.dir, number) {
        Ok(contents) if contents.torn_bytes > 0 && !core.read_only => {
            let path = core.dir.join(manifest::file_name(number));
            Some(Error::corrupt(&path, contents.end, "the last manifest edit is damaged"))
        }
        Ok(_) => None,
        Err(error) => Some(error),
    })
}

fn verify_logs(core: &Core) -> Vec<Error> {
    // As for the manifest; and no log leaves while it is read.
    let _writer = core.log.lock();
    let logs: Vec<u64> = core.state.read().logs.iter().copied().collect();
    let mut faults = Vec::new();
    for first_seq in logs {
        let path = core.dir.join(wal::file_name(first_seq));
        match wal::read_each(core.fs.as_ref(), &path, core.identity, &|_, _| true, &mut |_| Ok(())) {
            Ok((_, Some(damage))) => faults.push(damage),
            Ok((end, None)) if end.torn_bytes > 0 && !core.read_only => {
                faults.push(Error::corrupt(&path, end.whole, "the last log record is damaged"));
            }
            Ok(_) => {}
            Err(error) => faults.push(error),
        }
    }
    faults
}

/// Whether manifest and log still end as the last close left them.
fn verify_end(core: &Core) -> Option<Error> {
    let (fs, dir) = (core.fs.as_ref(), &core.dir);
    let names = || fs.list(dir).map_err(|e| Error::io("list", dir, &e));
    let newest = |names: &[String]| names.iter().filter_map(|name| manifest::parse_name(name)).max();
    let look = |names: &[String], number: u64| {
        let Some(mark) = Mark::read(fs, dir, names)? else { return Ok(()) };
        if mark.counts(dir, number, &manifest::read(fs, dir, number)?)? {
            let path = dir.join(wal::file_name(mark.log.number));
            let (end, _) = wal::read_each(fs, &path, core.identity, &|_, _| false, &mut |_| Ok(()))?;
            mark.check_log(&path, mark.log.number, end)?;
        }
        Ok(())
    };
    let before = match names() {
        Ok(names) => names,
        Err(error) => return Some(error),
    };
    let number = newest(&before)?;
    let fault = look(&before, number).err()?;
    // A writer that came meanwhile begins a manifest before it changes anything else.
    let is_alone = names().map_or(true, |after| newest(&after) == Some(number));
    is_alone.then_some(fault)
}

pub(crate) fn verify_segment(segment: &Segment, schema: &Schema) -> Result<u64> {
    let reader = segment.file.open_anew()?;
    reader.verify()?;
    let columns: Vec<String> = schema.arrow().fields().iter().map(|f| f.name().clone()).collect();
    let (ranges, _) = crate::seal::live_rows(segment, &reader);
    let mut rows = 0;
    for batch in reader.read(&columns, schema, &ranges, 1 << 16)? {
        rows += batch?.num_rows() as u64;
    }
    let expected = segment.live().rows;
    if rows != expected {
        let what = format!("segment rows expected={expected} found={rows}");
        return Err(Error::corrupt(&segment.file.path, 0, what));
    }
    Ok(rows)
}

//! Verification: every file read, every checksum and count compared.

use crate::closed::Mark;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::manifest;
use crate::segment::Segment;
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

pub(crate) fn verify(engine: &Engine) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    let snapshot = engine.snapshot();
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
    report.faults.extend(verify_manifest(engine)?.map(|fault| fault.to_string()));
    report.faults.extend(verify_logs(engine).into_iter().map(|fault| fault.to_string()));
    if report.faults.is_empty() {
        report.faults.extend(verify_end(engine).map(|fault| fault.to_string()));
    }
    Ok(report)
}

fn verify_manifest(engine: &Engine) -> Result<Option<Error>> {
    // While nobody can append, a half-written end is a fault; but another process may be writing beside a reader.
    let _writer = engine.manifest.lock();
    let Some(number) = manifest::numbers(engine.fs.as_ref(), &engine.dir)?.pop() else { return Ok(None) };
    Ok(match manifest::read(engine.fs.as_ref(), &engine.dir, number) {
        Ok(contents) if contents.torn_bytes > 0 && !engine.read_only => {
            let path = engine.dir.join(manifest::file_name(number));
            Some(Error::corrupt(&path, contents.end, "the last manifest edit is damaged"))
        }
        Ok(_) => None,
        Err(error) => Some(error),
    })
}

fn verify_logs(engine: &Engine) -> Vec<Error> {
    // As for the manifest; and no log leaves while it is read.
    let _writer = engine.log.lock();
    let logs: Vec<u64> = engine.state.read().logs.iter().copied().collect();
    let mut faults = Vec::new();
    for first_seq in logs {
        let path = engine.dir.join(wal::file_name(first_seq));
        match wal::read_each(engine.fs.as_ref(), &path, engine.identity, &|_, _| true, &mut |_| Ok(())) {
            Ok((_, Some(damage))) => faults.push(damage),
            Ok((end, None)) if end.torn_bytes > 0 && !engine.read_only => {
                faults.push(Error::corrupt(&path, end.whole, "the last log record is damaged"));
            }
            Ok(_) => {}
            Err(error) => faults.push(error),
        }
    }
    faults
}

/// Whether manifest and log still end as the last close left them.
fn verify_end(engine: &Engine) -> Option<Error> {
    let (fs, dir) = (engine.fs.as_ref(), &engine.dir);
    let names = || fs.list(dir).map_err(|e| Error::io("list", dir, &e));
    let newest = |names: &[String]| names.iter().filter_map(|name| manifest::parse_name(name)).max();
    let look = |names: &[String], number: u64| {
        let Some(mark) = Mark::read(fs, dir, names)? else { return Ok(()) };
        if mark.counts(dir, number, &manifest::read(fs, dir, number)?)? {
            let path = dir.join(wal::file_name(mark.log.number));
            let (end, _) = wal::read_each(fs, &path, engine.identity, &|_, _| false, &mut |_| Ok(()))?;
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
    let (ranges, _) = segment.live_rows(&reader);
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

//! Verification: reads every file and compares every checksum and count.

use crate::clean_shutdown::ShutdownMarker;
use crate::documents::segment::DocumentSegment;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::files::FileName;
use crate::open::{beside_a_writer, logs_of, read_manifest, state_of};
use crate::segment::Segment;
use crate::state::{CollectionState, State};
use crate::wal::{LogFault, LogRecord, LogSet, LogVisitor};
use ebbtide_documents::bson::RawDocument;
use ebbtide_documents::{id_key, id_of};
use roaring::RoaringBitmap;

/// What [`crate::Database::verify`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Segment files read.
    pub segments: u64,
    /// Rows read from them.
    pub rows: u64,
    /// Bytes of those files.
    pub bytes: u64,
    /// Log files read.
    pub logs: u64,
    /// Rows read from them that are in no segment yet.
    pub log_rows: u64,
    /// Bytes of the records in those files.
    pub log_bytes: u64,
    /// What is wrong: one sentence for each fault, with path and offset.
    pub faults: Vec<String>,
}

pub(crate) fn verify(engine: &Engine) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    let snapshot = engine.snapshot();
    for (name, collection) in snapshot.stored() {
        for segment in collection.segments.values() {
            report.segments += 1;
            report.bytes += segment.file.meta.bytes;
            let rows = verify_segment(segment, collection).and_then(|rows| {
                segment.file.open_anew()?.verify_filters()?;
                Ok(rows)
            });
            match rows {
                Ok(rows) => report.rows += rows,
                Err(error) => report.faults.push(format!("collection '{name}': {error}")),
            }
        }
    }
    for documents in snapshot.documents_states() {
        for segment in documents.segments.values() {
            report.segments += 1;
            report.bytes += segment.file.meta.bytes;
            match verify_documents(segment) {
                Ok(rows) => report.rows += rows,
                Err(error) => report.faults.push(format!("collection '{}': {error}", documents.name)),
            }
        }
    }
    // The manifest and the log were checked when the database was opened; now they are read again.
    let files = || {
        let files = verify_files(engine);
        if files.faults.is_empty() { Ok(files) } else { Err(files) }
    };
    let (Ok(files) | Err(files)) = match engine.read_only {
        true => beside_a_writer(engine.fs.as_ref(), &engine.dir, files),
        false => files(),
    };
    report.faults.extend(files.faults.into_iter().map(|fault| fault.to_string()));
    Ok(VerifyReport { logs: files.logs, log_rows: files.rows, log_bytes: files.bytes, ..report })
}

/// The content of the manifest and the logs.
#[derive(Default)]
struct Files {
    logs: u64,
    rows: u64,
    bytes: u64,
    faults: Vec<Error>,
}

/// Reads the manifest and the logs that it names.
fn verify_files(engine: &Engine) -> Files {
    // While nothing can be appended, an incomplete end is a fault; but beside a reader, another process may be writing.
    let _appends = (engine.log.lock(), engine.manifest.lock());
    let mut files = Files::default();
    let (state, marker) = match verify_manifest(engine) {
        Ok(read) => read,
        Err(error) => {
            files.faults.push(error);
            (engine.state.read().clone(), None)
        }
    };
    let logs = logs_of(engine.fs.as_ref(), &engine.dir, engine.identity, &state);
    let logs = LogSet { marker, is_settled: !engine.read_only, ..logs };
    files.logs = logs.first_seqs.len() as u64;
    let mut verifier = LogVerifier { state: &state, files: &mut files };
    if let Err(error) = logs.walk(&mut verifier) {
        files.faults.push(error);
    }
    files
}

/// The state that the newest manifest describes, and the marker of the last clean shutdown.
fn verify_manifest(engine: &Engine) -> Result<(State, Option<ShutdownMarker>)> {
    let (fs, dir) = (engine.fs.as_ref(), engine.dir.as_path());
    let names = fs.list(dir).map_err(|e| Error::io("list", dir, &e))?;
    let (number, contents, marker) = read_manifest(fs, dir, &names)?;
    if contents.torn_bytes > 0 && !engine.read_only {
        let path = FileName::Manifest(number).path(dir);
        return Err(Error::corrupt(&path, contents.end, "the last manifest edit is damaged"));
    }
    let state = state_of(&engine.fs, dir, number, contents.edits, 0).map_err(|(_, damage)| damage)?;
    Ok((state, marker))
}

/// Decodes all records, and collects what is wrong.
struct LogVerifier<'a> {
    state: &'a State,
    files: &'a mut Files,
}

impl LogVisitor for LogVerifier<'_> {
    fn wants(&self, _seq: u64, _collection: u64) -> bool {
        true
    }

    fn record(&mut self, _first_seq: u64, record: LogRecord) -> Result<()> {
        for part in record.parts {
            self.files.bytes += part.bytes;
            if self.state.is_unsealed(record.seq, part.collection) {
                self.files.rows += part.content.map_or(0, |content| content.rows());
            }
        }
        Ok(())
    }

    fn fault(&mut self, fault: LogFault<'_>) -> Result<()> {
        self.files.faults.push(fault.error);
        Ok(())
    }
}

/// Reads a segment of documents as a whole; returns how many rows are left of it.
pub(crate) fn verify_documents(segment: &DocumentSegment) -> Result<u64> {
    let reader = segment.file.open_anew()?;
    reader.verify()?;
    if u64::from(reader.rows()) != segment.file.meta.rows {
        let what = format!("segment rows expected={} found={}", segment.file.meta.rows, reader.rows());
        return Err(Error::corrupt(&segment.file.path, 0, what));
    }
    for row in segment.rows_of(&reader, &RoaringBitmap::new()) {
        let (row, key, stored) = row?;
        let found = RawDocument::from_bytes(&stored.document).ok().and_then(|document| id_key(id_of(document)).ok());
        if found.as_deref() != Some(key.as_ref()) {
            let what = format!("the document of row {row} has another _id than its key says");
            return Err(Error::corrupt(&segment.file.path, 0, what));
        }
    }
    Ok(segment.live_rows())
}

pub(crate) fn verify_segment(segment: &Segment, collection: &CollectionState) -> Result<u64> {
    let reader = segment.file.open_anew()?;
    reader.verify()?;
    let (schema, types) = (&collection.schema, &collection.file_types);
    if let Some(column) = reader.mismatch(types).filter(|_| segment.is_of_types(types)) {
        let what = format!("column '{column}' has another type than the manifest says");
        return Err(Error::corrupt(&segment.file.path, 0, what));
    }
    let columns: Vec<String> = schema.arrow().fields().iter().map(|f| f.name().clone()).collect();
    let (ranges, _) = segment.live_rows(&reader, 0..reader.directory().bucket_count());
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

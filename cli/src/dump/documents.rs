//! Ordinary collections in a dump: a line for each document, `{"_ts":milliseconds,"document":{...}}`, in canonical Extended JSON.

use super::{DumpEntry, SyncedFile};
use crate::{Failure, files};
use ebbtide::documents_model::bson::RawDocumentBuf;
use ebbtide::documents_model::json::{canonical_text, document_from_slice};
use ebbtide::{Database, Document, DocumentsSnapshot};
use ebbtide_ttl::{Precision, Timestamp};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

/// Bytes of lines that are written at once, and of documents that are restored in one step, about.
const BATCH_BYTES: usize = 4 << 20;
/// Maximum documents that are restored in one step.
const BATCH: usize = 10_000;

const BEFORE_TIME: &str = "{\"_ts\":";
const BEFORE_DOCUMENT: &str = ",\"document\":";

pub(super) fn dump(collection: &DocumentsSnapshot, file: &str, sink: &SyncedFile) -> Result<DumpEntry, Failure> {
    // The error names the file.
    let fail = |e: io::Error| Failure::new(format!("cannot write {e}"));
    let mut out = sink.clone();
    let (mut lines, mut count, mut failed) = (Vec::new(), 0, None);
    collection.for_each(&mut |found| {
        let written = found.written.to_units_saturating(Precision::Ms);
        let text = canonical_text(&found.document);
        writeln!(lines, "{BEFORE_TIME}{written}{BEFORE_DOCUMENT}{text}}}").expect("a vector can be written to");
        count += 1;
        if lines.len() >= BATCH_BYTES {
            failed = out.write_all(&std::mem::take(&mut lines)).err();
        }
        Ok(failed.is_none())
    })?;
    failed.map_or_else(|| out.write_all(&lines), Err).map_err(fail)?;
    let (bytes, crc32) = sink.with(|out| (out.bytes, out.hasher.clone().finalize()));
    Ok(DumpEntry {
        name: collection.name().to_owned(),
        create: collection.create_command(),
        create_indexes: collection.create_indexes_command(),
        schema: None,
        columns: Some(collection.columns().iter().cloned().collect()),
        file: file.to_owned(),
        bytes,
        crc32,
        measurements: count,
        rungs: Vec::new(),
    })
}

/// Fills a new ordinary collection and creates its indexes.
pub(super) fn fill(database: &Database, dumped: &DumpEntry, folder: &Path) -> Result<u64, Failure> {
    let path = folder.join(&dumped.file);
    let fail = |e: &dyn std::fmt::Display| Failure::new(format!("cannot restore from {}: {e}", path.display()));
    let collection = database.documents(&dumped.name)?;
    collection.restore_columns(dumped.columns.clone().unwrap_or_default())?;
    let (mut waiting, mut bytes, mut count) = (Vec::new(), 0, 0);
    for (at, line) in BufReader::new(files::open(&path)?).split(b'\n').enumerate() {
        let line = line.map_err(|e| fail(&e))?;
        let document = read(&line).map_err(|what| fail(&format!("line {}: {what}", at + 1)))?;
        waiting.push(document);
        bytes += line.len();
        if bytes >= BATCH_BYTES || waiting.len() >= BATCH {
            count += collection.restore(std::mem::take(&mut waiting))?;
            bytes = 0;
        }
    }
    count += collection.restore(waiting)?;
    if count != dumped.measurements {
        return Err(fail(&format!("it contains {count} documents instead of {}", dumped.measurements)));
    }
    if let Some(indexes) = &dumped.create_indexes {
        database.run_command(indexes)?;
    }
    Ok(count)
}

fn read(line: &[u8]) -> Result<Document, String> {
    let wrong = || "it is not a line of a dump of documents".to_owned();
    let line = std::str::from_utf8(line).map_err(|e| e.to_string())?;
    let rest = line.strip_prefix(BEFORE_TIME).and_then(|rest| rest.strip_suffix('}')).ok_or_else(wrong)?;
    let (written, text) = rest.split_once(BEFORE_DOCUMENT).ok_or_else(wrong)?;
    let written: i64 = written.parse().map_err(|_| wrong())?;
    let document: RawDocumentBuf = document_from_slice(text.as_bytes()).map_err(|e| e.message)?;
    Ok(Document { document, written: Timestamp::from_millis(written) })
}

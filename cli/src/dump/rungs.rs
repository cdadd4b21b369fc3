//! The bins of ladders in dumps: a Parquet file for each rung that has any, with their states.

use super::types::loaded;
use super::{file_name, write_new};
use crate::import::open_parquet;
use crate::{Failure, files, guarded::guarded};
use ebbtide::fs::{Fs, RealFs};
use ebbtide::{Collection, CollectionSnapshot};
use ebbtide_buckets::Schema;
use ebbtide_query::output::{Format, ResultWriter, TableStyle};
use ebbtide_ttl::Timestamp;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Rows that are read at once.
const BATCH_ROWS: usize = 50_000;

/// A rung in a dump.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RungEntry {
    /// The width of its bins in seconds.
    step: i64,
    /// Bins that end here or earlier may have lost something, and are not shown.
    #[serde(rename = "goneBefore", default, skip_serializing_if = "Option::is_none")]
    gone_before: Option<String>,
    /// The columns of the file.
    schema: Schema,
    pub(super) file: String,
    pub(super) bytes: u64,
    pub(super) crc32: u32,
    bins: u64,
}

/// Writes the rungs of a collection; `at` is its position in the dump. What was written is removed if that fails.
pub(super) fn dump(collection: &CollectionSnapshot, at: usize, folder: &Path) -> Result<Vec<RungEntry>, Failure> {
    let mut entries: Vec<RungEntry> = Vec::new();
    for rung in collection.dumped_rungs()? {
        let file = file_name(&format!("{}-rung-{}", collection.name(), rung.step_seconds), at, "parquet");
        let written = write(&folder.join(&file), &rung);
        match written {
            Ok((bytes, crc32)) => entries.push(RungEntry {
                step: rung.step_seconds,
                gone_before: rung.gone_before.map(|instant| instant.to_string()),
                schema: rung.schema,
                bytes,
                crc32,
                bins: rung.bins.num_rows() as u64,
                file,
            }),
            Err(failure) => {
                for entry in &entries {
                    let _ = RealFs.remove(&folder.join(&entry.file));
                }
                return Err(failure);
            }
        }
    }
    Ok(entries)
}

fn write(path: &Path, rung: &ebbtide::DumpedRung) -> Result<(u64, u32), Failure> {
    write_new(path, |sink| {
        let mut writer =
            ResultWriter::new(Format::Parquet, &rung.bins.schema(), Box::new(sink.clone()), TableStyle::default())?;
        writer.write(&rung.bins)?;
        writer.finish()?;
        Ok(sink.with(|out| (out.bytes, out.hasher.clone().finalize())))
    })
}

/// Adds the bins of a dump to the rungs of a collection whose measurements are restored.
pub(super) fn fill(collection: &Collection, rungs: &[RungEntry], folder: &Path) -> Result<(), Failure> {
    for rung in rungs {
        let path = folder.join(&rung.file);
        let fail = |e: &dyn std::fmt::Display| Failure::new(format!("cannot restore from {}: {e}", path.display()));
        let gone_before = rung.gone_before.as_ref().map(|text| Timestamp::parse(text)).transpose();
        let gone_before = gone_before.map_err(|e| fail(&e))?;
        let (_, _, mut batches) = open_parquet(files::open(&path)?, BATCH_ROWS).map_err(|e| fail(&e))?;
        let mut bins = 0;
        while let Some(batch) = guarded(|| batches.next()).map_err(|e| fail(&e))? {
            let batch = loaded(&batch.map_err(|e| fail(&e))?, &rung.schema).map_err(|e| fail(&e))?;
            bins += batch.num_rows() as u64;
            collection.restore_bins(rung.step, gone_before, &batch)?;
        }
        if bins != rung.bins {
            return Err(fail(&format!("it contains {bins} bins instead of {}", rung.bins)));
        }
        if bins == 0 && gone_before.is_some() {
            let none = arrow::array::RecordBatch::new_empty(rung.schema.arrow());
            collection.restore_bins(rung.step, gone_before, &none)?;
        }
    }
    Ok(())
}

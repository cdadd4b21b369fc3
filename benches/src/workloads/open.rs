//! Opening a database with many segments.

use super::Plan;
use crate::Result;
use crate::folder::{UnsyncedFs, bytes_of};
use crate::measure::{progress, timed};
use crate::report::Report;
use arrow::array::{ArrayRef, Float64Array, RecordBatch, TimestampMillisecondArray};
use ebbtide::{CollectionOptions, Database, Durability, Settings};
use std::sync::Arc;
use std::time::Duration;

const COLLECTIONS: usize = 100;
const SEGMENTS: usize = 10_000;

pub(super) fn run(plan: &Plan) -> Result<Report> {
    let settings = Settings::default();
    let mut report = Report::new("open", &settings);
    let segments = SEGMENTS * plan.scale;
    report.say(format!(
        "{segments} segments of one row in {COLLECTIONS} collections, made by small flushes without waiting for syncs"
    ));
    let folder = tempfile::tempdir()?;
    let bar = progress("segments", segments as u64);
    let (seconds, ()) = timed(|| {
        let quick = Settings { durability: Durability::Interval(Duration::from_secs(3600)), ..settings.clone() };
        let db = Database::builder(folder.path()).fs(Arc::new(UnsyncedFs::default())).settings(quick).open()?;
        let mut collections = Vec::new();
        for at in 0..COLLECTIONS {
            collections.push(db.create_collection(&format!("c{at}"), CollectionOptions::new("t"))?);
        }
        for round in 0..segments / COLLECTIONS {
            for collection in &collections {
                collection.insert(&row(i64::try_from(round)?)?)?;
            }
            db.flush()?;
            bar.inc(COLLECTIONS as u64);
        }
        Ok(db.close()?)
    })?;
    bar.finish_and_clear();
    report.add("writing a segment, without syncs", "ms", &[seconds * 1e3 / f64::from(u32::try_from(segments)?)], "");
    let manifest = bytes_of(folder.path(), |name| name.to_ascii_lowercase().starts_with("manifest"))?;
    report.say(format!("{manifest} bytes of manifest"));
    let (mut reading, mut writing) = (Vec::new(), Vec::new());
    for _ in 0..plan.runs.max(3) {
        let (took, db) = timed(|| Ok(Database::builder(folder.path()).read_only().open()?))?;
        reading.push(took);
        drop(db);
        let (took, db) = timed(|| Ok(Database::open(folder.path())?))?;
        writing.push(took);
        db.close()?;
    }
    report.add_millis(format!("open {segments} segments for reading"), &reading, "");
    report.add_millis(
        format!("open {segments} segments for writing"),
        &writing,
        "writes a new manifest, lists the folder",
    );
    Ok(report)
}

fn row(hour: i64) -> Result<RecordBatch> {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("t", Arc::new(TimestampMillisecondArray::from(vec![1_704_067_200_000 + hour * 3_600_000]))),
        ("v", Arc::new(Float64Array::from(vec![21.5]))),
    ];
    Ok(RecordBatch::try_from_iter(columns)?)
}

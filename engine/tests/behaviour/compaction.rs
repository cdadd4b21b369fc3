//! What compaction rewrites, and what it leaves as it is.

use super::*;

/// The files of a collection, its buckets in them, and its rows.
fn stored(db: &Database) -> (Vec<PathBuf>, u64, Vec<i64>) {
    let snapshot = db.collection("c").unwrap().snapshot().unwrap();
    let buckets = snapshot.segments().iter().map(|segment| segment.buckets).sum();
    let mut files = snapshot.segment_files().unwrap().files;
    files.sort_unstable();
    (files, buckets, numbers_in(&db.snapshot(), "c").unwrap())
}

#[test]
fn compaction_merges_large_segments_whose_rows_are_interleaved_once() {
    // In which of four segments the row of a minute is, and the buckets of three sensors after compaction.
    let by_minute: [(&str, fn(i64, i64) -> i64, u64); 3] = [
        ("shuffled", |minute, _| minute % 4, 3),
        ("in order", |minute, _| minute / 10, 12),
        ("by sensor", |_, sensor| sensor, 3),
    ];
    for (name, segment_of, buckets) in by_minute {
        let mut sim = Sim::new();
        sim.settings.segment_rows_max = 40;
        let db = sim.open();
        let c = db.create_collection("c", weather()).unwrap();
        for segment in 0..4 {
            for (minute, sensor) in (0..40).flat_map(|minute| (0..3).map(move |sensor| (minute, sensor))) {
                if segment_of(minute, sensor) == segment {
                    let sensor_name = ["a", "b", "c"][usize::try_from(sensor).unwrap()];
                    c.insert_documents(&[reading(minute * 60, sensor_name, minute * 3 + sensor)]).unwrap();
                }
            }
            db.flush().unwrap();
        }
        let before = stored(&db);
        db.compact(None).unwrap();
        let after = stored(&db);
        assert_eq!((after.1, &after.2), (buckets, &before.2), "{name}");
        assert_eq!(before.0 == after.0, name != "shuffled", "{name}: {before:?} {after:?}");
        db.compact(None).unwrap();
        assert_eq!(stored(&db), after, "{name}: again");
        assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
    }
}

use super::*;
use crate::batch_id::BatchId;
use crate::db::Database;
use crate::fs::sim::SimFs;
use crate::segment::bounds::ChangedBucket;
use ebbtide_ttl::{Bucketing, RuleSet, Timestamp, Value, VirtualClock};
use std::sync::Arc;

const DIR: &str = "/db";

fn open(fs: &SimFs) -> Result<Database> {
    let clock = VirtualClock::new(Timestamp::parse("2024-01-01T00:00:00Z").unwrap());
    Database::builder(DIR).fs(Arc::new(fs.clone())).clock(Arc::new(clock)).open()
}

/// A database with a collection and a segment, and the edits that make it.
fn sample() -> (SimFs, ManifestContents, u64) {
    let fs = SimFs::new(DIR);
    let db = open(&fs).unwrap();
    let mut options = CollectionOptions::new("t").span_seconds(60);
    options.expire_after_seconds = Some(86_400);
    let row = |second: i64| Value::Object(vec![("t".into(), Value::Date(Timestamp::from_millis(second * 1000)))]);
    db.create_collection("c", options).unwrap().insert_documents(&[row(1), row(100)]).unwrap();
    db.close().unwrap();
    let number = *numbers(&fs, Path::new(DIR)).unwrap().last().unwrap();
    let contents = read(&fs, Path::new(DIR), number).unwrap();
    (fs, contents, number)
}

/// Appends an edit with checksums that hold to a copy of the database, and opens that.
fn with_edit(sample: &(SimFs, ManifestContents, u64), op: &Op) -> Result<Database> {
    let (fs, contents, number) = (sample.0.fork(), &sample.1, sample.2);
    let checkpoint: Vec<Op> = contents.edits.iter().flatten().cloned().collect();
    let mut writer = ManifestWriter::create(&fs, Path::new(DIR), contents.identity, number + 1, &checkpoint)?;
    writer.append(std::slice::from_ref(op))?;
    drop(writer);
    open(&fs)
}

fn find<T>(contents: &ManifestContents, of: impl Fn(&Op) -> Option<T>) -> T {
    contents.edits.iter().flatten().rev().find_map(of).unwrap()
}

#[test]
fn forged_edits_are_damage_and_never_overflow_or_divide_by_zero() {
    let sample = sample();
    let record = find(&sample.1, |op| match op {
        Op::PutCollection(record) => Some(record.clone()),
        _ => None,
    });
    let segment = find(&sample.1, |op| match op {
        Op::AddSegment { segment, .. } => Some(segment.clone()),
        _ => None,
    });
    let c = record.id;
    let collection = |change: &dyn Fn(&mut CollectionRecord)| {
        let mut forged = record.clone();
        change(&mut forged);
        Op::PutCollection(forged)
    };
    let added = |change: &dyn Fn(&mut SegmentRecord)| {
        let mut forged = segment.clone();
        forged.id += 1;
        change(&mut forged);
        Op::AddSegment { collection: c, segment: forged }
    };
    let changed = |change: &dyn Fn(&mut SegmentState)| {
        let mut state = segment.state.clone();
        change(&mut state);
        Op::SetSegment { collection: c, segment: segment.id, state }
    };
    let bucket = ChangedBucket { ordinal: 0, rows: 1, first: 1, last: 1, out_of_range: 0 };
    let too_many = LiveSummary { rows: u64::MAX, ..segment.state.live };
    let rules = |e: i64| {
        // What `RuleSet` would refuse is forged in its bytes.
        let of = |e: i64| postcard::to_stdvec(&RuleSet::new(Some(e))).unwrap();
        let (good, mut e_bytes) = (of(0), postcard::to_stdvec(&e).unwrap());
        let at = (0..good.len()).find(|at| of(1)[*at] != good[*at]).unwrap();
        let mut forged = good[..at].to_vec();
        forged.append(&mut e_bytes);
        forged.extend_from_slice(&good[at + 1..]);
        postcard::from_bytes::<RuleSet>(&forged).unwrap()
    };
    let last = LastBatch { id: BatchId { source: u64::MAX, number: u64::MAX }, is_newest: true };
    let forged = [
        Op::NextIds { collection: u64::MAX, segment: 1, seq: 1 },
        Op::NextIds { collection: 2, segment: u64::MAX, seq: 1 },
        Op::NextIds { collection: 2, segment: 1, seq: u64::MAX },
        collection(&|r| r.id = u64::MAX),
        collection(&|r| r.sealed_seq = u64::MAX),
        collection(&|r| r.rules_epoch = NUMBER_END),
        collection(&|r| r.options.bucketing = Bucketing::Custom { span_seconds: 0 }),
        collection(&|r| r.options.bucketing = Bucketing::Custom { span_seconds: i64::MIN }),
        collection(&|r| r.options.bucketing = Bucketing::Custom { span_seconds: i64::MAX }),
        collection(&|r| r.rules = rules(-1)),
        collection(&|r| r.rules = rules(i64::MAX)),
        collection(&|r| r.name = String::new()),
        collection(&|r| r.schema.time = "other".to_owned()),
        Op::DropCollection { id: u64::MAX },
        Op::SetSchema { collection: u64::MAX, schema: record.schema.clone() },
        added(&|s| s.id = u64::MAX),
        added(&|s| s.meta.bytes = u64::MAX),
        added(&|s| s.meta.rows = u64::MAX),
        added(&|s| s.meta.out_of_range = u64::MAX),
        added(&|s| s.state.live.rows = u64::MAX),
        added(&|s| s.state.live.buckets = u32::MAX),
        added(&|s| s.state.live.out_of_range = u64::MAX),
        changed(&|s| s.live = too_many),
        changed(&|s| s.changed = vec![ChangedBucket { rows: u64::MAX, ..bucket }]),
        changed(&|s| s.changed = vec![ChangedBucket { out_of_range: 2, ..bucket }]),
        changed(&|s| s.changed = vec![ChangedBucket { first: 2, ..bucket }]),
        Op::SetSegment { collection: c, segment: u64::MAX, state: segment.state.clone() },
        Op::DropBuckets { collection: c, segment: segment.id, dropped: RoaringBitmap::new(), live: too_many },
        Op::RemoveSegment { collection: c, segment: u64::MAX },
        Op::Sealed { collection: c, seq: u64::MAX },
        Op::SetLastBatch { collection: u64::MAX, last },
        Op::AddLog { first_seq: u64::MAX },
        Op::RemoveLog { first_seq: NUMBER_END },
    ];
    for op in &forged {
        let error = with_edit(&sample, op).map(drop).expect_err(&format!("{op:?} was taken"));
        assert_eq!(error.code(), Code::DataCorruptionDetected, "{op:?}: {error}");
        assert!(error.to_string().contains("MANIFEST-"), "{op:?}: {error}");
    }
    // The same edits with numbers that can be are taken.
    let taken = [
        Op::NextIds { collection: NUMBER_END - 1, segment: 1 << 40, seq: 1 },
        collection(&|r| r.rules_epoch += 1),
        changed(&|s| s.live.rows = 1),
        Op::Sealed { collection: c, seq: record.sealed_seq },
        Op::SetLastBatch { collection: c, last },
    ];
    for op in &taken {
        with_edit(&sample, op).map(|_| ()).unwrap_or_else(|error| panic!("{op:?}: {error}"));
    }
}

#[test]
fn a_manifest_for_which_there_is_no_room_leaves_nothing_behind() {
    let (fs, contents, number) = sample();
    let (used, files) = (fs.used(), fs.files());
    fs.set_capacity(Some(used + 16));
    let checkpoint: Vec<Op> = contents.edits.iter().flatten().cloned().collect();
    let refused = ManifestWriter::create(&fs, Path::new(DIR), contents.identity, number + 1, &checkpoint);
    assert_eq!(refused.unwrap_err().code(), Code::OutOfDiskSpace);
    assert_eq!((fs.used(), fs.files()), (used, files));
}

use super::*;
use crate::batch_id::{BatchId, LastBatch};
use crate::db::Database;
use crate::files::NUMBER_END;
use crate::fs::replace;
use crate::fs::sim::SimFs;
use crate::options::CollectionOptions;
use crate::segment::bounds::ChangedBucket;
use crate::segment::bounds::{LiveSummary, SegmentRecord, SegmentState};
use ebbtide_buckets::FileTypes;
use ebbtide_ttl::{Bucketing, Filter, IdPolicy, RuleSet, RuleSpec, Timestamp, Value, VirtualClock};
use roaring::RoaringBitmap;
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

/// Writes a manifest with checksums that hold, whatever its edits say.
fn forge(fs: &SimFs, identity: [u8; 16], number: u64, edits: &[Vec<Op>]) {
    let mut bytes = FORMAT.header(FileHeader { identity, number });
    let file = file_crc(&bytes);
    for edit in edits {
        put_edit(&mut bytes, Place { file, offset: 0 }, edit).unwrap();
    }
    replace(fs, &FileName::Manifest(number).path(Path::new(DIR)), &bytes).unwrap();
}

/// Adds an edit with checksums that hold to a copy of the database, and opens that.
fn with_edit(sample: &(SimFs, ManifestContents, u64), op: &Op) -> Result<Database> {
    let (fs, contents, number) = (sample.0.fork(), &sample.1, sample.2);
    let edits: Vec<Vec<Op>> = contents.edits.iter().cloned().chain([vec![op.clone()]]).collect();
    forge(&fs, contents.identity, number + 1, &edits);
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
    let segment = find(&sample.1, |op| op.added_segment().cloned());
    let types = find(&sample.1, |op| match op {
        Op::SetFileTypes { types, .. } => Some(types.clone()),
        _ => None,
    });
    let types_of = |bytes: &[u8]| postcard::from_bytes::<FileTypes>(bytes).unwrap();
    let sealed = find(&sample.1, |op| match op {
        Op::Sealed { seq, .. } => Some(*seq),
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
        Op::AddSegmentInFolder { collection: c, segment: forged, generation: 0 }
    };
    let changed = |change: &dyn Fn(&mut SegmentState)| {
        let mut state = segment.state.clone();
        change(&mut state);
        Op::SetSegment { collection: c, segment: segment.id, state }
    };
    let bucket = ChangedBucket { ordinal: 0, rows: 1, first: 1, last: 1, out_of_range: 0 };
    let too_many = LiveSummary { rows: u64::MAX, ..segment.state.live };
    let one_left = LiveSummary { rows: 1, buckets: 1, ..segment.state.live };
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
    let fields =
        |collection| Op::ReplaceFields { collection, schema: record.schema.clone(), types: types.without_column("v") };
    let rename = |id, name: &str| Op::RenameCollection { id, name: name.to_owned() };
    let folder = |collection, folder: &str| Op::SetFolder { collection, folder: folder.to_owned() };
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
        Op::SetFileTypes { collection: u64::MAX, types: types.clone() },
        Op::SetIds { collection: u64::MAX, ids: IdPolicy::Keep },
        // Types that have widened in the future; INT64 of 20 digits; decimals of 16 digits, and of 200 + 100.
        Op::SetFileTypes { collection: c, types: types_of(&[0, 1, 0]) },
        Op::SetFileTypes { collection: c, types: types_of(&[0, 0, 1, 1, b'v', 2, 20]) },
        Op::SetFileTypes { collection: c, types: types_of(&[0, 0, 1, 1, b'v', 3, 10, 6]) },
        Op::SetFileTypes { collection: c, types: types_of(&[0, 0, 1, 1, b'v', 3, 200, 100]) },
        Op::AddLog { first_seq: u64::MAX },
        Op::RemoveLog { first_seq: NUMBER_END },
        // Numbers that can be, and do not fit to what is there.
        collection(&|r| r.id += 1),
        collection(&|r| r.name = "another".to_owned()),
        Op::DropCollection { id: c + 1 },
        added(&|s| s.id -= 1),
        added(&|s| s.state.live.buckets = 1),
        added(&|s| s.state.live.last_max += 1),
        added(&|s| s.state.live.first_min = s.state.live.last_max + 1),
        added(&|s| s.state.dropped = [0].into()),
        added(&|s| s.state.deleted = [0].into()),
        changed(&|s| s.live.rows = 1),
        changed(&|s| s.dropped = [2].into()),
        changed(&|s| s.deleted = [2].into()),
        changed(&|s| s.changed = vec![ChangedBucket { ordinal: 2, ..bucket }]),
        changed(&|s| s.changed = vec![bucket, bucket]),
        changed(&|s| (s.live.buckets, s.live.rows) = (0, 0)),
        Op::DropBuckets { collection: c, segment: segment.id, dropped: [0].into(), live: segment.state.live },
        Op::RemoveSegment { collection: c, segment: segment.id + 1 },
        Op::Sealed { collection: c, seq: sealed - 1 },
        Op::RemoveLog { first_seq: NUMBER_END - 1 },
        Op::SetFileTypes { collection: c + 1, types: types.clone() },
        Op::SetIds { collection: c + 1, ids: IdPolicy::Keep },
        Op::SetFileTypes { collection: c, types: FileTypes::default() },
        fields(u64::MAX),
        fields(c + 1),
        // It has segments, which would be read under other fields.
        fields(c),
        rename(u64::MAX, "other"),
        rename(c + 1, "other"),
        rename(c, "c"),
        rename(c, ""),
        folder(u64::MAX, "c.18446744073709551615"),
        folder(c + 1, &format!("c.{}", c + 1)),
        folder(c, &format!("c.{}", c + 1)),
        folder(c, "c"),
        folder(c, &format!("../c.{c}")),
        // It has segments, which would be lost.
        folder(c, &format!("other.{c}")),
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
        changed(&|s| (s.dropped, s.live) = ([0].into(), one_left)),
        Op::DropBuckets { collection: c, segment: segment.id, dropped: [1].into(), live: one_left },
        Op::Sealed { collection: c, seq: sealed },
        Op::SetLastBatch { collection: c, last },
        Op::SetFileTypes { collection: c, types },
        Op::SetIds { collection: c, ids: IdPolicy::Keep },
        rename(c, "other"),
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
    let refused = ManifestWriter::create(&fs, Path::new(DIR), contents.identity, number + 1, &contents.edits[0]);
    assert_eq!(refused.unwrap_err().code(), Code::OutOfDiskSpace);
    assert_eq!((fs.used(), fs.files()), (used, files));
}

#[test]
fn a_wrong_edit_is_refused_before_it_is_durable_and_writing_goes_on() {
    let (fs, contents, _) = sample();
    let db = open(&fs).unwrap();
    let record = find(&contents, |op| match op {
        Op::PutCollection(record) => Some(record.clone()),
        _ => None,
    });
    let segment = find(&contents, |op| op.added_segment().cloned());
    let c = record.id;
    let brings_back = LiveSummary { rows: segment.state.live.rows + 1, ..segment.state.live };
    let gone = Op::RemoveSegment { collection: c, segment: segment.id };
    let mut unreadable = record.rules.clone();
    unreadable.create(vec![RuleSpec::new("r", 60, Filter::of_type("s", &[]))]).unwrap();
    let epoch = record.rules_epoch + 1;
    let wrong = [
        vec![Op::PutCollection(CollectionRecord { rules: unreadable, rules_epoch: epoch, ..record.clone() })],
        vec![Op::Sealed { collection: c, seq: NUMBER_END }],
        vec![Op::PutCollection(CollectionRecord { name: String::new(), ..record })],
        vec![Op::RemoveSegment { collection: c, segment: segment.id + 7 }],
        vec![Op::AddSegment { collection: c + 1, segment: segment.clone() }],
        vec![Op::DropBuckets { collection: c, segment: segment.id, dropped: [0].into(), live: brings_back }],
        vec![gone.clone(), gone.clone()],
    ];
    let manifest = FileName::Manifest(*numbers(&fs, Path::new(DIR)).unwrap().last().unwrap()).path(Path::new(DIR));
    let before = fs.read(&manifest).unwrap();
    for edit in wrong {
        let error = db.engine.commit(edit.clone()).expect_err(&format!("{edit:?} was written"));
        assert_eq!(error.code(), Code::InternalError, "{edit:?}: {error}");
        assert_eq!(fs.read(&manifest).unwrap(), before, "{edit:?}");
    }
    // The writer itself refuses what is wrong whatever the state is, and checkpoints.
    let number = numbers(&fs, Path::new(DIR)).unwrap().last().unwrap() + 1;
    for checkpoint in [vec![], vec![Op::AddLog { first_seq: 1 }], [contents.edits[0].clone(), vec![gone]].concat()] {
        let refused = ManifestWriter::create(&fs, Path::new(DIR), contents.identity, number, &checkpoint);
        assert_eq!(refused.unwrap_err().code(), Code::InternalError, "{checkpoint:?}");
    }
    assert!(!fs.exists(&FileName::Manifest(number).path(Path::new(DIR))).unwrap());
    let row = |second: i64| Value::Object(vec![("t".into(), Value::Date(Timestamp::from_millis(second * 1000)))]);
    db.collection("c").unwrap().insert_documents(&[row(200)]).unwrap();
    db.close().unwrap();
    let report = open(&fs).unwrap().verify().unwrap();
    assert_eq!((report.rows + report.log_rows, report.faults), (3, Vec::new()));
}

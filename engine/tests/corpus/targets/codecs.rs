//! Documents to columns to buckets to a segment and back: what is read is what was given, to the bit.

use super::{NOON, exact, int, scalar, text, texts, value};
use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use ebbtide::json;
use ebbtide::ttl::{Precision, Timestamp, Value};
use ebbtide_buckets::{
    Chunk, FileTypes, MetaKey, Schema, SealRun, Sealer, SegmentReader, batch_from_documents, value_at,
};
use std::sync::Arc;

/// What a field of the documents holds.
#[derive(Clone, Copy)]
enum Kind {
    Whole,
    Number,
    Text,
    Flag,
    Instant,
    Bytes,
    Texts,
    Numbers,
    Inner,
    Anything,
}

const KINDS: [Kind; 10] = [
    Kind::Whole,
    Kind::Number,
    Kind::Text,
    Kind::Flag,
    Kind::Instant,
    Kind::Bytes,
    Kind::Texts,
    Kind::Numbers,
    Kind::Inner,
    Kind::Anything,
];

fn of_kind(kind: Kind, u: &mut Unstructured<'_>) -> Result<Value> {
    if u.ratio(1, 9)? {
        return Ok(Value::Null);
    }
    Ok(match kind {
        Kind::Whole => Value::Int(int(u)?),
        Kind::Number => Value::Double(super::double(u)?),
        Kind::Text => Value::String(text(u)?),
        Kind::Flag => Value::Bool(u.arbitrary()?),
        Kind::Instant => Value::Date(Timestamp::from_millis(int(u)? / 1_000_000)),
        Kind::Bytes => Value::Binary(u.arbitrary()?),
        Kind::Texts => {
            Value::Array((0..u.int_in_range(0..=3)?).map(|_| of_kind(Kind::Text, u)).collect::<Result<_>>()?)
        }
        Kind::Numbers => {
            Value::Array((0..u.int_in_range(0..=3)?).map(|_| of_kind(Kind::Number, u)).collect::<Result<_>>()?)
        }
        Kind::Inner => {
            let mut members = Vec::new();
            for (name, kind) in [("a", Kind::Whole), ("b", Kind::Texts), ("c", Kind::Number)] {
                if u.arbitrary()? {
                    members.push((name.into(), of_kind(kind, u)?));
                }
            }
            Value::Object(members)
        }
        Kind::Anything => value(u, 3)?,
    })
}

fn documents(u: &mut Unstructured<'_>) -> Result<Vec<Value>> {
    let kinds: Vec<Kind> = (0..u.int_in_range(1..=5)?).map(|_| u.choose(&KINDS).copied()).collect::<Result<_>>()?;
    let mut documents = Vec::new();
    for _ in 0..u.int_in_range(1..=20)? {
        let t = if u.ratio(1, 30)? { int(u)? } else { NOON + i64::from(u.arbitrary::<i32>()? / 8) };
        let mut members = vec![("t".into(), Value::Date(Timestamp::from_millis(t)))];
        for (at, kind) in kinds.iter().enumerate() {
            let name = if at == 0 { "m".to_owned() } else { format!("f{at}") };
            members.push((name.into(), of_kind(*kind, u)?));
        }
        documents.push(Value::Object(members));
    }
    Ok(documents)
}

/// The value as a column of some type may hold it: nulls in objects are as good as missing ones, whole doubles as ints.
fn held(value: &Value) -> String {
    match value {
        Value::Double(d) if *d == 0.0 => "0".to_owned(),
        Value::Double(d) if ebbtide::ttl::exact_int(*d).is_some() => format!("{}", *d as i64),
        Value::Int(i) => format!("{i}"),
        Value::Array(items) => format!("[{}]", items.iter().map(held).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => {
            let mut members: Vec<String> =
                members.iter().filter(|(_, v)| !v.is_null()).map(|(n, v)| format!("{n:?}: {}", held(v))).collect();
            members.sort();
            format!("{{{}}}", members.join(", "))
        }
        other => exact(other),
    }
}

fn keys_keep_order(metas: &[Value]) {
    for a in metas {
        let key = MetaKey::of(a);
        assert_eq!(MetaKey::from_bytes(key.as_bytes()).as_ref(), Ok(&key));
        assert_eq!(exact(&key.value()), exact(&a.normalized()));
        for b in metas {
            assert_eq!(key.cmp(&MetaKey::of(b)), a.normalized().cmp(&b.normalized()), "{a:?} {b:?}");
        }
    }
}

fn json_round_trips(value: &Value) {
    if let Ok(read) = json::value_of(&json::json_of(value)) {
        assert_eq!(exact(&read), exact(value));
    }
}

fn check(u: &mut Unstructured<'_>) -> Result<()> {
    let precision = *u.choose(&[Precision::Ms, Precision::Us, Precision::Ns])?;
    let span = *u.choose(&[1, 60, 3_600, 31_536_000])?;
    let metas: Vec<Value> = (0..3).map(|_| value(u, 3)).collect::<Result<_>>()?;
    keys_keep_order(&metas);
    metas.iter().for_each(json_round_trips);
    let pieces: Vec<Vec<Value>> = (0..u.int_in_range(1..=2)?).map(|_| documents(u)).collect::<Result<_>>()?;
    if u.ratio(1, 8)? {
        json_round_trips(&scalar(u)?);
    }
    let mut schema = Schema::new("t", Some("m".to_owned()), precision);
    let mut batches = Vec::new();
    for documents in &pieces {
        let Ok(accepted) = batch_from_documents(documents, &schema) else { continue };
        for (row, document) in documents.iter().enumerate() {
            let Value::Object(members) = document else { continue };
            for (name, given) in members.iter().filter(|(name, v)| name != "t" && !v.is_null()) {
                let column = accepted.batch.column_by_name(name).expect("a field with a value has a column");
                assert_eq!(held(&value_at(column, row)), held(given), "field {name} of {document:?}");
            }
        }
        schema = accepted.schema;
        batches.push(accepted.batch);
    }
    // A field that was whole numbers and is doubles now: the engine refuses what does not fit, before it comes here.
    let adapted =
        batches.iter().map(|batch| ebbtide_buckets::adapt(batch, &schema)).collect::<std::result::Result<Vec<_>, _>>();
    let Ok(batches) = adapted else { return Ok(()) };
    seal(&batches, &schema, span);
    Ok(())
}

fn seal(batches: &[arrow::array::RecordBatch], schema: &Schema, span: i64) {
    let mut buckets = std::collections::BTreeMap::new();
    for (piece, batch) in (0_u32..).zip(batches) {
        let chunk = Chunk::build(batch.clone(), schema, span);
        for bucket in chunk.buckets {
            assert!(bucket.first >= bucket.id.window.start && bucket.last <= bucket.id.window.end);
            let rows: &mut Vec<(u32, u32)> = buckets.entry(bucket.id).or_default();
            rows.extend(bucket.rows.into_iter().map(|row| (piece, row)));
        }
    }
    if buckets.is_empty() {
        return;
    }
    let times: Vec<&[i64]> = batches.iter().map(|b| ebbtide_buckets::times(b).expect("times")).collect();
    let runs: Vec<SealRun> = buckets
        .into_iter()
        .map(|(id, mut rows)| {
            rows.sort_by_key(|(piece, row)| times[*piece as usize][*row as usize]);
            SealRun { id, rows }
        })
        .collect();
    let all: Vec<Vec<String>> = batches.iter().map(texts).collect();
    let given: Vec<&String> =
        runs.iter().flat_map(|run| &run.rows).map(|(piece, row)| &all[*piece as usize][*row as usize]).collect();
    let encoded = Sealer::new(schema, &FileTypes::default(), batches, &|| true)
        .expect("canonical")
        .encode(&runs, &|| true)
        .expect("encodes");
    let reader = SegmentReader::open(Arc::new(Bytes::from(encoded.bytes)), "fuzzed").expect("opens");
    reader.verify().expect("verifies");
    assert_eq!(reader.schema(), schema);
    let directory = reader.directory();
    assert_eq!(directory.bucket_count(), runs.len());
    for (at, run) in runs.iter().enumerate() {
        assert_eq!((directory.meta_of(at), directory.window(at)), (run.id.meta.clone(), run.id.window));
        assert_eq!(directory.rows(at).end - directory.rows(at).start, run.rows.len() as u64);
    }
    let columns: Vec<String> = schema.arrow().fields().iter().map(|f| f.name().clone()).collect();
    let all_rows = 0..directory.row_count();
    let read = reader.read(&columns, schema, std::slice::from_ref(&all_rows), 7).expect("reads");
    let found: Vec<String> = read.flat_map(|batch| texts(&batch.expect("decodes"))).collect();
    assert_eq!(found.iter().collect::<Vec<_>>(), given);
}

pub(super) fn run(data: &[u8]) {
    let _too_short = check(&mut Unstructured::new(data));
}

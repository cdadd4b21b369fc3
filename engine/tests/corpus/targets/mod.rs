//! What is fuzzed: each target takes any bytes and panics if a promise does not hold.
//!
//! The targets are plain functions, so that the fuzzers of `fuzz/` and the test of the corpus run the same code.

mod batches;
mod codecs;
mod commands;
mod expiry;
mod filters;
mod log;
mod manifest;
mod operations;
mod segment;

use arbitrary::{Result, Unstructured};
use arrow::array::RecordBatch;
use ebbtide::fs::sim::SimFs;
use ebbtide::ttl::{Timestamp, Value, VirtualClock};
use ebbtide::{Collection, Database, Error, RepairMode, ScanRequest};
use ebbtide_buckets::value_at;
use std::sync::Arc;

/// Takes any bytes, and panics at a finding.
type Target = fn(&[u8]);

/// Every target by name. The name is that of its corpus too.
pub(crate) const ALL: [(&str, Target); 9] = [
    ("batches", batches::run),
    ("codecs", codecs::run),
    ("commands", commands::run),
    ("expiry", expiry::run),
    ("filters", filters::run),
    ("log", log::run),
    ("manifest", manifest::run),
    ("operations", operations::run),
    ("segment", segment::run),
];

const ROOT: &str = "/data/db";
/// 2023-11-15T12:00:00Z.
const NOON: i64 = 1_700_049_600_000;
const HOUR: i64 = 3_600_000;

fn clock() -> Arc<VirtualClock> {
    Arc::new(VirtualClock::new(Timestamp::from_millis(NOON)))
}

fn open(fs: &SimFs) -> Result<Database, Error> {
    Database::builder(ROOT).fs(Arc::new(fs.clone())).clock(clock()).open()
}

fn object(members: Vec<(&str, Value)>) -> Value {
    Value::Object(members.into_iter().map(|(name, value)| (name.into(), value)).collect())
}

fn measurements(ids: std::ops::Range<i64>, t: i64) -> Vec<Value> {
    let one = |id: i64| {
        object(vec![
            ("t", Value::Date(Timestamp::from_millis(t + id * 60_000))),
            ("m", Value::from(["a", "b", "d"][usize::try_from(id).unwrap_or(0) % 3])),
            ("id", Value::Int(id)),
            ("x", Value::Double(id as f64 * 0.25)),
        ])
    };
    ids.map(one).collect()
}

/// Everything that a damaged or forged database may be asked. It may refuse anything; it may not panic.
fn look(disk: &SimFs) {
    let _plan = Database::builder(ROOT).fs(Arc::new(disk.fork())).clock(clock()).repair(RepairMode::DryRun);
    let mended = disk.fork();
    if Database::builder(ROOT).fs(Arc::new(mended.clone())).clock(clock()).repair(RepairMode::Apply).is_ok() {
        let _opened = open(&mended);
    }
    let Ok(db) = open(disk) else { return };
    let _faults = db.verify();
    let held = rows_of(&db);
    let _dropped = db.sweep();
    for name in db.collections() {
        let Ok(collection) = db.collection(&name) else { continue };
        let _deleted = collection.delete(&ebbtide::ttl::Filter::eq("id", Value::Int(3)));
        let _stored = collection.insert_documents(&measurements(70..73, NOON));
        let _rules = collection.snapshot().map(|s| (s.rule_infos(), s.info(), s.explain_expiry(s.now(), None)));
    }
    let _flushed = db.flush();
    let _compacted = db.compact(None);
    let _after = rows_of(&db);
    let _closed = db.close();
    let again = open(disk).and_then(|db| rows_of(&db));
    drop((held, again));
}

/// All rows of all collections as texts, sorted.
fn rows_of(db: &Database) -> Result<Vec<String>, Error> {
    let mut rows = Vec::new();
    for name in db.collections() {
        rows.extend(rows_in(&db.collection(&name)?)?);
    }
    Ok(rows)
}

/// All rows of a collection as texts, sorted.
fn rows_in(collection: &Collection) -> Result<Vec<String>, Error> {
    let mut rows = Vec::new();
    let request = ScanRequest { include_hidden: true, ..ScanRequest::default() };
    for unit in collection.snapshot()?.scan(&request)? {
        for batch in unit.read()? {
            rows.extend(texts(&batch?));
        }
    }
    rows.sort();
    Ok(rows)
}

/// The rows of a batch as texts, nulls left out.
fn texts(batch: &RecordBatch) -> Vec<String> {
    let schema = batch.schema();
    let row = |row: usize| {
        let values = schema.fields().iter().zip(batch.columns()).map(|(f, c)| (f.name(), value_at(c, row)));
        let shown = values.filter(|(_, v)| !v.is_null()).map(|(name, v)| format!("{name:?}={}", exact(&v)));
        shown.collect::<Vec<_>>().join(" ")
    };
    (0..batch.num_rows()).map(row).collect()
}

/// A value as text that tells -0.0 from 0.0.
fn exact(value: &Value) -> String {
    match value {
        Value::Double(d) if d.is_nan() => "NaN".to_owned(),
        Value::Double(d) => format!("{d:?}"),
        Value::Array(items) => format!("[{}]", items.iter().map(exact).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => {
            let members: Vec<String> = members.iter().map(|(name, v)| format!("{name:?}: {}", exact(v))).collect();
            format!("{{{}}}", members.join(", "))
        }
        other => format!("{other:?}"),
    }
}

/// Changes some bytes.
fn patch(bytes: &mut Vec<u8>, u: &mut Unstructured<'_>) -> Result<()> {
    for _ in 0..u.int_in_range(1..=6)? {
        let at = u.int_in_range(0..=bytes.len().saturating_sub(1))?;
        match u.int_in_range(0..=4)? {
            0 if !bytes.is_empty() => bytes[at] = u.arbitrary()?,
            1 if !bytes.is_empty() => bytes[at] ^= 1 << u.int_in_range(0..=7)?,
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..(at + u.int_in_range(0..=16)?).min(bytes.len()))),
            _ => {
                let with: Vec<u8> = (0..u.int_in_range(0..=16)?).map(|_| u.arbitrary()).collect::<Result<_>>()?;
                bytes.splice(at..at, with);
            }
        }
    }
    Ok(())
}

/// A scalar with a taste for the ends of ranges.
fn scalar(u: &mut Unstructured<'_>) -> Result<Value> {
    Ok(match u.int_in_range(0..=7)? {
        0 => Value::Null,
        1 => Value::Bool(u.arbitrary()?),
        2 => Value::Int(int(u)?),
        3 => Value::Double(double(u)?),
        4 => Value::String(text(u)?),
        5 => Value::Date(Timestamp::from_millis(int(u)?)),
        6 => Value::Binary(u.arbitrary()?),
        _ => Value::Int(i64::from(u.arbitrary::<i8>()?)),
    })
}

fn int(u: &mut Unstructured<'_>) -> Result<i64> {
    Ok(match u.int_in_range(0..=3)? {
        0 => i64::from(u.arbitrary::<i8>()?),
        1 => *u.choose(&[i64::MIN, i64::MAX, (1 << 53) - 1, 1 << 53, (1 << 53) + 1, i64::MAX - 512, -1, 1 << 31])?,
        2 => NOON + i64::from(u.arbitrary::<i32>()?),
        _ => u.arbitrary()?,
    })
}

fn double(u: &mut Unstructured<'_>) -> Result<f64> {
    Ok(match u.int_in_range(0..=3)? {
        0 => f64::from(u.arbitrary::<i16>()?) / 10_f64.powi(u.int_in_range(0..=9)?),
        1 => {
            *u.choose(&[0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 5e-324, 1e300, 9_007_199_254_740_993.0])?
        }
        2 => f64::from(u.arbitrary::<i32>()?),
        _ => u.arbitrary()?,
    })
}

fn text(u: &mut Unstructured<'_>) -> Result<String> {
    if u.ratio(1, 2)? {
        Ok((*u.choose(&["", "a", "ab", "\0", "\u{ff}", "2023-11-15T12:00:00Z"])?).to_owned())
    } else {
        u.arbitrary()
    }
}

/// A value that nests up to `depth` levels.
fn value(u: &mut Unstructured<'_>, depth: usize) -> Result<Value> {
    match u.int_in_range(0..=5)? {
        0 if depth > 0 => {
            let items = (0..u.int_in_range(0..=3)?).map(|_| value(u, depth - 1)).collect::<Result<_>>()?;
            Ok(Value::Array(items))
        }
        1 if depth > 0 => {
            let mut members: Vec<(ebbtide::ttl::Name, Value)> = Vec::new();
            for _ in 0..u.int_in_range(0..=3)? {
                let name = (*u.choose(&["a", "b", "c", "d.e", "\u{e9}"])?).to_owned();
                if members.iter().all(|(n, _)| *n != name) {
                    members.push((name.into(), value(u, depth - 1)?));
                }
            }
            Ok(Value::Object(members))
        }
        _ => scalar(u),
    }
}

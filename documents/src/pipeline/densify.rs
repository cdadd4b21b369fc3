//! $densify: documents in the gaps of a sequence of numbers or dates.

use super::memory::Memory;
use super::project::set;
use super::{Result, kept_bytes};
use crate::expression::{Distance, Value, is_nothing, reach, real_of};
use crate::order::{Number, compare};
use crate::stop::Stop;
use crate::{ExpressionError, value_key};
use bson::DateTime;
use bson::raw::{RawBson, RawBsonRef, RawDocumentBuf};
use std::collections::BTreeMap;

/// Documents that a `$densify` makes at most, as in MongoDB.
const MADE_MAX: usize = 500_000;

/// Between which values gaps are filled.
#[derive(Debug, Clone)]
pub(super) enum Bounds {
    /// The least and the greatest of all documents.
    Full,
    /// Those of each partition.
    Partition,
    /// From the first, inclusive, to the second, exclusive.
    Explicit(RawBson, RawBson),
}

#[derive(Debug, Clone)]
pub(super) struct Densify {
    pub(super) path: Vec<String>,
    pub(super) partition: Vec<Vec<String>>,
    pub(super) step: RawBson,
    pub(super) unit: Option<Distance>,
    pub(super) bounds: Bounds,
}

/// What was made so far.
struct Made<'a> {
    count: usize,
    bytes: &'a mut usize,
    memory: &'a Memory,
}

/// The values of its fields, and its documents with theirs.
type Partition = (Vec<Value>, Vec<(RawBson, RawDocumentBuf)>);

fn wrong(code: i32, message: impl Into<String>) -> ExpressionError {
    ExpressionError::new(code, message)
}

impl Densify {
    /// The documents, sorted by partition and value, with those that were missing, whose memory is added to `held`.
    pub(super) fn apply(
        &self,
        documents: Vec<RawDocumentBuf>,
        held: &mut usize,
        (stop, memory): (Stop<'_>, &Memory),
    ) -> Result<Vec<RawDocumentBuf>> {
        let mut partitions: BTreeMap<Vec<u8>, Partition> = BTreeMap::new();
        let (mut without, mut ends) = (Vec::new(), None::<(RawBson, RawBson)>);
        for document in documents {
            stop.check()?;
            let value = reach(RawBsonRef::Document(&document), &self.path);
            let Some(value) = value.filter(|value| !is_nothing(&Some(value.clone()))) else {
                without.push(document);
                continue;
            };
            self.check(&value)?;
            let (low, high) = ends.take().unwrap_or_else(|| (value.clone(), value.clone()));
            ends = Some((least(low, &value), greatest(high, &value)));
            let names: Vec<Value> =
                self.partition.iter().map(|path| reach(RawBsonRef::Document(&document), path)).collect();
            let mut key = Vec::new();
            for name in &names {
                // A missing value is another partition than null.
                key.push(u8::from(name.is_some()));
                key.extend(value_key(name.clone().unwrap_or(RawBson::Null).as_raw_bson_ref()));
            }
            partitions.entry(key).or_insert_with(|| (names, Vec::new())).1.push((value, document));
        }
        if partitions.is_empty()
            && let Bounds::Explicit(..) = self.bounds
        {
            // A partition without values of its fields.
            partitions.insert(Vec::new(), (Vec::new(), Vec::new()));
        }
        let mut found = without;
        let mut made = Made { count: 0, bytes: held, memory };
        for (names, mut members) in partitions.into_values() {
            members.sort_by(|a, b| compare(a.0.as_raw_bson_ref(), b.0.as_raw_bson_ref()));
            self.fill(&names, members, ends.as_ref(), &mut made, stop, &mut found)?;
        }
        Ok(found)
    }

    fn check(&self, value: &RawBson) -> Result<()> {
        match (value, &self.unit) {
            (RawBson::DateTime(_), Some(_)) => Ok(()),
            (RawBson::DateTime(_), None) => Err(wrong(
                6_053_600,
                "Encountered date densify value in collection when step does not have a date unit.",
            )),
            (other, Some(_)) if Number::of(other.as_raw_bson_ref()).is_some() => {
                Err(wrong(6_053_600, "Encountered numeric densify value in collection when step has a date unit."))
            }
            (other, None) if Number::of(other.as_raw_bson_ref()).is_some() => Ok(()),
            _ => Err(wrong(5_733_201, "Densify field type must be numeric or a date")),
        }
    }

    fn fill(
        &self,
        names: &[Value],
        members: Vec<(RawBson, RawDocumentBuf)>,
        ends: Option<&(RawBson, RawBson)>,
        made: &mut Made<'_>,
        stop: Stop<'_>,
        found: &mut Vec<RawDocumentBuf>,
    ) -> Result<()> {
        let own = members.first().zip(members.last()).map(|(first, last)| (first.0.clone(), last.0.clone()));
        let (low, high, is_closed) = match (&self.bounds, ends, own) {
            (Bounds::Explicit(low, high), ..) => (low.clone(), high.clone(), false),
            (Bounds::Full, Some((low, high)), _) => (low.clone(), high.clone(), true),
            (_, _, Some((low, high))) => (low, high, true),
            _ => return Ok(()),
        };
        let order = |a: &RawBson, b: &RawBson| compare(a.as_raw_bson_ref(), b.as_raw_bson_ref());
        let mut next = low;
        let mut make_until = |edge: &RawBson, includes: bool, found: &mut Vec<RawDocumentBuf>| -> Result<()> {
            while order(&next, edge).is_lt() || (includes && order(&next, edge).is_eq()) {
                let is_within = order(&next, &high).is_lt() || (is_closed && order(&next, &high).is_eq());
                if !is_within {
                    break;
                }
                stop.check()?;
                made.count += 1;
                if made.count > MADE_MAX {
                    return Err(wrong(
                        5_897_900,
                        format!("Generated {MADE_MAX} documents in $densify, which is the limit"),
                    ));
                }
                let mut document = RawDocumentBuf::new();
                for (path, name) in self.partition.iter().zip(names) {
                    document = set(&document, path, name.clone());
                }
                let document = set(&document, &self.path, Some(next.clone()));
                *made.bytes += kept_bytes(&document);
                made.memory.take(kept_bytes(&document), "$densify")?;
                found.push(document);
                next = self.after(&next)?;
            }
            if order(&next, edge).is_eq() {
                next = self.after(&next)?;
            }
            Ok(())
        };
        for (value, document) in members {
            make_until(&value, false, found)?;
            found.push(document);
        }
        make_until(&high, is_closed, found)
    }

    /// One step on.
    fn after(&self, value: &RawBson) -> Result<RawBson> {
        let stuck = || wrong(5_733_305, "the step of $densify does not lead on");
        match (value, &self.unit) {
            (RawBson::DateTime(date), Some(unit)) => {
                let step = crate::whole_number(self.step.as_raw_bson_ref()).unwrap_or(1);
                let next = unit.after(date.timestamp_millis(), step)?;
                if next <= date.timestamp_millis() {
                    Err(stuck())
                } else {
                    Ok(RawBson::DateTime(DateTime::from_millis(next)))
                }
            }
            _ => {
                let next = crate::expression::sum(value, &self.step).ok_or_else(stuck)?;
                let grows = compare(next.as_raw_bson_ref(), value.as_raw_bson_ref()).is_gt();
                if grows { Ok(next) } else { Err(stuck()) }
            }
        }
    }
}

fn least(a: RawBson, b: &RawBson) -> RawBson {
    if compare(b.as_raw_bson_ref(), a.as_raw_bson_ref()).is_lt() { b.clone() } else { a }
}

fn greatest(a: RawBson, b: &RawBson) -> RawBson {
    if compare(b.as_raw_bson_ref(), a.as_raw_bson_ref()).is_gt() { b.clone() } else { a }
}

/// Whether a step leads on.
pub(super) fn is_positive(step: RawBsonRef<'_>) -> bool {
    Number::of(step).map(real_of).is_some_and(|step| step > 0.0)
}

//! $bucketAuto: documents in the order of an expression, in buckets of about the same number of documents.

use super::Result;
use super::group::{Field, document_bytes, take_all, write_all};
use super::memory::{Memory, kept_bytes};
use crate::expression::accumulator::Accumulator;
use crate::expression::{Expression, ExpressionError, Moment};
use crate::raw::writer::DocumentWriter;
use crate::value_key;
use bson::raw::{RawBson, RawDocument, RawDocumentBuf, cstr};
use bson::rawdoc;

/// What a `$bucketAuto` asks for.
#[derive(Debug, Clone)]
pub(super) struct BucketAuto {
    pub(super) by: Expression,
    /// Buckets at most, 1 or more.
    pub(super) count: usize,
    pub(super) fields: Vec<Field>,
}

impl BucketAuto {
    pub(super) const NAME: &'static str = "$bucketAuto";

    /// The value of a document; null where it is missing, as in `$group`.
    fn value(&self, document: &RawDocument, moment: Moment<'_>) -> Result<RawBson> {
        Ok(self.by.evaluate_at(document, moment)?.unwrap_or(RawBson::Null))
    }

    /// What documents are sorted by.
    pub(super) fn key(&self, document: &RawDocument, moment: Moment<'_>) -> Result<Vec<u8>> {
        Ok(value_key(self.value(document, moment)?.as_raw_bson_ref()))
    }

    /// The documents of the buckets. `held` is the memory that is counted for what was kept.
    pub(super) fn apply(
        &self,
        mut found: Vec<(Vec<u8>, RawDocumentBuf)>,
        held: &mut usize,
        moment: Moment<'_>,
        memory: &Memory,
    ) -> Result<Vec<RawDocumentBuf>> {
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let size = rounded(found.len(), self.count).max(1);
        let (mut buckets, mut start) = (Vec::new(), 0);
        while start < found.len() {
            // The last bucket takes what is left.
            let is_last = buckets.len() + 1 == self.count;
            let mut end = if is_last { found.len() } else { start.saturating_add(size).min(found.len()) };
            // Equal values are in one bucket.
            while end < found.len() && found[end].0 == found[end - 1].0 {
                end += 1;
            }
            // The maximum is the minimum of the next bucket, and of the last bucket its own.
            let max = found.get(end).unwrap_or(&found[end - 1]);
            let bounds = rawdoc! {
                "min": self.value(&found[start].1, moment)?,
                "max": self.value(&max.1, moment)?,
            };
            let bucket = self.bucket(bounds, &found[start..end], moment, memory)?;
            memory.take(kept_bytes(&bucket), BucketAuto::NAME)?;
            *held += kept_bytes(&bucket);
            buckets.push(bucket);
            start = end;
        }
        Ok(buckets)
    }

    fn bucket(
        &self,
        bounds: RawDocumentBuf,
        found: &[(Vec<u8>, RawDocumentBuf)],
        moment: Moment<'_>,
        memory: &Memory,
    ) -> Result<RawDocumentBuf> {
        let mut accumulators: Vec<Accumulator> =
            self.fields.iter().map(|(_, kind, _)| Accumulator::new(kind)).collect();
        let mut bytes = 0;
        for (_, document) in found {
            moment.stop.check()?;
            let before = bytes;
            take_all(&self.fields, &mut accumulators, document, moment, &mut bytes)?;
            memory.change(before, bytes, BucketAuto::NAME)?;
        }
        let mut bucket = DocumentWriter::with_capacity(document_bytes(&bounds));
        bucket.append(cstr!("_id"), RawBson::Document(bounds).as_raw_bson_ref());
        write_all(&self.fields, accumulators, &mut bucket)?;
        memory.give_back(bytes);
        if bucket.is_too_long() {
            return Err(ExpressionError::new(10334, "a bucket's document has 2 GiB; the limit is 16 MiB"));
        }
        Ok(bucket.finish())
    }
}

/// The quotient, rounded half up.
fn rounded(dividend: usize, divisor: usize) -> usize {
    let (whole, rest) = (dividend / divisor, dividend % divisor);
    whole + usize::from(rest >= divisor - rest)
}

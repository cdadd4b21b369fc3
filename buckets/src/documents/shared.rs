//! Metas that several documents share.

use crate::build::build_array;
use crate::schema::FieldType;
use ahash::AHashMap;
use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use arrow::error::ArrowError;
use ebbtide_ttl::{Precision, Value};
use std::ptr::from_ref;

/// What a meta counts for in every document that has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    /// Bytes of its document.
    pub(super) bytes: usize,
    /// Items of its lists, and bytes of its binary values.
    pub(super) items: usize,
}

/// The distinct metas of some documents, told apart by their addresses, and which one each document has.
#[derive(Debug, Default)]
pub(super) struct SharedMetas<'a> {
    numbers: AHashMap<*const Value, u32>,
    metas: Vec<(&'a Value, Size)>,
    /// The number of the meta of each document up to the last that had one.
    rows: Vec<Option<u32>>,
    /// Whether a document had a meta of its own.
    is_mixed: bool,
}

impl<'a> SharedMetas<'a> {
    /// The number of a meta that was added.
    pub(super) fn find(&self, meta: &'a Value) -> Option<(u32, Size)> {
        let number = *self.numbers.get(&from_ref(meta))?;
        Some((number, self.metas.get(number as usize)?.1))
    }

    /// Adds a meta, and returns its number.
    #[expect(clippy::cast_possible_truncation, reason = "a batch holds fewer than 2^32 rows")]
    pub(super) fn add(&mut self, meta: &'a Value, size: Size) -> u32 {
        let number = self.metas.len() as u32;
        self.metas.push((meta, size));
        self.numbers.insert(from_ref(meta), number);
        number
    }

    /// Document `row` has the meta of this number.
    pub(super) fn put(&mut self, row: usize, number: u32) {
        self.rows.resize(row, None);
        self.rows.push(Some(number));
    }

    /// A document has a meta that is not shared.
    pub(super) fn mix(&mut self) {
        self.is_mixed = true;
    }

    /// The column of the metas of all `rows` documents, and a number for each that is equal only where the metas are; nothing if a
    /// document had a meta of its own.
    ///
    /// # Errors
    /// From Arrow.
    pub(super) fn finish(
        mut self,
        ty: &FieldType,
        rows: usize,
        precision: Precision,
    ) -> Result<Option<(ArrayRef, Vec<u32>)>, ArrowError> {
        if self.is_mixed || self.metas.is_empty() {
            return Ok(None);
        }
        self.rows.resize(rows, None);
        let distinct: Vec<&Value> = self.metas.iter().map(|(meta, _)| *meta).collect();
        let numbers = self.rows.iter().map(|number| number.unwrap_or(u32::MAX)).collect();
        let column = take(&build_array(ty, &distinct, precision), &UInt32Array::from(self.rows), None)?;
        Ok(Some((column, numbers)))
    }
}

//! The types that the columns of a collection have in its segment files.
//!
//! Programs that read several files of a collection at once use the types of one of them for all: with a narrower type
//! they would cut off digits. So the types are recorded for the collection and only widen: a new segment has each column in
//! a type that can hold all values of the earlier segments.

use super::decimals::{DIGITS_MAX, Decimals, NARROW_DIGITS, SCALE_MAX, valid_runs, whole_digits};
use crate::schema::{FieldType, Schema};
use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The type of a column, or of a part of one, in segment files: what decides the type, and what is needed to widen it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileType {
    /// Items of lists that were all empty so far: BOOLEAN.
    Unknown,
    /// BOOLEAN.
    Bool,
    /// INT64.
    Int64 {
        /// No number has more digits.
        digits: u8,
    },
    /// Doubles as DECIMAL(9, scale) if both counts are 9 together at most, else as DECIMAL(18, scale).
    Decimal {
        /// No number has more digits before the point.
        whole: u8,
        /// Digits after the point.
        scale: u8,
    },
    /// DOUBLE.
    Double,
    /// BYTE_ARRAY with UTF-8.
    String,
    /// INT64 with TIMESTAMP.
    Timestamp,
    /// BYTE_ARRAY.
    Binary,
    /// LIST.
    List(Box<FileType>),
    /// A group; without members BOOLEAN.
    Object(Vec<(String, FileType)>),
}

impl FileType {
    /// A decimal with these digits before and after the point, or a double if a decimal could not restore every value
    /// exactly.
    fn decimal(whole: u8, scale: u8) -> FileType {
        match scale <= SCALE_MAX && whole.saturating_add(scale) <= DIGITS_MAX {
            true => FileType::Decimal { whole, scale },
            false => FileType::Double,
        }
    }

    /// Decimals whose greatest absolute value is `greatest`.
    pub(super) fn decimal_up_to(greatest: f64, scale: u8) -> FileType {
        FileType::decimal(whole_digits(greatest), scale)
    }

    /// The narrowest type for the values of all pieces of a column.
    pub(super) fn of(ty: &FieldType, pieces: &[ArrayRef]) -> FileType {
        match ty {
            FieldType::Unknown => FileType::Unknown,
            FieldType::Bool => FileType::Bool,
            FieldType::Int64 => whole_numbers(pieces),
            FieldType::Double => doubles(pieces),
            FieldType::String => FileType::String,
            FieldType::Timestamp => FileType::Timestamp,
            FieldType::Binary => FileType::Binary,
            FieldType::List(item) => {
                let items: Vec<ArrayRef> = pieces.iter().map(|p| p.as_list::<i32>().values().clone()).collect();
                FileType::List(Box::new(FileType::of(item, &items)))
            }
            FieldType::Object(members) => {
                let member = |(at, (name, ty)): (usize, &(String, FieldType))| {
                    let columns: Vec<ArrayRef> = pieces.iter().map(|p| p.as_struct().column(at).clone()).collect();
                    (name.clone(), FileType::of(ty, &columns))
                };
                FileType::Object(members.iter().enumerate().map(member).collect())
            }
        }
    }

    /// The type of a column in a file, assuming the widest values that it can hold.
    pub(super) fn of_stored(ty: &FieldType, stored: &DataType) -> FileType {
        match (ty, stored) {
            (FieldType::Unknown, _) => FileType::Unknown,
            (FieldType::Bool, _) => FileType::Bool,
            (FieldType::Int64, _) => FileType::Int64 { digits: INT64_DIGITS },
            (
                FieldType::Double,
                DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) | DataType::Decimal128(_, scale),
            ) => {
                let digits = if matches!(stored, DataType::Decimal32(..)) { NARROW_DIGITS } else { DIGITS_MAX };
                let scale = u8::try_from(*scale).unwrap_or(u8::MAX);
                FileType::decimal(digits.saturating_sub(scale), scale)
            }
            (FieldType::Double, _) => FileType::Double,
            (FieldType::String, _) => FileType::String,
            (FieldType::Timestamp, _) => FileType::Timestamp,
            (FieldType::Binary, _) => FileType::Binary,
            (FieldType::List(item), DataType::List(stored)) => {
                FileType::List(Box::new(FileType::of_stored(item, stored.data_type())))
            }
            (FieldType::List(item), stored) => FileType::List(Box::new(FileType::of_stored(item, stored))),
            (FieldType::Object(members), stored) => {
                let stored_member = |name: &str| match stored {
                    DataType::Struct(fields) => fields.find(name).map(|(_, field)| field.data_type()),
                    _ => None,
                };
                let member = |(name, ty): &(String, FieldType)| {
                    (name.clone(), FileType::of_stored(ty, stored_member(name).unwrap_or(&DataType::Null)))
                };
                FileType::Object(members.iter().map(member).collect())
            }
        }
    }

    /// The narrowest type that holds what both hold; the members of objects in the order of `found`, then all others.
    pub(super) fn join(&self, found: &FileType) -> FileType {
        use FileType as F;
        match (self, found) {
            (F::Unknown, ty) | (ty, F::Unknown) => ty.clone(),
            (F::Int64 { digits: a }, F::Int64 { digits: b }) => F::Int64 { digits: *a.max(b) },
            (F::Int64 { digits }, F::Decimal { whole, scale }) | (F::Decimal { whole, scale }, F::Int64 { digits }) => {
                F::decimal(*digits.max(whole), *scale)
            }
            (F::Decimal { whole: a, scale: c }, F::Decimal { whole: b, scale: d }) => F::decimal(*a.max(b), *c.max(d)),
            (F::Double, F::Int64 { .. } | F::Decimal { .. }) | (F::Int64 { .. } | F::Decimal { .. }, F::Double) => {
                F::Double
            }
            (F::List(a), F::List(b)) => F::List(Box::new(a.join(b))),
            (F::Object(a), F::Object(b)) => F::Object(join_columns(a, b)),
            // Inserts with other differences were refused.
            (_, found) => found.clone(),
        }
    }

    /// Whether files have the same type for both.
    fn is_stored_as(&self, other: &FileType) -> bool {
        use FileType as F;
        match (self, other) {
            (F::Int64 { .. }, F::Int64 { .. }) => true,
            (F::Decimal { whole: a, scale: c }, F::Decimal { whole: b, scale: d }) => {
                c == d && (a + c > NARROW_DIGITS) == (b + d > NARROW_DIGITS)
            }
            (F::List(a), F::List(b)) => a.is_stored_as(b),
            (F::Object(a), F::Object(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && a.1.is_stored_as(&b.1))
            }
            (F::Unknown | F::Bool, F::Unknown | F::Bool) => true,
            (a, b) => a == b,
        }
    }

    /// Whether `stored` is the type that a file has for this.
    fn is_type(&self, stored: &DataType) -> bool {
        use DataType as D;
        match (self, stored) {
            (FileType::Unknown | FileType::Bool, D::Boolean) => true,
            (FileType::Int64 { .. }, D::Int64) => true,
            (FileType::Decimal { whole, scale }, D::Decimal32(_, stored)) => {
                whole + scale <= NARROW_DIGITS && scale.cast_signed() == *stored
            }
            (FileType::Decimal { whole, scale }, D::Decimal64(_, stored)) => {
                whole + scale > NARROW_DIGITS && scale.cast_signed() == *stored
            }
            (FileType::Double, D::Float64) => true,
            (FileType::String, D::Utf8 | D::Utf8View | D::LargeUtf8) => true,
            (FileType::Timestamp, D::Timestamp(..)) => true,
            (FileType::Binary, D::Binary | D::BinaryView | D::LargeBinary) => true,
            (FileType::List(item), D::List(stored)) => item.is_type(stored.data_type()),
            (FileType::Object(members), D::Boolean) => members.is_empty(),
            (FileType::Object(members), D::Struct(stored)) => {
                members.len() == stored.len()
                    && members.iter().zip(stored).all(|(a, b)| a.0 == *b.name() && a.1.is_type(b.data_type()))
            }
            _ => false,
        }
    }

    fn is_possible(&self) -> bool {
        match self {
            FileType::Int64 { digits } => *digits <= INT64_DIGITS,
            FileType::Decimal { whole, scale } => {
                *scale <= SCALE_MAX && whole.checked_add(*scale).is_some_and(|digits| digits <= DIGITS_MAX)
            }
            FileType::List(item) => item.is_possible(),
            FileType::Object(members) => members.iter().all(|(_, ty)| ty.is_possible()),
            _ => true,
        }
    }
}

/// Number of digits of -2^63.
const INT64_DIGITS: u8 = 19;

fn whole_numbers(pieces: &[ArrayRef]) -> FileType {
    let greatest = |numbers: &Int64Array| {
        let runs = valid_runs(numbers).into_iter();
        let of_run = |(from, to): (usize, usize)| {
            numbers.values()[from..to].iter().fold(0, |greatest: u64, n| greatest.max(n.unsigned_abs()))
        };
        runs.map(of_run).max().unwrap_or(0)
    };
    let greatest = pieces.iter().map(|piece| greatest(piece.as_primitive::<Int64Type>())).max().unwrap_or(0);
    let digits = greatest.checked_ilog10().map_or(0, |digits| digits + 1);
    FileType::Int64 { digits: u8::try_from(digits).unwrap_or(INT64_DIGITS) }
}

fn doubles(pieces: &[ArrayRef]) -> FileType {
    let mut found = Decimals::default();
    for piece in pieces {
        let doubles = piece.as_primitive::<Float64Type>();
        for (start, end) in valid_runs(doubles) {
            if !found.look_at(&doubles.values()[start..end]) {
                return FileType::Double;
            }
        }
    }
    FileType::decimal_up_to(found.greatest(), found.digits())
}

/// The type of a column, probably at index `at`: two versions of a list usually have the same order.
fn by_name<'a>(columns: &'a [(String, FileType)], name: &str, at: usize) -> Option<&'a FileType> {
    let here = columns.get(at).filter(|(n, _)| n == name);
    here.or_else(|| columns.iter().find(|(n, _)| n == name)).map(|(_, ty)| ty)
}

fn join_columns(known: &[(String, FileType)], found: &[(String, FileType)]) -> Vec<(String, FileType)> {
    let joined = |(at, (name, ty)): (usize, &(String, FileType))| match by_name(known, name, at) {
        Some(known) => (name.clone(), known.join(ty)),
        None => (name.clone(), ty.clone()),
    };
    let mut all: Vec<(String, FileType)> = found.iter().enumerate().map(joined).collect();
    let others = known.iter().enumerate().filter(|(at, (name, _))| by_name(found, name, *at).is_none());
    all.extend(others.map(|(_, column)| column.clone()));
    all
}

/// The types of all columns in the segment files of a collection.
///
/// They belong to a generation, which begins when a type widens or a column is added. A segment file has the types of the
/// generation in which it was written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileTypes {
    generation: u32,
    /// The generation that began when a type last widened.
    widened: u32,
    columns: Vec<(String, FileType)>,
}

impl FileTypes {
    /// The types that values have in memory: each double is stored as a double, not as a decimal.
    #[must_use]
    pub fn plain(schema: &Schema) -> FileTypes {
        let arrow = schema.arrow();
        let column = |field: &Arc<Field>| {
            let ty = schema.field_type(field.name())?;
            Some((field.name().clone(), FileType::of_stored(ty, field.data_type())))
        };
        FileTypes { columns: arrow.fields().iter().filter_map(column).collect(), ..FileTypes::default() }
    }

    /// The generation of these types: 0 at first.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Whether the columns of a segment of `generation` have these types.
    #[must_use]
    pub fn are_those_of(&self, generation: u32) -> bool {
        generation >= self.widened
    }

    /// The columns by name, in the order of the schema.
    #[must_use]
    pub fn columns(&self) -> &[(String, FileType)] {
        &self.columns
    }

    /// What is wrong with types that were read from a file; `None` if they are possible.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        if self.widened > self.generation {
            return Some("file types widened in a generation after the current one".to_owned());
        }
        let wrong = self.columns.iter().find(|(_, ty)| !ty.is_possible());
        wrong.map(|(name, _)| format!("the file type of '{name}' does not exist"))
    }

    /// Whether these can hold all values of `before`, so that they may follow them.
    #[must_use]
    pub fn may_follow(&self, before: &FileTypes) -> bool {
        self.generation >= before.generation && self.widened >= before.widened && {
            let mut columns = before.columns.iter().enumerate();
            columns.all(|(at, (name, ty))| self.of(name, at).is_some_and(|now| ty.join(now) == *now))
        }
    }

    /// The types of columns of which one has another name. No file that is there has them, so a generation begins.
    #[must_use]
    pub fn with_column_renamed(&self, from: &str, to: &str) -> FileTypes {
        let name = |name: &String| if name == from { to.to_owned() } else { name.clone() };
        self.anew(self.columns.iter().map(|(column, ty)| (name(column), ty.clone())).collect())
    }

    /// The types of the columns but one. No file that is there has them, so a generation begins.
    #[must_use]
    pub fn without_column(&self, name: &str) -> FileTypes {
        self.anew(self.columns.iter().filter(|(column, _)| column != name).cloned().collect())
    }

    fn anew(&self, columns: Vec<(String, FileType)>) -> FileTypes {
        let generation = self.generation.saturating_add(1);
        FileTypes { generation, widened: generation, columns }
    }

    /// The type of a column, which may be at place `at`.
    pub(super) fn of(&self, name: &str, at: usize) -> Option<&FileType> {
        by_name(&self.columns, name, at)
    }

    /// These types, widened by those of the columns of a segment.
    #[must_use]
    pub(super) fn widened_by(&self, found: &[(String, FileType)]) -> FileTypes {
        let columns = join_columns(&self.columns, found);
        let widens = |(at, (name, ty)): (usize, &(String, FileType))| {
            by_name(&columns, name, at).is_some_and(|now| !now.is_stored_as(ty))
        };
        let widens = self.columns.iter().enumerate().any(widens);
        let begins = widens || (columns.len() > self.columns.len() && !self.columns.is_empty());
        let generation = self.generation.saturating_add(u32::from(begins));
        let widened = if widens { generation } else { self.widened };
        FileTypes { generation, widened, columns }
    }

    /// Whether a file's column, which may be at place `at`, has the type that these have for it.
    pub(super) fn has(&self, name: &str, at: usize, stored: &DataType) -> bool {
        self.of(name, at).is_some_and(|ty| ty.is_type(stored))
    }
}

#[cfg(test)]
mod tests;

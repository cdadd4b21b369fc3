//! The columns that an ordinary collection has in SQL: its top-level names in the order in which they appeared, and the type of
//! each.
//!
//! Documents are observed in the order in which they are applied, by writers and by the replay of the log alike. Observing a
//! document again changes nothing.

use ebbtide_buckets::FieldType;
use ebbtide_documents::bson::RawDocument;
use ebbtide_documents::bson::raw::RawBsonRef;
use ebbtide_documents::bson::spec::BinarySubtype;
use ebbtide_ttl::int_fits_double;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

/// Columns that a collection has at most, besides [`RESERVED`].
const COLUMNS_MAX: usize = 1000;
/// Members that the type of a column has at most; what has more is JSON text.
const MEMBERS_MAX: usize = 1000;
/// Levels of objects that the type of a column has at most; what has more is JSON text.
const LEVELS_MAX: usize = 32;
/// The columns that every collection has. Fields of these names are seen in `document`.
pub(crate) const RESERVED: [&str; 2] = ["_ts", "document"];

/// A column of an ordinary collection in SQL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentColumn {
    /// The name of the field.
    pub name: String,
    /// What its values are.
    pub kind: ColumnKind,
    /// Whether it has whole numbers, or may come to have some, and a double holds each of them: they become doubles with the first
    /// double. It is not known of columns that come from older programs.
    #[serde(skip)]
    pub fits_doubles: bool,
}

/// What the values of a column are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ColumnKind {
    /// It has had no value but null.
    Unknown,
    /// All of one type.
    Of(FieldType),
    /// Of several types, or of one that columns do not have: each is shown as Extended JSON.
    Json,
}

/// A column in the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ColumnRecord {
    name: String,
    kind: KindRecord,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum KindRecord {
    Unknown,
    Of(FieldType),
    Json,
    /// Of a type that has whole numbers, or may come to have some, and a double holds each of them.
    OfSmall(FieldType),
}

impl From<&DocumentColumn> for ColumnRecord {
    fn from(column: &DocumentColumn) -> Self {
        let kind = match &column.kind {
            ColumnKind::Unknown => KindRecord::Unknown,
            ColumnKind::Json => KindRecord::Json,
            ColumnKind::Of(ty) if column.fits_doubles => KindRecord::OfSmall(ty.clone()),
            ColumnKind::Of(ty) => KindRecord::Of(ty.clone()),
        };
        ColumnRecord { name: column.name.clone(), kind }
    }
}

impl From<ColumnRecord> for DocumentColumn {
    fn from(record: ColumnRecord) -> Self {
        let fits_doubles = matches!(record.kind, KindRecord::OfSmall(_));
        let kind = match record.kind {
            KindRecord::Unknown => ColumnKind::Unknown,
            KindRecord::Json => ColumnKind::Json,
            KindRecord::Of(ty) | KindRecord::OfSmall(ty) => ColumnKind::Of(ty),
        };
        DocumentColumn { name: record.name, kind, fits_doubles }
    }
}

/// The columns of an ordinary collection, in order of appearance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DocumentColumns {
    list: Vec<DocumentColumn>,
    by_name: HashMap<String, usize, ahash::RandomState>,
}

impl DocumentColumns {
    /// The columns.
    pub fn iter(&self) -> impl Iterator<Item = &DocumentColumn> {
        self.list.iter()
    }

    pub(crate) fn records(&self) -> Vec<ColumnRecord> {
        self.list.iter().map(ColumnRecord::from).collect()
    }

    /// Adds columns, or the types of some, that were known before.
    pub(crate) fn join(&mut self, known: Vec<ColumnRecord>) {
        for column in known.into_iter().map(DocumentColumn::from) {
            match self.by_name.get(&column.name) {
                None => self.push(column),
                Some(at) => self.list[*at].join(column),
            }
        }
    }

    fn push(&mut self, column: DocumentColumn) {
        self.by_name.insert(column.name.clone(), self.list.len());
        self.list.push(column);
    }

    /// Whether a document has no name and no type of value that is new.
    fn cover(&self, document: &RawDocument) -> bool {
        document.iter().flatten().all(|(name, value)| match self.by_name.get(name.as_str()) {
            Some(at) => self.list[*at].covers(value),
            None => self.list.len() >= COLUMNS_MAX || RESERVED.contains(&name.as_str()),
        })
    }

    fn add(&mut self, document: &RawDocument) {
        for (name, value) in document.iter().flatten() {
            let name = name.as_str();
            match self.by_name.get(name) {
                Some(at) => self.list[*at].widen(value),
                None if self.list.len() >= COLUMNS_MAX || RESERVED.contains(&name) => {}
                None => {
                    let (name, kind) = (name.to_owned(), ColumnKind::Unknown);
                    let mut column = DocumentColumn { name, kind, fits_doubles: false };
                    column.widen(value);
                    self.push(column);
                }
            }
        }
    }
}

/// Adds what is new in a document to the columns.
pub(crate) fn observe(columns: &mut Arc<DocumentColumns>, document: &RawDocument) {
    if !columns.cover(document) {
        Arc::make_mut(columns).add(document);
    }
}

fn is_null(value: RawBsonRef<'_>) -> bool {
    matches!(value, RawBsonRef::Null | RawBsonRef::Undefined)
}

impl DocumentColumn {
    fn covers(&self, value: RawBsonRef<'_>) -> bool {
        is_null(value)
            || match &self.kind {
                ColumnKind::Unknown => false,
                ColumnKind::Of(ty) => fits(ty, value, self.fits_doubles),
                ColumnKind::Json => true,
            }
    }

    fn widen(&mut self, value: RawBsonRef<'_>) {
        if self.covers(value) {
            return;
        }
        let is_first = self.kind == ColumnKind::Unknown;
        let to_doubles = (self.fits_doubles || is_first) && !exceeds_doubles(value);
        let wider = match &self.kind {
            ColumnKind::Unknown => type_of(value, Widening { levels: LEVELS_MAX, to_doubles }),
            ColumnKind::Of(ty) => widened(ty, value, Widening { levels: LEVELS_MAX, to_doubles }),
            ColumnKind::Json => None,
        };
        self.kind = kind_of(wider);
        self.fits_doubles = to_doubles && self.kind.may_have_whole_numbers();
    }

    /// Adds what was known of the same column before.
    fn join(&mut self, known: DocumentColumn) {
        let fits_doubles = match (&self.kind, &known.kind) {
            (ColumnKind::Unknown, _) => known.fits_doubles,
            (_, ColumnKind::Unknown) => self.fits_doubles,
            _ => self.fits_doubles && known.fits_doubles,
        };
        self.kind = match (std::mem::replace(&mut self.kind, ColumnKind::Json), known.kind) {
            (ColumnKind::Unknown, kind) | (kind, ColumnKind::Unknown) => kind,
            (ColumnKind::Json, _) | (_, ColumnKind::Json) => ColumnKind::Json,
            (ColumnKind::Of(ty), ColumnKind::Of(known)) => kind_of(joined(ty, known)),
        };
        self.fits_doubles = fits_doubles && self.kind.may_have_whole_numbers();
    }
}

impl ColumnKind {
    fn may_have_whole_numbers(&self) -> bool {
        matches!(self, ColumnKind::Of(FieldType::Int64 | FieldType::List(_) | FieldType::Object(_)))
    }
}

fn kind_of(ty: Option<FieldType>) -> ColumnKind {
    match ty.filter(|ty| members(ty) <= MEMBERS_MAX) {
        Some(ty) => ColumnKind::Of(ty),
        None => ColumnKind::Json,
    }
}

/// The type that holds the values of both, if there is one.
fn joined(ty: FieldType, other: FieldType) -> Option<FieldType> {
    match (ty, other) {
        (ty, other) if ty == other => Some(ty),
        (FieldType::Unknown, ty) | (ty, FieldType::Unknown) => Some(ty),
        (FieldType::Int64, FieldType::Double) | (FieldType::Double, FieldType::Int64) => Some(FieldType::Double),
        (FieldType::List(item), FieldType::List(other)) => Some(FieldType::List(Box::new(joined(*item, *other)?))),
        (FieldType::Object(mut members), FieldType::Object(others)) => {
            for (name, other) in others {
                match members.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, ty)) => *ty = joined(std::mem::replace(ty, FieldType::Unknown), other)?,
                    None => members.push((name, other)),
                }
            }
            Some(FieldType::Object(members))
        }
        _ => None,
    }
}

/// Whether a value has a whole number that no double holds.
fn exceeds_doubles(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Int64(whole) => !int_fits_double(whole),
        RawBsonRef::Array(items) => items.into_iter().flatten().any(exceeds_doubles),
        RawBsonRef::Document(object) => object.iter().flatten().any(|(_, value)| exceeds_doubles(value)),
        _ => false,
    }
}

/// How a type may widen.
#[derive(Debug, Clone, Copy)]
struct Widening {
    /// Levels of objects that it may gain.
    levels: usize,
    /// Whether whole numbers may become doubles.
    to_doubles: bool,
}

impl Widening {
    fn within(self) -> Widening {
        Widening { levels: self.levels - 1, ..self }
    }

    fn of_items(self) -> Widening {
        Widening { levels: 0, ..self }
    }
}

/// Whether a column of a type holds a value as it is; `as_doubles` if doubles have to hold its whole numbers.
fn fits(ty: &FieldType, value: RawBsonRef<'_>, as_doubles: bool) -> bool {
    match (ty, value) {
        (_, RawBsonRef::Null | RawBsonRef::Undefined) => true,
        (FieldType::Double, RawBsonRef::Int64(whole)) => int_fits_double(whole),
        (FieldType::Int64, RawBsonRef::Int64(whole)) => !as_doubles || int_fits_double(whole),
        (FieldType::Bool, RawBsonRef::Boolean(_))
        | (FieldType::Int64, RawBsonRef::Int32(_))
        | (FieldType::Double, RawBsonRef::Double(_) | RawBsonRef::Int32(_))
        | (FieldType::String, RawBsonRef::String(_))
        | (FieldType::Timestamp, RawBsonRef::DateTime(_)) => true,
        (FieldType::Binary, RawBsonRef::Binary(binary)) => binary.subtype == BinarySubtype::Generic,
        (FieldType::List(item), RawBsonRef::Array(items)) => {
            items.into_iter().flatten().all(|value| fits(item, value, as_doubles))
        }
        (FieldType::Object(members), RawBsonRef::Document(object)) => {
            let known = |name: &str| members.iter().find(|(known, _)| known == name);
            let mut values = object.iter().flatten();
            !repeats_a_name(object)
                && values.all(|(name, value)| {
                    is_null(value) || known(name.as_str()).is_some_and(|(_, ty)| fits(ty, value, as_doubles))
                })
        }
        _ => false,
    }
}

fn repeats_a_name(object: &RawDocument) -> bool {
    let mut names: Vec<&str> = object.iter().flatten().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.windows(2).any(|pair| pair[0] == pair[1])
}

/// The type of a value, if a column can have it. The items of a list are no lists and no objects.
fn type_of(value: RawBsonRef<'_>, how: Widening) -> Option<FieldType> {
    Some(match value {
        RawBsonRef::Boolean(_) => FieldType::Bool,
        RawBsonRef::Int32(_) | RawBsonRef::Int64(_) => FieldType::Int64,
        RawBsonRef::Double(_) => FieldType::Double,
        RawBsonRef::String(_) => FieldType::String,
        RawBsonRef::DateTime(_) => FieldType::Timestamp,
        RawBsonRef::Binary(binary) if binary.subtype == BinarySubtype::Generic => FieldType::Binary,
        RawBsonRef::Array(_) => widened(&FieldType::List(Box::new(FieldType::Unknown)), value, how)?,
        RawBsonRef::Document(_) => widened(&FieldType::Object(Vec::new()), value, how)?,
        _ => return None,
    })
}

/// The type that holds the values of a column and one more, if there is one.
fn widened(ty: &FieldType, value: RawBsonRef<'_>, how: Widening) -> Option<FieldType> {
    if fits(ty, value, false) {
        return Some(ty.clone());
    }
    match (ty, value) {
        (FieldType::Unknown, value) => {
            let item = type_of(value, how.of_items())?;
            (!matches!(item, FieldType::List(_) | FieldType::Object(_))).then_some(item)
        }
        (FieldType::Int64, RawBsonRef::Double(_)) if how.to_doubles => Some(FieldType::Double),
        (FieldType::List(item), RawBsonRef::Array(items)) => {
            let mut item = (**item).clone();
            for value in items.into_iter().flatten() {
                item = widened(&item, value, how.of_items())?;
            }
            Some(FieldType::List(Box::new(item)))
        }
        (FieldType::Object(members), RawBsonRef::Document(object)) if how.levels > 0 && !repeats_a_name(object) => {
            let mut members = members.clone();
            for (name, value) in object.iter().flatten().filter(|(_, value)| !is_null(*value)) {
                match members.iter().position(|(known, _)| known == name.as_str()) {
                    Some(at) => members[at].1 = widened(&members[at].1, value, how.within())?,
                    None if members.len() >= MEMBERS_MAX => return None,
                    None => members.push((name.as_str().to_owned(), type_of(value, how.within())?)),
                }
            }
            Some(FieldType::Object(members))
        }
        _ => None,
    }
}

fn members(ty: &FieldType) -> usize {
    match ty {
        FieldType::Object(inner) => inner.iter().map(|(_, ty)| 1 + members(ty)).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;

//! The type of a field while documents are read.

use super::cell::Cell;
use crate::limits::{FIELDS_MAX, NESTING_MAX, begin, check_name};
use crate::schema::{FieldType, Schema, mismatch, nested_list};
use ahash::AHashMap;
use ebbtide_ttl::{Code, Precision, RuleError, Timestamp, Value, exact_int, int_fits_double};

/// Offsets of list and binary columns have 31 bits; a batch stays well below.
const BATCH_ITEMS_MAX: usize = 1 << 30;

/// What holds for a batch as a whole.
pub(super) struct Limits {
    precision: Precision,
    fields: usize,
    items: usize,
}

impl Limits {
    pub(super) fn new(schema: &Schema) -> Limits {
        let fields = schema.fields.iter().map(|(_, ty)| ty).chain(&schema.meta_type).map(FieldType::field_count).sum();
        Limits { precision: schema.precision, fields, items: 0 }
    }

    pub(super) fn units(&self, t: Timestamp, name: &str) -> Result<i64, RuleError> {
        t.to_units(self.precision).ok_or_else(|| {
            let message = format!("field '{name}': the precision {} does not reach to {t}", self.precision.name());
            RuleError::new(Code::BadValue, message)
        })
    }

    pub(super) fn depth(&self, value: &Cell<'_>, name: &str) -> Result<(), RuleError> {
        match value {
            Cell::Nested(value) if value.depth(NESTING_MAX + 1) > NESTING_MAX => {
                let message = format!("field '{}' nests deeper than {NESTING_MAX}", begin(name));
                Err(RuleError::new(Code::BadValue, message))
            }
            _ => Ok(()),
        }
    }

    fn add_field(&mut self, name: &str) -> Result<(), RuleError> {
        check_name(name)?;
        self.fields += 1;
        if self.fields > FIELDS_MAX {
            return Err(RuleError::new(Code::BadValue, format!("field '{name}' is one more than {FIELDS_MAX} fields")));
        }
        Ok(())
    }

    /// Items of lists and bytes of binary values so far.
    pub(super) fn items(&self) -> usize {
        self.items
    }

    pub(super) fn fields(&self) -> usize {
        self.fields
    }

    pub(super) fn add_items(&mut self, count: usize, path: &str) -> Result<(), RuleError> {
        self.items = self.items.saturating_add(count);
        if self.items > BATCH_ITEMS_MAX {
            let message = format!("field '{path}': too many bytes or items in one insert; insert fewer at a time");
            return Err(RuleError::new(Code::BadValue, message));
        }
        Ok(())
    }
}

/// What the values so far say about a field's type.
pub(super) enum Infer {
    /// Nothing: only nulls were seen.
    Unknown,
    Bool,
    /// Whole numbers; `unfit` once there was one that a double cannot hold.
    Int {
        unfit: bool,
    },
    Double,
    String,
    Timestamp,
    Binary,
    List(Box<Infer>),
    Object(Members),
}

impl Infer {
    pub(super) fn of(ty: &FieldType) -> Infer {
        match ty {
            FieldType::Unknown => Infer::Unknown,
            FieldType::Bool => Infer::Bool,
            FieldType::Int64 => Infer::Int { unfit: false },
            FieldType::Double => Infer::Double,
            FieldType::String => Infer::String,
            FieldType::Timestamp => Infer::Timestamp,
            FieldType::Binary => Infer::Binary,
            FieldType::List(item) => Infer::List(Box::new(Infer::of(item))),
            FieldType::Object(members) => Infer::Object(Members::of(members)),
        }
    }

    /// The type, if there was a value.
    pub(super) fn field_type(&self) -> Option<FieldType> {
        Some(match self {
            Infer::Unknown => return None,
            Infer::Bool => FieldType::Bool,
            Infer::Int { .. } => FieldType::Int64,
            Infer::Double => FieldType::Double,
            Infer::String => FieldType::String,
            Infer::Timestamp => FieldType::Timestamp,
            Infer::Binary => FieldType::Binary,
            Infer::List(item) => FieldType::List(Box::new(item.field_type().unwrap_or(FieldType::Unknown))),
            Infer::Object(members) => FieldType::Object(members.field_types()),
        })
    }

    /// Lets the type grow by a value, or says why it cannot.
    pub(super) fn take(&mut self, value: &Cell<'_>, path: &str, limits: &mut Limits) -> Result<(), RuleError> {
        if let Infer::Unknown = self {
            *self = match value {
                Cell::Null => return Ok(()),
                Cell::Bool(_) => Infer::Bool,
                Cell::Int(_) => Infer::Int { unfit: false },
                Cell::Double(_) => Infer::Double,
                Cell::String(_) => Infer::String,
                Cell::Date(_) => Infer::Timestamp,
                Cell::Binary(_) => Infer::Binary,
                Cell::Nested(value) if matches!(**value, Value::Array(_)) => Infer::List(Box::new(Infer::Unknown)),
                Cell::Nested(_) => Infer::Object(Members::of(&[])),
            };
        }
        match (&mut *self, value) {
            (_, Cell::Null)
            | (Infer::Bool, Cell::Bool(_))
            | (Infer::Double, Cell::Double(_))
            | (Infer::String, Cell::String(_)) => Ok(()),
            (Infer::Int { unfit }, Cell::Int(i)) => {
                *unfit |= !int_fits_double(*i);
                Ok(())
            }
            (Infer::Int { unfit }, Cell::Double(d)) if exact_int(*d).is_none() => {
                if *unfit {
                    return Err(mismatch(path, &FieldType::Int64, "a double, which cannot hold its other values"));
                }
                *self = Infer::Double;
                Ok(())
            }
            (Infer::Int { .. }, Cell::Double(_)) => Ok(()),
            (Infer::Double, Cell::Int(i)) if int_fits_double(*i) => Ok(()),
            (Infer::Double, Cell::Int(i)) => {
                Err(mismatch(path, &FieldType::Double, &format!("an int64 ({i}) that no double holds exactly")))
            }
            (Infer::Timestamp, Cell::Date(t)) => limits.units(*t, path).map(|_| ()),
            (Infer::Binary, Cell::Binary(bytes)) => limits.add_items(bytes.len(), path),
            (_, Cell::Nested(nested)) => self.take_nested(nested, path, limits),
            _ => self.refuse(value, path),
        }
    }

    fn take_nested(&mut self, value: &Value, path: &str, limits: &mut Limits) -> Result<(), RuleError> {
        match (&mut *self, value) {
            (Infer::List(item), Value::Array(values)) => {
                limits.add_items(values.len(), path)?;
                values.iter().try_for_each(|value| match value {
                    Value::Array(_) => Err(nested_list(path, "lists")),
                    Value::Object(_) => Err(nested_list(path, "objects")),
                    value => item.take(&Cell::from(value), path, limits),
                })
            }
            (Infer::Object(members), Value::Object(values)) => {
                members.begin();
                values
                    .iter()
                    .try_for_each(|(name, value)| members.take(name, &Cell::from(value), Some(path), limits).map(drop))
            }
            _ => self.refuse(&Cell::from(value), path),
        }
    }

    fn refuse(&self, value: &Cell<'_>, path: &str) -> Result<(), RuleError> {
        Err(mismatch(path, &self.field_type().unwrap_or(FieldType::Unknown), &value.type_with_article()))
    }
}

/// The fields of a document or members of an object.
pub(super) struct Members {
    list: Vec<Member>,
    index: AHashMap<String, usize>,
    /// Counts the objects read, to detect a name that occurs twice in one object.
    object: u64,
    next: usize,
}

struct Member {
    name: String,
    ty: Infer,
    seen_in: u64,
}

impl Members {
    pub(super) fn of(members: &[(String, FieldType)]) -> Members {
        Members {
            list: members
                .iter()
                .map(|(name, ty)| Member { name: name.clone(), ty: Infer::of(ty), seen_in: 0 })
                .collect(),
            index: members.iter().enumerate().map(|(i, (name, _))| (name.clone(), i)).collect(),
            object: 0,
            next: 0,
        }
    }

    pub(super) fn field_types(&self) -> Vec<(String, FieldType)> {
        self.list.iter().filter_map(|m| Some((m.name.clone(), m.ty.field_type()?))).collect()
    }

    /// All names, with the types of those that had a value.
    pub(super) fn into_types(self) -> impl Iterator<Item = (String, Option<FieldType>)> {
        self.list.into_iter().map(|m| (m.name, m.ty.field_type()))
    }

    /// A new object begins.
    pub(super) fn begin(&mut self) {
        self.object += 1;
        self.next = 0;
    }

    /// The index of a name, if it is the name expected next; documents of one source mostly have the same order.
    pub(super) fn expected(&self, name: &str) -> Option<usize> {
        self.list.get(self.next).is_some_and(|m| m.name == name).then_some(self.next)
    }

    /// Adds a member of the current object and returns its index among all members; `parent` is the object's path.
    pub(super) fn take(
        &mut self,
        name: &str,
        value: &Cell<'_>,
        parent: Option<&str>,
        limits: &mut Limits,
    ) -> Result<usize, RuleError> {
        let at = match self.expected(name).or_else(|| self.index.get(name).copied()) {
            Some(at) => at,
            None => {
                limits.add_field(name)?;
                self.index.insert(name.to_owned(), self.list.len());
                self.list.push(Member { name: name.to_owned(), ty: Infer::Unknown, seen_in: 0 });
                self.list.len() - 1
            }
        };
        self.take_at(at, value, parent, limits)?;
        Ok(at)
    }

    /// The same for a member whose index is known.
    pub(super) fn take_at(
        &mut self,
        at: usize,
        value: &Cell<'_>,
        parent: Option<&str>,
        limits: &mut Limits,
    ) -> Result<(), RuleError> {
        self.next = at + 1;
        let Member { name, ty, seen_in } = &mut self.list[at];
        if std::mem::replace(seen_in, self.object) == self.object {
            return Err(RuleError::new(Code::BadValue, format!("field '{}' is there twice", path_of(parent, name))));
        }
        match parent {
            Some(parent) => ty.take(value, &path_of(Some(parent), name), limits),
            None => ty.take(value, name, limits),
        }
    }
}

fn path_of(parent: Option<&str>, name: &str) -> String {
    parent.map_or_else(|| name.to_owned(), |p| format!("{p}.{name}"))
}

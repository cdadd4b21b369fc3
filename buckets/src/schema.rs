//! The fields of a collection and their types, how they grow, and their Arrow schema.

use crate::time_units::timestamp_type;
use arrow::datatypes::{DataType, Field, Fields, Schema as ArrowSchema, SchemaRef};
use arrow::error::ArrowError;
use ebbtide_ttl::{Code, Precision, RuleError};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The type of a field, fixed by its first value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FieldType {
    /// The items of lists that were all empty so far. Joins with every type; a column never has it.
    Unknown,
    /// True or false.
    Bool,
    /// A whole number of 64 bits.
    Int64,
    /// A floating-point number of 64 bits.
    Double,
    /// Text.
    String,
    /// An instant in the collection's precision.
    Timestamp,
    /// Bytes.
    Binary,
    /// A list of items of one type.
    List(Box<FieldType>),
    /// Named members, in order of first appearance.
    Object(Vec<(String, FieldType)>),
}

impl FieldType {
    /// The canonical Arrow type. Items of an unknown type are nulls in a boolean column.
    #[must_use]
    pub fn arrow(&self, precision: Precision) -> DataType {
        match self {
            FieldType::Unknown | FieldType::Bool => DataType::Boolean,
            FieldType::Int64 => DataType::Int64,
            FieldType::Double => DataType::Float64,
            FieldType::String => DataType::Utf8View,
            FieldType::Timestamp => timestamp_type(precision),
            FieldType::Binary => DataType::Binary,
            FieldType::List(item) => DataType::List(Arc::new(Field::new("item", item.arrow(precision), true))),
            FieldType::Object(members) => DataType::Struct(
                members.iter().map(|(name, ty)| Field::new(name, ty.arrow(precision), true)).collect::<Fields>(),
            ),
        }
    }

    /// The field type that holds the values of an Arrow type; `None` for Null and for types that no field has.
    #[must_use]
    pub fn from_arrow(ty: &DataType) -> Option<FieldType> {
        use DataType as D;
        Some(match ty {
            D::Boolean => FieldType::Bool,
            D::Int8 | D::Int16 | D::Int32 | D::Int64 | D::UInt8 | D::UInt16 | D::UInt32 | D::UInt64 => FieldType::Int64,
            D::Float16 | D::Float32 | D::Float64 => FieldType::Double,
            D::Decimal32(..) | D::Decimal64(..) | D::Decimal128(..) | D::Decimal256(..) => FieldType::Double,
            D::Utf8 | D::LargeUtf8 | D::Utf8View => FieldType::String,
            D::Date32 | D::Date64 | D::Timestamp(..) => FieldType::Timestamp,
            D::Binary | D::LargeBinary | D::BinaryView | D::FixedSizeBinary(_) => FieldType::Binary,
            D::Dictionary(_, values) => FieldType::from_arrow(values)?,
            D::RunEndEncoded(_, values) => FieldType::from_arrow(values.data_type())?,
            D::List(item) | D::LargeList(item) | D::FixedSizeList(item, _) => {
                FieldType::List(Box::new(match item.data_type() {
                    D::Null => FieldType::Unknown,
                    item => FieldType::from_arrow(item)?,
                }))
            }
            D::Struct(members) => {
                let mut out = Vec::with_capacity(members.len());
                for member in members.iter().filter(|m| m.data_type() != &D::Null) {
                    out.push((member.name().clone(), FieldType::from_arrow(member.data_type())?));
                }
                FieldType::Object(out)
            }
            _ => return None,
        })
    }

    /// The name for messages: `int64`, `list of string`, `object`.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            FieldType::Unknown => "unknown".to_owned(),
            FieldType::Bool => "bool".to_owned(),
            FieldType::Int64 => "int64".to_owned(),
            FieldType::Double => "double".to_owned(),
            FieldType::String => "string".to_owned(),
            FieldType::Timestamp => "timestamp".to_owned(),
            FieldType::Binary => "binary".to_owned(),
            FieldType::List(item) if **item == FieldType::Unknown => "list".to_owned(),
            FieldType::List(item) => format!("list of {}", item.name()),
            FieldType::Object(_) => "object".to_owned(),
        }
    }

    /// The name with its article: `an int64`.
    pub(crate) fn a_name(&self) -> String {
        with_article(&self.name())
    }

    /// The least type that holds the values of both. `path` names the field in the error.
    pub(crate) fn join(&self, other: &FieldType, path: &str) -> Result<FieldType, RuleError> {
        use FieldType as F;
        Ok(match (self, other) {
            (F::Unknown, ty) | (ty, F::Unknown) => ty.clone(),
            (F::Int64, F::Double) | (F::Double, F::Int64) => F::Double,
            (F::List(a), F::List(b)) => match a.join(b, path) {
                Ok(item) => F::List(Box::new(item)),
                Err(_) if !matches!((&**a, &**b), (F::Object(_), F::Object(_))) => {
                    return Err(mismatch(path, self, &other.a_name()));
                }
                Err(error) => return Err(error),
            },
            (F::Object(a), F::Object(b)) => F::Object(join_members(a, b, Some(path))?),
            (a, b) if a == b => a.clone(),
            (a, b) => return Err(mismatch(path, a, &b.a_name())),
        })
    }

    /// The type less objects without members, at any depth; `None` if nothing is left.
    fn without_empty_objects(&self) -> Option<FieldType> {
        self.without(&|_: &FieldType| false)
    }

    /// Whether it is a list that has had no items.
    fn is_list_of_nothing(&self) -> bool {
        matches!(self, FieldType::List(item) if **item == FieldType::Unknown)
    }

    /// The type less what is unwanted and objects without other members, at any depth; `None` if nothing is left.
    fn without(&self, is_unwanted: &impl Fn(&FieldType) -> bool) -> Option<FieldType> {
        if is_unwanted(self) {
            return None;
        }
        let FieldType::Object(members) = self else { return Some(self.clone()) };
        let members = members.iter().filter_map(|(name, ty)| Some((name.clone(), ty.without(is_unwanted)?)));
        Some(members.collect::<Vec<_>>()).filter(|members| !members.is_empty()).map(FieldType::Object)
    }

    /// Number of fields in this type, including itself.
    pub(crate) fn field_count(&self) -> usize {
        match self {
            FieldType::List(item) => item.field_count(),
            FieldType::Object(members) => 1 + members.iter().map(|(_, ty)| ty.field_count()).sum::<usize>(),
            _ => 1,
        }
    }
}

/// Refuses a list whose items are `items`: lists or objects.
pub(crate) fn nested_list(path: &str, items: &str) -> RuleError {
    let message = format!(
        "field '{path}': the items of a list are bools, numbers, strings, timestamps or binaries, not {items}; \
         store them as fields of their own, or as text"
    );
    RuleError::new(Code::TypeMismatch, message)
}

pub(crate) fn with_article(name: &str) -> String {
    let article = if name.starts_with(['a', 'e', 'i', 'o']) { "an" } else { "a" };
    format!("{article} {name}")
}

pub(crate) fn mismatch(path: &str, ty: &FieldType, value: &str) -> RuleError {
    RuleError::new(Code::TypeMismatch, format!("field '{path}' is {}, the value is {value}", ty.name()))
}

fn join_members(
    a: &[(String, FieldType)],
    b: &[(String, FieldType)],
    path: Option<&str>,
) -> Result<Vec<(String, FieldType)>, RuleError> {
    let mut out = a.to_vec();
    let index: std::collections::HashMap<&str, usize> =
        a.iter().enumerate().map(|(i, (name, _))| (name.as_str(), i)).collect();
    for (at, (name, ty)) in b.iter().enumerate() {
        // Two versions of a schema usually have the same order.
        let known =
            if a.get(at).is_some_and(|(n, _)| n == name) { Some(at) } else { index.get(name.as_str()).copied() };
        match known {
            Some(i) if a[i].1 == *ty => {}
            Some(i) => {
                let path = path.map_or_else(|| name.clone(), |p| format!("{p}.{name}"));
                out[i].1 = a[i].1.join(ty, &path)?;
            }
            None => out.push((name.clone(), ty.clone())),
        }
    }
    Ok(out)
}

/// The fields of a collection: the time field, the meta field, and all others in order of first appearance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// The name of the time field.
    pub time: String,
    /// The name of the meta field, if the collection has one.
    pub meta: Option<String>,
    /// The unit of all stored times.
    pub precision: Precision,
    /// The type of the meta field, once there was a value.
    pub meta_type: Option<FieldType>,
    /// All other fields.
    pub fields: Vec<(String, FieldType)>,
}

impl Schema {
    /// The schema of a collection without measurements.
    #[must_use]
    pub fn new(time: impl Into<String>, meta: Option<String>, precision: Precision) -> Schema {
        Schema { time: time.into(), meta, precision, meta_type: None, fields: Vec::new() }
    }

    /// The schema less fields, and members of fields, that are objects without members: Parquet has no column for them.
    #[must_use]
    pub fn without_empty_objects(&self) -> Schema {
        let fields = self.fields.iter().filter_map(|(name, ty)| Some((name.clone(), ty.without_empty_objects()?)));
        Schema { fields: fields.collect(), ..self.clone() }
    }

    /// The schema less fields, and members of fields, that have no type yet: objects without members, and lists that have had no items. In a
    /// table that keeps its types, the items would have a type that later ones do not.
    #[must_use]
    pub fn without_untyped(&self) -> Schema {
        let typed = |ty: &FieldType| ty.without(&FieldType::is_list_of_nothing);
        let fields = self.fields.iter().filter_map(|(name, ty)| Some((name.clone(), typed(ty)?)));
        Schema { fields: fields.collect(), ..self.clone() }
    }

    /// The canonical Arrow schema: time (never null), meta if its type is known, then the fields.
    #[must_use]
    pub fn arrow(&self) -> SchemaRef {
        self.arrow_of(|_| true)
    }

    /// [`Schema::arrow`] with only some of the fields.
    #[must_use]
    pub fn arrow_of(&self, is_wanted: impl Fn(&str) -> bool) -> SchemaRef {
        let mut fields = vec![Field::new(&self.time, timestamp_type(self.precision), false)];
        if let (Some(meta), Some(ty)) = (&self.meta, &self.meta_type) {
            fields.push(Field::new(meta, ty.arrow(self.precision), true));
        }
        let wanted = self.fields.iter().filter(|(name, _)| is_wanted(name));
        fields.extend(wanted.map(|(name, ty)| Field::new(name, ty.arrow(self.precision), true)));
        Arc::new(ArrowSchema::new(fields))
    }

    /// [`Schema::arrow`] with these columns only, in this order.
    ///
    /// # Errors
    /// If it has no such column.
    pub fn arrow_columns(&self, columns: &[String]) -> Result<SchemaRef, ArrowError> {
        let unknown = |name: &String| ArrowError::SchemaError(format!("no column '{name}' in the schema"));
        let mut next = 0;
        let mut field = |name: &String| {
            let (at, ty) = self.column_near(next, name).ok_or_else(|| unknown(name))?;
            next = at + 1;
            Ok(Field::new(name, ty.arrow(self.precision), *name != self.time))
        };
        Ok(Arc::new(ArrowSchema::new(columns.iter().map(&mut field).collect::<Result<Vec<_>, ArrowError>>()?)))
    }

    /// The column with this number in [`Schema::column_names`], and its type.
    fn column_at(&self, at: usize) -> Option<(&str, &FieldType)> {
        if at == 0 {
            return Some((&self.time, &FieldType::Timestamp));
        }
        match (&self.meta, &self.meta_type) {
            (Some(meta), Some(ty)) if at == 1 => Some((meta, ty)),
            (Some(_), Some(_)) => self.fields.get(at - 2).map(|(name, ty)| (name.as_str(), ty)),
            _ => self.fields.get(at - 1).map(|(name, ty)| (name.as_str(), ty)),
        }
    }

    /// The number and the type of a column, which is probably the one with number `at`.
    pub(crate) fn column_near(&self, at: usize, name: &str) -> Option<(usize, &FieldType)> {
        match self.column_at(at) {
            Some((found, ty)) if found == name => Some((at, ty)),
            _ => Some((self.column_names().position(|column| column == name)?, self.field_type(name)?)),
        }
    }

    /// The names of the columns, in their order: the time, the meta if any measurement had one, and the fields.
    pub fn column_names(&self) -> impl Iterator<Item = &str> {
        let meta = self.meta.iter().filter(|_| self.meta_type.is_some());
        std::iter::once(&self.time).chain(meta).chain(self.fields.iter().map(|(name, _)| name)).map(String::as_str)
    }

    /// The type of a column, time and meta included.
    #[must_use]
    pub fn field_type(&self, name: &str) -> Option<&FieldType> {
        if name == self.time {
            return Some(&FieldType::Timestamp);
        }
        if self.meta.as_deref() == Some(name) {
            return self.meta_type.as_ref();
        }
        self.fields.iter().find(|(n, _)| n == name).map(|(_, ty)| ty)
    }

    /// The same schema with another name for a field. The time field and the meta field keep theirs.
    #[must_use]
    pub fn with_field_renamed(&self, from: &str, to: &str) -> Schema {
        let name = |name: &String| if name == from { to.to_owned() } else { name.clone() };
        let fields = self.fields.iter().map(|(field, ty)| (name(field), ty.clone())).collect();
        Schema { fields, ..self.clone() }
    }

    /// The same schema without a field. The time field and the meta field stay.
    #[must_use]
    pub fn without_field(&self, name: &str) -> Schema {
        let fields = self.fields.iter().filter(|(field, _)| field != name).cloned().collect();
        Schema { fields, ..self.clone() }
    }

    /// The least schema that holds the values of both: new fields are added, int64 meets double as double at every
    /// depth, members of objects are merged. The caller checks that stored integers fit into doubles.
    ///
    /// # Errors
    /// `TypeMismatch` that names the field, its type and the other type; `InvalidOptions` if the two are not of one
    /// collection.
    pub fn join(&self, other: &Schema) -> Result<Schema, RuleError> {
        if (&self.time, &self.meta, self.precision) != (&other.time, &other.meta, other.precision) {
            return Err(RuleError::new(
                Code::InvalidOptions,
                "the schemas differ in time field, meta field or precision",
            ));
        }
        let meta_type = match (&self.meta_type, &other.meta_type) {
            (Some(a), Some(b)) => Some(a.join(b, self.meta.as_deref().unwrap_or("meta"))?),
            (a, b) => a.clone().or_else(|| b.clone()),
        };
        Ok(Schema {
            time: self.time.clone(),
            meta: self.meta.clone(),
            precision: self.precision,
            meta_type,
            fields: join_members(&self.fields, &other.fields, None)?,
        })
    }
}

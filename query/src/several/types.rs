//! Types for the values of several databases.

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use datafusion::common::{Result, plan_err};
use ebbtide_buckets::FieldType;
use ebbtide_ttl::Precision;
use std::sync::Arc;

/// The columns of all tables, each with a type for the values of all; and the names of those for which there is none.
pub(super) fn common(schemas: impl Iterator<Item = SchemaRef>) -> Result<(SchemaRef, Vec<String>)> {
    let (mut columns, mut clashes, mut tables) = (Vec::<(FieldRef, usize)>::new(), Vec::new(), 0);
    for schema in schemas {
        tables += 1;
        for field in schema.fields() {
            let Some((known, occurs)) = columns.iter_mut().find(|(known, _)| known.name() == field.name()) else {
                columns.push((Arc::clone(field), 1));
                continue;
            };
            *occurs += 1;
            match joined(known.data_type(), field.data_type()) {
                Some(ty) => *known = Arc::new(Field::new(field.name(), ty, known.is_nullable() || field.is_nullable())),
                None => clashes.push(field.name().clone()),
            }
        }
    }
    if tables == 0 {
        return plan_err!("no database has the table");
    }
    let nullable = |(field, occurs): (FieldRef, usize)| match occurs < tables {
        true => Field::new(field.name(), field.data_type().clone(), true),
        false => field.as_ref().clone(),
    };
    Ok((Arc::new(Schema::new(columns.into_iter().map(nullable).collect::<Vec<_>>())), clashes))
}

/// The type for the values of two, as a collection gets it: integers meet doubles as doubles, members of objects are merged, and of
/// two precisions the finer one holds both.
fn joined(a: &DataType, b: &DataType) -> Option<DataType> {
    let item = |a: &FieldRef, b: &FieldRef| {
        let ty = joined(a.data_type(), b.data_type())?;
        Some(Arc::new(Field::new(a.name(), ty, a.is_nullable() || b.is_nullable())))
    };
    match (a, b) {
        (a, b) if a == b => Some(a.clone()),
        (DataType::Null, other) | (other, DataType::Null) => Some(other.clone()),
        (DataType::Int64, DataType::Float64) | (DataType::Float64, DataType::Int64) => Some(DataType::Float64),
        (DataType::Timestamp(a, zone), DataType::Timestamp(b, other)) if zone == other => {
            Some(DataType::Timestamp(finer(*a, *b), zone.clone()))
        }
        (DataType::List(a), DataType::List(b)) => Some(DataType::List(item(a, b)?)),
        (DataType::Struct(a), DataType::Struct(b)) => {
            let mut members: Vec<FieldRef> = a.iter().cloned().collect();
            for member in b {
                match members.iter_mut().find(|known| known.name() == member.name()) {
                    Some(known) => *known = item(known, member)?,
                    None => members.push(Arc::clone(member)),
                }
            }
            // One that only some have is null elsewhere.
            let missing = |field: &FieldRef| [a, b].iter().any(|fields| fields.find(field.name()).is_none());
            let nullable = |field: FieldRef| match missing(&field) {
                true => Arc::new(Field::new(field.name(), field.data_type().clone(), true)),
                false => field,
            };
            Some(DataType::Struct(members.into_iter().map(nullable).collect::<Fields>()))
        }
        _ => None,
    }
}

fn finer(a: TimeUnit, b: TimeUnit) -> TimeUnit {
    let rank = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 1,
        TimeUnit::Microsecond => 2,
        TimeUnit::Nanosecond => 3,
    };
    if rank(&a) >= rank(&b) { a } else { b }
}

/// Stands for texts that are JSON, until the type of the column is known: other texts have nothing in common with them.
pub(super) const JSON: DataType = DataType::LargeUtf8;

/// The type of a field, where items of lists that were all empty are nulls.
pub(super) fn unknown_as_null(ty: &FieldType, precision: Precision) -> DataType {
    match ty {
        FieldType::Unknown => DataType::Null,
        FieldType::List(item) => DataType::List(Arc::new(Field::new("item", unknown_as_null(item, precision), true))),
        FieldType::Object(members) => {
            let member = |(name, ty): &(String, FieldType)| Field::new(name, unknown_as_null(ty, precision), true);
            DataType::Struct(members.iter().map(member).collect::<Fields>())
        }
        ty => ty.arrow(precision),
    }
}

/// A type for values that was joined: what is still unknown has the type that it has in one database.
pub(super) fn settled(ty: &DataType) -> DataType {
    let field = |field: &FieldRef| Arc::new(Field::new(field.name(), settled(field.data_type()), field.is_nullable()));
    match ty {
        DataType::LargeUtf8 => DataType::Utf8View,
        DataType::List(item) if item.data_type().is_null() => {
            DataType::List(Arc::new(Field::new(item.name(), DataType::Boolean, item.is_nullable())))
        }
        DataType::List(item) => DataType::List(field(item)),
        DataType::Struct(members) => DataType::Struct(members.iter().map(field).collect::<Fields>()),
        ty => ty.clone(),
    }
}

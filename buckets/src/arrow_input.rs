//! Converts a user's Arrow batch to a canonical one. Columns that are canonical already are not copied.

use crate::adapt::adapt_to;
use crate::build::timestamps;
use crate::columns::with_unknown;
use crate::documents::{Accepted, BatchError};
use crate::limits::{DOCUMENT_BYTES_MAX, FIELDS_MAX, NESTING_MAX, begin, check_name, too_large};
use crate::schema::{FieldType, Schema, mismatch, nested_list};
use crate::time_units::{timestamp_type, unit_nanos};
use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, ListArray, RecordBatch, RecordBatchOptions,
    StructArray, TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray, UInt64Array,
};
use arrow::compute::{CastOptions, cast_with_options, nullif, take};
use arrow::datatypes::{
    DataType, Decimal128Type, Field, Fields, Float64Type, Int64Type, Schema as ArrowSchema, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use ebbtide_ttl::{Code, Precision, RuleError, exact_int, int_fits_double};
use std::collections::HashSet;
use std::sync::Arc;

/// Doubles hold all integers up to this one.
const DOUBLE_INTS: f64 = 9_007_199_254_740_992.0;

/// Checks a user's batch and converts it to canonical form: all of its rows, or none.
///
/// # Errors
/// Names the first row that breaks a rule: no time, a value of another type, a number that does not fit.
pub fn batch_from_arrow(batch: &RecordBatch, schema: &Schema) -> Result<Accepted, BatchError> {
    let precision = schema.precision;
    let mut time = None;
    let mut found = Schema { meta_type: None, fields: Vec::new(), ..schema.clone() };
    let mut fields = Vec::new();
    let mut arrays = Vec::new();
    check_once(batch.schema_ref().fields(), "")?;
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        let name = field.name();
        check_name(name).map_err(|e| BatchError::new(0, e))?;
        if *name == schema.time {
            time = Some(time_column(column, name, precision)?);
            continue;
        }
        let Some(ty) = column_type(column, name)? else { continue };
        let known = schema.field_type(name);
        let to_batch = Place { path: name, rows: &|row| row, precision };
        let Some(array) = canonical(column, &ty, known, &to_batch)? else { continue };
        check_values(&array, &to_batch)?;
        let ty = with_unknown(reconciled(&ty, array.data_type()), &array);
        if let Some(known) = known {
            known.join(&ty, name).map_err(|e| BatchError::new(first_value(column), e))?;
        }
        fields.push(Field::new(name, array.data_type().clone(), true));
        arrays.push(array);
        if schema.meta.as_ref() == Some(name) {
            found.meta_type = Some(ty);
        } else {
            found.fields.push((name.clone(), ty));
        }
    }
    let Some(time) = time else {
        return Err(BatchError::bad_value(0, format!("the time field '{}' is missing", schema.time)));
    };
    let schema = schema.join(&found).map_err(|e| BatchError::new(0, e))?;
    let count: usize =
        schema.fields.iter().map(|(_, ty)| ty).chain(&schema.meta_type).map(FieldType::field_count).sum();
    if count > FIELDS_MAX {
        return Err(BatchError::bad_value(0, format!("{count} fields are more than {FIELDS_MAX}")));
    }
    fields.insert(0, Field::new(&schema.time, time.data_type().clone(), false));
    arrays.insert(0, time);
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let batch = RecordBatch::try_new_with_options(Arc::new(ArrowSchema::new(fields)), arrays, &options)
        .and_then(|batch| adapt_to(&batch, schema.arrow()))
        .map_err(|e| BatchError::from_arrow(&e))?;
    Ok(Accepted { batch, schema, meta_numbers: None })
}

/// Refuses a name that is there twice. `above` is what comes before a name in messages.
fn check_once(fields: &Fields, above: &str) -> Result<(), BatchError> {
    let mut names = HashSet::with_capacity(fields.len());
    match fields.iter().find(|field| !names.insert(field.name())) {
        None => Ok(()),
        Some(field) => Err(BatchError::bad_value(0, format!("field '{above}{}' is there twice", field.name()))),
    }
}

fn first_value(column: &ArrayRef) -> usize {
    (0..column.len()).find(|row| column.is_valid(*row)).unwrap_or(0)
}

/// The field type of a column; `None` if it holds nothing but nulls.
fn column_type(column: &ArrayRef, name: &str) -> Result<Option<FieldType>, BatchError> {
    if column.logical_null_count() == column.len() {
        return Ok(None);
    }
    if depth(column.data_type()) > NESTING_MAX {
        return Err(BatchError::bad_value(0, format!("field '{}' nests deeper than {NESTING_MAX}", begin(name))));
    }
    let unsupported = || {
        let message = format!("field '{name}': no field holds Arrow's {}; cast it first", column.data_type());
        BatchError::new(first_value(column), RuleError::new(Code::TypeMismatch, message))
    };
    FieldType::from_arrow(column.data_type()).ok_or_else(unsupported).map(Some)
}

fn depth(ty: &DataType) -> usize {
    match ty {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            1 + depth(item.data_type())
        }
        DataType::Struct(members) => 1 + members.iter().map(|m| depth(m.data_type())).max().unwrap_or(0),
        _ => 0,
    }
}

/// The position of an array in the batch, for messages.
struct Place<'a> {
    path: &'a str,
    /// The row of the batch that a place in the array belongs to.
    rows: &'a dyn Fn(usize) -> usize,
    precision: Precision,
}

impl Place<'_> {
    fn error(&self, at: usize, error: RuleError) -> BatchError {
        BatchError::new((self.rows)(at), error)
    }
}

/// Casts to the canonical type of `ty`; whole doubles become ints where the field is int64, and ints are checked where
/// it is double. `None` if there are only nulls.
fn canonical(
    array: &ArrayRef,
    ty: &FieldType,
    known: Option<&FieldType>,
    place: &Place<'_>,
) -> Result<Option<ArrayRef>, BatchError> {
    let plain = match array.data_type() {
        DataType::Dictionary(_, values) => Some(values.as_ref().clone()),
        DataType::RunEndEncoded(_, values) => Some(values.data_type().clone()),
        _ => None,
    };
    if let Some(plain) = plain {
        return canonical(&cast(array, &plain, place)?, ty, known, place);
    }
    if array.null_count() == array.len() && !array.is_empty() {
        return Ok(None);
    }
    let nested = |items| Err(place.error(first_value(array), nested_list(place.path, items)));
    Ok(Some(match ty {
        FieldType::List(item) if matches!(**item, FieldType::List(_)) => return nested("lists"),
        FieldType::List(item) if matches!(**item, FieldType::Object(_)) => return nested("objects"),
        FieldType::List(item) => canonical_list(array, item, known, place)?,
        FieldType::Object(members) => canonical_object(array, members, known, place)?,
        FieldType::Timestamp => instants(array, place)?,
        FieldType::Double => {
            let doubles = match array.data_type().is_decimal() {
                true => doubles_of_decimals(array, place)?,
                false => cast(array, &DataType::Float64, place)?,
            };
            match known {
                Some(FieldType::Int64) => whole_numbers(&doubles).unwrap_or(doubles),
                _ => doubles,
            }
        }
        FieldType::Int64 => {
            let ints = cast(array, &DataType::Int64, place)?;
            if let Some(FieldType::Double) = known {
                check_fit(ints.as_primitive(), place)?;
            }
            ints
        }
        other => cast(array, &other.arrow(place.precision), place)?,
    }))
}

/// The type with Int64 where doubles have become ints and without members that hold only nulls.
fn reconciled(ty: &FieldType, arrow: &DataType) -> FieldType {
    match (ty, arrow) {
        (FieldType::Double, DataType::Int64) => FieldType::Int64,
        (FieldType::List(item), DataType::List(field)) => FieldType::List(Box::new(match field.data_type() {
            DataType::Null => FieldType::Unknown,
            field => reconciled(item, field),
        })),
        (FieldType::Object(members), DataType::Struct(fields)) => FieldType::Object(
            fields
                .iter()
                .filter_map(|field| {
                    let (name, ty) = members.iter().find(|(name, _)| name == field.name())?;
                    Some((name.clone(), reconciled(ty, field.data_type())))
                })
                .collect(),
        ),
        (ty, _) => ty.clone(),
    }
}

/// Checks that no text and no binary value is too large.
fn check_values(array: &ArrayRef, place: &Place<'_>) -> Result<(), BatchError> {
    let limit = |at: Option<usize>| match at {
        None => Ok(()),
        Some(at) => {
            let message = format!("field '{}': a value of more than {DOCUMENT_BYTES_MAX} bytes", place.path);
            Err(place.error(at, too_large(message)))
        }
    };
    match array.data_type() {
        // The low 32 bits of a view are its length.
        DataType::Utf8View => {
            limit(array.as_string_view().views().iter().position(|view| *view as u32 as usize > DOCUMENT_BYTES_MAX))
        }
        DataType::Binary => {
            let offsets = array.as_binary::<i32>().offsets();
            limit(offsets.windows(2).position(|pair| (pair[1] - pair[0]) as usize > DOCUMENT_BYTES_MAX))
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let offsets = list.offsets();
            let rows = |at: usize| (place.rows)(offsets.partition_point(|o| *o as usize <= at).saturating_sub(1));
            check_values(list.values(), &Place { path: place.path, rows: &rows, precision: place.precision })
        }
        DataType::Struct(_) => array.as_struct().columns().iter().try_for_each(|column| check_values(column, place)),
        _ => Ok(()),
    }
}

fn cast(array: &ArrayRef, to: &DataType, place: &Place<'_>) -> Result<ArrayRef, BatchError> {
    if array.data_type() == to {
        return Ok(array.clone());
    }
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(array, to, &strict).map_err(|error| {
        // The lenient cast leaves a null where the strict one failed: that is the row to name.
        let lenient = cast_with_options(array, to, &CastOptions::default());
        let at = lenient.ok().and_then(|cast| (0..array.len()).find(|i| array.is_valid(*i) && cast.is_null(*i)));
        let message = format!("field '{}': {error}", place.path);
        place.error(at.unwrap_or(0), RuleError::new(Code::TypeMismatch, message))
    })
}

fn check_fit(ints: &Int64Array, place: &Place<'_>) -> Result<(), BatchError> {
    match ints.iter().enumerate().find_map(|(at, i)| i.filter(|i| !int_fits_double(*i)).map(|i| (at, i))) {
        None => Ok(()),
        Some((at, i)) => {
            let value = format!("an int64 ({i}) that no double holds exactly");
            Err(place.error(at, mismatch(place.path, &FieldType::Double, &value)))
        }
    }
}

/// Decimals as the nearest doubles, which must hold their whole parts: only a fraction may be rounded.
fn doubles_of_decimals(array: &ArrayRef, place: &Place<'_>) -> Result<ArrayRef, BatchError> {
    if let Some(doubles) = short_decimals(array) {
        return Ok(Arc::new(doubles));
    }
    // Arrow's own cast rounds twice.
    let texts = cast(array, &DataType::Utf8, place)?;
    let double = |(at, text): (usize, Option<&str>)| {
        let Some(text) = text else { return Ok(None) };
        let nearest: f64 = text.parse().unwrap_or(f64::NAN);
        let whole = text.split('.').next().unwrap_or(text);
        let fits = nearest.abs() < DOUBLE_INTS || whole.parse::<f64>().is_ok_and(|d| format!("{d:.0}") == whole);
        if fits {
            return Ok(Some(nearest));
        }
        let value = format!("a decimal ({whole}) that no double holds exactly");
        Err(place.error(at, mismatch(place.path, &FieldType::Double, &value)))
    };
    let doubles: Float64Array = texts.as_string::<i32>().iter().enumerate().map(double).collect::<Result<_, _>>()?;
    Ok(Arc::new(doubles))
}

/// Decimals whose digits a double holds, divided by a power of ten that it holds too, which rounds once; `None` if there are others.
#[expect(clippy::cast_precision_loss, reason = "the digits fit")]
fn short_decimals(array: &ArrayRef) -> Option<Float64Array> {
    /// The greatest power of ten that a double holds.
    const POWER_MAX: i8 = 22;
    let DataType::Decimal128(_, scale @ 0..=POWER_MAX) = array.data_type() else { return None };
    let power: f64 = format!("1e{scale}").parse().ok()?;
    let decimals = array.as_primitive::<Decimal128Type>();
    let are_short = decimals.iter().flatten().all(|digits| digits.unsigned_abs() <= 1 << 53);
    are_short.then(|| decimals.unary(|digits| digits as f64 / power))
}

/// The doubles as ints, if all of them are integral.
fn whole_numbers(doubles: &ArrayRef) -> Option<ArrayRef> {
    let doubles: &Float64Array = doubles.as_primitive::<Float64Type>();
    if !doubles.iter().flatten().all(|d| exact_int(d).is_some()) {
        return None;
    }
    Some(Arc::new(doubles.unary::<_, Int64Type>(|d| exact_int(d).unwrap_or(0))))
}

fn canonical_list(
    array: &ArrayRef,
    item: &FieldType,
    known: Option<&FieldType>,
    place: &Place<'_>,
) -> Result<ArrayRef, BatchError> {
    let list_type = match array.data_type() {
        DataType::LargeList(field) | DataType::FixedSizeList(field, _) => DataType::List(field.clone()),
        other => other.clone(),
    };
    let list = cast(array, &list_type, place)?;
    let list = visible_items(list.as_list())?;
    let offsets = list.offsets().clone();
    let rows = |at: usize| (place.rows)(offsets.partition_point(|o| *o as usize <= at).saturating_sub(1));
    let known = match known {
        Some(FieldType::List(item)) => Some(&**item),
        _ => None,
    };
    let values = match item {
        FieldType::Unknown => None,
        item => {
            canonical(list.values(), item, known, &Place { path: place.path, rows: &rows, precision: place.precision })?
        }
    };
    // Items that are all null can have any type; they keep the given or the known one.
    let values = values.unwrap_or_else(|| {
        arrow::array::new_null_array(&known.unwrap_or(&FieldType::Unknown).arrow(place.precision), list.values().len())
    });
    let field = Arc::new(Field::new("item", values.data_type().clone(), true));
    ListArray::try_new(field, list.offsets().clone(), values, list.nulls().cloned())
        .map(|list| Arc::new(list) as ArrayRef)
        .map_err(|e| BatchError::from_arrow(&e))
}

/// The list without items that no row refers to: those of sliced-off rows, and those under a null.
fn visible_items(list: &ListArray) -> Result<ListArray, BatchError> {
    let offsets = list.value_offsets();
    let all = offsets.first() == Some(&0) && offsets.last().is_some_and(|end| *end as usize == list.values().len());
    if all && (list.null_count() == 0 || (0..list.len()).all(|row| list.is_valid(row) || list.value_length(row) == 0)) {
        return Ok(list.clone());
    }
    let rows = UInt64Array::from_iter_values(0..list.len() as u64);
    take(list, &rows, None).map(|list| list.as_list().clone()).map_err(|e| BatchError::from_arrow(&e))
}

/// A member of objects, without the values of those that are null.
fn visible_member(member: &ArrayRef, objects: &StructArray, place: &Place<'_>) -> Result<ArrayRef, BatchError> {
    let Some(nulls) = objects.nulls().filter(|nulls| nulls.null_count() > 0) else { return Ok(member.clone()) };
    let member = match member.data_type() {
        DataType::Null => return Ok(member.clone()),
        DataType::Dictionary(_, values) => cast(member, values, place)?,
        DataType::RunEndEncoded(_, values) => cast(member, values.data_type(), place)?,
        _ => member.clone(),
    };
    nullif(&member, &BooleanArray::new(!nulls.inner(), None)).map_err(|e| BatchError::from_arrow(&e))
}

fn canonical_object(
    array: &ArrayRef,
    members: &[(String, FieldType)],
    known: Option<&FieldType>,
    place: &Place<'_>,
) -> Result<ArrayRef, BatchError> {
    let object = array.as_struct();
    check_once(object.fields(), &format!("{}.", place.path))?;
    let mut fields = Vec::new();
    let mut columns = Vec::new();
    for (name, ty) in members {
        check_name(name).map_err(|e| place.error(0, e))?;
        let Some(column) = object.column_by_name(name) else { continue };
        let known = match known {
            Some(FieldType::Object(known)) => known.iter().find(|(n, _)| n == name).map(|(_, ty)| ty),
            _ => None,
        };
        let path = format!("{}.{name}", place.path);
        let inner = Place { path: &path, rows: place.rows, precision: place.precision };
        if let Some(column) = canonical(&visible_member(column, object, &inner)?, ty, known, &inner)? {
            fields.push(Field::new(name, column.data_type().clone(), true));
            columns.push(column);
        }
    }
    StructArray::try_new_with_length(Fields::from(fields), columns, object.nulls().cloned(), object.len())
        .map(|object| Arc::new(object) as ArrayRef)
        .map_err(|e| BatchError::from_arrow(&e))
}

fn time_column(column: &ArrayRef, name: &str, precision: Precision) -> Result<ArrayRef, BatchError> {
    let plain = match column.data_type() {
        DataType::Dictionary(_, values) => values.as_ref().clone(),
        DataType::RunEndEncoded(_, values) => values.data_type().clone(),
        other => other.clone(),
    };
    let place = Place { path: name, rows: &|row| row, precision };
    let null = || column.logical_nulls().and_then(|n| (0..column.len()).find(|row| n.is_null(*row)));
    if let (Some(row), true) = (null(), !column.is_empty()) {
        return Err(BatchError::bad_value(row, format!("the time field '{name}' is null")));
    }
    if !matches!(plain, DataType::Timestamp(..) | DataType::Date32 | DataType::Date64) {
        let given = FieldType::from_arrow(&plain).map_or_else(|| plain.to_string(), |ty| ty.a_name());
        return Err(BatchError::bad_value(0, format!("the time field '{name}' must be a timestamp, it is {given}")));
    }
    let array = instants(&cast(column, &plain, &place)?, &place)?;
    Ok(array)
}

/// Instants of any unit in units of the precision, floored towards minus infinity.
fn instants(array: &ArrayRef, place: &Place<'_>) -> Result<ArrayRef, BatchError> {
    let precision = place.precision;
    let to = timestamp_type(precision);
    if array.data_type() == &to {
        return Ok(array.clone());
    }
    let (raw, nanos): (ArrayRef, i128) = match array.data_type() {
        DataType::Date32 => (cast(array, &DataType::Int32, place)?, 86_400_000_000_000),
        DataType::Date64 => (cast(array, &DataType::Int64, place)?, 1_000_000),
        DataType::Timestamp(unit, _) => {
            if let Some(same) = same_unit(array, unit, precision) {
                return Ok(same);
            }
            (raw_units(array, unit), unit_nanos(*unit))
        }
        other => {
            let value = other.to_string();
            return Err(place.error(0, mismatch(place.path, &FieldType::Timestamp, &value)));
        }
    };
    let raw = cast(&raw, &DataType::Int64, place)?;
    let raw: &Int64Array = raw.as_primitive();
    let mut units = Vec::with_capacity(raw.len());
    for (at, value) in raw.iter().enumerate() {
        let instant = value.map(|v| ebbtide_ttl::Timestamp::from_nanos(i128::from(v) * nanos));
        let unit = instant.and_then(|t| t.to_units(precision));
        if let (Some(t), None) = (instant, unit) {
            let message = format!("field '{}': the precision {} does not reach to {t}", place.path, precision.name());
            return Err(place.error(at, RuleError::new(Code::BadValue, message)));
        }
        units.push(unit);
    }
    Ok(timestamps(units.into_iter(), precision))
}

/// The column itself, retyped to UTC, if its unit is the precision's. Zones only change how an instant is shown.
fn same_unit(array: &ArrayRef, unit: &TimeUnit, precision: Precision) -> Option<ArrayRef> {
    Some(match (unit, precision) {
        (TimeUnit::Millisecond, Precision::Ms) => {
            let array: &TimestampMillisecondArray = array.as_primitive();
            Arc::new(array.clone().with_timezone("UTC"))
        }
        (TimeUnit::Microsecond, Precision::Us) => {
            let array: &TimestampMicrosecondArray = array.as_primitive();
            Arc::new(array.clone().with_timezone("UTC"))
        }
        (TimeUnit::Nanosecond, Precision::Ns) => {
            let array: &TimestampNanosecondArray = array.as_primitive();
            Arc::new(array.clone().with_timezone("UTC"))
        }
        _ => return None,
    })
}

fn raw_units(array: &ArrayRef, unit: &TimeUnit) -> ArrayRef {
    match unit {
        TimeUnit::Second => Arc::new(array.as_primitive::<TimestampSecondType>().reinterpret_cast::<Int64Type>()),
        TimeUnit::Millisecond => {
            Arc::new(array.as_primitive::<TimestampMillisecondType>().reinterpret_cast::<Int64Type>())
        }
        TimeUnit::Microsecond => {
            Arc::new(array.as_primitive::<TimestampMicrosecondType>().reinterpret_cast::<Int64Type>())
        }
        TimeUnit::Nanosecond => {
            Arc::new(array.as_primitive::<TimestampNanosecondType>().reinterpret_cast::<Int64Type>())
        }
    }
}

#[cfg(test)]
mod tests;

//! Rows as documents: the values of Arrow arrays as BSON.

use super::cells::{DOCUMENT, WRITTEN};
use crate::error::{QueryError, Result};
use crate::output::instant;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type, TimeUnit};
use ebbtide::documents_model::bson::spec::BinarySubtype;
use ebbtide::documents_model::bson::{Binary, Bson, DateTime, Document, RawDocumentBuf};
use ebbtide::documents_model::json::document_from_slice;
use ebbtide_ttl::{Code, Precision};

/// The documents of rows whose columns are named as their fields; NULL leaves a field out. A column `document` alone holds whole
/// documents as Extended JSON. In the columns that are marked in `json`, each value is Extended JSON.
///
/// # Errors
/// [`Code::BadValue`] for values that documents do not hold, and columns that nobody writes.
pub(crate) fn documents_of(rows: &RecordBatch, names: &[String], json: &[bool]) -> Result<Vec<RawDocumentBuf>> {
    let wrong = |message: String| QueryError::new(Code::BadValue, message);
    if names.len() != rows.num_columns() {
        let message = format!(
            "the INSERT is into {} columns ({}) and gives {} values: name those that it gives, INSERT INTO c (_id, ...)",
            names.len(),
            names.join(", "),
            rows.num_columns()
        );
        return Err(wrong(message));
    }
    if let [only] = names
        && only == DOCUMENT
    {
        return whole_documents(&rows.columns()[0]);
    }
    if let Some(name) = names.iter().find(|name| [WRITTEN, DOCUMENT].contains(&name.as_str())) {
        let why = match name.as_str() {
            WRITTEN => "_ts is the instant of the last write, which each write sets",
            _ => "'document' is the whole document, and is inserted alone",
        };
        return Err(wrong(format!("{why}: leave the column out")));
    }
    let twice = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name));
    if let Some((_, name)) = twice {
        return Err(wrong(format!("column '{name}' is given twice")));
    }
    let columns = rows.columns().iter().map(plain).collect::<Result<Vec<_>>>()?;
    let mut documents = Vec::with_capacity(rows.num_rows());
    for row in 0..rows.num_rows() {
        let mut document = Document::new();
        for (at, (name, column)) in names.iter().zip(&columns).enumerate() {
            let value = match json.get(at) {
                Some(true) => value_of_json(column, row),
                _ => value_of(column, row),
            };
            let value = value.map_err(|e| wrong(format!("index {row}: column '{name}': {e}")))?;
            if let Some(value) = value {
                document.insert(name.clone(), value);
            }
        }
        documents.push(RawDocumentBuf::try_from(&document).map_err(|e| wrong(format!("index {row}: {e}")))?);
    }
    Ok(documents)
}

fn whole_documents(column: &ArrayRef) -> Result<Vec<RawDocumentBuf>> {
    let texts = cast(column, &DataType::Utf8)?;
    let texts = texts.as_string::<i32>();
    let mut documents = Vec::with_capacity(texts.len());
    for row in 0..texts.len() {
        if texts.is_null(row) {
            return Err(QueryError::new(Code::BadValue, format!("index {row}: a document cannot be NULL")));
        }
        let document = document_from_slice(texts.value(row).as_bytes());
        documents.push(document.map_err(|e| QueryError::new(e.code, format!("index {row}: {}", e.message)))?);
    }
    Ok(documents)
}

/// A column in one of the forms that [`value_of`] reads.
pub(crate) fn plain(column: &ArrayRef) -> Result<ArrayRef> {
    use DataType as D;
    Ok(match column.data_type() {
        D::Int8 | D::Int16 | D::Int32 | D::UInt8 | D::UInt16 | D::UInt32 | D::UInt64 => cast_safely(column, &D::Int64)?,
        D::Float16 | D::Float32 => cast(column, &D::Float64)?,
        D::Decimal32(..) | D::Decimal64(..) | D::Decimal128(..) | D::Decimal256(..) => cast(column, &D::Float64)?,
        D::LargeUtf8 | D::Utf8View => cast(column, &D::Utf8)?,
        D::LargeBinary | D::BinaryView | D::FixedSizeBinary(_) => cast(column, &D::Binary)?,
        D::Date32 | D::Date64 => cast(column, &D::Timestamp(TimeUnit::Millisecond, None))?,
        D::Dictionary(_, values) => plain(&cast(column, values)?)?,
        _ => column.clone(),
    })
}

fn cast_safely(column: &ArrayRef, ty: &DataType) -> Result<ArrayRef> {
    let cast = cast(column, ty)?;
    if cast.null_count() > column.null_count() {
        return Err(QueryError::new(Code::BadValue, "a whole number is greater than an int64 can be"));
    }
    Ok(cast)
}

/// The value that a text in Extended JSON stands for; `None` for NULL.
pub(crate) fn value_of_json(column: &ArrayRef, row: usize) -> std::result::Result<Option<Bson>, String> {
    const VALUE: &str = "value";
    let Some(texts) = column.as_string_opt::<i32>().filter(|texts| texts.is_valid(row)) else {
        return value_of(column, row);
    };
    let document = document_from_slice(format!("{{\"{VALUE}\":{}}}", texts.value(row)).as_bytes());
    let mut document = Document::try_from(document.map_err(|e| e.message)?).map_err(|e| e.to_string())?;
    Ok(document.remove(VALUE))
}

/// A value; `None` for NULL.
pub(crate) fn value_of(column: &ArrayRef, row: usize) -> std::result::Result<Option<Bson>, String> {
    if column.is_null(row) {
        return Ok(None);
    }
    let within = |inner: &ArrayRef, row: usize| -> std::result::Result<Option<Bson>, String> {
        value_of(&plain(inner).map_err(|e| e.to_string())?, row)
    };
    Ok(Some(match column.data_type() {
        DataType::Null => return Ok(None),
        DataType::Boolean => Bson::Boolean(column.as_boolean().value(row)),
        DataType::Int64 => Bson::Int64(column.as_primitive::<Int64Type>().value(row)),
        DataType::Float64 => Bson::Double(column.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => Bson::String(column.as_string::<i32>().value(row).to_owned()),
        DataType::Binary => {
            let bytes = column.as_binary::<i32>().value(row).to_vec();
            Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes })
        }
        DataType::Timestamp(..) => {
            let at = instant(column.as_ref(), row).ok_or("not a time")?;
            let ms = at.to_units(Precision::Ms).ok_or("the time is out of range")?;
            Bson::DateTime(DateTime::from_millis(ms))
        }
        DataType::List(_) => {
            let items = column.as_list::<i32>().value(row);
            let items = plain(&items).map_err(|e| e.to_string())?;
            let values = (0..items.len()).map(|at| Ok(value_of(&items, at)?.unwrap_or(Bson::Null)));
            Bson::Array(values.collect::<std::result::Result<_, String>>()?)
        }
        DataType::Struct(fields) => {
            let mut object = Document::new();
            for (field, member) in fields.iter().zip(column.as_struct().columns()) {
                if let Some(value) = within(member, row)? {
                    object.insert(field.name().clone(), value);
                }
            }
            Bson::Document(object)
        }
        other => return Err(format!("a document does not hold values of type {other}")),
    }))
}

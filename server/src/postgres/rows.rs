//! Rows of a statement as messages: each a row, or a piece of a copy.

use super::error::{Refusal, VALUE_OUT_OF_RANGE};
use super::instants::Instant;
use super::own::{Copy, CopyForm};
use super::{copy, texts};
use crate::shared::aside;
use crate::sql::{Sql, SqlError};
use arrow::array::{Array, ArrayRef};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use arrow_pg::encoder::Encoder;
use futures::StreamExt;
use futures::stream::BoxStream;
use pgwire::api::Type;
use pgwire::api::results::{DataRowEncoder, FieldFormat, FieldInfo};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::copy::CopyOutResponse;
use pgwire::messages::data::{FieldDescription, RowDescription};
use std::sync::Arc;

/// Whether a value has no form of its own in PostgreSQL, and is shown as JSON.
fn is_nested(kind: &DataType) -> bool {
    match kind {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => item.data_type().is_nested(),
        DataType::Dictionary(_, value) => is_nested(value),
        kind => kind.is_nested() || arrow_pg::datatypes::into_pg_type(kind).is_err(),
    }
}

/// The column that is encoded in the place of one.
fn encoded(field: &FieldRef) -> FieldRef {
    let kind = match field.data_type() {
        kind if is_nested(kind) => return Arc::new(Field::new(field.name(), DataType::Utf8, true)),
        DataType::Dictionary(_, value) => Some(value.as_ref().clone()),
        // What numbers rows, as `row_number()`, is a bigint in PostgreSQL.
        DataType::UInt64 => Some(DataType::Int64),
        DataType::List(item) => {
            known(item.data_type()).map(|kind| DataType::List(Arc::new(item.as_ref().clone().with_data_type(kind))))
        }
        kind => known(kind),
    };
    kind.map_or_else(|| Arc::clone(field), |kind| Arc::new(field.as_ref().clone().with_data_type(kind)))
}

/// The type of PostgreSQL's that holds the values of a type which it lacks: its smallest numbers have two bytes.
fn known(kind: &DataType) -> Option<DataType> {
    match kind {
        DataType::Int8 => Some(DataType::Int16),
        DataType::Float16 => Some(DataType::Float32),
        DataType::FixedSizeBinary(_) => Some(DataType::Binary),
        _ => None,
    }
}

/// The bytes of a value, or -1 if they differ.
fn size(kind: &Type) -> i16 {
    match *kind {
        Type::BOOL | Type::CHAR => 1,
        Type::INT2 => 2,
        Type::INT4 | Type::FLOAT4 | Type::OID | Type::DATE => 4,
        Type::INT8 | Type::FLOAT8 | Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::TIME => 8,
        Type::INTERVAL => 16,
        _ => -1,
    }
}

/// What clients are told of a column.
fn info(field: &FieldRef, format: FieldFormat) -> Result<FieldInfo, Refusal> {
    let kind = match field.data_type() {
        kind if is_nested(kind) => Type::JSON,
        // As PostgreSQL says of `SELECT NULL`.
        DataType::Null => Type::TEXT,
        _ => arrow_pg::datatypes::field_into_pg_type(&encoded(field))?,
    };
    let size = size(&kind);
    Ok(FieldInfo::new(field.name().clone(), None, None, kind, format).with_type_size(size))
}

/// The form of each column: one for all, or one for each; text if there is none.
fn format_of(formats: &[i16], at: usize) -> FieldFormat {
    let code = if formats.len() == 1 { formats.first() } else { formats.get(at) };
    FieldFormat::from(code.copied().unwrap_or_default())
}

fn infos(schema: &Schema, formats: &[i16]) -> Result<Arc<Vec<FieldInfo>>, Refusal> {
    let infos = schema.fields().iter().enumerate().map(|(at, field)| info(field, format_of(formats, at)));
    infos.collect::<Result<Vec<_>, _>>().map(Arc::new)
}

/// The columns of a statement, in these forms.
pub(super) fn description(schema: &Schema, formats: &[i16]) -> Result<PgWireBackendMessage, Refusal> {
    let fields = infos(schema, formats)?.iter().map(FieldDescription::from).collect();
    Ok(PgWireBackendMessage::RowDescription(RowDescription::new(fields)))
}

/// Whether a client that was told of some columns can read these: as many, with the same types and, if that is asked for, names. A
/// column of nulls may have any type.
pub(super) fn is_as_told(told: &Schema, found: &Schema, by_name: bool) -> Result<bool, Refusal> {
    if told.fields().len() != found.fields().len() {
        return Ok(false);
    }
    for (told, found) in told.fields().iter().zip(found.fields()) {
        let is_named = !by_name || told.name() == found.name();
        let kind = |field: &FieldRef| info(field, FieldFormat::Text).map(|info| info.datatype().clone());
        if !is_named || (*found.data_type() != DataType::Null && kind(told)? != kind(found)?) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Rows that are sent one after the other.
pub(super) struct Rows {
    pub(super) schema: SchemaRef,
    stream: BoxStream<'static, Result<RecordBatch, SqlError>>,
    infos: Arc<Vec<FieldInfo>>,
    fields: Vec<FieldRef>,
    encoder: DataRowEncoder,
    /// How rows are copied, if they are.
    copy: Option<Copy>,
    /// The batch that is sent, and the next row of it.
    batch: Option<(Vec<ArrayRef>, usize, usize)>,
    pub(super) sent: u64,
}

impl Rows {
    pub(super) fn new(
        schema: SchemaRef,
        stream: BoxStream<'static, Result<RecordBatch, SqlError>>,
        formats: &[i16],
    ) -> Result<Rows, Refusal> {
        let infos = infos(&schema, formats)?;
        let fields = schema.fields().iter().map(encoded).collect();
        let encoder = DataRowEncoder::new(Arc::clone(&infos));
        Ok(Rows { schema, stream, infos, fields, encoder, copy: None, batch: None, sent: 0 })
    }

    /// As the data of a copy, with the messages that it begins with.
    pub(super) fn copied(
        schema: SchemaRef,
        stream: BoxStream<'static, Result<RecordBatch, SqlError>>,
        copy: &Copy,
    ) -> Result<(Rows, Vec<PgWireBackendMessage>), Refusal> {
        let code = i16::from(copy.form == CopyForm::Binary);
        let names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
        let columns = i16::try_from(names.len()).unwrap_or(i16::MAX);
        let response = CopyOutResponse::new(i8::from(code == 1), columns, vec![code; names.len()]);
        let mut begin = vec![PgWireBackendMessage::CopyOutResponse(response)];
        begin.extend(copy::header(copy, &names).map(PgWireBackendMessage::CopyData));
        let rows = Rows { copy: Some(copy.clone()), ..Rows::new(schema, stream, &[code])? };
        Ok((rows, begin))
    }

    /// Waits for rows unless there are some. `false` at the end.
    pub(super) async fn fetch(&mut self, sql: &dyn Sql) -> Result<bool, Refusal> {
        loop {
            if self.batch.as_ref().is_some_and(|(_, at, rows)| at < rows) {
                return Ok(true);
            }
            let Some(batch) = self.stream.next().await else {
                self.batch = None;
                return Ok(false);
            };
            let batch = batch?;
            let fields = self.schema.fields().iter().zip(&self.fields);
            let columns = fields.zip(batch.columns()).map(|((field, encoded), column)| {
                Ok(match field.data_type() {
                    kind if is_nested(kind) => sql.json(column)?,
                    _ if column.data_type() != encoded.data_type() => converted(column, encoded)?,
                    _ => Arc::clone(column),
                })
            });
            let columns = aside(batch.get_array_memory_size(), || columns.collect::<Result<Vec<_>, Refusal>>())?;
            self.batch = Some((columns, 0, batch.num_rows()));
        }
    }

    /// The next of the rows that [`fetch`](Self::fetch) waited for.
    pub(super) fn next(&mut self) -> Result<Option<PgWireBackendMessage>, Refusal> {
        let Some((columns, at, rows)) = &mut self.batch else { return Ok(None) };
        if at == rows {
            return Ok(None);
        }
        let row = *at;
        *at += 1;
        for ((column, field), info) in columns.iter().zip(&self.fields).zip(self.infos.iter()) {
            cell(&mut self.encoder, column, row, field, info)?;
        }
        let encoded = self.encoder.take_row();
        let message = match &self.copy {
            None => PgWireBackendMessage::DataRow(encoded),
            Some(copy) => PgWireBackendMessage::CopyData(copy::row(copy, &encoded, self.sent == 0)),
        };
        self.sent += 1;
        Ok(Some(message))
    }
}

fn converted(column: &ArrayRef, to: &Field) -> Result<ArrayRef, Refusal> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(column, to.data_type(), &strict).map_err(|error| {
        let hint = format!("write CAST({} AS NUMERIC)", to.name());
        Refusal::new(VALUE_OUT_OF_RANGE, format!("column '{}': {error}; {hint}", to.name()))
    })
}

fn cell(
    encoder: &mut DataRowEncoder,
    column: &ArrayRef,
    row: usize,
    field: &Field,
    info: &FieldInfo,
) -> Result<(), Refusal> {
    if column.is_null(row) {
        return Ok(Encoder::encode_field(encoder, &None::<i8>, info)?);
    }
    match Instant::of(column, row) {
        Some(instant) => Ok(Encoder::encode_field(encoder, &instant, info)?),
        None => Ok(texts::encode(encoder, column, row, field, info)?),
    }
}

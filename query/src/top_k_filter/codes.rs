//! The partition of a row as a number, and the first sort key of a row as a number that rises with it.

use super::Partitions;
use crate::groups::{KnownTexts, Layout, Rows};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::{SortOptions, cast};
use datafusion::arrow::datatypes::{DataType, Field, Float32Type, Float64Type, Int64Type, Schema, UInt64Type};
use datafusion::common::{Result, internal_err};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use std::sync::Arc;

/// Without a partition, all rows have this one.
const NO_PARTITION: u128 = 0;

/// Both numbers of rows.
#[derive(Debug)]
pub(super) struct Codes {
    window: Partitions,
    layout: Option<Layout>,
}

impl Codes {
    /// `None` if values of these types have no such numbers. Partitions by doubles are left out: the layout gives -0.0 and 0.0 one
    /// number, and of two partitions that are taken for one, rows would be dropped. Nor may an expression give another value
    /// when it is computed again, as `random()` does.
    pub(super) fn of(schema: &Schema, window: &Partitions) -> Result<Option<Codes>> {
        let Partitions { partition_by, order } = window;
        let types = partition_by.iter().map(|expr| expr.data_type(schema)).collect::<Result<Vec<DataType>>>()?;
        if partition_by.iter().chain([&order.expr]).any(is_volatile) {
            return Ok(None);
        }
        if types.iter().any(DataType::is_floating) || !rises(&order.expr.data_type(schema)?) {
            return Ok(None);
        }
        let fields: Vec<Field> = types.into_iter().map(|data_type| Field::new("", data_type, true)).collect();
        let layout = Layout::of(&Arc::new(Schema::new(fields)), partition_by.len());
        let known = layout.is_some() || partition_by.is_empty();
        Ok(known.then(|| Codes { window: window.clone(), layout }))
    }

    pub(super) fn window(&self) -> &Partitions {
        &self.window
    }

    /// The partitions of rows; `false` if they have too many different texts, or no memory for them.
    pub(super) fn partitions(
        &self,
        batch: &RecordBatch,
        texts: &mut KnownTexts,
        into: &mut Rows<u128>,
    ) -> Result<bool> {
        let rows = batch.num_rows();
        let evaluated = |expr: &Arc<dyn PhysicalExpr>| expr.evaluate(batch)?.into_array(rows);
        let columns = self.window.partition_by.iter().map(evaluated).collect::<Result<Vec<ArrayRef>>>()?;
        match &self.layout {
            Some(layout) => layout.encode(&columns, texts, into),
            None => {
                into.keys.clear();
                into.keys.resize(rows, NO_PARTITION);
                Ok(true)
            }
        }
    }

    /// Numbers of the first sort key: the row that sorts first never has the greater one.
    pub(super) fn keys(&self, batch: &RecordBatch, into: &mut Vec<u64>) -> Result<()> {
        let column = self.window.order.expr.evaluate(batch)?.into_array(batch.num_rows())?;
        into.clear();
        match column.data_type() {
            DataType::Boolean => into.extend(column.as_boolean().values().iter().map(|value| u64::from(value) << 1)),
            DataType::Float32 => into.extend(column.as_primitive::<Float32Type>().values().iter().map(|value| {
                let bits = value.to_bits();
                u64::from(if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }) << 32
            })),
            DataType::Float64 => into.extend(column.as_primitive::<Float64Type>().values().iter().map(|value| {
                let bits = value.to_bits();
                if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
            })),
            DataType::UInt64 => into.extend_from_slice(column.as_primitive::<UInt64Type>().values()),
            DataType::Utf8View => {
                into.extend(column.as_string_view().iter().map(|text| prefix(text.unwrap_or_default())))
            }
            whole if is_whole(whole) => {
                let column = cast(&column, &DataType::Int64)?;
                into.extend(column.as_primitive::<Int64Type>().values().iter().map(|value| *value as u64 ^ 1 << 63));
            }
            other => return internal_err!("rows sorted by {other}"),
        }
        let SortOptions { descending, nulls_first } = self.window.order.options;
        // Half of the numbers leave room for nulls on both sides.
        into.iter_mut().for_each(|key| *key = (if descending { !*key } else { *key } >> 1) + 1);
        if let Some(nulls) = column.nulls() {
            let null = if nulls_first { 0 } else { u64::MAX };
            into.iter_mut().zip(nulls).filter(|(_, is_valid)| !is_valid).for_each(|(key, _)| *key = null);
        }
        Ok(())
    }
}

/// Whether a type has numbers that rise with its values.
fn rises(data_type: &DataType) -> bool {
    use DataType::{Boolean, Float32, Float64, UInt64, Utf8View};
    matches!(data_type, Boolean | Float32 | Float64 | UInt64 | Utf8View) || is_whole(data_type)
}

/// Whether values of a type are converted to whole numbers in their order.
fn is_whole(data_type: &DataType) -> bool {
    use DataType::{Date32, Int8, Int16, Int32, Int64, Timestamp, UInt8, UInt16, UInt32};
    matches!(data_type, Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | Timestamp(..) | Date32)
}

/// The first eight bytes of a text.
fn prefix(text: &str) -> u64 {
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(text.bytes()).for_each(|(byte, of_text)| *byte = of_text);
    u64::from_be_bytes(bytes)
}

//! A column in a wider type, exactly: what tables of several databases need to have the same columns.
//!
//! The type is that of the expression in the plan; SQL cannot call the function.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array, ListArray, StructArray, new_null_array};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, FieldRef, Float64Type, Int64Type};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use std::sync::{Arc, LazyLock};

const WIDENED: &str = "ebbtide_widened";

static FUNCTION: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| Arc::new(ScalarUDF::from(Widened { signature: Signature::any(1, Volatility::Immutable) })));

/// The function, for those who get plans with it from elsewhere.
#[cfg(feature = "workers")]
pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::clone(&FUNCTION)
}

/// A column of a plan in the type of a field.
pub(crate) fn widened(
    column: Arc<dyn PhysicalExpr>,
    to: &FieldRef,
    options: &Arc<ConfigOptions>,
) -> Arc<dyn PhysicalExpr> {
    Arc::new(ScalarFunctionExpr::new(WIDENED, Arc::clone(&FUNCTION), vec![column], Arc::clone(to), Arc::clone(options)))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Widened {
    signature: Signature,
}

impl ScalarUDFImpl for Widened {
    fn name(&self) -> &'static str {
        WIDENED
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        Ok(given.first().cloned().unwrap_or(DataType::Null))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(value) = args.args.first() else { return internal_err!("{WIDENED} is given nothing") };
        let column = value.to_array(args.number_rows)?;
        widen(&column, args.return_field.data_type()).map(ColumnarValue::Array)
    }
}

fn widen(column: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    match (column.data_type(), to) {
        (from, to) if from == to => Ok(Arc::clone(column)),
        (_, to) if column.null_count() == column.len() || column.data_type().is_null() => {
            Ok(new_null_array(to, column.len()))
        }
        (DataType::Int64, DataType::Float64) => {
            let integers = column.as_primitive::<Int64Type>();
            #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "checked")]
            if let Some(inexact) = integers.iter().flatten().find(|i| (*i as f64) as i128 != i128::from(*i)) {
                return exec_err!(
                    "{inexact} is not exactly a double, which the column is in another of the databases that are read as one"
                );
            }
            #[expect(clippy::cast_precision_loss, reason = "checked")]
            let doubles: Float64Array = integers.unary::<_, Float64Type>(|i| i as f64);
            Ok(Arc::new(doubles))
        }
        (DataType::Struct(_), DataType::Struct(members)) => {
            let from = column.as_struct();
            let member = |member: &FieldRef| match from.column_by_name(member.name()) {
                Some(column) => widen(column, member.data_type()),
                None => Ok(new_null_array(member.data_type(), column.len())),
            };
            let columns = members.iter().map(member).collect::<Result<Vec<_>>>()?;
            let nulls = from.nulls().cloned();
            Ok(Arc::new(StructArray::try_new_with_length(members.clone(), columns, nulls, column.len())?))
        }
        (DataType::List(_), DataType::List(item)) => {
            let list = column.as_list::<i32>();
            let values = widen(list.values(), item.data_type())?;
            Ok(Arc::new(ListArray::try_new(Arc::clone(item), list.offsets().clone(), values, list.nulls().cloned())?))
        }
        // Times: an instant that the finer unit cannot hold is an error.
        (_, to) => Ok(cast_with_options(column, to, &CastOptions { safe: false, ..CastOptions::default() })?),
    }
}

//! `len`: the characters of a text, or the elements of a list.

use super::arguments::{is_text_or_null, returned, wrong};
use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::length::length;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, internal_err, plan_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use std::sync::Arc;

const NAME: &str = "len";

/// `len`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Len {
    signature: Signature,
}

impl Len {
    pub(super) fn udf() -> Arc<ScalarUDF> {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(Len { signature }))
    }
}

impl ScalarUDFImpl for Len {
    fn name(&self) -> &'static str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [list @ (DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))] => {
                Ok(vec![list.clone()])
            }
            [text] if is_text_or_null(text) => Ok(vec![DataType::Utf8]),
            [other] => wrong(NAME, 1, "value", &format!("is {other}, a text or a list is wanted")),
            _ => plan_err!("{NAME} takes a text or a list; arguments given: {}", given.len()),
        }
    }

    fn return_type(&self, _given: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let given = ColumnarValue::values_to_arrays(&args.args)?;
        let [values] = given.as_slice() else { return internal_err!("{NAME} without a value") };
        let lengths: ArrayRef = match values.data_type() {
            DataType::Utf8 => {
                let characters = |text: Option<&str>| text.map(|text| text.chars().count() as i64);
                Arc::new(values.as_string::<i32>().iter().map(characters).collect::<Int64Array>())
            }
            _ => cast(&length(values.as_ref())?, &DataType::Int64)?,
        };
        returned(lengths, &args.args)
    }
}

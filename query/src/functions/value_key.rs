//! Objects and lists as bytes that are equal where they are.
//!
//! DataFusion counts distinct values of these types as scalars, and each scalar keeps the arrays that it came from, so that a count over
//! a small table takes gigabytes. It counts distinct bytes in the memory that they need.

use datafusion::arrow::array::{Array, BinaryArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use std::sync::{Arc, LazyLock};

/// Function that gives the bytes.
pub(super) static VALUE_KEY: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(ValueKey { signature }))
});

/// Whether values of a type have such bytes, and need them.
pub(super) fn is_for(ty: &DataType) -> bool {
    ty.is_nested() && RowConverter::supports_fields(&[SortField::new(ty.clone())])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ValueKey {
    signature: Signature,
}

impl ScalarUDFImpl for ValueKey {
    fn name(&self) -> &'static str {
        "value_key"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _given: &[DataType]) -> Result<DataType> {
        Ok(DataType::Binary)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = args.args.as_slice() else {
            return internal_err!("{} is given {} arguments", self.name(), args.args.len());
        };
        let values = value.to_array(args.number_rows)?;
        let converter = RowConverter::new(vec![SortField::new(values.data_type().clone())])?;
        let keys = converter.convert_columns(&[Arc::clone(&values)])?.try_into_binary()?;
        let (offsets, bytes, _) = keys.into_parts();
        Ok(ColumnarValue::Array(Arc::new(BinaryArray::try_new(offsets, bytes, values.logical_nulls())?)))
    }
}

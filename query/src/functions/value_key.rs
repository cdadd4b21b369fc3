//! Objects and lists as bytes that are equal where they are.
//!
//! DataFusion counts distinct values of these types as scalars, and chooses first and last values so. Each scalar keeps the arrays that
//! it came from: a count over a small table takes gigabytes, and the last objects of many groups take time with the square of the
//! number of groups. Bytes take the memory that they need.

use datafusion::arrow::array::{Array, AsArray, BinaryArray, new_null_array};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
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

/// Function that gives the value of such bytes. Its second argument is a NULL of the value's type.
pub(super) static KEY_VALUE: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let signature = Signature::any(2, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(KeyValue { signature }))
});

#[derive(Debug, PartialEq, Eq, Hash)]
struct KeyValue {
    signature: Signature,
}

impl ScalarUDFImpl for KeyValue {
    fn name(&self) -> &'static str {
        "key_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        Ok(given.last().cloned().unwrap_or(DataType::Null))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let [_, value] = args.arg_fields else {
            return internal_err!("{} is given {} arguments", self.name(), args.arg_fields.len());
        };
        let field = Field::new(self.name(), value.data_type().clone(), true);
        Ok(Arc::new(field.with_metadata(value.metadata().clone())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [keys, value] = args.args.as_slice() else {
            return internal_err!("{} is given {} arguments", self.name(), args.args.len());
        };
        let (keys, ty) = (keys.to_array(args.number_rows)?, value.data_type());
        let converter = RowConverter::new(vec![SortField::new(ty.clone())])?;
        let null = converter.convert_columns(&[new_null_array(&ty, 1)])?;
        let parser = converter.parser();
        let rows = keys.as_binary::<i32>().iter().map(|key| key.map_or(null.row(0), |key| parser.parse(key)));
        match converter.convert_rows(rows)?.pop() {
            Some(values) => Ok(ColumnarValue::Array(values)),
            None => internal_err!("{} has no values", self.name()),
        }
    }
}

/// Whether the bytes of a type's values give the same values again.
pub(super) fn is_exact(ty: &DataType) -> bool {
    match ty {
        DataType::Dictionary(..) | DataType::RunEndEncoded(..) | DataType::Map(..) | DataType::Union(..) => false,
        DataType::Struct(fields) => fields.iter().all(|field| is_exact(field.data_type())),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _) => is_exact(field.data_type()),
        _ => true,
    }
}

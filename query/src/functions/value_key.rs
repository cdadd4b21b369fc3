//! Objects and lists as bytes that are equal where they are.
//!
//! DataFusion counts distinct values of these types as scalars, and chooses first and last values so. Each scalar keeps the arrays that
//! it came from: a count over a small table takes gigabytes, and the last objects of many groups take time with the square of the
//! number of groups. Bytes take the memory that they need.

use super::arithmetic::call;
use datafusion::arrow::array::{Array, AsArray, BinaryArray, new_null_array};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::{
    Aggregate, ColumnarValue, Expr, LogicalPlan, Projection, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
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
fn is_exact(ty: &DataType) -> bool {
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

/// Chooses the first and last objects and lists of groups as bytes.
#[derive(Debug)]
pub(crate) struct EdgesByKeys;

impl OptimizerRule for EdgesByKeys {
    fn name(&self) -> &'static str {
        "edges_by_keys"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Aggregate(aggregate) = plan else { return Ok(Transformed::no(plan)) };
        let schema = Arc::clone(&aggregate.schema);
        let groups = schema.fields().len() - aggregate.aggr_expr.len();
        let mut values = Vec::with_capacity(aggregate.aggr_expr.len());
        let mut calls = Vec::with_capacity(aggregate.aggr_expr.len());
        for (at, expr) in aggregate.aggr_expr.iter().enumerate() {
            let (_, field) = schema.qualified_field(groups + at);
            let (expr, value) = match by_key(expr) {
                Some(by_key) if is_for(field.data_type()) && is_exact(field.data_type()) => {
                    (by_key.alias(expr.schema_name().to_string()), Some(Arc::clone(field)))
                }
                _ => (expr.clone(), None),
            };
            calls.push(expr);
            values.push(value);
        }
        if values.iter().all(Option::is_none) {
            return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
        }
        let by_keys = Aggregate::try_new(aggregate.input, aggregate.group_expr, calls)?;
        let columns = by_keys.schema.columns().into_iter().zip(schema.iter()).enumerate();
        let columns = columns.map(|(at, (column, (qualifier, field)))| {
            let column = Expr::Column(column);
            match at.checked_sub(groups).and_then(|at| values[at].as_ref()) {
                None => Ok(column),
                Some(value) => {
                    let null = ScalarValue::try_from(value.data_type())?;
                    let null = Expr::Literal(null, Some(FieldMetadata::from(value.as_ref())));
                    Ok(call(&KEY_VALUE, vec![column, null]).alias_qualified(qualifier.cloned(), field.name()))
                }
            }
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let input = Arc::new(LogicalPlan::Aggregate(by_keys));
        Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(columns, input)?)))
    }
}

/// A call of `first_value` or `last_value` with an order, of its argument's bytes.
fn by_key(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Alias(alias) => by_key(&alias.expr),
        Expr::AggregateFunction(of) if matches!(of.func.name(), "first_value" | "last_value") => {
            let [value] = of.params.args.as_slice() else { return None };
            let mut by_key = of.clone();
            by_key.params.args = vec![call(&VALUE_KEY, vec![value.clone()])];
            (!by_key.params.order_by.is_empty()).then_some(Expr::AggregateFunction(by_key))
        }
        _ => None,
    }
}

//! Casts that keep their text as a name.
//!
//! DataFusion names a cast after what is cast, and refuses aggregates of one name beside each other, such as `sum(n)` and
//! `sum(n::double)`. Where that would happen, [`crate::sql`] puts a call of this function around the cast; it goes when the
//! plan is simplified.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

/// Name of the function under which casts keep their text as a name.
pub(crate) const APART: &str = "__apart";

/// `__apart(value, name)`: the value, under this name.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Apart {
    signature: Signature,
}

impl Apart {
    pub(super) fn udf() -> Arc<ScalarUDF> {
        Arc::new(ScalarUDF::new_from_impl(Apart { signature: Signature::any(2, Volatility::Immutable) }))
    }
}

impl ScalarUDFImpl for Apart {
    fn name(&self) -> &'static str {
        APART
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        Ok(given.first().cloned().unwrap_or(DataType::Null))
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(match args {
            [_, Expr::Literal(name, _)] => name.try_as_str().flatten().unwrap_or_default().to_owned(),
            _ => APART.to_owned(),
        })
    }

    fn simplify(&self, args: Vec<Expr>, _: &SimplifyContext) -> Result<ExprSimplifyResult> {
        match args.into_iter().next() {
            Some(value) => Ok(ExprSimplifyResult::Simplified(value)),
            None => internal_err!("{APART} is given nothing"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.into_iter().next() {
            Some(value) => Ok(value),
            None => internal_err!("{APART} is given nothing"),
        }
    }
}

//! Functions of PostgreSQL's catalog whose answer is the same for all arguments here, and a few that compute.

use super::Found;
use datafusion::arrow::array::{Array, AsArray, StringArray};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility, create_udf,
};
use datafusion::prelude::SessionContext;
use std::sync::Arc;

/// Whether an object is found without its schema: all are.
const VISIBLE: [&str; 8] = [
    "pg_collation_is_visible",
    "pg_conversion_is_visible",
    "pg_function_is_visible",
    "pg_opclass_is_visible",
    "pg_operator_is_visible",
    "pg_opfamily_is_visible",
    "pg_statistics_obj_is_visible",
    "pg_type_is_visible",
];

/// Texts about objects that do not exist here: sequences, indexes, rules, triggers, functions of users.
const WITHOUT_TEXT: [&str; 12] = [
    "col_description",
    "obj_description",
    "pg_get_function_arguments",
    "pg_get_function_identity_arguments",
    "pg_get_function_result",
    "pg_get_function_sqlbody",
    "pg_get_functiondef",
    "pg_get_indexdef",
    "pg_get_ruledef",
    "pg_get_serial_sequence",
    "pg_get_triggerdef",
    "shobj_description",
];

/// Sizes that are not measured.
const WITHOUT_SIZE: [&str; 4] = ["pg_database_size", "pg_indexes_size", "pg_table_size", "pg_tablespace_size"];

/// Adds the functions to a session.
pub(super) fn register(session: &SessionContext) {
    let constant = |name, value| session.register_udf(Constant::function(name, value));
    for name in VISIBLE {
        constant(name, ScalarValue::Boolean(Some(true)));
    }
    for name in WITHOUT_TEXT {
        constant(name, ScalarValue::Utf8(None));
    }
    for name in WITHOUT_SIZE {
        constant(name, ScalarValue::Int64(None));
    }
    constant("pg_advisory_unlock_all", ScalarValue::Boolean(None));
    constant("pg_is_in_recovery", ScalarValue::Boolean(Some(false)));
    constant("pg_is_other_temp_schema", ScalarValue::Boolean(Some(false)));
    constant("pg_my_temp_schema", ScalarValue::Int32(Some(0)));
    constant("pg_tablespace_location", ScalarValue::from(""));
    session.register_udf(texts("pg_size_pretty", DataType::Int64, |value| {
        let value = value.as_primitive::<Int64Type>();
        value.iter().map(|size| size.map(size_in_words)).collect()
    }));
    session.register_udf(texts("quote_literal", DataType::Utf8, |value| {
        value.as_string::<i32>().iter().map(|text| text.map(quoted)).collect()
    }));
}

/// A function of one argument that returns a text.
fn texts(name: &str, argument: DataType, of: impl Fn(&dyn Array) -> StringArray + Send + Sync + 'static) -> ScalarUDF {
    let function = move |args: &[ColumnarValue]| {
        let values = ColumnarValue::values_to_arrays(args)?;
        let Some(value) = values.first() else { return exec_err!("an argument is missing") };
        let texts = of(value.as_ref());
        match args {
            [ColumnarValue::Scalar(_)] => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&texts, 0)?)),
            _ => Ok(ColumnarValue::Array(Arc::new(texts))),
        }
    };
    create_udf(name, vec![argument], DataType::Utf8, Volatility::Immutable, Arc::new(function))
}

/// As PostgreSQL shows it: the largest unit in which there are more than ten.
fn size_in_words(size: i64) -> String {
    let (mut size, mut unit) = (i128::from(size), "bytes");
    for larger in ["kB", "MB", "GB", "TB"] {
        if size.abs() < 10 * 1024 {
            break;
        }
        (size, unit) = ((size + size.signum() * 512) / 1024, larger);
    }
    format!("{size} {unit}")
}

fn quoted(text: &str) -> String {
    let escape = if text.contains('\\') { "E" } else { "" };
    format!("{escape}'{}'", text.replace('\'', "''").replace('\\', "\\\\"))
}

/// A function that always returns the same.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Constant {
    name: &'static str,
    value: ScalarValue,
    signature: Signature,
}

impl Constant {
    pub(super) fn function(name: &'static str, value: ScalarValue) -> ScalarUDF {
        let any = vec![TypeSignature::Nullary, TypeSignature::VariadicAny];
        ScalarUDF::from(Constant { name, value, signature: Signature::one_of(any, Volatility::Stable) })
    }
}

impl ScalarUDFImpl for Constant {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Found<DataType> {
        Ok(self.value.data_type())
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Found<ColumnarValue> {
        Ok(ColumnarValue::Scalar(self.value.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_texts_are_written_as_postgres_writes_them() {
        let sizes = [0, 10_239, 10_240, 1_000_000, 123_456_789, -20_000].map(size_in_words);
        assert_eq!(sizes, ["0 bytes", "10239 bytes", "10 kB", "977 kB", "118 MB", "-20 kB"]);
        assert_eq!([quoted("it's"), quoted("a\\b")], ["'it''s'", "E'a\\\\b'"]);
    }
}

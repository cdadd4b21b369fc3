//! `x::uuid`: a text with a UUID, as PostgreSQL and DuckDB write it.
//!
//! There is no type for UUIDs. [`crate::sql`] puts a call of these functions in the place of such casts; `TRY_CAST` makes NULL of other
//! texts.

use super::arguments::returned;
use datafusion::arrow::array::{ArrayRef, AsArray, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

/// Names of the functions.
pub(crate) const UUID: &str = "__uuid";
pub(crate) const TRY_UUID: &str = "__try_uuid";

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Uuid {
    tries: bool,
    signature: Signature,
}

impl Uuid {
    pub(super) fn udf(tries: bool) -> Arc<ScalarUDF> {
        let signature = Signature::string(1, Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(Uuid { tries, signature }))
    }

    fn of(&self, text: &str) -> Result<Option<String>> {
        match canonical(text) {
            None if !self.tries => {
                exec_err!(
                    "'{text}' is not a UUID such as a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11; TRY_CAST(x AS uuid) makes NULL of it"
                )
            }
            uuid => Ok(uuid),
        }
    }
}

impl ScalarUDFImpl for Uuid {
    fn name(&self) -> &'static str {
        if self.tries { TRY_UUID } else { UUID }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let text: String = args.iter().map(|arg| arg.schema_name().to_string()).collect();
        let cast = if self.tries { "TRY_CAST" } else { "CAST" };
        Ok(format!("{cast}({text} AS uuid)"))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [texts] = <[ArrayRef; 1]>::try_from(ColumnarValue::values_to_arrays(&args.args)?)
            .or_else(|_| exec_err!("{} takes a text", self.name()))?;
        let texts = cast(&texts, &DataType::Utf8)?;
        let uuids = texts.as_string::<i32>().iter().map(|text| text.map_or(Ok(None), |text| self.of(text)));
        returned(Arc::new(uuids.collect::<Result<StringArray>>()?), &args.args)
    }
}

/// A UUID in lower case with hyphens. As in PostgreSQL it may be in braces, and hyphens may be after any four digits.
fn canonical(text: &str) -> Option<String> {
    let inner = text.strip_prefix('{').map_or(Some(text), |inner| inner.strip_suffix('}'))?;
    let (mut digits, mut uuid, mut after_hyphen) = (0, String::with_capacity(36), false);
    for char in inner.chars() {
        if char == '-' && !after_hyphen && digits % 4 == 0 && (4..32).contains(&digits) {
            after_hyphen = true;
            continue;
        }
        if !char.is_ascii_hexdigit() {
            return None;
        }
        if [8, 12, 16, 20].contains(&digits) {
            uuid.push('-');
        }
        uuid.push(char.to_ascii_lowercase());
        (digits, after_hyphen) = (digits + 1, false);
    }
    (digits == 32 && !after_hyphen).then_some(uuid)
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn uuids_are_read_as_in_postgres() {
        let uuid = Some("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11".to_owned());
        for text in [
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
            "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
            "a0eebc999c0b4ef8bb6d6bb9bd380a11",
            "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11",
        ] {
            assert_eq!(canonical(text), uuid, "{text}");
        }
        for text in [
            "",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a112",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11-",
            "a0eebc99--9c0b-4ef8-bb6d-6bb9bd380a11",
            "a0e-ebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "g0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        ] {
            assert_eq!(canonical(text), None, "{text}");
        }
    }
}

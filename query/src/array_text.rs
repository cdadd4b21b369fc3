//! PostgreSQL's text for an array: `{a,b}`.

use datafusion::arrow::array::{ArrayRef, ListArray, StringArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, exec_datafusion_err};
use std::sync::Arc;

/// The list of this type that PostgreSQL's text for an array stands for.
pub(crate) fn list(text: &str, kind: &DataType) -> Result<ScalarValue> {
    let wrong = || exec_datafusion_err!("'{text}' is not an array: one is written as '{{a,b}}'");
    let DataType::List(item) = kind else { return Err(wrong()) };
    let items: ArrayRef = Arc::new(StringArray::from(items(text).ok_or_else(wrong)?));
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let items = cast_with_options(&items, item.data_type(), &strict)?;
    let offsets = OffsetBuffer::from_lengths([items.len()]);
    Ok(ScalarValue::List(Arc::new(ListArray::try_new(Arc::clone(item), offsets, items, None)?)))
}

/// The items of an array of one dimension; nothing for null.
fn items(text: &str) -> Option<Vec<Option<String>>> {
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let (mut items, mut chars) = (Vec::new(), inner.chars().peekable());
    if inner.trim().is_empty() {
        return Some(items);
    }
    loop {
        while chars.next_if(|char| char.is_whitespace()).is_some() {}
        let (mut item, is_quoted) = (String::new(), chars.next_if_eq(&'"').is_some());
        if is_quoted {
            loop {
                match chars.next()? {
                    '"' => break,
                    '\\' => item.push(chars.next()?),
                    char => item.push(char),
                }
            }
            while chars.next_if(|char| char.is_whitespace()).is_some() {}
        } else {
            while let Some(char) = chars.next_if(|char| *char != ',') {
                match char {
                    '{' | '}' | '"' => return None,
                    '\\' => item.push(chars.next()?),
                    char => item.push(char),
                }
            }
            item.truncate(item.trim_end().len());
        }
        match item {
            item if !is_quoted && item.is_empty() => return None,
            item if !is_quoted && item.eq_ignore_ascii_case("null") => items.push(None),
            item => items.push(Some(item)),
        }
        match chars.next() {
            None => return Some(items),
            Some(',') => {}
            Some(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_read_as_postgres_writes_them() {
        let of = |text| items(text).map(|items| items.join_nulls());
        assert_eq!(of("{a,b}").as_deref(), Some("a|b"));
        assert_eq!(of(" { a b , \"c,\\\"d\" , NULL, \"NULL\" } ").as_deref(), Some("a b|c,\"d|-|NULL"));
        assert_eq!(of("{}").as_deref(), Some(""));
        for text in ["", "a", "{a", "{a,}", "{,a}", "{{a}}", "{\"a}", "{\"a\"b}"] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    trait Joined {
        fn join_nulls(&self) -> String;
    }

    impl Joined for Vec<Option<String>> {
        fn join_nulls(&self) -> String {
            self.iter().map(|item| item.as_deref().unwrap_or("-")).collect::<Vec<_>>().join("|")
        }
    }
}

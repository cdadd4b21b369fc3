//! What the user says about CSV files.

use crate::files::reader::{Result, wrong};
use crate::text_table::cells::{Cells, Nulls};
use crate::text_table::encoding::Encoding;
use crate::text_table::times::TimeReader;
use serde_json::{Map, Value};

/// What the user says about the files.
#[derive(Debug, Clone)]
pub(super) struct Options {
    pub(super) delimiter: Option<u8>,
    pub(super) header: Option<bool>,
    pub(super) skip: Option<u64>,
    pub(super) comment: Option<u8>,
    pub(super) encoding: Option<Encoding>,
    pub(super) decimal_comma: Option<bool>,
    pub(super) all_text: bool,
    /// Columns that are text.
    pub(super) text: Vec<String>,
    pub(super) cells: Cells,
}

impl Options {
    pub(super) fn new(options: &Map<String, Value>) -> Result<Options> {
        let text = |name: &str| options.get(name).and_then(Value::as_str);
        let byte = |name: &str| match text(name) {
            None if options.contains_key(name) => Err(wrong(format!("read_csv: {name} is one character, such as ';'"))),
            None => Ok(None),
            Some("\\t" | "tab") => Ok(Some(b'\t')),
            Some(text) => match text.as_bytes() {
                [one] => Ok(Some(*one)),
                _ => Err(wrong(format!("read_csv: {name} is one ASCII character, not '{text}'"))),
            },
        };
        let truth = |name: &str| match options.get(name) {
            None => Ok(None),
            Some(Value::Bool(truth)) => Ok(Some(*truth)),
            Some(other) => Err(wrong(format!("read_csv: {name} is true or false, not {other}"))),
        };
        let list = |name: &str| match options.get(name) {
            None => Vec::new(),
            Some(Value::Array(all)) => all.iter().filter_map(|one| Some(one.as_str()?.to_owned())).collect(),
            Some(Value::String(one)) => vec![one.clone()],
            Some(other) => vec![other.to_string()],
        };
        let decimal_comma = match text("decimal_separator") {
            None => None,
            Some(".") => Some(false),
            Some(",") => Some(true),
            Some(other) => return Err(wrong(format!("read_csv: decimal_separator is ',' or '.', not '{other}'"))),
        };
        let thousands = byte("thousands")?;
        if thousands == Some(if decimal_comma == Some(true) { b',' } else { b'.' }) {
            return Err(wrong("read_csv: thousands is the decimal mark: decimal_separator says which is which"));
        }
        let skip =
            options.get("skip").map(|skip| skip.as_u64().ok_or_else(|| wrong("read_csv: skip is a number of lines")));
        let cells = Cells {
            nulls: Nulls::new(&list("nullstr")),
            decimal_comma: decimal_comma.unwrap_or_default(),
            thousands,
            numbers: list("number"),
            times: TimeReader::plain(),
            general: TimeReader::plain(),
        };
        Ok(Options {
            delimiter: byte("delim")?,
            header: truth("header")?,
            skip: skip.transpose()?,
            comment: byte("comment")?,
            encoding: text("encoding").map(encoding).transpose()?,
            decimal_comma,
            all_text: truth("all_varchar")?.unwrap_or_default(),
            text: list("text"),
            cells,
        })
    }
}

fn encoding(name: &str) -> Result<Encoding> {
    let lower = name.to_lowercase();
    let alias = match lower.as_str() {
        "utf8" => "utf-8",
        "latin1" | "iso-8859-1" => "latin-1",
        other => other,
    };
    Encoding::ALL.into_iter().find(|encoding| encoding.name() == alias).ok_or_else(|| {
        let names = Encoding::ALL.map(Encoding::name).join(", ");
        wrong(format!("read_csv: encoding is one of {names}, not '{name}'"))
    })
}

/// A text as a literal of SQL.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

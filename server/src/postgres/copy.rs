//! The data of `COPY ... TO STDOUT`: text, CSV, and PostgreSQL's binary form.

use super::own::{Copy, CopyForm};
use bytes::{BufMut, BytesMut};
use pgwire::messages::copy::CopyData;
use pgwire::messages::data::DataRow;

/// What the binary form begins with: a signature, flags, and the length of what may follow them.
const SIGNATURE: &[u8; 19] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// What it ends with.
const TRAILER: &[u8; 2] = &[0xff, 0xff];

/// The line before the rows, if there is one.
pub(super) fn header(copy: &Copy, names: &[String]) -> Option<CopyData> {
    let is_wanted = copy.has_header && copy.form != CopyForm::Binary;
    is_wanted.then(|| line(copy, names.iter().map(|name| Some(name.as_bytes()))))
}

/// What comes after them.
pub(super) fn end(copy: &Copy, is_empty: bool) -> Option<CopyData> {
    let signature: &[u8] = if is_empty { SIGNATURE } else { &[] };
    (copy.form == CopyForm::Binary).then(|| CopyData::new([signature, TRAILER].concat().into()))
}

/// A row, whose values are encoded in the form of the copy. Programs expect what the binary form begins with in one message with the
/// first row.
pub(super) fn row(copy: &Copy, row: &DataRow, is_first: bool) -> CopyData {
    if copy.form == CopyForm::Binary {
        let mut bytes = BytesMut::with_capacity(SIGNATURE.len() + 2 + row.data.len());
        if is_first {
            bytes.extend_from_slice(SIGNATURE);
        }
        bytes.put_i16(row.field_count);
        bytes.extend_from_slice(&row.data);
        return CopyData::new(bytes.freeze());
    }
    let mut rest: &[u8] = &row.data;
    line(
        copy,
        std::iter::from_fn(move || {
            let (length, after) = rest.split_first_chunk()?;
            let length = usize::try_from(i32::from_be_bytes(*length)).ok();
            let (value, after) = after.split_at_checked(length.unwrap_or(0))?;
            rest = after;
            Some(length.map(|_| value))
        }),
    )
}

/// A line of values, some of them null.
fn line<'a>(copy: &Copy, values: impl Iterator<Item = Option<&'a [u8]>>) -> CopyData {
    let is_csv = copy.form == CopyForm::Csv;
    let default = if is_csv { ',' } else { '\t' };
    // It is one byte: this is checked where it is read.
    let delimiter = copy.delimiter.unwrap_or(default) as u8;
    let null = copy.null.as_deref().unwrap_or(if is_csv { "" } else { "\\N" }).as_bytes();
    let mut bytes = BytesMut::new();
    for (at, value) in values.enumerate() {
        if at > 0 {
            bytes.put_u8(delimiter);
        }
        match value {
            None => bytes.extend_from_slice(null),
            Some(value) if is_csv => quoted(&mut bytes, value, delimiter, null),
            Some(value) => escaped(&mut bytes, value, delimiter),
        }
    }
    bytes.put_u8(b'\n');
    CopyData::new(bytes.freeze())
}

/// A value of CSV, in quotes if it would be read as something else without.
fn quoted(bytes: &mut BytesMut, value: &[u8], delimiter: u8, null: &[u8]) {
    let needs = |byte: &u8| [delimiter, b'"', b'\n', b'\r'].contains(byte);
    if value != null && value != b"\\." && !value.iter().any(needs) {
        bytes.extend_from_slice(value);
        return;
    }
    bytes.put_u8(b'"');
    for byte in value {
        if *byte == b'"' {
            bytes.put_u8(b'"');
        }
        bytes.put_u8(*byte);
    }
    bytes.put_u8(b'"');
}

fn escaped(bytes: &mut BytesMut, value: &[u8], delimiter: u8) {
    for byte in value {
        let escape = match byte {
            b'\\' => b'\\',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x08 => b'b',
            0x0b => b'v',
            0x0c => b'f',
            other if *other == delimiter => *other,
            other => {
                bytes.put_u8(*other);
                continue;
            }
        };
        bytes.put_u8(b'\\');
        bytes.put_u8(escape);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(form: CopyForm, null: Option<&str>, values: &[Option<&str>]) -> String {
        let copy =
            Copy { query: String::new(), form, has_header: false, delimiter: None, null: null.map(str::to_owned) };
        let mut data = BytesMut::new();
        for value in values {
            data.put_i32(value.map_or(-1, |value| value.len() as i32));
            data.extend_from_slice(value.unwrap_or_default().as_bytes());
        }
        let row = row(&copy, &DataRow::new(data, values.len() as i16), true);
        String::from_utf8(row.data.to_vec()).unwrap()
    }

    #[test]
    fn a_null_is_told_from_an_empty_text() {
        let values = [None, Some(""), Some("a,b"), Some("c\"\n"), Some("ä")];
        assert_eq!(shown(CopyForm::Csv, None, &values), ",\"\",\"a,b\",\"c\"\"\n\",ä\n");
        assert_eq!(shown(CopyForm::Csv, Some("NA"), &[None, Some(""), Some("NA")]), "NA,,\"NA\"\n");
        assert_eq!(shown(CopyForm::Text, None, &[None, Some(""), Some("a\tb\\N\n")]), "\\N\t\ta\\tb\\\\N\\n\n");
    }
}

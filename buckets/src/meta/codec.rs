//! The bytes of a meta key. Comparing them byte by byte compares the values.
//!
//! A value is a tag (in the order of the type classes) and a body that marks its own end, so that no value's bytes are
//! a prefix of another's:
//!
//! | tag | value | body |
//! | --- | --- | --- |
//! | 1 | null | |
//! | 2 | number | nearest double, 8 bytes in comparable form (NaN all zero); from 2^53 on 2 more: exact minus nearest |
//! | 3 | text | bytes with 00 as 00 FF, then 00 00 |
//! | 4 | object | per member: 01, name like text, value; then 00 |
//! | 5 | list | values, then 00 |
//! | 6 | bytes | like text |
//! | 7 | bool | 00 or 01 |
//! | 8 | instant | 16 bytes, big-endian, sign bit flipped |

use ebbtide_ttl::{Timestamp, Value, exact_int};

const NULL: u8 = 1;
const NUMBER: u8 = 2;
const STRING: u8 = 3;
const OBJECT: u8 = 4;
const ARRAY: u8 = 5;
const BINARY: u8 = 6;
const BOOL: u8 = 7;
const DATE: u8 = 8;

/// Deeper than any value that is accepted, and shallow enough for every stack.
const DEPTH_MAX: usize = 128;

/// From here on a double cannot represent every integer.
const EXACT_LIMIT: f64 = 9_007_199_254_740_992.0;

/// Appends a value; members of objects must be in order and without nulls.
pub(crate) fn encode(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(NULL),
        Value::Int(i) => encode_int(*i, out),
        Value::Double(d) => match exact_int(*d) {
            Some(i) => encode_int(i, out),
            None => encode_number(*d, 0, out),
        },
        Value::String(s) => encode_str(s, out),
        Value::Object(members) => {
            out.push(OBJECT);
            for (name, member) in members {
                out.push(1);
                escape(name.as_bytes(), out);
                encode(member, out);
            }
            out.push(0);
        }
        Value::Array(items) => {
            out.push(ARRAY);
            for item in items {
                encode(item, out);
            }
            out.push(0);
        }
        Value::Binary(bytes) => {
            out.push(BINARY);
            escape(bytes, out);
        }
        Value::Bool(b) => out.extend([BOOL, u8::from(*b)]),
        Value::Date(t) => {
            out.push(DATE);
            out.extend((t.nanos() ^ i128::MIN).to_be_bytes());
        }
    }
}

pub(crate) fn encode_str(text: &str, out: &mut Vec<u8>) {
    out.push(STRING);
    escape(text.as_bytes(), out);
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "what the double loses is kept beside it"
)]
fn encode_int(i: i64, out: &mut Vec<u8>) {
    let nearest = i as f64;
    let rest = i128::from(i) - nearest as i128;
    encode_number(nearest, rest as i16, out);
}

fn encode_number(nearest: f64, rest: i16, out: &mut Vec<u8>) {
    out.push(NUMBER);
    let bits = nearest.to_bits();
    let ordered = match () {
        () if nearest.is_nan() => 0,
        () if bits >> 63 == 1 => !bits,
        () => bits | 1 << 63,
    };
    out.extend(ordered.to_be_bytes());
    if nearest.abs() >= EXACT_LIMIT {
        out.extend((rest ^ i16::MIN).to_be_bytes());
    }
}

fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        out.push(byte);
        if byte == 0 {
            out.push(0xFF);
        }
    }
    out.extend([0, 0]);
}

/// Reads a value that fills `bytes`.
pub(crate) fn decode(bytes: &[u8]) -> Result<Value, String> {
    let mut reader = Reader { bytes, at: 0 };
    let value = reader.value(0)?;
    if reader.at == bytes.len() { Ok(value) } else { Err(format!("meta key: bytes after its end at {}", reader.at)) }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, String> {
        let byte = *self.bytes.get(self.at).ok_or_else(|| format!("meta key: ends early at byte {}", self.at))?;
        self.at += 1;
        Ok(byte)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut out = [0; N];
        for byte in &mut out {
            *byte = self.byte()?;
        }
        Ok(out)
    }

    fn escaped(&mut self) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        loop {
            match self.byte()? {
                0 => match self.byte()? {
                    0 => return Ok(out),
                    0xFF => out.push(0),
                    other => return Err(format!("meta key: {other:#04x} after a zero at byte {}", self.at - 1)),
                },
                byte => out.push(byte),
            }
        }
    }

    fn text(&mut self) -> Result<String, String> {
        String::from_utf8(self.escaped()?).map_err(|_| format!("meta key: not UTF-8 before byte {}", self.at))
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > DEPTH_MAX {
            return Err(format!("meta key: nested deeper than {DEPTH_MAX}"));
        }
        Ok(match self.byte()? {
            NULL => Value::Null,
            NUMBER => self.number()?,
            STRING => Value::String(self.text()?),
            OBJECT => {
                let mut members = Vec::new();
                while self.byte()? == 1 {
                    members.push((self.text()?.into(), self.value(depth + 1)?));
                }
                Value::Object(members)
            }
            ARRAY => {
                let mut items = Vec::new();
                while self.bytes.get(self.at) != Some(&0) {
                    items.push(self.value(depth + 1)?);
                }
                self.at += 1;
                Value::Array(items)
            }
            BINARY => Value::Binary(self.escaped()?),
            BOOL => Value::Bool(self.byte()? != 0),
            DATE => Value::Date(Timestamp::from_nanos(i128::from_be_bytes(self.array()?) ^ i128::MIN)),
            tag => return Err(format!("meta key: unknown tag {tag:#04x} at byte {}", self.at - 1)),
        })
    }

    #[expect(clippy::cast_possible_truncation, reason = "the double is whole and below 2^64 where it is cast")]
    fn number(&mut self) -> Result<Value, String> {
        let ordered = u64::from_be_bytes(self.array()?);
        let bits = match ordered {
            0 => return Ok(Value::Double(f64::NAN)),
            _ if ordered >> 63 == 1 => ordered & !(1 << 63),
            _ => !ordered,
        };
        let nearest = f64::from_bits(bits);
        let rest = if nearest.abs() >= EXACT_LIMIT { i16::from_be_bytes(self.array()?) ^ i16::MIN } else { 0 };
        let whole = nearest.fract() == 0.0 && nearest.abs() <= 2.0 * EXACT_LIMIT * 1024.0;
        Ok(match whole.then(|| i64::try_from(nearest as i128 + i128::from(rest))) {
            Some(Ok(i)) => Value::Int(i),
            _ => Value::Double(nearest),
        })
    }
}

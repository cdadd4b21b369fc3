//! Detects the encoding of text files and converts them to UTF-8.

use std::io::{self, Read};

/// The characters of the bytes 0x80 to 0x9f in Windows-1252; five are undefined and stay as in ISO 8859-1.
const WINDOWS_1252: [char; 32] = [
    '\u{20ac}', '\u{81}', '\u{201a}', '\u{192}', '\u{201e}', '\u{2026}', '\u{2020}', '\u{2021}', '\u{2c6}', '\u{2030}',
    '\u{160}', '\u{2039}', '\u{152}', '\u{8d}', '\u{17d}', '\u{8f}', '\u{90}', '\u{2018}', '\u{2019}', '\u{201c}',
    '\u{201d}', '\u{2022}', '\u{2013}', '\u{2014}', '\u{2dc}', '\u{2122}', '\u{161}', '\u{203a}', '\u{153}', '\u{9d}',
    '\u{17e}', '\u{178}',
];

/// The character encoding of a text file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// UTF-8.
    Utf8,
    /// ISO 8859-1 (western European).
    Latin1,
    /// Windows-1252 (western European, with more quotes and dashes).
    Windows1252,
    /// UTF-16, little-endian unless a byte order mark says otherwise.
    Utf16,
    /// UTF-16, big-endian.
    Utf16Be,
}

impl Encoding {
    /// All encodings.
    pub const ALL: [Encoding; 5] =
        [Encoding::Utf8, Encoding::Latin1, Encoding::Windows1252, Encoding::Utf16, Encoding::Utf16Be];

    /// The name in options.
    pub fn name(self) -> &'static str {
        match self {
            Encoding::Utf8 => "utf-8",
            Encoding::Latin1 => "latin-1",
            Encoding::Windows1252 => "windows-1252",
            Encoding::Utf16 => "utf-16",
            Encoding::Utf16Be => "utf-16be",
        }
    }

    /// What it is for, in a few words.
    pub fn description(self) -> &'static str {
        match self {
            Encoding::Utf8 => "UTF-8",
            Encoding::Latin1 => "ISO 8859-1 (western European)",
            Encoding::Windows1252 => "Windows-1252 (western European, with more quotes and dashes)",
            Encoding::Utf16 => "UTF-16, little-endian unless a byte order mark says otherwise",
            Encoding::Utf16Be => "UTF-16, big-endian",
        }
    }
}

/// The encoding of the beginning of a file. Bytes that are not UTF-8 are read as ISO 8859-1, unless some of them have
/// no character there: then the encoding is ambiguous.
pub fn detect(sample: &[u8]) -> Detected {
    match sample {
        [0xff, 0xfe, ..] => return Detected::As(Encoding::Utf16),
        [0xfe, 0xff, ..] => return Detected::As(Encoding::Utf16Be),
        _ => {}
    }
    // Without a byte order mark every other byte of most characters is zero.
    let most = sample.len() * 3 / 8;
    match (zeros(sample, 0), zeros(sample, 1)) {
        (0, odd) if odd > most => return Detected::As(Encoding::Utf16),
        (even, 0) if even > most => return Detected::As(Encoding::Utf16Be),
        _ => {}
    }
    match std::str::from_utf8(sample) {
        Ok(text) if text.is_ascii() => Detected::Ascii,
        // The sample may end inside a character.
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => Detected::As(Encoding::Utf8),
        Ok(_) => Detected::As(Encoding::Utf8),
        Err(_) if sample.iter().any(|b| (0x80..0xa0).contains(b)) => Detected::Unknown,
        Err(_) => Detected::As(Encoding::Latin1),
    }
}

/// What the beginning of a file shows about its encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detected {
    /// Any encoding gives the same text.
    Ascii,
    /// This encoding.
    As(Encoding),
    /// Not UTF-8, and more than one other encoding is possible.
    Unknown,
}

/// Number of bytes of a text examined to detect its form.
pub const SAMPLE_BYTES: usize = 1 << 20;

/// The beginning of a text.
#[derive(Debug, Clone)]
pub struct Sample {
    /// The name of the file.
    pub name: String,
    /// The text; bytes that are not in the encoding are replaced.
    pub text: String,
    /// Whether this is the whole text.
    pub is_whole: bool,
    /// The encoding that the user names, or that the bytes show.
    pub encoding: Detected,
}

impl Sample {
    /// Decodes the beginning of a file. `given` is the encoding that the user names.
    pub fn new(name: &str, bytes: &[u8], is_whole: bool, given: Option<Encoding>) -> Self {
        let encoding = given.map_or_else(|| detect(bytes), Detected::As);
        let known = match encoding {
            Detected::As(known) => known,
            // Delimiters and digits are the same in all possible encodings.
            Detected::Ascii | Detected::Unknown => Encoding::Latin1,
        };
        let mut decoded = Vec::new();
        // Reading from memory cannot fail.
        let _ = transcode(Box::new(io::Cursor::new(bytes.to_vec())), known).read_to_end(&mut decoded);
        let text = String::from_utf8_lossy(&decoded).trim_start_matches('\u{feff}').to_owned();
        Sample { name: name.to_owned(), text, is_whole, encoding }
    }
}

fn zeros(bytes: &[u8], from: usize) -> usize {
    bytes.iter().skip(from).step_by(2).filter(|b| **b == 0).count()
}

/// Converts text to UTF-8.
pub fn transcode(input: Box<dyn Read + Send>, encoding: Encoding) -> Box<dyn Read + Send> {
    match encoding {
        Encoding::Utf8 => input,
        other => {
            Box::new(TranscodingReader { inner: input, encoding: other, raw: Vec::new(), held: Vec::new(), at: 0 })
        }
    }
}

struct TranscodingReader<R> {
    inner: R,
    encoding: Encoding,
    /// Bytes of an incomplete character.
    raw: Vec<u8>,
    held: Vec<u8>,
    at: usize,
}

impl<R: Read> Read for TranscodingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.held.len() {
            let mut raw = [0; 1 << 14];
            let count = self.inner.read(&mut raw)?;
            self.raw.extend_from_slice(&raw[..count]);
            self.held.clear();
            self.at = 0;
            let mut text = String::new();
            let used = decode(&self.raw, &mut self.encoding, count == 0, &mut text);
            self.raw.drain(..used);
            self.held.extend_from_slice(text.as_bytes());
            if count == 0 && self.held.is_empty() {
                return Ok(0);
            }
        }
        let count = buffer.len().min(self.held.len() - self.at);
        buffer[..count].copy_from_slice(&self.held[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// Adds the text of some bytes, and returns how many of them were used.
fn decode(bytes: &[u8], encoding: &mut Encoding, is_end: bool, text: &mut String) -> usize {
    match encoding {
        Encoding::Utf8 | Encoding::Latin1 => text.extend(bytes.iter().map(|b| char::from(*b))),
        Encoding::Windows1252 => text.extend(bytes.iter().map(|b| match b {
            0x80..=0x9f => WINDOWS_1252[usize::from(b - 0x80)],
            other => char::from(*other),
        })),
        Encoding::Utf16 | Encoding::Utf16Be => return decode_utf16(bytes, encoding, is_end, text),
    }
    bytes.len()
}

fn decode_utf16(bytes: &[u8], encoding: &mut Encoding, is_end: bool, text: &mut String) -> usize {
    match bytes {
        [0xff, 0xfe, ..] => *encoding = Encoding::Utf16,
        [0xfe, 0xff, ..] => *encoding = Encoding::Utf16Be,
        _ => {}
    }
    let unit = |pair: &[u8]| match *encoding {
        Encoding::Utf16Be => u16::from_be_bytes([pair[0], pair[1]]),
        _ => u16::from_le_bytes([pair[0], pair[1]]),
    };
    let mut units: Vec<u16> = bytes.chunks_exact(2).map(unit).collect();
    let is_high = |unit: &u16| (0xd800..0xdc00).contains(unit);
    if !is_end && units.last().is_some_and(is_high) {
        units.pop();
    }
    let used = 2 * units.len();
    let characters = char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER));
    text.extend(characters.filter(|c| *c != '\u{feff}'));
    if is_end && used < bytes.len() {
        text.push(char::REPLACEMENT_CHARACTER);
        return bytes.len();
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], encoding: Encoding) -> String {
        let mut text = String::new();
        transcode(Box::new(io::Cursor::new(bytes.to_vec())), encoding).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn texts_in_all_encodings_are_told_apart_and_read() {
        let text = "time;temp (\u{b0}C)\n2024-01-01;5,2\n";
        let little: Vec<u8> = "\u{feff}".chars().chain(text.chars()).flat_map(|c| (c as u16).to_le_bytes()).collect();
        let big: Vec<u8> = text.chars().flat_map(|c| (c as u16).to_be_bytes()).collect();
        let latin: Vec<u8> = text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
        let cases: [(&[u8], Detected); 6] = [
            (&little, Detected::As(Encoding::Utf16)),
            (&big, Detected::As(Encoding::Utf16Be)),
            (&latin, Detected::As(Encoding::Latin1)),
            (text.as_bytes(), Detected::As(Encoding::Utf8)),
            (&text.as_bytes()[..12], Detected::As(Encoding::Utf8)),
            (b"time,v\n", Detected::Ascii),
        ];
        for (bytes, expected) in cases {
            assert_eq!(detect(bytes), expected, "{bytes:?}");
            if let (Detected::As(encoding), true) = (expected, bytes.len() > 12) {
                assert_eq!(read(bytes, encoding), text, "{encoding:?}");
            }
        }
        assert_eq!(detect(b"a\x93b\xe9"), Detected::Unknown);
        assert_eq!(read(b"\x80 5\xb0", Encoding::Windows1252), "\u{20ac} 5\u{b0}");
        assert_eq!(read(b"a\0\x3d\xd8\x00\xdeb", Encoding::Utf16), "a\u{1f600}\u{fffd}");
    }
}

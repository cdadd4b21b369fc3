//! Input files: what they are, how they are packed, and how far they have been read.

use crate::args::{Encoding, InputFormat};
use crate::{Failure, files};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How the bytes of a file are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    None,
    Gzip,
    Zstd,
}

/// An input file.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) format: InputFormat,
    pub(super) bytes: u64,
    packing: Packing,
    encoding: Encoding,
    /// Bytes of all files read so far, for the progress bar.
    pub(super) read: Arc<AtomicU64>,
}

/// Counts what goes through.
struct Counted<R> {
    inner: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// Latin-1 to UTF-8: each byte is the character of its number.
struct Transcoded<R> {
    inner: R,
    held: Vec<u8>,
    at: usize,
}

impl<R: Read> Read for Transcoded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.held.len() {
            let mut raw = [0; 1 << 14];
            let count = self.inner.read(&mut raw)?;
            self.held.clear();
            self.at = 0;
            for byte in &raw[..count] {
                let mut utf8 = [0; 2];
                self.held.extend_from_slice(char::from(*byte).encode_utf8(&mut utf8).as_bytes());
            }
        }
        let count = buffer.len().min(self.held.len() - self.at);
        buffer[..count].copy_from_slice(&self.held[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

pub(super) fn transcode(input: Box<dyn Read>, encoding: Encoding) -> Box<dyn Read> {
    match encoding {
        Encoding::Utf8 => input,
        Encoding::Latin1 => Box::new(Transcoded { inner: input, held: Vec::new(), at: 0 }),
    }
}

fn packing_of(magic: &[u8]) -> Packing {
    match magic {
        [0x1f, 0x8b, ..] => Packing::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Packing::Zstd,
        _ => Packing::None,
    }
}

fn unpack(packed: impl Read + 'static, packing: Packing) -> io::Result<Box<dyn Read>> {
    Ok(match packing {
        Packing::None => Box::new(packed),
        Packing::Gzip => Box::new(flate2::read::MultiGzDecoder::new(packed)),
        Packing::Zstd => Box::new(zstd::stream::read::Decoder::new(packed)?),
    })
}

/// Text from standard input, unpacked, in UTF-8, and its form as far as its first byte tells.
pub(super) fn stdin(encoding: Encoding) -> io::Result<(Box<dyn Read>, Option<InputFormat>)> {
    let mut input = io::BufReader::with_capacity(1 << 16, io::stdin());
    let packing = packing_of(io::BufRead::fill_buf(&mut input)?);
    let mut text = io::BufReader::with_capacity(1 << 16, transcode(unpack(input, packing)?, encoding));
    let first = io::BufRead::fill_buf(&mut text)?.first().copied();
    Ok((Box::new(text), (first == Some(b'{')).then_some(InputFormat::Ndjson)))
}

/// The form that a file's name says, its packing's ending taken off.
pub(super) fn format_of_name(name: &str) -> Option<InputFormat> {
    let lower = name.to_lowercase();
    let stem = [".gz", ".zst", ".zstd"].iter().find_map(|e| lower.strip_suffix(e)).unwrap_or(&lower);
    match stem.rsplit('.').next() {
        Some("csv" | "tsv" | "txt" | "dat") => Some(InputFormat::Csv),
        Some("ndjson" | "jsonl" | "json") => Some(InputFormat::Ndjson),
        Some("lp" | "line" | "influx") => Some(InputFormat::Influx),
        Some("parquet" | "pq") => Some(InputFormat::Parquet),
        Some("arrow" | "feather" | "ipc" | "arrows") => Some(InputFormat::Arrow),
        _ => None,
    }
}

impl Source {
    /// Finds out what a file is, by its name and its first bytes.
    pub(super) fn find(
        path: &Path,
        format: Option<InputFormat>,
        encoding: Encoding,
        read: &Arc<AtomicU64>,
    ) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let mut file = files::open(path)?;
        let bytes = file.metadata().map_or(0, |m| m.len());
        let mut magic = [0; 8];
        let mut count = 0;
        while count < magic.len() {
            match file.read(&mut magic[count..]).map_err(|e| Failure::new(format!("cannot read {name}: {e}")))? {
                0 => break,
                more => count += more,
            }
        }
        let magic = &magic[..count];
        if magic.is_empty() {
            return Err(Failure::new(format!("{name} is empty")));
        }
        let not = |what: &str| Failure::new(format!("{name} is not what its name says: it is {what}"));
        let packing = packing_of(magic);
        let lower = name.to_lowercase();
        if lower.ends_with(".gz") && packing != Packing::Gzip {
            return Err(not("not compressed with gzip"));
        }
        if (lower.ends_with(".zst") || lower.ends_with(".zstd")) && packing != Packing::Zstd {
            return Err(not("not compressed with zstd"));
        }
        if magic.starts_with(b"PK\x03\x04") || magic.starts_with(b"BZh") || magic.starts_with(b"\xfd7zXZ") {
            return Err(Failure::new(format!(
                "{name} is packed in a form that is not read: unpack it, or pack it with gzip or zstd"
            )));
        }
        if magic.starts_with(&[0xff, 0xfe]) || magic.starts_with(&[0xfe, 0xff]) {
            let what = format!("{name} is UTF-16 text: convert it first (iconv -f utf-16 -t utf-8)");
            return Err(Failure::new(what));
        }
        let by_magic = if magic.starts_with(b"PAR1") {
            Some(InputFormat::Parquet)
        } else if magic.starts_with(b"ARROW1") || magic.starts_with(&[0xff, 0xff, 0xff, 0xff]) {
            Some(InputFormat::Arrow)
        } else {
            None
        };
        let format = match (format.or_else(|| format_of_name(&name)), by_magic) {
            (Some(InputFormat::Parquet), Some(InputFormat::Parquet)) => InputFormat::Parquet,
            (Some(InputFormat::Arrow), Some(InputFormat::Arrow)) => InputFormat::Arrow,
            (Some(InputFormat::Parquet), _) => return Err(not("not a Parquet file")),
            (Some(InputFormat::Arrow), _) => return Err(not("not an Arrow IPC file")),
            (Some(_), Some(InputFormat::Parquet)) => return Err(not("a Parquet file")),
            (Some(_), Some(_)) => return Err(not("an Arrow IPC file")),
            (Some(format), None) => format,
            (None, Some(format)) => format,
            (None, None) if magic[0] == b'{' => InputFormat::Ndjson,
            (None, None) => {
                let what = format!(
                    "cannot tell the format of {name} from its name; add --format csv, ndjson, influx, parquet or arrow"
                );
                return Err(Failure::usage(what));
            }
        };
        let is_text = !matches!(format, InputFormat::Parquet | InputFormat::Arrow);
        if is_text && packing == Packing::None && magic.contains(&0) {
            return Err(not("not text"));
        }
        Ok(Source { name, path: path.to_owned(), format, bytes, packing, encoding, read: Arc::clone(read) })
    }

    /// The file's text, unpacked, in UTF-8.
    pub(super) fn open(&self) -> Result<Box<dyn Read>, Failure> {
        let file = io::BufReader::with_capacity(1 << 16, files::open(&self.path)?);
        let counted = Counted { inner: file, read: Arc::clone(&self.read) };
        let unpacked = unpack(counted, self.packing).map_err(|e| self.unreadable(&e))?;
        Ok(transcode(unpacked, self.encoding))
    }

    /// A checksum of the file as it is on disk.
    pub(super) fn checksum(&self) -> Result<u32, Failure> {
        let mut file = files::open(&self.path)?;
        let mut hasher = crc32fast::Hasher::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            match file.read(&mut buffer).map_err(|e| self.unreadable(&e))? {
                0 => return Ok(hasher.finalize()),
                count => hasher.update(&buffer[..count]),
            }
        }
    }

    /// What went wrong while the file was read.
    pub(super) fn unreadable(&self, error: &io::Error) -> Failure {
        let hint = match self.packing {
            Packing::None => "",
            _ => "; the compressed file is damaged or was cut off: fetch it again",
        };
        Failure::new(format!("cannot read {}: {error}{hint}", self.name))
    }
}

/// The files that the user means: patterns that the shell left as they are become the files that match them.
pub(super) fn expand(given: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut all = Vec::new();
    for path in given {
        let text = path.to_string_lossy();
        if path.exists() || !text.contains(['*', '?', '[']) {
            all.push(path.clone());
            continue;
        }
        let found = glob::glob(&text).map_err(|e| Failure::usage(format!("{text} is no pattern: {e}")))?;
        let before = all.len();
        for entry in found {
            all.push(entry.map_err(|e| Failure::new(format!("cannot read {}: {}", e.path().display(), e.error())))?);
        }
        if all.len() == before {
            return Err(Failure::new(format!("no file matches {text}")));
        }
    }
    Ok(all)
}

//! Input files: their format, compression, and how far they have been read.

use crate::args::InputFormat;
use crate::{Failure, files};
use ebbtide_query::text_table::encoding::{self, Detected, Encoding, SAMPLE_BYTES, Sample};
use ebbtide_query::text_table::split::{self, Block, Split};
use std::collections::HashSet;
use std::io::{self, BufRead, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;

/// What some programs write at the beginning of UTF-8.
pub(super) const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The compression of a file.
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
    pub(super) encoding: Encoding,
    /// Columns with one value in all rows of the file.
    pub(super) constants: Vec<(String, String)>,
    /// Bytes of all files read so far, for the progress bar.
    pub(super) read: Arc<AtomicU64>,
}

/// Counts the bytes read.
struct CountingReader<R> {
    inner: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

fn packing_of(magic: &[u8]) -> Packing {
    match magic {
        [0x1f, 0x8b, ..] => Packing::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Packing::Zstd,
        _ => Packing::None,
    }
}

fn unpack(packed: impl Read + Send + 'static, packing: Packing) -> io::Result<Box<dyn Read + Send>> {
    Ok(match packing {
        Packing::None => Box::new(packed),
        Packing::Gzip => Box::new(flate2::read::MultiGzDecoder::new(packed)),
        Packing::Zstd => Box::new(zstd::stream::read::Decoder::new(packed)?),
    })
}

/// Decompressed text from standard input: its format if the first character shows it, its beginning, and all of it.
pub(super) struct PipedText {
    pub(super) is_empty: bool,
    pub(super) format: Option<InputFormat>,
    pub(super) sample: Sample,
    pub(super) bytes: Box<dyn Read + Send>,
}

impl PipedText {
    pub(super) fn open(name: &str, encoding: Option<Encoding>) -> io::Result<Self> {
        let mut input = io::BufReader::with_capacity(1 << 16, io::stdin());
        let packing = packing_of(input.fill_buf()?);
        let mut bytes = io::BufReader::with_capacity(1 << 16, unpack(input, packing)?);
        let first = bytes.fill_buf()?;
        let format = begins_with_object(first).then_some(InputFormat::Ndjson);
        let (sample, is_empty) = (Sample::new(name, first, false, encoding), first.is_empty());
        Ok(PipedText { is_empty, format, sample, bytes: Box::new(bytes) })
    }
}

/// Whether a text begins with a JSON object.
fn begins_with_object(text: &[u8]) -> bool {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text).trim_ascii_start().first() == Some(&b'{')
}

/// The format that a file's name shows, ignoring the suffix of a compression.
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
    /// Detects the format of a file from its name and its first bytes.
    pub(super) fn find(
        path: &Path,
        given: &Path,
        format: Option<InputFormat>,
        read: &Arc<AtomicU64>,
    ) -> Result<Self, Failure> {
        let name = given.display().to_string();
        let mut file = files::open(path)?;
        let bytes = file.metadata().map_or(0, |m| m.len());
        let mut magic = [0; 64];
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
        if is_workbook(magic, &lower) {
            return Err(Failure::new(format!(
                "{name} is a workbook of a spreadsheet program: save its sheet as CSV there, and import that file"
            )));
        }
        if magic.starts_with(b"PK\x03\x04") || magic.starts_with(b"BZh") || magic.starts_with(b"\xfd7zXZ") {
            return Err(Failure::new(format!(
                "{name} is compressed in a format that is not supported: decompress it, or use gzip or zstd"
            )));
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
            (None, None) if begins_with_object(magic) => InputFormat::Ndjson,
            (None, None) => {
                let what = format!(
                    "cannot tell the format of {name} from its name; add --format csv, ndjson, influx, parquet or arrow"
                );
                return Err(Failure::usage(what));
            }
        };
        let is_text = !matches!(format, InputFormat::Parquet | InputFormat::Arrow);
        let is_utf16 = matches!(encoding::detect(magic), Detected::As(Encoding::Utf16 | Encoding::Utf16Be));
        if is_text && packing == Packing::None && magic[..magic.len().min(8)].contains(&0) && !is_utf16 {
            return Err(not("not text"));
        }
        let (encoding, constants) = (Encoding::Utf8, Vec::new());
        let read = Arc::clone(read);
        Ok(Source { name, path: path.to_owned(), format, bytes, packing, encoding, constants, read })
    }

    fn unpacked(&self) -> Result<Box<dyn Read + Send>, Failure> {
        let file = io::BufReader::with_capacity(1 << 16, files::open(&self.path)?);
        let counted = CountingReader { inner: file, read: Arc::clone(&self.read) };
        unpack(counted, self.packing).map_err(|e| self.unreadable(&e))
    }

    /// The file's text, decompressed, in UTF-8.
    pub(super) fn open(&self) -> Result<Box<dyn Read + Send>, Failure> {
        Ok(encoding::transcode(self.unpacked()?, self.encoding))
    }

    /// The beginning of the file's text, in the encoding that the user names or the text shows. Less is read of files
    /// other than the first.
    pub(super) fn sample(&self, encoding: Option<Encoding>, is_first: bool) -> Result<Sample, Failure> {
        let most = if is_first { SAMPLE_BYTES } else { SAMPLE_BYTES / 8 };
        let mut bytes = Vec::new();
        let read = self.unpacked()?.take(most as u64).read_to_end(&mut bytes).map_err(|e| self.unreadable(&e))?;
        Ok(Sample::new(&self.name, &bytes, read < most, encoding))
    }

    /// Whether the file has lines.
    pub(super) fn is_text(&self) -> bool {
        !matches!(self.format, InputFormat::Parquet | InputFormat::Arrow)
    }

    /// The default delimiter for a file with this name.
    pub(super) fn usual_delimiter(&self) -> u8 {
        if self.name.to_lowercase().contains(".tsv") { b'\t' } else { b',' }
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

    /// The error for a failed read of the file.
    pub(super) fn unreadable(&self, error: &io::Error) -> Failure {
        let hint = match self.packing {
            Packing::None => "",
            _ => "; the compressed file is damaged or was cut off: fetch it again",
        };
        Failure::new(format!("cannot read {}: {error}{hint}", self.name))
    }
}

/// Whether a file is a workbook of Excel or another office program.
fn is_workbook(magic: &[u8], name: &str) -> bool {
    let ending = name.rsplit('.').next().unwrap_or_default();
    let holds = |text: &[u8]| magic.windows(text.len()).any(|w| w == text);
    let named = ["xlsx", "xlsm", "xlsb", "ods"].contains(&ending);
    let zipped = magic.starts_with(b"PK\x03\x04") && (named || holds(b"[Content_Types]") || holds(b"spreadsheet"));
    zipped || magic.starts_with(b"\xd0\xcf\x11\xe0")
}

/// The files to import: patterns that the shell did not expand are replaced by the files that match.
pub(super) fn expand(given: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut all = Vec::new();
    for path in given {
        let text = path.to_string_lossy();
        if path.exists() || !text.contains(['*', '?', '[']) {
            all.push(path.clone());
            continue;
        }
        let found = glob::glob(&text).map_err(|e| Failure::usage(format!("{text} is not a valid pattern: {e}")))?;
        let before = all.len();
        for entry in found {
            all.push(entry.map_err(|e| Failure::new(format!("cannot read {}: {}", e.path().display(), e.error())))?);
        }
        if all.len() == before {
            return Err(Failure::new(format!("no file matches {text}")));
        }
    }
    refuse_repetitions(&all)?;
    Ok(all)
}

/// Refuses a file that is named twice, also through links.
fn refuse_repetitions(paths: &[PathBuf]) -> Result<(), Failure> {
    let mut seen = HashSet::new();
    for path in paths.iter().filter(|path| path.as_os_str() != "-") {
        let place = path.canonicalize().unwrap_or_else(|_| path.clone());
        if !seen.insert(place) {
            let path = path.display();
            return Err(Failure::usage(format!("{path} is given twice: what it has would be imported twice")));
        }
    }
    Ok(())
}

/// Passes the records of a file to `take`, block by block. The file is decompressed and split on another thread.
pub(super) fn blocks(
    source: &Source,
    how: &Split,
    take: &mut dyn FnMut(&Block) -> Result<ControlFlow<()>, Failure>,
) -> Result<(), Failure> {
    let (sender, receiver) = sync_channel::<Block>(4);
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let unreadable = |e: &io::Error| source.unreadable(e).to_string();
            let give = &mut |block| sender.send(block).is_ok();
            split::split(&source.name, source.open()?, how, false, give, &unreadable).map_err(Failure::new)
        });
        let mut outcome = Ok(());
        for block in receiver {
            match take(&block) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => break,
                Err(failure) => {
                    outcome = Err(failure);
                    break;
                }
            }
        }
        let read = reader.join().unwrap_or_else(|_| Err(Failure::new(format!("reading {} failed", source.name))));
        outcome.and(read)
    })
}

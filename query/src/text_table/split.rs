//! Splits text into records: the cells of a CSV line, or a whole line. One thread decompresses and splits while another
//! one processes what was split before.

use super::blanks::BlankSqueezer;
use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

/// Maximum number of records per block.
const BLOCK_RECORDS: usize = 16_384;
/// Maximum bytes per block, unless a single record is longer.
const BLOCK_BYTES: usize = 4 << 20;
/// Maximum bytes of a record: a longer one is probably an unclosed quote, or not text.
const RECORD_BYTES_MAX: u64 = 64 << 20;
/// The delimiters of a record longer than this are counted, since each cell takes far more memory than a byte.
const RECORD_BYTES_PLAIN: u64 = 1 << 20;
/// Maximum number of delimiters in such a record, including those inside quotes.
const RECORD_DELIMITERS_MAX: u64 = 4 << 20;

/// The way in which text is split.
#[derive(Debug, Clone)]
pub enum Split {
    /// Cells between delimiters, with quotes.
    Csv {
        /// The character between cells; a blank for runs of blanks.
        delimiter: u8,
        /// The first character of lines that are skipped.
        comment: Option<u8>,
        /// Number of lines to skip at the beginning.
        skip: u64,
    },
    /// One cell per line.
    Lines,
}

/// Some records in one piece of memory.
#[derive(Debug, Default, Clone)]
pub struct Block {
    bytes: Vec<u8>,
    /// The end of each cell in `bytes`.
    ends: Vec<u32>,
    /// The line on which each record begins, and the number of cells up to its end.
    records: Vec<(u64, usize)>,
}

/// One record of a block.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// The line on which it begins, counted from 1.
    pub line: u64,
    block: &'a Block,
    first: usize,
    /// Number of cells.
    pub cells: usize,
}

impl Block {
    /// Number of records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether it holds no record.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Adds a record: its cells one after the other, and the end of each.
    fn push(&mut self, line: u64, cells: &[u8], ends: impl Iterator<Item = usize>) {
        let before = self.bytes.len();
        self.bytes.extend_from_slice(cells);
        self.ends.extend(ends.map(|end| offset(before + end)));
        self.records.push((line, self.ends.len()));
    }

    /// How much text it holds.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds the records of another block.
    pub fn append(&mut self, other: &Block) {
        let (bytes, cells) = (self.bytes.len(), self.ends.len());
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.extend(other.ends.iter().map(|end| offset(bytes + *end as usize)));
        self.records.extend(other.records.iter().map(|(line, end)| (*line, end + cells)));
    }

    /// The end of its first `cells` cells in `bytes`.
    #[inline]
    fn end(&self, cells: usize) -> usize {
        cells.checked_sub(1).map_or(0, |last| self.ends[last] as usize)
    }

    /// The records in their order.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let mut first = 0;
        self.records.iter().map(move |(line, end)| {
            let record = Record { line: *line, block: self, first, cells: end - first };
            first = *end;
            record
        })
    }
}

/// An offset in a block, which has at most some megabytes more than its longest record.
fn offset(at: usize) -> u32 {
    u32::try_from(at).expect("a block is far smaller than 4 GiB")
}

impl<'a> Record<'a> {
    /// A cell without surrounding white space; empty if there is none at this index.
    #[inline]
    pub fn cell(&self, at: usize) -> &'a [u8] {
        if at >= self.cells {
            return &[];
        }
        self.block.bytes[self.block.end(self.first + at)..self.block.end(self.first + at + 1)].trim_ascii()
    }

    /// How much text it holds.
    pub fn bytes(&self) -> usize {
        self.block.end(self.first + self.cells) - self.block.end(self.first)
    }

    /// The record as text, for the file of bad lines.
    pub fn text(&self) -> String {
        let cells: Vec<String> = (0..self.cells).map(|i| String::from_utf8_lossy(self.cell(i)).into_owned()).collect();
        cells.join(",")
    }
}

fn too_long(name: &str, line: u64) -> String {
    let most = RECORD_BYTES_MAX >> 20;
    format!("{name}:{line}: the line is longer than {most} MiB: is a quote not closed, or is the file not text?")
}

/// The block in progress, and counts for the current record.
struct Pending<'a> {
    block: Block,
    give: &'a mut dyn FnMut(Block) -> bool,
    /// Whether to pass on the block before every read that may block.
    eager: bool,
    /// Bytes read since the last record.
    since: u64,
    /// The delimiter, where a record has cells.
    delimiter: Option<u8>,
    /// Delimiters since the last record, if they are counted.
    delimiters: u64,
    /// Whether a record is too long to be read.
    too_long: bool,
    /// The last byte that is not white space.
    last: u8,
    /// Whether lines end with CR and LF, once the first has ended.
    crlf: Option<bool>,
    /// Bytes read, and the last of them.
    read: u64,
    newest: u8,
    gone: bool,
}

impl Pending<'_> {
    fn hand_on(&mut self) {
        if !self.block.is_empty() && !self.gone {
            self.gone = !(self.give)(std::mem::take(&mut self.block));
        }
    }

    fn push(&mut self, line: u64, cells: &[u8], ends: impl Iterator<Item = usize>) {
        self.block.push(line, cells, ends);
        (self.since, self.delimiters) = (0, 0);
        if self.block.len() >= BLOCK_RECORDS || self.block.bytes.len() >= BLOCK_BYTES {
            self.hand_on();
        }
    }
}

/// Passes on the pending block before a read that may block, and limits the length of records.
struct LimitedReader<'a> {
    inner: Box<dyn Read>,
    pending: Rc<RefCell<Pending<'a>>>,
}

impl Read for LimitedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut pending = self.pending.borrow_mut();
        if pending.eager {
            pending.hand_on();
        }
        if pending.since > RECORD_BYTES_MAX || pending.delimiters > RECORD_DELIMITERS_MAX {
            pending.too_long = true;
            return Err(io::ErrorKind::InvalidData.into());
        }
        drop(pending);
        let count = self.inner.read(buffer)?;
        let mut pending = self.pending.borrow_mut();
        pending.since += count as u64;
        if let Some(delimiter) = pending.delimiter.filter(|_| pending.since > RECORD_BYTES_PLAIN) {
            pending.delimiters += buffer[..count].iter().filter(|b| **b == delimiter).count() as u64;
        }
        if pending.crlf.is_none()
            && let Some(at) = buffer[..count].iter().position(|b| *b == b'\n')
        {
            let before = if at == 0 { pending.newest } else { buffer[at - 1] };
            pending.crlf = Some(before == b'\r');
        }
        pending.read += count as u64;
        pending.newest = buffer[..count].last().copied().unwrap_or(pending.newest);
        if let Some(last) = buffer[..count].iter().rev().find(|b| !b.is_ascii_whitespace()) {
            pending.last = *last;
        }
        Ok(count)
    }
}

/// Splits a text to its end, or until `give` returns `false`. If `eager`, all records are passed on before a read that
/// may block.
///
/// # Errors
/// What cannot be read or split, with `name` and the line; `unreadable` words the failure of a read.
pub fn split(
    name: &str,
    input: Box<dyn Read>,
    how: &Split,
    eager: bool,
    give: &mut dyn FnMut(Block) -> bool,
    unreadable: &dyn Fn(&io::Error) -> String,
) -> Result<(), String> {
    let pending = Pending {
        block: Block::default(),
        give,
        eager,
        since: 0,
        delimiter: match how {
            Split::Csv { delimiter, .. } => Some(*delimiter),
            Split::Lines => None,
        },
        delimiters: 0,
        too_long: false,
        last: 0,
        crlf: None,
        read: 0,
        newest: 0,
        gone: false,
    };
    let pending = Rc::new(RefCell::new(pending));
    let input: Box<dyn Read> = match how {
        Split::Csv { delimiter: b' ', .. } => Box::new(BlankSqueezer::new(input)),
        _ => input,
    };
    let limited = LimitedReader { inner: input, pending: Rc::clone(&pending) };
    let input = BufReader::with_capacity(1 << 16, limited);
    match how {
        Split::Csv { delimiter, comment, skip } => {
            split_csv(name, input, (*delimiter, *comment, *skip), &pending, unreadable)?;
        }
        Split::Lines => split_lines(name, input, &pending, unreadable)?,
    }
    pending.borrow_mut().hand_on();
    Ok(())
}

fn split_csv(
    name: &str,
    mut input: BufReader<LimitedReader<'_>>,
    (delimiter, comment, skip): (u8, Option<u8>, u64),
    pending: &Rc<RefCell<Pending<'_>>>,
    unreadable: &dyn Fn(&io::Error) -> String,
) -> Result<(), String> {
    let fail = |e: &io::Error, line: u64| match (pending.borrow().too_long, pending.borrow().delimiters) {
        (true, RECORD_DELIMITERS_MAX..) => format!(
            "{name}:{line}: the line has more than {RECORD_DELIMITERS_MAX} delimiters: is a quote not closed, is the file not \
             a table, or is the delimiter wrong?"
        ),
        (true, _) => too_long(name, line),
        (false, _) => unreadable(e),
    };
    let mut skipped = 0;
    for line in 1..=skip {
        skipped += input.skip_until(b'\n').map_err(|e| fail(&e, line))? as u64;
        pending.borrow_mut().since = 0;
    }
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(delimiter)
        .comment(comment)
        .has_headers(false)
        .flexible(true)
        .from_reader(input);
    let mut record = csv::ByteRecord::new();
    let mut suspicious = None;
    let mut is_first = true;
    loop {
        let begins = skip + reader.position().line();
        match reader.read_byte_record(&mut record) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                return Err(match error.into_kind() {
                    csv::ErrorKind::Io(error) => fail(&error, begins),
                    other => format!("{name}: {other:?}"),
                });
            }
        }
        let mut pending = pending.borrow_mut();
        // The reader reads the LF of a CR LF with the record after it, and only counts the line then.
        let is_late = !std::mem::take(&mut is_first) && pending.crlf == Some(true);
        let first = record.position().map_or(0, csv::Position::line) + u64::from(is_late);
        // Blank lines and comments before a record are read with it.
        let end = reader.position();
        let is_open = skipped + end.byte() == pending.read && pending.newest != b'\n';
        let breaks = record.as_slice().iter().filter(|byte| **byte == b'\n').count() as u64;
        let after = end.line().saturating_sub(breaks + u64::from(pending.crlf == Some(false) && !is_open));
        let line = skip + first.max(after);
        let last = record.len().checked_sub(1).and_then(|i| record.get(i)).unwrap_or_default();
        suspicious = last.contains(&b'\n').then_some(line);
        let ends = (0..record.len()).filter_map(|at| record.range(at)).map(|cell| cell.end);
        pending.push(line, record.as_slice(), ends);
        if pending.gone {
            return Ok(());
        }
    }
    match suspicious {
        // If the quote is closed, it is the last byte of the file.
        Some(line) if pending.borrow().last != b'"' => {
            Err(format!("{name}:{line}: a quote that opens on this line is never closed"))
        }
        _ => Ok(()),
    }
}

fn split_lines(
    name: &str,
    mut input: BufReader<LimitedReader<'_>>,
    pending: &Rc<RefCell<Pending<'_>>>,
    unreadable: &dyn Fn(&io::Error) -> String,
) -> Result<(), String> {
    let mut text = Vec::new();
    let mut line = 0;
    loop {
        // Frees the memory of a long line before the next ones.
        text.clear();
        text.shrink_to(BLOCK_BYTES);
        line += 1;
        let read = input.read_until(b'\n', &mut text).map_err(|e| match pending.borrow().too_long {
            true => too_long(name, line),
            false => unreadable(&e),
        });
        if read? == 0 {
            return Ok(());
        }
        let mut cell = text.as_slice();
        if line == 1 {
            cell = cell.strip_prefix(b"\xef\xbb\xbf").unwrap_or(cell);
        }
        let mut pending = pending.borrow_mut();
        if !cell.trim_ascii().is_empty() {
            let cell = cell.trim_ascii();
            pending.push(line, cell, std::iter::once(cell.len()));
        }
        pending.since = 0;
        if pending.gone {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests;

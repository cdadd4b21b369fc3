//! How a CSV file is written, and its records.

use super::options::{Options, quoted};
use crate::files::reader::{Result, reader, wrong};
use crate::text_table::cells::Cells;
use crate::text_table::encoding::{Detected, Encoding, SAMPLE_BYTES, Sample, transcode};
use crate::text_table::outline::{self, Header, Table, TableSearch};
use crate::text_table::split::{Block, Record, Split, split};
use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// How a file is written.
#[derive(Debug)]
pub(super) struct Form {
    pub(super) path: PathBuf,
    encoding: Encoding,
    split: Split,
    has_header: bool,
    /// Lines below the header that are not data.
    below: u64,
    pub(super) cells: Cells,
}

/// Takes the columns and rows of a file.
pub(super) trait Visitor {
    /// The names of the columns, before the first row.
    fn begin(&mut self, names: &[String]);

    /// A row with as many cells as there are columns; breaks when no more rows are needed.
    ///
    /// # Errors
    /// What is wrong with the row.
    fn row(&mut self, record: &Record<'_>) -> Result<ControlFlow<()>, String>;
}

impl Form {
    /// The options, completed by what the beginning of the file shows.
    pub(super) fn find(path: &Path, options: &Options) -> Result<Form> {
        let name = path.display();
        let mut bytes = Vec::new();
        let read = reader(path)?.take(SAMPLE_BYTES as u64).read_to_end(&mut bytes);
        let read = read.map_err(|error| wrong(format!("cannot read {name}: {error}")))?;
        if bytes.is_empty() {
            return Err(wrong(format!("{name} is empty")));
        }
        let sample = Sample::new(&name.to_string(), &bytes, read < SAMPLE_BYTES, options.encoding);
        let encoding = match sample.encoding {
            Detected::Ascii => Encoding::Utf8,
            Detected::As(encoding) => encoding,
            Detected::Unknown => {
                return Err(wrong(format!(
                    "{name} is not UTF-8, and more than one other encoding is possible: say read_csv({}, encoding = \
                     'windows-1252'), or 'latin-1'",
                    quoted(&sample.name)
                )));
            }
        };
        let given = options.skip.unwrap_or_default();
        let lines = outline::lines(&sample, usize::try_from(given).unwrap_or(usize::MAX), options.comment);
        let usual = if sample.name.to_lowercase().contains(".tsv") { b'\t' } else { b',' };
        let mut form = Form {
            path: path.to_owned(),
            encoding,
            split: Split::Csv { delimiter: options.delimiter.unwrap_or(usual), comment: options.comment, skip: given },
            has_header: true,
            below: 0,
            cells: options.cells.clone(),
        };
        let mut table = match Table::find(&lines, options.delimiter) {
            TableSearch::One(table) => table,
            TableSearch::Nothing => {
                let is_data =
                    |cell: &&str| matches!(outline::kind(cell), Some(outline::Kind::Number | outline::Kind::Time));
                let first = lines.first().map(|(_, line)| outline::cells(line, options.delimiter.unwrap_or(usual)));
                form.has_header = options.header.unwrap_or_else(|| !first.iter().flatten().any(is_data));
                return Ok(form);
            }
            TableSearch::Several(found) => {
                let found: Vec<String> =
                    found.iter().map(|delimiter| quoted(&char::from(*delimiter).to_string())).collect();
                let what = format!(
                    "{name} can be split in more than one way: say read_csv({}, delim = ",
                    quoted(&sample.name)
                );
                return Err(wrong(format!("{what}{})", found.join("), or delim = "))));
            }
        };
        let line = form.place_header(&sample, &table, options.header)?;
        let before = lines.iter().any(|(at, _)| *at < line);
        let skip = if before { line as u64 } else { given };
        form.split = Split::Csv { delimiter: table.delimiter, comment: options.comment, skip };
        table.drop_lead(form.has_header);
        let found = || options.cells.thousands.is_none() && table.has_decimal_comma();
        form.cells.decimal_comma = options.decimal_comma.unwrap_or_else(found);
        Ok(form)
    }

    /// Finds the header; returns the line of the first record, counted from 0.
    fn place_header(&mut self, sample: &Sample, table: &Table<'_>, given: Option<bool>) -> Result<usize> {
        let start = table.rows.first().map_or(0, |row| row.line);
        let header = match given {
            Some(false) => Header::None { line: start },
            _ => table.header(sample.text.lines().next().unwrap_or_default()),
        };
        let (line, below) = match header {
            Header::At { line, below } => (line, below),
            Header::None { line } => {
                self.has_header = given == Some(true);
                (line, 0)
            }
            Header::Either([(one, below), (other, _)]) => {
                let Split::Csv { skip, .. } = self.split else { return Ok(one) };
                if skip == 0 || skip != one as u64 {
                    return Err(wrong(format!(
                        "{}: line {} or line {} may be the header: say read_csv({}, skip = {one}), or skip = {other}",
                        sample.name,
                        one + 1,
                        other + 1,
                        quoted(&sample.name)
                    )));
                }
                (one, below)
            }
        };
        self.below = below as u64;
        Ok(line)
    }

    /// Passes the columns and the rows to `reader`, until it breaks.
    pub(super) fn read(&self, visitor: &mut dyn Visitor) -> Result<()> {
        let name = self.path.display().to_string();
        let (mut width, mut head_end, mut failed) = (0, 0, None);
        let mut visit = |record: &Record<'_>| {
            if width == 0 {
                width = record.cells;
                visitor.begin(&self.names(record));
                if self.has_header {
                    head_end = record.line + self.below;
                }
            }
            if record.line <= head_end {
                return Ok(ControlFlow::Continue(()));
            }
            match record.cells == width {
                true => visitor.row(record),
                false => Err(format!(
                    "the line has {} columns, the first one {width}; fix the line (an open quote?) or check delim",
                    record.cells
                )),
            }
        };
        let give = &mut |block: Block| {
            block.records().all(|record| match visit(&record) {
                Ok(flow) => flow.is_continue(),
                Err(what) => {
                    failed = Some(format!("{name}:{}: {what}", record.line));
                    false
                }
            })
        };
        let input = transcode(reader(&self.path)?, self.encoding);
        let unreadable = |error: &std::io::Error| format!("cannot read {name}: {error}");
        split(&name, input, &self.split, false, give, &unreadable).map_err(wrong)?;
        failed.map_or(Ok(()), |what| Err(wrong(what)))
    }

    /// The names of the columns, from the first record.
    fn names(&self, first: &Record<'_>) -> Vec<String> {
        if !self.has_header {
            return (1..=first.cells).map(|n| format!("c{n}")).collect();
        }
        let mut names: Vec<String> = Vec::with_capacity(first.cells);
        for at in 0..first.cells {
            let cell = String::from_utf8_lossy(first.cell(at));
            // The header may be in a comment.
            let mark = if at == 0 { ['\u{feff}', '#'].as_slice() } else { &[] };
            let cell = cell.trim_start_matches(mark).trim();
            let plain = if cell.is_empty() { format!("c{}", at + 1) } else { cell.to_owned() };
            let numbered = |n: usize| if n == 0 { plain.clone() } else { format!("{plain}_{n}") };
            names.push((0..).map(numbered).find(|name| !names.contains(name)).unwrap_or(plain.clone()));
        }
        names
    }
}

//! Detects the form of a text from its beginning: encoding, delimiter, lines before the header, lines of units, a
//! missing header, decimal commas, and the form of times.
//!
//! The result becomes options, as if the user had given them, and is printed as the full command. Anything ambiguous is
//! an error that asks the user to choose.

use super::command;
use super::shape::Shape;
use super::source::Source;
use crate::Failure;
use crate::args::{Cli, ImportArgs, InputFormat};
use ebbtide_query::text_table::encoding::{Detected, Encoding, Sample};
use ebbtide_query::text_table::outline::{self, Header, Kind, Row, Table, TableSearch};
use ebbtide_query::text_table::time_forms::{self, TimeForm, Way};

/// A delimiter that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delimiter {
    /// The one that a file of this name is expected to have.
    Usual,
    Other(u8),
}

/// The findings for one text; `None` where it shows nothing.
#[derive(Debug, Default)]
struct Findings {
    encoding: Option<Encoding>,
    delimiter: Option<Delimiter>,
    skip: Option<u64>,
    below: Option<u64>,
    no_header: Option<bool>,
    decimal_comma: Option<bool>,
    time: Option<Vec<String>>,
    /// The possible forms of the times; empty if no pattern is needed.
    ways: Vec<Way>,
    unit: Option<&'static str>,
}

/// Examines texts for the options that the user has not given.
pub(super) struct Sniffer<'a> {
    pub(super) cli: &'a Cli,
    pub(super) args: &'a ImportArgs,
    pub(super) shape: &'a Shape,
}

impl Sniffer<'_> {
    /// The user's options, completed by those that the files show. Also sets the files' encoding.
    ///
    /// # Errors
    /// What is ambiguous, with the commands that decide it; files that differ in form.
    pub(super) fn options(&self, sources: &mut [Source]) -> Result<ImportArgs, Failure> {
        let mut all = Findings::default();
        let mut first: Option<String> = None;
        for source in sources.iter_mut().filter(|s| s.is_text()) {
            let sample = source.sample(self.args.encoding, first.is_none())?;
            let usual = (source.format == InputFormat::Csv).then(|| source.usual_delimiter());
            let one = self.look(&sample, usual)?;
            source.encoding = self.args.encoding.or(one.encoding).unwrap_or(Encoding::Utf8);
            let first = first.get_or_insert_with(|| sample.name.clone());
            all.merge(one, &Pair { first, name: &sample.name })?;
        }
        self.with(all)
    }

    /// The user's options, completed by those that the beginning of a pipe shows.
    ///
    /// # Errors
    /// What is not certain, with the commands that decide it.
    pub(super) fn options_of(&self, sample: &Sample, is_table: bool) -> Result<ImportArgs, Failure> {
        self.with(self.look(sample, is_table.then_some(b','))?)
    }

    /// The user's options, completed by the findings.
    fn with(&self, found: Findings) -> Result<ImportArgs, Failure> {
        let mut args = self.args.clone();
        args.encoding = args.encoding.or(found.encoding.filter(|e| *e != Encoding::Utf8));
        if let Some(Delimiter::Other(other)) = found.delimiter {
            args.delimiter.get_or_insert(other);
        }
        args.skip = args.skip.or(found.skip.filter(|s| *s > 0));
        args.skip_after_header = args.skip_after_header.or(found.below.filter(|b| *b > 0));
        args.no_header |= found.no_header.unwrap_or(false);
        args.decimal_comma |= found.decimal_comma.unwrap_or(false);
        if let Some(time) = found.time.filter(|_| args.time.is_empty()) {
            args.time = time;
        }
        match found.ways.as_slice() {
            _ if !args.time_format.is_empty() => {}
            [] => args.time_format.extend(found.unit.map(str::to_owned)),
            [one] => args.time_format.clone_from(&one.patterns),
            [one, ..] => {
                let what = format!("the times, such as {}, can be read in more than one way", one.example);
                let answer = |way: &Way| ("", ImportArgs { time_format: way.patterns.clone(), ..args.clone() });
                let answers: Vec<_> = found.ways.iter().map(answer).collect();
                return Err(command::question(self.cli, &what, &answers));
            }
        }
        Ok(args)
    }

    /// `usual` is the delimiter that a table of this name has if nothing else is said.
    fn look(&self, sample: &Sample, usual: Option<u8>) -> Result<Findings, Failure> {
        let encoding = match sample.encoding {
            Detected::Ascii => None,
            Detected::As(encoding) => Some(encoding),
            Detected::Unknown => {
                let with = |encoding| ImportArgs { encoding: Some(encoding), ..self.args.clone() };
                let what = format!("{} is not UTF-8, and more than one other encoding is possible", sample.name);
                let windows = ("if quotes and dashes then look right", with(Encoding::Windows1252));
                return Err(command::question(self.cli, &what, &[windows, ("else", with(Encoding::Latin1))]));
            }
        };
        let mut found = Findings { encoding, ..Findings::default() };
        if let Some(usual) = usual {
            self.look_at_table(sample, usual, &mut found)?;
        }
        Ok(found)
    }

    fn look_at_table(&self, sample: &Sample, usual: u8, found: &mut Findings) -> Result<(), Failure> {
        let skip = usize::try_from(self.args.skip.unwrap_or(0)).unwrap_or(usize::MAX);
        let lines = outline::lines(sample, skip, self.args.comment);
        let mut table = match Table::find(&lines, self.args.delimiter) {
            TableSearch::Nothing => return Ok(()),
            TableSearch::One(table) => table,
            TableSearch::Several(delimiters) => {
                let what = format!("{} can be split in more than one way: say --delimiter", sample.name);
                let with = |d: &u8| ("", ImportArgs { delimiter: Some(*d), ..self.args.clone() });
                let answers: Vec<_> = delimiters.iter().map(with).collect();
                return Err(command::question(self.cli, &what, &answers));
            }
        };
        let is_usual = table.delimiter == usual;
        found.delimiter = Some(if is_usual { Delimiter::Usual } else { Delimiter::Other(table.delimiter) });
        let header = self.header(sample, &table, sample.text.lines().next().unwrap_or_default())?;
        let (line, names) = match header {
            Header::At { line, below } => {
                found.below = Some(below as u64);
                found.no_header = Some(false);
                (line, table.rows.iter().find(|r| r.line == line).map(|r| r.cells.clone()))
            }
            Header::None { line } | Header::Either([(line, _), _]) => {
                found.no_header = Some(true);
                (line, None)
            }
        };
        let before = lines.iter().take_while(|(at, _)| *at < line).count();
        found.skip = Some(if before == 0 { 0 } else { line as u64 });
        table.drop_lead(names.is_some());
        found.decimal_comma = (self.args.thousands.is_none() && table.has_decimal_comma()).then_some(true);
        let Ok(names) = self.names(names, table.kinds.len(), &sample.name) else { return Ok(()) };
        self.times(&Columns { table: &table, names: &names }, found);
        Ok(())
    }

    /// The position of the header, from the options or the text.
    fn header(&self, sample: &Sample, table: &Table<'_>, first: &str) -> Result<Header, Failure> {
        let line = table.rows.first().map_or(0, |r| r.line);
        let with = |change: &dyn Fn(&mut ImportArgs)| {
            let mut args = self.args.clone();
            change(&mut args);
            args
        };
        if self.args.no_header {
            return Ok(Header::None { line });
        }
        Ok(match table.header(first) {
            Header::None { line } if self.args.header => Header::At { line, below: 0 },
            Header::None { .. } if self.args.columns.is_empty() => {
                let what = format!(
                    "{}:{}: the first line looks like data: is it the header?",
                    sample.name,
                    table.rows.first().map_or(0, |r| r.line) + 1
                );
                let answers = [
                    ("if it is data (--columns a,b,c names the columns)", with(&|args| args.no_header = true)),
                    ("if it is the header", with(&|args| args.header = true)),
                ];
                return Err(command::question(self.cli, &what, &answers));
            }
            Header::At { line, .. } if self.args.skip_after_header.is_some() => Header::At { line, below: 0 },
            Header::Either(lines) => {
                let what = format!("{}: more than one line may be the header", sample.name);
                let answer = |(line, below): (usize, usize)| {
                    with(&|args| {
                        args.skip = Some(line as u64);
                        args.skip_after_header = Some(below as u64);
                    })
                };
                let meaning = lines.map(|(line, _)| format!("if it is line {}", line + 1));
                let answers = [(meaning[0].as_str(), answer(lines[0])), (meaning[1].as_str(), answer(lines[1]))];
                return Err(command::question(self.cli, &what, &answers));
            }
            other => other,
        })
    }

    /// The names of the columns in the import.
    fn names(&self, header: Option<Vec<&str>>, width: usize, file: &str) -> Result<Vec<String>, Failure> {
        let names = match header {
            _ if self.args.columns.len() == width => self.args.columns.clone(),
            Some(names) => names.into_iter().map(|n| n.trim_start_matches(['#', ' ']).to_owned()).collect(),
            None => (1..=width).map(|i| format!("c{i}")).collect(),
        };
        self.shape.renamed(names, file)
    }

    /// Finds the columns with the time, and the form of the times.
    fn times(&self, columns: &Columns<'_>, found: &mut Findings) {
        if self.args.at.is_some() || !self.args.time_format.is_empty() {
            return;
        }
        let usable =
            |name: &str| !self.args.meta.iter().any(|m| m == name) && !self.args.without.iter().any(|w| w == name);
        let named = self.shape.time_by_name(columns.names);
        let time = match self.args.time.as_slice() {
            [] => columns.time(named.as_deref(), &usable),
            given => Some(given.to_vec()),
        };
        let Some((time, places)) = time.and_then(|time| columns.places(&time).map(|places| (time, places))) else {
            return;
        };
        let values = columns.joined(&places);
        let values = || values.iter().map(String::as_str);
        if let Some(way) = columns.way_of_parts(&places).filter(|_| time.len() > 1) {
            found.ways = vec![way];
        } else {
            match time_forms::written(values()) {
                TimeForm::Plainly => {}
                TimeForm::As(ways) => found.ways = ways,
                TimeForm::Unknown => match time_forms::unix_unit(values()).filter(|_| time.len() == 1) {
                    Some(unit) => found.unit = Some(unit),
                    None => return,
                },
            }
        }
        if self.args.time.is_empty() && named.map(|name| vec![name]).as_ref() != Some(&time) {
            found.time = Some(time);
        }
    }
}

/// The columns of a table with their names.
struct Columns<'t> {
    table: &'t Table<'t>,
    names: &'t [String],
}

impl<'t> Columns<'t> {
    fn places(&self, names: &[String]) -> Option<Vec<usize>> {
        names.iter().map(|name| self.names.iter().position(|n| n == name)).collect()
    }

    fn cells(&self, at: usize) -> impl Iterator<Item = &'t str> + use<'t> {
        let table = self.table;
        table.rows.iter().map(move |row| row.cells[at]).filter(|c| !c.is_empty())
    }

    /// The cells of some columns of each row, joined by a blank.
    fn joined(&self, places: &[usize]) -> Vec<String> {
        let is_full = |row: &&Row<'_>| places.iter().all(|at| !row.cells[*at].is_empty());
        let joined = |row: &Row<'_>| places.iter().map(|at| row.cells[*at]).collect::<Vec<_>>().join(" ");
        self.table.rows.iter().filter(is_full).map(joined).collect()
    }

    /// The columns with the time, if only one choice is possible. `named` is the one with a usual name.
    fn time(&self, named: Option<&str>, usable: &dyn Fn(&str) -> bool) -> Option<Vec<String>> {
        let places = || (0..self.names.len()).filter(|at| usable(&self.names[*at]));
        let all = |at: usize, is: &dyn Fn(&str) -> bool| {
            let mut cells = self.cells(at).take(100).peekable();
            cells.peek().is_some() && cells.all(is)
        };
        let dates: Vec<usize> = places().filter(|at| all(*at, &time_forms::is_date)).collect();
        let clocks: Vec<usize> = places()
            .filter(|at| time_forms::is_clock_name(&self.names[*at]) && all(*at, &time_forms::is_clock))
            .collect();
        let whole: Vec<usize> = places()
            .filter(|at| !clocks.contains(at) && self.table.kinds[*at] != Kind::Text)
            .filter(|at| !matches!(time_forms::written(self.cells(*at).take(100)), TimeForm::Unknown))
            .collect();
        let named_at = named.and_then(|name| self.names.iter().position(|n| n == name));
        let names = |places: &[usize]| places.iter().map(|at| self.names[*at].clone()).collect::<Vec<_>>();
        if let Some(at) = named_at.filter(|at| whole.contains(at) && !dates.contains(at)) {
            return Some(names(&[at]));
        }
        if let ([date], [clock]) = (dates.as_slice(), clocks.as_slice()) {
            return Some(names(&[*date, *clock]));
        }
        if let Some(parts) = self.parts(usable).filter(|_| whole.is_empty()) {
            return Some(parts);
        }
        match (named, whole.as_slice()) {
            (Some(name), _) => Some(vec![name.to_owned()]),
            (None, [one]) => Some(names(&[*one])),
            (None, []) => {
                const NAMES: [&str; 6] = ["epoch", "unix", "unixtime", "unix_time", "dt", "timestamp_ms"];
                let mut found = places().filter(|at| NAMES.contains(&self.names[*at].to_lowercase().as_str()));
                found.next().map(|at| names(&[at]))
            }
            _ => None,
        }
    }

    /// The columns of a time in parts: year, month, day, hour and so on, as far as they exist.
    fn parts(&self, usable: &dyn Fn(&str) -> bool) -> Option<Vec<String>> {
        let column_of = |wanted: &[&str]| {
            let mut found = (0..self.names.len())
                .filter(|at| usable(&self.names[*at]) && self.part(*at).is_some_and(|part| wanted.contains(&part)));
            let one = found.next();
            one.filter(|_| found.next().is_none())
        };
        let year = column_of(&["%Y", "%y"])?;
        let mut parts = vec![year];
        match (column_of(&["%m", "%b"]), column_of(&["%d"]), column_of(&["%j"])) {
            (Some(month), day, _) => parts.extend(std::iter::once(month).chain(day)),
            (None, _, Some(day)) => parts.push(day),
            _ => return None,
        }
        let has_day = self.part(parts[parts.len() - 1]).is_some_and(|p| p == "%d" || p == "%j");
        for unit in ["%H", "%M", "%S"].into_iter().filter(|_| has_day) {
            let Some(at) = column_of(&[unit]) else { break };
            parts.push(at);
        }
        Some(parts.into_iter().map(|at| self.names[at].clone()).collect())
    }

    /// The pattern of a column with one part of a time.
    fn part(&self, at: usize) -> Option<&'static str> {
        time_forms::part(&self.names[at], self.cells(at).next()?)
    }

    /// The form of columns that are all parts of a time.
    fn way_of_parts(&self, places: &[usize]) -> Option<Way> {
        let parts: Option<Vec<&str>> = places.iter().map(|at| self.part(*at)).collect();
        Some(Way::of_parts(&parts?.join(" ")))
    }
}

/// Two files, the first one and another.
struct Pair<'a> {
    first: &'a str,
    name: &'a str,
}

impl Pair<'_> {
    fn unlike(&self, what: &str) -> Failure {
        Failure::new(format!(
            "{} and {} have different {what}: import them one after the other, or say the options",
            self.first, self.name
        ))
    }

    fn merge<T: PartialEq>(&self, what: &str, all: &mut Option<T>, one: Option<T>) -> Result<(), Failure> {
        match (&all, one) {
            (_, None) => Ok(()),
            (Some(known), Some(other)) if *known != other => Err(self.unlike(what)),
            (_, one) => {
                *all = one;
                Ok(())
            }
        }
    }
}

impl Findings {
    /// Merges the findings for another file.
    fn merge(&mut self, one: Findings, files: &Pair<'_>) -> Result<(), Failure> {
        files.merge("encodings", &mut self.encoding, one.encoding)?;
        files.merge("delimiters", &mut self.delimiter, one.delimiter)?;
        files.merge("numbers of lines before the header", &mut self.skip, one.skip)?;
        files.merge("numbers of lines below the header", &mut self.below, one.below)?;
        files.merge("first lines: only one is a header", &mut self.no_header, one.no_header)?;
        files.merge("decimal marks", &mut self.decimal_comma, one.decimal_comma)?;
        files.merge("columns of the time", &mut self.time, one.time)?;
        files.merge("units of the time", &mut self.unit, one.unit)?;
        if self.ways.is_empty() || one.ways.is_empty() {
            self.ways.extend(one.ways);
            return Ok(());
        }
        self.ways.retain(|way| one.ways.iter().any(|w| w.order == way.order));
        if self.ways.is_empty() {
            return Err(files.unlike("orders of day and month"));
        }
        for way in &mut self.ways {
            let more = one.ways.iter().filter(|w| w.order == way.order).flat_map(|w| &w.patterns);
            for pattern in more {
                if !way.patterns.contains(pattern) {
                    way.patterns.push(pattern.clone());
                }
            }
        }
        Ok(())
    }
}

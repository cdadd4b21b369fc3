//! The command line of an import with all its options.

use crate::Failure;
use crate::args::{Cli, ImportArgs};
use clap::ValueEnum;
use ebbtide_query::text_table::encoding::Encoding;
use std::fmt::Write;
use std::path::Path;

/// The command that imports with these options, in a form that can be copied into a shell.
pub(super) fn line(cli: &Cli, args: &ImportArgs) -> String {
    let mut line = Line("ebbtide import".to_owned());
    for file in &args.files {
        line.word(&file.display().to_string());
    }
    let in_environment = std::env::var_os("EBBTIDE_DB").is_some_and(|db| Path::new(&db) == cli.db);
    if cli.db != Path::new("./ebbtide-data") && !in_environment {
        line.option("--db", Some(cli.db.display()));
    }
    line.option("-c", args.collection.as_ref());
    line.named("--format", args.format);
    line.option("--encoding", args.encoding.map(Encoding::name));
    line.option("--delimiter", args.delimiter.map(character));
    line.option("--comment", args.comment.map(character));
    line.option("--skip", args.skip);
    line.flag("--header", args.header);
    line.flag("--no-header", args.no_header);
    line.option("--skip-after-header", args.skip_after_header);
    line.list("--columns", &args.columns);
    line.options("--rename", args.rename.iter().map(|(old, new)| format!("{old}={new}")));
    line.options("--without", args.without.iter());
    line.options("--set", args.set.iter().map(|(name, value)| format!("{name}={value}")));
    line.option("--meta-from-name", args.meta_from_name.as_ref());
    line.list("--time", &args.time);
    line.options("--time-format", args.time_format.iter());
    line.option("--at", args.at.as_ref());
    line.option("--time-zone", args.time_zone.as_ref());
    line.named("--dst", Some(args.dst).filter(|dst| *dst != crate::args::Dst::Refuse));
    line.list("--meta", &args.meta);
    line.option("--meta-field", args.meta_field.as_ref());
    line.flag("--decimal-comma", args.decimal_comma);
    line.option("--thousands", args.thousands.map(character));
    line.options("--number", args.number.iter());
    line.options("--text", args.text.iter());
    line.options("--null", args.null.iter());
    line.flag("--skip-empty", args.skip_empty);
    line.option("--bad-lines", args.bad_lines.as_ref().map(|p| p.display()));
    line.option("--bad-lines-max", Some(args.bad_lines_max).filter(|_| args.bad_lines.is_some()));
    line.option("--granularity", args.granularity.as_ref());
    line.named("--precision", args.precision);
    line.option("--expire-after", args.expire_after);
    line.option("--batch-rows", Some(args.batch_rows).filter(|rows| *rows != ImportArgs::BATCH_ROWS));
    line.option("--flush-ms", args.flush_ms);
    line.flag("--dry-run", args.dry_run);
    line.flag("--resume", args.resume);
    line.flag("--from-start", args.from_start);
    line.0
}

/// An error about something ambiguous, with the commands that decide it: the meaning and the options of each.
pub(super) fn question(cli: &Cli, what: &str, answers: &[(&str, ImportArgs)]) -> Failure {
    let mut text = what.to_owned();
    for (meaning, args) in answers {
        let colon = if meaning.is_empty() { "" } else { ":" };
        // Writing to a string cannot fail.
        let _ =
            write!(text, "\n  {meaning}{colon}{}{}", if meaning.is_empty() { "" } else { "\n    " }, line(cli, args));
    }
    Failure::new(text)
}

struct Line(String);

impl Line {
    /// Adds a word, quoted if a shell requires it.
    fn word(&mut self, word: &str) {
        let is_plain = |c: char| c.is_alphanumeric() || "_./:,=+%@-".contains(c);
        let text = match !word.is_empty() && word.chars().all(is_plain) {
            true => word.to_owned(),
            false => format!("'{}'", word.replace('\'', "'\\''")),
        };
        self.0.push(' ');
        self.0.push_str(&text);
    }

    fn flag(&mut self, name: &str, given: bool) {
        if given {
            self.word(name);
        }
    }

    fn option(&mut self, name: &str, value: Option<impl ToString>) {
        self.options(name, value.into_iter());
    }

    fn options(&mut self, name: &str, values: impl Iterator<Item = impl ToString>) {
        for value in values {
            let value = value.to_string();
            match value.starts_with('-') {
                true => self.word(&format!("{name}={value}")),
                false => {
                    self.word(name);
                    self.word(&value);
                }
            }
        }
    }

    fn list(&mut self, name: &str, values: &[String]) {
        self.option(name, Some(values.join(",")).filter(|_| !values.is_empty()));
    }

    fn named(&mut self, name: &str, value: Option<impl ValueEnum>) {
        self.option(name, value.and_then(|v| Some(v.to_possible_value()?.get_name().to_owned())));
    }
}

fn character(byte: u8) -> String {
    if byte == b'\t' { "\\t".to_owned() } else { char::from(byte).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Command;
    use clap::Parser;

    fn parsed(words: &[&str]) -> (Cli, ImportArgs) {
        let cli = Cli::try_parse_from(words).unwrap();
        let Command::Import(args) = &cli.command else { panic!("{words:?}") };
        let args = args.as_ref().clone();
        (cli, args)
    }

    #[test]
    fn the_command_says_every_option() {
        let words = [
            "ebbtide",
            "import",
            "a b.csv",
            "it's.csv",
            "--db",
            "d",
            "-c",
            "c",
            "--format",
            "csv",
            "--encoding",
            "utf-16",
            "--delimiter",
            "\\t",
            "--comment",
            "#",
            "--skip",
            "3",
            "--no-header",
            "--skip-after-header",
            "2",
            "--columns",
            "a,b",
            "--rename",
            "a=x",
            "--without",
            "b",
            "--set",
            "s=t u",
            "--meta-from-name",
            "{s}.csv",
            "--time",
            "x,y",
            "--time-format",
            "%d.%m.%Y",
            "--time-format",
            "s",
            "--time-zone",
            "-08:00",
            "--dst",
            "infer",
            "--meta",
            "s",
            "--meta-field",
            "m",
            "--decimal-comma",
            "--thousands",
            ".",
            "--number",
            "n",
            "--text",
            "t",
            "--null",
            "-9999",
            "--skip-empty",
            "--bad-lines",
            "bad.csv",
            "--bad-lines-max",
            "7",
            "--granularity",
            "hours",
            "--precision",
            "us",
            "--expire-after",
            "7d",
            "--batch-rows",
            "9",
            "--flush-ms",
            "5",
            "--resume",
        ];
        let (cli, args) = parsed(&words);
        let line = line(&cli, &args);
        let shell = std::process::Command::new("sh").arg("-c").arg(format!("printf '%s\\n' {line}")).output().unwrap();
        let shell = String::from_utf8(shell.stdout).unwrap();
        let (again, same) = parsed(&shell.lines().collect::<Vec<_>>());
        assert_eq!(format!("{same:?}"), format!("{args:?}"), "{line}");
        assert_eq!(again.db, cli.db);
    }
}

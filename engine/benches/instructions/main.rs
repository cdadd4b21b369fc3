//! Counts the instructions of hot paths under valgrind's cachegrind, which vary far less than times on a shared machine, and compares
//! them with the figures in the repository: `cargo bench --profile dev --workspace --bench instructions`. The figures are of the dev
//! profile with the features of the whole workspace, so that CI builds nothing for them: they show that a path does more work than
//! before, not how fast it is.
//!
//! Fails where a path takes 3 % more. `EBBTIDE_UPDATE_INSTRUCTIONS=1` writes the figures of this run instead. Each path is run
//! in a process of its own, on one core, once and twice: the difference is the path without what prepares it.

mod paths;

use paths::{PATHS, Path};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A path may take this much more than its figure.
const MORE_MAX: f64 = 0.03;
/// Counts of a path that takes more; the least of them is compared.
const TRIES: usize = 3;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let done = match (arguments.next(), arguments.next(), arguments.next()) {
        (Some(name), Some(times), Some(filled)) => run(&name, &times, &filled).map(|()| true),
        (only, ..) => compare(only.as_deref()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prepares the path twice and runs it this many times.
fn run(name: &str, times: &str, filled: &str) -> Result<()> {
    let path = PATHS.iter().find(|path| path.name == name).ok_or("there is no such path")?;
    let times: usize = times.parse()?;
    for at in 0..2 {
        let empty = tempfile::tempdir()?;
        let folder = if path.fill.is_some() { std::path::Path::new(filled) } else { empty.path() };
        let work = (path.prepare)(folder)?;
        if at < times {
            work()?;
        }
    }
    Ok(())
}

/// Counts all paths, or those whose names start with `only`, and compares them with their figures.
fn compare(only: Option<&str>) -> Result<bool> {
    if !can_count() {
        println!("skipped: there is no valgrind, or no taskset, so no instructions were counted");
        return Ok(true);
    }
    let compiler = said_by("rustc", &["--version"])?;
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/instructions/figures.csv");
    let figures = Figures::read(&file)?;
    let compared = comparable(&figures, &compiler);
    if let Err(reason) = &compared {
        println!("skipped: the counts are not compared with the figures in the repository: {reason}");
    }
    let core = first_core();
    let (mut counts, mut slower) = (BTreeMap::new(), Vec::new());
    for Path { name, fill, .. } in PATHS.iter().filter(|path| only.is_none_or(|only| path.name.starts_with(only))) {
        let filled = tempfile::tempdir()?;
        if let Some(fill) = fill {
            fill(filled.path())?;
        }
        let figure = figures.counts.get(*name).copied();
        let mut counted = one_pass(&core, name, filled.path())?;
        // Random hashes make a count differ by a percent or two; more work is there each time.
        for _ in 1..TRIES {
            if figure.is_some_and(|figure| share_more(counted, figure) > MORE_MAX) {
                counted = counted.min(one_pass(&core, name, filled.path())?);
            }
        }
        counts.insert((*name).to_owned(), counted);
        let more = figure.map(|figure| share_more(counted, figure));
        println!(
            "{name:40} {counted:>14}  {}",
            more.map_or_else(String::new, |more| format!("{:+.2} %", more * 100.0))
        );
        if compared.is_ok() && more.is_none_or(|more| more > MORE_MAX) {
            slower.push(*name);
        }
    }
    if std::env::var_os("EBBTIDE_UPDATE_INSTRUCTIONS").is_some() {
        Figures { compiler, counts: figures.counts.into_iter().chain(counts).collect() }.write(&file)?;
        return Ok(true);
    }
    if !slower.is_empty() {
        eprintln!(
            "error: more than {:.0} % more instructions, or no figure in {}: {}. If that is meant to be, run this with \
             EBBTIDE_UPDATE_INSTRUCTIONS=1 and say why in the commit",
            MORE_MAX * 100.0,
            file.display(),
            slower.join(", ")
        );
    }
    Ok(slower.is_empty())
}

/// Whether this machine and this compiler count as those of the figures do: other instructions are chosen by what the processor
/// has, and made by other compilers.
fn comparable(figures: &Figures, compiler: &str) -> std::result::Result<(), String> {
    #[cfg(target_arch = "x86_64")]
    let same = std::arch::is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    let same = false;
    if !same {
        return Err("they are of x86-64 with AVX2".to_owned());
    }
    if figures.compiler != compiler {
        return Err(format!("they are of {}, and this is {compiler}", figures.compiler));
    }
    Ok(())
}

fn can_count() -> bool {
    ["valgrind", "taskset"].iter().all(|program| said_by(program, &["--version"]).is_ok())
}

fn said_by(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// The first core that this process may use: with one, nothing is divided among threads.
fn first_core() -> String {
    let list = said_by("taskset", &["-cp", &std::process::id().to_string()]).unwrap_or_default();
    let first = list.rsplit(' ').next().and_then(|cores| cores.split([',', '-']).next());
    first.filter(|core| !core.is_empty()).unwrap_or("0").to_owned()
}

/// The instructions of one pass over a path.
fn one_pass(core: &str, name: &str, filled: &std::path::Path) -> Result<u64> {
    let (once, twice) = (count(core, name, "1", filled)?, count(core, name, "2", filled)?);
    Ok(twice.checked_sub(once).ok_or("a path that runs twice took fewer instructions than one that runs once")?)
}

/// By which share a count is more than its figure.
fn share_more(counted: u64, figure: u64) -> f64 {
    counted as f64 / figure as f64 - 1.0
}

/// The instructions of a process that prepares a path twice and runs it `times` times.
fn count(core: &str, name: &str, times: &str, filled: &std::path::Path) -> Result<u64> {
    let this = std::env::current_exe()?;
    let output = Command::new("taskset")
        .args(["-c", core, "valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(this)
        .args([name, times])
        .arg(filled)
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let counted =
        said.lines().filter_map(|line| line.split_once("refs:")).find(|(before, _)| before.trim_end().ends_with('I'));
    let digits = counted.map(|(_, number)| number.chars().filter(char::is_ascii_digit).collect::<String>());
    match digits {
        Some(digits) if output.status.success() => Ok(digits.parse()?),
        _ => Err(format!("{name} could not be counted: {said}").into()),
    }
}

/// What the repository says: the compiler, and the instructions of each path.
struct Figures {
    compiler: String,
    counts: BTreeMap<String, u64>,
}

impl Figures {
    fn read(file: &std::path::Path) -> Result<Figures> {
        let mut reader = csv::ReaderBuilder::new().comment(None).from_path(file)?;
        let compiler = reader.headers()?.get(1).unwrap_or_default().to_owned();
        let mut counts = BTreeMap::new();
        for record in reader.records() {
            let record = record?;
            let name = record.get(0).ok_or("a line without a name")?;
            counts.insert(name.to_owned(), record.get(1).ok_or("a line without a count")?.parse()?);
        }
        Ok(Figures { compiler, counts })
    }

    #[expect(clippy::disallowed_methods, reason = "figures of the repository are no database")]
    fn write(&self, file: &std::path::Path) -> Result<()> {
        let mut text = format!("path,{}\n", self.compiler);
        for (name, count) in &self.counts {
            writeln!(text, "{name},{count}")?;
        }
        Ok(std::fs::write(file, text)?)
    }
}

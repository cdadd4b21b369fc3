//! The commands of `docs/weather.md`, run if the recorded files are available.

use crate::cli::command;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder of the files: `EBBTIDE_WEATHER`, or `../shared/data/weather` beside the project.
fn folder() -> Option<PathBuf> {
    let named = std::env::var_os("EBBTIDE_WEATHER").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/weather");
    named.or(Some(beside)).filter(|p| p.join("README.md").exists())?.canonicalize().ok()
}

/// The fenced blocks of a page, with their language.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in page.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(language), None) => open = Some((language.to_owned(), String::new())),
            (None, Some((_, text))) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

#[test]
fn every_command_of_the_page_on_recorded_weather_gives_what_it_says() {
    let Some(weather) = folder() else {
        eprintln!("skipped: there is no folder of recorded weather; name one with EBBTIDE_WEATHER");
        return;
    };
    let page = include_str!("../../../docs/weather.md");
    let blocks = blocks(page);
    let kinds: Vec<&str> = blocks.iter().map(|(language, _)| language.as_str()).collect();
    assert_eq!(kinds, ["sh", "sql", "csv", "sh", "sql", "csv"]);
    let whole = std::env::var_os("EBBTIDE_WEATHER_ALL").is_some();
    if !whole {
        eprintln!("the large files are skipped; EBBTIDE_WEATHER_ALL=1 imports them too");
    }
    let data = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_ebbtide")).parent().unwrap();
    let before = std::env::var_os("PATH").unwrap();
    let path = std::env::join_paths(std::iter::once(program.to_owned()).chain(std::env::split_paths(&before))).unwrap();
    for part in blocks.chunks(3).take(if whole { 2 } else { 1 }) {
        for line in part[0].1.lines().filter(|l| l.starts_with("ebbtide ")) {
            let mut shell = Command::new("sh");
            shell.args(["-c", line]).env("WEATHER", &weather).env("PATH", &path);
            shell.env("EBBTIDE_DB", data.path().join("db"));
            let output = shell.stdin(Stdio::null()).output().unwrap();
            assert!(output.status.success(), "{line}\n{}", String::from_utf8_lossy(&output.stderr));
        }
        let mut asking = command();
        asking.arg("--db").arg(data.path().join("db")).args(["sql", "--format", "csv", &part[1].1]);
        let answer = asking.output().unwrap();
        let (answer, errors) = (String::from_utf8_lossy(&answer.stdout), String::from_utf8_lossy(&answer.stderr));
        let mut lines: Vec<&str> = answer.lines().collect();
        let mut expected: Vec<&str> = part[2].1.lines().collect();
        lines.sort_unstable();
        expected.sort_unstable();
        assert_eq!(lines, expected, "{errors}");
    }
}

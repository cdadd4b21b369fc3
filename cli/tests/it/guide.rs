//! The guide's ```console blocks: commands after `$ `, and their output. With EBBTIDE_BLESS=1 the pages are rewritten.

#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Runs a line in the page's folder; returns all its output.
fn shell(line: &str, folder: &Path) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_ebbtide")).parent().unwrap();
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(program.to_owned()).chain(std::env::split_paths(&rest))).unwrap();
    let fixtures = root().join("fixtures");
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{{ {line} ; }} 2>&1")).current_dir(folder);
    command.env("PATH", path).env("FIXTURES", &fixtures).env("NO_COLOR", "1");
    command.env_remove("EBBTIDE_DB").env_remove("EBBTIDE_LOG").env_remove("EBBTIDE_BLESS");
    let output = command.output().unwrap();
    String::from_utf8(output.stdout).unwrap().replace(fixtures.to_str().unwrap(), "$FIXTURES")
}

fn run(page: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut told = String::new();
    let mut inside = false;
    for line in page.lines() {
        match (inside, line.strip_prefix("$ ")) {
            (true, Some(command)) => told.push_str(&format!("{line}\n{}", shell(command, folder.path()))),
            (true, None) if line != "```" => continue,
            _ => told.push_str(&format!("{line}\n")),
        }
        inside = if inside { line != "```" } else { line == "```console" };
    }
    drawn_as_the_page_shows(folder.path());
    told
}

/// The pictures that a page's commands draw must equal those in the repository.
#[expect(clippy::disallowed_methods, reason = "the pictures are part of the sources")]
fn drawn_as_the_page_shows(folder: &Path) {
    for entry in
        folder.read_dir().unwrap().map(Result::unwrap).filter(|e| e.path().extension().is_some_and(|x| x == "svg"))
    {
        let kept = root().join("docs").join(entry.file_name());
        let drawn = std::fs::read_to_string(entry.path()).unwrap();
        if std::env::var_os("EBBTIDE_BLESS").is_some() {
            std::fs::write(&kept, &drawn).unwrap();
        }
        assert!(std::fs::read_to_string(&kept).unwrap() == drawn, "{} is not what the page draws", kept.display());
    }
}

/// A line without sizes on disk and the shades that show them: the size of a file is not a promise of these pages.
fn sizeless(line: &str) -> String {
    let shades = ['\u{2591}', '\u{2592}', '\u{2593}', '\u{2588}'];
    let line = line.replace(shades, "#");
    let words: Vec<&str> = line.split(' ').collect();
    let is_unit = |word: &&str| ["B", "kB", "MB"].contains(&word.trim_matches(','));
    let size = |at: usize| words.get(at + 1).is_some_and(is_unit);
    let kept: Vec<&str> = words.iter().enumerate().map(|(at, word)| if size(at) { "#" } else { word }).collect();
    let line = kept.join(" ");
    // The last column of a dry run is bytes.
    match line.split('\u{2506}').count() {
        5 if line.contains("collection") => {
            line.rsplit_once('\u{2506}').map_or(String::new(), |(rest, _)| rest.to_owned())
        }
        _ => line,
    }
}

#[expect(clippy::disallowed_methods, reason = "the pages are part of the sources")]
fn check(name: &str) {
    let path = root().join("docs").join(name);
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page.contains("```console"), "{name} has no commands");
    let told = run(&page);
    if std::env::var_os("EBBTIDE_BLESS").is_some() {
        std::fs::write(&path, &told).unwrap();
    }
    for (number, (expected, found)) in (1..).zip(page.lines().zip(told.lines())) {
        assert_eq!(sizeless(found), sizeless(expected), "docs/{name}, line {number}");
    }
    assert_eq!(told.lines().count(), page.lines().count(), "docs/{name}: lines");
}

#[test]
fn an_hour_with_recorded_weather_goes_as_it_was_recorded() {
    check("an-hour.md");
}

#[test]
fn commands_of_the_page_for_mongodb_users_print_what_it_says() {
    check("from-mongodb.md");
}

#[test]
fn commands_of_the_page_for_users_of_cosmos_db_print_what_it_says() {
    check("from-cosmos-db.md");
}

#[test]
fn commands_of_the_page_on_documents_print_what_it_says() {
    check("documents.md");
}

#[test]
fn commands_of_the_page_for_influxdb_users_print_what_it_says() {
    check("from-influxdb.md");
}

#[test]
fn commands_of_the_page_on_copies_print_what_it_says() {
    check("copies.md");
}

#[test]
fn commands_of_the_page_on_archives_print_what_it_says() {
    check("archive.md");
}

#[test]
fn commands_of_the_page_on_published_tables_print_what_it_says() {
    check("publish.md");
}

#[cfg(feature = "workers")]
#[test]
fn the_page_about_workers_shows_what_happens() {
    check("workers.md");
}

#[test]
fn commands_of_the_operators_page_print_what_it_says() {
    check("operations.md");
}

#[cfg(feature = "server")]
#[test]
fn commands_of_the_page_on_the_server_print_what_it_says() {
    check("serve.md");
}

#[test]
fn commands_of_the_page_on_segment_files_print_what_it_says() {
    check("files.md");
}

#[test]
fn the_page_of_the_command_line_shows_the_help_of_every_command() {
    check("cli.md");
    let help = shell("ebbtide --help", Path::new("."));
    let commands = help.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
    let names: Vec<&str> = commands.filter_map(|l| l.split_whitespace().next()).filter(|n| *n != "help").collect();
    assert!(names.len() > 10, "{help}");
    let page = include_str!("../../../docs/cli.md");
    for name in names {
        assert!(page.contains(&format!("$ ebbtide {name} --help\n")), "docs/cli.md lacks {name}");
    }
}

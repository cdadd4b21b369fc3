//! The recorded session in mongosh, and the table of what is supported. With EBBTIDE_BLESS=1 the pages are rewritten.
#![expect(clippy::disallowed_methods, reason = "the pages are part of the sources")]

use crate::support::{Running, mongosh, output_of, python, succeeded};
use std::path::{Path, PathBuf};
use std::process::Stdio;

fn page(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name)
}

fn is_blessed() -> bool {
    std::env::var_os("EBBTIDE_BLESS").is_some()
}

/// The prompt at the beginning of a line, and what follows it.
fn prompt(line: &str) -> Option<(&str, &str)> {
    let (database, rest) = line.split_once("> ")?;
    let is_name = !database.is_empty() && database.chars().all(|c| c.is_ascii_alphanumeric());
    is_name.then(|| (&line[..database.len() + 2], rest))
}

/// What mongosh prints after each prompt.
fn answers(printed: &str) -> Vec<(String, String)> {
    let mut answers: Vec<(String, String)> = Vec::new();
    for line in printed.lines() {
        match prompt(line) {
            Some((prompt, rest)) => answers.push((prompt.to_owned(), format!("{rest}\n"))),
            None => answers.last_mut().unwrap().1.push_str(&format!("{line}\n")),
        }
    }
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_in_mongosh_goes_as_it_was_recorded() {
    let running = Running::start().await;
    let Some(mut command) = mongosh(running.folder.path()) else { return };
    let recorded = std::fs::read_to_string(page("mongosh.md")).unwrap();
    let mut inside = false;
    let mut typed = Vec::new();
    for line in recorded.lines() {
        typed.extend(prompt(line).filter(|_| inside).map(|(_, command)| command));
        inside = if inside { line != "```" } else { line == "```console" };
    }
    assert!(typed.len() > 20, "{typed:?}");
    let input = running.folder.path().join("typed");
    std::fs::write(&input, typed.join("\n") + "\n").unwrap();
    command.arg(running.uri()).stdin(Stdio::from(std::fs::File::open(input).unwrap()));
    let printed = succeeded(&output_of(command).await);
    let mut answers = answers(&printed).into_iter();
    let mut told = String::new();
    for line in recorded.lines() {
        match (inside, prompt(line)) {
            (true, Some((_, command))) => {
                let (prompt, answer) = answers.next().unwrap();
                let answer = answer.trim_start_matches('\n');
                told.push_str(&format!("{prompt}{command}\n{answer}"));
            }
            (true, None) if line != "```" => {}
            _ => told.push_str(&format!("{line}\n")),
        }
        inside = if inside { line != "```" } else { line == "```console" };
    }
    if is_blessed() {
        std::fs::write(page("mongosh.md"), &told).unwrap();
    }
    for (number, (found, expected)) in (1..).zip(told.lines().zip(recorded.lines())) {
        assert!(is_blessed() || found == expected, "docs/mongosh.md, line {number}: {found}\nexpected: {expected}");
    }
    assert!(is_blessed() || told == recorded, "docs/mongosh.md: lines");
    running.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_for_mongodb_users_is_what_the_server_says() {
    let Some(mut command) = python("table.py") else { return };
    let running = Running::start().await;
    command.arg(running.uri()).arg(page("from-mongodb.md"));
    if is_blessed() {
        command.arg("write");
    }
    succeeded(&output_of(command).await);
    running.server.stop().await.unwrap();
}

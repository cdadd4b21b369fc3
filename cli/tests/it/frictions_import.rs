//! Files as they come from the world, each imported as a new user types it at the first or second try. The cases are in
//! `frictions/import.txt`; what its lines mean is said at its top.

#![cfg(unix)]

use crate::cli::inside;
use std::path::Path;
use std::process::{Command, Stdio};

/// The text of a file in the encoding and with the line ends that a case names.
fn encoded(text: &str, flags: &[&str]) -> Vec<u8> {
    let has = |flag: &str| flags.contains(&flag);
    let text = if has("crlf") { text.replace('\n', "\r\n") } else { text.to_owned() };
    let text = if has("bom") { format!("\u{feff}{text}") } else { text };
    if has("latin-1") {
        text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect()
    } else if has("utf-16") {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    } else {
        text.into_bytes()
    }
}

/// Runs a line as a shell does; gives its exit code and all that it prints.
fn shell(line: &str, folder: &Path) -> (i32, String) {
    let program = Path::new(env!("CARGO_BIN_EXE_ebbtide")).parent().unwrap();
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(program.to_owned()).chain(std::env::split_paths(&rest))).unwrap();
    let mut command = Command::new("bash");
    command.arg("-c").arg(format!("{{ {line}\n}} 2>&1")).current_dir(folder).stdin(Stdio::null());
    command.env("PATH", path).env("NO_COLOR", "1").env_remove("EBBTIDE_DB").env_remove("RUST_LOG");
    let output = command.output().unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8(output.stdout).unwrap())
}

/// Runs one case; gives what went otherwise than it says.
fn run(case: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let (mut code, mut told, mut asked, mut expected) = (0, String::new(), String::new(), Vec::new());
    let mut lines = case.lines().peekable();
    while let Some(line) = lines.next() {
        let (mark, rest) = line.split_once(' ').unwrap_or((line, ""));
        match mark {
            "file" => {
                let words: Vec<&str> = rest.split(' ').collect();
                let mut text = String::new();
                for line in lines.by_ref().take_while(|l| *l != "end") {
                    text.push_str(line);
                    text.push('\n');
                }
                let path = folder.path().join(words[0]);
                #[expect(clippy::disallowed_methods, reason = "test input")]
                {
                    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                    std::fs::write(path, encoded(&text, &words[1..])).unwrap();
                }
            }
            "$" => (code, told) = shell(rest, folder.path()),
            "=" if rest == code.to_string() => {}
            "=" => return Err(format!("the exit code is {code}\n{told}")),
            "?" if told.contains(rest) => {}
            "?" => return Err(format!("no '{rest}' in\n{told}")),
            "!" if !told.contains(rest) => {}
            "!" => return Err(format!("'{rest}' in\n{told}")),
            // The command that the program proposes, of this number, as it is printed.
            "copy" => {
                let proposed: Vec<&str> = told.lines().map(str::trim).filter(|l| l.starts_with("ebbtide ")).collect();
                let line = proposed.get(rest.parse::<usize>().unwrap() - 1).ok_or(format!("no command in\n{told}"))?;
                (code, told) = shell(line, folder.path());
            }
            ">" => {
                if code != 0 {
                    return Err(format!("the exit code is {code}\n{told}"));
                }
                let output = inside(folder.path(), &["sql", "--format", "csv", rest], "");
                asked = output.stdout + &output.stderr;
                expected.clear();
            }
            "|" => {
                expected.push(rest);
                if !lines.peek().is_some_and(|l| l.starts_with('|'))
                    && asked.lines().skip(1).collect::<Vec<_>>() != expected
                {
                    return Err(format!("{expected:?} is expected, not\n{asked}\nafter\n{told}"));
                }
            }
            "" => {}
            other => return Err(format!("no such mark: {other}")),
        }
    }
    Ok(())
}

#[test]
fn every_file_of_the_table_comes_in_or_leads_to_the_way() {
    let table = include_str!("frictions/import.txt");
    let cases: Vec<&str> = table.split("\n== ").skip(1).collect();
    let mut wrong = Vec::new();
    let workers: Vec<_> = cases
        .chunks(cases.len().div_ceil(4))
        .map(|some| some.iter().map(|case| (*case).to_owned()).collect::<Vec<String>>())
        .map(|some| {
            #[expect(clippy::disallowed_methods, reason = "the cases do not depend on each other")]
            std::thread::spawn(move || {
                let run = |case: String| {
                    let (title, steps) = case.split_once('\n').unwrap();
                    run(steps).err().map(|reason| format!("== {title}\n{reason}\n"))
                };
                some.into_iter().filter_map(run).collect::<Vec<String>>()
            })
        })
        .collect();
    for worker in workers {
        wrong.extend(worker.join().unwrap());
    }
    assert!(wrong.is_empty(), "{} of {} cases\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

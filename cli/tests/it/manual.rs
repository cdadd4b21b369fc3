//! Shell completions and manual pages.

use crate::cli::ebbtide;
use std::io::Write;
use std::process::{Command, Stdio};

/// Runs a tool with some input; `None` if it is not installed.
fn tool(program: &str, args: &[&str], input: &str) -> Option<(bool, String)> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("MANWIDTH", "120").env("LC_ALL", "C.UTF-8");
    let mut child = command.spawn().ok()?;
    // A tool that refuses its arguments closes its input; its exit code shows that.
    let _ = child.stdin.take()?.write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    Some((output.status.success(), text))
}

/// A page as it looks: bold letters are printed twice, with a backspace between them.
fn without_overstrikes(page: &str) -> String {
    let mut shown = String::new();
    for character in page.chars() {
        match character {
            '\u{8}' => drop(shown.pop()),
            other => shown.push(other),
        }
    }
    shown
}

#[test]
fn completions_name_every_command_and_the_shells_accept_them() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let printed = ebbtide(&["completions", shell]);
        assert_eq!((printed.code, printed.stderr.as_str()), (0, ""), "{shell}");
        for word in ["import", "restore", "completions", "bad-lines"] {
            assert!(printed.stdout.contains(word), "{shell}: {word}");
        }
        match (shell, tool(shell, &["-n"], &printed.stdout)) {
            ("bash" | "zsh" | "fish", Some((good, told))) => assert!(good, "{shell}: {told}"),
            ("bash" | "zsh" | "fish", None) => println!("skipped: there is no {shell} here to check its script"),
            _ => {}
        }
    }
    assert_eq!(ebbtide(&["completions", "tcsh"]).code, 2);
}

#[test]
fn bash_completes_commands_options_and_values() {
    let script = ebbtide(&["completions", "bash"]).stdout;
    let complete = |words: &str| {
        let ask = format!(
            "{script}\nCOMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n_ebbtide ebbtide \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"; echo \"${{COMPREPLY[@]}}\"\n"
        );
        tool("bash", &["--norc"], &ask)
    };
    let Some((_, commands)) = complete("ebbtide im") else { return };
    assert_eq!(commands.trim(), "import");
    let (_, options) = complete("ebbtide import --bad-lines-").unwrap();
    assert_eq!(options.trim(), "--bad-lines-max");
    let (_, values) = complete("ebbtide sql --format nd").unwrap();
    assert_eq!(values.trim(), "ndjson");
}

#[test]
fn the_manual_has_a_page_for_the_program_and_for_each_command() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("share/man1");
    let printed = ebbtide(&["man"]);
    assert_eq!((printed.code, printed.stderr.as_str()), (0, ""));
    assert!(printed.stdout.starts_with(".ie") && printed.stdout.contains(".TH ebbtide 1"), "{}", printed.stdout);
    assert_eq!(ebbtide(&["man", "--into", pages.to_str().unwrap()]).code, 0);
    let mut names: Vec<String> =
        pages.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    for name in ["ebbtide.1", "ebbtide-import.1", "ebbtide-sql.1", "ebbtide-man.1"] {
        assert!(names.iter().any(|n| n == name), "{name} is not among {names:?}");
    }
    let path = |name: &str| pages.join(name).to_str().unwrap().to_owned();
    for name in &names {
        for (program, args) in [("man", &["--warnings", "-l"][..]), ("mandoc", &["-T", "utf8", "-W", "error"])] {
            let path = path(name);
            let Some((good, text)) = tool(program, &[args, &[path.as_str()]].concat(), "") else {
                println!("skipped: there is no {program} here to show {name}");
                continue;
            };
            let text = without_overstrikes(&text);
            assert!(good && text.contains("NAME") && text.contains("OPTIONS"), "{program} {name}: {text}");
        }
    }
}

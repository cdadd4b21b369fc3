use super::*;
use commands::COMMANDS;

/// The commands that a page lists, each with all the ways to write it.
fn listed(page: &str) -> Vec<Vec<String>> {
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let written = |cell: &str| {
        let names = cell.split('`').skip(1).step_by(2);
        names.filter_map(|name| name.split(' ').next()).map(|name| name.to_owned()).collect()
    };
    rows.filter_map(|row| row.split('|').nth(1)).map(written).collect()
}

#[test]
fn the_page_of_the_shell_lists_every_command() {
    let page = listed(include_str!("../../../docs/shell.md"));
    let ours: Vec<Vec<String>> =
        COMMANDS.iter().map(|command| command.names.iter().map(|name| (*name).to_owned()).collect()).collect();
    assert_eq!(page, ours);
    let help = commands::help();
    for command in COMMANDS {
        assert!(help.contains(command.names[0]) && help.contains(command.help), "{}", command.names[0]);
    }
}

/// A shell over a new database with three rows.
fn with_shell(work: impl FnOnce(&mut Shell, &mut LazySession<'_>, &tokio::runtime::Runtime, &Path)) {
    use clap::Parser as _;
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("db");
    let cli = Cli::try_parse_from(["ebbtide", "--db", db.to_str().unwrap(), "sql"]).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut session = LazySession::new(&cli, SessionSettings::default(), Need::Create);
    let mut shell = Shell::new(Show {
        format: Format::Table,
        chart: None,
        title: None,
        timing: false,
        rows_max: None,
        records: false,
        page: None,
    });
    let setup = "CREATE COLLECTION w WITH (timeField = 't', metaField = 's');
                 INSERT INTO w (t, s, v) VALUES (now(), 'a', 1.5), (now(), 'b', 2.5), (now(), 'b', 3.5);";
    shell.script(setup, &mut session, &runtime).unwrap();
    work(&mut shell, &mut session, &runtime, folder.path());
}

#[expect(clippy::disallowed_methods, reason = "files that a user of the shell has")]
fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

#[test]
fn every_command_is_run_or_says_what_it_takes() {
    with_shell(|shell, session, runtime, _| {
        let asks = [Action::Format, Action::Rows, Action::Read, Action::Chart, Action::Edit];
        for command in COMMANDS.iter().filter(|command| command.action != Action::Edit) {
            for name in command.names {
                match shell.line(name, session, runtime) {
                    Ok(goes_on) => assert_eq!(goes_on, command.action != Action::Quit, "{name}"),
                    Err(failure) => assert!(asks.contains(&command.action), "{name}: {failure}"),
                }
            }
        }
        let unknown = shell.line(".tabels", session, runtime).unwrap_err().to_string();
        assert!(unknown.contains("did you mean '.tables'?"), "{unknown}");
    });
}

#[test]
fn files_are_read_and_written() {
    with_shell(|shell, session, runtime, folder| {
        let (out, script, inner) = (folder.join("o.csv"), folder.join("a b.sql"), folder.join("inner.sql"));
        write(&inner, "\\x on\n-- nothing else\n");
        let text =
            format!("\\i {}\n\\o {}\nSELECT s, v\nFROM w ORDER BY v;\nSELECT 1;\n", inner.display(), out.display());
        write(&script, &text);
        shell.line(&format!(".read {}", script.display()), session, runtime).unwrap();
        assert!(shell.show.records);
        let rows = std::fs::read_to_string(&out).unwrap();
        assert_eq!(rows, "s,v\na,1.5\nb,2.5\nb,3.5\n");
        assert_eq!(shell.output, None);
        write(&script, &format!("\\i {}\n", script.display()));
        let deep = shell.line(&format!("\\i {}", script.display()), session, runtime).unwrap_err().to_string();
        assert!(deep.contains("too deep"), "{deep}");
        write(&script, "SELECT 1;\nSELEC 2;\nDELETE FROM w;\n");
        let stopped = shell.line(&format!("\\i {}", script.display()), session, runtime).unwrap_err().to_string();
        assert!(stopped.contains("a b.sql") && stopped.contains("SELECT"), "{stopped}");
        assert_eq!(session.get(None).unwrap().snapshot().collection("w").unwrap().count().unwrap(), 3);
    });
}

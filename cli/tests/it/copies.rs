//! Copies on the command line.

#[cfg(unix)]
use crate::cli::{Log, command};
use crate::cli::{inside, write};
#[cfg(unix)]
use std::io::{BufRead, BufReader};
#[cfg(unix)]
use std::process::{Command, Stdio};

#[test]
fn a_database_is_restored_as_it_was_at_an_instant() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().join("copy").display());
    let run = |args: &[&str]| {
        let output = inside(folder.path(), args, "");
        assert_eq!(output.code, 0, "{args:?}: {}", output.stderr);
        output.stdout
    };
    let count = |db: &str| run(&["--db", db, "sql", "--format", "csv", "SELECT count(*) AS n FROM doors"]);
    run(&["--db", "db", "sql", "CREATE COLLECTION doors WITH (timeField = 't', metaField = 'door')"]);
    let mut shipped = Vec::new();
    for day in 1..=3 {
        run(&[
            "--db",
            "db",
            "sql",
            &format!("INSERT INTO doors (t, door) VALUES ('2024-06-{day:02}T10:00:00Z', 'front')"),
        ]);
        run(&["--db", "db", "ship", "--to", &url, "--once"]);
        let status = run(&["--db", "db", "status"]);
        let (_, rest) = status.split_once(&format!("shipped to {url} until ")).unwrap();
        shipped.push(rest.split_once(';').unwrap().0.to_owned());
    }
    assert!(shipped.is_sorted_by(|a, b| a < b), "{shipped:?}");
    for (n, instant) in (1..).zip(&shipped) {
        let db = format!("restored{n}");
        run(&["restore", "--from", &url, "--at", instant, "--db", &db]);
        assert_eq!(count(&db), format!("n\n{n}\n"), "{instant}");
    }
    let early =
        inside(folder.path(), &["restore", "--from", &url, "--at", "2024-01-01T00:00:00Z", "--db", "early"], "");
    assert_ne!(early.code, 0, "{}", early.stdout);
    assert!(early.stderr.contains("2024-01-01T00:00:00Z"), "{}", early.stderr);
}

#[cfg(unix)]
#[test]
fn a_signal_ends_shipping_once_the_last_changes_are_in_the_copy() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let output = inside(folder.path(), args, "");
        assert_eq!(output.code, 0, "{args:?}: {}", output.stderr);
        output.stdout
    };
    run(&["sql", "CREATE COLLECTION doors WITH (timeField = 't', metaField = 'door')"]);
    let signals: &[&str] = match cfg!(all(target_os = "linux", feature = "server")) {
        true => &["-TERM", "-INT", "-HUP"],
        false => &["-TERM", "-INT"],
    };
    for (day, signal) in (1..).zip(signals) {
        let url = format!("file://{}", folder.path().join(format!("copy{day}")).display());
        let mut ship = command();
        ship.current_dir(folder.path()).args(["ship", "--to", &url, "--every", "1h"]);
        let log = Log::of(&mut ship);
        let mut child = ship.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        out.read_line(&mut first).unwrap();
        assert!(first.starts_with("shipped everything before "), "{first}{}", log.text());
        run(&["sql", &format!("INSERT INTO doors (t, door) VALUES ('2024-06-{day:02}T10:00:00Z', 'front')")]);
        assert!(Command::new("kill").args([signal, child.id().to_string().as_str()]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{signal}: {}", log.text());
        let db = format!("restored{day}");
        run(&["restore", "--from", &url, "--db", &db]);
        let count = run(&["--db", &db, "sql", "--format", "csv", "SELECT count(*) AS n FROM doors"]);
        assert_eq!(count, format!("n\n{day}\n"), "{signal}");
    }
}

#[test]
fn what_an_old_primary_had_not_shipped_is_said_there_and_of_the_copy() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().join("copy").display());
    let run = |args: &[&str]| inside(folder.path(), args, "");
    run(&["sql", "CREATE COLLECTION doors WITH (timeField = 't', metaField = 'door')"]);
    run(&["ship", "--to", &url, "--once"]);
    run(&["sql", "INSERT INTO doors (t, door) VALUES ('2024-06-01T10:00:00Z', 'a'), ('2024-06-01T10:00:00Z', 'b')"]);
    assert_eq!(run(&["promote", "--from", &url, "--db", "new"]).code, 0);
    assert!(!run(&["status", "--follow", &url]).stdout.contains("note: "));
    let refused = run(&["ship", "--to", &url, "--once"]);
    assert!(refused.code != 0 && refused.stderr.contains("and are not in the copy: 2, as of "), "{}", refused.stderr);
    let status = run(&["status"]).stdout;
    assert!(status.contains("refuses writes: another folder was made the primary of "), "{status}");
    let status = run(&["status", "--follow", &url]).stdout;
    let note = status.lines().find(|line| line.starts_with("note: ")).unwrap();
    assert!(note.contains(": 2, as of "), "{note}");
}

#[test]
fn the_status_of_a_copy_says_how_old_it_is_and_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().join("copy").display());
    let run = |args: &[&str]| inside(folder.path(), args, "");
    let nothing = run(&["status", "--follow", &url]);
    assert!(nothing.code != 0 && nothing.stderr.contains("has no copy of a database"), "{}", nothing.stderr);
    run(&["sql", "CREATE COLLECTION doors WITH (timeField = 't', metaField = 'door')"]);
    run(&[
        "sql",
        "INSERT INTO doors (t, door) VALUES ('2024-06-01T10:00:00Z', 'a'), ('2024-06-01T10:00:00Z', 'b')",
        "FLUSH",
    ]);
    run(&["sql", "INSERT INTO doors (t, door) VALUES ('2024-06-02T10:00:00Z', 'a')"]);
    run(&["ship", "--to", &url, "--once"]);
    run(&["sql", "INSERT INTO doors (t, door) VALUES ('2024-06-03T10:00:00Z', 'a')"]);
    let own = run(&["status"]).stdout;
    let (_, until) = own.split_once(&format!("shipped to {url} until ")).unwrap();
    let (until, _) = until.split_once(';').unwrap();
    let status = run(&["status", "--follow", &url]).stdout;
    let lines: Vec<&str> = status.lines().collect();
    let [age, position, doors, times] = lines.as_slice() else { panic!("{status}") };
    let known = format!("copy {url}: what was acknowledged before {until}, ");
    assert!(age.starts_with(&known) && age.ends_with(" ago"), "{age}");
    assert_eq!(*position, "  epoch 1, piece 1");
    assert!(doors.starts_with("doors: 2 measurements in 1 segment, "), "{doors}");
    assert!(doors.ends_with("; 1 in open buckets"), "{doors}");
    assert_eq!(*times, "  2024-06-01T10:00:00Z to 2024-06-02T10:00:00Z");
}

#[test]
fn shipping_needs_a_database_and_an_interval_of_a_second_at_least() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().join("copy").display());
    let run = |args: &[&str]| inside(folder.path(), args, "");
    assert_eq!(run(&["sql", "CREATE COLLECTION doors WITH (timeField = 't')"]).code, 0);
    for (args, says) in [
        (&["--db", "nowhere", "ship", "--to", url.as_str(), "--once"][..], "there is no database at nowhere"),
        (&["ship", "--to", url.as_str(), "--every", "0s"], "'0s' is too short"),
        (&["ship", "--to", url.as_str(), "--every", "0.1s"], "'0.1s' is not a length of time"),
    ] {
        let refused = run(args);
        assert!(refused.code != 0 && refused.stderr.contains(says), "{args:?}: {}", refused.stderr);
    }
}

#[test]
fn commands_say_that_a_restore_has_not_ended() {
    let folder = tempfile::tempdir().unwrap();
    // What is left if its process is killed before it has fetched anything.
    std::fs::create_dir(folder.path().join("begun")).unwrap();
    write(folder.path(), "begun/COPY", "file:///copy");
    for args in
        [&["verify"][..], &["repair"], &["status"], &["sql", "SELECT * FROM w"], &["sql", "CREATE COLLECTION w"]]
    {
        let refused = inside(folder.path(), &[&["--db", "begun"], args].concat(), "");
        assert_eq!(refused.code, 1, "{args:?}: {}", refused.stderr);
        assert!(refused.stderr.contains("or a restore into it has not ended"), "{args:?}: {}", refused.stderr);
    }
}

#[test]
fn a_sweep_that_is_held_fails_as_a_command_and_as_a_statement() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().join("copy").display());
    let run = |args: &[&str]| inside(folder.path(), args, "");
    assert_eq!(run(&["sql", "CREATE COLLECTION doors WITH (timeField = 't') EXPIRE AFTER 1 DAY"]).code, 0);
    assert_eq!(run(&["ship", "--to", &url, "--once"]).code, 0);
    assert_eq!(run(&["--db", "restored", "restore", "--from", &url]).code, 0);
    for args in [&["sweep"][..], &["sql", "SWEEP"]] {
        let held = run(&[&["--db", "restored"], args].concat());
        assert_eq!((held.code, held.stdout.as_str()), (1, ""), "{args:?}: {}", held.stderr);
        assert!(held.stderr.contains("nothing was dropped because it has expired: "), "{args:?}: {}", held.stderr);
    }
}

#[test]
fn a_database_that_is_read_only_is_not_detached() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| inside(folder.path(), args, "");
    assert_eq!(run(&["sql", "CREATE COLLECTION doors WITH (timeField = 't')"]).code, 0);
    let refused = run(&["ship", "--read-only", "--detach"]);
    assert!(refused.code == 2 && refused.stderr.contains("drop --read-only"), "{}", refused.stderr);
    assert_eq!(run(&["ship", "--detach"]).code, 0);
}

#[test]
fn copies_and_tables_are_kept_out_of_the_folder_of_their_database_and_of_other_tables() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| inside(folder.path(), args, "");
    assert_eq!(run(&["sql", "CREATE COLLECTION doors WITH (timeField = 't')"]).code, 0);
    std::fs::create_dir(folder.path().join("other")).unwrap();
    std::fs::create_dir(folder.path().join("ebbtide-data/kept")).unwrap();
    let url = |place: &str| format!("file://{}", folder.path().join(place).display());
    let expire = |place: &str| format!("ALTER COLLECTION doors EXPIRE AFTER 1 HOUR INTO '{}'", url(place));
    let publish = |place: &str| format!("PUBLISH doors TO '{}'", url(place));
    let refuses = |statement: &str, what: &str| {
        let refused = run(&["sql", statement]);
        assert!(refused.code == 1 && refused.stderr.contains(what), "{statement}: {}", refused.stderr);
    };
    for place in ["ebbtide-data", "ebbtide-data/copy", "ebbtide-data/kept", "other/../ebbtide-data"] {
        for statement in [expire(place), publish(place)] {
            refuses(&statement, "is in the folder of the database");
        }
        let url = url(place);
        let refused = run(&["ship", "--to", &url, "--once"]);
        assert!(refused.code == 1 && refused.stderr.contains("is in the folder of the database"), "{}", refused.stderr);
    }
    refuses(&publish(""), "ebbtide-data, in it");
    assert_eq!(run(&["sql", &publish("table")]).code, 0);
    refuses(&expire("table/x"), "is in a folder with a table or a copy");
    refuses(&expire("table/"), "where collection 'doors' has a table");
    assert_eq!(run(&["sql", &expire("archives/of/doors")]).code, 0);
    refuses(&publish("archives/of"), "where collection 'doors' has a table");
    let refused = run(&["ship", "--to", &url("table/copy"), "--once"]);
    assert!(refused.stderr.contains("is in a folder with a table or a copy"), "{}", refused.stderr);
    assert_eq!(run(&["ship", "--to", &url("copy"), "--once"]).code, 0);
    refuses(&publish("copy/table"), "is in a folder with a table or a copy");
    // What is there already can be changed, and a copy in use stays although a table is made around it.
    assert_eq!(run(&["ship", "--to", &url("around/copy"), "--once"]).code, 0);
    assert_eq!(run(&["ship", "--to", &url("around/other"), "--once"]).code, 0);
    std::fs::create_dir(folder.path().join("around/_delta_log")).unwrap();
    assert_eq!(run(&["ship", "--to", &url("around/copy"), "--once"]).code, 0);
    let refused = run(&["ship", "--to", &url("around/new"), "--once"]);
    assert!(refused.stderr.contains("is in a folder with a table or a copy"), "{}", refused.stderr);
    assert_eq!(run(&["sql", &format!("{} EVERY 5 MINUTES", publish("table"))]).code, 0);
}

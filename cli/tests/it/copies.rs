//! Copies on the command line.

use crate::cli::inside;

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

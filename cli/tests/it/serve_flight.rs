//! Arrow Flight SQL, by programs that speak it.

use crate::cli::inside;
use crate::serve::serve;
use crate::serve_postgres::{clients_python, driver, make_weather, run};
use std::process::Command;

/// Runs the driver against a server of the database `weather`, with an account that may read if one is given.
fn driven(account: Option<(&str, &str)>) {
    let Some(python) = clients_python() else { return };
    let folder = tempfile::tempdir().unwrap();
    make_weather(folder.path());
    let mut token = String::new();
    if let Some((name, password)) = account {
        let add = ["user", "add", name, "--role", "read", "--db", "weather", "--password-file", "-"];
        let added = inside(folder.path(), &add, password);
        assert_eq!(added.code, 0, "{}", added.stderr);
        token = inside(folder.path(), &["user", "token", name, "--db", "weather"], "").stdout;
    }
    let serving = serve(folder.path(), &["--db", "weather", "--http", "0"]);
    let port = serving.doors[0].rsplit_once(':').unwrap().1.to_owned();
    let mut command = Command::new(python);
    command.arg(driver("flight.py")).arg(port);
    if let Some((name, password)) = account {
        command.args([name, password, token.trim()]);
    }
    let told = run(&mut command);
    assert!(told.ends_with("done\n"), "{told}");
    assert_eq!(serving.end().0, Some(0));
}

#[test]
fn drivers_of_flight_sql_read_and_write() {
    driven(None);
}

#[test]
fn an_account_that_may_read_writes_nothing_by_flight_sql() {
    driven(Some(("ada", "battery staple")));
}

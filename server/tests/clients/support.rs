//! The clients, and a server for them.

use ebbtide_server::{Databases, Server, Settings};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder of the clients, if they are installed.
pub(crate) fn clients() -> Option<PathBuf> {
    let folder = std::env::var_os("EBBTIDE_CLIENTS").map(PathBuf::from);
    if folder.is_none() {
        eprintln!(
            "skipped: EBBTIDE_CLIENTS names no folder of clients (server/tests/drivers/install FOLDER makes one from npm and PyPI)"
        );
    }
    folder
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/drivers").join(name)
}

/// A program of the folder; nothing if that could not be installed.
pub(crate) fn installed(program: &str) -> Option<PathBuf> {
    let path = clients()?.join(program);
    if !path.try_exists().unwrap() {
        eprintln!("skipped: there is no {}, so server/tests/drivers/install could not install it", path.display());
        return None;
    }
    Some(path)
}

/// Python with the packages of the folder.
pub(crate) fn python(name: &str) -> Option<Command> {
    let mut command = Command::new(installed("venv/bin/python")?);
    command.arg(script(name));
    Some(command)
}

/// Node with the packages of the folder.
pub(crate) fn node(name: &str) -> Option<Command> {
    let packages = installed("node/node_modules/mongodb")?;
    let mut command = Command::new("node");
    command.arg(script(name)).env("NODE_PATH", packages.parent().unwrap());
    Some(command)
}

/// mongosh, which keeps what it keeps in `home`.
pub(crate) fn mongosh(home: &Path) -> Option<Command> {
    let program = installed("node/node_modules/mongosh/bin/mongosh.js")?;
    let mut command = Command::new("node");
    command.arg(program).args(["--quiet", "--norc"]).env("HOME", home).env("NO_COLOR", "1");
    Some(command)
}

/// A server with a folder of databases.
pub(crate) struct Running {
    pub(crate) server: Server,
    pub(crate) folder: tempfile::TempDir,
}

impl Running {
    pub(crate) async fn start() -> Running {
        let folder = tempfile::tempdir().unwrap();
        let databases = Databases::in_folder(folder.path().join("dbs")).unwrap();
        let server = Server::start(databases, Settings { mongodb: Some(0), ..Settings::default() }).await.unwrap();
        Running { server, folder }
    }

    pub(crate) fn uri(&self) -> String {
        format!("mongodb://{}/", self.server.mongodb_address().unwrap())
    }
}

/// Runs a command to its end.
pub(crate) async fn output_of(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// Its standard output, if it ended well.
pub(crate) fn succeeded(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    out.into_owned()
}

/// Runs a script against a server of its own, if its program is installed.
pub(crate) async fn run(command: Option<Command>) {
    let Some(mut command) = command else { return };
    let running = Running::start().await;
    command.arg(running.uri());
    succeeded(&output_of(command).await);
    running.server.stop().await.unwrap();
}

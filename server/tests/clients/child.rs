//! A server in a process of its own, which tests can kill.

use ebbtide_server::{Databases, Server, Settings, Signals};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

const FOLDER: &str = "EBBTIDE_SERVED_FOLDER";
const PORT: &str = "EBBTIDE_SERVED_PORT";
const HTTP: &str = "EBBTIDE_SERVED_HTTP_PORT";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the process that other tests start"]
async fn serves() {
    let (folder, port) = (std::env::var_os(FOLDER).unwrap(), std::env::var(PORT).unwrap().parse().unwrap());
    let databases = Databases::in_folder(folder).unwrap();
    let http = std::env::var(HTTP).ok().map(|port| port.parse().unwrap());
    let server = Server::start(databases, Settings { mongodb: Some(port), http, ..Settings::default() }).await.unwrap();
    println!("\nready mongodb://{}/", server.mongodb_address().unwrap());
    Signals::new().unwrap().next().await;
    server.stop().await.unwrap();
}

/// A server that is killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    /// Kept open: the harness of the tests writes to it after a minute.
    _output: BufReader<ChildStdout>,
    pub(crate) uri: String,
}

impl Process {
    /// Starts one and waits until it is ready; port 0 takes one that is free.
    pub(crate) fn start(folder: &Path, port: u16) -> Process {
        Process::of(Command::new(std::env::current_exe().unwrap()), folder, port)
    }

    /// Starts one with a port for HTTP too.
    pub(crate) fn start_with_http(folder: &Path, http: u16) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(HTTP, http.to_string());
        Process::of(command, folder, 0)
    }

    fn of(mut command: Command, folder: &Path, port: u16) -> Process {
        command.args(["child::serves", "--exact", "--ignored", "--nocapture"]);
        command.env(FOLDER, folder).env(PORT, port.to_string()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let lines = output.by_ref().lines().map_while(Result::ok);
        let uri = lines.filter_map(|line| line.strip_prefix("ready ").map(str::to_owned)).next();
        Process { uri: uri.expect("the server starts"), child, _output: output }
    }

    /// The number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn port(&self) -> u16 {
        self.uri.trim_end_matches('/').rsplit(':').next().unwrap().parse().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

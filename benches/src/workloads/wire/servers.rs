//! The servers that are measured, each a process of its own.

use super::driver::Driver;
use super::*;
use ebbtide::fs::{Fs, RealFs};
use ebbtide_server::{Databases, Server as Served};
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// Serves the databases in a folder until standard input ends.
///
/// # Errors
/// If a database cannot be opened, or no port is free.
pub fn serve(folder: &Path) -> Result<()> {
    tokio::runtime::Runtime::new()?.block_on(async {
        let settings = ebbtide_server::Settings { mongodb: Some(0), ..ebbtide_server::Settings::default() };
        let server = Served::start(Databases::in_folder(folder)?, settings).await?;
        println!("{}", server.mongodb_address().ok_or("the server has no address")?);
        let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        ended.await??;
        server.stop().await?;
        Ok(())
    })
}

/// A running server, which is killed when this is dropped.
pub(super) struct Server {
    /// The mongod, or nothing for this server.
    program: Option<PathBuf>,
    folder: PathBuf,
    child: Child,
    input: Option<ChildStdin>,
    pub(super) address: SocketAddr,
}

impl Server {
    pub(super) fn start(program: Option<&Path>, folder: &Path) -> Result<Server> {
        let mut command = Command::new(program.map_or_else(std::env::current_exe, |path| Ok(path.to_owned()))?);
        let mut address = SocketAddr::from(([127, 0, 0, 1], 0));
        if program.is_some() {
            address = TcpListener::bind(address)?.local_addr()?;
            command.args(["--bind_ip", "127.0.0.1", "--port", &address.port().to_string(), "--dbpath"]).arg(folder);
            command.args(["--setParameter", "ttlMonitorSleepSecs=1"]).stdout(Stdio::null()).stdin(Stdio::null());
        } else {
            command.args(["serve", "--data"]).arg(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        }
        let mut child = command.spawn()?;
        if let Some(output) = child.stdout.take() {
            let mut line = String::new();
            BufReader::new(output).read_line(&mut line)?;
            address = line.trim().parse().map_err(|_| "the server does not start")?;
        }
        let input = child.stdin.take();
        Ok(Server { program: program.map(Path::to_owned), folder: folder.to_owned(), child, input, address })
    }

    pub(super) fn is_mongod(&self) -> bool {
        self.program.is_some()
    }

    pub(super) fn name(&self) -> &'static str {
        if self.is_mongod() { "mongod" } else { "Ebbtide" }
    }

    pub(super) fn uri(&self) -> String {
        format!("mongodb://{}/", self.address)
    }

    /// Bytes of the data and indexes. Of mongod neither its journal nor what it records about itself; here everything.
    pub(super) fn data_bytes(&self) -> Result<u64> {
        if !self.is_mongod() {
            return bytes_of(&self.folder, |_| true);
        }
        let fs = RealFs::new();
        let mut bytes = 0;
        for name in fs.list(&self.folder)? {
            let is_data = name.starts_with("collection-") || name.starts_with("index-");
            bytes += if is_data { fs.len(&self.folder.join(name))? } else { 0 };
        }
        Ok(bytes)
    }

    /// Stops in good order, with all on disk.
    pub(super) fn stop(mut self, driver: &mut Driver) -> Result<()> {
        self.end(driver)
    }

    fn end(&mut self, driver: &mut Driver) -> Result<()> {
        if self.is_mongod() {
            driver.command(&self.uri(), "admin", json!({ "shutdown": 1 }))?;
        }
        drop(self.input.take());
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("{} ended badly: {status}", self.name()).into()) }
    }

    /// Stops in good order and starts again, perhaps at another address.
    pub(super) fn restart(&mut self, driver: &mut Driver) -> Result<()> {
        self.end(driver)?;
        *self = Server::start(self.program.as_deref(), &self.folder)?;
        if !self.is_mongod() {
            driver.command(&self.uri(), "admin", json!({ "setParameter": 1, "ttlMonitorSleepSecs": 1 }))?;
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}

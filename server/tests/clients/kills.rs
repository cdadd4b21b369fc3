//! A server that is killed at random moments while drivers write: what one of them saw acknowledged is there, once, and pipelines
//! go on when the server is back.
//!
//! `EBBTIDE_SERVER_KILLS` sets how many kills, `EBBTIDE_SERVER_KILLS_SEED` the seed.
#![expect(clippy::disallowed_methods, reason = "the writers need time between kills, and a file with what they saw")]

use crate::child::Process;
use crate::support::{node, python, succeeded};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const KILLS: u64 = 10;
const SEED: u64 = 1;
/// A kill comes within so many milliseconds after the server is ready.
const LOAD_MILLIS: u64 = 700;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The next pseudo-random number (splitmix64).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A program that writes until its input ends, and what it saw acknowledged.
struct Writer {
    child: Child,
    acknowledged: JoinHandle<Vec<String>>,
}

impl Writer {
    fn start(mut command: Command, uri: &str, name: &str) -> Writer {
        let mut child = command.args([uri, name]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Writer { child, acknowledged: thread::spawn(move || lines.map_while(Result::ok).collect()) }
    }

    fn stop(mut self) -> Vec<String> {
        drop(self.child.stdin.take());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "a writer failed: {status}");
        self.acknowledged.join().unwrap()
    }
}

#[test]
fn acknowledged_writes_of_two_drivers_survive_kills() {
    let (Some(of_python), Some(of_node), Some(mut check)) =
        (python("pipeline.py"), node("pipeline.js"), python("pipeline_check.py"))
    else {
        return;
    };
    let (kills, seed) = (number("EBBTIDE_SERVER_KILLS", KILLS), number("EBBTIDE_SERVER_KILLS_SEED", SEED));
    let folder = tempfile::tempdir().unwrap();
    let served = folder.path().join("dbs");
    let mut server = Process::start(&served, 0);
    let (uri, port) = (server.uri.clone(), server.port());
    let writers = [Writer::start(of_python, &uri, "p"), Writer::start(of_node, &uri, "n")];
    let mut state = seed;
    for _ in 0..kills {
        thread::sleep(Duration::from_millis(random(&mut state) % LOAD_MILLIS));
        drop(server);
        server = Process::start(&served, port);
    }
    let acknowledged = writers.map(Writer::stop).concat();
    let file = folder.path().join("acknowledged");
    std::fs::write(&file, acknowledged.join("\n")).unwrap();
    let told = succeeded(&check.arg(&uri).arg(&file).output().unwrap());
    println!("{kills} kills, seed {seed}: {told}");
}

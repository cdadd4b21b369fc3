//! What is fuzzed: each target takes any bytes and panics if a promise does not hold.
//!
//! The targets are plain functions, so that the fuzzers of `fuzz/` and the test of the corpus run the same code.

use ebbtide::Database;
use ebbtide::fs::sim::SimFs;
use ebbtide::ttl::{Timestamp, VirtualClock};
use ebbtide_server::fuzzing::{Connected, is_message, logs_in};
use std::sync::{Arc, OnceLock};

/// Takes any bytes, and panics at a finding.
type Target = fn(&[u8]);

/// Every target by name. The name is that of its corpus too.
pub(crate) const ALL: [(&str, Target); 3] = [("frames", frames), ("logins", logins), ("wire_commands", wire_commands)];

const ROOT: &str = "/data/db";
/// 2023-11-15T12:00:00Z.
const NOON: i64 = 1_700_049_600_000;
const COMMANDS_MAX: usize = 40;

/// A message as it comes: it may be refused.
fn frames(data: &[u8]) {
    let _is_message = is_message(data);
}

/// The messages of a login: nobody gets in.
fn logins(data: &[u8]) {
    assert!(!logs_in(data), "nobody has this name");
}

fn open(disk: &SimFs) -> Database {
    let clock = Arc::new(VirtualClock::new(Timestamp::from_millis(NOON)));
    Database::builder(ROOT).fs(Arc::new(disk.clone())).clock(clock).open().expect("opens")
}

fn empty() -> &'static SimFs {
    static EMPTY: OnceLock<SimFs> = OnceLock::new();
    EMPTY.get_or_init(|| {
        let fs = SimFs::new(ROOT);
        drop(open(&fs));
        fs
    })
}

/// Command documents in BSON, one behind the other, run by one client over an empty database: each gets a reply that says
/// whether it worked, and what is stored stays intact.
fn wire_commands(mut data: &[u8]) {
    let disk = empty().fork();
    let database = open(&disk);
    let client = Connected::new(database.clone()).expect("a name");
    for _ in 0..COMMANDS_MAX {
        let Some(length) = data.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes) as usize) else { break };
        let Some((document, rest)) = data.split_at_checked(length.max(4)) else { break };
        data = rest;
        let size = u32::try_from(21 + document.len()).expect("a small input");
        let header = [size, 1, 0, 2013, 0].into_iter().flat_map(u32::to_le_bytes);
        let message: Vec<u8> = header.chain([0]).chain(document.iter().copied()).collect();
        if let Some(reply) = client.run(&message) {
            assert!(reply.get_f64("ok").is_ok(), "{reply:?}");
        }
    }
    assert_eq!(database.verify().expect("verifies").faults, Vec::<String>::new());
    drop((client, database));
    let _opens_again = open(&disk);
}

//! Command documents: one on each line, run one after another.

use super::{ROOT, open, rows_of};
use ebbtide::fs::sim::SimFs;
use std::sync::OnceLock;

const COMMANDS_MAX: usize = 40;

fn empty() -> &'static SimFs {
    static EMPTY: OnceLock<SimFs> = OnceLock::new();
    EMPTY.get_or_init(|| {
        let fs = SimFs::new(ROOT);
        drop(open(&fs).expect("open"));
        fs
    })
}

pub(super) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let disk = empty().fork();
    let db = open(&disk).expect("open");
    let mut done = 0;
    for line in text.lines().take(COMMANDS_MAX) {
        let Ok(command) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        match line {
            "0" => db.flush().expect("flush"),
            "1" => drop(db.sweep().expect("sweep")),
            _ => drop(db.run_command(&command)),
        }
        done += 1;
    }
    if done == 0 {
        return;
    }
    let before = rows_of(&db).expect("reads");
    assert_eq!(db.verify().expect("verifies").faults, Vec::<String>::new());
    db.compact(None).expect("compacts");
    assert_eq!(rows_of(&db).expect("reads"), before);
    drop(db);
    assert_eq!(rows_of(&open(&disk).expect("opens again")).expect("reads"), before);
}

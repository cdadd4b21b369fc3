//! Scenarios: short scripts, each about one thing that an engine can get wrong.

use ebbtide::Settings;

use crate::script::{Fields, HOUR, NOON, Scenario, Step, rows};

fn insert(first: i64, count: i64, t: i64) -> Step {
    Step::Insert("c", rows(first, count, t, &["a", "b", "d"]), Fields::Plain)
}

fn small_logs() -> Settings {
    Settings { wal_file_bytes_max: 1 << 10, ..Settings::default() }
}

/// The scenarios that are asked for: all of them, or the one that `EBBTIDE_CRASH_SCENARIO` names.
pub(crate) fn scenarios() -> Vec<Scenario> {
    let mut all = every_scenario();
    if let Ok(name) = std::env::var("EBBTIDE_CRASH_SCENARIO") {
        all.retain(|scenario| scenario.name == name);
        assert!(!all.is_empty(), "there is no scenario '{name}'");
    }
    all
}

/// Every scenario. All times lie before [`NOON`], at which the clock stands at first.
fn every_scenario() -> Vec<Scenario> {
    use Step::*;
    let scenario = |name, steps| Scenario { name, settings: Settings::default(), steps };
    vec![
        scenario("first open", vec![Reopen, Reopen]),
        scenario(
            "create and drop",
            vec![
                Create("c", Some(7200)),
                Create("e", None),
                insert(1, 3, NOON - HOUR),
                DropCollection("c"),
                Create("c", None),
                insert(100, 2, NOON - HOUR),
                Flush,
                DropCollection("c"),
                Reopen,
            ],
        ),
        scenario(
            "rename",
            vec![
                Create("c", Some(7200)),
                insert(1, 3, NOON - HOUR),
                Flush,
                insert(10, 3, NOON - HOUR),
                Hold("c"),
                Rename("c", "e"),
                Insert("e", rows(20, 3, NOON - HOUR, &["a", "b"]), Fields::Plain),
                Release,
                Create("c", None),
                insert(30, 3, NOON - HOUR),
                Rename("e", "f"),
                Flush,
                Reopen,
                Insert("f", rows(40, 3, NOON - HOUR, &["a", "b"]), Fields::Extra),
                Compact,
                DropCollection("f"),
                Reopen,
            ],
        ),
        scenario(
            "field renamed",
            vec![
                Create("c", Some(3 * 3600)),
                insert(1, 6, NOON - 3 * HOUR),
                Flush,
                Delete("c", "b"),
                insert(10, 3, NOON - HOUR),
                Hold("c"),
                RenameField("c"),
                insert(20, 3, NOON - HOUR),
                Release,
            ],
        ),
        scenario(
            "field dropped",
            vec![
                Create("c", None),
                Insert("c", rows(1, 3, NOON - HOUR, &["a"]), Fields::Extra),
                Flush,
                Insert("c", rows(10, 3, NOON - HOUR, &["a"]), Fields::Extra),
                DropField("c"),
                Insert("c", rows(20, 3, NOON - HOUR, &["a"]), Fields::Extra),
                Reopen,
            ],
        ),
        scenario(
            "copy",
            vec![
                Create("c", Some(3600)),
                insert(1, 9, NOON - HOUR - HOUR / 20),
                Flush,
                insert(20, 3, NOON - HOUR / 2),
                Copy("c", "e"),
                DropCollection("c"),
                Insert("e", rows(30, 3, NOON - HOUR, &["b"]), Fields::Plain),
                Copy("e", "c"),
            ],
        ),
        scenario(
            "views",
            vec![
                Create("c", None),
                PutView("v", "one"),
                PutView("w", "two"),
                insert(1, 3, NOON - HOUR),
                PutView("v", "three"),
                DropView("w"),
                Reopen,
                PutView("w", "four"),
                DropView("v"),
                Flush,
                DropView("w"),
            ],
        ),
        scenario(
            "append",
            vec![
                Create("c", None),
                insert(1, 1, NOON - HOUR),
                insert(2, 5, NOON - HOUR),
                insert(10, 40, NOON - 2 * HOUR),
                insert(100, 1, NOON - HOUR),
                Reopen,
                insert(200, 3, NOON - HOUR),
            ],
        ),
        scenario(
            "group commit",
            vec![
                Create("c", None),
                InsertTogether("c", (0..6).map(|n| rows(1 + n * 10, 4, NOON - HOUR, &["a", "b"])).collect()),
                InsertTogether("c", (0..6).map(|n| rows(101 + n * 10, 4, NOON - HOUR, &["a", "b"])).collect()),
            ],
        ),
        Scenario {
            name: "log rotation",
            settings: small_logs(),
            steps: vec![
                Create("c", None),
                Insert("c", rows(1, 8, NOON - HOUR, &["a"]), Fields::Long),
                Insert("c", rows(11, 8, NOON - HOUR, &["a"]), Fields::Long),
                Insert("c", rows(21, 8, NOON - HOUR, &["a"]), Fields::Long),
                Reopen,
                Insert("c", rows(31, 8, NOON - HOUR, &["a"]), Fields::Long),
                Insert("c", rows(41, 8, NOON - HOUR, &["a"]), Fields::Long),
            ],
        },
        scenario(
            "flush",
            vec![
                Create("c", None),
                insert(1, 20, NOON - HOUR),
                Flush,
                insert(100, 20, NOON - HOUR),
                Flush,
                Flush,
                Reopen,
            ],
        ),
        Scenario {
            name: "log cut after a flush",
            settings: small_logs(),
            steps: vec![
                Create("c", None),
                Create("e", None),
                Insert("c", rows(1, 8, NOON - HOUR, &["a"]), Fields::Long),
                Insert("e", rows(11, 8, NOON - HOUR, &["a"]), Fields::Long),
                Insert("c", rows(21, 8, NOON - HOUR, &["a"]), Fields::Long),
                Flush,
                Insert("e", rows(31, 8, NOON - HOUR, &["a"]), Fields::Long),
                Insert("c", rows(41, 2, NOON - HOUR, &["a"]), Fields::Long),
                Flush,
            ],
        },
        scenario(
            "late rows",
            vec![
                Create("c", Some(48 * 3600)),
                insert(1, 10, NOON - 30 * HOUR),
                Flush,
                insert(20, 10, NOON - HOUR),
                insert(40, 3, NOON - 30 * HOUR),
                Flush,
                Wait(20 * 3600),
                Sweep,
                insert(60, 2, NOON - 2 * HOUR),
                Flush,
                Reopen,
            ],
        ),
        scenario(
            "compaction",
            vec![
                Create("c", None),
                insert(1, 10, NOON - HOUR),
                Flush,
                insert(20, 10, NOON - HOUR),
                Flush,
                insert(40, 10, NOON - 2 * HOUR),
                Flush,
                Compact,
                insert(60, 10, NOON - 2 * HOUR),
                Flush,
                Compact,
                Reopen,
            ],
        ),
        scenario(
            "schema widening",
            vec![
                Create("c", None),
                insert(1, 5, NOON - HOUR),
                Insert("c", rows(10, 5, NOON - HOUR, &["a"]), Fields::Extra),
                insert(20, 5, NOON - HOUR),
                Flush,
                insert(30, 5, NOON - HOUR),
                Reopen,
                Flush,
                Compact,
            ],
        ),
        scenario(
            "whole-bucket sweep",
            vec![
                Create("c", Some(3 * 3600)),
                insert(1, 20, NOON - 2 * HOUR),
                Flush,
                insert(30, 20, NOON - HOUR),
                Flush,
                Wait(2 * 3600),
                Sweep,
                insert(60, 5, NOON + HOUR),
                Wait(2 * 3600),
                Sweep,
                Wait(24 * 3600),
                Sweep,
                Reopen,
                Sweep,
            ],
        ),
        scenario(
            "sweep of open buckets",
            vec![
                Create("c", Some(3 * 3600)),
                insert(1, 20, NOON - 2 * HOUR),
                insert(30, 20, NOON - HOUR / 2),
                Wait(3 * 3600),
                Sweep,
                Reopen,
            ],
        ),
        scenario(
            "partial sweep",
            vec![
                Create("c", Some(48 * 3600)),
                AddRule("c", "short", "a", 3600),
                insert(1, 30, NOON - 2 * HOUR),
                Flush,
                Wait(3600),
                Sweep,
                insert(100, 9, NOON - HOUR),
                Flush,
                Wait(4 * 3600),
                Sweep,
                Compact,
                Wait(72 * 3600),
                Sweep,
            ],
        ),
        Scenario {
            name: "types differ until compaction",
            settings: Settings { segment_rows_max: 4, ..Settings::default() },
            steps: vec![
                Create("c", None),
                Insert("c", rows(1, 6, NOON - 3 * HOUR, &["a"]), Fields::Digits(1)),
                Flush,
                Insert("c", rows(11, 6, NOON - 3 * HOUR, &["a", "b"]), Fields::Digits(2)),
                Flush,
                Reopen,
                Insert("c", rows(21, 6, NOON - 3 * HOUR, &["b"]), Fields::Digits(9)),
                Flush,
                Hold("c"),
                Compact,
                Release,
                Insert("c", rows(31, 6, NOON - 3 * HOUR, &["b"]), Fields::Plain),
                Flush,
                DropCollection("c"),
            ],
        },
        scenario(
            "types that widen are settled by the seal",
            vec![
                Create("c", Some(24 * 3600)),
                Insert("c", rows(1, 3, NOON - 23 * HOUR, &["a"]), Fields::Digits(1)),
                Flush,
                Hold("c"),
                Insert("c", rows(11, 3, NOON - 3 * HOUR, &["a", "b"]), Fields::Digits(2)),
                Flush,
                Release,
                Wait(2 * 3600),
                Insert("c", rows(21, 3, NOON - 3 * HOUR, &["b"]), Fields::Digits(9)),
                Sweep,
                Flush,
            ],
        ),
        scenario(
            "rules",
            vec![
                Create("c", None),
                insert(1, 30, NOON - 3 * HOUR),
                AddRule("c", "one", "a", 7200),
                Flush,
                AddRule("c", "two", "b", 36000),
                SetOwn("c", Some(24 * 3600)),
                Sweep,
                ModifyRule("c", "one", 3600),
                ModifyRule("c", "two", 7200),
                RemoveRule("c", "one"),
                Sweep,
                SetOwn("c", None),
                Reopen,
                RemoveRule("c", "two"),
            ],
        ),
        scenario(
            "manifest written anew",
            vec![
                Create("c", None),
                insert(1, 9, NOON - 3 * HOUR),
                AddWideRule("c", "wide", "a", 36000),
                ModifyRule("c", "wide", 35000),
                ModifyRule("c", "wide", 34000),
                Flush,
                ModifyRule("c", "wide", 33000),
                ModifyRule("c", "wide", 32000),
                insert(20, 9, NOON - HOUR),
                ModifyRule("c", "wide", 31000),
                Create("e", None),
            ],
        ),
        scenario(
            "delete",
            vec![
                Create("c", None),
                insert(1, 30, NOON - HOUR),
                Flush,
                insert(100, 12, NOON - HOUR),
                Delete("c", "a"),
                insert(200, 6, NOON - HOUR),
                Reopen,
                Delete("c", "b"),
                Compact,
                Delete("c", "d"),
            ],
        ),
        scenario(
            "snapshot held across a sweep",
            vec![
                Create("c", Some(3 * 3600)),
                insert(1, 20, NOON - 2 * HOUR),
                Flush,
                insert(30, 20, NOON - HOUR),
                Hold("c"),
                Wait(4 * 3600),
                Sweep,
                insert(60, 5, NOON + 3 * HOUR),
                Compact,
                Release,
                Flush,
            ],
        ),
        scenario(
            "reopen",
            vec![
                Create("c", Some(24 * 3600)),
                Reopen,
                insert(1, 5, NOON - HOUR),
                Reopen,
                Reopen,
                Flush,
                Reopen,
                insert(10, 5, NOON - HOUR),
                Reopen,
            ],
        ),
    ]
}

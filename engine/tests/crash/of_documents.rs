//! Scenarios of ordinary collections: documents that are written, replaced, and forgotten.

use ebbtide::Settings;

use crate::documents::{Command, NewDocument, Rule, Which};
use crate::scenarios::across;
use crate::script::{Fields, HOUR, NOON, Scenario, Step, kept, rows};

fn on(command: Command) -> Step {
    Step::Documents("d", command)
}

/// Documents with `_id`s from `first` on, in the place of those that have them.
fn put(first: i64, count: i64, number: i64) -> Step {
    on(Command::Put(kept(first, count, number)))
}

fn put_with(ids: &[i64], number: i64, ttl: Option<i64>, date: Option<i64>) -> Step {
    let new = ids.iter().map(|id| NewDocument { id: *id, number, ttl, date });
    on(Command::Put(new.collect()))
}

fn delete(ids: &[i64]) -> Step {
    on(Command::Delete(Which::Ids(ids.to_vec())))
}

fn rule(rule: Rule) -> Step {
    on(Command::Change(rule))
}

fn beside(work: Step, command: Command) -> Step {
    Step::Beside(Box::new(work), "d", command)
}

fn measurements(first: i64) -> Step {
    Step::Insert("c", rows(first, 3, NOON - HOUR, &["a", "b"]), Fields::Plain)
}

fn small_files() -> Settings {
    Settings { segment_rows_max: 4, ..Settings::default() }
}

pub(crate) fn scenarios() -> Vec<Scenario> {
    use Step::*;
    let scenario = |name, steps| Scenario { name, settings: Settings::default(), steps };
    vec![
        scenario(
            "documents",
            vec![
                CreateDocuments("d", None),
                put(1, 6, 1),
                put(2, 2, 2),
                Flush,
                // Rows of a segment are replaced, changed and removed in the log alone.
                put(1, 3, 3),
                on(Command::Add(Which::NumberAtMost(2), 100)),
                delete(&[5, 6]),
                on(Command::Insert(kept(5, 1, 4).remove(0))),
                Reopen,
                Flush,
                on(Command::Add(Which::All, 1000)),
                put(7, 1, 5),
                delete(&[1]),
                Flush,
            ],
        ),
        scenario(
            "documents refreshed after a seal",
            vec![
                CreateDocuments("d", Some(600)),
                put(1, 4, 1),
                Flush,
                put(1, 4, 2),
                put(3, 2, 3),
                Hold("d"),
                Flush,
                put(3, 1, 4),
                Release,
                on(Command::Delete(Which::Id(4))),
                Flush,
                Flush,
                delete(&[1, 2, 3]),
                Flush,
                Reopen,
            ],
        ),
        // Their keys are documents.
        Scenario {
            name: "requests that come again",
            settings: Settings { wal_file_bytes_max: 1 << 10, ..Settings::default() },
            steps: vec![
                Create("c", None),
                Create("e", None),
                across(1, Some(1)),
                across(1, Some(1)),
                across(20, Some(2)),
                Flush,
                across(20, Some(2)),
                across(30, Some(3)),
                Compact,
                Reopen,
                across(30, Some(3)),
                across(1, Some(1)),
                Reopen,
                across(20, Some(2)),
                across(40, None),
                Flush,
            ],
        },
        Scenario {
            name: "documents compacted",
            settings: small_files(),
            steps: vec![
                CreateDocuments("d", None),
                put(1, 5, 1),
                Flush,
                put(6, 5, 2),
                Flush,
                // Marks that are not durable yet, on the segments that are merged.
                put(4, 3, 3),
                delete(&[9]),
                Compact,
                put(5, 1, 4),
                Hold("d"),
                Flush,
                Compact,
                Release,
                Reopen,
                delete(&[1, 2, 3, 4]),
                Flush,
                Compact,
            ],
        },
        Scenario {
            name: "documents written beside",
            settings: small_files(),
            steps: vec![
                CreateDocuments("d", Some(7200)),
                put(1, 6, 1),
                beside(Flush, Command::Put(kept(5, 3, 2))),
                beside(Flush, Command::Delete(Which::Ids(vec![1, 6]))),
                put(8, 2, 3),
                Flush,
                beside(Compact, Command::Put(kept(2, 3, 4))),
                beside(Compact, Command::Add(Which::All, 100)),
                Flush,
                put(20, 2, 5),
                Flush,
                beside(Compact, Command::Delete(Which::NumberAtMost(100))),
                Reopen,
                put(3, 2, 6),
                Wait(7200),
                put(4, 1, 7),
                beside(Sweep, Command::Put(kept(3, 1, 8))),
                Flush,
            ],
        },
        Scenario {
            name: "documents expire",
            settings: small_files(),
            steps: vec![
                CreateDocuments("d", Some(3600)),
                put_with(&[1, 2, 3, 4], 1, None, None),
                put_with(&[5, 6], 2, Some(-1), None),
                put_with(&[7, 8, 9], 3, Some(1800), None),
                Flush,
                put(2, 1, 4),
                Wait(1800),
                Sweep,
                // One that has expired, and one that lives.
                put(8, 1, 5),
                put(1, 1, 6),
                Wait(1800),
                put(3, 1, 7),
                Sweep,
                Reopen,
                Wait(3600),
                on(Command::Insert(kept(1, 1, 8).remove(0))),
                Sweep,
                Flush,
            ],
        },
        scenario(
            "documents expire by an index",
            vec![
                CreateDocuments("d", None),
                put_with(&[1, 2, 3], 1, None, Some(-60)),
                put_with(&[4, 5], 2, None, Some(600)),
                put_with(&[6], 3, None, None),
                Flush,
                put_with(&[1], 4, None, Some(60)),
                rule(Rule::CreateIndex(0)),
                on(Command::Insert(NewDocument { id: 2, number: 5, ttl: None, date: Some(10) })),
                Sweep,
                rule(Rule::ChangeIndex(3600)),
                Wait(600),
                put_with(&[4], 6, None, Some(0)),
                rule(Rule::ChangeIndex(0)),
                Sweep,
                rule(Rule::DropIndex),
                Reopen,
            ],
        ),
        scenario(
            "a time to live changes",
            vec![
                CreateDocuments("d", None),
                put_with(&[1, 2], 1, None, None),
                put_with(&[3, 4], 2, Some(60), None),
                Flush,
                put_with(&[5], 3, Some(-1), None),
                rule(Rule::DefaultTtl(Some(600))),
                Wait(60),
                // Hidden, and visible again.
                put(1, 1, 4),
                rule(Rule::DefaultTtl(Some(30))),
                rule(Rule::DefaultTtl(None)),
                rule(Rule::DefaultTtl(Some(61))),
                Sweep,
                Wait(1),
                Sweep,
                // What was purged stays away.
                rule(Rule::DefaultTtl(Some(7200))),
                rule(Rule::DefaultTtl(Some(-1))),
                Reopen,
                Sweep,
            ],
        ),
        scenario(
            "documents renamed and dropped",
            vec![
                CreateDocuments("d", Some(3600)),
                put(1, 3, 1),
                Flush,
                put(2, 2, 2),
                Hold("d"),
                Rename("d", "f"),
                Documents("f", Command::Put(kept(3, 3, 3))),
                Release,
                CreateDocuments("d", None),
                put(1, 2, 4),
                Flush,
                DropCollection("f"),
                Reopen,
                Rename("d", "f"),
                CreateDocuments("d", Some(60)),
                put(9, 1, 5),
                DropCollection("d"),
            ],
        ),
        scenario(
            "documents that replace others",
            vec![
                CreateDocuments("d", Some(3600)),
                put(1, 3, 1),
                Flush,
                put(2, 2, 2),
                CreateDocuments("g", None),
                Documents("g", Command::Put(kept(2, 3, 3))),
                Hold("d"),
                Replace("g", "d"),
                Release,
                put(4, 2, 4),
                Flush,
                CreateDocuments("g", None),
                Documents("g", Command::Put(kept(1, 2, 5))),
                Flush,
                Documents("g", Command::Put(kept(2, 3, 6))),
                Replace("g", "d"),
                Reopen,
                put(9, 1, 7),
                // The other is not there.
                Replace("d", "f"),
                Flush,
            ],
        ),
        // A sweep seals one of them; the log is needed for the other.
        Scenario {
            name: "two collections of documents",
            settings: Settings { wal_file_bytes_max: 1 << 10, ..Settings::default() },
            steps: vec![
                CreateDocuments("d", Some(600)),
                CreateDocuments("g", None),
                Documents("g", Command::Put(kept(1, 9, 1))),
                put(1, 9, 2),
                Documents("g", Command::Put(kept(2, 9, 3))),
                put(2, 9, 4),
                Documents("g", Command::Put(kept(12, 9, 5))),
                Wait(600),
                Sweep,
                Documents("g", Command::Add(Which::All, 10)),
                Reopen,
            ],
        },
        Scenario {
            name: "documents and measurements",
            settings: Settings { wal_file_bytes_max: 1 << 10, segment_rows_max: 4, ..Settings::default() },
            steps: vec![
                Create("c", Some(3 * 3600)),
                CreateDocuments("d", Some(3600)),
                measurements(1),
                put(1, 5, 1),
                DocumentsTogether("d", (0..4).map(|n| Command::Put(kept(1 + n * 2, 2, 2 + n))).collect()),
                measurements(10),
                Flush,
                put(1, 3, 10),
                measurements(20),
                DocumentsTogether("d", (0..3).map(|n| Command::Put(kept(1 + n * 2, 2, 20 + n))).collect()),
                Reopen,
                Wait(1800),
                put(2, 2, 30),
                Compact,
                Wait(1800),
                Sweep,
                Wait(2 * 3600),
                Sweep,
                measurements(30),
                put(1, 1, 40),
                Flush,
            ],
        },
    ]
}

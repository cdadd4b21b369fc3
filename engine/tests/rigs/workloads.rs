//! What the real processes do: scripts that meet every kind of call which changes the disk.

use ebbtide::Settings;

use crate::documents::{Command, NewDocument, Rule, Which};
use crate::script::{Fields, HOUR, NOON, Scenario, Step, kept, rows};

fn insert(first: i64, count: i64, t: i64) -> Step {
    Step::Insert("c", rows(first, count, t, &["a", "b", "d"]), Fields::Plain)
}

fn long(first: i64) -> Step {
    Step::Insert("c", rows(first, 6, NOON - HOUR, &["a"]), Fields::Long)
}

fn together(first: i64) -> Step {
    Step::InsertTogether("c", (0..4).map(|n| rows(first + n * 10, 4, NOON - HOUR, &["a", "b"])).collect())
}

fn across(first: i64, request: Option<u64>) -> Step {
    let part = |name, first| (name, rows(first, 4, NOON - HOUR, &["a", "b"]));
    Step::InsertAcross(vec![part("c", first), part("e", first + 10)], request)
}

/// Group commit, inserts into two collections, rotation of the log, flushes.
pub(crate) fn inserting() -> Scenario {
    let mut steps = vec![Step::Create("c", None), Step::Create("e", None)];
    for (round, request) in (0..6).zip(1..) {
        let first = 1 + round * 1000;
        steps.extend([
            insert(first, 5, NOON - HOUR),
            together(first + 10),
            long(first + 100),
            insert(first + 200, 3, NOON - 2 * HOUR),
            long(first + 300),
            long(first + 400),
            across(first + 500, None),
            across(first + 600, Some(request)),
            across(first + 600, Some(request)),
        ]);
        if round % 2 == 1 {
            steps.push(Step::Flush);
        }
        if round == 2 {
            steps.push(Step::Reopen);
        }
    }
    Scenario { name: "inserting", settings: Settings { wal_file_bytes_max: 4096, ..Settings::default() }, steps }
}

/// Compaction, sweeps, deletes, drops, changes of rules.
pub(crate) fn forgetting() -> Scenario {
    let mut steps = Vec::new();
    for round in 0..2 {
        let (first, day) = (1 + round * 1000, NOON + round * 24 * HOUR);
        steps.extend([
            Step::Create("c", Some(12 * 3600)),
            Step::Create("e", None),
            Step::Insert("c", rows(first, 9, day - HOUR, &["a", "b", "d"]), Fields::Digits(1)),
            Step::Flush,
            // The type of a column widens, and a merge follows at once.
            Step::Insert("c", rows(first + 20, 9, day - 2 * HOUR, &["a", "b", "d"]), Fields::Digits(2)),
            Step::AddRule("c", "short", "a", 7200),
            Step::Flush,
            Step::Compact,
            Step::Insert("e", rows(first + 40, 3, day - HOUR, &["a"]), Fields::Extra),
            Step::PutView("v", "CREATE VIEW v AS SELECT 1"),
            Step::RenameField("e"),
            Step::DropField("e"),
            Step::Copy("e", "g"),
            Step::DropCollection("g"),
            Step::Rename("e", "f"),
            insert(first + 50, 6, day - HOUR),
            Step::Hold("c"),
            Step::Delete("c", "b"),
            Step::Wait(2 * 3600),
            Step::Sweep,
            Step::ModifyRule("c", "short", 3600),
            Step::SetOwn("c", Some(6 * 3600)),
            Step::Sweep,
            Step::Release,
            Step::AddWideRule("c", "wide", "d", 10 * 3600),
            Step::RemoveRule("c", "short"),
            Step::Reopen,
            Step::Wait(22 * 3600),
            Step::Sweep,
            insert(first + 60, 3, day + 24 * HOUR),
            Step::DropView("v"),
            Step::DropCollection("f"),
            Step::DropCollection("c"),
        ]);
    }
    Scenario { name: "forgetting", settings: Settings::default(), steps }
}

/// Documents: seals, replacements, compaction, sweeps, and writes beside them.
pub(crate) fn refreshing() -> Scenario {
    let on = |command| Step::Documents("d", command);
    let put = |first, count, number| on(Command::Put(kept(first, count, number)));
    let beside = |work, command| Step::Beside(Box::new(work), "d", command);
    let dated = |id, date| NewDocument { id, number: 7, ttl: Some(600), date: Some(date) };
    let steps = vec![
        Step::CreateDocuments("d", Some(3600)),
        put(1, 6, 1),
        Step::Flush,
        put(4, 4, 2),
        beside(Step::Flush, Command::Put(kept(6, 2, 3))),
        on(Command::Delete(Which::Id(1))),
        on(Command::Insert(dated(20, 60))),
        beside(Step::Compact, Command::Add(Which::NumberAtMost(2), 10)),
        on(Command::Change(Rule::CreateIndex(0))),
        Step::Wait(1800),
        Step::DocumentsTogether("d", (0..3).map(|n| Command::Put(kept(1 + n * 2, 2, 4 + n))).collect()),
        on(Command::Change(Rule::ChangeIndex(30))),
        Step::Wait(1800),
        Step::Sweep,
        Step::Reopen,
        on(Command::Change(Rule::DefaultTtl(Some(7200)))),
        on(Command::Add(Which::All, 100)),
        on(Command::Change(Rule::DropIndex)),
        Step::Flush,
        Step::Compact,
        on(Command::Delete(Which::Ids(vec![2, 3]))),
        Step::Rename("d", "f"),
        Step::Wait(7200),
        Step::Sweep,
        Step::CreateDocuments("d", None),
        put(1, 2, 8),
        Step::Replace("d", "f"),
        Step::DropCollection("f"),
    ];
    Scenario { name: "refreshing", settings: Settings { segment_rows_max: 4, ..Settings::default() }, steps }
}

/// All of them.
pub(crate) fn all() -> [Scenario; 3] {
    [inserting(), forgetting(), refreshing()]
}

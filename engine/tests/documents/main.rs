//! Ordinary collections against a plain map with a clock: random commands, seals, compactions, sweeps, changes of the rules,
//! closes, commands beside such work, and power cuts anywhere, on a simulated disk.
//!
//! After every step: each document of the map is found under its `_id` and by a scan, with the content and the `_ts` of its last
//! write, unless it has expired; nothing else is there, and no `_id` twice. A command that was cut off has happened as a whole
//! or not at all. What was purged stays away, whatever the rules are later.
//!
//! A failure prints its seed. `PROPTEST_CASES` sets the number of runs, `EBBTIDE_LAWS_SEED` the seed.
#![expect(clippy::unwrap_used, reason = "a test says by its panic what it met")]

#[path = "../shared/documents.rs"]
mod documents;
mod rig;
#[path = "../shared/soak.rs"]
mod soak;
mod steps;
mod unsynced;

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use rig::World;
use soak::{Part, Soak, number};

/// Runs by default.
const CASES: u32 = 512;
/// What runs by default: the same runs everywhere.
const SEED: u64 = 0x0d0c_71de;

fn runs(cases: u32, seed: u64) -> Result<(), String> {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 3_000, ..Config::default() };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let outcome = TestRunner::new_with_rng(config, rng).run(&steps::some_run(), |run| {
        World::new().run(&run);
        Ok::<(), TestCaseError>(())
    });
    outcome.map_err(|error| format!("{error}\nto see it again: EBBTIDE_LAWS_SEED={seed} PROPTEST_CASES={cases}"))
}

#[test]
fn an_ordinary_collection_agrees_with_a_plain_map() {
    let cases = number("PROPTEST_CASES").map_or(CASES, |cases| u32::try_from(cases).unwrap());
    runs(cases, number("EBBTIDE_LAWS_SEED").unwrap_or(SEED)).unwrap_or_else(|what| panic!("{what}"));
}

#[test]
fn a_find_by_the_leading_field_of_an_index_looks_at_few_documents() {
    use ebbtide::documents_model::bson::rawdoc;
    let folder = tempfile::tempdir().unwrap();
    let db = ebbtide::Database::open(folder.path().join("db")).unwrap();
    let documents = db.create_documents("d", ebbtide::DocumentsOptions::default()).unwrap();
    let command = serde_json::json!({"createIndexes": "d", "indexes": [{"key": {"user": 1, "at": -1}}]});
    db.run_command(&command).unwrap();
    let many: Vec<_> = (0..10_000_i64).map(|n| serde_json::json!({"_id": n, "user": n % 500, "at": n})).collect();
    documents.put_many(&many[..9_000]).unwrap();
    db.flush().unwrap();
    documents.put_many(&many[9_000..]).unwrap();
    let snapshot = documents.snapshot().unwrap();
    let find = |filter: ebbtide::bson::RawDocumentBuf| snapshot.for_each_where(&filter, &mut |_| Ok(true)).unwrap();
    // The first find reads the segment, to make what the index says of it.
    for indexed in [9_000, 0] {
        let report = find(rawdoc! { "user": 7_i64 });
        assert_eq!((report.index.as_deref(), report.examined, report.returned), (Some("user_1_at_-1"), 20, 20));
        assert_eq!(report.indexed, indexed);
    }
    let range = find(rawdoc! { "user": { "$gte": 490_i64 }, "at": { "$lt": 500_i64 } });
    assert_eq!((range.examined, range.returned), (200, 10));
    let by_id = find(rawdoc! { "_id": 77_i64 });
    assert_eq!((by_id.index.as_deref(), by_id.examined), (Some("_id_"), 1));
    let other = find(rawdoc! { "at": 5_i64 });
    assert_eq!((other.index, other.examined, other.returned), (None, 10_000, 1));
}

/// A long campaign: rounds with fresh seeds, until its time is over.
#[test]
#[ignore = "runs for as long as EBBTIDE_CAMPAIGN_SECONDS says"]
fn campaign() {
    let mut soak = Soak::new();
    while let Some(seed) = soak.next_seed() {
        let outcome = runs(CASES, seed);
        if let Err(what) = &outcome {
            println!("{what}");
        }
        let failures = usize::from(outcome.is_err());
        soak.note(&Part { tier: "N", seeds: (seed, seed), count: CASES as usize, faults: 0, failures });
    }
    soak.finish();
}

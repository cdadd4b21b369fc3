//! Crashes at every step, on the simulated disk.
//!
//! Each scenario is a short script. It runs once on a disk that keeps its state before every changing step; then the
//! power is cut at each of these points, in every way that the disk knows, and the database is opened again. What it
//! holds then must be what was acknowledged, and of what was under way all or nothing. The same holds for a crash
//! during that recovery, and for a fault of the disk at every step.
//!
//! `EBBTIDE_CRASH_IMAGES` is how many images one test run takes, and with it the number of the other runs; every crash
//! point is visited in any case. `EBBTIDE_CRASH_SEED` makes another choice among them, `EBBTIDE_CRASH_SCENARIO` spends
//! all on one scenario. `EBBTIDE_CRASH_REPLAY` runs a single image or fault: a failure prints its value.

mod campaign;
mod cuts;
#[path = "../shared/documents.rs"]
mod documents;
mod events;
mod expect;
mod faults;
mod kept;
mod of_documents;
mod others;
mod random;
mod retention;
mod rig;
mod runner;
mod scenarios;
mod script;
#[path = "../shared/soak.rs"]
mod soak;

use campaign::Campaign;
use cuts::crash_images;
use ebbtide::fs::sim::Lie;
use events::Events;
use faults::{Faults, fault_runs, full_disk_runs, read_fault_runs};
use random::{random_runs, replay};
use retention::retention_runs;
use script::Scenario;
use soak::{Part, Soak, fresh_seed, number};

/// Images that a run takes at least: some 280 s of one core in a debug build.
const IMAGES_DEFAULT: usize = 40_000;
/// Images from which on a run also makes every fault, instead of a choice of them.
const IMAGES_WITH_EVERY_FAULT: usize = 80_000;
/// Random runs: the same in every run of the tests, others each time, and steps of each.
const FIXED_SEEDS: u64 = 100;
const FRESH_SEEDS: u64 = 50;
const STEPS: usize = 120;
/// Random histories with graces, holds and sinks: the same in every run of the tests, and as many others.
const RETENTION_SEEDS: u64 = 30;
/// Steps of a random run of a long campaign.
const SOAK_STEPS: usize = 2_000;

/// The scenarios that are asked for: all of them, or the one that `EBBTIDE_CRASH_SCENARIO` names.
fn scenarios() -> Vec<Scenario> {
    let mut all = scenarios::scenarios();
    all.extend(of_documents::scenarios());
    if let Ok(name) = std::env::var("EBBTIDE_CRASH_SCENARIO") {
        all.retain(|scenario| scenario.name == name);
        assert!(!all.is_empty(), "there is no scenario '{name}'");
    }
    all
}

fn images() -> usize {
    number("EBBTIDE_CRASH_IMAGES").map_or(IMAGES_DEFAULT, |images| images as usize)
}

/// Whether this run is the usual one, and has to meet everything.
fn complete() -> bool {
    let asked = |name: &str| std::env::var(name).is_ok();
    !asked("EBBTIDE_CRASH_SCENARIO") && !asked("EBBTIDE_CRASH_REPLAY") && images() >= IMAGES_DEFAULT
}

/// Ways to be cut off that every run has to meet, by the fault of the catalogue (`fixtures/faults.csv`) that each stands for.
const CUTS: [(u8, &str); 12] = [
    (1, "cut Power(V2)"),
    (2, "cut Power(V3)"),
    (3, "cut Power(V0)"),
    (4, "cut Power(V5)"),
    (14, "cut Power(V7)"),
    (16, "cut Power(V6)"),
    (17, "cut Power(V4)"),
    (18, "cut Power(V5)"),
    (19, "cut Power(V4)"),
    (20, "cut Power(V4)"),
    (35, "cut Kill"),
    (36, "cut again in recovery"),
];

/// Failing calls that every run has to meet, by fault of the catalogue: what fails, at which call, on which file.
const FAULTS: [(u8, &str); 27] = [
    (5, "SyncEioKept sync wal"),
    (5, "SyncEioKept sync MANIFEST"),
    (5, "SyncEioKept sync_dir db"),
    (6, "SyncEioDropped sync wal"),
    (6, "SyncEioDropped sync MANIFEST"),
    (6, "SyncEioDropped sync seg"),
    (6, "SyncEioDropped sync CLOSED"),
    (8, "Eio append wal"),
    (8, "Eio append MANIFEST"),
    (8, "Eio append seg"),
    (8, "Eio create seg"),
    (8, "Eio rename MANIFEST"),
    (8, "Eio rename CLOSED"),
    (8, "Eio remove seg"),
    (8, "Eio truncate wal"),
    (8, "Eio sync_dir db"),
    (9, "Enospc append wal"),
    (9, "Enospc sync wal"),
    (10, "Enospc append seg"),
    (10, "Enospc create seg"),
    (11, "Enospc append MANIFEST"),
    (11, "Enospc append CLOSED"),
    (12, "ShortWrite append wal"),
    (12, "ShortWrite append MANIFEST"),
    (32, "Emfile create wal"),
    (32, "Emfile create MANIFEST"),
    (32, "Emfile create seg"),
];

/// What the engine has to go through in every run.
const EVENTS: [&str; 6] = [
    "a rule could not be swept",
    "open buckets are due and could not be sealed",
    "took back a segment that was not committed",
    "took back a segment that could not be written",
    "the log could not be cut",
    "the close could not be marked: damage at the end of the log may look like a crash",
];

#[test]
fn power_cuts_lose_nothing_acknowledged_and_bring_nothing_back() {
    let events = Events::default();
    // Two threads, since this test takes longer than all others together.
    let (mut even, mut odd) = (Vec::new(), Vec::new());
    let all = scenarios().len();
    for (at, scenario) in scenarios().into_iter().enumerate() {
        if at % 2 == 0 { &mut even } else { &mut odd }.push(scenario);
    }
    let half = |scenarios: &[Scenario]| {
        let mut campaign = Campaign::new("A power cuts", images() * scenarios.len() / all);
        events.during(|| crash_images(&mut campaign, scenarios));
        campaign
    };
    let (mut campaign, other) = std::thread::scope(|scope| {
        let other = scope.spawn(|| half(&odd));
        (half(&even), other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    campaign.add(other);
    let torn = ["the log ends with a half-written record", "the last edit of the manifest was half-written"];
    events.expect(if complete() { &torn } else { &[] });
    campaign.expect_struck(if complete() { &CUTS } else { &[] });
    campaign.finish();
}

#[test]
fn disk_faults_lose_nothing_acknowledged_and_bring_nothing_back() {
    let (mut campaign, events) = (Campaign::new("B disk faults", images()), Events::default());
    let scenarios = scenarios();
    let few = Faults::Some(images() / 8 / scenarios.len());
    let faults = if images() < IMAGES_WITH_EVERY_FAULT { few } else { Faults::Every };
    events.during(|| scenarios.iter().for_each(|scenario| fault_runs(&mut campaign, scenario, faults)));
    campaign.expect_struck(if complete() { &FAULTS } else { &[] });
    events.expect(if complete() { &EVENTS } else { &[] });
    campaign.finish();
}

#[test]
fn failing_reads_give_errors_and_never_wrong_answers() {
    let mut campaign = Campaign::new("B failing reads", images() / 64);
    for scenario in scenarios() {
        read_fault_runs(&mut campaign, &scenario);
    }
    campaign.finish();
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    let mut campaign = Campaign::new("I full disks", images() / 64);
    for scenario in scenarios() {
        full_disk_runs(&mut campaign, &scenario);
    }
    campaign.finish();
}

/// Canaries: an engine that forgets one kind of sync looks to the disk like a disk that ignores it. The campaign has to
/// notice each, or its silence about the real engine means nothing.
#[test]
fn every_forgotten_sync_is_noticed() {
    let lies = [
        ("the log", Lie::FileSync("wal-")),
        ("the manifest", Lie::FileSync("MANIFEST-")),
        ("segments", Lie::FileSync("seg-")),
        ("the mark of a close", Lie::FileSync("CLOSED")),
        ("the folder", Lie::DirSync),
    ];
    for (what, lie) in lies {
        let mut campaign = Campaign::new("canary", images().min(8_000)).lying(lie);
        crash_images(&mut campaign, &scenarios());
        assert!(campaign.has_failed(), "nobody noticed that {what} is never synced");
        println!("canary: no sync of {what}: noticed after {} images", campaign.images());
    }
}

/// Tests of their own, so that they run beside the others.
fn fixed_random_runs(first: u64) {
    let mut campaign = Campaign::new("C random runs", 0);
    if campaign.replay.is_none() {
        random_runs(&mut campaign, first, FIXED_SEEDS / 2, STEPS);
        assert!(campaign.fired > 0 && campaign.stops > 0 && campaign.nested > 0, "faults, stops and crashes happen");
    } else if first == 1 {
        replay(&mut campaign);
    }
    campaign.finish();
}

#[test]
fn random_runs_with_crashes_and_faults_agree_with_the_model() {
    fixed_random_runs(1);
}

#[test]
fn random_runs_with_further_seeds_agree_with_the_model() {
    fixed_random_runs(1 + FIXED_SEEDS / 2);
}

#[test]
fn random_runs_with_fresh_seeds_agree_with_the_model() {
    let mut campaign = Campaign::new("C fresh random runs", 0);
    if campaign.replay.is_none() {
        let fresh = fresh_seed();
        println!("fresh seeds from {fresh} on");
        random_runs(&mut campaign, fresh, FRESH_SEEDS, STEPS);
    }
    campaign.finish();
}

#[test]
fn graces_holds_and_sinks_are_kept_through_power_cuts() {
    let mut campaign = Campaign::new("C retention", 0);
    if campaign.replay.is_none() {
        let fresh = fresh_seed();
        println!("fresh seeds from {fresh} on");
        retention_runs(&mut campaign, 1, RETENTION_SEEDS);
        retention_runs(&mut campaign, fresh, RETENTION_SEEDS);
        assert!(campaign.points > 0, "sinks take buckets");
    } else {
        retention::replay(&mut campaign);
    }
    campaign.finish();
}

/// A long campaign: rounds of all tiers with fresh seeds, until its time is over.
#[test]
#[ignore = "runs for as long as EBBTIDE_CAMPAIGN_SECONDS says"]
fn campaign() {
    const ROUND: usize = 40_000;
    let (mut soak, scenarios) = (Soak::new(), scenarios());
    while let Some(seed) = soak.next_seed() {
        let mut cuts = Campaign::new("A power cuts", ROUND).seeded(seed);
        crash_images(&mut cuts, &scenarios);
        let (images, nested) = (cuts.images, cuts.nested);
        cuts.note(&mut soak, "A", images);
        soak.note(&Part { tier: "A2", seeds: (seed, seed), count: nested, faults: 0, failures: 0 });
        let mut faults = Campaign::new("B disk faults", ROUND).seeded(seed);
        let few = Faults::Some(ROUND / 16 / scenarios.len());
        scenarios.iter().for_each(|scenario| fault_runs(&mut faults, scenario, few));
        let fired = faults.fired;
        faults.note(&mut soak, "B", fired);
        let mut full = Campaign::new("I full disks", ROUND / 64).seeded(seed);
        scenarios.iter().for_each(|scenario| full_disk_runs(&mut full, scenario));
        let images = full.images;
        full.note(&mut soak, "I", images);
        let mut runs = Campaign::new("C random runs", 0).seeded(seed);
        random_runs(&mut runs, seed, 20, SOAK_STEPS);
        let images = runs.images;
        runs.note(&mut soak, "C", images);
    }
    soak.finish();
}

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
mod expect;
mod faults;
mod rig;
mod runner;
mod scenarios;
mod script;
#[path = "../shared/soak.rs"]
mod soak;

use campaign::Campaign;
use cuts::crash_images;
use ebbtide::fs::sim::Lie;
use faults::{fault_runs, full_disk_runs, read_fault_runs};
use scenarios::scenarios;
use soak::Soak;

/// Images of a run by default: some 50 s of one core in a debug build.
const IMAGES_DEFAULT: usize = 8_000;
/// Images of one round of a long campaign.
const SOAK_IMAGES: usize = 40_000;

fn images() -> usize {
    std::env::var("EBBTIDE_CRASH_IMAGES").ok().and_then(|text| text.parse().ok()).unwrap_or(IMAGES_DEFAULT)
}

#[test]
fn power_cuts_lose_nothing_acknowledged_and_bring_nothing_back() {
    let mut campaign = Campaign::new("A power cuts", images());
    crash_images(&mut campaign, &scenarios());
    campaign.finish();
}

#[test]
fn disk_faults_lose_nothing_acknowledged_and_bring_nothing_back() {
    let mut campaign = Campaign::new("B disk faults", images() / 8);
    for scenario in scenarios() {
        fault_runs(&mut campaign, &scenario);
    }
    campaign.finish();
}

#[test]
fn failing_reads_give_errors_and_never_wrong_answers() {
    let mut campaign = Campaign::new("B failing reads", images() / 16);
    for scenario in scenarios() {
        read_fault_runs(&mut campaign, &scenario);
    }
    campaign.finish();
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    let mut campaign = Campaign::new("I full disks", images() / 16);
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
        ("the folder", Lie::DirSync),
    ];
    for (what, lie) in lies {
        let mut campaign = Campaign::new("canary", images() / 8).lying(lie);
        crash_images(&mut campaign, &scenarios());
        assert!(campaign.has_failed(), "nobody noticed that {what} is never synced");
        println!("canary: no sync of {what}: noticed after {} images", campaign.images());
    }
}

/// A long campaign: rounds of all tiers with fresh seeds, until its time is over.
#[test]
#[ignore = "runs for as long as EBBTIDE_CAMPAIGN_SECONDS says"]
fn campaign() {
    let mut soak = Soak::new();
    while let Some(seed) = soak.next_seed() {
        let mut cuts = Campaign::new("A power cuts", SOAK_IMAGES).seeded(seed);
        crash_images(&mut cuts, &scenarios());
        let (images, nested) = (cuts.images, cuts.nested);
        cuts.note(&mut soak, "A", images);
        soak.note(&soak::Part { tier: "A2", seeds: (seed, seed), count: nested, faults: 0, failures: 0 });
        let mut faults = Campaign::new("B disk faults", SOAK_IMAGES / 16).seeded(seed);
        scenarios().iter().for_each(|scenario| fault_runs(&mut faults, scenario));
        let fired = faults.fired;
        faults.note(&mut soak, "B", fired);
        let mut full = Campaign::new("I full disks", SOAK_IMAGES / 64).seeded(seed);
        scenarios().iter().for_each(|scenario| full_disk_runs(&mut full, scenario));
        let images = full.images;
        full.note(&mut soak, "I", images);
    }
    soak.finish();
}

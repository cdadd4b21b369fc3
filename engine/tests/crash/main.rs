//! Crashes at every step, on the simulated disk.
//!
//! Each scenario is a short script. It runs once on a disk that keeps its state before every changing step; then the
//! power is cut at each of these points, in every way that the disk knows, and the database is opened again. What it
//! holds then must be what was acknowledged, and of what was under way all or nothing. The same holds for a crash
//! during that recovery, and for a fault of the disk at every step.
//!
//! `EBBTIDE_CRASH_IMAGES` is how many images and fault runs one test run may take; every crash point is visited in any
//! case. `EBBTIDE_CRASH_SEED` makes another choice among them. `EBBTIDE_CRASH_REPLAY` runs a single one: a failure prints
//! its value.

mod expect;
mod rig;
mod script;

use rig::{Campaign, crash_images, fault_runs, full_disk_runs, read_fault_runs};
use script::scenarios;

/// Images of a run by default: well under a minute for a debug build on two cores.
const IMAGES_DEFAULT: usize = 8_000;

fn images() -> usize {
    std::env::var("EBBTIDE_CRASH_IMAGES").ok().and_then(|text| text.parse().ok()).unwrap_or(IMAGES_DEFAULT)
}

#[test]
fn power_cuts_lose_nothing_acknowledged_and_bring_nothing_back() {
    let mut campaign = Campaign::new("A power cuts", images() * 3 / 4);
    for scenario in scenarios() {
        crash_images(&mut campaign, &scenario);
    }
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

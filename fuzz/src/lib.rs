//! The fuzz targets, which are shared with the test that runs their corpus.

#[path = "../../engine/tests/laws/compare.rs"]
mod compare;
#[path = "../../engine/tests/laws/meta.rs"]
mod meta;
#[path = "../../engine/tests/laws/model.rs"]
mod model;
#[path = "../../engine/tests/laws/rig.rs"]
mod rig;
#[path = "../../server/tests/corpus/targets.rs"]
mod server_targets;
#[path = "../../engine/tests/laws/steps.rs"]
mod steps;
#[path = "../../engine/tests/corpus/targets/mod.rs"]
mod targets;
#[path = "../../engine/tests/laws/write.rs"]
mod write;

/// Runs a target by its name.
///
/// # Panics
/// If a promise is broken, or there is no such target.
pub fn run(target: &str, data: &[u8]) {
    let found = targets::ALL.iter().chain(&server_targets::ALL).find(|(name, _)| *name == target);
    found.expect("a target").1(data);
}

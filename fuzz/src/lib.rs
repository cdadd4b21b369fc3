//! The fuzz targets, which are shared with the tests that run their corpus.
#![cfg(feature = "libfuzzer")]
#![expect(clippy::expect_used, reason = "a fuzz target says by its panic what it met")]

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

use std::sync::LazyLock;

/// The target that `EBBTIDE_FUZZ_TARGET` names.
static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("EBBTIDE_FUZZ_TARGET").expect("EBBTIDE_FUZZ_TARGET names a target");
    let found = targets::ALL.iter().chain(&server_targets::ALL).find(|(target, _)| *target == name);
    found.expect("EBBTIDE_FUZZ_TARGET names a target").1
});

/// Runs the target with an input.
///
/// # Panics
/// If a promise is broken, or there is no such target.
pub fn run(data: &[u8]) {
    TARGET(data);
}

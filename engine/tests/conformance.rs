//! Runs the conformance cases of the repository, and those in the folders that `EBBTIDE_CONFORMANCE_DIRS` names.
//! Cases with SQL are run by the test of the same name in the crate `query`: `cargo test --test conformance` runs both.

use std::path::{Path, PathBuf};

#[test]
fn conformance_cases_hold() {
    let mut paths = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/conformance")];
    let more = std::env::var_os("EBBTIDE_CONFORMANCE_DIRS").unwrap_or_default();
    paths.extend(std::env::split_paths(&more).filter(|p| !p.as_os_str().is_empty()).collect::<Vec<PathBuf>>());
    let outcomes = ebbtide::conformance::run_paths(&paths, None);
    let skipped = outcomes.iter().filter(|o| o.skipped.is_some()).count();
    let failed: Vec<_> = outcomes.iter().filter(|o| !o.failures.is_empty()).collect();
    let run = outcomes.len() - skipped;
    println!("{run} cases run, {} failed, {skipped} skipped because they need SQL", failed.len());
    let lines: Vec<String> = failed
        .iter()
        .flat_map(|o| o.failures.iter().map(|failure| format!("{} ({}): {failure}", o.path.display(), o.name)))
        .collect();
    assert!(run > 0, "no case was run");
    assert!(lines.is_empty(), "{} of {run} cases failed:\n{}", failed.len(), lines.join("\n"));
}

//! Every input that is kept of the fuzz targets, run as a plain test.
//!
//! `fuzz/corpus/<target>/` holds a few small ones that reach far, and every input that once was a finding, under a name
//! that says what it found. The fuzzers start from the same files.

#[path = "../laws/compare.rs"]
mod compare;
#[path = "../laws/meta.rs"]
mod meta;
#[path = "../laws/model.rs"]
mod model;
#[path = "../laws/rig.rs"]
mod rig;
#[path = "../laws/steps.rs"]
mod steps;
mod targets;
#[path = "../laws/write.rs"]
mod write;

use ebbtide::fs::{Fs, RealFs};
use std::panic::catch_unwind;
use std::path::Path;

#[test]
fn no_kept_input_is_a_finding_any_more() {
    let fs = RealFs::new();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let mut findings = Vec::new();
    for (target, run) in targets::ALL {
        let folder = corpus.join(target);
        let mut names = fs.list(&folder).expect("a folder");
        names.sort();
        assert!(names.len() >= 3, "{target} has no corpus");
        for name in &names {
            let bytes = fs.read(&folder.join(name)).expect("an input");
            if catch_unwind(|| run(&bytes)).is_err() {
                findings.push(format!("{target}/{name}"));
            }
        }
        println!("E {target}: {} inputs", names.len());
    }
    assert!(findings.is_empty(), "{findings:?}");
}

//! Every input that is kept of the server's fuzz targets, run as a plain test. The fuzzers start from the same files.

mod targets;

use ebbtide::fs::{Fs, RealFs};
use std::panic::catch_unwind;
use std::path::Path;

#[test]
fn no_kept_input_is_a_finding_any_more() {
    let fs = RealFs::new();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let mut findings = Vec::new();
    for (target, run) in targets::ALL {
        let names = fs.list(&corpus.join(target)).expect("a folder");
        assert!(names.len() >= 3, "{target} has no corpus");
        for name in &names {
            let bytes = fs.read(&corpus.join(target).join(name)).expect("an input");
            if catch_unwind(|| run(&bytes)).is_err() {
                findings.push(format!("{target}/{name}"));
            }
        }
        println!("E {target}: {} inputs", names.len());
    }
    assert!(findings.is_empty(), "{findings:?}");
}

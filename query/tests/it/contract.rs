//! Conformance cases with the SQL of this crate.

use crate::cli::ebbtide;

#[test]
fn the_conformance_cases_hold_with_sql() {
    let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/conformance");
    let output = ebbtide(&["conformance", cases]);
    assert_eq!(output.code, 0, "{}\n{}", output.stdout, output.stderr);
}

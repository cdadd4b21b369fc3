//! Runs the conformance cases of the repository with SQL, and those in the folders that `EBBTIDE_CONFORMANCE_DIRS`
//! names.

use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn conformance_cases_hold_with_sql() {
    let mut paths = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/conformance")];
    let more = std::env::var_os("EBBTIDE_CONFORMANCE_DIRS").unwrap_or_default();
    paths.extend(std::env::split_paths(&more).filter(|p| !p.as_os_str().is_empty()).collect::<Vec<PathBuf>>());
    let output = Command::new(env!("CARGO_BIN_EXE_ebbtide"))
        .arg("conformance")
        .args(&paths)
        .env_remove("EBBTIDE_LOG")
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "errors that the cases expect are not logged");
}

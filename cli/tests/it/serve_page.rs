//! The page about retention in a browser.

use crate::serve::serve;
use std::path::PathBuf;
use std::process::Command;

/// Where Debian's package has it.
const CHROMIUM: &str = "/usr/bin/chromium";

#[test]
fn people_see_rules_try_others_and_change_them() {
    let Some(clients) = std::env::var_os("EBBTIDE_CLIENTS").map(PathBuf::from) else {
        eprintln!(
            "skipped: EBBTIDE_CLIENTS names no folder of clients (server/tests/drivers/install FOLDER makes one)"
        );
        return;
    };
    let packages = clients.join("node/node_modules");
    if !packages.join("playwright-core").exists() || !PathBuf::from(CHROMIUM).exists() {
        eprintln!("skipped: there is no {CHROMIUM}, or no playwright-core to drive it");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let serving = serve(folder.path(), &["--db", "weather", "--http", "0"]);
    let url = format!("http://{}/", serving.doors[0].strip_prefix("http ").unwrap());
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../server/tests/drivers/page.js");
    let pictures = folder.path().join("pictures");
    let output = Command::new("node").arg(script).arg(url).arg(&pictures).env("NODE_PATH", packages).output().unwrap();
    let told = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{told}");
    assert!(pictures.read_dir().unwrap().count() >= 4, "{told}");
    assert_eq!(serving.end().0, Some(0));
}

//! Asks the linker to keep one copy of functions whose code is the same.
//!
//! Only in release builds, and only where the linker knows how: rustc links with LLD by itself on one target, and a user may
//! have chosen any other linker there. So a small program is linked that way first.

#![expect(clippy::disallowed_methods, reason = "a build's own folder is no database")]

use std::path::PathBuf;
use std::process::{Command, Stdio};

const FOLD: &str = "-Wl,--icf=all";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "release") && folds() == Some(true) {
        println!("cargo::rustc-link-arg-bins={FOLD}");
    }
}

/// Whether a program links with the option, with the linker and the flags of this build.
fn folds() -> Option<bool> {
    let folder = PathBuf::from(std::env::var_os("OUT_DIR")?);
    let source = folder.join("empty.rs");
    std::fs::write(&source, "fn main() {}\n").ok()?;
    let mut rustc = Command::new(std::env::var_os("RUSTC")?);
    rustc.args(["--edition=2024", "--target", &std::env::var("TARGET").ok()?]);
    if let Some(linker) = std::env::var_os("RUSTC_LINKER") {
        let mut option = std::ffi::OsString::from("linker=");
        option.push(linker);
        rustc.arg("-C").arg(option);
    }
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    rustc.args(flags.split('\u{1f}').filter(|flag| !flag.is_empty()));
    rustc.args(["-C", &format!("link-arg={FOLD}")]).arg("-o").arg(folder.join("empty")).arg(source);
    let status = rustc.stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?;
    Some(status.success())
}

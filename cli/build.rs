//! Options of the linker for release builds of the program, each only where a small program links with it: rustc chooses a linker
//! by itself on one target, and a user may have chosen any other.

#![expect(clippy::disallowed_methods, reason = "a build's own folder is no database")]

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Keeps one copy of functions whose code is the same.
const FOLD: &str = "-Wl,--icf=all";
/// Links the program at a fixed address. At any other, its start writes 180,000 pointers into a thousand pages of memory, which takes
/// a third of a short command.
const FIXED_ADDRESS: &str = "-no-pie";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        let glibc = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux")
            && std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu")
            && !std::env::var("CARGO_CFG_TARGET_FEATURE")
                .is_ok_and(|all| all.split(',').any(|one| one == "crt-static"));
        for option in [Some(FOLD), glibc.then_some(FIXED_ADDRESS)].into_iter().flatten() {
            if links_with(option) == Some(true) {
                println!("cargo::rustc-link-arg-bins={option}");
            }
        }
    }
}

/// Whether a program links with the option, with the linker and the flags of this build.
fn links_with(option: &str) -> Option<bool> {
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
    rustc.args(["-C", &format!("link-arg={option}")]).arg("-o").arg(folder.join("empty")).arg(source);
    let status = rustc.stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?;
    Some(status.success())
}

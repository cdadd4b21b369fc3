//! Runs the fuzz target that `EBBTIDE_FUZZ_TARGET` names. One program for all of them, since it is large.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ebbtide_fuzz::run(data));

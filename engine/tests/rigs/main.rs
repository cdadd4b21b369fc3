//! Real processes on real file systems.
//!
//! The writer is this program itself, started again: `strace` kills it before a system call, or makes one fail; it
//! runs on a disk that is really full, and on one whose power is really cut. What it holds afterwards is compared with
//! the same model as in the tests on the simulated disk (`tests/crash`). What a machine does not allow is skipped, and
//! says so.
//!
//! `EBBTIDE_RIG_ERRORS`, `EBBTIDE_RIG_IMAGES`, `EBBTIDE_RIG_DISKS`: how many failing calls, images after power cuts, and
//! full disks one run takes.
//! `EBBTIDE_RIG_REPLAY` runs a single kill or failing call: a failure prints its value.

#![expect(
    clippy::disallowed_methods,
    reason = "what lies around the databases, and what processes say, is none of their files"
)]

mod child;
mod disks;
#[path = "../shared/documents.rs"]
mod documents;
#[path = "../crash/expect.rs"]
mod expect;
mod ext4;
mod full;
#[path = "../crash/kept.rs"]
mod kept;
mod limits;
#[path = "../crash/runner.rs"]
mod runner;
#[path = "../crash/script.rs"]
mod script;
mod strace;
mod workloads;

use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;

/// What a rig prints at its end: counts, or why it was skipped.
type Outcome = Result<String, String>;

fn trial(name: &'static str, run: fn() -> Outcome) -> Trial {
    Trial::test(name, move || {
        println!("{name}: {}", run().map_err(Failed::from)?);
        Ok(())
    })
}

fn main() -> ExitCode {
    if let Some(status) = child::run_if_asked() {
        return status;
    }
    let mut arguments = Arguments::from_args();
    // One after the other: each takes all cores by itself.
    arguments.test_threads.get_or_insert(1);
    let trials = vec![
        trial("a_kill_before_any_system_call_loses_nothing_acknowledged", strace::kills),
        trial("a_failing_system_call_loses_nothing_acknowledged", strace::errors),
        trial("a_lost_write_is_noticed_or_loses_the_tail", strace::lost_writes),
        trial("a_full_disk_refuses_clearly_and_can_be_swept", full::sizes),
        trial("a_disk_that_may_only_be_read_is_read_and_not_written", limits::read_only),
        trial("a_folder_without_permission_is_refused_with_the_reason", limits::denied),
        trial("too_few_file_handles_are_said_and_lose_nothing", limits::handles),
        trial("a_power_cut_of_a_real_file_system_loses_nothing_acknowledged", ext4::power_cuts),
        trial("real_power_cuts_leave_nothing_that_the_simulated_disk_rules_out", ext4::states),
        trial("the_simulated_disk_answers_as_the_real_one_does", disks::differential),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

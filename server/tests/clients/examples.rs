//! The examples of the pages on expiry in MongoDB's manual, and diagnostics in mongosh.

use crate::support::{Running, mongosh, output_of, python, run, succeeded};

/// Runs a script in mongosh, against a server of its own.
async fn run_in_mongosh(script: &str) {
    let running = Running::start().await;
    let Some(mut command) = mongosh(running.folder.path()) else { return };
    command.arg(running.uri()).arg(format!("{}/tests/drivers/{script}", env!("CARGO_MANIFEST_DIR")));
    succeeded(&output_of(command).await);
    running.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_of_the_manual_run_in_mongosh() {
    run_in_mongosh("manual.js").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_and_what_ran_can_be_asked_in_mongosh() {
    run_in_mongosh("diagnostics.js").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_of_the_manual_run_in_pymongo() {
    run(python("manual.py")).await;
}

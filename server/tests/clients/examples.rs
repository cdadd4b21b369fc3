//! The examples of the pages on expiry in MongoDB's manual.

use crate::support::{Running, mongosh, output_of, python, run, succeeded};

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_of_the_manual_run_in_mongosh() {
    let running = Running::start().await;
    let Some(mut command) = mongosh(running.folder.path()) else { return };
    command.arg(running.uri()).arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/drivers/manual.js"));
    succeeded(&output_of(command).await);
    running.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_of_the_manual_run_in_pymongo() {
    run(python("manual.py")).await;
}

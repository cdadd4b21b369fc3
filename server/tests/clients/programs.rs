//! Drivers, and programs that are built on them.

use crate::support::{node, python, run};

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_express_expire() {
    run(node("sessions.js")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_flask_expire() {
    run(python("flask_sessions.py")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn results_of_celery_are_kept_and_cleaned_up() {
    run(python("celery_results.py")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn asynchronous_clients_in_python_work() {
    run(python("asynchronous.py")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_driver_for_node_works() {
    run(node("node.js")).await;
}

//! Tasks that are cancelled because the program ends.

use std::any::Any;
use std::panic;

/// Prints nothing from now on about a task that waited for a cancelled one: the library for workers panics there if a query has failed
/// shortly before.
pub(crate) fn be_quiet() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        if !is_of_cancelled(panicked.payload()) {
            before(panicked);
        }
    }));
}

/// Whether a panic says that a task was cancelled.
fn is_of_cancelled(payload: &(dyn Any + Send)) -> bool {
    let text = payload.downcast_ref::<String>();
    text.is_some_and(|text| text.starts_with("task ") && text.ends_with(" was cancelled"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_about_a_cancelled_task_is_known_and_no_other() {
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(std::future::pending::<()>());
        tasks.abort_all();
        let panicked = tokio::spawn(tasks.join_all()).await.unwrap_err().into_panic();
        assert!(is_of_cancelled(panicked.as_ref()));
        let other: Box<dyn Any + Send> = Box::new("a lock is poisoned".to_owned());
        assert!(!is_of_cancelled(other.as_ref()));
    }
}

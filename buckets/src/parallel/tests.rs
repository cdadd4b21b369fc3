use super::on_threads;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn results_are_in_order_on_any_number_of_threads() {
    for threads in [0, 1, 3, 8] {
        let squares = on_threads(threads, 100, &|| true, |at| Ok::<_, ()>(at * at));
        assert_eq!(squares, Ok((0..100).map(|at| at * at).collect()), "{threads} threads");
    }
}

#[test]
fn work_is_done_at_the_same_time() {
    let both = Barrier::new(2);
    assert_eq!(on_threads(2, 2, &|| true, |_| Ok::<_, ()>(both.wait().is_leader())).unwrap().len(), 2);
}

#[test]
fn the_error_of_the_lowest_number_is_returned_and_no_thread_takes_another() {
    for threads in [1, 4] {
        let begun = AtomicUsize::new(0);
        let failed = Barrier::new(threads);
        let result = on_threads(threads, 1000, &|| true, |at| {
            begun.fetch_add(1, Ordering::Relaxed);
            // Every thread fails in its first number, at the same time.
            failed.wait();
            Err::<(), _>(at)
        });
        assert_eq!(result, Err(0), "{threads} threads");
        assert_eq!(begun.into_inner(), threads);
    }
}

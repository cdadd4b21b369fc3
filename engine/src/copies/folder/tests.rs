use super::{BYTES_AT_ONCE, InProgress};
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_large_file_waits_until_all_others_are_fetched_and_others_wait_for_it() {
    let all = InProgress::default();
    let parts = [all.wait_for(BYTES_AT_ONCE - 1), all.wait_for(1)];
    let (are_fetched, is_fetched) = (AtomicBool::new(false), AtomicBool::new(false));
    let (begun, begins) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let large = all.wait_for(u64::MAX);
            assert!(are_fetched.load(Ordering::SeqCst));
            begun.send(()).unwrap();
            is_fetched.store(true, Ordering::SeqCst);
            drop(large);
        });
        are_fetched.store(true, Ordering::SeqCst);
        drop(parts);
        begins.recv().unwrap();
        drop(all.wait_for(1));
        assert!(is_fetched.load(Ordering::SeqCst));
    });
    assert_eq!(*all.bytes.lock(), 0);
}

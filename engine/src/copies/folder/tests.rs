use super::{BYTES_AT_ONCE, InProgress};

#[test]
fn a_file_waits_until_others_are_fetched_and_a_large_one_is_alone() {
    let all = InProgress::default();
    drop(all.wait_for(u64::MAX));
    let parts = [all.wait_for(BYTES_AT_ONCE - 1), all.wait_for(1)];
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| drop(all.wait_for(u64::MAX)));
        drop(parts);
        waiting.join().unwrap();
    });
    assert_eq!(*all.bytes.lock(), 0);
}

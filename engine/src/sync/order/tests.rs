use super::*;

fn locks() -> (Ordered<Mutex<u8>>, Ordered<RwLock<u8>>) {
    (Ordered::mutex(Rank::Log, 1), Ordered::rw_lock(Rank::State, 2))
}

#[test]
fn locks_are_taken_in_order_and_again_once_they_are_free() {
    let (log, state) = locks();
    for _ in 0..2 {
        let mut log = log.lock();
        *log += *state.read();
    }
    assert_eq!((*log.lock(), *state.write()), (5, 2));
}

#[test]
#[should_panic(expected = "lock Log is taken while [State] are held")]
fn a_lock_out_of_order_fails() {
    let (log, state) = locks();
    let _state = state.read();
    let _log = log.lock();
}

#[test]
#[should_panic(expected = "lock State is taken while [State] are held")]
fn a_lock_is_not_taken_twice() {
    let (_, state) = locks();
    let _first = state.read();
    let _second = state.read();
}

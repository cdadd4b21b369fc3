use super::*;

#[test]
fn both_virtual_times_move_on_together_and_back_apart() {
    let clock = VirtualClock::new(Timestamp::EPOCH);
    let other = clock.clone();
    clock.set(Timestamp::from_nanos(500));
    assert_eq!((other.now(), other.monotonic()), (Timestamp::from_nanos(500), Duration::from_nanos(500)));
    clock.set(Timestamp::from_nanos(200));
    assert_eq!((other.now(), other.monotonic()), (Timestamp::from_nanos(200), Duration::from_nanos(500)));
    clock.set(Timestamp::from_nanos(300));
    assert_eq!(other.monotonic(), Duration::from_nanos(600));
    assert!(clock.is_virtual());
}

#[test]
fn a_jump_moves_the_wall_clock_alone() {
    let clock = VirtualClock::new(Timestamp::from_nanos(10));
    clock.jump(Timestamp::from_nanos(1_000_000));
    assert_eq!((clock.now(), clock.monotonic()), (Timestamp::from_nanos(1_000_000), Duration::ZERO));
    clock.set_monotonic(Duration::from_secs(5));
    assert_eq!((clock.now(), clock.monotonic()), (Timestamp::from_nanos(1_000_000), Duration::from_secs(5)));
}

#[test]
fn the_machines_clocks_move_on() {
    let clock = SystemClock::new();
    let (before, wall) = (clock.monotonic(), clock.now());
    assert!(clock.monotonic() >= before);
    assert!(wall > Timestamp::parse("2024-01-01").unwrap());
    assert!(!clock.is_virtual());
}

#[test]
fn a_virtual_clock_can_be_set_to_any_instant() {
    let clock = VirtualClock::new(Timestamp::EPOCH);
    clock.set(Timestamp::parse("3000-01-01").unwrap());
    assert_eq!(clock.monotonic(), Duration::MAX);
    clock.set(clock.now().plus_seconds(1));
    assert_eq!(clock.monotonic(), Duration::MAX);
    clock.set(Timestamp::from_nanos(i128::MIN));
    clock.set(Timestamp::from_nanos(i128::MAX));
    assert_eq!((clock.now(), clock.monotonic()), (Timestamp::from_nanos(i128::MAX), Duration::MAX));
}

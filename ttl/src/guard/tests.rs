use super::*;
use proptest::prelude::*;

const TOLERANCE: i64 = 3_600;

fn at(secs: i64) -> Timestamp {
    Timestamp::from_millis(secs * 1_000)
}

fn mono(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn both_sides_of_the_tolerance() {
    let mut guard = ClockGuard::new(at(0), mono(0));
    let just = Timestamp::from_nanos(at(60 + TOLERANCE).nanos() + 1);
    let held = guard.look(just, mono(60), TOLERANCE).unwrap_err();
    assert_eq!((held.ahead_secs(), held.tolerance_secs), (TOLERANCE, TOLERANCE));
    assert!(held.to_string().contains("3600.001 s ahead"), "{held}");
    assert_eq!(guard.look(at(60 + TOLERANCE), mono(60), TOLERANCE), Ok(()));
}

#[test]
fn a_held_look_is_no_look() {
    let mut guard = ClockGuard::new(at(0), mono(0));
    assert!(guard.look(at(4_000), mono(0), TOLERANCE).is_err());
    // Another 3000 s: tolerable by itself, but jumps add up.
    assert_eq!(guard.look(at(7_000), mono(0), TOLERANCE).unwrap_err().ahead_secs(), 7_000);
    assert_eq!(guard.look(at(100), mono(100), TOLERANCE), Ok(()), "the clock is back");
}

#[test]
fn a_good_look_moves_the_baseline() {
    let mut guard = ClockGuard::new(at(0), mono(0));
    assert_eq!(guard.look(at(3_000), mono(0), TOLERANCE), Ok(()));
    assert_eq!(guard.look(at(6_000), mono(0), TOLERANCE), Ok(()));
}

#[test]
fn a_person_confirms_the_time() {
    let mut guard = ClockGuard::new(at(0), mono(0));
    assert!(guard.peek(at(9_000), mono(0), TOLERANCE).is_some());
    guard.confirm(at(9_000), mono(0));
    assert_eq!(guard.peek(at(9_000), mono(0), TOLERANCE), None);
    assert_eq!(guard.look(at(9_000), mono(0), TOLERANCE), Ok(()));
}

#[test]
fn a_tolerance_of_zero_switches_the_guard_off() {
    let mut guard = ClockGuard::new(at(0), mono(0));
    assert!(guard.look(at(9_000), mono(0), TOLERANCE).is_err());
    assert_eq!(guard.look(at(9_000), mono(0), 0), Ok(()));
    assert_eq!(guard.look(at(9_000), mono(0), TOLERANCE), Ok(()));
}

#[test]
fn a_clock_that_goes_backwards_is_no_danger() {
    let mut guard = ClockGuard::new(at(1_000_000), mono(50));
    assert_eq!(guard.look(at(0), mono(60), TOLERANCE), Ok(()));
    // Its way forth again is a jump: from here nobody can tell which time was right.
    assert!(guard.look(at(1_000_000), mono(70), TOLERANCE).is_err());
}

#[test]
fn extremes_do_not_overflow() {
    let mut guard = ClockGuard::new(Timestamp::from_nanos(i128::MIN), Duration::ZERO);
    assert!(guard.look(Timestamp::from_nanos(i128::MAX), Duration::MAX, i64::MAX).is_err());
    assert_eq!(guard.look(Timestamp::from_nanos(i128::MIN), Duration::MAX, 1), Ok(()));
    assert_eq!(ClockJump { ahead_nanos: i128::MAX, tolerance_secs: 1 }.ahead_secs(), i64::MAX);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// Whatever the clocks do: a look is good iff the wall clock gained no more than the tolerance since the last good
    /// one, and no hold wears off by being looked at.
    #[test]
    fn looks_are_good_by_the_last_good_one_alone(
        moves in prop::collection::vec((-20_000_i64..20_000, -5_000_i64..20_000), 1..20), tolerance in 0_i64..8_000,
    ) {
        let (mut wall, mut monotonic) = (1_000_000_i64, 100_000_i64);
        let mut good = (wall, monotonic);
        let mut guard = ClockGuard::new(at(wall), Duration::from_secs(monotonic.unsigned_abs()));
        for (wall_moved, monotonic_moved) in moves {
            wall += wall_moved;
            monotonic = (monotonic + monotonic_moved).max(0);
            let gained = (wall - good.0) - (monotonic - good.1).max(0);
            let expected = tolerance == 0 || gained <= tolerance;
            let elapsed = Duration::from_secs(monotonic.unsigned_abs());
            for _ in 0..2 {
                prop_assert_eq!(guard.peek(at(wall), elapsed, tolerance).is_none(), expected);
                let look = guard.look(at(wall), elapsed, tolerance);
                prop_assert_eq!(look.map_err(|held| held.ahead_secs()), if expected { Ok(()) } else { Err(gained) });
                if expected {
                    break;
                }
            }
            if expected {
                good = (wall, monotonic);
            }
        }
    }
}

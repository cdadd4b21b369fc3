use super::*;

const SMALL: Limits = Limits { life: Duration::from_secs(100), most: 6, at_once: 2 };

fn key(n: u8) -> RequestKey {
    [n; 32]
}

fn remembered(keys: impl IntoIterator<Item = (u8, u64)>) -> Remembered {
    let mut all = Remembered { collection: 1, since: HashMap::new(), order: VecDeque::new() };
    keys.into_iter().for_each(|(n, at)| all.add(key(n), Duration::from_secs(at)));
    all
}

#[test]
fn keys_are_forgotten_when_enough_of_them_are_old() {
    let all = remembered([(1, 0), (2, 10), (3, 20)]);
    let due = |at| all.due(&key(9), Duration::from_secs(at), SMALL);
    assert_eq!(due(105), Vec::<RequestKey>::new(), "one alone is not worth a command");
    assert_eq!(due(110), [key(1), key(2)]);
    assert_eq!(due(500), [key(1), key(2), key(3)]);
}

#[test]
fn a_key_that_is_old_is_forgotten_when_it_is_asked_for() {
    let all = remembered([(1, 0), (2, 10)]);
    assert_eq!(all.due(&key(1), Duration::from_secs(100), SMALL), [key(1)]);
    assert_eq!(all.due(&key(2), Duration::from_secs(100), SMALL), Vec::<RequestKey>::new());
}

#[test]
fn the_oldest_are_forgotten_when_there_are_too_many() {
    let mut all = remembered((0..6).map(|n| (n, 0)));
    let due = all.due(&key(9), Duration::ZERO, SMALL);
    assert_eq!(due, [key(0), key(1)]);
    all.remove(&due);
    assert_eq!(all.due(&key(9), Duration::ZERO, SMALL), Vec::<RequestKey>::new());
    assert_eq!((all.since.len(), all.order.len()), (4, 4));
    all.add(key(2), Duration::from_secs(50));
    assert_eq!(all.order.len(), 4, "a key is there once");
}

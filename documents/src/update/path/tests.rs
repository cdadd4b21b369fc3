//! The order of paths is one.

use super::{UpdatePath, compare_names};
use proptest::prelude::*;
use std::cmp::Ordering;

fn path(text: &str) -> UpdatePath {
    UpdatePath::parse(text, "$set").unwrap()
}

#[test]
fn what_is_within_a_path_follows_it() {
    let mut paths = ["a.b", "b", "a", "a-b", "ab", "a.b.c", "a.10", "a.9"].map(path);
    paths.sort();
    let sorted: Vec<String> = paths.iter().map(ToString::to_string).collect();
    assert_eq!(sorted, ["a", "a.9", "a.10", "a.b", "a.b.c", "a-b", "ab", "b"]);
    assert!(path("a").contains(&path("a.b")) && path("a").contains(&path("a")));
    assert!(!path("a").contains(&path("ab")) && !path("a.b").contains(&path("a")));
}

proptest! {
    #[test]
    fn names_have_one_order(a in "[-+01a9]{1,3}", b in "[-+01a9]{1,3}", c in "[-+01a9]{1,3}") {
        prop_assert_eq!(compare_names(&a, &b), compare_names(&b, &a).reverse());
        prop_assert_eq!(compare_names(&a, &b).is_eq(), a == b);
        if compare_names(&a, &b) == Ordering::Less && compare_names(&b, &c) == Ordering::Less {
            prop_assert_eq!(compare_names(&a, &c), Ordering::Less);
        }
    }
}

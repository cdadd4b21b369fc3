//! Cases of sorts, and the law that a key of one path is the least or greatest of the values that an index holds.

use super::Sort;
use crate::arbitrary::any_document;
use crate::cases::{cases, check, doc};
use crate::{Path, index_keys, value_key};
use bson::rawdoc;
use proptest::prelude::*;
use serde_json::json;

#[test]
fn sorts_do_what_mongodb_does() {
    for case in cases(include_str!("../../tests/sorts.json")) {
        let order = || {
            let sort = Sort::parse(&doc(&case["sort"]))?;
            let documents = case["documents"].as_array().unwrap();
            let keys: Vec<_> =
                documents.iter().map(|document| sort.key(&doc(document))).collect::<crate::Result<_>>()?;
            let mut places: Vec<usize> = (0..keys.len()).collect();
            places.sort_by_key(|place| &keys[*place]);
            Ok(json!(places))
        };
        check(&case, order(), Clone::clone);
    }
}

#[test]
fn a_sort_tells_its_paths() {
    let sort = Sort::parse(&rawdoc! { "a.b": 1, "c": -1 }).unwrap();
    assert_eq!(sort.paths().collect::<Vec<_>>(), [("a.b".to_owned(), false), ("c".to_owned(), true)]);
    assert!(!sort.is_empty() && Sort::parse(&rawdoc! {}).unwrap().is_empty());
}

#[test]
fn the_natural_order_is_that_without_a_sort() {
    for natural in [rawdoc! { "$natural": 1 }, rawdoc! { "$natural": 1.0 }] {
        assert!(Sort::parse(&natural).unwrap().is_empty());
    }
    for (refused, reason) in [
        (rawdoc! { "$natural": -1 }, "{_id: -1}"),
        (rawdoc! { "$natural": 2 }, "must be 1"),
        (rawdoc! { "$natural": 1, "a": 1 }, "stands alone"),
        (rawdoc! { "a": 1, "$natural": 1 }, "stands alone"),
    ] {
        let error = Sort::parse(&refused).unwrap_err();
        assert!(error.code == crate::Code::BadValue && error.message.contains(reason), "{error}");
    }
    assert!(Sort::of_paths(&rawdoc! { "$natural": 1 }).is_err());
}

proptest! {
    #[test]
    fn a_key_is_the_least_or_the_greatest_of_an_index(document in any_document(), path in "[abc](\\.[abc]){0,2}") {
        let path = path.as_str();
        let keys = |direction: i32| {
            let mut sort = bson::RawDocumentBuf::new();
            sort.append(bson::raw::CString::try_from(path).unwrap(), direction);
            Sort::parse(&sort).unwrap().key(&document).unwrap()
        };
        let path = Path::new(path);
        let mut values: Vec<_> = index_keys(&document, &path).into_iter().map(value_key).collect();
        values.sort();
        prop_assert!(values.contains(&keys(1)) || keys(1) == value_key(bson::raw::RawBsonRef::Null));
        prop_assert!(keys(1) <= values[0]);
        let turned: Vec<u8> = keys(-1).iter().map(|byte| !byte).collect();
        prop_assert!(turned >= values[values.len() - 1]);
    }
}

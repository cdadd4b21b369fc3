use super::Texts;
use datafusion::arrow::array::{Scalar, StringArray};
use datafusion::arrow::compute::kernels::comparison::like;

#[test]
fn texts_are_found_where_like_finds_them() {
    let parts = ["%", "a", "b", "ab", "ä"];
    let mut patterns = vec![String::new()];
    for _ in 0..5 {
        patterns = patterns.iter().flat_map(|one| parts.map(|part| format!("{one}{part}"))).collect();
    }
    patterns.sort();
    patterns.dedup();
    let values = ["", "a", "b", "ab", "ba", "aab", "abab", "baab", "aä", "äaäb", "a\nb", "ab\nab", "abba", "bäba"];
    let array = StringArray::from_iter_values(values);
    let mut searched = 0;
    for pattern in &patterns {
        let Some(texts) = Texts::of(pattern) else { continue };
        searched += 1;
        let expected = like(&array, &Scalar::new(StringArray::from_iter_values([pattern]))).unwrap();
        for (value, expected) in values.iter().zip(&expected) {
            assert_eq!(Some(texts.are_in(value)), expected, "{value:?} LIKE {pattern:?}");
        }
    }
    assert!(searched > 1_000, "{searched} of {} patterns", patterns.len());
}

#[test]
fn other_patterns_are_left_to_arrow() {
    for pattern in ["", "a", "a%", "%a", "%a%", "%", "%%", "a_%b", "a\\%%b"] {
        assert!(Texts::of(pattern).is_none(), "{pattern}");
    }
}

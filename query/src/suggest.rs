//! Near names: what somebody may have meant by a word that nothing is called.

/// The candidate that is nearest to `word`, if it is near enough to be a slip of the fingers.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted: Vec<char> = word.to_lowercase().chars().collect();
    let allowed = match wanted.len() {
        0 => return None,
        1..=2 => 1,
        3..=5 => 2,
        n => n / 3 + 1,
    };
    candidates
        .into_iter()
        .filter(|c| !c.is_empty())
        .map(|c| (distance(&wanted, &c.to_lowercase().chars().collect::<Vec<_>>()), c))
        .filter(|(d, c)| *d <= allowed && *d < c.chars().count().max(2))
        .min_by_key(|(d, _)| *d)
        .map(|(_, c)| c)
}

/// The hint that ends a message: `; did you mean 'x'?`, or nothing.
#[must_use]
pub fn hint<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, candidates).map(|c| format!("; did you mean '{c}'?")).unwrap_or_default()
}

/// Edits (insert, delete, replace, swap of neighbours) between two words.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut rows = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let cost = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + cost);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_strangers_are_not() {
        assert_eq!(nearest("wheather", ["weather", "rain"]), Some("weather"));
        assert_eq!(nearest("tmep", ["temp", "dewp"]), Some("temp"));
        assert_eq!(nearest("HUORS", ["HOURS", "DAYS"]), Some("HOURS"));
        assert_eq!(nearest("zebra", ["weather", "rain"]), None);
        assert_eq!(nearest("", ["a"]), None);
    }
}

//! Suggestions for misspelled names.

/// Longer words are not compared: the time of a comparison is proportional to the product of both lengths.
const CHARS_MAX: usize = 64;

/// The candidate nearest to `word` in either case, if it is near enough to be a misspelling: one edit in words of up to
/// two letters, two in words of up to five, and a third of the letters and one in longer ones. An edit inserts, deletes
/// or replaces a letter, or swaps two neighbours.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let edits_max = match word.chars().count() {
        1..=2 => 1,
        3..=5 => 2,
        length @ 6..=CHARS_MAX => length / 3 + 1,
        _ => return None,
    };
    let word = word.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (strsim::osa_distance(&word, &candidate.to_lowercase()), candidate))
        .filter(|(edits, candidate)| {
            !candidate.is_empty() && *edits <= edits_max && *edits < candidate.chars().count().max(2)
        })
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// The end of an error message: `; did you mean 'x'?`, or nothing.
#[must_use]
pub fn hint<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, candidates).map(|candidate| format!("; did you mean '{candidate}'?")).unwrap_or_default()
}

#[cfg(test)]
mod tests;

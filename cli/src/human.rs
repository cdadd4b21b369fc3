//! Numbers in a form for people.

use ebbtide::Snapshot;

/// A number of bytes for people.
#[expect(clippy::cast_precision_loss, reason = "for people")]
pub(crate) fn bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", count as f64 / 1e6),
        _ => format!("{:.2} GB", count as f64 / 1e9),
    }
}

/// A count with its noun, in the plural if necessary.
pub(crate) fn counted(number: u64, one: &str) -> String {
    let noun = if number == 1 { one.to_owned() } else { format!("{}s", one.replace(" or ", "s or ")) };
    format!("{} {noun}", grouped(number))
}

/// A number of buckets with the number of measurements in them.
pub(crate) fn contents(buckets: u64, measurements: u64) -> String {
    contents_of("measurement", buckets, measurements)
}

/// A number of buckets with the number of what is in them.
pub(crate) fn contents_of(one: &str, buckets: u64, count: u64) -> String {
    format!("{} with {}", counted(buckets, "bucket"), counted(count, one))
}

/// What the collections of a database hold.
pub(crate) fn kind_of_contents(snapshot: &Snapshot) -> &'static str {
    match (snapshot.collections().is_empty(), snapshot.document_collections().is_empty()) {
        (_, true) => "measurement",
        (true, false) => "document",
        (false, false) => "measurement or document",
    }
}

/// A number with separated thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

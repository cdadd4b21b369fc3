//! Figures: what an accumulator may need to know of the documents of a window.

/// A figure of the documents of one window and meta.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Figure {
    /// How many there are.
    Rows,
    /// How many have a value in a field.
    Count(String),
    /// The sum of a field.
    Sum(String),
    /// The least value of a field.
    Min(String),
    /// The greatest value of a field.
    Max(String),
    /// The value of the earliest document.
    First(String),
    /// The value of the latest document.
    Last(String),
}

/// A figure's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FigureValue {
    /// A whole number.
    Int(i64),
    /// A floating-point number.
    Double(f64),
}

//! Positions of copies.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A position of a copy: a piece that can be restored.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CopyPosition {
    /// Where the copy is.
    pub url: String,
    /// The epoch of the piece.
    pub epoch: u64,
    /// The number of the piece in it.
    pub piece: u64,
}

impl fmt::Display for CopyPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}, piece {} of {}", self.epoch, self.piece, self.url)
    }
}

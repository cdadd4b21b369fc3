//! Text with columns separated by runs of blanks and tabs: replaces each run by one blank.

use std::io::{self, Read};

/// The position of the reader in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// At the beginning of a line, possibly after blanks.
    Begin,
    Cell,
    /// In a cell that began with a quote.
    Quoted,
    /// After a cell and at least one blank.
    Run,
}

/// Replaces runs of blanks by one blank, and removes those at the beginning and the end of a line.
pub struct BlankSqueezer<R> {
    inner: R,
    at: At,
    /// A byte that did not fit into the buffer.
    held: Option<u8>,
}

impl<R: Read> BlankSqueezer<R> {
    /// Squeezes the text of `inner`.
    pub fn new(inner: R) -> Self {
        BlankSqueezer { inner, at: At::Begin, held: None }
    }

    /// Whether a blank and whether the byte itself are written for a byte.
    fn step(&mut self, byte: u8) -> (bool, bool) {
        let before = self.at;
        let is_blank = matches!(byte, b' ' | b'\t');
        self.at = match (before, byte) {
            (At::Quoted, b'"') => At::Cell,
            (At::Quoted, _) => At::Quoted,
            (_, b'\n' | b'\r') => At::Begin,
            (At::Begin, _) if is_blank => At::Begin,
            (_, _) if is_blank => At::Run,
            (At::Begin | At::Run, b'"') => At::Quoted,
            _ => At::Cell,
        };
        let kept = before == At::Quoted || !is_blank;
        (before == At::Run && kept && self.at != At::Begin, kept)
    }
}

impl<R: Read> Read for BlankSqueezer<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if let Some(byte) = self.held.take() {
            buffer[0] = byte;
            return Ok(1);
        }
        // A byte may be preceded by the blank of the run before it.
        let mut raw = vec![0; (buffer.len() / 2).max(1)];
        loop {
            let count = self.inner.read(&mut raw)?;
            let mut to = 0;
            for byte in &raw[..count] {
                let (blank, kept) = self.step(*byte);
                if blank {
                    buffer[to] = b' ';
                    to += 1;
                }
                match buffer.get_mut(to) {
                    Some(place) if kept => {
                        *place = *byte;
                        to += 1;
                    }
                    None if kept => self.held = Some(*byte),
                    _ => {}
                }
            }
            if to > 0 || count == 0 {
                return Ok(to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_blanks_become_one_each() {
        let text = "  year \t mon  temp  \r\n2024  1   -0.5\n\n \"a  b\"  2\n";
        let mut read = String::new();
        BlankSqueezer::new(text.as_bytes()).read_to_string(&mut read).unwrap();
        assert_eq!(read, "year mon temp\r\n2024 1 -0.5\n\n\"a  b\" 2\n");
    }
}

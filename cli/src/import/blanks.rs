//! Text whose columns are separated by runs of blanks and tabs, with one blank for each run.

use std::io::{self, Read};

/// Where the reader is in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Behind the line's beginning and perhaps blanks.
    Begin,
    Cell,
    /// In a cell that began with a quote.
    Quoted,
    /// Behind a cell and at least one blank.
    Run,
}

/// Makes a run of blanks one blank, and drops those at the beginning and the end of a line.
pub(super) struct Squeezed<R> {
    inner: R,
    at: At,
    /// A byte for which there was no room.
    held: Option<u8>,
}

impl<R: Read> Squeezed<R> {
    pub(super) fn new(inner: R) -> Self {
        Squeezed { inner, at: At::Begin, held: None }
    }

    /// What one byte becomes: nothing, itself, or itself behind the blank of the run that it ends.
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

impl<R: Read> Read for Squeezed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if let Some(byte) = self.held.take() {
            buffer[0] = byte;
            return Ok(1);
        }
        // A byte may come with the blank of the run before it.
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
        Squeezed::new(text.as_bytes()).read_to_string(&mut read).unwrap();
        assert_eq!(read, "year mon temp\r\n2024 1 -0.5\n\n\"a  b\" 2\n");
    }
}

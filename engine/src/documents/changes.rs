//! What a command did to a collection of documents, as it is stored in the log: the effect, not the command.

use super::stored::Stored;
use bytes::Bytes;
use ebbtide_documents::bson::RawDocument;

/// The first byte of the payload of such a record; payloads of measurements begin with other bytes.
pub(crate) const MARK: u8 = 0xd0;

/// The effect on one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) key: Bytes,
    /// The document that the key has from now on, or `None` if it has none.
    pub(crate) stored: Option<Stored>,
}

/// Writes the changes of one command as the payload of a log record.
pub(crate) fn encode(changes: &[Change]) -> Vec<u8> {
    let bytes = changes.iter().map(|c| c.key.len() + c.stored.as_ref().map_or(0, |s| s.document.len()) + 24).sum();
    let mut out = Vec::with_capacity(bytes);
    out.push(MARK);
    for change in changes {
        put_bytes(&mut out, &change.key);
        match &change.stored {
            None => out.push(0),
            Some(stored) => {
                out.push(1);
                out.extend_from_slice(&stored.written.to_le_bytes());
                put_bytes(&mut out, &stored.document);
            }
        }
    }
    out
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).expect("a key and a document are shorter than 4 GiB");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Reads the payload of a log record.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn decode(payload: &[u8]) -> Result<Vec<Change>, String> {
    let payload = Bytes::copy_from_slice(payload);
    let mut rest = Input { payload: &payload, at: 0 };
    if rest.take(1)?.as_ref() != [MARK] {
        return Err("the record is not one of documents".to_owned());
    }
    let mut changes = Vec::new();
    while rest.at < payload.len() {
        let key = rest.bytes()?;
        if key.is_empty() {
            return Err("a key is empty".to_owned());
        }
        let stored = match rest.take(1)?[0] {
            0 => None,
            1 => {
                let written = rest.take(8)?;
                let written = i64::from_le_bytes(written.as_ref().try_into().map_err(|_| "half a number")?);
                let document = rest.bytes()?;
                let raw = RawDocument::from_bytes(&document).map_err(|e| e.to_string())?;
                ebbtide_documents::check(raw).map_err(|e| e.to_string())?;
                Some(Stored { written, document })
            }
            other => return Err(format!("a change of kind {other}")),
        };
        changes.push(Change { key, stored });
    }
    Ok(changes)
}

struct Input<'a> {
    payload: &'a Bytes,
    at: usize,
}

impl Input<'_> {
    fn take(&mut self, len: usize) -> Result<Bytes, String> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.payload.len());
        let end = end.ok_or_else(|| format!("the record ends within a change, at byte {}", self.at))?;
        let taken = self.payload.slice(self.at..end);
        self.at = end;
        Ok(taken)
    }

    fn bytes(&mut self) -> Result<Bytes, String> {
        let len = self.take(4)?;
        let len = u32::from_le_bytes(len.as_ref().try_into().map_err(|_| "half a number")?);
        self.take(usize::try_from(len).map_err(|e| e.to_string())?)
    }
}

//! The common format of logs and manifests: a header that identifies the file, then frames with checksums.
//!
//! The checksum of a frame's head also covers the CRC of the file's header and the frame's offset. A power cut may leave a
//! frame of another file or offset where a frame should be; its checksum does not match there.

use crate::error::{Error, Result};
use ebbtide_ttl::Code;
use std::path::Path;

/// Bytes of a header: magic with the version, database identity, number, CRC-32. Every version keeps this layout, so that
/// a newer version can be told from damage.
pub(crate) const HEADER_BYTES: usize = 8 + 16 + 8 + 4;

/// One kind of framed file.
#[derive(Debug)]
pub(crate) struct FrameFormat {
    /// Its name in messages.
    pub(crate) what: &'static str,
    pub(crate) magic: &'static [u8; 6],
    /// The version that is written, which is also the newest one that can be read.
    pub(crate) version: u16,
    /// Bytes before a frame's payload. The payload's length comes first.
    pub(crate) head_bytes: usize,
    /// Where in the head the CRC-32 of the head, file and place is.
    pub(crate) head_crc_at: usize,
    /// Where in the head the CRC-32 of the payload is.
    pub(crate) payload_crc_at: usize,
}

/// Which file it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileHeader {
    pub(crate) identity: [u8; 16],
    /// The number in the file's name.
    pub(crate) number: u64,
}

/// The place of a frame: a file, by the CRC of its header, and an offset in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) file: u32,
    pub(crate) offset: u64,
}

/// A frame whose checksums match.
pub(crate) struct Frame<'a> {
    pub(crate) at: usize,
    pub(crate) head: &'a [u8],
    pub(crate) payload: &'a [u8],
}

impl Frame<'_> {
    /// Where the next frame begins.
    pub(crate) fn end(&self) -> usize {
        self.at + self.head.len() + self.payload.len()
    }
}

impl FrameFormat {
    /// The bytes of a header.
    pub(crate) fn header(&self, header: FileHeader) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(self.magic);
        bytes.extend_from_slice(&self.version.to_be_bytes());
        bytes.extend_from_slice(&header.identity);
        bytes.extend_from_slice(&header.number.to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    /// Reads the header of the file at `path`, which is number `number` by its name.
    pub(crate) fn read_header(&self, file: &[u8], path: &Path, number: u64) -> Result<FileHeader> {
        let what = self.what;
        let Some((header, _)) = file.split_first_chunk::<HEADER_BYTES>() else {
            return Err(Error::corrupt(path, 0, format!("{what} header cut short")));
        };
        if !header.starts_with(self.magic) {
            return Err(Error::corrupt(path, 0, format!("not a {what} of Ebbtide")));
        }
        let (stored, found) = (file_crc(header), crc32fast::hash(&header[..HEADER_BYTES - 4]));
        if stored != found {
            return Err(Error::corrupt(path, 0, format!("{what} header crc expected={stored:#x} found={found:#x}")));
        }
        let version = u16::from_be_bytes([header[6], header[7]]);
        if !(1..=self.version).contains(&version) {
            let what = format!(
                "{} has format version {version}, and this program reads versions up to {}: use a newer program",
                path.display(),
                self.version
            );
            return Err(Error::new(Code::IncompatibleFormat, what));
        }
        if long(header, 24) != number {
            return Err(Error::corrupt(path, 24, format!("{what} is a renamed copy of another one")));
        }
        let mut identity = [0; 16];
        identity.copy_from_slice(&header[8..24]);
        Ok(FileHeader { identity, number })
    }

    /// Appends a frame to `out`, for the place `start`. `fields` is the part of the head after the checksums.
    pub(crate) fn put(&self, out: &mut Vec<u8>, start: Place, fields: &[u8], payload: &[u8], payload_crc: u32) {
        assert_eq!(self.head_bytes, 12 + fields.len(), "a frame's head has the layout of its format");
        assert!(!payload.is_empty(), "an empty frame would look like a torn end");
        let length = u32::try_from(payload.len()).expect("callers refuse payloads of over 4 GiB");
        let place = Place { offset: start.offset + out.len() as u64, ..start };
        let at = out.len();
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(fields);
        let head = &mut out[at..];
        head[self.payload_crc_at..][..4].copy_from_slice(&payload_crc.to_le_bytes());
        let checked = self.head_crc(head, place);
        head[self.head_crc_at..][..4].copy_from_slice(&checked.to_le_bytes());
        out.extend_from_slice(payload);
    }

    /// The head at `at`, if its checksum matches there. Its payload may be damaged or incomplete.
    pub(crate) fn head_at<'a>(&self, file: &'a [u8], at: usize) -> Option<&'a [u8]> {
        self.head_in(file, at, Place { file: file_crc(file), offset: 0 })
    }

    /// The same in a part of a file, which begins at `start`.
    pub(crate) fn head_in<'a>(&self, part: &'a [u8], at: usize, start: Place) -> Option<&'a [u8]> {
        let head = part.get(at..at.checked_add(self.head_bytes)?)?;
        let place = Place { offset: start.offset + at as u64, ..start };
        (self.head_crc(head, place) == word(head, self.head_crc_at)).then_some(head)
    }

    /// The frame at `at`, if it is complete and its checksums match.
    pub(crate) fn frame_at<'a>(&self, file: &'a [u8], at: usize) -> Option<Frame<'a>> {
        self.frame_in(file, at, Place { file: file_crc(file), offset: 0 })
    }

    /// The same in a part of a file, which begins at `start`.
    pub(crate) fn frame_in<'a>(&self, part: &'a [u8], at: usize, start: Place) -> Option<Frame<'a>> {
        let head = self.head_in(part, at, start)?;
        let payload = part.get(at + self.head_bytes..)?.get(..word(head, 0) as usize)?;
        let holds = !payload.is_empty() && crc32fast::hash(payload) == word(head, self.payload_crc_at);
        holds.then_some(Frame { at, head, payload })
    }

    /// The frames after the header, up to the first whose checksums do not match.
    pub(crate) fn frames<'a>(&self, file: &'a [u8]) -> impl Iterator<Item = Frame<'a>> {
        let mut at = HEADER_BYTES;
        std::iter::from_fn(move || {
            let frame = self.frame_at(file, at)?;
            at = frame.end();
            Some(frame)
        })
    }

    fn head_crc(&self, head: &[u8], place: Place) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&head[..self.head_crc_at]);
        hasher.update(&head[self.head_crc_at + 4..]);
        hasher.update(&place.file.to_le_bytes());
        hasher.update(&place.offset.to_le_bytes());
        hasher.finalize()
    }
}

/// The CRC at the end of a file's header.
pub(crate) fn file_crc(file: &[u8]) -> u32 {
    if file.len() < HEADER_BYTES { 0 } else { word(file, HEADER_BYTES - 4) }
}

/// The number of four bytes at `at`, which must be there.
pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

/// The number of eight bytes at `at`, which must be there.
pub(crate) fn long(bytes: &[u8], at: usize) -> u64 {
    let mut long = [0; 8];
    long.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(long)
}

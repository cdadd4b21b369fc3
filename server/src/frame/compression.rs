//! Compression of messages.

use super::{FrameError, HEADER_BYTES, MESSAGE_BYTES_MAX};
use flate2::read::ZlibDecoder;
use std::io::{Read, Write};

/// The largest window of a zstd frame that is unpacked: 8 MiB.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// A way to compress messages, which client and server agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compressor {
    Noop,
    Snappy,
    Zlib,
    Zstd,
}

impl Compressor {
    /// The one that a client calls by this name.
    pub(crate) fn named(name: &str) -> Option<Compressor> {
        [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd].into_iter().find(|one| one.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Compressor::Noop => "noop",
            Compressor::Snappy => "snappy",
            Compressor::Zlib => "zlib",
            Compressor::Zstd => "zstd",
        }
    }

    pub(super) fn of_number(number: u8) -> Result<Compressor, FrameError> {
        let all = [Compressor::Noop, Compressor::Snappy, Compressor::Zlib, Compressor::Zstd];
        let known = all.get(usize::from(number)).copied();
        known.ok_or_else(|| FrameError::new(format!("a compressor {number}: snappy, zlib and zstd are known")))
    }

    pub(super) fn number(self) -> u8 {
        match self {
            Compressor::Noop => 0,
            Compressor::Snappy => 1,
            Compressor::Zlib => 2,
            Compressor::Zstd => 3,
        }
    }

    /// Appends the content, which must have exactly `size` bytes.
    pub(super) fn unpack(self, packed: &[u8], size: usize, plain: &mut Vec<u8>) -> Result<(), FrameError> {
        let wrong =
            |e: &dyn std::fmt::Display| FrameError::new(format!("a {} message cannot be unpacked: {e}", self.name()));
        let begin = plain.len();
        let limit = size as u64 + 1;
        match self {
            Compressor::Noop => plain.extend(packed.get(..size + 1).unwrap_or(packed)),
            Compressor::Snappy => {
                if snap::raw::decompress_len(packed).ok() != Some(size) {
                    return Err(wrong(&"it is not as long as it says"));
                }
                plain.extend(snap::raw::Decoder::new().decompress_vec(packed).map_err(|e| wrong(&e))?);
            }
            Compressor::Zlib => {
                ZlibDecoder::new(packed).take(limit).read_to_end(plain).map_err(|e| wrong(&e))?;
            }
            Compressor::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(packed).map_err(|e| wrong(&e))?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(|e| wrong(&e))?;
                decoder.take(limit).read_to_end(plain).map_err(|e| wrong(&e))?;
            }
        }
        if plain.len() - begin == size { Ok(()) } else { Err(wrong(&"it is not as long as it says")) }
    }

    /// The packed content; nothing if it does not fit into a message, or becomes no smaller.
    pub(super) fn pack(self, content: &[u8]) -> Option<Vec<u8>> {
        let packed = match self {
            Compressor::Noop => return None,
            Compressor::Snappy => snap::raw::Encoder::new().compress_vec(content).ok()?,
            Compressor::Zlib => {
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(content).ok()?;
                encoder.finish().ok()?
            }
            Compressor::Zstd => zstd::bulk::compress(content, 1).ok()?,
        };
        let fits = packed.len() < content.len() && packed.len() + HEADER_BYTES + 9 <= MESSAGE_BYTES_MAX;
        fits.then_some(packed)
    }
}

//! Segments of ordinary collections: rows in order of a unique binary key, in one immutable Parquet file.
//!
//! ```text
//! "PAR1" | row groups | directory | filters | page indexes | footer | footer length | "PAR1"
//! ```
//!
//! A document is found with two or three reads of one small page each: memory holds the first bytes that tell the pages of
//! keys apart, where every page is, its checksum, and a Bloom filter of the keys. Pages are read without the Parquet
//! reader, whose set-up takes longer than the work; they are what any Parquet reader expects all the same.
//!
//! Every byte is under a checksum. The directory holds the CRC-32 of every page, header included; the footer key
//! `ebbtide.tail` holds the CRC-32 of everything from the directory on (itself read as zeros).

mod delta;
mod directory;
mod page;
mod pages;
mod reader;
mod scan;
mod verify;
mod writer;

pub use reader::KeyedReader;
pub use scan::{KeyedBlock, KeyedColumns, KeyedScan};
pub use writer::KeyedWriter;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The greatest life of a document's own, in seconds.
const TTL_MAX: i64 = 2_147_483_647;
/// Bytes of a key or of a document, at most: four times what a document of a collection may have.
const VALUE_BYTES_MAX: usize = 64 << 20;
/// Bytes of a page before compression, at most: a page is closed once it has its size, by a value of any length.
const PAGE_BYTES_MAX: usize = VALUE_BYTES_MAX + (1 << 20);
/// Rows of a row group: a filter of 2^18 bytes has 10.5 bits for each of their keys.
const GROUP_ROWS: u32 = 200_000;
/// Bytes of keys and documents of a row group, after which it is closed: its pages are in memory until then.
const GROUP_BYTES: usize = 16 << 20;
/// Where the directory is, and its version: `offset,length,crc32,version`.
const KEY_KEYED: &str = "ebbtide.keyed";
/// The version of the directory.
const FORMAT_VERSION: u32 = 1;

/// The columns of the file, in this order.
const SCHEMA: &str = "message documents {
    required binary _id;
    required int64 _ts (TIMESTAMP(MILLIS,true));
    optional int64 ttl;
    required binary document;
}";

/// A column of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Key,
    Written,
    Ttl,
    Document,
}

impl Column {
    const ALL: [Column; 4] = [Column::Key, Column::Written, Column::Ttl, Column::Document];
}

/// One document to store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyedRow<'a> {
    /// Its key; the keys of a segment ascend strictly in the order of their bytes.
    pub key: &'a [u8],
    /// The instant of its last write, in milliseconds since 1970.
    pub written: i64,
    /// Its own life in seconds: -1 (for ever) or 1..=2147483647; `None` without one of its own.
    pub ttl: Option<i64>,
    /// The document, as BSON. It is not looked at; what the key tells of it may be left out.
    pub document: &'a [u8],
}

/// A document as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDocument {
    /// The instant of its last write, in milliseconds since 1970.
    pub written: i64,
    /// The document, as it was given to the writer.
    pub document: Bytes,
}

/// The summary of a segment of an ordinary collection, known without opening it. Times are in milliseconds since 1970;
/// a bound is `None` where there are no such rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyedMeta {
    /// How many documents it holds.
    pub rows: u64,
    /// The file's size.
    pub bytes: u64,
    /// The checksum of the file's tail. The tail holds the checksums of all pages, so no other file has the same.
    pub checksum: u32,
    /// What is known of the lives of its documents.
    pub lives: Lives,
    /// The least key.
    pub first_key: Vec<u8>,
    /// The greatest key.
    pub last_key: Vec<u8>,
}

/// When documents expire, as far as one comparison for all of them can say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lives {
    /// How many have no life of their own: the collection's default decides.
    pub inheriting: u64,
    /// How many have a life of their own of one second or more.
    pub own: u64,
    /// How many have the life -1: they never expire by their age.
    pub never: u64,
    /// The earliest write of those without a life of their own.
    pub written_min_inheriting: Option<i64>,
    /// The latest write of those without a life of their own.
    pub written_max_inheriting: Option<i64>,
    /// The earliest end of a life of its own: the instant of the write and the life, added without overflow.
    pub expires_min_own: Option<i64>,
    /// The latest end of a life of its own.
    pub expires_max_own: Option<i64>,
}

impl Lives {
    /// Counts a document.
    pub fn add(&mut self, written: i64, ttl: Option<i64>) {
        let widen = |min: &mut Option<i64>, max: &mut Option<i64>, at: i64| {
            *min = Some(min.map_or(at, |min| min.min(at)));
            *max = Some(max.map_or(at, |max| max.max(at)));
        };
        match ttl {
            None => {
                self.inheriting += 1;
                widen(&mut self.written_min_inheriting, &mut self.written_max_inheriting, written);
            }
            Some(seconds) if seconds < 0 => self.never += 1,
            Some(seconds) => {
                self.own += 1;
                let end = written.saturating_add(seconds.saturating_mul(1_000));
                widen(&mut self.expires_min_own, &mut self.expires_max_own, end);
            }
        }
    }

    /// How many documents were counted.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.inheriting + self.own + self.never
    }
}

#[cfg(test)]
mod tests;

//! Sessions as a web shop keeps them, each made of its number.

use crate::Result;
use ebbtide::bson::RawDocumentBuf;
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Session {
    #[serde(rename = "_id")]
    pub(super) id: String,
    user: i64,
    email: String,
    token: String,
    address: String,
    agent: String,
    language: String,
    roles: Vec<String>,
    cart: Vec<Item>,
    pub(super) visits: i64,
    /// Milliseconds since 1970.
    pub(super) seen: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ttl: Option<i32>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Item {
    article: i32,
    count: i32,
}

const AGENTS: [&str; 4] =
    ["Firefox/128.0 (Linux)", "Chrome/127.0 (Windows)", "Safari/17.5 (iPhone)", "Edge/126.0 (Windows)"];
const LANGUAGES: [&str; 5] = ["de", "en", "es", "fr", "pt-BR"];
const DOMAINS: [&str; 4] = ["example.com", "example.org", "mail.example.net", "post.example.de"];
const FIRST_SEEN: i64 = 1_760_000_000_000;

/// A number that looks random, of two.
pub(super) fn random(seed: u64, n: u64) -> u64 {
    let mut z = (seed << 40 ^ n).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// The `_id` of a session.
pub(super) fn id(n: u64) -> String {
    format!("{:016x}{:016x}", random(1, n), random(2, n))
}

/// Session `n` after `version` refreshes.
#[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "any numbers will do")]
pub(super) fn session(n: u64, version: u64) -> Session {
    let r = random(3, n);
    let pick = |list: &[&str], bits: u64| list[(r >> bits) as usize % list.len()].to_owned();
    let items = (r >> 20) % 4;
    let item = |at: u64| Item { article: (random(4, n * 4 + at) % 50_000) as i32, count: (r >> at) as i32 % 3 + 1 };
    Session {
        id: id(n),
        user: (r % 5_000_000) as i64,
        email: format!("user{}@{}", r % 5_000_000, pick(&DOMAINS, 8)),
        token: format!("{:016x}", random(5, n)),
        address: format!("{}.{}.{}.{}", r >> 56, r >> 48 & 255, r >> 40 & 255, r >> 32 & 255),
        agent: pick(&AGENTS, 12),
        language: pick(&LANGUAGES, 16),
        roles: if r >> 25 & 7 == 0 {
            vec!["customer".to_owned(), "editor".to_owned()]
        } else {
            vec!["customer".to_owned()]
        },
        cart: (0..items).map(item).collect(),
        visits: (r % 40 + version) as i64,
        seen: FIRST_SEEN + (n * 10 + version * 1_000) as i64,
        ttl: None,
    }
}

/// A session as BSON.
pub(super) fn bson(session: &Session) -> Result<Vec<u8>> {
    let document = ebbtide::bson::serialize_to_raw_document_buf(session)?;
    Ok(RawDocumentBuf::into_bytes(document))
}

//! Opening files, and errors about them.

use crate::error::QueryError;
use ebbtide_ttl::Code;
use std::io::{BufReader, Read};
use std::path::Path;

pub(super) type Result<T, E = QueryError> = std::result::Result<T, E>;

pub(super) fn wrong(message: impl Into<String>) -> QueryError {
    QueryError::new(Code::BadValue, message)
}

/// Opens a file, and decompresses it.
#[expect(clippy::disallowed_methods, reason = "a file that a query names is no part of the database")]
pub(super) fn reader(path: &Path) -> Result<Box<dyn Read + Send>> {
    let fail = |error: std::io::Error| wrong(format!("cannot read {}: {error}", path.display()));
    let mut file = std::fs::File::open(path).map_err(fail)?;
    let mut magic = Vec::new();
    file.by_ref().take(4).read_to_end(&mut magic).map_err(fail)?;
    let whole = std::io::Cursor::new(magic.clone()).chain(file);
    Ok(match magic.as_slice() {
        [0x1f, 0x8b, ..] => Box::new(BufReader::new(flate2::read::MultiGzDecoder::new(BufReader::new(whole)))),
        [0x28, 0xb5, 0x2f, 0xfd] => Box::new(BufReader::new(zstd::stream::read::Decoder::new(whole).map_err(fail)?)),
        _ => Box::new(BufReader::with_capacity(1 << 18, whole)),
    })
}

//! Numbers that tell databases, processes and folders apart.

use ebbtide_ttl::Clock;
use std::collections::hash_map::RandomState;
use std::fmt::Write as _;
use std::path::Path;

/// A number that tells databases apart. It need not be unpredictable.
pub(crate) fn new_identity(clock: &dyn Clock, dir: &Path) -> [u8; 16] {
    use std::hash::{BuildHasher, Hasher};
    let mut identity = [0; 16];
    for half in identity.chunks_mut(8) {
        // `RandomState` is seeded by the operating system; under a simulated disk the identity need not repeat.
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_i128(clock.now().nanos());
        hasher.write(dir.as_os_str().as_encoded_bytes());
        half.copy_from_slice(&hasher.finish().to_le_bytes());
    }
    identity
}

/// The same as hexadecimal digits.
pub(crate) fn hex(identity: [u8; 16]) -> String {
    let mut text = String::with_capacity(32);
    for byte in identity {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

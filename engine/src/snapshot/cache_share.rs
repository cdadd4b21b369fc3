//! How much of a read goes through the cache of columns.

/// What is left of the cache for a read. If the cache cannot hold all of it, half of the cache is for its first part: then that is
/// found the next time, and what other queries need is not all evicted.
pub(super) struct CacheShare {
    left: u64,
}

impl CacheShare {
    /// The share of a read of `bytes` bytes in a cache that has room for `room` bytes.
    pub(super) fn new(bytes: u64, room: u64) -> CacheShare {
        CacheShare { left: if bytes <= room { bytes } else { room / 2 } }
    }

    /// Half of a cache that has room for `room` bytes, for a read of unknown size.
    pub(super) fn of_half(room: u64) -> CacheShare {
        CacheShare { left: room / 2 }
    }

    /// Whether the next part of the read, which has `bytes` bytes, goes through the cache.
    pub(super) fn takes(&mut self, bytes: u64) -> bool {
        let takes = bytes <= self.left;
        self.left = if takes { self.left - bytes } else { 0 };
        takes
    }
}

#[cfg(test)]
mod tests;

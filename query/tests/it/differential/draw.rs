//! Random choices that a seed reproduces.

/// SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Draw(u64);

impl Draw {
    /// Choices for one position, independent of how many were made before.
    pub(crate) fn of(parts: &[u64]) -> Draw {
        let mut draw = Draw(0);
        for part in parts {
            draw.0 ^= *part;
            draw.0 = draw.next();
        }
        draw
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub(crate) fn between(&mut self, low: i64, high: i64) -> i64 {
        let width = (i128::from(high) - i128::from(low) + 1) as u128;
        (i128::from(low) + (u128::from(self.next()) % width) as i128) as i64
    }

    /// True with a probability of 1 / n.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

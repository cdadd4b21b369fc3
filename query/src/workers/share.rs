//! Which task reads what.
//!
//! Segments go to workers by rendezvous hashing of their names, so a worker gets the same ones in each query and keeps them on its
//! disk, and few move when a worker is added. No task gets much more than its part of the bytes.

use ebbtide::SegmentInfo;
use std::cmp::Reverse;

/// What of a collection one task reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Share {
    /// The number of the task.
    pub(super) task: usize,
    /// The worker of each task.
    pub(super) workers: Vec<String>,
    /// The segments that it reads.
    pub(super) segments: Vec<String>,
}

impl Share {
    /// Whether open buckets, and expired measurements that are not archived yet, belong to it.
    pub(super) fn is_first(&self) -> bool {
        self.task == 0
    }

    /// Whether a file of an archive belongs to it.
    pub(super) fn has_file(&self, name: &str) -> bool {
        ranked(name, &self.workers).first() == Some(&self.task)
    }
}

/// The shares of a collection's segments. Those that `is_read` leaves out have a task too, so that all queries agree.
pub(super) fn shares(
    segments: &[SegmentInfo],
    workers: &[String],
    is_read: impl Fn(&SegmentInfo) -> bool,
) -> Vec<Share> {
    let mut segments: Vec<&SegmentInfo> = segments.iter().collect();
    segments.sort_by_key(|segment| (Reverse(segment.bytes), &segment.file));
    let all: u64 = segments.iter().map(|segment| segment.bytes).sum();
    let even = all.div_ceil(workers.len().max(1) as u64);
    let most = even + even / 4;
    let mut bytes = vec![0_u64; workers.len()];
    let share = |task| Share { task, workers: workers.to_vec(), segments: Vec::new() };
    let mut shares: Vec<Share> = (0..workers.len()).map(share).collect();
    for segment in segments {
        let ranked = ranked(&segment.file, workers);
        let has_room = |task: &&usize| bytes[**task] + segment.bytes <= most;
        let least = || (0..workers.len()).min_by_key(|task| bytes[*task]);
        let Some(task) = ranked.iter().find(has_room).copied().or_else(least) else { continue };
        bytes[task] += segment.bytes;
        if is_read(segment) {
            shares[task].segments.push(segment.file.clone());
        }
    }
    shares
}

/// The tasks in the order in which a name prefers them.
fn ranked(name: &str, workers: &[String]) -> Vec<usize> {
    let mut tasks: Vec<usize> = (0..workers.len()).collect();
    // A worker that occurs twice is two.
    let occurrence = |task: usize| workers[..task].iter().filter(|worker| **worker == workers[task]).count();
    tasks.sort_by_cached_key(|task| {
        (Reverse(hash(&format!("{}\n{}\n{name}", workers[*task], occurrence(*task)))), *task)
    });
    tasks
}

/// FNV-1a with the final mix of SplitMix64: the same on all machines and in all versions.
fn hash(text: &str) -> u64 {
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let mut mixed = text.bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests;

//! Work on several threads.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A caller works alone on fewer rows: starting threads takes as long as the work.
const PARALLEL_ROWS_MIN: u64 = 16_384;

/// Threads that work may use. Cached, since finding out reads system files, which takes longer than many queries.
#[must_use]
pub fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Threads that are worth starting for this many rows, the caller's included.
#[must_use]
pub(crate) fn threads(rows: u64) -> usize {
    if rows < PARALLEL_ROWS_MIN { 1 } else { cores() }
}

/// Does `work` for every number below `count`, on all cores from when `help` says so, if there are rows enough to be worth
/// the threads. The result does not depend on how many there are.
///
/// # Errors
/// That of the lowest number whose work fails. After an error no other number is taken.
pub fn parallel<T: Send, E: Send>(
    rows: u64,
    count: usize,
    help: &dyn Fn() -> bool,
    work: impl Fn(usize) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    on_threads(threads(rows), count, help, work)
}

/// As [`parallel`], on this many threads, the caller's included: for work that waits for a disk or a network.
///
/// # Errors
/// As for [`parallel`].
pub fn on_threads<T: Send, E: Send>(
    threads: usize,
    count: usize,
    help: &dyn Fn() -> bool,
    work: impl Fn(usize) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let helpers = threads.min(count).saturating_sub(1);
    let next = AtomicUsize::new(0);
    let one = || {
        let at = next.fetch_add(1, Ordering::Relaxed);
        (at < count).then(|| (at, work(at).inspect_err(|_| next.store(count, Ordering::Relaxed))))
    };
    let all_left = || std::iter::from_fn(one).collect::<Vec<_>>();
    let mut all = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        let mut all = Vec::new();
        loop {
            if threads.is_empty() && help() {
                // Fewer, if the system has no more.
                let spawn = |_| std::thread::Builder::new().spawn_scoped(scope, all_left).ok();
                threads.extend((0..helpers).map_while(spawn));
            }
            let Some(done) = one() else { break };
            all.push(done);
        }
        for thread in threads {
            all.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        all
    });
    // Numbers are taken in order and what was taken is finished, so the first error here is the same on any number of threads.
    all.sort_unstable_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, done)| done).collect()
}

#[cfg(test)]
mod tests;

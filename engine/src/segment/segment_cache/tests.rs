use super::{OpenFile, SegmentCache};
use crate::sync::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

#[derive(Debug, Default)]
struct File(AtomicBool);

impl OpenFile for File {
    fn close(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn opened(cache: &SegmentCache, bytes: usize, of_archive: bool) -> Arc<File> {
    let file = Arc::new(File::default());
    let weak: Weak<dyn OpenFile> = Arc::downgrade(&file) as _;
    cache.opened(weak, bytes, of_archive);
    file
}

/// Which files are closed.
fn closed(files: &[Arc<File>]) -> Vec<bool> {
    files.iter().map(|file| file.0.load(Ordering::Relaxed)).collect()
}

#[test]
fn the_oldest_files_are_closed_beyond_the_budget() {
    // 1,000 bytes of directories.
    let cache = SegmentCache::new(2_000);
    let files: Vec<Arc<File>> = (0..4).map(|_| opened(&cache, 300, false)).collect();
    assert_eq!((closed(&files), cache.open_files()), (vec![true, false, false, false], 3));
}

#[test]
fn files_of_archives_take_at_most_half_of_the_budget_from_others() {
    let cache = SegmentCache::new(2_000);
    let local: Vec<Arc<File>> = (0..3).map(|_| opened(&cache, 300, false)).collect();
    let archived: Vec<Arc<File>> = (0..10).map(|_| opened(&cache, 200, true)).collect();
    assert_eq!(closed(&archived), [[true; 8].as_slice(), &[false; 2]].concat());
    assert_eq!((closed(&local), cache.open_files()), (vec![true, false, false], 2));
    // One that is larger than the budget does not close what is open here, beyond that half.
    let _large = opened(&cache, 5_000, true);
    let more = opened(&cache, 200, false);
    assert_eq!((closed(&local), closed(&[more])), (vec![true, true, false], vec![false]));
}

#[test]
fn files_of_archives_that_are_gone_take_nothing() {
    let cache = SegmentCache::new(2_000);
    drop((opened(&cache, 250, true), opened(&cache, 250, true)));
    let local: Vec<Arc<File>> = (0..3).map(|_| opened(&cache, 330, false)).collect();
    assert_eq!(closed(&local), [false; 3]);
}

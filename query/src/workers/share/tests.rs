use super::*;

fn segment(number: usize, bytes: u64) -> SegmentInfo {
    SegmentInfo {
        file: format!("cpu.1/seg-{number:016x}.parquet"),
        rows: 1,
        rows_written: 1,
        buckets: 1,
        bytes,
        first_time: None,
        last_time: None,
    }
}

fn workers(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The worker of each segment.
fn assigned(segments: &[SegmentInfo], workers: &[String]) -> Vec<(String, String)> {
    let shares = shares(segments, workers, |_| true);
    let of_share = |share: Share| share.segments.into_iter().map(move |s| (s, share.workers[share.task].clone()));
    let mut all: Vec<(String, String)> = shares.into_iter().flat_map(of_share).collect();
    all.sort();
    all
}

#[test]
fn each_segment_is_in_one_share_and_no_share_is_much_too_large() {
    for count in [0, 1, 2, 7, 100] {
        let segments: Vec<SegmentInfo> = (0..count).map(|n| segment(n, 1_000 + 37 * n as u64 % 900)).collect();
        for names in [&["a:1"] as &[&str], &["a:1", "a:1"], &["a:1", "b:1", "c:1"]] {
            let workers = workers(names);
            let shares = shares(&segments, &workers, |_| true);
            assert_eq!(shares.iter().filter(|share| share.is_first()).count(), 1);
            let mut found: Vec<&String> = shares.iter().flat_map(|share| &share.segments).collect();
            found.sort();
            assert_eq!(found, segments.iter().map(|segment| &segment.file).collect::<Vec<_>>());
            let even = count.div_ceil(workers.len());
            assert!(shares.iter().all(|share| share.segments.len() <= 2 * even), "{count} {names:?}");
            for segment in &segments {
                assert_eq!(shares.iter().filter(|share| share.has_file(&segment.file)).count(), 1);
            }
        }
    }
}

#[test]
fn segments_stay_with_their_workers_when_one_is_added_or_others_are_not_read() {
    let segments: Vec<SegmentInfo> = (0..200).map(|n| segment(n, 1_000)).collect();
    let three = assigned(&segments, &workers(&["a:1", "b:1", "c:1"]));
    let four = assigned(&segments, &workers(&["a:1", "b:1", "c:1", "d:1"]));
    let moved = three.iter().zip(&four).filter(|(before, after)| before.1 != after.1 && after.1 != "d:1").count();
    assert!(moved < 20, "{moved} of 200 went to a worker that was there before");
    let some = shares(&segments, &workers(&["a:1", "b:1", "c:1"]), |segment| segment.file.ends_with("7.parquet"));
    for share in some {
        for file in &share.segments {
            assert!(three.contains(&(file.clone(), share.workers[share.task].clone())));
        }
    }
}

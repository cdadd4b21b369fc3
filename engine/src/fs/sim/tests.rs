use super::*;

fn disk() -> SimFs {
    let fs = SimFs::new("/data/db");
    fs.create_dir(Path::new("/data/db")).unwrap();
    fs
}

fn at(name: &str) -> PathBuf {
    Path::new("/data/db").join(name)
}

/// Makes a file with durable content and a durable name.
fn durable(fs: &SimFs, name: &str, content: &[u8]) -> Box<dyn WriteFile> {
    let mut file = fs.create(&at(name)).unwrap();
    file.append(content).unwrap();
    file.sync().unwrap();
    fs.sync_dir(&at("")).unwrap();
    file
}

/// A file "a" of which 700 bytes are durable and 2000 are not, and a file "b" of which nothing is, not even the name.
fn half_synced() -> SimFs {
    let fs = disk();
    let mut a = durable(&fs, "a", &[1; 700]);
    for _ in 0..10 {
        a.append(&[2; 200]).unwrap();
    }
    fs.create(&at("b")).unwrap().append(&[3; 3000]).unwrap();
    fs
}

fn content(fs: &SimFs, name: &str) -> Option<Vec<u8>> {
    fs.exists(&at(name)).unwrap().then(|| fs.read(&at(name)).unwrap())
}

fn full_a() -> Vec<u8> {
    [vec![1; 700], vec![2; 2000]].concat()
}

#[test]
fn a_power_cut_keeps_any_sectors_that_were_written_over_zeros() {
    let fs = disk();
    let mut a = durable(&fs, "a", &[1; 700]);
    a.fill_ahead(2000).unwrap();
    assert_eq!((a.len(), fs.len(&at("a")).unwrap()), (700, 2700));
    a.sync().unwrap();
    a.append(&[2; 900]).unwrap();
    assert_eq!((a.len(), fs.len(&at("a")).unwrap()), (1600, 2700));
    let zeros = [vec![1; 700], vec![0; 2000]].concat();
    let written = [vec![1; 700], vec![2; 900], vec![0; 1100]].concat();
    assert_eq!(content(&fs.crash(Variant::V0, 1), "a").unwrap(), zeros);
    assert_eq!(content(&fs.crash(Variant::V1, 1), "a").unwrap(), written);
    let left: std::collections::BTreeSet<Vec<u8>> =
        (0..300).map(|seed| content(&fs.crash(Variant::V3, seed), "a").unwrap()).collect();
    // The second and the third sector, and what of the first one was not durable, each old or new.
    assert_eq!(left.len(), 8);
    assert!(
        left.iter()
            .all(|found| found.len() == 2700
                && found.iter().zip(&zeros).zip(&written).all(|((f, z), w)| f == z || f == w))
    );
    a.truncate(1600).unwrap();
    assert_eq!(content(&fs, "a").unwrap(), written[..1600]);
}

#[test]
fn v0_loses_all_that_was_not_synced() {
    let fs = half_synced().crash(Variant::V0, 1);
    assert_eq!(content(&fs, "a").unwrap(), [1; 700]);
    assert_eq!(content(&fs, "b"), None);
}

#[test]
fn v1_keeps_all() {
    let fs = half_synced().crash(Variant::V1, 1);
    assert_eq!(content(&fs, "a").unwrap(), full_a());
    assert_eq!(content(&fs, "b").unwrap(), [3; 3000]);
}

#[test]
fn v2_keeps_a_prefix_and_tears_its_last_write() {
    let before = half_synced();
    let (mut torn, mut whole, mut named) = (0, 0, 0);
    for seed in 0..200 {
        let fs = before.crash(Variant::V2, seed);
        let a = content(&fs, "a").unwrap();
        assert!(full_a().starts_with(&a) && a.len() >= 700);
        torn += usize::from(!(a.len() - 700).is_multiple_of(200));
        whole += usize::from(a.len() == 2700);
        if let Some(b) = content(&fs, "b") {
            named += 1;
            assert_eq!(a.len(), 2700, "b was created after the last append to a");
            assert_eq!(b, vec![3; b.len()]);
        }
    }
    assert!(torn > 50 && whole > 10 && named > 10, "torn={torn} whole={whole} named={named}");
}

#[test]
fn v3_keeps_any_sectors_of_pending_bytes_but_all_durable_ones() {
    let before = half_synced();
    let (mut holes, mut named, mut short) = (0, 0, 0);
    for seed in 0..200 {
        let fs = before.crash(Variant::V3, seed);
        let a = content(&fs, "a").unwrap();
        assert!(a.len() >= 700 && a.len() <= 2700);
        assert_eq!(a[..700], [1; 700]);
        for sector in a[700..].split(|byte| *byte == 0) {
            assert!(sector.iter().all(|byte| *byte == 2));
        }
        // A later sector is there and an earlier one is not.
        holes += usize::from(a[700..].windows(2).any(|pair| pair == [0, 2]));
        short += usize::from(a.len() < 2700);
        named += usize::from(content(&fs, "b").is_some());
    }
    assert!(holes > 50 && short > 30 && named > 50 && named < 150, "holes={holes} short={short} named={named}");
}

#[test]
fn v4_keeps_content_and_loses_names() {
    let fs = half_synced();
    fs.remove(&at("a")).unwrap();
    let fs = fs.crash(Variant::V4, 1);
    assert_eq!(content(&fs, "a").unwrap(), full_a(), "the removal is not durable");
    assert_eq!(content(&fs, "b"), None);
}

#[test]
fn v5_keeps_names_and_loses_content() {
    let before = half_synced();
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let fs = before.crash(Variant::V5, seed);
        let a = content(&fs, "a").unwrap();
        assert!(a == [1; 700] || a == [vec![1; 700], vec![0; 2000]].concat());
        let b = content(&fs, "b").unwrap();
        assert!(b.is_empty() || b == [0; 3000]);
        seen.insert((a.len(), b.len()));
    }
    assert_eq!(seen.len(), 4);
}

#[test]
fn v6_keeps_lengths_and_zeroes_new_content() {
    let fs = half_synced().crash(Variant::V6, 1);
    assert_eq!(content(&fs, "a").unwrap(), [vec![1; 700], vec![0; 2000]].concat());
    assert_eq!(content(&fs, "b").unwrap(), [0; 3000]);
}

#[test]
fn v7_puts_garbage_and_old_content_in_new_places() {
    let before = half_synced();
    let (mut old, mut garbage, mut good) = (0, 0, 0);
    for seed in 0..100 {
        let fs = before.crash(Variant::V7, seed);
        let a = content(&fs, "a").unwrap();
        assert_eq!(a.len(), 2700);
        assert_eq!(a[..700], [1; 700]);
        let b = content(&fs, "b").unwrap();
        assert_eq!(b.len(), 3000);
        old += usize::from(b[..512] == [1; 512]);
        good += usize::from(b[..512] == [3; 512]);
        garbage += usize::from(b[..512].iter().any(|byte| *byte > 3));
    }
    assert!(old > 3 && garbage > 10 && good > 10, "old={old} garbage={garbage} good={good}");
}

#[test]
fn v8_flips_one_durable_bit_and_says_which() {
    let before = half_synced();
    durable(&before, "c", &[7; 1000]);
    for seed in 0..50 {
        let fs = before.crash(Variant::V8, seed);
        let damage = fs.damage().unwrap().clone();
        assert_eq!(damage.path, "/data/db/c", "the only file without pending changes");
        let mut c = content(&fs, "c").unwrap();
        assert_eq!(c[damage.offset as usize], 7 ^ (1 << damage.bit));
        c[damage.offset as usize] = 7;
        assert_eq!(c, [7; 1000]);
    }
}

#[test]
fn a_crash_is_a_function_of_its_seed_and_can_be_crashed_again() {
    for variant in Variant::ALL {
        for seed in 0..20 {
            let (one, two) = (half_synced().crash(variant, seed), half_synced().crash(variant, seed));
            assert_eq!(one.damage(), two.damage());
            for again in [one.crash(Variant::V0, 0), one.crash(Variant::V1, 0)] {
                for name in ["a", "b"] {
                    assert_eq!(content(&one, name), content(&two, name));
                    assert_eq!(content(&one, name), content(&again, name), "nothing is pending after a crash");
                }
            }
        }
    }
}

#[test]
fn synced_content_and_names_survive_every_variant_within_the_contract() {
    let before = half_synced();
    durable(&before, "c", &[7; 1000]);
    let mut tmp = before.create(&at("d.tmp")).unwrap();
    tmp.append(b"published").unwrap();
    tmp.sync().unwrap();
    before.publish(&at("d.tmp"), &at("d")).unwrap();
    for variant in Variant::WITHIN_CONTRACT {
        for seed in 0..50 {
            let fs = before.crash(variant, seed);
            assert_eq!(content(&fs, "c").unwrap(), [7; 1000]);
            assert_eq!(content(&fs, "d").unwrap(), b"published");
            assert_eq!(content(&fs, "d.tmp"), None);
            assert_eq!(content(&fs, "a").unwrap()[..700], [1; 700]);
        }
    }
}

#[test]
fn a_rename_is_whole_or_not_at_all() {
    let fs = disk();
    durable(&fs, "m", b"old");
    let mut tmp = fs.create(&at("m.tmp")).unwrap();
    tmp.append(b"new").unwrap();
    tmp.sync().unwrap();
    let ops = fs.mutating_ops();
    fs.stop_after(ops + 1);
    assert!(fs.publish(&at("m.tmp"), &at("m")).is_err());
    assert!(fs.is_stopped());
    let mut seen = std::collections::BTreeSet::new();
    for variant in Variant::WITHIN_CONTRACT {
        for seed in 0..20 {
            let after = fs.crash(variant, seed);
            let m = content(&after, "m").unwrap();
            assert!(m == b"old" || m == b"new");
            seen.insert((m, content(&after, "m.tmp").is_some()));
        }
    }
    // Old with and without the temporary name, and new; new beside the old temporary name cannot be.
    assert_eq!(seen.len(), 3, "{seen:?}");
}

#[test]
fn a_cut_that_was_not_synced_may_be_undone() {
    let fs = disk();
    let mut file = durable(&fs, "a", &[1; 2000]);
    file.truncate(100).unwrap();
    file.append(&[2; 50]).unwrap();
    assert_eq!(content(&fs, "a").unwrap(), [vec![1; 100], vec![2; 50]].concat());
    assert_eq!(content(&fs.crash(Variant::V0, 0), "a").unwrap(), [1; 2000]);
    assert_eq!(content(&fs.crash(Variant::V1, 0), "a").unwrap().len(), 150);
    let mut lens = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let a = content(&fs.crash(Variant::V3, seed), "a").unwrap();
        assert_eq!(a[..100], [1; 100]);
        lens.insert(a.len());
    }
    assert_eq!(lens.into_iter().collect::<Vec<_>>(), [100, 150, 2000]);
    file.sync().unwrap();
    assert_eq!(content(&fs.crash(Variant::V0, 0), "a").unwrap().len(), 150);
}

#[test]
fn a_new_folder_is_durable_and_a_removed_one_after_its_parent_is_synced() {
    let fs = disk();
    fs.create_dir(&at("x/y")).unwrap();
    durable(&fs, "x/y/f", b"f");
    fs.sync_dir(&at("x/y")).unwrap();
    assert!(fs.crash(Variant::V0, 0).exists(&at("x/y/f")).unwrap());
    fs.remove_dir(&at("x")).unwrap();
    assert!(!fs.exists(&at("x")).unwrap());
    assert!(fs.crash(Variant::V0, 0).exists(&at("x/y/f")).unwrap());
    fs.sync_dir(&at("")).unwrap();
    assert!(!fs.crash(Variant::V0, 0).exists(&at("x")).unwrap());
}

#[test]
fn a_killed_process_does_nothing_more() {
    let fs = disk();
    fs.stop_after(fs.mutating_ops() + 2);
    let mut file = fs.create(&at("a")).unwrap();
    file.append(b"abc").unwrap();
    assert!(file.sync().is_err());
    assert!(fs.read(&at("a")).is_err());
    assert_eq!(content(&fs.crash(Variant::V1, 0), "a").unwrap(), b"abc");
    assert_eq!(content(&fs.crash(Variant::V0, 0), "a"), None);
}

#[test]
fn recorded_steps_can_be_gone_back_to() {
    let fs = disk();
    fs.record();
    let mut file = fs.create(&at("a")).unwrap();
    file.append(b"abc").unwrap();
    file.sync().unwrap();
    assert_eq!(fs.steps().len(), 3);
    assert!(!fs.before_step(0).exists(&at("a")).unwrap());
    assert_eq!(fs.before_step(1).read(&at("a")).unwrap(), b"");
    assert_eq!(content(&fs.before_step(2).crash(Variant::V5, 2).crash(Variant::V0, 0), "a").unwrap().len() % 3, 0);
    assert_eq!(fs.before_step(3).read(&at("a")).unwrap(), b"abc");
}

#[test]
fn faults_strike_where_they_are_planned() {
    let once = |kind| Fault { kind, repeat: Repeat::Once };
    let fs = disk();
    let next = fs.mutating_ops();
    fs.fail_op(next, once(FaultKind::Emfile));
    fs.fail_op(next + 2, once(FaultKind::Enospc));
    fs.fail_op(next + 4, once(FaultKind::ShortWrite));
    fs.fail_op(next + 5, once(FaultKind::SyncEioKept));
    fs.fail_op(next + 7, once(FaultKind::ShortWrite));
    assert!(fs.create(&at("a")).is_err());
    assert_eq!(content(&fs, "a"), None);
    let mut file = fs.create(&at("a")).unwrap();
    assert_eq!(file.append(b"0123").unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!((file.len(), content(&fs, "a").unwrap()), (0, b"01".to_vec()));
    file.append(b"abcd").unwrap();
    assert!(file.append(b"efgh").is_err());
    assert!(file.sync().is_err());
    assert_eq!(content(&fs, "a").unwrap(), b"abcdef");
    file.truncate(4).unwrap();
    file.sync().unwrap();
    assert_eq!(fs.faults_fired(), 4, "a short write cannot strike a sync");
    fs.fail_read(fs.reading_ops(), once(FaultKind::Eio));
    assert!(fs.read(&at("a")).is_err());
    assert_eq!(fs.read(&at("a")).unwrap(), b"abcd");
    fs.fail_op(0, Fault { kind: FaultKind::Eio, repeat: Repeat::Forever });
    assert!(file.append(b"x").is_err() && file.append(b"x").is_err() && fs.remove(&at("a")).is_err());
    fs.heal();
    file.append(b"x").unwrap();
}

#[test]
fn a_dropped_sync_loses_bytes_that_can_still_be_read() {
    let fs = disk();
    let mut file = durable(&fs, "a", b"old ");
    file.append(b"lost ").unwrap();
    fs.fail_op(fs.mutating_ops(), Fault { kind: FaultKind::SyncEioDropped, repeat: Repeat::Once });
    assert!(file.sync().is_err());
    file.append(b"new").unwrap();
    file.sync().unwrap();
    assert_eq!(content(&fs, "a").unwrap(), b"old lost new");
    assert_eq!(content(&fs.crash(Variant::V1, 0), "a").unwrap(), b"old \0\0\0\0\0new");
}

#[test]
fn random_faults_are_a_function_of_their_seed() {
    let run = |seed| {
        let fs = disk();
        fs.record();
        fs.fail_randomly(seed, 4);
        for index in 0..100 {
            if let Ok(mut file) = fs.create(&at(&format!("f{index}"))) {
                let _may_fail = file.append(&[1; 100]).and_then(|()| file.sync());
            }
        }
        (fs.faults_fired(), fs.steps())
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
    assert!(run(7).0 > 20);
}

#[test]
fn a_full_disk_takes_what_fits_and_space_comes_back_when_the_last_reader_leaves() {
    let fs = disk();
    fs.set_capacity(Some(1000));
    let mut a = durable(&fs, "a", &[1; 800]);
    assert_eq!(a.append(&[2; 300]).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!((a.len(), fs.len(&at("a")).unwrap(), fs.used()), (800, 1000, 1000));
    a.truncate(800).unwrap();
    a.append(&[2; 200]).unwrap();
    drop(a);
    let reader = fs.open_read(&at("a")).unwrap();
    fs.remove(&at("a")).unwrap();
    assert!(fs.create(&at("b")).unwrap().append(&[3; 1]).is_err());
    assert_eq!(&reader.read_at(999, 1).unwrap()[..], [2]);
    drop(reader);
    fs.open_append(&at("b"), 0).unwrap().append(&[3; 1000]).unwrap();
}

#[test]
fn locks_are_exclusive_and_end_with_the_process() {
    let fs = disk();
    let lock = fs.lock(&at("LOCK"), "one").unwrap();
    assert!(matches!(fs.lock(&at("LOCK"), "two"), Err(LockError::Held { holder }) if holder == "one"));
    assert!(fs.crash(Variant::V1, 0).lock(&at("LOCK"), "two").is_ok());
    assert_eq!(fs.open_handles(), ["/data/db/LOCK"]);
    drop(lock);
    assert!(fs.open_handles().is_empty());
    assert!(fs.lock(&at("LOCK"), "two").is_ok());
}

#[test]
fn open_files_are_reported() {
    let fs = disk();
    let file = durable(&fs, "a", b"x");
    let reader = fs.open_read(&at("a")).unwrap();
    assert_eq!(fs.open_handles(), ["/data/db/a", "/data/db/a"]);
    drop((file, reader));
    assert!(fs.open_handles().is_empty());
}

fn panics(work: impl FnOnce()) -> String {
    let payload = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_err();
    payload.downcast_ref::<String>().cloned().unwrap()
}

#[test]
fn misuse_is_caught() {
    let fs = disk();
    let mut file = fs.create(&at("a.tmp")).unwrap();
    file.append(b"x").unwrap();
    assert!(panics(|| drop(fs.publish(&at("a.tmp"), &at("a")))).starts_with("published without a sync"));
    assert!(panics(|| drop(fs.open_append(&at("a.tmp"), 0))).starts_with("two writers"));
    file.sync().unwrap();
    fs.remove(&at("a.tmp")).unwrap();
    assert!(panics(|| drop(file.append(b"y"))).starts_with("append to a removed file"));
    assert!(panics(|| drop(fs.read(Path::new("/data/other")))).starts_with("path outside"));
    assert!(panics(|| drop(fs.read(&at("../other")))).starts_with("path with a step up"));
}

#[test]
fn removed_files_are_forgotten_once_that_is_durable() {
    let fs = disk();
    for index in 0..100 {
        let name = format!("f{index}");
        durable(&fs, &name, &[0; 1000]);
        fs.remove(&at(&name)).unwrap();
        fs.sync_dir(&at("")).unwrap();
    }
    assert_eq!(fs.inner.lock().disk.files.len(), 0);
    assert_eq!(fs.used(), 0);
    assert!(fs.files().is_empty());
}

#[test]
fn a_lying_disk_does_not_do_what_it_says() {
    let fs = disk();
    fs.lie(Lie::FileSync("wal"));
    durable(&fs, "wal-1", b"lost");
    durable(&fs, "seg-1", b"kept");
    let after = fs.crash(Variant::V0, 0);
    assert_eq!((content(&after, "wal-1").unwrap(), content(&after, "seg-1").unwrap()), (vec![], b"kept".to_vec()));
    fs.lie(Lie::DirSync);
    durable(&fs, "seg-2", b"nameless");
    assert_eq!(content(&fs.crash(Variant::V0, 0), "seg-2"), None);
}

use std::io::ErrorKind;

use super::*;

fn disk() -> (tempfile::TempDir, RealFs) {
    (tempfile::tempdir().unwrap(), RealFs)
}

#[test]
fn what_is_appended_is_read_back() {
    let (dir, fs) = disk();
    let path = dir.path().join("a");
    let mut file = fs.create(&path).unwrap();
    file.append(b"hello ").unwrap();
    file.append(b"world").unwrap();
    file.sync().unwrap();
    assert_eq!(file.len(), 11);
    assert_eq!(fs.len(&path).unwrap(), 11);
    let reader = fs.open_read(&path).unwrap();
    assert_eq!(&reader.read_at(6, 5).unwrap()[..], b"world");
    assert_eq!(reader.read_at(6, 6).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(reader.read_at(u64::MAX, usize::MAX).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(fs.create(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
}

#[test]
fn appending_goes_on_at_the_place_asked_for() {
    let (dir, fs) = disk();
    let path = dir.path().join("a");
    fs.create(&path).unwrap().append(b"0123456789").unwrap();
    let mut file = fs.open_append(&path, 4).unwrap();
    file.append(b"ab").unwrap();
    assert_eq!(fs.read(&path).unwrap(), b"0123ab");
    file.truncate(1).unwrap();
    file.append(b"z").unwrap();
    assert_eq!(fs.read(&path).unwrap(), b"0z");
    assert_eq!(file.truncate(3).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(fs.open_append(&path, 3).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(fs.open_append(&dir.path().join("b"), 0).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn zeros_ahead_are_overwritten_and_cut_off() {
    let (dir, fs) = disk();
    let path = dir.path().join("a");
    let mut file = fs.create(&path).unwrap();
    file.append(b"ab").unwrap();
    file.fill_ahead(4).unwrap();
    assert_eq!((file.len(), fs.read(&path).unwrap()), (2, b"ab\0\0\0\0".to_vec()));
    file.append(b"cd").unwrap();
    assert_eq!((file.len(), fs.read(&path).unwrap()), (4, b"abcd\0\0".to_vec()));
    file.truncate(4).unwrap();
    assert_eq!((file.len(), fs.read(&path).unwrap()), (4, b"abcd".to_vec()));
}

#[test]
fn publishing_replaces_the_old_file() {
    let (dir, fs) = disk();
    let (tmp, path) = (dir.path().join("a.tmp"), dir.path().join("a"));
    for text in [b"one", b"two"] {
        let mut file = fs.create(&tmp).unwrap();
        file.append(text).unwrap();
        file.sync().unwrap();
        drop(file);
        fs.publish(&tmp, &path).unwrap();
        assert_eq!(fs.read(&path).unwrap(), text);
    }
    assert_eq!(fs.list(dir.path()).unwrap(), ["a"]);
    let elsewhere = dir.path().join("sub").join("a");
    assert_eq!(fs.publish(&path, &elsewhere).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn folders_are_made_with_their_parents_and_removed_with_their_content() {
    let (dir, fs) = disk();
    let deep = dir.path().join("x/y/z");
    fs.create_dir(&deep).unwrap();
    fs.create_dir(&deep).unwrap();
    fs.create(&deep.join("f")).unwrap();
    assert!(fs.exists(&deep).unwrap());
    assert_eq!(fs.create_dir(&deep.join("f")).unwrap_err().kind(), ErrorKind::NotADirectory);
    fs.remove_dir(&dir.path().join("x")).unwrap();
    assert!(!fs.exists(&deep).unwrap());
    assert!(fs.list(dir.path()).unwrap().is_empty());
}

#[test]
fn a_removed_file_can_still_be_read_by_who_has_it_open() {
    let (dir, fs) = disk();
    let path = dir.path().join("a");
    fs.create(&path).unwrap().append(b"still here").unwrap();
    let reader = fs.open_read(&path).unwrap();
    fs.remove(&path).unwrap();
    assert!(!fs.exists(&path).unwrap());
    if cfg!(unix) {
        assert_eq!(&reader.read_at(0, 5).unwrap()[..], b"still");
    }
}

#[test]
fn a_lock_has_one_holder_at_a_time() {
    let (dir, fs) = disk();
    let path = dir.path().join("LOCK");
    std::fs::OpenOptions::new().write(true).create(true).truncate(true).open(&path).unwrap();
    let lock = fs.lock(&path, "process 1").unwrap();
    match fs.lock(&path, "process 2").unwrap_err() {
        LockError::Held { holder } => assert!(cfg!(windows) || holder == "process 1", "{holder}"),
        LockError::Io(error) => panic!("{error}"),
    }
    drop(lock);
    let _lock = fs.lock(&path, "process 3").unwrap();
    assert!(matches!(fs.lock(&path, "process 4"), Err(LockError::Held { .. })));
}

/// To start a process is to copy all open files for a moment: what closes here stays open there.
#[cfg(unix)]
#[test]
fn a_lock_that_is_let_go_is_free_while_a_starting_process_has_its_file_open() {
    let (dir, fs) = disk();
    let path = dir.path().join("LOCK");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
    let copy = file.try_clone().unwrap();
    file.try_lock().unwrap();
    let lock = RealLock { file: Arc::new(file), process: std::process::id(), locked: None };
    assert!(matches!(fs.lock(&path, "process 2"), Err(LockError::Held { .. })));
    drop(lock);
    fs.lock(&path, "process 2").expect("the lock was let go");
    drop(copy);
}

#[cfg(unix)]
#[test]
fn a_forked_child_does_not_give_away_the_lock_of_its_parent() {
    let (dir, fs) = disk();
    let path = dir.path().join("LOCK");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
    let inherited =
        RealLock { file: Arc::new(file.try_clone().unwrap()), process: std::process::id() + 1, locked: None };
    file.try_lock().unwrap();
    drop(inherited);
    assert!(matches!(fs.lock(&path, "process 2"), Err(LockError::Held { .. })));
}

#[test]
fn a_forked_child_cannot_append_to_a_file_of_its_parent() {
    let (dir, fs) = disk();
    let path = dir.path().join("a");
    fs.create(&path).unwrap().append(b"ab").unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let mut inherited = RealFile { file, len: 2, process: std::process::id() + 1 };
    for refused in [inherited.append(b"c"), inherited.fill_ahead(1), inherited.truncate(0)] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
    assert_eq!(fs.read(&path).unwrap(), b"ab");
}

#[test]
fn an_empty_path_is_no_folder() {
    assert_eq!(RealFs.create_dir(Path::new("")).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn short_and_interrupted_writes_are_continued_and_an_empty_one_is_an_error() {
    let mut out = Vec::new();
    let mut calls = 0;
    write_all_at(b"abcdefgh", 100, |bytes, offset| {
        calls += 1;
        assert_eq!(offset, 100 + out.len() as u64);
        if calls % 2 == 1 {
            return Err(io::Error::from(ErrorKind::Interrupted));
        }
        let written = bytes.len().min(3);
        out.extend_from_slice(&bytes[..written]);
        Ok(written)
    })
    .unwrap();
    assert_eq!(out, b"abcdefgh");
    assert_eq!(calls, 6);
    let error = write_all_at(b"abc", 0, |_, _| Ok(0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WriteZero);
    let error = write_all_at(b"abc", 0, |_, _| Err(io::Error::from(ErrorKind::StorageFull))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
}

#[cfg(unix)]
#[test]
fn a_lock_knows_whether_its_path_names_the_file_that_is_locked() {
    let (dir, fs) = disk();
    let path = dir.path().join("LOCK");
    let lock = fs.lock(&path, "process 1").unwrap();
    let locked = lock.locked().unwrap();
    locked.check().unwrap();
    let forked = LockedFile { process: locked.process + 1, ..locked.clone() };
    assert_eq!(forked.check().unwrap_err().kind(), ErrorKind::PermissionDenied);
    fs.remove(&path).unwrap();
    locked.check().unwrap_err();
    let other = fs.lock(&path, "process 2").unwrap();
    locked.check().unwrap_err();
    other.locked().unwrap().check().unwrap();
}

#[cfg(unix)]
#[test]
fn no_name_changes_in_a_folder_whose_lock_is_another_one() {
    use crate::fs::LockedFs;
    let (dir, fs) = disk();
    let (path, file) = (dir.path().join("LOCK"), dir.path().join("file"));
    let lock = fs.lock(&path, "process 1").unwrap();
    let below: Arc<dyn Fs> = Arc::new(fs);
    let within = LockedFs::within(&below, lock.as_ref());
    let mut open = within.create(&file).unwrap();
    fs.remove(&path).unwrap();
    let refused = [
        within.create(&dir.path().join("new")).map(drop),
        within.open_append(&file, 0).map(drop),
        within.publish(&file, &dir.path().join("new")),
        within.remove(&file),
        within.move_file(&file, &dir.path().join("new")),
        within.create_dir(&dir.path().join("new")),
        within.remove_dir(dir.path()),
    ];
    assert!(refused.iter().all(Result::is_err), "{refused:?}");
    assert_eq!(fs.list(dir.path()).unwrap(), ["file"]);
    open.append(b"a").unwrap();
    assert_eq!(within.read(&file).unwrap(), b"a");
}

#[cfg(unix)]
#[test]
fn a_file_system_whose_file_numbers_never_agree_has_locks_that_go_by_the_path() {
    let (dir, fs) = disk();
    let path = dir.path().join("LOCK");
    let lock = lock_if(&path, "process 1", |_| false).unwrap();
    assert_eq!(fs.read(&path).unwrap(), b"process 1");
    assert!(matches!(lock_if(&path, "process 2", |_| false), Err(LockError::Held { .. })));
    let locked = lock.locked().unwrap();
    // A file of another number.
    std::fs::rename(&path, dir.path().join("aside")).unwrap();
    assert!(locked.check().is_err());
    fs.create(&path).unwrap();
    locked.check().unwrap();
    let forked = LockedFile { process: locked.process + 1, ..locked.clone() };
    assert_eq!(forked.check().unwrap_err().kind(), ErrorKind::PermissionDenied);
}

#[cfg(unix)]
#[test]
fn a_lock_file_that_is_removed_each_time_is_not_locked() {
    let (dir, fs) = disk();
    let path = dir.path().join("LOCK");
    let refused = lock_if(&path, "process 1", |_| {
        fs.remove(&path).unwrap();
        false
    });
    let Err(LockError::Io(error)) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains("LOCK is gone each time"), "{error}");
}

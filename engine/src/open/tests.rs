use super::*;
use crate::fs::sim::SimFs;
use std::cell::Cell;

const DIR: &str = "/db";

/// Counts how often `read` is called until [`beside_a_writer`] has had enough.
fn tries(fs: &SimFs, read: impl Fn(usize) -> Result<()>) -> (usize, Result<()>) {
    let calls = Cell::new(0);
    let outcome = beside_a_writer(fs, Path::new(DIR), || {
        calls.set(calls.get() + 1);
        read(calls.get())
    });
    (calls.get(), outcome)
}

fn failed() -> Result<()> {
    Err(Error::internal("the read failed"))
}

#[test]
fn an_error_is_tried_again_only_while_the_files_change() {
    let fs = SimFs::new(DIR);
    fs.create_dir(Path::new(DIR)).unwrap();
    assert_eq!(tries(&fs, |_| failed()).0, 2, "nothing changed while it was read again");
    assert_eq!(tries(&fs, |_| Ok(())).0, 1);

    // A file comes, one grows, is overwritten, and goes: each time it may have been the one that could not be read.
    let log = FileName::Log(1).path(Path::new(DIR));
    let changing = |call: usize| match call {
        1 => fs.create(&log).map(drop).map_err(|e| Error::io("create", &log, &e)).and_then(|()| failed()),
        2 => fs.tamper(&log, |bytes| bytes.push(1)).map_err(|e| Error::io("grow", &log, &e)).and_then(|()| failed()),
        3 => {
            let overwritten = fs.tamper(&log, |bytes| bytes[0] = 2);
            overwritten.map_err(|e| Error::io("overwrite", &log, &e)).and_then(|()| failed())
        }
        4 => fs.remove(&log).map_err(|e| Error::io("remove", &log, &e)).and_then(|()| failed()),
        _ => Ok(()),
    };
    let (calls, outcome) = tries(&fs, changing);
    assert!(outcome.is_ok(), "{outcome:?}");
    assert_eq!(calls, 5);

    // A writer that never rests does not keep an error from being told.
    let restless = |call: usize| {
        let path = FileName::Log(call as u64).path(Path::new(DIR));
        fs.create(&path).map(drop).map_err(|e| Error::io("create", &path, &e)).and_then(|()| failed())
    };
    let (calls, outcome) = tries(&fs, restless);
    assert_eq!((calls, outcome.is_err()), (READ_ONLY_TRIES, true));
}

//! The simulated disk and the real one under the same random operations: as long as nothing fails, they must not
//! differ.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use ebbtide::fs::sim::{Random, SimFs};
use ebbtide::fs::{Fs, RealFs, WriteFile};

use crate::Outcome;
use crate::strace::scratch;

const TRACES: u64 = 400;
const OPERATIONS: usize = 80;
const NAMES: [&str; 5] = ["a", "b", "c.tmp", "sub/d", "nowhere/e"];

/// One disk, and the files that are open for writing on it, with whether all they hold is synced.
struct Side {
    fs: Box<dyn Fs>,
    dir: PathBuf,
    open: BTreeMap<&'static str, Box<dyn WriteFile>>,
}

impl Side {
    fn new(fs: Box<dyn Fs>, dir: &Path) -> Side {
        Side { fs, dir: dir.to_owned(), open: BTreeMap::new() }
    }

    /// Does an operation; what came of it, in words.
    fn act(&mut self, operation: &Operation) -> String {
        let (fs, at) = (&self.fs, |name: &str| self.dir.join(name));
        let words = |result: io::Result<String>| result.unwrap_or_else(|error| format!("{:?}", error.kind()));
        let done = |result: io::Result<()>| words(result.map(|()| "done".to_owned()));
        match *operation {
            Operation::Create(name) => done(fs.create(&at(name)).map(|file| drop(self.open.insert(name, file)))),
            Operation::OpenAppend(name, len) => {
                done(fs.open_append(&at(name), len).map(|file| drop(self.open.insert(name, file))))
            }
            Operation::Append(name, byte, bytes) => done(self.writer(name).append(&vec![byte; bytes])),
            Operation::Truncate(name, len) => done(self.writer(name).truncate(len)),
            Operation::Sync(name) => done(self.writer(name).sync()),
            Operation::WriterLen(name) => self.writer(name).len().to_string(),
            Operation::Close(name) => {
                drop(self.open.remove(name));
                "done".to_owned()
            }
            Operation::Publish(tmp, name) => done(fs.publish(&at(tmp), &at(name))),
            Operation::Remove(name) => done(fs.remove(&at(name))),
            Operation::Move(from, to) => done(fs.move_file(&at(from), &at(to))),
            Operation::Read(name) => words(fs.read(&at(name)).map(|bytes| format!("{bytes:?}"))),
            Operation::ReadAt(name, offset, len) => words(
                fs.open_read(&at(name))
                    .and_then(|file| Ok(format!("{} {:?}", file.len(), file.read_at(offset, len)?.to_vec()))),
            ),
            Operation::Look(name) => {
                let (there, len) = (fs.exists(&at(name)), fs.len(&at(name)));
                words(there.map(|there| format!("{there} {}", words(len.map(|len| len.to_string())))))
            }
            Operation::List(dir) => words(fs.list(&at(dir)).map(|names| names.join(" "))),
            Operation::CreateDir(dir) => done(fs.create_dir(&at(dir))),
            Operation::RemoveDir(dir) => done(fs.remove_dir(&at(dir))),
            Operation::SyncDir(dir) => done(fs.sync_dir(&at(dir))),
        }
    }

    fn writer(&mut self, name: &str) -> &mut Box<dyn WriteFile> {
        self.open.get_mut(name).expect("only open files are written to")
    }
}

#[derive(Debug, Clone, Copy)]
enum Operation {
    Create(&'static str),
    OpenAppend(&'static str, u64),
    Append(&'static str, u8, usize),
    Truncate(&'static str, u64),
    Sync(&'static str),
    WriterLen(&'static str),
    Close(&'static str),
    Publish(&'static str, &'static str),
    Remove(&'static str),
    Move(&'static str, &'static str),
    Read(&'static str),
    ReadAt(&'static str, u64, usize),
    Look(&'static str),
    List(&'static str),
    CreateDir(&'static str),
    RemoveDir(&'static str),
    SyncDir(&'static str),
}

/// Chooses what no engine is forbidden to do: the simulated disk panics on the rest.
fn choose(random: &mut Random, real: &Side) -> Option<Operation> {
    let name = *random.pick(&NAMES)?;
    let other = *random.pick(&NAMES)?;
    let open = real.open.contains_key(name);
    let (byte, bytes) = (u8::try_from(random.below(251)).ok()?, random.index(3000));
    let len = random.below(4000);
    let anywhere_open = !real.open.is_empty();
    let there = |name: &str| real.fs.exists(&real.dir.join(name)).is_ok_and(|there| there);
    let flat = !name.contains('/') && !other.contains('/') && name != other;
    Some(match random.below(20) {
        0 | 1 if !open => Operation::Create(name),
        2 | 3 if !open => Operation::OpenAppend(name, len),
        4..=7 if open => Operation::Append(name, byte, bytes),
        8 if open => Operation::Truncate(name, len),
        9 if open => Operation::Sync(name),
        10 if open => Operation::WriterLen(name),
        11 if open => Operation::Close(name),
        // What is not synced must not be published, and what somebody writes to neither replaced nor removed.
        12 if flat && !anywhere_open => Operation::Publish(name, other),
        13 if !open => Operation::Remove(name),
        14 => Operation::Read(name),
        15 => Operation::ReadAt(name, len, bytes),
        16 => Operation::Look(name),
        17 => Operation::List(random.pick(&["", "sub", "nowhere"]).copied()?),
        18 if name == "sub/d" => Operation::CreateDir("sub"),
        18 if name == "a" => Operation::SyncDir("sub"),
        18 if name == "b" => Operation::SyncDir(""),
        19 if !anywhere_open && name == "a" => Operation::RemoveDir("sub"),
        // Of two reasons to refuse a move each disk may name another one.
        19 if !anywhere_open && there(name) && !there(other) => Operation::Move(name, other),
        _ => return None,
    })
}

/// Random operations on both disks at once.
pub(crate) fn differential() -> Outcome {
    let base = scratch();
    let (mut operations, mut refused) = (0, 0);
    for seed in 0..TRACES {
        let dir = base.path().join(format!("{seed}"));
        let mut real = Side::new(Box::new(RealFs::new()), &dir);
        let mut simulated = Side::new(Box::new(SimFs::new(&dir)), &dir);
        let mut random = Random::new(seed);
        let mut trace = String::new();
        for side in [&mut real, &mut simulated] {
            side.fs.create_dir(&dir).map_err(|error| error.to_string())?;
        }
        while trace.lines().count() < OPERATIONS {
            let Some(operation) = choose(&mut random, &real) else { continue };
            if let Operation::Publish(tmp, _) | Operation::Move(tmp, _) = operation {
                // As the engine does: a file is synced before it gets its name.
                for side in [&mut real, &mut simulated] {
                    if let Ok(len) = side.fs.len(&dir.join(tmp)) {
                        let synced = side.fs.open_append(&dir.join(tmp), len).and_then(|mut file| file.sync());
                        synced.map_err(|error| error.to_string())?;
                    }
                }
            }
            let (one, two) = (real.act(&operation), simulated.act(&operation));
            let _infallible = writeln!(trace, "{operation:?}: {}", one.chars().take(40).collect::<String>());
            operations += 1;
            refused +=
                usize::from(one.ends_with(|last: char| last.is_alphabetic()) && one.starts_with(char::is_uppercase));
            if one != two {
                return Err(format!(
                    "seed {seed}: the real disk says {one:.60}, the simulated one {two:.60}:\n{trace}"
                ));
            }
        }
    }
    Ok(format!("{TRACES} traces of {operations} operations, {refused} of them refused, the same on both disks"))
}

//! Faults of a simulated disk: which there are, and when they strike.

use std::io;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The call fails and does nothing. A sync that fails this way leaves everything as it was before.
    Eio,
    /// The disk is full: an append writes a part and fails, a sync fails, a new name is refused.
    Enospc,
    /// An append writes a part and fails; other calls are not touched.
    ShortWrite,
    /// Too many open files: whatever opens a file or folder fails.
    Emfile,
    /// A sync fails, and what it should have written may still become durable later.
    SyncEioKept,
    /// A sync of a file fails, and what it should have written never becomes durable, though it can still be read:
    /// what Linux file systems do. A sync of a folder fails as with [`FaultKind::SyncEioKept`].
    SyncEioDropped,
}

impl FaultKind {
    /// Every kind of fault.
    pub const ALL: [FaultKind; 6] = [
        FaultKind::Eio,
        FaultKind::Enospc,
        FaultKind::ShortWrite,
        FaultKind::Emfile,
        FaultKind::SyncEioKept,
        FaultKind::SyncEioDropped,
    ];

    pub(super) fn strikes(self, op: Op) -> bool {
        match self {
            FaultKind::Eio => true,
            FaultKind::Enospc => matches!(op, Op::Create | Op::Append | Op::Sync | Op::Rename | Op::SyncDir),
            FaultKind::ShortWrite => op == Op::Append,
            FaultKind::Emfile => matches!(op, Op::Create | Op::OpenAppend | Op::SyncDir | Op::OpenRead | Op::List),
            FaultKind::SyncEioKept | FaultKind::SyncEioDropped => matches!(op, Op::Sync | Op::SyncDir),
        }
    }

    pub(super) fn error(self) -> io::Error {
        // The numbers are those of Linux, so that `kind()` is there what a real disk gives.
        match self {
            FaultKind::Eio | FaultKind::SyncEioKept | FaultKind::SyncEioDropped => io::Error::from_raw_os_error(5),
            FaultKind::Enospc => io::Error::from(io::ErrorKind::StorageFull),
            FaultKind::ShortWrite => io::Error::from(io::ErrorKind::WriteZero),
            FaultKind::Emfile => io::Error::from_raw_os_error(24),
        }
    }
}

/// Whether a fault goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Repeat {
    /// It strikes one call.
    Once,
    /// It strikes every call it can from then on.
    Forever,
}

/// A fault and how long it lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// Whether it goes away.
    pub repeat: Repeat,
}

/// What a step of a call does, as far as faults care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Create,
    OpenAppend,
    Append,
    Sync,
    Cut,
    Rename,
    Remove,
    SyncDir,
    OpenRead,
    Read,
    List,
    Stat,
}

/// When faults strike. A pure function of the index of a call.
#[derive(Debug, Clone, Default)]
pub(super) struct FaultPlan {
    pub(super) listed: Vec<(u64, Fault)>,
    /// A seed, and one in how many calls is struck.
    pub(super) seeded: Option<(u64, u64)>,
}

impl FaultPlan {
    pub(super) fn strike(&self, index: u64, op: Op) -> Option<FaultKind> {
        for (at, fault) in &self.listed {
            let now = *at == index || (fault.repeat == Repeat::Forever && *at < index);
            if now && fault.kind.strikes(op) {
                return Some(fault.kind);
            }
        }
        let (seed, one_in) = self.seeded?;
        let mut random = Random::new(seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        if random.below(one_in) != 0 {
            return None;
        }
        let kind = random.pick(&FaultKind::ALL).copied()?;
        kind.strikes(op).then_some(kind)
    }
}

/// The generator `splitmix64`: a seed gives the same numbers everywhere and for ever.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, or 0 if there is none.
    pub fn below(&mut self, end: u64) -> u64 {
        // The high half of the product: even enough for tests, and free of division.
        ((u128::from(self.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// A place in a list of `len` entries, or 0 if it is empty.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True in `part` of `whole` cases.
    pub fn chance(&mut self, part: u64, whole: u64) -> bool {
        self.below(whole) < part
    }

    /// One of a list.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        let index = self.index(list.len());
        list.get(index)
    }
}

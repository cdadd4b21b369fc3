//! What a power cut leaves of a simulated disk.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::disk::{Change, Disk, File, NodeId, TOP};
use super::fault::Random;

/// The unit in which a disk takes content: a sector is old or new, never in between.
const SECTOR: usize = 512;

/// What a power cut does to the changes that were not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Variant {
    /// All are lost.
    V0,
    /// All are kept.
    V1,
    /// Those up to some point are kept, the last one in part.
    V2,
    /// Any sectors and any names are kept, in any order.
    V3,
    /// Content is kept, names are lost.
    V4,
    /// Names are kept, content is lost: files are as they were, or as long as they should be and zero.
    V5,
    /// Names and lengths are kept, new content is zero.
    V6,
    /// Names and lengths are kept, sectors of new content are garbage, or hold what is in another place.
    V7,
    /// As V3, and one bit of a durable byte is flipped. No engine survives this; a good one notices.
    V8,
}

impl Variant {
    /// Every variant.
    pub const ALL: [Variant; 9] = [
        Variant::V0,
        Variant::V1,
        Variant::V2,
        Variant::V3,
        Variant::V4,
        Variant::V5,
        Variant::V6,
        Variant::V7,
        Variant::V8,
    ];

    /// Those which lose nothing that was synced.
    pub const WITHIN_CONTRACT: [Variant; 8] =
        [Variant::V0, Variant::V1, Variant::V2, Variant::V3, Variant::V4, Variant::V5, Variant::V6, Variant::V7];
}

/// A bit that was flipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The path of the file, from the top.
    pub path: String,
    /// The place of the byte.
    pub offset: u64,
    /// The bit in it.
    pub bit: u8,
}

/// Cuts the power: the disk afterwards has one state of the many that the changes not yet synced allow.
pub(super) fn crash(disk: &Disk, variant: Variant, seed: u64) -> (Disk, Option<Damage>) {
    let mut random = Random::new(seed);
    let mut after = disk.clone();
    match variant {
        Variant::V0 => {}
        Variant::V1 => keep_first(&mut after, disk.pending.len()),
        Variant::V2 => tear(&mut after, &mut random),
        Variant::V3 | Variant::V8 => scatter(&mut after, &mut random),
        Variant::V4 => each_file(&mut after, |_, file, changes| file.current(changes)),
        Variant::V5 => {
            after.apply_names(|_| true);
            each_file(
                &mut after,
                |_, file, changes| {
                    if random.chance(1, 2) { file.durable.to_vec() } else { zeroed(file, changes) }
                },
            );
        }
        Variant::V6 => {
            after.apply_names(|_| true);
            each_file(&mut after, |_, file, changes| zeroed(file, changes));
        }
        Variant::V7 => {
            after.apply_names(|_| true);
            // Removed files too: their sectors are what a new file is made of.
            let old: Vec<Arc<Vec<u8>>> = disk.files.values().map(|file| Arc::clone(&file.durable)).collect();
            each_file(&mut after, |_, file, changes| garbled(file, changes, &old, &mut random));
        }
    }
    let damage = if variant == Variant::V8 { flip(&mut after, disk, &mut random) } else { None };
    after.restart();
    (after, damage)
}

impl File {
    /// The content with all changes applied.
    fn current(&self, changes: &[Change]) -> Vec<u8> {
        let mut content = self.durable.to_vec();
        for change in changes {
            change.apply_to(&mut content);
        }
        content
    }
}

/// The changes of each file that has some.
fn by_file(changes: &[Change]) -> BTreeMap<NodeId, Vec<Change>> {
    let mut files: BTreeMap<NodeId, Vec<Change>> = BTreeMap::new();
    for change in changes {
        if let Some(file) = change.file() {
            files.entry(file).or_default().push(change.clone());
        }
    }
    files
}

/// Gives each file with pending changes the content that `content` makes of it.
fn each_file(disk: &mut Disk, mut content: impl FnMut(NodeId, &File, &[Change]) -> Vec<u8>) {
    for (node, changes) in by_file(&disk.pending) {
        if let Some(file) = disk.files.get_mut(&node) {
            file.durable = Arc::new(content(node, file, &changes));
        }
    }
}

/// Keeps the first `count` changes.
fn keep_first(disk: &mut Disk, count: usize) {
    disk.pending.truncate(count);
    each_file(disk, |_, file, changes| file.current(changes));
    disk.apply_names(|_| true);
}

fn tear(disk: &mut Disk, random: &mut Random) {
    let count = random.index(disk.pending.len() + 1);
    disk.pending.truncate(count);
    if let Some(Change::Write { bytes, .. }) = disk.pending.last_mut() {
        let kept = random.index(bytes.len() + 1);
        *bytes = Arc::from(&bytes[..kept]);
    }
    keep_first(disk, count);
}

fn scatter(disk: &mut Disk, random: &mut Random) {
    // A disk that took almost everything and one that took almost nothing find other bugs than a fair coin.
    let part = [1, 4, 7].get(random.index(3)).copied().unwrap_or(4);
    disk.apply_names(|_| random.chance(part, 8));
    each_file(disk, |_, file, changes| {
        let mut content = file.durable.to_vec();
        let mut lens = vec![content.len()];
        for change in changes {
            lens.push(len_after(change, lens.last().copied().unwrap_or(0)));
        }
        content.resize(lens.iter().copied().max().unwrap_or(0), 0);
        for touching in touched(changes).into_values() {
            // A sector is written as it is at some moment: with the first changes of it, whatever others have.
            let all = touching.len();
            let count = if random.chance(part, 8) { all } else { random.index(all) };
            for (change, range) in touching.into_iter().take(count) {
                write_part(&mut content, change, range);
            }
        }
        let last = lens.last().copied().unwrap_or(0);
        let len = if random.chance(1, 2) { last } else { lens.get(random.index(lens.len())).copied().unwrap_or(last) };
        content.truncate(len);
        content
    });
}

fn len_after(change: &Change, len: usize) -> usize {
    match change {
        Change::Write { offset, bytes, .. } => len.max(offset + bytes.len()),
        Change::Cut { len: cut, .. } => len.min(*cut),
        Change::Name(_) => len,
    }
}

/// By sector, the changes of it in order, and the bytes of the file that each of them covers there.
fn touched(changes: &[Change]) -> BTreeMap<usize, Vec<(&Change, Range<usize>)>> {
    let mut sectors: BTreeMap<usize, Vec<(&Change, Range<usize>)>> = BTreeMap::new();
    for change in changes {
        let (start, end) = match change {
            Change::Write { offset, bytes, .. } => (*offset, offset + bytes.len()),
            Change::Cut { from, len, .. } => (*len, *from),
            Change::Name(_) => continue,
        };
        let mut at = start;
        while at < end {
            let sector = at / SECTOR;
            let stop = end.min((sector + 1) * SECTOR);
            sectors.entry(sector).or_default().push((change, at..stop));
            at = stop;
        }
    }
    sectors
}

/// Applies that part of a change which lies in `range`.
fn write_part(content: &mut [u8], change: &Change, range: Range<usize>) {
    match change {
        Change::Write { offset, bytes, .. } => {
            content[range.clone()].copy_from_slice(&bytes[range.start - offset..range.end - offset]);
        }
        // A file that grows again over a place where it was cut reads zeros there. It may never have been as long
        // as that on the disk, if a sync was lost.
        Change::Cut { .. } => {
            let end = range.end.min(content.len());
            if let Some(bytes) = content.get_mut(range.start..end) {
                bytes.fill(0);
            }
        }
        Change::Name(_) => {}
    }
}

/// As long as it should be, with zeros in the place of what was not synced.
fn zeroed(file: &File, changes: &[Change]) -> Vec<u8> {
    let mut content = file.current(changes);
    for (_, range) in touched(changes).into_values().flatten() {
        let end = range.end.min(content.len());
        if let Some(bytes) = content.get_mut(range.start..end) {
            bytes.fill(0);
        }
    }
    content
}

/// As long as it should be, with sectors of garbage and of old content in the place of what was not synced.
fn garbled(file: &File, changes: &[Change], old: &[Arc<Vec<u8>>], random: &mut Random) -> Vec<u8> {
    let mut content = file.current(changes);
    // One place for a run of sectors: a whole old record can come back.
    let source = random.pick(old).cloned().unwrap_or_default();
    let base = random.index(source.len() / SECTOR + 1);
    let touched = touched(changes);
    let first = touched.keys().next().copied().unwrap_or(0);
    for (sector, touching) in touched {
        let what = random.below(4);
        for (_, range) in touching {
            for at in range.start..range.end.min(content.len()) {
                match what {
                    0 | 1 => {
                        let from = (base + sector - first) * SECTOR + at % SECTOR;
                        content[at] = source.get(from).copied().unwrap_or(0);
                    }
                    2 => content[at] = random.next_u64() as u8,
                    _ => {}
                }
            }
        }
    }
    content
}

/// Flips a bit in a byte that was durable before the crash, of a file that is there after it.
fn flip(after: &mut Disk, before: &Disk, random: &mut Random) -> Option<Damage> {
    let mut files = Vec::new();
    named(after, TOP, "", &mut files);
    let changed = by_file(&before.pending);
    // Bytes that a pending change covers are nobody's promise, and a flip there would prove nothing.
    files.retain(|(_, node)| {
        !changed.contains_key(node) && before.files.get(node).is_some_and(|file| !file.durable.is_empty())
    });
    let (path, node) = random.pick(&files).cloned()?;
    let file = after.files.get_mut(&node)?;
    let offset = random.index(file.durable.len());
    let bit = random.below(8) as u8;
    let byte = Arc::make_mut(&mut file.durable).get_mut(offset)?;
    *byte ^= 1 << bit;
    Some(Damage { path, offset: offset as u64, bit })
}

/// The durable paths of all files below a folder.
fn named(disk: &Disk, dir: NodeId, path: &str, into: &mut Vec<(String, NodeId)>) {
    for (name, node) in disk.dirs.get(&dir).into_iter().flat_map(|dir| dir.durable.iter()) {
        let path = format!("{path}/{name}");
        if disk.files.contains_key(node) {
            into.push((path, *node));
        } else {
            named(disk, *node, &path, into);
        }
    }
}

//! Tier H: the power of a real file system is cut. `strace` stops the writer before a system call, and the image that
//! its ext4 lives on is copied: the journal of the copy is replayed as after a power cut.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use ebbtide::fs::sim::{SimFs, Variant};
use ebbtide::fs::{Fs, RealFs};

use crate::Outcome;
use crate::child::{Said, expectation, heard, reopened, say, worked_on};
use crate::full::{must, own_mounts, play, unmount};
use crate::strace;
use crate::workloads;

const IMAGES_DEFAULT: usize = 56;
/// Copies of an image that changed meanwhile, since the kernel wrote to it: they are no moment in time.
const COPIES_MAX: usize = 8;
/// Seeds for each way of cutting the power, when all that the simulated disk allows is collected.
const SEEDS: u64 = 40;

fn probe(base: &Path) -> Option<&'static [&'static str]> {
    let (image, mount) = (base.join("probe.img"), base.join("probe"));
    std::fs::create_dir(&mount).ok()?;
    let (image, mount) = (image.display(), mount.display());
    own_mounts(&format!("truncate -s 16M {image} && mkfs.ext4 -q -F {image} && mount -o loop {image} {mount}"))
}

fn with_mounts(role: &str) -> Outcome {
    if let Some(why) = strace::unusable() {
        return Ok(why);
    }
    let base = strace::scratch();
    match probe(base.path()) {
        None => Ok("skipped: no ext4 image can be mounted here (needs root, loop devices and mkfs.ext4)".to_owned()),
        Some(way) => play(role, way, base.path()),
    }
}

/// Power cuts while the workloads run.
pub(crate) fn power_cuts() -> Outcome {
    with_mounts("power")
}

/// Power cuts during plain file operations, compared with what the simulated disk allows.
pub(crate) fn states() -> Outcome {
    with_mounts("states")
}

/// An ext4 image with two mount points: one to write to, one for what a power cut left.
struct Machine {
    base: PathBuf,
    unclean: usize,
}

impl Machine {
    fn new(base: &Path) -> Result<Machine, String> {
        for name in ["live", "after"] {
            std::fs::create_dir(base.join(name)).map_err(|error| error.to_string())?;
        }
        must("truncate", &["-s", "16M", &base.join("empty.img").display().to_string()])?;
        must("mkfs.ext4", &["-q", "-F", &base.join("empty.img").display().to_string()])?;
        Ok(Machine { base: base.to_owned(), unclean: 0 })
    }

    fn path(&self, name: &str) -> String {
        self.base.join(name).display().to_string()
    }

    /// Runs `work` on an empty file system, cuts the power, and lets `check` look at what is left. `None` if
    /// `work` ended by itself, or the image never held still.
    fn cut<T>(
        &mut self,
        work: impl FnOnce(&Path) -> Result<bool, String>,
        check: impl FnOnce(&Path) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        let (live, image, copy) = (self.path("live"), self.path("live.img"), self.path("copy.img"));
        must("cp", &["--sparse=always", &self.path("empty.img"), &image])?;
        must("mount", &["-o", "loop", &image, &live])?;
        let worked = work(&self.base.join("live"));
        let changed = || std::fs::metadata(&image).and_then(|data| data.modified()).map_err(|error| error.to_string());
        let mut clean = false;
        for _ in 0..COPIES_MAX {
            let before = changed()?;
            must("cp", &["--sparse=always", &image, &copy])?;
            clean = before == changed()?;
            if clean {
                break;
            }
            self.unclean += 1;
        }
        unmount(&live)?;
        if !worked? || !clean {
            return Ok(None);
        }
        let after = self.path("after");
        must("mount", &["-o", "loop", &copy, &after])?;
        let checked = check(&self.base.join("after"));
        unmount(&after)?;
        checked.map(Some)
    }
}

pub(crate) fn in_own_mounts(base: &Path, said: &mut File) -> Result<(), String> {
    let mut machine = Machine::new(base)?;
    let traces = base.join("traces");
    std::fs::create_dir(&traces).map_err(|error| error.to_string())?;
    let mut points = Vec::new();
    for scenario in workloads::all() {
        let calls = strace::calls(&scenario, &traces)?;
        points.extend(calls.into_iter().filter(strace::Call::changes).map(|call| (scenario.clone(), call)));
    }
    let most = std::env::var("EBBTIDE_RIG_IMAGES").ok().and_then(|text| text.parse().ok()).unwrap_or(IMAGES_DEFAULT);
    let mut images = 0;
    for (number, (scenario, call)) in strace::thinned(points, most).into_iter().enumerate() {
        let at = base.join(format!("cut-{number}"));
        std::fs::create_dir(&at).map_err(|error| error.to_string())?;
        let label = format!("a power cut before {} {} of {}", call.name, call.nth, scenario.name);
        let cut = machine.cut(
            |live| strace::killed_at(scenario.name, &call, &live.join("db"), &at),
            |after| {
                let (dir, expected) = (after.join("db"), expectation(&heard(&at.join("said"))?)?);
                worked_on(reopened(&dir, &expected, &scenario)?, &dir, &expected, &scenario)
            },
        );
        images += usize::from(cut.map_err(|what| format!("{label}: {what}"))?.is_some());
    }
    let unclean = machine.unclean;
    if images * 2 < most {
        return Err(format!("only {images} images of {most} could be made; {unclean} copies were not of one moment"));
    }
    say(
        said,
        &Said::Counted(format!(
            "tier H: {images} images after power cuts, nothing lost; {unclean} copies were not of one moment"
        )),
    );
    Ok(())
}

/// Which files are there, and what is in them.
type Listing = BTreeMap<String, Vec<u8>>;

/// A change of the folder, as the engine makes them.
#[derive(Debug, Clone, Copy)]
enum Change {
    Create(&'static str),
    Append(&'static str, u8, usize),
    Sync(&'static str),
    Truncate(&'static str, u64),
    Publish(&'static str, &'static str),
    Remove(&'static str),
    SyncDir,
}

const CHANGES: [Change; 27] = {
    use Change::{Append, Create, Publish, Remove, Sync, SyncDir, Truncate};
    [
        Create("log"),
        Append("log", 1, 700),
        Sync("log"),
        SyncDir,
        Append("log", 2, 3000),
        Create("segment"),
        Append("segment", 3, 5000),
        Append("log", 4, 100),
        Sync("segment"),
        Append("segment", 5, 9000),
        Sync("log"),
        Create("list.tmp"),
        Append("list.tmp", 6, 1500),
        Sync("list.tmp"),
        Publish("list.tmp", "list"),
        Create("list.tmp"),
        Append("list.tmp", 7, 2500),
        Remove("segment"),
        Sync("list.tmp"),
        Publish("list.tmp", "list"),
        Append("log", 8, 5000),
        Truncate("log", 4000),
        Append("log", 9, 600),
        Sync("log"),
        Remove("list"),
        Append("log", 10, 4096),
        SyncDir,
    ]
};

/// Makes the changes one after the other; `before` hears which comes next.
fn make_changes(fs: &dyn Fs, dir: &Path, mut before: impl FnMut(usize)) -> Result<(), String> {
    let mut open = BTreeMap::new();
    before(0);
    fs.create_dir(dir).map_err(|error| error.to_string())?;
    for (at, change) in CHANGES.iter().enumerate() {
        before(at + 1);
        let done = match *change {
            Change::Create(name) => fs.create(&dir.join(name)).map(|file| drop(open.insert(name, file))),
            Change::Append(name, byte, bytes) => open.get_mut(name).expect("it is open").append(&vec![byte; bytes]),
            Change::Sync(name) => open.get_mut(name).expect("it is open").sync(),
            Change::Truncate(name, len) => open.get_mut(name).expect("it is open").truncate(len),
            Change::Publish(tmp, name) => {
                drop(open.remove(tmp));
                fs.publish(&dir.join(tmp), &dir.join(name))
            }
            Change::Remove(name) => {
                drop(open.remove(name));
                fs.remove(&dir.join(name))
            }
            Change::SyncDir => fs.sync_dir(dir),
        };
        done.map_err(|error| format!("{change:?}: {error}"))?;
    }
    before(CHANGES.len() + 1);
    Ok(())
}

/// The process that makes the changes on a real disk.
pub(crate) fn calls(dir: &Path, said: &mut File) -> Result<(), String> {
    make_changes(&RealFs::new(), dir, |next| say(said, &Said::Next(next)))?;
    say(said, &Said::End { refused: 0, unknown: 0 });
    Ok(())
}

fn listing(fs: &dyn Fs, dir: &Path) -> Result<Listing, String> {
    if !fs.exists(dir).map_err(|error| error.to_string())? {
        return Ok(Listing::new());
    }
    let names = fs.list(dir).map_err(|error| error.to_string())?;
    let read =
        |name: String| Ok((name.clone(), fs.read(&dir.join(&name)).map_err(|error| format!("{name}: {error}"))?));
    names.into_iter().map(read).collect()
}

/// A sector's worth of bytes: a disk takes it as a whole or not at all.
const SECTOR: usize = 512;

/// What the simulated disk allows, file by file: whether it may be missing, its lengths, and what each sector may hold.
#[derive(Default)]
struct Allowed {
    states: BTreeSet<Listing>,
    lengths: BTreeMap<String, BTreeSet<usize>>,
    sectors: BTreeMap<(String, usize), BTreeSet<Vec<u8>>>,
}

impl Allowed {
    fn add(&mut self, listing: Listing) {
        if !self.states.insert(listing.clone()) {
            return;
        }
        for (name, content) in listing {
            for (at, sector) in content.chunks(SECTOR).enumerate() {
                self.sectors.entry((name.clone(), at)).or_default().insert(sector.to_vec());
            }
            self.lengths.entry(name).or_default().insert(content.len());
        }
    }

    fn check(&self, left: &Listing) -> Result<(), String> {
        for name in self.lengths.keys() {
            if !left.contains_key(name) && self.states.iter().all(|state| state.contains_key(name)) {
                return Err(format!("'{name}' is missing, and the simulated disk always keeps it"));
            }
        }
        for (name, content) in left {
            let Some(lengths) = self.lengths.get(name) else {
                return Err(format!("'{name}' is there, and the simulated disk never keeps it"));
            };
            let (least, most) = (lengths.first().copied().unwrap_or(0), lengths.last().copied().unwrap_or(0));
            if content.len() < least || content.len() > most {
                return Err(format!("'{name}' has {} bytes, and {least} to {most} are allowed", content.len()));
            }
            for (at, sector) in content.chunks(SECTOR).enumerate() {
                let allowed = self.sectors.get(&(name.clone(), at));
                // The file may end in the middle of what the simulated one went on with, or the other way round.
                let fits = |known: &Vec<u8>| known.iter().zip(sector).all(|(one, two)| one == two);
                if !allowed.is_some_and(|allowed| allowed.iter().any(fits)) {
                    return Err(format!("'{name}' holds in sector {at} what the simulated disk never leaves"));
                }
            }
        }
        Ok(())
    }
}

/// All that the simulated disk may leave while each change is under way, by its number.
fn allowed() -> Result<Vec<Allowed>, String> {
    let dir = Path::new("/live/db");
    let fs = SimFs::new(dir);
    fs.record();
    let mut begins = Vec::new();
    make_changes(&fs, dir, |_| begins.push(fs.steps().len()))?;
    begins.push(fs.steps().len());
    let mut all = Vec::new();
    for change in begins.windows(2) {
        let mut allowed = Allowed::default();
        for step in change[0]..=change[1] {
            let disk = fs.before_step(step);
            // Garbage (V7) is more than ext4 does, and would allow any byte.
            for variant in Variant::WITHIN_CONTRACT.into_iter().filter(|variant| *variant != Variant::V7) {
                for seed in 0..SEEDS {
                    allowed.add(listing(&disk.crash(variant, seed), dir)?);
                }
            }
        }
        all.push(allowed);
    }
    Ok(all)
}

pub(crate) fn states_in_own_mounts(base: &Path, said: &mut File) -> Result<(), String> {
    let mut machine = Machine::new(base)?;
    let traces = base.join("traces");
    std::fs::create_dir(&traces).map_err(|error| error.to_string())?;
    let calls = strace::calls_of("calls", &traces)?;
    let allowed = allowed()?;
    let (mut images, mut seen) = (0, BTreeSet::new());
    for (number, call) in calls.into_iter().filter(strace::Call::changes).enumerate() {
        let at = base.join(format!("cut-{number}"));
        std::fs::create_dir(&at).map_err(|error| error.to_string())?;
        let label = format!("a power cut before {} {}", call.name, call.nth);
        let cut = machine.cut(
            |live| strace::killed_at("calls", &call, &live.join("db"), &at),
            |after| {
                let heard = heard(&at.join("said"))?;
                let next = heard.iter().rev().find_map(|said| if let Said::Next(n) = said { Some(*n) } else { None });
                let left = listing(&RealFs::new(), &after.join("db"))?;
                let next = next.unwrap_or(0);
                let allowed = allowed.get(next).ok_or_else(|| format!("there is no change {next}"))?;
                allowed.check(&left).map_err(|what| format!("change {next}: {what}"))?;
                Ok(left)
            },
        );
        if let Some(left) = cut.map_err(|what| format!("{label}: {what}"))? {
            images += 1;
            seen.insert(left);
        }
    }
    let seen = seen.len();
    if seen < 5 {
        return Err(format!("{images} power cuts left only {seen} different states: they cut nothing"));
    }
    let what =
        format!("tier H: {images} power cuts left {seen} different states, and the simulated disk allows each of them");
    say(said, &Said::Counted(what));
    Ok(())
}

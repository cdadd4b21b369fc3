//! Tier C: long random runs with crashes and failing calls, each a pure function of its seed.
//!
//! A seed picks its own mixture: which steps there are and how often, how small logs and segments are, how often the
//! power goes, and whether calls fail or the disk is full. After a crash the run goes on with what was recovered.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use ebbtide::Settings;
use ebbtide::fs::sim::{Fault, FaultKind, Random, Repeat, SimFs, Variant};

use crate::campaign::Campaign;
use crate::documents::{Command, NewDocument, Rule, Which};
use crate::expect::{Expected, There};
use crate::rig::{ROOT, guarded, recover_at};
use crate::runner::{Outcome, Runner, find};
use crate::script::{Fields, HOUR, Step, rows};

const NAMES: [&str; 2] = ["c", "e"];
/// Those of ordinary collections.
const OF_DOCUMENTS: [&str; 2] = ["d", "g"];
/// Their documents have `_id`s below this.
const IDS: u64 = 30;
/// Memory below which a writer may have to seal first, and so to wait for the work that it is to run beside.
const LITTLE_MEMORY: usize = 1 << 20;
const METAS: [&str; 3] = ["a", "b", "d"];
const RULES: [&str; 3] = ["one", "two", "three"];
const SECONDS: [i64; 5] = [0, 3600, 3 * 3600, 24 * 3600, 48 * 3600];
/// Measurements of a collection beyond which some are deleted: a run is about steps, not about size.
const ROWS_MAX: usize = 150;

/// The steps that a run may be made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Create,
    DropCollection,
    Rename,
    PutView,
    DropView,
    Insert,
    InsertTogether,
    InsertAcross,
    Flush,
    Compact,
    Sweep,
    Wait,
    SetOwn,
    AddRule,
    ModifyRule,
    RemoveRule,
    Delete,
    Hold,
    Release,
    Reopen,
    /// A step of an ordinary collection.
    Documents,
}

const KINDS: [(Kind, u64); 21] = [
    (Kind::Create, 6),
    (Kind::DropCollection, 1),
    (Kind::Rename, 2),
    (Kind::PutView, 1),
    (Kind::DropView, 1),
    (Kind::Insert, 40),
    (Kind::InsertTogether, 3),
    (Kind::InsertAcross, 12),
    (Kind::Flush, 12),
    (Kind::Compact, 6),
    (Kind::Sweep, 12),
    (Kind::Wait, 10),
    (Kind::SetOwn, 4),
    (Kind::AddRule, 4),
    (Kind::ModifyRule, 4),
    (Kind::RemoveRule, 3),
    (Kind::Delete, 4),
    (Kind::Hold, 3),
    (Kind::Release, 3),
    (Kind::Reopen, 4),
    (Kind::Documents, 50),
];

/// What a seed makes of a run.
struct Swarm {
    weights: Vec<(Kind, u64)>,
    /// One step in so many meets a failing call; 0 is none.
    faults: u64,
    /// One step in so many begins on a disk that is nearly full; 0 is none.
    full: u64,
    /// One step in so many is cut off by a crash.
    crashes: u64,
    settings: Settings,
}

impl Swarm {
    fn new(random: &mut Random, threads: bool) -> Swarm {
        let needed = |kind| matches!(kind, Kind::Create | Kind::Insert | Kind::Flush);
        let mut weights = KINDS.to_vec();
        for (kind, weight) in &mut weights {
            *weight *= match random.below(4) {
                0 if needed(*kind) => 1,
                0 => 0,
                1 => 3,
                _ => 1,
            };
        }
        weights.retain(|(kind, _)| threads || *kind != Kind::InsertTogether);
        let mut pick = |list: &[u64]| random.pick(list).copied().unwrap_or(0);
        Swarm {
            weights,
            faults: pick(&[0, 0, 4, 12, 40]),
            full: pick(&[0, 0, 10, 40]),
            crashes: pick(&[5, 15, 40]),
            settings: Settings {
                memtable_bytes_max: pick(&[1 << 14, 64 << 20]) as usize,
                wal_file_bytes_max: pick(&[1 << 10, 1 << 13, 64 << 20]),
                segment_rows_max: pick(&[5, 40, 1 << 20]) as usize,
                ..Settings::default()
            },
        }
    }

    fn kind(&self, random: &mut Random) -> Kind {
        let mut at = random.below(self.weights.iter().map(|(_, weight)| weight).sum());
        for (kind, weight) in &self.weights {
            match at.checked_sub(*weight) {
                Some(rest) => at = rest,
                None => return *kind,
            }
        }
        Kind::Flush
    }
}

/// What happened in a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Story {
    pub(crate) steps: usize,
    pub(crate) crashes: usize,
    pub(crate) faults: u64,
    pub(crate) stops: usize,
    /// Of everything that happened on the disk, and of what was found there.
    digest: u64,
}

/// Runs seeds from `first` on; one in twenty of them twice, to see whether it does the same again.
pub(crate) fn random_runs(campaign: &mut Campaign, first: u64, count: u64, steps: usize) {
    for seed in first..first + count {
        run_seed(campaign, seed, steps, seed.is_multiple_of(20));
    }
}

/// Runs the seed that a replay asks for, or nothing.
pub(crate) fn replay(campaign: &mut Campaign) {
    let words = campaign.replay.as_deref().and_then(|label| label.strip_prefix("random:")?.split_once(':'));
    if let Some((seed, steps)) = words.and_then(|(seed, steps)| Some((seed.parse().ok()?, steps.parse().ok()?))) {
        run_seed(campaign, seed, steps, false);
    }
}

fn run_seed(campaign: &mut Campaign, seed: u64, steps: usize, twice: bool) {
    let label = format!("random:{seed}:{steps}");
    let verbose = campaign.replay.is_some();
    let mut last = String::new();
    let outcome = guarded(|| run(seed, steps, verbose, &mut last)).and_then(|story| {
        let again = if twice { guarded(|| run(seed, steps, verbose, &mut last))? } else { return Ok(story) };
        if again == story { Ok(story) } else { Err(format!("not the same again: {story:?}, then {again:?}")) }
    });
    campaign.images += 1;
    match outcome {
        Ok(story) => {
            campaign.worked_on += story.steps;
            campaign.nested += story.crashes;
            campaign.fired += story.faults as usize;
            campaign.stops += story.stops;
        }
        Err(what) => campaign.fail(&label, &last, &what),
    }
}

fn run(seed: u64, steps: usize, verbose: bool, last: &mut String) -> Result<Story, String> {
    let mut random = Random::new(seed);
    // Threads run in no order that a seed could choose: not in runs that have to do the same twice.
    let swarm = Swarm::new(&mut random, !seed.is_multiple_of(20));
    let mut runner = Runner::new(SimFs::new(ROOT), Path::new(ROOT), swarm.settings.clone());
    runner.open().map_err(|error| format!("does not open: {error}"))?;
    let (mut story, mut digest, mut next_id) = (Story::default(), DefaultHasher::new(), 1);
    // A request that may have been stored, or was, and is sent again.
    let mut again: Option<Step> = None;
    while story.steps < steps {
        story.steps += 1;
        runner.fs.record();
        let before = runner.fs.faults_fired();
        if swarm.faults > 0 && random.chance(1, swarm.faults) {
            let kind = random.pick(&FaultKind::ALL).copied().unwrap_or(FaultKind::Eio);
            let repeat = if random.chance(1, 4) { Repeat::Forever } else { Repeat::Once };
            runner.fs.fail_op(runner.fs.mutating_ops() + random.below(12), Fault { kind, repeat });
        }
        if swarm.full > 0 && random.chance(1, swarm.full) {
            runner.fs.set_capacity(Some(runner.fs.used() + random.below(6000)));
        }
        let step = match runner.db {
            None => Step::Reopen,
            Some(_) if runner.poisoned && random.chance(1, 3) => Step::Reopen,
            Some(_) if again.is_some() && !runner.poisoned => again.take().unwrap_or(Step::Flush),
            Some(_) => some_step(&mut random, &swarm, &runner, &mut next_id),
        };
        *last = format!("step {}, {step:?}", story.steps).chars().take(200).collect();
        let (outcome, during) = runner.step(&step)?;
        let fired = runner.fs.faults_fired() - before;
        if verbose {
            println!("{last}: {outcome:?}, {fired} faults\n{:#?}", runner.fs.steps());
        }
        runner.fs.steps().hash(&mut digest);
        story.faults += fired;
        match &step {
            Step::InsertAcross(_, Some(_)) if outcome != Outcome::Done || random.chance(1, 2) => {
                again = Some(step.clone());
            }
            // The key is known for an hour only.
            Step::Wait(_) => again = None,
            _ => {}
        }
        match outcome {
            Outcome::Done => {}
            Outcome::Refused => runner.failed = runner.poisoned,
            Outcome::Unknown => {
                // Writing may have stopped in the background of an earlier step, but never for nothing.
                if story.faults == 0 {
                    return Err("writing stopped, and no call has failed".to_owned());
                }
                story.stops += 1;
            }
        }
        if random.chance(1, 3) || outcome != Outcome::Done {
            runner.fs.heal();
            runner.fs.set_capacity(None);
        }
        if swarm.crashes > 0 && random.chance(1, swarm.crashes) {
            crash(&mut random, &mut runner, &during, &mut digest)?;
            story.crashes += 1;
        } else if (outcome != Outcome::Done || random.chance(1, 4))
            && let Some(db) = &runner.db
        {
            let found = find(db, &runner.expected).map_err(|error| format!("reads fail: {error}"))?;
            runner.expected.check(&found).map_err(|what| format!("{outcome:?}, while open: {what}"))?;
            format!("{found:?}").hash(&mut digest);
            // A call that was refused as a whole may have been done in part where it is many calls.
            if !runner.poisoned {
                runner.expected.resolve(&found);
            }
        }
    }
    runner.fs.heal();
    runner.fs.set_capacity(None);
    runner.fs.record();
    let during = runner.expected.clone();
    crash(&mut random, &mut runner, &during, &mut digest)?;
    story.crashes += 1;
    let faults = runner.db().verify().map_err(|error| error.to_string())?.faults;
    if !faults.is_empty() {
        return Err(format!("verify says {faults:?}"));
    }
    story.digest = digest.finish();
    Ok(story)
}

/// Cuts the power, or kills the process, within the step that was just made, and goes on with what is recovered.
fn crash(
    random: &mut Random,
    runner: &mut Runner,
    during: &Expected,
    digest: &mut DefaultHasher,
) -> Result<(), String> {
    let end = runner.fs.steps().len();
    let ops = random.index(end + 1);
    // An open that failed changed nothing that counts; whatever was in doubt before it still is.
    let expected = if ops == end { runner.expected.clone() } else { during.clone() };
    let before = runner.fs.before_step(ops);
    let variant = random.pick(&Variant::WITHIN_CONTRACT).copied().unwrap_or(Variant::V0);
    let seed = random.next_u64();
    let (cut, image) = match random.chance(1, 4) {
        true => ("a kill".to_owned(), before),
        false => (format!("{variant:?}"), before.crash(variant, seed)),
    };
    runner.held = None;
    if let Some(db) = runner.db.take() {
        db.abandon();
    }
    let (db, found) = recover_at(&image, &runner.clock, &expected, &runner.settings)
        .map_err(|what| format!("after {cut} before step {ops} of {end} of the disk: {what}"))?;
    format!("{found:?}").hash(digest);
    runner.fs = image;
    runner.db = Some(db);
    runner.expected = expected;
    runner.expected.resolve(&found);
    (runner.poisoned, runner.failed) = (false, false);
    Ok(())
}

/// A step that makes sense now.
fn some_step(random: &mut Random, swarm: &Swarm, runner: &Runner, next_id: &mut i64) -> Step {
    const TRIES: usize = 20;
    (0..TRIES).find_map(|_| fitting(random, swarm, runner, next_id)).unwrap_or(Step::Flush)
}

fn fitting(random: &mut Random, swarm: &Swarm, runner: &Runner, next_id: &mut i64) -> Option<Step> {
    let kind = swarm.kind(random);
    if kind == Kind::Documents {
        return of_documents(random, swarm, runner, next_id);
    }
    let name = NAMES[random.index(NAMES.len())];
    let known = runner.expected.collections.get(name);
    let there = known.map_or(There::No, |known| known.there);
    let own = if random.chance(1, 3) { None } else { random.pick(&SECONDS).copied() };
    let meta = METAS[random.index(METAS.len())];
    let rule = RULES[random.index(RULES.len())];
    let seconds = SECONDS[random.index(SECONDS.len())];
    match kind {
        Kind::Create => (there == There::No).then_some(Step::Create(name, own)),
        Kind::Flush => Some(Step::Flush),
        Kind::Compact => Some(Step::Compact),
        Kind::Sweep => Some(Step::Sweep),
        Kind::Wait => Some(Step::Wait(random.pick(&[60, 3600, 5 * 3600, 20 * 3600]).copied().unwrap_or(60))),
        Kind::Reopen => Some(Step::Reopen),
        Kind::Documents => None,
        Kind::Release => Some(Step::Release),
        Kind::PutView => Some(Step::PutView("v", ["one", "two"][random.index(2)])),
        Kind::DropView => {
            let there = runner.expected.views.get("v").is_some_and(|known| !known.contains(&None));
            there.then_some(Step::DropView("v"))
        }
        _ if there != There::Yes => None,
        Kind::Rename => {
            let other = NAMES.into_iter().find(|other| *other != name)?;
            let is_free = runner.expected.collections.get(other).is_none_or(|known| known.there == There::No);
            is_free.then_some(Step::Rename(name, other))
        }
        Kind::DropCollection => Some(Step::DropCollection(name)),
        Kind::Hold => Some(Step::Hold(name)),
        Kind::Insert | Kind::InsertTogether | Kind::InsertAcross
            if known.is_some_and(|known| known.sure.len() > ROWS_MAX) =>
        {
            Some(Step::Delete(name, meta))
        }
        Kind::Insert => {
            let fields = [Fields::Plain, Fields::Plain, Fields::Extra, Fields::Long][random.index(4)];
            Some(Step::Insert(name, some_rows(random, runner, next_id), fields))
        }
        Kind::InsertTogether => {
            let batches = (0..4).map(|_| some_rows(random, runner, next_id)).collect();
            Some(Step::InsertTogether(name, batches))
        }
        Kind::InsertAcross => {
            let there = |name: &&str| runner.expected.collections.get(*name).is_some_and(|c| c.there == There::Yes);
            let names: Vec<&'static str> = NAMES.into_iter().filter(there).collect();
            let parts = names.into_iter().map(|name| (name, some_rows(random, runner, next_id))).collect();
            *next_id += 1;
            let request = random.chance(2, 3).then(|| next_id.unsigned_abs());
            Some(Step::InsertAcross(parts, request))
        }
        Kind::SetOwn => Some(Step::SetOwn(name, own)),
        Kind::Delete => Some(Step::Delete(name, meta)),
        Kind::AddRule | Kind::ModifyRule | Kind::RemoveRule => {
            let mut partial = known?.rules.iter().flat_map(|rules| &rules.partial);
            match kind {
                Kind::AddRule => partial
                    .all(|(known, (of, _))| known != rule && of != meta)
                    .then_some(Step::AddRule(name, rule, meta, seconds)),
                _ if !partial.any(|(known, _)| known == rule) => None,
                Kind::ModifyRule => Some(Step::ModifyRule(name, rule, seconds)),
                _ => Some(Step::RemoveRule(name, rule)),
            }
        }
    }
}

/// A step of an ordinary collection that makes sense now.
fn of_documents(random: &mut Random, swarm: &Swarm, runner: &Runner, next_id: &mut i64) -> Option<Step> {
    let name = OF_DOCUMENTS[random.index(OF_DOCUMENTS.len())];
    let there = |name: &str| runner.expected.documents.get(name).map_or(There::No, |known| known.there);
    match (there(name), random.below(40)) {
        (There::Maybe, _) => None,
        (There::No, _) => Some(Step::CreateDocuments(name, random.pick(&[None, Some(60), Some(3600)]).copied()?)),
        (_, 0) => Some(Step::DropCollection(name)),
        (_, 1) => {
            let other = OF_DOCUMENTS.into_iter().find(|other| *other != name)?;
            match there(other) {
                There::No => Some(Step::Rename(name, other)),
                There::Yes => Some(Step::Replace(name, other)),
                There::Maybe => None,
            }
        }
        (_, 2) => Some(Step::Hold(name)),
        (_, 3..6) => Some(Step::Documents(name, Command::Change(some_rule(random)))),
        (_, 6..8) if !seed_repeats(swarm) => {
            let commands = (0..3_i64).map(|part| {
                let ids = (0..3).map(|id| part * 10 + id);
                Command::Put(ids.map(|id| some_document(random, id, next_id)).collect())
            });
            Some(Step::DocumentsTogether(name, commands.collect()))
        }
        (_, 8..12) if swarm.settings.memtable_bytes_max > LITTLE_MEMORY => {
            let work = [Step::Flush, Step::Compact, Step::Sweep][random.index(3)].clone();
            Some(Step::Beside(Box::new(work), name, some_command(random, next_id)))
        }
        _ => Some(Step::Documents(name, some_command(random, next_id))),
    }
}

/// Whether a run has to do the same twice: threads run in no order that a seed could choose.
fn seed_repeats(swarm: &Swarm) -> bool {
    swarm.weights.iter().all(|(kind, _)| *kind != Kind::InsertTogether)
}

fn some_document(random: &mut Random, id: i64, next_id: &mut i64) -> NewDocument {
    *next_id += 1;
    let ttl = random.pick(&[None, None, Some(-1), Some(60), Some(7200)]).copied().unwrap_or(None);
    let date = random.pick(&[None, None, Some(-3600), Some(60), Some(7200)]).copied().unwrap_or(None);
    NewDocument { id, number: *next_id, ttl, date }
}

fn some_command(random: &mut Random, next_id: &mut i64) -> Command {
    let some_id = |random: &mut Random| i64::try_from(random.below(IDS)).unwrap_or(0);
    let first = some_id(random);
    match random.below(8) {
        0 => Command::Insert(some_document(random, first, next_id)),
        1 => Command::Add(Which::Ids(vec![first, first + 1, first + 2]), 1),
        2 => Command::Add([Which::All, Which::NumberAtMost(*next_id / 2)][random.index(2)].clone(), 1),
        3 => Command::Delete(Which::Ids(vec![first, first + 1])),
        _ => {
            let count = 1 + i64::try_from(random.below(6)).unwrap_or(0);
            Command::Put((first..first + count).map(|id| some_document(random, id, next_id)).collect())
        }
    }
}

fn some_rule(random: &mut Random) -> Rule {
    let seconds = random.pick(&[60, 3600, 5 * 3600]).copied().unwrap_or(60);
    match random.below(6) {
        0 => Rule::DefaultTtl(None),
        1 | 2 => Rule::DefaultTtl(Some(seconds)),
        3 => Rule::CreateIndex(seconds),
        4 => Rule::ChangeIndex(seconds),
        _ => Rule::DropIndex,
    }
}

fn some_rows(random: &mut Random, runner: &Runner, next_id: &mut i64) -> Vec<crate::expect::Row> {
    let most = if random.chance(1, 10) { 40 } else { 8 };
    let count = 1 + random.below(most) as i64;
    let ago = random.below(50) as i64 * HOUR / 2;
    let metas = &METAS[random.index(METAS.len())..];
    let first = *next_id;
    *next_id += count;
    rows(first, count, runner.expected.now + HOUR - ago, metas)
}

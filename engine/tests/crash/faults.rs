//! Tiers B and I: calls fail, and disks are full.

use ebbtide::ErrorKind;
use ebbtide::fs::sim::{Fault, FaultKind, Random, Repeat, SimFs, Variant};
use ebbtide_ttl::{Timestamp, VirtualClock};

use crate::campaign::Campaign;
use crate::cuts::{Point, record, shuffle};
use crate::rig::{ROOT, guarded, open, recover, runner_of, work_on};
use crate::runner::{Outcome, find};
use crate::script::{Scenario, Step};

/// Which faults of a scenario are run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Faults {
    /// All single ones, and a fifth more of pairs.
    Every,
    /// So many, five of six of them single ones.
    Some(usize),
}

/// Tier B: a fault at every step of a scenario, then a restart or a power cut; and pairs of faults.
pub(crate) fn fault_runs(campaign: &mut Campaign, scenario: &Scenario, budget: Faults) {
    let runner = match guarded(|| record(scenario, campaign.lie)) {
        Ok((runner, _)) => runner,
        Err(what) => return campaign.fail(scenario.name, "no fault at all", &what),
    };
    let ops = runner.fs.mutating_ops();
    // Every fault at every step that it can strike: elsewhere it would do nothing, or the same as at a later step.
    let mut runs = Vec::new();
    for op in 0..ops {
        for kind in FaultKind::ALL.into_iter().filter(|kind| runner.fs.step_can_fail(op as usize, *kind)) {
            for repeat in [Repeat::Once, Repeat::Forever] {
                runs.push(vec![(op, Fault { kind, repeat })]);
            }
        }
    }
    campaign.points += ops as usize;
    let mut random = Random::new(campaign.seed);
    shuffle(&mut runs, &mut random);
    // Once every single fault was there, pairs: a second one while the engine deals with the first.
    if let Faults::Some(share) = budget {
        runs.truncate(share - share / 6);
    }
    let singles = runs.len();
    let pairs = match budget {
        Faults::Every => runs.len() / 5,
        Faults::Some(share) => share - runs.len(),
    };
    for _ in 0..pairs {
        let first = random.below(ops);
        let second = first + 1 + random.below(8);
        let kinds = [(first, Repeat::Once), (second, Repeat::Once)];
        runs.push(kinds.map(|(op, repeat)| (op, Fault { kind: any_kind(&mut random), repeat })).to_vec());
    }
    if let Some(replay) = campaign.replay.as_ref().and_then(|replay| replay.strip_prefix(scenario.name)) {
        runs = vec![parse_faults(replay)];
    }
    for (at, faults) in runs.into_iter().enumerate() {
        let parts = faults.iter().map(|(op, fault)| format!("{op}:{:?}:{:?}", fault.kind, fault.repeat));
        let label = format!("{}:{}", scenario.name, parts.collect::<Vec<_>>().join("+"));
        if !campaign.wants(&label) {
            continue;
        }
        let verbose = campaign.replay.is_some();
        match guarded(|| one_fault(campaign, scenario, &faults, verbose)) {
            Ok(None) => {}
            Ok(Some(survived)) => {
                campaign.fired += 1;
                campaign.pairs += usize::from(at >= singles);
                campaign.survived += usize::from(survived);
            }
            Err(what) => campaign.fail(&label, "fault run", &what),
        }
    }
}

/// The faults that a label names: `:3:Eio:Once+7:Enospc:Forever`.
fn parse_faults(label: &str) -> Vec<(u64, Fault)> {
    let parse = |part: &str| {
        let mut words = part.split(':');
        let op = words.next()?.parse().ok()?;
        let (kind, repeat) = (words.next()?, words.next()?);
        let kind = FaultKind::ALL.into_iter().find(|known| format!("{known:?}") == kind)?;
        let repeat = [Repeat::Once, Repeat::Forever].into_iter().find(|known| format!("{known:?}") == repeat)?;
        Some((op, Fault { kind, repeat }))
    };
    label.trim_start_matches(':').split('+').filter_map(parse).collect()
}

fn any_kind(random: &mut Random) -> FaultKind {
    random.pick(&FaultKind::ALL).copied().unwrap_or(FaultKind::Eio)
}

/// Moments after a fault at which the power is cut.
const CUTS_AFTER_FAULT: usize = 3;

/// `None` if no fault struck; whether every step was done in spite of it.
fn one_fault(
    campaign: &mut Campaign,
    scenario: &Scenario,
    faults: &[(u64, Fault)],
    verbose: bool,
) -> Result<Option<bool>, String> {
    let op = faults.first().map_or(0, |(op, _)| *op);
    let fs = SimFs::new(ROOT);
    fs.record();
    for (op, fault) in faults {
        fs.fail_op(*op, *fault);
    }
    let mut runner = runner_of(fs.clone(), scenario);
    let mut survived = true;
    // Where the power may be cut, and what may be stored then.
    let mut points = Vec::new();
    let mut stopped = runner.open().is_err();
    for step in &scenario.steps {
        if stopped {
            break;
        }
        let from = fs.steps().len();
        let (outcome, during) = runner.step(step)?;
        if verbose {
            println!("{step:?}: {outcome:?} faults={}", fs.faults_fired());
        }
        let end = fs.steps().len();
        points.extend((from..end).map(|ops| (ops, during.clone())));
        points.push((end, runner.expected.clone()));
        survived &= outcome == Outcome::Done;
        if outcome != Outcome::Done && matches!(step, Step::Reopen) {
            stopped = true;
            continue;
        }
        // A collection that could not be made leaves the rest of the script without its subject.
        stopped =
            outcome != Outcome::Done && matches!(step, Step::Create(..) | Step::CreateDocuments(..) | Step::Hold(_));
        // Before the fault strikes, all is as it was when the scenario was recorded, which looked at every step.
        if let Some(db) = runner.db.clone().filter(|_| fs.faults_fired() > 0) {
            let found =
                find(&db, &runner.expected).map_err(|error| format!("{step:?} {outcome:?}: reads fail: {error}"))?;
            runner.expected.check(&found).map_err(|what| format!("{step:?} {outcome:?}: while open: {what}"))?;
        }
    }
    let fired = fs.faults_fired() > 0;
    if verbose {
        println!("disk: {:#?}", fs.steps());
    }
    if !fired {
        return Ok(None);
    }
    campaign.count_faults(&fs.steps());
    fs.heal();
    runner.held = None;
    // A restart of the process alone, and power cuts.
    let images = [fs.fork(), fs.crash(Variant::V0, op), fs.crash(Variant::V3, op)];
    for (which, image) in images.iter().enumerate() {
        let (db, found) = recover(image, &runner.expected, &scenario.settings)
            .map_err(|what| format!("after {}: {what}", ["a restart", "a power cut V0", "a power cut V3"][which]))?;
        if which == 0 && op.is_multiple_of(4) {
            work_on(image, db, &found, &runner.expected, &scenario.settings)?;
        }
    }
    // The power is cut, or the process killed, at some moments between the fault and the end.
    points.retain(|(ops, _)| *ops as u64 > op);
    let mut random = Random::new(op);
    for _ in 0..CUTS_AFTER_FAULT.min(points.len()) {
        let Some((ops, expected)) = random.pick(&points) else { break };
        let before = fs.before_step(*ops);
        let (cut, image) = match random.index(3) {
            0 => ("a kill".to_owned(), before),
            _ => {
                let variant = random.pick(&Variant::WITHIN_CONTRACT).copied().unwrap_or(Variant::V0);
                (format!("{variant:?}"), before.crash(variant, random.next_u64()))
            }
        };
        recover(&image, expected, &scenario.settings)
            .map_err(|what| format!("after {cut} before step {ops}: {what}"))?;
    }
    Ok(Some(survived))
}

/// A disk that is full at some size: what does not fit is refused, nothing is lost, and once there is room again the
/// same open database goes on.
pub(crate) fn full_disk_runs(campaign: &mut Campaign, scenario: &Scenario) {
    let share = (campaign.budget / crate::scenarios().len()).max(1);
    let (least, most) = match guarded(|| record(scenario, campaign.lie)) {
        Ok((runner, points)) => {
            let used = |point: &Point| runner.fs.before_step(point.ops).used();
            let opened = points.iter().position(|point| !point.context.starts_with("open")).unwrap_or(0);
            (points.get(opened).map_or(0, used), points.iter().map(used).max().unwrap_or(0))
        }
        Err(what) => return campaign.fail(scenario.name, "no fault at all", &what),
    };
    for run in 0..share as u64 {
        let room = most - least.min(most);
        // Another seed, other sizes between the same steps.
        let capacity = least + (room * run + campaign.seed.wrapping_mul(7919) % room.max(1)) / share as u64;
        let label = format!("{}:full:{capacity}", scenario.name);
        if campaign.wants(&label) {
            campaign.images += 1;
            match guarded(|| one_full_disk(scenario, capacity, campaign.replay.is_some())) {
                Ok(survived) => campaign.survived += usize::from(survived),
                Err(what) => campaign.fail(&label, "full disk", &what),
            }
        }
    }
}

fn one_full_disk(scenario: &Scenario, capacity: u64, verbose: bool) -> Result<bool, String> {
    let fs = SimFs::new(ROOT);
    fs.record();
    let mut runner = runner_of(fs.clone(), scenario);
    runner.open().map_err(|error| error.to_string())?;
    fs.set_capacity(Some(capacity.max(fs.used())));
    let mut survived = true;
    for step in &scenario.steps {
        let (outcome, _) = runner.step(step)?;
        if verbose {
            println!("{step:?}: {outcome:?} used={}", fs.used());
        }
        survived &= outcome == Outcome::Done;
        if outcome == Outcome::Unknown {
            println!("disk: {:#?}", fs.steps());
            return Err(format!("{step:?}: a full disk stopped all writing"));
        }
        if outcome != Outcome::Done && matches!(step, Step::Create(..) | Step::CreateDocuments(..) | Step::Reopen) {
            break;
        }
        if let Some(db) = runner.db.clone() {
            let found = find(&db, &runner.expected).map_err(|error| format!("{step:?} {outcome:?}: {error}"))?;
            runner.expected.check(&found).map_err(|what| format!("{step:?} {outcome:?}: while full: {what}"))?;
        }
    }
    fs.set_capacity(None);
    runner.held = None;
    if let Some(db) = &runner.db {
        // The one thing that must go on a disk without a free byte is what makes room.
        db.flush().map_err(|error| format!("seal with room again: {error}"))?;
        fs.set_capacity(Some(fs.used()));
        runner.step(&Step::Wait(1000 * 24 * 3600))?;
        let (outcome, _) = runner.step(&Step::Sweep)?;
        if outcome != Outcome::Done {
            return Err(format!("a sweep on a full disk: {outcome:?}"));
        }
        fs.set_capacity(None);
    }
    let (_, found) = recover(&fs.crash(Variant::V0, capacity), &runner.expected, &scenario.settings)?;
    if let Some(db) = runner.db.take() {
        work_on(&fs, db, &found, &runner.expected, &scenario.settings)?;
    }
    Ok(survived)
}

/// A failing read at every place of an open and a full scan: an error, never a wrong answer, and well again afterwards.
pub(crate) fn read_fault_runs(campaign: &mut Campaign, scenario: &Scenario) {
    let share = campaign.budget / crate::scenarios().len();
    let (runner, points) = match guarded(|| record(scenario, campaign.lie)) {
        Ok(recorded) => recorded,
        Err(what) => return campaign.fail(scenario.name, "no fault at all", &what),
    };
    let Some(last) = points.last() else { return };
    let disk = runner.fs.crash(Variant::V0, 1);
    let clock = VirtualClock::new(Timestamp::from_millis(last.expected.now));
    for run in 0..share as u64 {
        let (read, kind) = (run / 2, if run % 2 == 0 { FaultKind::Eio } else { FaultKind::Emfile });
        let label = format!("{}:read:{read}:{kind:?}", scenario.name);
        if !campaign.wants(&label) {
            continue;
        }
        let image = disk.fork();
        image.fail_read(read, Fault { kind, repeat: Repeat::Once });
        let outcome = guarded(|| {
            let result = open(&image, &clock, &scenario.settings).map(|db| (find(&db, &last.expected), db));
            match &result {
                Ok((Ok(found), _)) => last.expected.check(found)?,
                Err(error) | Ok((Err(error), _)) if error.kind() == ErrorKind::Corrupt => {
                    return Err(format!("a read that failed is taken for damage: {error}"));
                }
                _ => {}
            }
            image.heal();
            if let Ok((_, db)) = result {
                let found = find(&db, &last.expected).map_err(|error| format!("the error stays: {error}"))?;
                last.expected.check(&found)?;
            }
            if !image.open_handles().is_empty() {
                return Err(format!("files are open after the close: {:?}", image.open_handles()));
            }
            recover(&image, &last.expected, &scenario.settings).map(drop)
        });
        if image.faults_fired() == 0 && kind == FaultKind::Eio {
            break;
        }
        campaign.fired += usize::from(image.faults_fired() > 0);
        campaign.images += 1;
        if let Err(what) = outcome {
            campaign.fail(&label, "read fault", &what);
        }
    }
}

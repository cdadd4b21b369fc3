//! Tiers A and A2: the power is cut, or the process killed, at every step of every scenario.

use ebbtide::fs::sim::{Lie, Random, SimFs, Variant};
use ebbtide::{Database, ErrorKind, Settings};
use ebbtide_ttl::{Timestamp, VirtualClock};

use crate::campaign::Campaign;
use crate::expect::{Expected, Found};
use crate::others;
use crate::rig::{ROOT, guarded, open, recover, runner_of, work_on};
use crate::runner::{Outcome, Runner, add_more, find};
use crate::script::Scenario;

/// A moment at which the power may be cut.
pub(crate) struct Point {
    /// Steps of the disk that were made before.
    pub(crate) ops: usize,
    pub(crate) expected: Expected,
    pub(crate) context: String,
}

/// Runs a scenario without faults; every point at which it can be cut.
pub(crate) fn record(scenario: &Scenario, lie: Option<Lie>) -> Result<(Runner, Vec<Point>), String> {
    let fs = SimFs::new(ROOT);
    if let Some(lie) = lie {
        fs.lie(lie);
    }
    fs.record();
    let mut runner = runner_of(fs, scenario);
    let mut points = Vec::new();
    let empty = runner.expected.clone();
    runner.open().map_err(|error| format!("does not open: {error}"))?;
    let push =
        |points: &mut Vec<Point>, from: usize, runner: &Runner, during: &Expected, after: &Expected, step: &str| {
            let end = runner.fs.steps().len();
            for ops in from..=end {
                let expected = if ops == end { after } else { during };
                points.push(Point { ops, expected: expected.clone(), context: format!("{step}, {ops}/{end}") });
            }
        };
    push(&mut points, 0, &runner, &empty, &empty, "open");
    for (at, step) in scenario.steps.iter().enumerate() {
        let from = runner.fs.steps().len();
        let (outcome, during) = runner.step(step)?;
        if outcome != Outcome::Done {
            return Err(format!("step {at} {step:?}: {outcome:?}"));
        }
        let found = find(&runner.db(), &runner.expected).map_err(|error| error.to_string())?;
        runner.expected.check(&found).map_err(|what| format!("step {at} {step:?}, before any crash: {what}"))?;
        let name: String = format!("step {at} {step:?}").chars().take(60).collect();
        push(&mut points, from, &runner, &during, &runner.expected.clone(), &name);
    }
    Ok((runner, points))
}

/// Tiers A and A2: every point of every scenario, cut in every way; and the recovery cut again.
pub(crate) fn crash_images(campaign: &mut Campaign, scenarios: &[Scenario]) {
    let mut recorded = Vec::new();
    for scenario in scenarios {
        match guarded(|| record(scenario, campaign.lie)) {
            Ok((runner, points)) => recorded.push((scenario, runner, points)),
            Err(what) => campaign.fail(scenario.name, "no fault at all", &what),
        }
    }
    let all: usize = recorded.iter().map(|(_, _, points)| points.len()).sum();
    let rounds = campaign.budget.div_ceil(all.max(1)).max(FIRST);
    for (scenario, runner, points) in &recorded {
        campaign.points += points.len();
        let cuts = EVERY.iter().chain(SEEDED.iter().cycle()).take(rounds);
        let images = cuts.flat_map(|cut| points.iter().map(move |point| (point, *cut)));
        for (at, (point, cut)) in images.enumerate() {
            let seed = campaign.seed * 1_000_003 + at as u64;
            let image = Image { scenario, disk: &runner.fs, point, cut, seed };
            if campaign.lie.is_some() && campaign.has_failed() {
                return;
            }
            if campaign.replay.is_none() {
                one_image(campaign, &image);
            }
        }
        if let Some((ops, cut, seed)) = campaign.replay.as_deref().and_then(|label| parse_image(label, scenario.name)) {
            let point = points.iter().find(|point| point.ops == ops).expect("a point of the scenario");
            one_image(campaign, &Image { scenario, disk: &runner.fs, point, cut, seed });
        }
    }
}

/// What a label of an image says behind the name of the scenario: `:17:Power(V3):1000042`.
fn parse_image(label: &str, scenario: &str) -> Option<(usize, Cut, u64)> {
    let mut words = label.strip_prefix(scenario)?.strip_prefix(':')?.split(':');
    let ops = words.next()?.parse().ok()?;
    let cut = words.next()?;
    let cut = EVERY.into_iter().find(|known| format!("{known:?}") == cut)?;
    Some((ops, cut, words.next()?.parse().ok()?))
}

pub(crate) fn shuffle<T>(list: &mut [T], random: &mut Random) {
    for at in (1..list.len()).rev() {
        list.swap(at, random.index(at + 1));
    }
}

/// How a run ends.
#[derive(Debug, Clone, Copy)]
enum Cut {
    /// The process is killed; what it wrote is still there, whether synced or not.
    Kill,
    Power(Variant),
}

/// The first round: each point sees all of them, and the first few of them whatever the budget.
const EVERY: [Cut; 10] = [
    Cut::Power(Variant::V0),
    Cut::Power(Variant::V3),
    Cut::Kill,
    Cut::Power(Variant::V1),
    Cut::Power(Variant::V2),
    Cut::Power(Variant::V4),
    Cut::Power(Variant::V5),
    Cut::Power(Variant::V6),
    Cut::Power(Variant::V7),
    Cut::Power(Variant::V8),
];
const FIRST: usize = 2;

/// Further rounds: those in which the seed makes a difference.
const SEEDED: [Cut; 7] = [
    Cut::Power(Variant::V3),
    Cut::Power(Variant::V2),
    Cut::Power(Variant::V5),
    Cut::Power(Variant::V7),
    Cut::Power(Variant::V3),
    Cut::Power(Variant::V8),
    Cut::Kill,
];

/// A point at which a scenario is cut, and how.
struct Image<'a> {
    scenario: &'a Scenario,
    disk: &'a SimFs,
    point: &'a Point,
    cut: Cut,
    seed: u64,
}

fn one_image(campaign: &mut Campaign, image: &Image) {
    let Image { scenario, disk, point, cut, seed } = image;
    let (settings, seed) = (&scenario.settings, *seed);
    let label = format!("{}:{}:{cut:?}:{seed}", scenario.name, point.ops);
    let before = disk.before_step(point.ops);
    campaign.images += 1;
    campaign.struck(format!("cut {cut:?}"), 1);
    let (context, outcome) = match cut {
        Cut::Power(Variant::V8) => {
            let image = before.crash(Variant::V8, seed);
            match guarded(|| check_damaged(&image, disk, point, settings)) {
                Ok(Flip::Noticed) => campaign.detected += 1,
                Ok(Flip::Harmless) => campaign.harmless += 1,
                Ok(Flip::TakenForTorn) => campaign.torn += 1,
                Err(what) => campaign.fail(&label, &format!("{}, {:?}", point.context, image.damage()), &what),
            }
            return;
        }
        Cut::Power(variant) => {
            let image = before.crash(*variant, seed);
            if cuts_recovery(seed) || campaign.replay.is_some() {
                image.record();
            }
            let outcome = guarded(|| power_cut(&image, &point.expected, settings, seed));
            if campaign.replay.is_some() {
                println!("recovery: {:#?}", image.steps());
            }
            (point.context.clone(), outcome)
        }
        Cut::Kill => (point.context.clone(), guarded(|| kill(&before, &point.expected, settings, seed))),
    };
    if campaign.replay.is_some() {
        println!("disk: {:#?}", disk.steps());
    }
    match outcome {
        Ok((nested, worked_on)) => {
            campaign.nested += nested;
            campaign.struck("cut again in recovery".to_owned(), nested);
            campaign.worked_on += worked_on;
        }
        Err(what) => campaign.fail(&label, &context, &what),
    }
}

/// Whether the recovery from this image is cut too; then its steps are recorded.
fn cuts_recovery(seed: u64) -> bool {
    seed % 6 < 2
}

/// After a power cut. Returns how often the recovery was cut as well, and how often work went on afterwards.
fn power_cut(image: &SimFs, expected: &Expected, settings: &Settings, seed: u64) -> Result<(usize, usize), String> {
    others::check(image)?;
    let (db, found) = recover(image, expected, settings)?;
    let ops = image.steps().len();
    let mut random = Random::new(seed);
    match seed % 6 {
        // The recovery is cut too: at some step, and the recovery of that once more.
        _ if cuts_recovery(seed) => {
            let variant = random.pick(&Variant::WITHIN_CONTRACT).copied().unwrap_or(Variant::V0);
            let second = image.before_step(random.index(ops + 1)).crash(variant, random.next_u64());
            second.record();
            others::check(&second)?;
            same(recover(&second, expected, settings), &found)
                .map_err(|what| format!("cut again in its recovery, {variant:?}: {what}"))?;
            let third = second.before_step(random.index(second.steps().len() + 1)).crash(Variant::V3, seed);
            same(recover(&third, expected, settings), &found)
                .map_err(|what| format!("cut twice in its recovery: {what}"))?;
            Ok((2, 0))
        }
        2 => {
            work_on(image, db, &found, expected, settings)?;
            Ok((0, 1))
        }
        _ => Ok((0, 0)),
    }
}

/// After the process was killed. What is seen then stays, also if the power is cut later on, and so does what is
/// acknowledged after it.
fn kill(before: &SimFs, expected: &Expected, settings: &Settings, seed: u64) -> Result<(usize, usize), String> {
    let image = before.fork();
    others::check(&image)?;
    let (db, found) = recover(&image, expected, settings)?;
    let mut random = Random::new(seed);
    let variant = random.pick(&Variant::WITHIN_CONTRACT).copied().unwrap_or(Variant::V0);
    same(recover(&image.crash(variant, seed), expected, settings), &found)
        .map_err(|what| format!("the power was cut after the restart, {variant:?}: {what}"))?;
    let mut wanted = found;
    if wanted.collections.contains_key("c") {
        add_more(&db, &mut wanted, expected.now)?;
    }
    let after = image.crash(variant, seed);
    let clock = VirtualClock::new(Timestamp::from_millis(expected.now));
    let again = open(&after, &clock, settings).and_then(|db| find(&db, expected));
    match again {
        Ok(again) if again == wanted => Ok((2, 1)),
        Ok(again) => Err(format!("an insert after the restart, then {variant:?}: expected={wanted:?} found={again:?}")),
        Err(error) => Err(format!("an insert after the restart, then {variant:?}: {error}")),
    }
}

fn same(recovered: Result<(Database, Found), String>, found: &Found) -> Result<(), String> {
    let (_, again) = recovered?;
    if again == *found { Ok(()) } else { Err(format!("found {found:?}, then {again:?}")) }
}

/// What became of a flipped bit.
enum Flip {
    Noticed,
    Harmless,
    /// It lies in what was appended last to a log or manifest, and nothing tells it from a write that was torn.
    TakenForTorn,
}

/// After a flipped bit. An error if it made a difference and was not noticed.
fn check_damaged(image: &SimFs, disk: &SimFs, point: &Point, settings: &Settings) -> Result<Flip, String> {
    let clock = VirtualClock::new(Timestamp::from_millis(point.expected.now));
    let found = match open(image, &clock, settings).and_then(|db| find(&db, &point.expected)) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(Flip::Noticed),
        Err(error) => return Err(format!("a flipped bit gave {:?}, not corruption: {error}", error.kind())),
    };
    let Err(what) = point.expected.check(&found) else { return Ok(Flip::Harmless) };
    let last = image.damage().and_then(|damage| {
        let of_file = |step: &&String| {
            let names = [format!("append {} at ", damage.path), format!("append {}.tmp at ", damage.path)];
            names.iter().any(|name| step.contains(name))
        };
        let steps = disk.steps();
        let step = steps.get(..point.ops)?.iter().rev().find(of_file)?;
        let start: u64 = step.split(" at ").nth(1)?.split(' ').next()?.parse().ok()?;
        Some(damage.offset >= start && ["wal-", "MANIFEST-"].iter().any(|name| damage.path.contains(name)))
    });
    // What is there must be right even so.
    let wrong = found.collections.values().find_map(|collection| collection.wrong.first());
    match wrong {
        None if last == Some(true) => Ok(Flip::TakenForTorn),
        _ => Err(format!("a flipped bit was served: {what}, {wrong:?}")),
    }
}

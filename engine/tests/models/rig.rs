//! What every model needs: a database on a disk and a clock of its own, and a way to run it in many orders.
//!
//! `EBBTIDE_MODELS_SCHEDULES` says how many orders each model is run in (5,000), `EBBTIDE_MODELS_SEED` which (1). A failure
//! prints its schedule; with that in `EBBTIDE_MODELS_REPLAY` and the name of the test the very same order is run again.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebbtide::fs::sim::{SimFs, Variant};
use ebbtide::ttl::{Clock, Timestamp, Value};
use ebbtide::{Collection, CollectionOptions, Database, ScanRequest, Settings, Snapshot};
use shuttle::rand::Rng;
use shuttle::scheduler::{
    PctScheduler, RandomScheduler, ReplayScheduler, Scheduler, UncontrolledNondeterminismCheckScheduler,
};
use shuttle::thread::JoinHandle;
use shuttle::{Config, Runner};

const ROOT: &str = "/data/db";
/// Seconds after which measurements of the collection expire.
pub(crate) const LIFE: i64 = 3600;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Runs `model` in many orders of its threads: half of them by chance, the others with two or with five changes of hand at
/// points chosen by chance. A few are run twice, and must take the same steps both times. Each begins with the disk that
/// `prepare` left.
pub(crate) fn explore(prepare: fn(&World), model: fn(&SimFs)) {
    let left = Arc::<Mutex<Option<SimFs>>>::default();
    let leave = left.clone();
    run(RandomScheduler::new_from_seed(1, 1), move || {
        let world = World::new();
        prepare(&world);
        world.db.abandon();
        *leave.lock().unwrap() = Some(world.fs);
    });
    let disk = left.lock().unwrap().take().unwrap();
    let count = Arc::<AtomicUsize>::default();
    let body = {
        let count = count.clone();
        move || {
            count.fetch_add(1, Ordering::Relaxed);
            model(&disk);
        }
    };
    let explored = catch_unwind(AssertUnwindSafe(|| explore_from(body)));
    let count = count.load(Ordering::Relaxed);
    if let Err(panic) = explored {
        eprintln!("schedule number {count} failed; EBBTIDE_MODELS_REPLAY takes what is printed above");
        resume_unwind(panic);
    }
    println!("{count} schedules");
}

fn explore_from(body: impl Fn() + Clone + Send + Sync + 'static) {
    if let Ok(schedule) = std::env::var("EBBTIDE_MODELS_REPLAY") {
        run(ReplayScheduler::new_from_encoded(schedule.trim()), body);
        return;
    }
    let seed = setting("EBBTIDE_MODELS_SEED", 1);
    let schedules = usize::try_from(setting("EBBTIDE_MODELS_SCHEDULES", 5000)).unwrap();
    let (twice, few) = (schedules / 100, schedules / 4);
    run(UncontrolledNondeterminismCheckScheduler::new(RandomScheduler::new_from_seed(seed, twice)), body.clone());
    run(RandomScheduler::new_from_seed(seed, schedules - 2 * few), body.clone());
    for changes in [2, 5] {
        run(PctScheduler::new_from_seed(seed, changes + 1, few), body.clone());
    }
}

fn run(scheduler: impl Scheduler + 'static, body: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = 1 << 20; // Parquet needs more than the default of 60 KiB.
    config.silence_warnings = true; // No atomic of the engine orders anything else, so that all are as good as SeqCst.
    Runner::new(scheduler, config).run(body);
}

/// A clock of which every reading is a point where another thread may go on.
#[derive(Debug)]
pub(crate) struct ModelClock {
    time: shuttle::sync::Mutex<(Timestamp, Duration)>,
}

impl ModelClock {
    fn new() -> Arc<ModelClock> {
        Arc::new(ModelClock { time: shuttle::sync::Mutex::new((at(0), Duration::ZERO)) })
    }

    pub(crate) fn advance(&self, seconds: u32) {
        let mut time = self.time.lock().unwrap();
        time.0 = time.0.plus_seconds(i64::from(seconds));
        time.1 += Duration::from_secs(u64::from(seconds));
    }
}

impl Clock for ModelClock {
    fn now(&self) -> Timestamp {
        self.time.lock().unwrap().0
    }

    fn monotonic(&self) -> Duration {
        self.time.lock().unwrap().1
    }

    fn is_virtual(&self) -> bool {
        true
    }
}

/// An instant so many seconds into 2024.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::parse("2024-01-01T00:00:00Z").unwrap().plus_seconds(seconds)
}

/// A measurement at that instant.
pub(crate) fn reading(seconds: i64, sensor: &str, v: i64) -> Value {
    Value::Object(vec![
        ("t".into(), Value::Date(at(seconds))),
        ("sensor".into(), Value::from(sensor)),
        ("v".into(), Value::Int(v)),
    ])
}

/// A database with collection `weather`, at the start of 2024.
pub(crate) struct World {
    pub(crate) fs: SimFs,
    pub(crate) clock: Arc<ModelClock>,
    pub(crate) db: Database,
    pub(crate) weather: Collection,
}

impl World {
    /// A new one.
    fn new() -> World {
        let fs = SimFs::new(ROOT);
        let clock = ModelClock::new();
        let db = builder(&fs, &clock).open().unwrap();
        let options = CollectionOptions::new("t").meta_field("sensor").expire_after_seconds(LIFE);
        let weather = db.create_collection("weather", options).unwrap();
        World { fs, clock, db, weather }
    }

    /// The one on a copy of this disk.
    pub(crate) fn on(disk: &SimFs) -> World {
        World::with(disk, Settings::default())
    }

    pub(crate) fn with(disk: &SimFs, settings: Settings) -> World {
        let fs = disk.fork();
        let clock = ModelClock::new();
        let db = builder(&fs, &clock).settings(settings).open().unwrap();
        let weather = db.collection("weather").unwrap();
        World { fs, clock, db, weather }
    }

    /// The numbers that are visible, in order of meta, window, time, and commit.
    pub(crate) fn numbers(&self) -> Vec<i64> {
        numbers(&self.db.snapshot()).unwrap()
    }

    /// Inserts at one place, in one batch.
    pub(crate) fn insert(&self, rows: &[(i64, i64)]) {
        insert(&self.weather, rows).unwrap();
    }

    /// What a power cut now would leave, in one way chosen by chance.
    pub(crate) fn power_cut(&self) -> SimFs {
        power_cut(&self.fs)
    }

    /// Opens the database that is on this disk.
    pub(crate) fn open_on(&self, disk: &SimFs) -> Database {
        builder(disk, &self.clock).open().unwrap()
    }

    /// The segment files on the disk are those that the collection has: none too few, and none that outlived its last reader.
    pub(crate) fn assert_no_file_is_left(&self) {
        let snapshot = self.db.snapshot();
        let mut named = Vec::new();
        for name in snapshot.collections() {
            named.extend(snapshot.collection(&name).unwrap().segments().into_iter().map(|segment| segment.file));
        }
        named.sort();
        assert_eq!(segment_files(&self.fs), named);
    }

    /// The numbers in the database that is on this disk.
    pub(crate) fn numbers_on(&self, disk: &SimFs) -> Vec<i64> {
        numbers(&self.open_on(disk).snapshot()).unwrap()
    }
}

fn builder(fs: &SimFs, clock: &Arc<ModelClock>) -> ebbtide::Builder {
    let clock: Arc<dyn Clock> = clock.clone();
    Database::builder(ROOT).fs(Arc::new(fs.clone())).clock(clock)
}

/// Inserts (second, number) in one batch.
pub(crate) fn insert(weather: &Collection, rows: &[(i64, i64)]) -> ebbtide::Result<u64> {
    let documents: Vec<_> = rows.iter().map(|(seconds, v)| reading(*seconds, "roof", *v)).collect();
    weather.insert_documents(&documents)
}

/// The segment files on a disk, sorted, and the marker that stops other programs, by their paths in the database's folder.
pub(crate) fn segment_files(fs: &SimFs) -> Vec<String> {
    let files = fs.files().into_iter();
    let names = files.map(|path| path.strip_prefix(ROOT).unwrap_or(&path).to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(".parquet")).collect()
}

/// What a power cut leaves: in half of the cases no more than it must.
pub(crate) fn power_cut(fs: &SimFs) -> SimFs {
    let variants = [&[Variant::V0][..], &Variant::WITHIN_CONTRACT][below(2) as usize];
    let variant = variants[below(variants.len() as u64) as usize];
    fs.crash(variant, below(1 << 32))
}

/// The numbers in collection `weather` of a snapshot, as [`World::numbers`] has them.
pub(crate) fn numbers(snapshot: &Snapshot) -> ebbtide::Result<Vec<i64>> {
    let mut numbers = Vec::new();
    let snapshot = snapshot.collection("weather")?;
    if snapshot.schema().field_type("v").is_none() {
        return Ok(numbers);
    }
    let request = ScanRequest { projection: Some(vec!["v".into()]), ..ScanRequest::default() };
    for unit in snapshot.scan(&request)? {
        for batch in unit.read()? {
            let batch = batch?;
            numbers.extend((0..batch.num_rows()).map(|row| match ebbtide::buckets::value_at(batch.column(0), row) {
                Value::Int(v) => v,
                other => panic!("a reading of {other:?}"),
            }));
        }
    }
    Ok(numbers)
}

pub(crate) fn sorted(mut numbers: Vec<i64>) -> Vec<i64> {
    numbers.sort_unstable();
    numbers
}

/// A number below `end`, chosen by chance and repeated with the schedule.
pub(crate) fn below(end: u64) -> u64 {
    shuttle::rand::thread_rng().gen_range(0..end)
}

pub(crate) fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    shuttle::thread::spawn(work)
}

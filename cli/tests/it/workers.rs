//! Queries that workers answer: as one process does, or not at all.

use crate::cli::{Log, command, inside, write};
use crate::stores::{MOTO, python_with, s3};
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A worker in a process of its own.
pub(crate) struct Worker {
    child: Child,
    address: String,
    log: Log,
}

impl Worker {
    pub(crate) fn start(folder: &Path, args: &[&str]) -> Worker {
        let mut all = command();
        all.current_dir(folder).args(["worker", "--listen", "127.0.0.1:0"]).args(args);
        all.stdin(Stdio::null()).stdout(Stdio::piped());
        let log = Log::of(&mut all);
        let mut child = all.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Some(address) = line.trim_end().strip_prefix("worker listens at ") else {
            panic!("{line}{}: {}", child.wait().unwrap(), log.text());
        };
        Worker { child, address: address.to_owned(), log }
    }

    /// Ends it as an operator would; its exit code and its log.
    fn end(mut self) -> (Option<i32>, String) {
        let killed = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        (self.child.wait().unwrap().code(), self.log.text())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A shipped database, with the URL of its copy, and the one below which its archives are.
pub(crate) struct Shipped {
    folder: TempDir,
    pub(crate) url: String,
    archives: String,
}

impl Shipped {
    /// The weather and the hosts, and of both an archived double.
    pub(crate) fn with_everything(shipped: Shipped) -> Shipped {
        shipped.with_what_is_left_by(&[])
    }

    /// The same without what these statements delete from the weather and the hosts.
    pub(crate) fn with_what_is_left_by(self, deletes: &[&str]) -> Shipped {
        let weather = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/weather/nyc_2013_hourly.csv.gz");
        let weather = weather.to_str().unwrap();
        self.fill("weather", "station", weather);
        self.fill("cpu", "tags", &hosts(self.path()));
        deletes.iter().for_each(|statement| self.sql(statement));
        let months: Vec<String> = (1..=6)
            .map(|month| format!("time >= '2013-{month:02}-01' AND time < '2013-{:02}-01'", month + 1))
            .collect();
        let columns = "station, time, temp, dewp, humid, wind_dir, wind_speed, wind_gust, precip, pressure, visib";
        self.archive("old", "weather", columns, &months);
        let hours: Vec<String> =
            (0..6).map(|part| format!("EXTRACT(hour FROM time) BETWEEN {} AND {}", part * 4, part * 4 + 3)).collect();
        self.archive("old_cpu", "cpu", &format!("tags, time, {}", FIELDS.join(", ")), &hours);
        self.ship();
        self
    }

    pub(crate) fn new() -> Shipped {
        let folder = tempfile::tempdir().unwrap();
        let place = format!("file://{}", folder.path().display());
        Shipped::within(folder, &place)
    }

    /// With copy and archives at a place.
    fn within(folder: TempDir, place: &str) -> Shipped {
        Shipped { folder, url: format!("{place}/copy"), archives: format!("{place}/archive") }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn run(&self, args: &[&str]) -> String {
        let output = inside(self.path(), args, "");
        assert_eq!(output.code, 0, "{args:?}: {}", output.stderr);
        output.stdout
    }

    pub(crate) fn sql(&self, statement: &str) {
        self.run(&["sql", &statement.replace("ARCHIVE", &self.archives)]);
    }

    /// A collection of several segments and some open buckets.
    fn fill(&self, name: &str, meta: &str, file: &str) {
        self.sql(&format!(
            "CREATE COLLECTION {name} WITH (timeField = 'time', metaField = '{meta}') EXPIRE AFTER 20 YEARS"
        ));
        self.run(&["import", file, "--collection", name]);
        self.sql("FLUSH");
    }

    /// Copies the parts of a collection into another, which has an archive. The last part has expired too, but is not moved.
    fn archive(&self, name: &str, from: &str, columns: &str, parts: &[String]) {
        let meta = columns.split(',').next().unwrap();
        self.sql(&format!(
            "CREATE COLLECTION {name} WITH (timeField = 'time', metaField = '{meta}') EXPIRE AFTER 1 HOUR"
        ));
        self.sql(&format!("ALTER COLLECTION {name} EXPIRE AFTER 1 HOUR INTO 'ARCHIVE/{name}'"));
        for (at, part) in parts.iter().enumerate() {
            self.sql(&format!("INSERT INTO {name} ({columns}) SELECT {columns} FROM {from} WHERE {part}"));
            if at + 1 < parts.len() {
                self.run(&["sweep"]);
            }
        }
    }

    pub(crate) fn ship(&self) {
        self.run(&["ship", "--to", &self.url, "--once"]);
    }

    /// The rows of each statement, as seen at an instant.
    pub(crate) fn ask(&self, statements: &[&str], now: &str, args: &[&str]) -> Result<Vec<Vec<Value>>, String> {
        let between = "SELECT 'next' AS next";
        let mut all = vec!["sql", "--follow", &self.url, "--format", "ndjson", "--now", now];
        all.extend(args);
        for statement in statements {
            all.extend([statement, between]);
        }
        let output = inside(self.path(), &all, "");
        if output.code != 0 {
            return Err(output.stderr);
        }
        let rows: Vec<Value> = output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let mut answers: Vec<Vec<Value>> = rows.split(|row| row.get("next").is_some()).map(<[Value]>::to_vec).collect();
        assert_eq!(answers.pop(), Some(Vec::new()));
        assert_eq!(answers.len(), statements.len());
        Ok(answers)
    }
}

/// A file with the metrics of 20 hosts over a day, one row a minute: the data of TSBS in small.
fn hosts(folder: &Path) -> String {
    let fields = FIELDS.map(str::to_owned);
    let mut random = 123_u64;
    let mut next = |limit: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % limit
    };
    let mut text = String::new();
    let mut walks = vec![[50_i64; 10]; 20];
    for minute in 0..1440 {
        for (host, walk) in walks.iter_mut().enumerate() {
            let tags = format!(r#"{{"hostname":"host_{host}","region":"r{}","os":"os{}"}}"#, host % 3, host % 2);
            let (hour, minute) = (minute / 60, minute % 60);
            write!(text, r#"{{"time":"2016-01-01T{hour:02}:{minute:02}:00Z","tags":{tags}"#).unwrap();
            for (field, value) in fields.iter().zip(walk.iter_mut()) {
                *value = (*value + i64::try_from(next(9)).unwrap() - 4).clamp(0, 100);
                write!(text, r#","{field}":{value}"#).unwrap();
            }
            text.push_str("}\n");
        }
    }
    write(folder, "hosts.ndjson", &text);
    folder.join("hosts.ndjson").to_str().unwrap().to_owned()
}

const FIELDS: [&str; 10] = [
    "usage_user",
    "usage_system",
    "usage_idle",
    "usage_nice",
    "usage_iowait",
    "usage_irq",
    "usage_softirq",
    "usage_steal",
    "usage_guest",
    "usage_guest_nice",
];

fn each(function: &str, count: usize) -> String {
    let calls: Vec<String> = FIELDS[..count].iter().map(|field| format!("{function}({field})")).collect();
    calls.join(", ")
}

/// The fifteen queries of TSBS, over a collection or what is archived of it.
pub(crate) fn tsbs(from: &str) -> Vec<String> {
    let host = |count: usize| {
        let names: Vec<String> = (0..count).map(|host| format!("'host_{}'", host * 2 + 1)).collect();
        format!("tags.hostname IN ({})", names.join(", "))
    };
    let within =
        |hours: usize| format!("time >= '2016-01-01T03:17:00Z' AND time < '2016-01-01T{:02}:17:00Z'", 3 + hours);
    let max = |metrics: usize, of: usize, hours: usize, bin: &str| {
        format!(
            "SELECT date_bin('{bin}', time) AS bin, {} FROM {from} WHERE {} AND {} GROUP BY bin ORDER BY bin",
            each("max", metrics),
            host(of),
            within(hours)
        )
    };
    let by_host = |metrics: usize| {
        let avg = each("avg", metrics);
        let within = within(12);
        format!("SELECT date_bin('1 hour', time) AS bin, tags, {avg} FROM {from} WHERE {within} GROUP BY bin, tags")
    };
    let mut all: Vec<String> = [(1, 1, 1), (1, 1, 12), (1, 8, 1), (5, 1, 1), (5, 1, 12), (5, 8, 1)]
        .map(|(m, h, t)| max(m, h, t, "1 minute"))
        .into();
    all.extend([max(10, 1, 8, "1 hour"), max(10, 8, 8, "1 hour")]);
    all.extend([by_host(1), by_host(5), by_host(10)]);
    all.push(format!("SELECT * FROM {from} WHERE {} AND {} AND usage_user > 50.0", host(1), within(12)));
    all.push(format!("SELECT * FROM {from} WHERE {} AND usage_user > 70.0", within(12)));
    all.push(match from {
        "cpu" => "SELECT * FROM latest('cpu')".to_owned(),
        _ => "SELECT * FROM latest_archived('old_cpu')".to_owned(),
    });
    all.push(format!(
        "SELECT date_bin('1 minute', time) AS bin, max(usage_user) FROM {from} WHERE time < '2016-01-01T09:17:00Z' \
         GROUP BY bin ORDER BY bin DESC LIMIT 5"
    ));
    assert_eq!(all.len(), 15);
    all
}

/// The twelve queries of the benchmark of weather, over a collection or what is archived of it.
pub(crate) fn weather(from: &str) -> Vec<String> {
    let week = "time >= '2013-03-10T05:30:00Z' AND time < '2013-03-17T05:30:00Z'";
    let all = |function: &str| {
        let fields = ["temp", "dewp", "humid", "wind_dir", "wind_speed", "precip", "pressure", "visib"];
        fields.map(|field| format!("{function}({field})")).join(", ")
    };
    let half = "time >= '2013-03-10T05:30:00Z' AND time < '2013-03-10T17:30:00Z'";
    let day = "time >= '2013-03-10T05:30:00Z' AND time < '2013-03-11T05:30:00Z'";
    let (hour, minute) = ("date_bin('3600 seconds', time) AS bin", "date_bin('60 seconds', time) AS bin");
    let (one, some) = ("station = 'EWR'", "station IN ('EWR', 'LGA')");
    let last = match from {
        "weather" => "SELECT * FROM latest('weather')".to_owned(),
        from => format!("SELECT station, last(temp, time) FROM {from} GROUP BY station"),
    };
    vec![
        format!("SELECT * FROM {from} WHERE {one} AND {half}"),
        format!("SELECT {minute}, max(temp) FROM {from} WHERE {one} AND {half} GROUP BY bin ORDER BY bin"),
        format!("SELECT {hour}, max(temp), max(humid) FROM {from} WHERE {some} AND {day} GROUP BY bin ORDER BY bin"),
        format!("SELECT {hour}, {} FROM {from} WHERE {some} AND {week} GROUP BY bin ORDER BY bin", all("max")),
        format!("SELECT {hour}, station, avg(temp) FROM {from} WHERE {week} GROUP BY bin, station"),
        format!("SELECT {hour}, station, {} FROM {from} WHERE {week} GROUP BY bin, station", all("avg")),
        format!(
            "SELECT {minute}, max(temp) FROM {from} WHERE time < '2013-04-10T05:30:00Z' \
             GROUP BY bin ORDER BY bin DESC LIMIT 5"
        ),
        format!("SELECT * FROM {from} WHERE {week} AND temp > 35.0"),
        last,
        format!("SELECT count(*) FROM {from}"),
        format!("SELECT min(temp), max(temp), avg(temp) FROM {from}"),
        format!("SELECT {hour}, avg(temp) FROM {from} WHERE {some} GROUP BY bin ORDER BY bin"),
    ]
}

fn close(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| close(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| close(a, b)))
        }
        (a, b) => a == b,
    }
}

/// Whether two answers are the same, in the same order if the statement asks for one.
pub(crate) fn agree(statement: &str, mut one: Vec<Value>, mut other: Vec<Value>) {
    if !statement.contains("ORDER BY") {
        let key = |row: &Value| {
            let row = row.as_object().unwrap();
            ["bin", "time", "station", "tags"].map(|name| row.get(name).map(ToString::to_string))
        };
        one.sort_by_key(key);
        other.sort_by_key(key);
    }
    assert!(!one.is_empty(), "{statement} finds nothing");
    assert_eq!(one.len(), other.len(), "{statement}");
    for (one, other) in one.iter().zip(&other) {
        assert!(close(one, other), "{statement}\n{one}\n{other}");
    }
}

pub(crate) fn addresses(workers: &[Worker]) -> String {
    workers.iter().map(|worker| worker.address.as_str()).collect::<Vec<_>>().join(",")
}

/// An instant at which the first weeks of the weather have expired, by the clock of the session alone.
pub(crate) const NOW: &str = "2033-02-20T12:00:00Z";

#[test]
fn texts_are_found_in_copies_and_archives_with_workers_and_without() {
    let shipped = Shipped::new();
    shipped.sql("CREATE COLLECTION logs WITH (timeField = 'time', metaField = 'host')");
    shipped.sql(
        "INSERT INTO logs (host, time, trace, message)
         SELECT 'h' || (value % 3), to_timestamp_seconds(1451606400 + value), lpad(to_hex(value * 2654435761 % 4294967296), 8, '0'),
             'request ' || (value % 7) || ' served, id=' || lpad(to_hex(value * 40503 % 4294967296), 8, '0')
             || lpad(to_hex(value * 2654435761 % 4294967296), 8, '0')
         FROM generate_series(0, 29999)",
    );
    shipped.sql("FLUSH");
    let parts = [(0, 10_000), (10_000, 20_000), (20_000, 30_000)].map(|(from, to)| {
        let time = |seconds: u64| format!("to_timestamp_seconds({})", 1_451_606_400 + seconds);
        format!("time >= {} AND time < {}", time(from), time(to))
    });
    shipped.archive("old", "logs", "host, time, trace, message", &parts);
    shipped.ship();
    let mut statements = Vec::new();
    for from in ["logs", "archived('old')"] {
        for line in [7_u64, 15_003, 29_998, 40_000] {
            let (trace, other) = (line * 2_654_435_761 % 4_294_967_296, line * 40_503 % 4_294_967_296);
            for condition in [
                format!("message LIKE '%id={other:08x}{trace:08x}'"),
                format!("trace = '{trace:08x}'"),
                format!("trace = '{trace:08x}' OR message LIKE '%{other:08x}%'"),
            ] {
                statements.push(format!("SELECT time, host, trace FROM {from} WHERE {condition} ORDER BY time"));
                // The same without a column that could have a filter.
                let condition = condition.replace("message", "(message || '')").replace("trace =", "(trace || '') =");
                statements.push(format!("SELECT time, host, trace FROM {from} WHERE {condition} ORDER BY time"));
            }
        }
    }
    let statements: Vec<&str> = statements.iter().map(String::as_str).collect();
    let alone = shipped.ask(&statements, NOW, &[]).unwrap();
    for (pair, rows) in statements.chunks(2).zip(alone.chunks(2)) {
        assert_eq!(rows[0], rows[1], "{}", pair[0]);
    }
    assert_eq!(alone.iter().filter(|rows| rows.len() == 1).count(), 2 * 2 * 3 * 3);
    let allowed = ["--allow", shipped.url.as_str()];
    let workers: Vec<Worker> = (0..2).map(|_| Worker::start(shipped.path(), &allowed)).collect();
    let named = addresses(&workers);
    assert_eq!(shipped.ask(&statements, NOW, &["--workers", &named]).unwrap(), alone);
}

#[test]
fn three_workers_answer_what_one_process_does() {
    check_three_workers(&Shipped::with_everything(Shipped::new()));
}

/// The part that needs the environment of a server: run again by the test below.
#[test]
fn on_a_server() {
    let Ok(url) = std::env::var("EBBTIDE_LAKE_URL") else { return };
    check_three_workers(&Shipped::with_everything(Shipped::within(tempfile::tempdir().unwrap(), &url)));
}

#[test]
fn three_workers_answer_what_one_process_does_over_an_s3_server() {
    let Some(python) = python_with("moto.server") else { return };
    s3(&python, MOTO).run_test("workers::on_a_server");
}

fn check_three_workers(shipped: &Shipped) {
    let caches: Vec<PathBuf> = (0..3).map(|at| shipped.path().join(format!("cache{at}"))).collect();
    let start =
        |cache: &PathBuf| Worker::start(shipped.path(), &["--allow", &shipped.url, "--cache", cache.to_str().unwrap()]);
    let workers: Vec<Worker> = caches.iter().map(start).collect();
    let mut statements = tsbs("cpu");
    statements.extend(tsbs("archived('old_cpu')"));
    statements.extend(weather("weather"));
    statements.extend(weather("archived('old')"));
    statements.push(
        "SELECT count(*), min(time) FROM weather UNION ALL SELECT count(*), min(time) FROM archived('old') ORDER BY 1"
            .to_owned(),
    );
    statements.push(
        "SELECT a.station, count(*) AS n, sum(b.temp) FROM weather a JOIN weather b ON a.station = b.station AND a.time = b.time \
         GROUP BY a.station ORDER BY a.station"
            .to_owned(),
    );
    statements.push("SELECT station, time, avg(temp) OVER (PARTITION BY station ORDER BY time ROWS 3 PRECEDING) AS a FROM weather ORDER BY station, time LIMIT 50".to_owned());
    let statements: Vec<&str> = statements.iter().map(String::as_str).collect();
    let alone = shipped.ask(&statements, NOW, &[]).unwrap();
    let shared = shipped.ask(&statements, NOW, &["--workers", &addresses(&workers)]).unwrap();
    for ((statement, alone), shared) in statements.iter().zip(alone).zip(shared) {
        agree(statement, alone, shared);
    }
    let explain = "EXPLAIN SELECT station, sum(temp) FROM archived('old') GROUP BY station";
    let plan = shipped.run(&["sql", "--follow", &shipped.url, "--workers", &addresses(&workers), explain]);
    let scan = plan.lines().find(|line| line.starts_with("- reads what has expired of old"));
    assert!(scan.is_some_and(|scan| scan.ends_with("; 3 tasks on workers read a part each")), "{plan}");
    let sent = ["- 3 tasks on workers send each row to the task for its key", "- gets the rows of 3 tasks on workers"];
    assert!(sent.iter().any(|words| plan.contains(words)) && !plan.contains("network"), "{plan}");
    for worker in workers {
        let (code, log) = worker.end();
        assert_eq!((code, log.as_str()), (Some(0), ""));
    }
    // Each has kept its own part of the segments.
    let kept = |cache: &PathBuf| {
        let names = cache.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".copied")).collect::<Vec<_>>()
    };
    let mut all: Vec<String> = caches.iter().flat_map(kept).collect();
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!((count, count > 2), (all.len(), true), "{all:?}");
}

/// A collection with one segment for each of six days.
fn days() -> Shipped {
    let shipped = Shipped::new();
    shipped.sql("CREATE COLLECTION doors WITH (timeField = 't', metaField = 'door')");
    for day in 1..=6 {
        more(&shipped, day);
    }
    shipped.ship();
    shipped
}

fn more(shipped: &Shipped, day: u32) {
    let row =
        |hour: u32| format!("('2024-06-{day:02}T{:02}:{:02}:00Z', 'd{}', {hour})", hour / 60, hour % 60, hour % 7);
    let rows: Vec<String> = (0..1_000).map(row).collect();
    shipped.sql(&format!("INSERT INTO doors (t, door, opened) VALUES {}", rows.join(", ")));
    shipped.sql("FLUSH");
}

const SUMS: &str = "SELECT door, count(*), sum(opened) FROM doors GROUP BY door ORDER BY door";
/// An instant at which nothing of the days has expired.
pub(crate) const THEN: &str = "2024-06-30T00:00:00Z";

fn allowed(shipped: &Shipped) -> Worker {
    Worker::start(shipped.path(), &["--allow", &shipped.url])
}

#[test]
fn subqueries_for_single_values_are_answered_with_workers() {
    let shipped = days();
    let worker = allowed(&shipped);
    let statements = [
        "SELECT count(*) AS n FROM doors WHERE opened > (SELECT avg(opened) FROM doors)",
        "SELECT door, sum(opened) - (SELECT min(opened) FROM doors WHERE door = 'd1') AS s FROM doors GROUP BY door ORDER BY door",
        "SELECT (SELECT max(t) FROM doors) AS t, (SELECT count(*) FROM doors) AS n",
        SUMS,
    ];
    let ask = |statements: &[&str], args: &[&str]| shipped.ask(statements, THEN, args);
    let shared = ask(&statements, &["--workers", &worker.address]).unwrap();
    for ((statement, alone), shared) in statements.iter().zip(ask(&statements, &[]).unwrap()).zip(shared) {
        agree(statement, alone, shared);
    }
    let of_many = "SELECT (SELECT opened FROM doors) AS opened";
    for args in [&[][..], &["--workers", &worker.address]] {
        let error = ask(&[of_many], args).unwrap_err();
        assert!(error.contains("more than one row"), "{error}");
    }
}

#[test]
fn a_worker_that_is_gone_is_an_error_with_its_address() {
    let shipped = days();
    let mut workers: Vec<Worker> = (0..3).map(|_| allowed(&shipped)).collect();
    let named = addresses(&workers);
    let alone = shipped.ask(&[SUMS], THEN, &[]).unwrap();
    assert_eq!(shipped.ask(&[SUMS], THEN, &["--workers", &named]).unwrap(), alone);
    let gone = workers.remove(1).address.clone();
    let error = shipped.ask(&[SUMS], THEN, &["--workers", &named]).unwrap_err();
    assert!(error.contains(&format!("worker {gone} cannot be reached: ")), "{error}");
    assert_eq!(shipped.ask(&[SUMS], THEN, &["--workers", &addresses(&workers)]).unwrap(), alone);
}

#[test]
fn a_worker_that_is_killed_meanwhile_never_makes_a_part_of_an_answer() {
    let shipped = days();
    let statement = "SELECT t, door, opened FROM doors";
    let (mut whole, mut failed) = (0, 0);
    for round in 0..8_u32 {
        let mut workers: Vec<Worker> = (0..3).map(|_| allowed(&shipped)).collect();
        let mut query = command();
        query.current_dir(shipped.path()).args(["sql", "--follow", &shipped.url, "--format", "csv", "--now", THEN]);
        query.args(["--workers", &addresses(&workers), statement, SUMS, statement]);
        query.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut query = query.spawn().unwrap();
        let mut lines = BufReader::new(query.stdout.take().unwrap()).lines();
        // One or all, at another row each time; in the first two rounds before there is one.
        let before = usize::try_from(round / 2 * 2_000).unwrap();
        let mut rows = lines.by_ref().take(before).map_while(Result::ok).count();
        workers.drain(if round % 2 == 0 { 1..2 } else { 0..3 });
        rows += lines.map_while(Result::ok).count();
        match query.wait().unwrap().success() {
            true => {
                assert_eq!(rows, 2 * 6_001 + 8, "round {round}");
                assert!(round > 1, "no worker was left, or one was missing");
                whole += 1;
            }
            false => failed += 1,
        }
    }
    println!("{whole} were whole, {failed} failed");
}

/// Whether something was sent to a port of this machine that the program there has not read.
#[cfg(target_os = "linux")]
fn is_asked(port: u16) -> bool {
    let local = format!("0100007F:{port:04X}");
    let connections = std::fs::read_to_string("/proc/net/tcp").unwrap();
    connections.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let unread = words.get(4).and_then(|queues| queues.split_once(':')).map(|(_, unread)| unread);
        words.get(1) == Some(&local.as_str()) && unread.is_some_and(|unread| unread != "00000000")
    })
}

#[cfg(target_os = "linux")]
#[test]
fn one_worker_of_three_that_is_killed_within_its_part_is_an_error_with_its_address() {
    let shipped = days();
    for at in 0..3 {
        let mut workers: Vec<Worker> = (0..3).map(|_| allowed(&shipped)).collect();
        let address = workers[at].address.clone();
        // It is asked for its part, and does nothing more.
        let stopped = Command::new("kill").args(["-STOP", &workers[at].child.id().to_string()]).status();
        assert!(stopped.unwrap().success());
        let mut query = command();
        query.current_dir(shipped.path()).args(["sql", "--follow", &shipped.url, "--now", THEN]);
        query.args(["--workers", &addresses(&workers), "SELECT t, door, opened FROM doors"]);
        query.stdin(Stdio::null()).stdout(Stdio::null());
        let log = Log::of(&mut query);
        let mut query = query.spawn().unwrap();
        let port = address.rsplit_once(':').unwrap().1.parse().unwrap();
        while !is_asked(port) {
            assert!(query.try_wait().unwrap().is_none(), "{}", log.text());
        }
        drop(workers.remove(at));
        assert!(!query.wait().unwrap().success());
        let text = log.text();
        assert!(text.contains(&address), "{text}");
    }
}

#[cfg(all(target_os = "linux", feature = "server"))]
#[test]
fn a_hangup_ends_a_worker_in_good_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut worker = Worker::start(folder.path(), &["--allow", "file:///elsewhere"]);
    assert!(Command::new("kill").args(["-HUP", &worker.child.id().to_string()]).status().unwrap().success());
    assert_eq!(worker.child.wait().unwrap().code(), Some(0), "{}", worker.log.text());
}

#[test]
fn a_newer_state_of_the_copy_is_that_of_the_next_query() {
    let shipped = days();
    let workers = [allowed(&shipped), allowed(&shipped)];
    let named = addresses(&workers);
    let count = |args: &[&str]| shipped.ask(&["SELECT count(*) AS n FROM doors"], THEN, args).unwrap();
    let rows = |n: u64| vec![vec![serde_json::json!({ "n": n })]];
    assert_eq!(count(&["--workers", &named]), rows(6_000));
    more(&shipped, 7);
    shipped.sql("DELETE FROM doors WHERE door = 'd0'");
    shipped.ship();
    let alone = count(&[]);
    assert_eq!(count(&["--workers", &named]), alone);
    assert_eq!(alone, rows(7 * (1_000 - 143)));
}

#[test]
fn a_worker_answers_only_those_with_its_token_and_reads_only_what_it_may() {
    let shipped = days();
    write(shipped.path(), "token", "a-secret-of-24-characters");
    write(shipped.path(), "other", "another-secret-altogether");
    let worker = Worker::start(shipped.path(), &["--allow", &shipped.url, "--token-file", "token"]);
    let with = |more: &[&str]| shipped.ask(&[SUMS], THEN, &[&["--workers", worker.address.as_str()], more].concat());
    for wrong in [&[] as &[&str], &["--token-file", "other"]] {
        let error = with(wrong).unwrap_err();
        assert!(error.contains("the token is wrong or missing"), "{error}");
    }
    assert!(with(&["--token-file", "token"]).is_ok());

    let elsewhere = Worker::start(shipped.path(), &["--allow", "file:///elsewhere"]);
    let error = shipped.ask(&[SUMS], THEN, &["--workers", &elsewhere.address]).unwrap_err();
    assert!(error.contains("it may not read file://"), "{error}");
    for url in ["file:///elsewhere", "elsewhere"] {
        let mut worker = Worker::start(shipped.path(), &["--allow", url]);
        while !worker.log.text().contains("no copy is opened here yet") {
            assert!(worker.child.try_wait().unwrap().is_none(), "{}", worker.log.text());
        }
    }

    let small = Worker::start(shipped.path(), &["--allow", &shipped.url, "--memory", "1"]);
    let error = shipped.ask(&[SUMS], THEN, &["--workers", &small.address]).unwrap_err();
    assert!(error.contains("it ran out of memory") && error.contains("a larger --memory"), "{error}");
    let error = shipped.ask(&[SUMS], THEN, &["--workers", "10.0.0.7"]).unwrap_err();
    assert!(error.contains("write HOST:PORT"), "{error}");

    let refused = |args: &[&str]| {
        let output = inside(shipped.path(), &[&["worker", "--allow", shipped.url.as_str()], args].concat(), "");
        assert_ne!(output.code, 0, "{args:?}");
        output.stderr
    };
    assert!(refused(&["--listen", "0.0.0.0:0"]).contains("give it a token"));
    write(shipped.path(), "short", "abc");
    assert!(refused(&["--token-file", "short"]).contains("at least 16"));
}

//! A random database, and a plain model of its visible rows.

use super::draw::Draw;
use super::text::quoted;
use ebbtide::{CollectionOptions, Database, Durability, Settings};
use ebbtide_query::{Session, SessionSettings};
use ebbtide_ttl::{Clock, ExpiryMode, OutOfRange, Precision, Timestamp, Value, VirtualClock};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

/// 2024-01-01T00:00:00Z.
const FIRST_SECOND: i64 = 1_704_067_200;
/// The end of the range of times outside which expiry is suspended.
const LAST_SECOND: i128 = 2_147_483_648;
const DAYS: i64 = 4;
/// Number of changes to a database before the next one is used.
pub(crate) const PHASES: u64 = 5;

/// The kind of values in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Distinct integers, never null.
    Key,
    /// Small integers.
    Int,
    /// The ends of int64, and integers that a double cannot hold.
    Wide,
    /// Doubles whose sums are exact; also NaN, infinities and -0.0.
    Number,
    /// Doubles of any size.
    Wild,
    Text,
    Bool,
    Time(Precision),
    /// `{a: int, c: text}`.
    Object,
    /// Integers.
    List,
    /// `{id: int, region: text, site: {floor: int}}`.
    Tags,
}

#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The phase in which the column is added.
    since: u64,
    /// The phase in which an integer column gets fractions.
    widens: Option<u64>,
    specials: bool,
}

struct Row {
    time: i64,
    meta: usize,
    values: Vec<Value>,
}

struct Rule {
    seconds: i64,
    /// The metas of the pool that the rule covers; all if `None`.
    metas: Option<Vec<usize>>,
}

pub(crate) struct Table {
    pub(crate) name: &'static str,
    /// The kind of metas, if the collection has a meta field.
    pub(crate) meta: Option<Kind>,
    pub(crate) pool: Vec<Value>,
    pub(crate) precision: Precision,
    pub(crate) fields: Vec<Field>,
    /// Whether times are unique.
    pub(crate) unique_times: bool,
    /// Whether times are at the ends of the precision's range.
    pub(crate) ends: bool,
    expiry: ExpiryMode,
    out_of_range: OutOfRange,
    span: i64,
    rows: Vec<Row>,
    rules: Vec<Rule>,
    next_key: i64,
}

pub(crate) struct World {
    seed: u64,
    pub(crate) phase: u64,
    /// Keys of the rows to insert; all if `None`. For reducing a failure.
    keep: Option<Vec<i64>>,
    now: i64,
    pub(crate) tables: Vec<Table>,
    /// A log of what was done, for people.
    pub(crate) story: Vec<String>,
    database: Database,
    clock: VirtualClock,
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) fast: Session,
    pub(crate) slow: Session,
    _folder: tempfile::TempDir,
}

fn object(members: &[(&str, Value)]) -> Value {
    Value::Object(members.iter().map(|(name, value)| ((*name).into(), value.clone())).collect())
}

fn pool(kind: Kind) -> Vec<Value> {
    let text = |t: &str| Value::String(t.to_owned());
    match kind {
        Kind::Text => {
            let long = "long ".repeat(80);
            let texts = ["a", "b", "it's", "", "Ä\n", " a ", "A", "NULL", "e\u{301}", long.as_str()];
            texts.into_iter().map(text).chain([Value::Null]).collect()
        }
        Kind::Int => [7, -1, 0, 3].into_iter().map(Value::Int).chain([Value::Null, Value::Int(12)]).collect(),
        Kind::Wide => WIDE.into_iter().map(Value::Int).chain([Value::Null]).collect(),
        Kind::Number => {
            let numbers = [0.5, -2.0, 2.25, 0.0].into_iter().chain(SPECIAL);
            numbers.map(Value::Double).chain([Value::Null]).collect()
        }
        Kind::Time(precision) => {
            let second = 1_000_000_000 / nanos(precision);
            let units = [FIRST_SECOND * second, 0, -1, i64::MIN, i64::MAX];
            units.into_iter().map(|at| Value::Date(Timestamp::from_units(at, precision))).chain([Value::Null]).collect()
        }
        Kind::Bool => vec![Value::Bool(true), Value::Bool(false), Value::Null],
        Kind::List => vec![
            Value::Array(vec![Value::Int(1), Value::Int(2)]),
            Value::Array(vec![Value::Int(2)]),
            Value::Array(vec![]),
            Value::Array(vec![Value::Int(2), Value::Int(1)]),
            Value::Array(vec![Value::Null]),
            Value::Null,
        ],
        _ => {
            let floor = |floor: i64| object(&[("floor", Value::Int(floor))]);
            vec![
                object(&[("id", Value::Int(1)), ("region", text("north")), ("site", floor(3))]),
                object(&[("id", Value::Int(2)), ("region", text("south")), ("site", floor(3))]),
                object(&[("id", Value::Int(3)), ("region", text("north"))]),
                object(&[("id", Value::Int(1))]),
                object(&[("region", text("")), ("site", floor(-1))]),
                object(&[]),
                object(&[("site", object(&[]))]),
                object(&[("id", Value::Null), ("region", text("it's"))]),
                Value::Null,
            ]
        }
    }
}

impl Table {
    fn draw(name: &'static str, draw: &mut Draw) -> Table {
        let precision = *draw.one(&[Precision::Ms, Precision::Ms, Precision::Us, Precision::Ns]);
        let metas = [
            None,
            Some(Kind::Text),
            Some(Kind::Text),
            Some(Kind::Int),
            Some(Kind::Wide),
            Some(Kind::Number),
            Some(Kind::Bool),
            Some(Kind::Time(precision)),
            Some(Kind::List),
            Some(Kind::Tags),
            Some(Kind::Tags),
            Some(Kind::Tags),
        ];
        let meta = *draw.one(&metas);
        let kinds = [
            ("i", Kind::Int),
            ("j", Kind::Wide),
            ("d", Kind::Number),
            ("e", Kind::Wild),
            ("x", Kind::Text),
            ("b", Kind::Bool),
            ("u", Kind::Time(precision)),
            ("o", Kind::Object),
            ("l", Kind::List),
        ];
        let mut fields = vec![Field { name: "k", kind: Kind::Key, since: 1, widens: None, specials: false }];
        for (name, kind) in kinds {
            // Most statements are about integers and doubles.
            let wanted = matches!(name, "i" | "d") || !draw.once_in(3);
            let since = if draw.once_in(4) { 2 + draw.below(2) as u64 } else { 1 };
            let widens = (name == "i" && draw.once_in(5)).then(|| since + 1);
            let specials = draw.once_in(3);
            if wanted {
                fields.push(Field { name, kind, since, widens, specials });
            }
        }
        let ends = draw.once_in(8);
        Table {
            name,
            meta,
            pool: meta.map_or_else(|| vec![Value::Null], pool),
            precision,
            fields,
            unique_times: !ends && draw.once_in(2),
            ends,
            expiry: if draw.once_in(8) { ExpiryMode::Bucket } else { ExpiryMode::Exact },
            out_of_range: *draw.one(&[OutOfRange::Suspend, OutOfRange::Expire]),
            span: *draw.one(&[600, 3_600, 3_600, 86_400]),
            rows: Vec::new(),
            rules: Vec::new(),
            next_key: 0,
        }
    }

    pub(crate) fn nanos(&self) -> i64 {
        nanos(self.precision)
    }

    fn instant(&self, units: i64) -> i128 {
        i128::from(units) * i128::from(self.nanos())
    }

    /// The columns that exist in this phase, with the kinds of their values.
    pub(crate) fn columns(&self, phase: u64) -> impl Iterator<Item = (&'static str, Kind)> + '_ {
        let meta = self.meta.map(|kind| ("s", kind));
        let field = move |field: &Field| match field.widens {
            Some(widens) if widens <= phase => (field.name, Kind::Number),
            _ => (field.name, field.kind),
        };
        let fields = self.fields.iter().filter(move |f| f.since <= phase).map(field);
        std::iter::once(("t", Kind::Time(self.precision))).chain(meta).chain(fields)
    }

    fn suspended(&self) -> bool {
        let outside = |row: &Row| !(0..LAST_SECOND * 1_000_000_000).contains(&self.instant(row.time));
        self.out_of_range == OutOfRange::Suspend && self.rows.iter().any(outside)
    }

    fn seconds(&self, row: &Row) -> Option<i64> {
        let applies = |rule: &&Rule| rule.metas.as_ref().is_none_or(|metas| metas.contains(&row.meta));
        self.rules.iter().filter(applies).map(|rule| rule.seconds).min()
    }

    fn visible(&self, now: i64) -> impl Iterator<Item = &Row> {
        let all = self.expiry == ExpiryMode::Bucket || self.suspended();
        let now = i128::from(now) * 1_000_000_000;
        self.rows.iter().filter(move |row| {
            let expired =
                self.seconds(row).is_some_and(|s| self.instant(row.time) + i128::from(s) * 1_000_000_000 <= now);
            all || !expired
        })
    }

    /// A time of some row, if there is one.
    pub(crate) fn some_time(&self, draw: &mut Draw) -> Option<i64> {
        (!self.rows.is_empty()).then(|| self.rows[draw.below(self.rows.len())].time)
    }

    fn draw_time(&self, key: i64, draw: &mut Draw) -> i64 {
        let units = 1_000_000_000 / self.nanos();
        if self.unique_times {
            // The keys of one insert are consecutive, its times are not.
            let scattered = key * 7_919 % 100_003;
            return (FIRST_SECOND + scattered * 3) * units + draw.between(0, units - 1);
        }
        if self.ends && draw.once_in(4) {
            return *draw.one(&[i64::MIN, i64::MIN + 1, -1, 0, LAST_SECOND as i64 * units, i64::MAX - 1, i64::MAX]);
        }
        // Many rows share a time.
        let second = FIRST_SECOND
            + draw.between(0, DAYS * 24 * 6) * 600
            + if draw.once_in(3) { draw.between(0, 599) } else { 0 };
        second * units + if draw.once_in(4) { draw.between(0, units - 1) } else { 0 }
    }

    fn draw_value(&self, field: &Field, phase: u64, first: bool, draw: &mut Draw) -> Value {
        if field.since > phase || (!first && field.kind != Kind::Key && draw.once_in(5)) {
            return Value::Null;
        }
        let text = |t: &&str| Value::String((*t).to_owned());
        match field.kind {
            Kind::Int if field.widens == Some(phase) && first => Value::Double(0.5),
            Kind::Int if field.widens.is_some_and(|w| w <= phase) => Value::Double(draw.between(-20, 40) as f64 / 2.0),
            Kind::Int => Value::Int(draw.between(-5, 20)),
            Kind::Wide => Value::Int(*draw.one(&WIDE)),
            Kind::Number if field.specials && draw.once_in(6) => Value::Double(*draw.one(&SPECIAL)),
            Kind::Number => Value::Double(draw.between(-400, 400) as f64 / 8.0),
            Kind::Wild => Value::Double(match draw.below(3) {
                0 => *draw.one(&WILD),
                1 => Some(f64::from_bits(draw.next())).filter(|d| d.is_finite()).unwrap_or(1.5),
                _ => draw.between(-1_000_000, 1_000_000) as f64 / 1_000.0,
            }),
            Kind::Text => text(draw.one(&TEXTS)),
            Kind::Bool => Value::Bool(draw.once_in(2)),
            Kind::Time(precision) => {
                Value::Date(Timestamp::from_units(self.draw_time(draw.between(0, 99), draw), precision))
            }
            Kind::Object => {
                let (a, c) = (Value::Int(draw.between(0, 3)), text(draw.one(&TEXTS)));
                match draw.below(if first { 1 } else { 3 }) {
                    0 => object(&[("a", a), ("c", c)]),
                    1 => object(&[("a", a)]),
                    _ => object(&[("c", c)]),
                }
            }
            Kind::List => {
                let most = if first { 1 } else { 0 };
                Value::Array((0..most + draw.below(3)).map(|_| Value::Int(draw.between(0, 3))).collect())
            }
            Kind::Key | Kind::Tags => unreachable!("keys are counted, tags are metas"),
        }
    }

    fn draw_rows(&mut self, phase: u64, count: usize, draw: &mut Draw) -> Vec<Row> {
        let row = |at: usize, draw: &mut Draw| {
            let key = self.next_key + at as i64;
            let value = |field: &Field| match field.kind {
                Kind::Key => Value::Int(key),
                // The first value of a field has all its members.
                _ => {
                    let first = at == 0 && (field.since == phase || field.widens == Some(phase));
                    self.draw_value(field, phase, first, draw)
                }
            };
            let values = self.fields.iter().map(value).collect();
            let meta = if at == 0 { 0 } else { draw.below(self.pool.len()) };
            Row { time: self.draw_time(key, draw), meta, values }
        };
        let rows = (0..count).map(|at| row(at, draw)).collect();
        self.next_key += count as i64;
        rows
    }

    fn document(&self, row: &Row) -> Value {
        let mut members = vec![("t".into(), Value::Date(Timestamp::from_units(row.time, self.precision)))];
        if self.meta.is_some() {
            members.push(("s".into(), self.pool[row.meta].clone()));
        }
        members.extend(self.fields.iter().zip(&row.values).map(|(field, value)| (field.name.into(), value.clone())));
        Value::Object(members)
    }

    /// Statements that create the table of visible rows in DuckDB, with times as counts of units.
    fn script(&self, phase: u64, now: i64) -> Vec<String> {
        let columns: Vec<(&str, Kind)> = self.columns(phase).collect();
        let types: Vec<String> = columns.iter().map(|(name, kind)| format!("{name} {}", type_name(*kind))).collect();
        let mut script = vec![format!("CREATE OR REPLACE TABLE {} ({})", self.name, types.join(", "))];
        let mut values = String::new();
        for row in self.visible(now) {
            let cells = columns.iter().map(|(name, kind)| match *name {
                "t" => row.time.to_string(),
                "s" => literal(&self.pool[row.meta], *kind),
                name => {
                    let at = self.fields.iter().position(|f| f.name == name).unwrap();
                    literal(&row.values[at], *kind)
                }
            });
            let cells: Vec<String> = cells.collect();
            let _ = write!(values, "{}({})", if values.is_empty() { "" } else { ", " }, cells.join(", "));
        }
        if !values.is_empty() {
            script.push(format!("INSERT INTO {} VALUES {values}", self.name));
        }
        script
    }
}

pub(crate) const WIDE: [i64; 9] =
    [i64::MIN, i64::MIN + 1, -9_007_199_254_740_993, -1, 0, 1, 9_007_199_254_740_993, i64::MAX - 1, i64::MAX];
pub(crate) const SPECIAL: [f64; 7] = [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1_048_576.0, -1_048_576.0];
pub(crate) const WILD: [f64; 10] =
    [f64::MAX, f64::MIN, 5e-324, -5e-324, 0.1, 1e300, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
pub(crate) const TEXTS: [&str; 10] = ["", "a", "b", "ab", "B", "ä", "it's", "line\nbreak", "%_\\", "😀"];

pub(crate) fn nanos(precision: Precision) -> i64 {
    match precision {
        Precision::Ms => 1_000_000,
        Precision::Us => 1_000,
        Precision::Ns => 1,
    }
}

fn type_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Key | Kind::Int | Kind::Wide | Kind::Time(_) => "BIGINT",
        Kind::Number | Kind::Wild => "DOUBLE",
        Kind::Text => "VARCHAR",
        Kind::Bool => "BOOLEAN",
        Kind::Object => "STRUCT(a BIGINT, c VARCHAR)",
        Kind::List => "BIGINT[]",
        Kind::Tags => "STRUCT(id BIGINT, region VARCHAR, site STRUCT(floor BIGINT))",
    }
}

/// A value as a DuckDB literal.
fn literal(value: &Value, kind: Kind) -> String {
    let member = |name: &str, of: Kind| literal(value.get(name).unwrap_or(&Value::Null), of);
    match (value, kind) {
        (Value::Null, _) => "NULL".to_owned(),
        (Value::Bool(b), _) => b.to_string(),
        (Value::Int(i), _) => format!("'{i}'::BIGINT"),
        (Value::Double(d), _) => format!("'{d:?}'::DOUBLE"),
        (Value::String(text), _) => quoted(text),
        (Value::Date(t), Kind::Time(precision)) => t.to_units(precision).unwrap().to_string(),
        (Value::Array(items), _) => {
            let items: Vec<String> = items.iter().map(|item| literal(item, Kind::Int)).collect();
            format!("[{}]::BIGINT[]", items.join(", "))
        }
        (Value::Object(_), Kind::Object) => {
            format!("{{'a': {}, 'c': {}}}::{}", member("a", Kind::Int), member("c", Kind::Text), type_name(kind))
        }
        (Value::Object(_), _) => {
            let site = value.get("site").map_or("NULL".to_owned(), |site| {
                format!("{{'floor': {}}}", literal(site.get("floor").unwrap_or(&Value::Null), Kind::Int))
            });
            let (id, region) = (member("id", Kind::Int), member("region", Kind::Text));
            format!("{{'id': {id}, 'region': {region}, 'site': {site}}}::{}", type_name(kind))
        }
        (other, kind) => panic!("{other:?} as {kind:?}"),
    }
}

/// Whether a row of the table satisfies a condition.
type Condition = Box<dyn Fn(&Table, &Row) -> bool>;

impl World {
    pub(crate) fn new(seed: u64, keep: Option<Vec<i64>>) -> World {
        let mut draw = Draw::of(&[seed, 1]);
        let folder = tempfile::tempdir().unwrap();
        let now = FIRST_SECOND + DAYS * 86_400 + 1;
        let clock = VirtualClock::new(Timestamp::from_units(now * 1_000, Precision::Ms));
        let settings = Settings {
            durability: Durability::Interval(Duration::from_secs(3_600)),
            segment_rows_max: *draw.one(&[20, 1_000]),
            ..Settings::default()
        };
        let database = Database::builder(folder.path().join("db"))
            .clock(Arc::new(clock.clone()) as Arc<dyn Clock>)
            .settings(settings)
            .open()
            .unwrap();
        database.set_parameter("ttlClockJumpToleranceSecs", &Value::Int(0)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let partitions = Some(*draw.one(&[1, 1, 3]));
        let session = || {
            let settings = SessionSettings { partitions, ..SessionSettings::default() };
            Session::with_settings(database.clone(), &settings).unwrap()
        };
        let (fast, slow) = (session(), session());
        let tables = ["w", "z"].map(|name| Table::draw(name, &mut draw)).into_iter().collect();
        let story = Vec::new();
        let mut world =
            World { seed, phase: 0, keep, now, tables, story, database, clock, runtime, fast, slow, _folder: folder };
        world.create(&mut draw);
        world
    }

    fn create(&mut self, draw: &mut Draw) {
        for table in &mut self.tables {
            let mut options = CollectionOptions::new("t")
                .precision(table.precision)
                .span_seconds(table.span)
                .expiry(table.expiry)
                .out_of_range(table.out_of_range);
            if table.meta.is_some() {
                options = options.meta_field("s");
            }
            if draw.once_in(2) {
                let seconds = draw.between(40, 100) * 3_600;
                options = options.expire_after_seconds(seconds);
                table.rules.push(Rule { seconds, metas: None });
            }
            self.story.push(format!("create {} {options:?}", table.name));
            self.database.create_collection(table.name, options).unwrap();
        }
        self.runtime.block_on(self.slow.execute("SET ebbtide.fast_paths = false")).unwrap();
    }

    /// The next phase: some changes, some rows.
    pub(crate) fn advance(&mut self) {
        self.phase += 1;
        let mut draw = Draw::of(&[self.seed, 2, self.phase]);
        for at in 0..self.tables.len() {
            for _ in 0..1 + draw.below(2) {
                if self.phase > 1 {
                    self.change(at, &mut draw);
                }
            }
            self.insert(at, &mut draw);
            if draw.once_in(2) {
                self.database.flush().unwrap();
                self.story.push("flush".to_owned());
            }
            if draw.once_in(5) {
                self.database.compact(None).unwrap();
                self.story.push("compact".to_owned());
            }
        }
    }

    fn insert(&mut self, at: usize, draw: &mut Draw) {
        let table = &mut self.tables[at];
        let count = if draw.once_in(8) { 0 } else { 4 + draw.below(40) };
        let count = if self.phase <= 4 { count.max(2) } else { count };
        let mut rows = table.draw_rows(self.phase, count, draw);
        if let Some(keep) = &self.keep {
            // The first row is kept: it has the first value of each field.
            let mut at = 0;
            rows.retain(|row| {
                at += 1;
                at == 1 || matches!(&row.values[0], Value::Int(key) if keep.contains(key))
            });
        }
        let documents: Vec<Value> = rows.iter().map(|row| table.document(row)).collect();
        if !documents.is_empty() {
            self.database.collection(table.name).unwrap().insert_documents(&documents).unwrap();
        }
        self.story.push(format!("insert {} rows into {}", rows.len(), table.name));
        table.rows.extend(rows);
    }

    fn change(&mut self, at: usize, draw: &mut Draw) {
        match draw.below(5) {
            0 => self.delete(at, draw),
            1 => self.rule(at, draw),
            2 => {
                self.now += draw.between(0, 12) * 3_600;
                self.clock.set(Timestamp::from_units(self.now * 1_000, Precision::Ms));
                self.story.push(format!("clock {}", self.now));
            }
            // What a sweep dropped would not come back when something suspends expiry later.
            3 if !self.tables.iter().any(|table| table.ends) => self.sweep(),
            _ => {}
        }
    }

    fn sweep(&mut self) {
        self.database.sweep().unwrap();
        self.story.push("sweep".to_owned());
        let now = i128::from(self.now) * 1_000_000_000;
        for table in self.tables.iter_mut().filter(|table| table.expiry == ExpiryMode::Bucket) {
            let span = i128::from(table.span) * 1_000_000_000;
            let dropped = |row: &Row| {
                let end = (table.instant(row.time).div_euclid(span) + 1) * span;
                table.seconds(row).is_some_and(|s| end + i128::from(s) * 1_000_000_000 <= now)
            };
            let gone: Vec<bool> = table.rows.iter().map(dropped).collect();
            let mut gone = gone.into_iter();
            table.rows.retain(|_| !gone.next().unwrap());
        }
    }

    fn rule(&mut self, at: usize, draw: &mut Draw) {
        let (phase, order) = (self.phase, self.story.len());
        let table = &mut self.tables[at];
        let seconds = draw.between(20, 90) * 3_600;
        let name = table.name;
        let matching = |table: &Table, wanted: &dyn Fn(&Value) -> bool| -> Vec<usize> {
            (0..table.pool.len()).filter(|at| wanted(&table.pool[*at])).collect()
        };
        let (filter, metas) = match table.meta {
            Some(Kind::Text) => {
                ("s IN ('a', '')", matching(table, &|v| matches!(v, Value::String(t) if t == "a" || t.is_empty())))
            }
            Some(Kind::Int | Kind::Wide) => ("s >= 3", matching(table, &|v| matches!(v, Value::Int(i) if *i >= 3))),
            Some(Kind::Number) => {
                ("s IN (0.5, 0.0)", matching(table, &|v| matches!(v, Value::Double(d) if [0.5, 0.0].contains(d))))
            }
            Some(Kind::Tags) if draw.once_in(2) => (
                "s.site.floor = 3",
                matching(table, &|v| {
                    v.get("site").and_then(|s| s.get("floor")).is_some_and(|f| matches!(f, Value::Int(3)))
                }),
            ),
            Some(Kind::Tags) => (
                "s.region = 'north'",
                matching(table, &|v| matches!(v.get("region"), Some(Value::String(r)) if r == "north")),
            ),
            _ => return,
        };
        let sql =
            format!("CREATE TTL INDEX r{phase}_{order} ON {name} (t) EXPIRE AFTER {seconds} SECONDS WHERE {filter}");
        if self.runtime.block_on(self.fast.execute(&sql)).is_ok() {
            self.story.push(sql);
            table.rules.push(Rule { seconds, metas: Some(metas) });
        }
    }

    fn delete(&mut self, at: usize, draw: &mut Draw) {
        let table = &mut self.tables[at];
        let (first, rest) = (draw.between(0, 4), 5);
        let (condition, goes): (String, Condition) = match draw.below(4) {
            0 => (
                format!("k % {rest} = {first}"),
                Box::new(move |_, row| matches!(&row.values[0], Value::Int(k) if k % rest == first)),
            ),
            1 => {
                let hour = draw.between(0, DAYS * 24);
                let at = i128::from(FIRST_SECOND + hour * 3_600) * 1_000_000_000;
                let text = Timestamp::from_nanos(at);
                (
                    format!("t >= '{text}' AND t < '{}'", Timestamp::from_nanos(at + 6 * 3_600_000_000_000)),
                    Box::new(move |table, row| (at..at + 6 * 3_600_000_000_000).contains(&table.instant(row.time))),
                )
            }
            2 if table.meta == Some(Kind::Text) => (
                "s = 'b'".to_owned(),
                Box::new(|table, row| matches!(&table.pool[row.meta], Value::String(t) if t == "b")),
            ),
            3 if table.fields.iter().any(|f| f.name == "i" && f.since < self.phase) => {
                let at = table.fields.iter().position(|f| f.name == "i").unwrap();
                (
                    "i > 15".to_owned(),
                    Box::new(move |_, row| match &row.values[at] {
                        Value::Int(i) => *i > 15,
                        Value::Double(d) => *d > 15.0,
                        _ => false,
                    }),
                )
            }
            _ => return,
        };
        let sql = format!("DELETE FROM {} WHERE {condition}", table.name);
        self.runtime.block_on(self.fast.execute(&sql)).unwrap_or_else(|e| panic!("{sql}: {e}"));
        self.story.push(sql);
        let gone: Vec<bool> = table.rows.iter().map(|row| goes(table, row)).collect();
        let mut gone = gone.into_iter();
        table.rows.retain(|_| !gone.next().unwrap());
    }

    /// Statements that create all tables in DuckDB.
    pub(crate) fn script(&self) -> Vec<String> {
        self.tables.iter().flat_map(|table| table.script(self.phase, self.now)).collect()
    }

    /// Keys of all rows that are stored now.
    pub(crate) fn keys(&self) -> Vec<i64> {
        let key = |row: &Row| if let Value::Int(key) = row.values[0] { key } else { 0 };
        let mut keys: Vec<i64> = self.tables.iter().flat_map(|table| table.rows.iter().map(key)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

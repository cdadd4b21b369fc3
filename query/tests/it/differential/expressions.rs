//! Random expressions over the columns of a statement.

use super::draw::Draw;
use super::text::{both, quoted};
use super::world::{Kind, SPECIAL, TEXTS, Table, WIDE, WILD, nanos};
use ebbtide_ttl::{Precision, Timestamp};

/// A column that an expression may use.
#[derive(Debug, Clone)]
pub(crate) struct Variable {
    pub(crate) text: String,
    pub(crate) kind: Kind,
}

/// The columns of a table under an alias, with members of objects.
pub(crate) fn variables(table: &Table, phase: u64, alias: &str) -> Vec<Variable> {
    let mut found = Vec::new();
    let mut add = |text: String, kind: Kind| found.push(Variable { text, kind });
    for (name, kind) in table.columns(phase) {
        let text = format!("{alias}.{name}");
        match kind {
            Kind::Tags => {
                add(format!("{text}.id"), Kind::Int);
                add(format!("{text}.region"), Kind::Text);
                add(format!("{text}.site.floor"), Kind::Int);
            }
            Kind::Object => {
                add(member(&text, "a"), Kind::Int);
                add(member(&text, "c"), Kind::Text);
            }
            _ => {}
        }
        add(text, kind);
    }
    found
}

/// A member of an object that is not the meta.
fn member(object: &str, name: &str) -> String {
    both(format!("get_field({object}, '{name}')"), format!("{object}.{name}"))
}

pub(crate) struct Expressions<'a> {
    pub(crate) draw: &'a mut Draw,
    pub(crate) variables: &'a [Variable],
    pub(crate) tables: &'a [Table],
    pub(crate) phase: u64,
    /// Whether conditions may contain subqueries: only those of WHERE may.
    pub(crate) subqueries: bool,
}

impl Expressions<'_> {
    fn names(&self, wanted: impl Fn(Kind) -> bool) -> Vec<String> {
        self.variables.iter().filter(|v| wanted(v.kind)).map(|v| v.text.clone()).collect()
    }

    pub(crate) fn variable(&mut self, wanted: impl Fn(Kind) -> bool) -> Option<String> {
        let names = self.names(wanted);
        (!names.is_empty()).then(|| self.draw.one(&names).clone())
    }

    pub(crate) fn any(&mut self) -> Variable {
        self.draw.one(self.variables).clone()
    }

    pub(crate) fn number_literal(&mut self) -> String {
        if self.draw.once_in(10) {
            return both_double(*self.draw.one(&SPECIAL));
        }
        let eighths = self.draw.between(-40, 40);
        let text = format!("{:?}", eighths as f64 / 8.0);
        both(&text, format!("{text}::DOUBLE"))
    }

    pub(crate) fn int(&mut self, depth: usize) -> String {
        let literal = self.draw.between(-5, 20).to_string();
        let Some(name) = self.variable(|k| matches!(k, Kind::Int | Kind::Key)) else { return literal };
        if depth == 0 {
            return name;
        }
        match self.draw.below(12) {
            0 => format!("{name} % {}", self.draw.between(2, 7)),
            1 => format!("abs({})", self.int(depth - 1)),
            2 => format!("({} + {literal})", self.int(depth - 1)),
            3 => format!("({name} * {literal})"),
            4 => format!("coalesce({name}, {literal})"),
            5 => format!("nullif({name}, {literal})"),
            6 => format!("CASE WHEN {} THEN {name} ELSE {literal} END", self.condition(depth - 1)),
            7 => match self.variable(|k| k == Kind::Text) {
                Some(text) => both(format!("character_length({text})"), format!("length({text})")),
                None => name,
            },
            8 => both(format!("{name} / 7"), format!("trunc({name} / 7)::BIGINT")),
            9 => format!("(- {name})"),
            _ => name,
        }
    }

    /// Whole numbers whose sums and products may not fit; Ebbtide refuses these, as DuckDB does or gives a wider type.
    pub(crate) fn wide(&mut self, depth: usize) -> Option<String> {
        let name = self.variable(|k| k == Kind::Wide)?;
        let literal = both_int(*self.draw.one(&WIDE));
        Some(match self.draw.below(if depth == 0 { 1 } else { 8 }) {
            1 => format!("({name} + {literal})"),
            2 => format!("({name} - {literal})"),
            3 => format!("({name} * {})", self.draw.between(-2, 2)),
            4 => format!("(- {name})"),
            5 => format!("coalesce({name}, {literal})"),
            6 => format!("{name} % {}", self.draw.between(2, 7)),
            7 => format!("nullif({name}, {literal})"),
            _ => name,
        })
    }

    pub(crate) fn number(&mut self, depth: usize) -> String {
        let literal = self.number_literal();
        let Some(name) = self.variable(|k| k == Kind::Number) else {
            return format!("CAST({} AS DOUBLE)", self.int(depth));
        };
        if depth == 0 {
            return name;
        }
        match self.draw.below(12) {
            0 => format!("({name} + {literal})"),
            1 => format!("({} * 2)", self.number(depth - 1)),
            2 => format!("abs({name})"),
            3 => format!("coalesce({name}, {literal})"),
            4 => format!("CASE WHEN {} THEN {} END", self.condition(depth - 1), self.number(depth - 1)),
            5 => format!("({name} - {})", self.int(depth - 1)),
            6 => format!("floor({name})"),
            7 => format!("({name} / 4)"),
            8 => format!("nullif({name}, {literal})"),
            9 => format!("CAST({} AS DOUBLE)", self.int(depth - 1)),
            _ => name,
        }
    }

    pub(crate) fn text(&mut self, depth: usize) -> String {
        let literal = quoted(self.draw.one::<&str>(&TEXTS));
        let Some(name) = self.variable(|k| k == Kind::Text) else {
            return format!("CAST({} AS VARCHAR)", self.int(depth));
        };
        if depth == 0 {
            return name;
        }
        match self.draw.below(10) {
            0 => format!("upper({name})"),
            1 => format!("lower({name})"),
            2 => format!("({name} || {literal})"),
            3 => format!("substr({name}, {}, {})", self.draw.between(1, 2), self.draw.between(1, 3)),
            4 => format!("coalesce({name}, {literal})"),
            5 => format!("CASE WHEN {} THEN {name} ELSE {literal} END", self.condition(depth - 1)),
            6 => format!("replace({name}, 'a', 'b')"),
            7 => format!("CAST({} AS VARCHAR)", self.int(0)),
            _ => name,
        }
    }

    /// A time in nanoseconds near the data.
    fn instant(&mut self) -> i128 {
        let table = &self.tables[self.draw.below(self.tables.len())];
        let shift = *self.draw.one(&[0, 0, 0, 1, -1, 999_999, 3_600_000_000_000]);
        let near = table.some_time(self.draw).map_or(0, |units| i128::from(units) * i128::from(table.nanos()));
        let day = 86_400_000_000_000_i128;
        let first = 1_704_067_200_000_000_000;
        match self.draw.below(8) {
            // The range of a nanosecond literal.
            0..4 if (0..i128::from(i64::MAX) - day).contains(&near) => near + shift,
            4 => *self.draw.one(&[0, -1, -day * 365 * 100, first - day * 30, first + day * 3_650]),
            _ => first + i128::from(self.draw.between(0, 4 * 24)) * 3_600_000_000_000 + shift,
        }
    }

    /// A time literal for Ebbtide, and the number of nanoseconds for DuckDB.
    fn time_literal(&mut self) -> String {
        let nanos = self.instant();
        let text = Timestamp::from_nanos(nanos);
        let ebbtide = if self.draw.once_in(2) { format!("TIMESTAMP '{text}'") } else { format!("'{text}'") };
        both(ebbtide, nanos.to_string())
    }

    /// A time in a comparison: nanoseconds for DuckDB.
    pub(crate) fn comparable(name: &str, precision: Precision) -> String {
        both(name, format!("({name}::HUGEINT * {})", nanos(precision)))
    }

    pub(crate) fn time(&mut self) -> Option<(String, Precision)> {
        let times: Vec<(String, Precision)> = self
            .variables
            .iter()
            .filter_map(|v| if let Kind::Time(precision) = v.kind { Some((v.text.clone(), precision)) } else { None })
            .collect();
        (!times.is_empty()).then(|| self.draw.one(&times).clone())
    }

    /// A bin of time; `None` if times are too close to the ends of the range.
    pub(crate) fn bin(&mut self) -> Option<(String, Precision)> {
        if self.tables.iter().any(|table| table.ends) {
            return None;
        }
        // Times of metas have the ends in every database.
        let (name, precision) = self.time().filter(|(name, _)| !name.ends_with(".s"))?;
        let (width, ebbtide) = match self.draw.below(7) {
            0 => (3_600, format!("date_trunc('hour', {name})")),
            1 => (86_400, format!("date_trunc('day', {name})")),
            2 => (60, format!("date_trunc('minute', {name})")),
            3 => (7_200, format!("date_bin('2 hours', {name})")),
            4 => (600, format!("date_bin(INTERVAL '10 minutes', {name})")),
            5 => (86_400, format!("time_bucket('1 day', {name})")),
            _ => (21_600, format!("date_bin('6 hours', {name})")),
        };
        let units = width * (1_000_000_000 / nanos(precision));
        Some((both(ebbtide, format!("({name} - (({name} % {units}) + {units}) % {units})")), precision))
    }

    /// A comparison of a meta or another column with one of its values.
    fn equality(&mut self) -> String {
        let variable = self.any();
        let name = variable.text;
        let operator = *self.draw.one(&["=", "=", "<>", "<", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]);
        // In parentheses: `a IS DISTINCT FROM b OR c` is `a IS DISTINCT FROM (b OR c)` to DataFusion's parser.
        let text = match variable.kind {
            Kind::Key | Kind::Int => format!("{name} {operator} {}", self.draw.between(-5, 20)),
            Kind::Wide => format!("{name} {operator} {}", both_int(*self.draw.one(&WIDE))),
            Kind::Number => format!("{name} {operator} {}", self.number_literal()),
            Kind::Wild => {
                let wild = *self.draw.one(&WILD);
                format!("{name} {operator} {}", both_double(wild))
            }
            Kind::Text => format!("{name} {operator} {}", quoted(self.draw.one::<&str>(&TEXTS))),
            Kind::Bool => format!("{name} IS {}", self.draw.one(&["TRUE", "NOT TRUE", "FALSE", "NOT FALSE"])),
            Kind::Time(precision) => {
                format!("{} {operator} {}", Self::comparable(&name, precision), self.time_literal())
            }
            Kind::Object | Kind::List | Kind::Tags => format!("{name} IS NULL"),
        };
        format!("({text})")
    }

    pub(crate) fn condition(&mut self, depth: usize) -> String {
        match self.draw.below(if depth == 0 { 12 } else { 20 }) {
            0..3 => self.equality(),
            3 => {
                let name = self.any().text;
                format!("{name} IS {}NULL", self.draw.one(&["", "NOT "]))
            }
            4 => {
                let (low, high) = (self.draw.between(-5, 10), self.draw.between(0, 20));
                format!("{} {}BETWEEN {low} AND {high}", self.int(0), self.draw.one(&["", "NOT "]))
            }
            5 => {
                let items: Vec<String> =
                    (0..self.draw.between(1, 4)).map(|_| self.draw.between(-5, 20).to_string()).collect();
                let null = if self.draw.once_in(8) { ", NULL" } else { "" };
                format!("{} {}IN ({}{null})", self.int(0), self.draw.one(&["", "NOT "]), items.join(", "))
            }
            6 => {
                let pattern = *self.draw.one(&["a%", "%b", "_", "%", "", "%a%", "B"]);
                format!("{} {}LIKE '{pattern}'", self.text(0), self.draw.one(&["", "NOT "]))
            }
            7 => {
                let items: Vec<String> =
                    (0..self.draw.between(1, 3)).map(|_| quoted(self.draw.one::<&str>(&TEXTS))).collect();
                format!("{} IN ({})", self.text(0), items.join(", "))
            }
            8 | 9 => match self.time() {
                Some((name, precision)) if self.draw.once_in(3) => {
                    let (low, high) = (self.time_literal(), self.time_literal());
                    format!("{} BETWEEN {low} AND {high}", Self::comparable(&name, precision))
                }
                Some((name, precision)) => {
                    let operator = *self.draw.one(&["<", "<=", ">", ">=", "="]);
                    format!("{} {operator} {}", Self::comparable(&name, precision), self.time_literal())
                }
                None => "1 = 1".to_owned(),
            },
            10 => {
                let operator = *self.draw.one(&["<", "<=", ">", ">=", "=", "<>"]);
                format!("{} {operator} {}", self.number(0), self.number_literal())
            }
            11 => match self.variable(|k| k == Kind::Bool) {
                Some(name) => name,
                None => "NULL".to_owned(),
            },
            12..15 => {
                let word = *self.draw.one(&["AND", "OR"]);
                format!("({} {word} {})", self.condition(depth - 1), self.condition(depth - 1))
            }
            15 => format!("NOT ({})", self.condition(depth - 1)),
            16 => {
                let operator = *self.draw.one(&["<", ">=", "=", "<>"]);
                format!("{} {operator} {}", self.int(depth - 1), self.int(depth - 1))
            }
            17 => {
                let operator = *self.draw.one(&["<", ">=", "=", "<>"]);
                format!("{} {operator} {}", self.number(depth - 1), self.number(depth - 1))
            }
            18 => {
                let operator = *self.draw.one(&["<", ">=", "=", "<>"]);
                format!("{} {operator} {}", self.text(depth - 1), self.text(depth - 1))
            }
            _ if self.subqueries => self.subquery(),
            _ => self.equality(),
        }
    }

    /// A condition with a subquery.
    fn subquery(&mut self) -> String {
        let table = &self.tables[self.draw.below(self.tables.len())];
        let inner = variables(table, self.phase, "q");
        let outer_int = self.int(0);
        let outer_number = self.number(0);
        let phase = self.phase;
        let mut nested =
            Expressions { draw: self.draw, variables: &inner, tables: self.tables, phase, subqueries: false };
        let (condition, int, number) = (nested.condition(0), nested.int(0), nested.number(0));
        let from = format!("FROM {} AS q WHERE {condition}", table.name);
        match self.draw.below(6) {
            // Without nulls: inside OR and NOT, DataFusion treats them as "not found".
            0 => format!("coalesce({outer_int}, -9) IN (SELECT {int} {from} AND {int} IS NOT NULL)"),
            1 => format!("coalesce({outer_int}, -9) NOT IN (SELECT {int} {from} AND {int} IS NOT NULL)"),
            2 => format!("EXISTS (SELECT 1 {from} AND {int} = {outer_int})"),
            3 => format!("NOT EXISTS (SELECT 1 {from} AND {int} = {outer_int})"),
            4 => format!("{outer_number} > (SELECT min({number}) {from})"),
            _ => format!("{outer_int} = (SELECT max({int}) {from})"),
        }
    }
}

/// A double in both dialects.
fn both_double(value: f64) -> String {
    let text = format!("{value:?}");
    let ebbtide = if value.is_finite() { format!("{value:e}") } else { format!("CAST('{text}' AS DOUBLE)") };
    both(ebbtide, format!("'{text}'::DOUBLE"))
}

/// A whole number in both dialects; DuckDB reads the least one as a larger type.
fn both_int(value: i64) -> String {
    both(value.to_string(), format!("'{value}'::BIGINT"))
}

//! Random statements.

use super::cells::Column;
use super::draw::Draw;
use super::expressions::{Expressions, Variable, variables};
use super::text::both;
use super::world::{Kind, Table, World, nanos};

/// Of this many statements, one is also run as a prepared query, which takes as long as all else together.
const PREPARED_EVERY: u64 = 8;

/// A statement, and how its results are compared.
#[derive(Debug, Clone)]
pub(crate) struct Statement {
    /// In both dialects.
    pub(crate) text: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) ordered: bool,
    /// Whether DuckDB runs it too.
    pub(crate) peer: bool,
    /// Another statement that must return the same rows.
    pub(crate) twin: Option<String>,
    /// Whether it is also run as a prepared query.
    pub(crate) prepared: bool,
}

/// An expression of a SELECT.
#[derive(Debug, Clone)]
struct Item {
    text: String,
    column: Column,
    /// Whether rows may be ordered by it.
    orders: bool,
}

impl Item {
    fn exact(text: String) -> Item {
        Item { text, column: Column::Exact, orders: true }
    }

    fn close(text: String) -> Item {
        Item { text, column: Column::Close, orders: false }
    }

    fn of(text: String, kind: Kind) -> Item {
        match kind {
            Kind::Time(precision) => Item { text, column: Column::Time(nanos(precision)), orders: true },
            Kind::Object | Kind::List | Kind::Tags => Item { text, column: Column::Exact, orders: false },
            _ => Item::exact(text),
        }
    }
}

/// A source of rows.
struct Source {
    from: String,
    variables: Vec<Variable>,
    /// The time and whether it is unique, if the source is one table.
    single: Option<(String, bool)>,
}

/// The statement with this number.
pub(crate) fn statement(world: &World, seed: u64, number: u64) -> Statement {
    let mut draw = Draw::of(&[seed, 3, world.phase, number]);
    let mut maker = Maker { draw: &mut draw, tables: &world.tables, phase: world.phase };
    loop {
        let statement = Statement { prepared: number.is_multiple_of(PREPARED_EVERY), ..maker.statement(number) };
        // DataFusion merges two lists for one value as if it were never null: see docs/sql.md.
        if statement.text.matches(" IN (").count() - statement.text.matches(" IN (SELECT").count() < 2 {
            return statement;
        }
    }
}

struct Maker<'a> {
    draw: &'a mut Draw,
    tables: &'a [Table],
    phase: u64,
}

impl<'a> Maker<'a> {
    fn statement(&mut self, number: u64) -> Statement {
        if number == 0 {
            return self.everything(0);
        }
        if number == 1 {
            return self.everything(1);
        }
        match self.draw.below(32) {
            0..6 => self.rows(),
            6..15 => self.aggregate(),
            15..18 => self.nested(),
            18..20 => self.set_operation(),
            20..23 => self.joined(),
            23..25 => self.window(),
            25..28 => self.partitioned(),
            28..30 => self.unoptimized(),
            _ => self.series(),
        }
    }

    fn expressions<'b>(&'b mut self, variables: &'b [Variable]) -> Expressions<'b> {
        Expressions { draw: self.draw, variables, tables: self.tables, phase: self.phase, subqueries: false }
    }

    fn table(&mut self) -> &'a Table {
        &self.tables[self.draw.below(self.tables.len())]
    }

    /// All visible rows of a table.
    fn everything(&mut self, at: usize) -> Statement {
        let table = &self.tables[at];
        let items: Vec<Item> = table.columns(self.phase).map(|(name, kind)| Item::of(name.to_owned(), kind)).collect();
        let names: Vec<&str> = items.iter().map(|item| item.text.as_str()).collect();
        let text = format!("SELECT {} FROM {}", names.join(", "), table.name);
        done(text, &items, false)
    }

    fn source(&mut self) -> Source {
        let table = self.table();
        let of = variables(table, self.phase, "a");
        let single = Some(("a.t".to_owned(), table.unique_times));
        match self.draw.below(10) {
            0 if table.unique_times => {
                let name = table.name;
                let latest = match table.meta {
                    None => format!("(SELECT * FROM {name} ORDER BY t DESC LIMIT 1)"),
                    Some(_) => {
                        format!("(SELECT * FROM {name} QUALIFY row_number() OVER (PARTITION BY s ORDER BY t DESC) = 1)")
                    }
                };
                Source { from: format!("{} AS a", both(format!("latest('{name}')"), latest)), variables: of, single }
            }
            1 => {
                let inner = variables(table, self.phase, "n");
                let condition = self.expressions(&inner).condition(1);
                let from = format!("(SELECT * FROM {} AS n WHERE {condition}) AS a", table.name);
                Source { from, variables: of, single }
            }
            _ => Source { from: format!("{} AS a", table.name), variables: of, single },
        }
    }

    fn conditions(&mut self, of: &[Variable]) -> String {
        let count = self.draw.below(3);
        let mut expressions = Expressions { subqueries: true, ..self.expressions(of) };
        let conditions: Vec<String> = (0..count).map(|_| expressions.condition(2)).collect();
        if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) }
    }

    fn item(&mut self, of: &[Variable]) -> Item {
        let choice = self.draw.below(9);
        let mut expressions = self.expressions(of);
        match choice {
            0 => Item::exact(expressions.int(2)),
            5 => Item::exact(expressions.wide(1).unwrap_or_else(|| expressions.int(1))),
            1 => Item::exact(expressions.number(2)),
            2 => Item::exact(expressions.text(2)),
            3 => Item::exact(format!("({})", expressions.condition(1))),
            4 => match expressions.bin() {
                Some((text, precision)) => Item::of(text, Kind::Time(precision)),
                None => Item::exact(expressions.int(0)),
            },
            _ => {
                let variable = expressions.any();
                Item::of(variable.text, variable.kind)
            }
        }
    }

    fn items(&mut self, of: &[Variable], most: usize) -> Vec<Item> {
        (0..1 + self.draw.below(most)).map(|_| self.item(of)).collect()
    }

    /// ORDER BY all columns, and sometimes LIMIT; nothing if columns cannot be ordered.
    fn order(&mut self, items: &[Item]) -> (String, bool) {
        if !items.iter().all(|item| item.orders) || self.draw.once_in(2) {
            return (String::new(), false);
        }
        let mut places: Vec<usize> = (1..=items.len()).collect();
        let turn = self.draw.below(places.len());
        places.rotate_left(turn);
        let keys: Vec<String> = places
            .iter()
            .map(|place| match self.draw.below(4) {
                0 => format!("{place}"),
                1 => both(format!("{place} DESC"), format!("{place} DESC NULLS FIRST")),
                2 => format!("{place} DESC NULLS LAST"),
                _ => format!("{place} NULLS FIRST"),
            })
            .collect();
        let limit = match self.draw.below(4) {
            0 => String::new(),
            1 => format!(" LIMIT {} OFFSET {}", self.draw.below(6), self.draw.below(4)),
            _ => format!(" LIMIT {}", self.draw.below(12)),
        };
        (format!(" ORDER BY {}{limit}", keys.join(", ")), true)
    }

    fn rows(&mut self) -> Statement {
        let source = self.source();
        let items = self.items(&source.variables, 4);
        let condition = self.conditions(&source.variables);
        let distinct = if self.draw.once_in(4) { "DISTINCT " } else { "" };
        let (order, ordered) = self.order(&items);
        done(format!("SELECT {distinct}{} FROM {}{condition}{order}", listed(&items), source.from), &items, ordered)
    }

    fn aggregate_item(&mut self, source: &Source) -> Item {
        let of = &source.variables;
        let filter = if self.draw.once_in(8) {
            format!(" FILTER (WHERE {})", self.expressions(of).condition(0))
        } else {
            String::new()
        };
        let distinct = if self.draw.once_in(8) { "DISTINCT " } else { "" };
        let choice = self.draw.below(23);
        if let (15 | 16, Some((time, true))) = (choice, &source.single) {
            let value = self.expressions(of).any();
            let time = time.clone();
            let name = *self.draw.one(&["first", "last"]);
            let order = if name == "first" { "" } else { " DESC" };
            let text = &value.text;
            let duck = format!("first({text} ORDER BY {time}{order}) FILTER (WHERE {text} IS NOT NULL)");
            return Item::of(both(format!("{name}({text}, {time})"), duck), value.kind);
        }
        let mut expressions = self.expressions(of);
        let scalar = |k: Kind| !matches!(k, Kind::Object | Kind::List | Kind::Tags | Kind::Bool);
        match choice {
            0 | 1 => Item::exact(format!("count(*){filter}")),
            2 => Item::exact(format!("count({distinct}{}){filter}", expressions.any().text)),
            3 => Item::exact(format!("sum({distinct}{}){filter}", expressions.int(1))),
            4 => Item::exact(format!("sum({}){filter}", expressions.int(0))),
            5 => Item::exact(format!("sum({distinct}{}){filter}", expressions.number(0))),
            6 => Item::close(format!("avg({distinct}{}){filter}", expressions.int(0))),
            7 | 8 => Item::close(format!("avg({}){filter}", expressions.number(0))),
            9 => Item::exact(format!("{}({}){filter}", *expressions.draw.one(&["min", "max"]), expressions.int(2))),
            10 => Item::exact(format!("{}({}){filter}", *expressions.draw.one(&["min", "max"]), expressions.number(1))),
            11 => Item::exact(format!("{}({}){filter}", *expressions.draw.one(&["min", "max"]), expressions.text(1))),
            12 => match expressions.variable(|k| k == Kind::Bool) {
                Some(name) => {
                    Item::exact(format!("{}({name}){filter}", *expressions.draw.one(&["bool_and", "bool_or"])))
                }
                None => Item::exact(format!("count({}){filter}", expressions.number(0))),
            },
            13 => Item::close(format!("median({}){filter}", expressions.int(0))),
            14 => {
                let key = expressions.variable(|k| k == Kind::Key).unwrap();
                let text = expressions.text(0);
                Item::exact(format!("string_agg({text}, ',' ORDER BY {key}, {text}){filter}"))
            }
            17 => match expressions.wide(1) {
                Some(wide) => {
                    let name = *expressions.draw.one(&["sum", "sum", "min", "max"]);
                    Item::exact(format!("{name}({distinct}{wide}){filter}"))
                }
                None => Item::exact(format!("count({}){filter}", expressions.number(0))),
            },
            18 => match expressions.wide(0) {
                Some(wide) => Item::close(format!("avg({wide}){filter}")),
                None => Item::close(format!("avg({}){filter}", expressions.number(0))),
            },
            _ => {
                let name = *expressions.draw.one(&["min", "max"]);
                let kinds: Vec<Variable> = of.iter().filter(|v| scalar(v.kind)).cloned().collect();
                let variable = expressions.draw.one(&kinds).clone();
                Item::of(format!("{name}({}){filter}", variable.text), variable.kind)
            }
        }
    }

    /// A query with groups: its text without an order, and its columns.
    fn grouped(&mut self, source: &Source, least_keys: usize) -> (String, Vec<Item>) {
        let keys: Vec<Item> = (0..least_keys + self.draw.below(3)).map(|_| self.key(&source.variables)).collect();
        let mut items = keys.clone();
        items.extend((0..1 + self.draw.below(4)).map(|_| self.aggregate_item(source)));
        let condition = self.conditions(&source.variables);
        let mut text = format!("SELECT {} FROM {}{condition}", listed(&items), source.from);
        if !keys.is_empty() {
            let places: Vec<String> = (1..=keys.len()).map(|place| place.to_string()).collect();
            text = format!("{text} GROUP BY {}", places.join(", "));
            if self.draw.once_in(5) {
                let limit = self.draw.below(4);
                let having = match self.draw.below(3) {
                    0 => format!("count(*) > {limit}"),
                    1 => format!("avg({}) IS NULL", self.expressions(&source.variables).number(0)),
                    _ => format!("max({}) >= {limit}", self.expressions(&source.variables).int(0)),
                };
                text = format!("{text} HAVING {having}");
            }
        }
        (text, items)
    }

    fn key(&mut self, of: &[Variable]) -> Item {
        let choice = self.draw.below(10);
        let mut expressions = self.expressions(of);
        match choice {
            0..3 => match expressions.bin() {
                Some((text, precision)) => Item::of(text, Kind::Time(precision)),
                None => Item::exact(format!("{} % 3", expressions.int(0))),
            },
            3 | 4 => match expressions.variable(|k| k == Kind::Tags) {
                Some(tags) => Item::of(tags, Kind::Tags),
                None => Item::exact(expressions.text(0)),
            },
            5 => Item::exact(format!("upper({})", expressions.text(0))),
            6 => Item::exact(expressions.int(1)),
            7 => Item::exact(expressions.text(1)),
            8 => Item::exact(format!("({})", expressions.condition(1))),
            _ => {
                let variable = expressions.any();
                Item::of(variable.text, variable.kind)
            }
        }
    }

    fn aggregate(&mut self) -> Statement {
        let source = self.source();
        let (text, items) = self.grouped(&source, 0);
        let (order, ordered) = self.order(&items);
        done(format!("{text}{order}"), &items, ordered)
    }

    /// Aggregates of groups.
    fn nested(&mut self) -> Statement {
        let source = self.source();
        let (text, items) = self.grouped(&source, 1);
        let outer: Vec<Item> = (0..items.len())
            .map(|at| match (self.draw.below(3), items[at].column) {
                (0, Column::Exact) if items[at].orders => Item::exact(format!("max(q.c{at})")),
                (1, Column::Exact) => Item::exact(format!("count(DISTINCT q.c{at})")),
                _ => Item::exact(format!("count(q.c{at})")),
            })
            .chain([Item::exact("count(*)".to_owned())])
            .collect();
        done(format!("SELECT {} FROM ({text}) AS q", listed(&outer)), &outer, false)
    }

    fn set_operation(&mut self) -> Statement {
        let operation = *self.draw.one(&["UNION", "UNION ALL", "UNION ALL", "INTERSECT", "EXCEPT"]);
        let kinds: Vec<usize> = (0..1 + self.draw.below(3)).map(|_| self.draw.below(3)).collect();
        let mut side = || {
            let source = self.source();
            let mut expressions = self.expressions(&source.variables);
            let items: Vec<Item> = kinds
                .iter()
                .map(|kind| match kind {
                    0 => Item::exact(expressions.int(1)),
                    1 => Item::exact(expressions.number(1)),
                    _ => Item::exact(expressions.text(1)),
                })
                .collect();
            (format!("SELECT {} FROM {}{}", listed(&items), source.from, self.conditions(&source.variables)), items)
        };
        let ((left, items), (right, _)) = (side(), side());
        let all = format!("{left} {operation} {right}");
        if self.draw.once_in(2) {
            return done(all, &items, false);
        }
        let outer = vec![
            Item::exact("count(*)".to_owned()),
            Item::exact("count(q.c0)".to_owned()),
            Item::exact("min(q.c0)".to_owned()),
        ];
        done(format!("SELECT {} FROM ({all}) AS q", listed(&outer)), &outer, false)
    }

    fn join_source(&mut self) -> Source {
        let (left, right) = (self.table(), self.table());
        let (mut of, others) = (variables(left, self.phase, "a"), variables(right, self.phase, "r"));
        let (x, y) = (self.expressions(&of).int(0), self.expressions(&others).int(0));
        let (p, q) = (self.expressions(&of).text(0), self.expressions(&others).text(0));
        let on = match self.draw.below(5) {
            0 => format!("{x} = {y}"),
            1 => format!("{p} = {q}"),
            2 => format!("{x} = {y} AND {p} <> {q}"),
            3 => format!(
                "{} = {} AND {x} >= {y}",
                Expressions::comparable("a.t", left.precision),
                Expressions::comparable("r.t", right.precision)
            ),
            _ => "a.k = r.k".to_owned(),
        };
        let kind = *self.draw.one(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
        of.extend(others);
        if right.unique_times && self.draw.once_in(4) {
            let kind = *self.draw.one(&["ASOF JOIN", "ASOF LEFT JOIN"]);
            let times = format!(
                "{} >= {}",
                Expressions::comparable("a.t", left.precision),
                Expressions::comparable("r.t", right.precision)
            );
            let from = format!("{} AS a {kind} {} AS r ON {p} = {q} AND {times}", left.name, right.name);
            return Source { from, variables: of, single: None };
        }
        let from = format!("{} AS a {kind} {} AS r ON {on}", left.name, right.name);
        Source { from, variables: of, single: None }
    }

    fn joined(&mut self) -> Statement {
        let source = self.join_source();
        if self.draw.once_in(2) {
            let (text, items) = self.grouped(&source, 0);
            let (order, ordered) = self.order(&items);
            return done(format!("{text}{order}"), &items, ordered);
        }
        let items = self.items(&source.variables, 3);
        let condition = self.conditions(&source.variables);
        let (order, ordered) = self.order(&items);
        done(format!("SELECT {} FROM {}{condition}{order}", listed(&items), source.from), &items, ordered)
    }

    fn window(&mut self) -> Statement {
        let table = self.table();
        let of = variables(table, self.phase, "a");
        let (int, number) = {
            let mut expressions = self.expressions(&of);
            (expressions.int(1), expressions.number(0))
        };
        let partition = self.key(&of).text;
        let order = format!("ORDER BY a.k{}", self.draw.one(&["", " DESC"]));
        let over = match self.draw.below(3) {
            0 => format!("OVER ({order})"),
            _ => format!("OVER (PARTITION BY {partition} {order})"),
        };
        let framed = over.replace(&order, &format!("{order} ROWS BETWEEN 2 PRECEDING AND CURRENT ROW"));
        let function = match self.draw.below(12) {
            0 => Item::exact(format!("row_number() {over}")),
            1 => Item::exact(format!("rank() {over}")),
            2 => Item::exact(format!("sum({int}) {framed}")),
            3 => Item::exact(format!("lag({int}) {over}")),
            4 => Item::exact(format!("lead({number}, 2) {over}")),
            5 => Item::exact(format!("first_value({int}) {framed}")),
            6 => Item::exact(format!("count(*) {over}")),
            7 => Item::exact(format!("max({number}) {framed}")),
            8 => Item::exact(format!("ntile(3) {over}")),
            9 => Item::exact(format!("sum({number}) {framed}")),
            10 => Item::exact(format!("min({number}) {framed}")),
            _ => Item::close(format!("avg({number}) {over}")),
        };
        let items = vec![Item::exact("a.k".to_owned()), function];
        let condition = self.conditions(&of);
        done(format!("SELECT {} FROM {} AS a{condition}", listed(&items), table.name), &items, false)
    }

    /// TLP: the rows for which a condition is true, those for which it is false and those for which it is null are
    /// together all rows.
    fn partitioned(&mut self) -> Statement {
        let source = self.source();
        let condition = self.expressions(&source.variables).condition(2);
        let from = &source.from;
        let parts = [format!("({condition})"), format!("NOT ({condition})"), format!("({condition}) IS NULL")];
        if self.draw.once_in(2) {
            let items = self.items(&source.variables, 3);
            let all = format!("SELECT {} FROM {from}", listed(&items));
            let twin: Vec<String> = parts.iter().map(|part| format!("{all} WHERE {part}")).collect();
            let mut statement = done(all, &items, false);
            statement.twin = Some(twin.join(" UNION ALL "));
            return statement;
        }
        let mut expressions = self.expressions(&source.variables);
        let number = match expressions.draw.below(2) {
            0 => expressions.int(1),
            _ => expressions.number(1),
        };
        let text =
            format!("SELECT sum({number}) AS c0, count(*) AS c1, min({number}) AS c2, max({number}) AS c3 FROM {from}");
        let part = |part: &String| format!("{text} WHERE {part}");
        let union: Vec<String> = parts.iter().map(part).collect();
        let items = vec![Item::exact(String::new()); 4];
        let twin = format!(
            "SELECT sum(q.c0) AS c0, sum(q.c1) AS c1, min(q.c2) AS c2, max(q.c3) AS c3 FROM ({}) AS q",
            union.join(" UNION ALL ")
        );
        let mut statement = done(text, &items, false);
        statement.twin = Some(twin);
        statement
    }

    /// NoREC: the number of rows that a condition selects, once optimized and once evaluated as a value.
    fn unoptimized(&mut self) -> Statement {
        let source = self.source();
        let condition = self.expressions(&source.variables).condition(3);
        let items = [Item::exact("count(*)".to_owned())];
        let mut statement =
            done(format!("SELECT count(*) AS c0 FROM {} WHERE {condition}", source.from), &items, false);
        statement.twin = Some(format!(
            "SELECT coalesce(sum(q.c0), 0) AS c0 FROM (SELECT CASE WHEN {condition} THEN 1 ELSE 0 END AS c0 FROM {}) AS q",
            source.from
        ));
        statement
    }

    /// Features that only Ebbtide has.
    fn series(&mut self) -> Statement {
        let table = self.table();
        if !table.unique_times {
            return self.aggregate();
        }
        let of = variables(table, self.phase, "a");
        let number = self.expressions(&of).number(0);
        let key = self.key(&of).text;
        let function = match self.draw.below(7) {
            0 => format!("time_weighted_avg({number}, a.t)"),
            1 => format!("increase({number}, a.t)"),
            2 => format!("delta({number}, a.t)"),
            3 => format!("rate({number}, a.t)"),
            4 => "approx_distinct(a.k)".to_owned(),
            5 => format!("stddev({number})"),
            _ => format!("time_weighted_avg({number}, a.t, 'locf')"),
        };
        let items = [Item::exact(key), Item::close(function)];
        let condition = self.conditions(&of);
        let text = format!("SELECT {} FROM {} AS a{condition} GROUP BY 1", listed(&items), table.name);
        let text = if self.draw.once_in(3) {
            let number = self.expressions(&of).number(0);
            format!(
                "SELECT date_bin_gapfill('6 hours', a.t) AS c0, locf(max({number})) AS c1 FROM {} AS a \
                 WHERE a.t >= '2024-01-01T00:00:00Z' AND a.t < '2024-01-06T00:00:00Z' GROUP BY 1",
                table.name
            )
        } else {
            text
        };
        let mut statement = done(text, &items, false);
        statement.peer = false;
        statement
    }
}

fn listed(items: &[Item]) -> String {
    let named: Vec<String> = items.iter().enumerate().map(|(at, item)| format!("{} AS c{at}", item.text)).collect();
    named.join(", ")
}

fn done(text: String, items: &[Item], ordered: bool) -> Statement {
    Statement {
        text,
        columns: items.iter().map(|item| item.column).collect(),
        ordered,
        peer: true,
        twin: None,
        prepared: false,
    }
}

//! Metas and partial filters as the model sees them: written anew, so that the engine's own matching is not its judge.

use ebbtide::ttl::{Filter, Timestamp, Value};
use proptest::prelude::*;

/// A meta in its normal form: members sorted, no null inside an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Meta {
    Null,
    Int(i64),
    Text(String),
    List(Vec<Meta>),
    Object(Vec<(String, Meta)>),
}

fn object<const N: usize>(members: [(&str, Meta); N]) -> Meta {
    Meta::Object(members.into_iter().map(|(name, meta)| (name.to_owned(), meta)).collect())
}

fn text(text: &str) -> Meta {
    Meta::Text(text.to_owned())
}

/// What the metas of a collection look like: a column has one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// The collection has no meta field.
    Absent,
    Ints,
    Texts,
    Lists,
    Objects,
}

impl Family {
    pub(crate) const ALL: [Family; 5] = [Family::Absent, Family::Ints, Family::Texts, Family::Lists, Family::Objects];

    /// Some metas of the family, null among them.
    pub(crate) fn pool(self) -> Vec<Meta> {
        use Meta::{Int, List, Null};
        let floor = |floor: i64| object([("floor", Int(floor))]);
        match self {
            Family::Absent => vec![Null],
            Family::Ints => vec![Null, Int(1), Int(5), Int(6), Int(-8)],
            Family::Texts => vec![Null, text(""), text("a"), text("b"), text("hq")],
            Family::Lists => {
                vec![Null, List(vec![Int(1)]), List(vec![]), List(vec![Int(1), Int(7)]), List(vec![Int(8)])]
            }
            Family::Objects => vec![
                Null,
                object([("site", floor(1))]),
                object([("kind", text("x")), ("site", floor(2))]),
                object([("kind", text("x"))]),
                object([("kind", text("y")), ("site", object([]))]),
                object([]),
            ],
        }
    }
}

impl Meta {
    /// The meta as a user may write it: `spelling` turns the order of members round, spells missing as null, and whole
    /// numbers as doubles. All spellings are the same key.
    pub(crate) fn spelled(&self, spelling: u8) -> Value {
        match self {
            Meta::Null => Value::Null,
            Meta::Int(i) if spelling & 4 != 0 => Value::Double(*i as f64),
            Meta::Int(i) => Value::Int(*i),
            Meta::Text(text) => Value::String(text.clone()),
            // Items stay whole numbers: the first value fixes their type.
            Meta::List(items) => Value::Array(items.iter().map(|item| item.spelled(0)).collect()),
            Meta::Object(members) => {
                let mut spelled: Vec<_> =
                    members.iter().map(|(name, meta)| (name.as_str().into(), meta.spelled(spelling & 3))).collect();
                if spelling & 1 != 0 {
                    spelled.reverse();
                }
                if spelling & 2 != 0 && members.iter().all(|(name, _)| name != "kind") {
                    spelled.push(("kind".into(), Value::Null));
                }
                Value::Object(spelled)
            }
        }
    }

    /// The normal form of what the engine gave.
    pub(crate) fn of(value: &Value) -> Meta {
        match value {
            Value::Null => Meta::Null,
            Value::Int(i) => Meta::Int(*i),
            Value::Double(d) if d.fract() == 0.0 => Meta::Int(*d as i64),
            Value::String(text) => Meta::Text(text.clone()),
            Value::Array(items) => Meta::List(items.iter().map(Meta::of).collect()),
            Value::Object(members) => {
                let known = members.iter().map(|(name, value)| (name.to_string(), Meta::of(value)));
                let mut known: Vec<_> = known.filter(|(_, meta)| *meta != Meta::Null).collect();
                known.sort();
                Meta::Object(known)
            }
            other => panic!("no meta of these tests: {other:?}"),
        }
    }

    fn at(&self, path: &str) -> &Meta {
        let mut found = self;
        for name in path.split('.').skip(1) {
            let members = match found {
                Meta::Object(members) => members.as_slice(),
                _ => &[],
            };
            found = members.iter().find(|(n, _)| n == name).map_or(&Meta::Null, |(_, meta)| meta);
        }
        found
    }

    fn class(&self) -> &'static str {
        match self {
            Meta::Null => "null",
            Meta::Int(_) => "number",
            Meta::Text(_) => "string",
            Meta::List(_) => "array",
            Meta::Object(_) => "object",
        }
    }
}

/// One condition on the value at a path.
#[derive(Debug, Clone)]
pub(crate) enum Test {
    Is(Meta),
    In(Vec<Meta>),
    Compare(&'static str, Meta),
    Exists,
    Type(&'static str),
}

impl Test {
    /// A condition on a list holds for the whole list or for any element.
    fn holds(&self, meta: &Meta) -> bool {
        let items = match meta {
            Meta::List(items) => items.as_slice(),
            _ => &[],
        };
        self.holds_for(meta) || (!matches!(self, Test::Exists) && items.iter().any(|item| self.holds_for(item)))
    }

    fn holds_for(&self, meta: &Meta) -> bool {
        match self {
            Test::Is(other) => meta == other,
            Test::In(others) => others.contains(meta),
            Test::Compare(operator, bound) => {
                let within = match (meta, bound) {
                    (Meta::Int(a), Meta::Int(b)) => a.cmp(b),
                    (Meta::Text(a), Meta::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
                    _ => return false,
                };
                match *operator {
                    "$gt" => within.is_gt(),
                    "$gte" => within.is_ge(),
                    "$lt" => within.is_lt(),
                    _ => within.is_le(),
                }
            }
            Test::Exists => *meta != Meta::Null,
            Test::Type(class) => meta.class() == *class,
        }
    }

    fn written(&self) -> (ebbtide::ttl::Name, Value) {
        match self {
            Test::Is(meta) => ("$eq".into(), meta.spelled(0)),
            Test::In(metas) => ("$in".into(), Value::Array(metas.iter().map(|m| m.spelled(0)).collect())),
            Test::Compare(operator, bound) => ((*operator).into(), bound.spelled(0)),
            Test::Exists => ("$exists".into(), Value::Bool(true)),
            Test::Type(class) => ("$type".into(), Value::from(*class)),
        }
    }
}

/// A filter over metas.
#[derive(Debug, Clone)]
pub(crate) enum MetaFilter {
    At(&'static str, Vec<Test>),
    And(Vec<MetaFilter>),
    Or(Vec<MetaFilter>),
}

impl MetaFilter {
    pub(crate) fn matches(&self, meta: &Meta) -> bool {
        match self {
            MetaFilter::At(path, tests) => tests.iter().all(|test| test.holds(meta.at(path))),
            MetaFilter::And(filters) => filters.iter().all(|filter| filter.matches(meta)),
            MetaFilter::Or(filters) => filters.iter().any(|filter| filter.matches(meta)),
        }
    }

    /// The filter as a user writes it.
    pub(crate) fn written(&self) -> Value {
        match self {
            MetaFilter::At(path, tests) => {
                let tests = match tests.as_slice() {
                    [Test::Is(meta)] => meta.spelled(0),
                    tests => Value::Object(tests.iter().map(Test::written).collect()),
                };
                Value::Object(vec![((*path).into(), tests)])
            }
            MetaFilter::And(filters) => Self::joined("$and", filters),
            MetaFilter::Or(filters) => Self::joined("$or", filters),
        }
    }

    fn joined(operator: &str, filters: &[MetaFilter]) -> Value {
        let clauses = filters.iter().map(MetaFilter::written).collect();
        Value::Object(vec![(operator.into(), Value::Array(clauses))])
    }

    pub(crate) fn parsed(&self) -> Filter {
        Filter::parse_partial(&self.written(), Some("m")).expect("a partial filter that is allowed")
    }
}

fn some_test(family: Family) -> BoxedStrategy<(&'static str, Test)> {
    use Meta::Int;
    let class = |path: &'static str, classes: &'static [&'static str]| {
        proptest::sample::select(classes).prop_map(move |class| (path, Test::Type(class)))
    };
    let operator = proptest::sample::select(&["$gt", "$gte", "$lt", "$lte"][..]);
    let pool = family.pool();
    let equal = proptest::sample::select(pool.clone()).prop_map(|meta| ("m", Test::Is(meta)));
    let one_of = proptest::sample::subsequence(pool.clone(), 1..=pool.len().min(3)).prop_map(|m| ("m", Test::In(m)));
    let common = prop_oneof![equal, one_of, Just(("m", Test::Exists))];
    match family {
        Family::Texts => {
            let bound = proptest::sample::select(vec![text(""), text("a"), text("c")]);
            let compare = (operator, bound).prop_map(|(operator, bound)| ("m", Test::Compare(operator, bound)));
            prop_oneof![common, compare, class("m", &["string", "number"])].boxed()
        }
        Family::Objects => {
            let bound = (operator, 0..4_i64).prop_map(|(o, bound)| ("m.site.floor", Test::Compare(o, Int(bound))));
            let floors = Just(("m.site.floor", Test::In(vec![Int(1), Int(2)])));
            let kind = proptest::sample::select(vec![Meta::Null, text("x"), text("y")]);
            let kind = kind.prop_map(|kind| ("m.kind", Test::Is(kind)));
            let exists = proptest::sample::select(&["m.kind", "m.site", "m.site.floor"][..]);
            prop_oneof![
                common,
                bound,
                floors,
                kind,
                exists.prop_map(|path| (path, Test::Exists)),
                class("m.site", &["object", "number"])
            ]
            .boxed()
        }
        _ => {
            let compare =
                (operator, -9..9_i64).prop_map(|(operator, bound)| ("m", Test::Compare(operator, Int(bound))));
            prop_oneof![common, compare, class("m", &["number", "string", "array", "object"])].boxed()
        }
    }
}

/// Filters of any form, nested some levels deep.
pub(crate) fn some_filter(family: Family) -> BoxedStrategy<MetaFilter> {
    let leaf = (some_test(family), proptest::option::weighted(0.2, some_test(family))).prop_map(|(one, other)| {
        let mut tests = vec![one.1];
        // Two conditions on one path, each of its own operator.
        if let Some(other) = other.filter(|(path, test)| *path == one.0 && test.written().0 != tests[0].written().0) {
            tests.push(other.1);
        }
        MetaFilter::At(one.0, tests)
    });
    let nested = leaf.prop_recursive(3, 8, 3, |inner| {
        let clauses = proptest::collection::vec(inner, 1..=3);
        prop_oneof![clauses.clone().prop_map(MetaFilter::And), clauses.prop_map(MetaFilter::Or)]
    });
    nested.boxed()
}

/// A condition on whole measurements, for deletes.
#[derive(Debug, Clone)]
pub(crate) struct Chosen {
    pub(crate) meta: Option<MetaFilter>,
    /// First instant that matches, and first one after it that does not.
    pub(crate) from: Option<Timestamp>,
    pub(crate) to: Option<Timestamp>,
    /// Matches rows whose `k` is this.
    pub(crate) k: Option<i64>,
}

impl Chosen {
    pub(crate) fn parsed(&self) -> Filter {
        let mut members = Vec::new();
        let bound = |operator: &str, t: Timestamp| Value::Object(vec![(operator.into(), Value::Date(t))]);
        let mut clause = |name: &str, value: Value| members.push(Value::Object(vec![(name.into(), value)]));
        if let Some(from) = self.from {
            clause("t", bound("$gte", from));
        }
        if let Some(to) = self.to {
            clause("t", bound("$lt", to));
        }
        if let Some(k) = self.k {
            clause("k", Value::Int(k));
        }
        members.extend(self.meta.iter().map(MetaFilter::written));
        let whole = match members.is_empty() {
            true => Value::Object(Vec::new()),
            false => Value::Object(vec![("$and".into(), Value::Array(members))]),
        };
        Filter::parse_query(&whole).expect("a filter that is allowed")
    }
}

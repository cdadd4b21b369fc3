//! A $group that can be computed from figures of windows of time, instead of document by document.
//!
//! 1. The `_id` may depend on constants, on the meta, and on the time through operators on dates. Then it is the same for all
//!    documents of one meta within a window of time whose width follows from these operators.
//! 2. An accumulator's argument may be a constant, or a field whose figures are stored (count, sum, minimum, maximum,
//!    first, last).
//! 3. [`GroupPlan::fold`] puts the figures of each window and meta together. What would not come out as it does document by
//!    document (numbers that are not finite, first values of several metas) is not folded.

use super::Pipeline;
use super::Stage;
use super::group::{Group, document_bytes};
use crate::expression::accumulator::{Accumulator, Kind, Places};
use crate::expression::figure::{Figure, FigureValue};
use crate::expression::{Expression, Moment, Node, Scope, Value, Variable, date_width, gcd, is_date_operator};
use crate::raw::writer::DocumentWriter;
use crate::stop::Stop;
use crate::{ExpressionError, value_key};
use bson::DateTime;
use bson::raw::{CString, RawBson, RawBsonRef, RawDocumentBuf, cstr};
use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::hash_map::{self, HashMap};

/// About the bytes of an object as `_id`.
const ID_BYTES: usize = 64;
/// Windows between two questions whether the command was ended.
const STRIDE: usize = 1 << 10;

/// Windows of time with the figures of each; those of one meta in the order of their times.
pub trait WindowFigures {
    /// How many there are.
    fn count(&self) -> usize;

    /// When a window begins, in milliseconds since 1970; any, if the plan has no width.
    fn start_ms(&self, window: usize) -> i64;

    /// Which of the metas it has; one of them if metas are grouped.
    fn meta(&self, window: usize) -> usize;

    /// The metas.
    fn metas(&self) -> &[Option<RawBson>];

    /// A figure of a window, by its place in [`GroupPlan::figures`].
    fn figure(&self, window: usize, figure: usize) -> Option<FigureValue>;
}

/// How the figures of windows become the documents of a `$group`.
#[derive(Debug, Clone)]
pub struct GroupPlan {
    group: Group,
    time: String,
    meta: Option<String>,
    figures: Vec<Figure>,
    width_ms: Option<i64>,
    since_ms: i64,
    /// The parts of the `_id` that depend on the meta.
    of_meta: Vec<Expression>,
    first: Option<FirstGroups>,
}

/// The groups that a `$sort` by `_id` and a `$limit` keep of a `$group` whose `_id` rises with the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstGroups {
    /// How many they are.
    pub count: u64,
    /// Whether they are those of the latest times.
    pub descending: bool,
}

/// What a part of an `_id` depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Depends {
    on_meta: bool,
    /// The width of windows of time within which it stays the same, in milliseconds.
    width_ms: Option<i64>,
    /// From when on it does.
    since_ms: i64,
}

const NOTHING: Depends = Depends { on_meta: false, width_ms: None, since_ms: i64::MIN };

impl Depends {
    fn and(self, other: Depends) -> Depends {
        let width_ms = match (self.width_ms, other.width_ms) {
            (Some(a), Some(b)) => Some(gcd(a, b)),
            (a, b) => a.or(b),
        };
        let since_ms = self.since_ms.max(other.since_ms);
        Depends { on_meta: self.on_meta || other.on_meta, width_ms, since_ms }
    }
}

/// What a node depends on. `None` if it depends on more than constants, the meta and a window of time.
fn depends(node: &Node, time: &str, meta: Option<&str>) -> Option<Depends> {
    match node {
        Node::Path(Variable::Root, names) => {
            let is_meta = meta.is_some() && names.first().map(String::as_str) == meta;
            is_meta.then_some(Depends { on_meta: true, ..NOTHING })
        }
        // The key of a meta is made without them.
        Node::Path(Variable::Now | Variable::Outer(_), _) => None,
        Node::Call(operator, _) if operator.is_random() => None,
        Node::Call(operator, arguments) if is_date_operator(operator.name) => {
            match date_width(operator.name, arguments, &|node| is_field(node, time)) {
                Some((width, since_ms)) => Some(Depends { on_meta: false, width_ms: Some(width), since_ms }),
                None => of_children(node, time, meta),
            }
        }
        _ => of_children(node, time, meta),
    }
}

fn of_children(node: &Node, time: &str, meta: Option<&str>) -> Option<Depends> {
    node.children().into_iter().try_fold(NOTHING, |all, child| Some(all.and(depends(child, time, meta)?)))
}

/// Whether an `_id` is the time cut down, in UTC or at a fixed distance from it, so that it never falls while the time rises. In a
/// named time zone it can fall, when clocks are set back.
fn rises(node: &Node, time: &str) -> bool {
    let Node::Call(operator, arguments) = node else { return false };
    let width = date_width(operator.name, arguments, &|node| is_field(node, time));
    operator.name == "$dateTrunc" && width.is_some_and(|(_, since_ms)| since_ms == i64::MIN)
}

/// Whether a node is a field of the document.
fn is_field(node: &Node, name: &str) -> bool {
    matches!(node, Node::Path(Variable::Root, names) if names.len() == 1 && names[0] == name)
}

/// The largest parts of a node that depend on the meta and not on the time.
fn parts_of_meta(node: &Node, time: &str, meta: Option<&str>, parts: &mut Vec<Expression>) {
    match depends(node, time, meta) {
        Some(Depends { on_meta: true, width_ms: None, .. }) => parts.push(Expression::of_node(node.clone())),
        Some(Depends { on_meta: false, .. }) => {}
        _ => node.children().into_iter().for_each(|child| parts_of_meta(child, time, meta, parts)),
    }
}

/// The figures that an accumulator is computed from. `None` if it needs the documents.
fn figures_of(kind: &Kind, argument: &Expression) -> Option<Vec<Figure>> {
    if *kind == Kind::Count {
        return Some(vec![Figure::Rows]);
    }
    if let Some(constant) = argument.constant() {
        // A double is added up exactly if it and all of its multiples are whole.
        let is_whole = match constant {
            Some(RawBson::Int32(_) | RawBson::Int64(_)) => true,
            Some(RawBson::Double(d)) => d.fract() == 0.0 && d.abs() < 1e6 && !(*d == 0.0 && d.is_sign_negative()),
            _ => false,
        };
        return (*kind == Kind::Sum && is_whole).then(|| vec![Figure::Rows]);
    }
    let [field] = argument.as_path()? else { return None };
    let field = || field.clone();
    let bounds = || vec![Figure::Count(field()), Figure::Min(field()), Figure::Max(field())];
    Some(match kind {
        Kind::Sum | Kind::Avg => [bounds(), vec![Figure::Sum(field())]].concat(),
        Kind::Min | Kind::Max => bounds(),
        Kind::First => vec![Figure::First(field())],
        Kind::Last => vec![Figure::Last(field())],
        _ => return None,
    })
}

impl Pipeline {
    /// A plan for the first stage, if it is a `$group` that figures of windows answer. `time` is the field of the time, which
    /// every document has, and `meta` that of the meta. The stage is still part of the pipeline.
    #[must_use]
    pub fn plan_group(&self, time: &str, meta: Option<&str>) -> Option<GroupPlan> {
        let Some(Stage::Group(group)) = self.stages.first() else { return None };
        let Depends { width_ms, since_ms, .. } = depends(group.id.node(), time, meta)?;
        let mut figures = vec![Figure::Rows];
        for (_, kind, argument) in &group.fields {
            for figure in figures_of(kind, argument)? {
                let is_other = |field: &String| field != time && Some(field.as_str()) != meta;
                if !figure.field().is_none_or(is_other) {
                    return None;
                }
                if !figures.contains(&figure) {
                    figures.push(figure);
                }
            }
        }
        let mut of_meta = Vec::new();
        parts_of_meta(group.id.node(), time, meta, &mut of_meta);
        let first = self.first_groups().filter(|_| rises(group.id.node(), time));
        let (time, meta) = (time.to_owned(), meta.map(str::to_owned));
        Some(GroupPlan { group: group.clone(), time, meta, figures, width_ms, since_ms, of_meta, first })
    }

    /// What the second stage keeps of the first, if it is a sort by `_id` with a limit.
    fn first_groups(&self) -> Option<FirstGroups> {
        let Some(Stage::Sort(sort, Some(count))) = self.stages.get(1) else { return None };
        let mut paths = sort.paths();
        match (paths.next(), paths.next()) {
            (Some((path, descending)), None) if path == "_id" => Some(FirstGroups { count: *count, descending }),
            _ => None,
        }
    }

    /// Whether it begins with a `$sort` by the time, perhaps by the meta before it, and a `$group` by what the meta has, which takes
    /// of the documents of one meta the newest alone. Then it may be given these and no others.
    #[must_use]
    pub fn needs_newest(&self, time: &str, meta: &str) -> bool {
        let [Stage::Sort(sort, None), Stage::Group(group), ..] = self.stages.as_slice() else { return false };
        let mut paths: Vec<(String, bool)> = sort.paths().collect();
        let Some((last, descending)) = paths.pop() else { return false };
        let wanted = if descending { Kind::First } else { Kind::Last };
        let is_of_meta = |path: &str| path.split('.').next() == Some(meta);
        let id = depends(group.id.node(), time, Some(meta));
        last == time
            && paths.iter().all(|(path, _)| is_of_meta(path))
            && id.is_some_and(|id| id.width_ms.is_none() && id.since_ms == i64::MIN)
            && group.fields.iter().all(|(_, kind, _)| *kind == wanted)
    }

    /// The field of a `$count` at the beginning.
    #[must_use]
    pub fn leading_count(&self) -> Option<&str> {
        match self.stages.first() {
            Some(Stage::Count(name)) => Some(name.as_str()),
            _ => None,
        }
    }

    /// Takes off the first stage.
    pub fn skip_first(&mut self) {
        self.stages.drain(..self.stages.len().min(1));
    }
}

impl Figure {
    /// The field, if it is of one.
    #[must_use]
    pub fn field(&self) -> Option<&String> {
        match self {
            Figure::Rows => None,
            Figure::Count(field) | Figure::Sum(field) | Figure::Min(field) | Figure::Max(field) => Some(field),
            Figure::First(field) | Figure::Last(field) => Some(field),
        }
    }
}

impl GroupPlan {
    /// The figures that are needed of each window.
    #[must_use]
    pub fn figures(&self) -> &[Figure] {
        &self.figures
    }

    /// The width of windows of time, aligned to 1970, in milliseconds; `None` if all times are one window.
    #[must_use]
    pub fn width_ms(&self) -> Option<i64> {
        self.width_ms
    }

    /// The groups that the next stages keep; `None` if they may need all.
    #[must_use]
    pub fn first_groups(&self) -> Option<FirstGroups> {
        self.first
    }

    /// Whether figures are needed of each meta by itself.
    #[must_use]
    pub fn by_meta(&self) -> bool {
        !self.of_meta.is_empty()
    }

    /// A key of what the `_id` takes of a meta: metas of the same key need no figures of their own.
    ///
    /// `stop` is asked now and then whether to give up.
    ///
    /// # Errors
    /// Those of the operators; 50 if it was stopped.
    pub fn meta_key(
        &self,
        meta: Option<RawBson>,
        stop: &dyn Fn() -> bool,
    ) -> std::result::Result<Vec<u8>, ExpressionError> {
        let moment = Moment { stop: Stop(stop), ..Moment::at(0) };
        moment.stop.check()?;
        let document = self.document(0, meta);
        let mut key = Vec::new();
        for part in &self.of_meta {
            let value = part.evaluate_at(&document, moment)?;
            key.push(u8::from(value.is_some()));
            key.extend(value_key(value.unwrap_or(RawBson::Null).as_raw_bson_ref()));
        }
        Ok(key)
    }

    /// A document with nothing but its time and meta.
    fn document(&self, start_ms: i64, meta: Option<RawBson>) -> RawDocumentBuf {
        let mut document = RawDocumentBuf::new();
        let mut append = |name: &str, value: RawBson| {
            if let Ok(name) = CString::try_from(name) {
                document.append(name, value);
            }
        };
        append(&self.time, RawBson::DateTime(DateTime::from_millis(start_ms)));
        if let (Some(name), Some(meta)) = (&self.meta, meta) {
            append(name, meta);
        }
        document
    }

    /// The documents of the groups, from the figures of all windows, those of one part after those of another; `None` if they do
    /// not determine what comes out document by document. `stop` is asked now and then whether to give up.
    ///
    /// # Errors
    /// 50 if it was stopped.
    pub fn fold(
        &self,
        parts: &[impl WindowFigures],
        now_ms: i64,
        stop: &dyn Fn() -> bool,
    ) -> std::result::Result<Option<Vec<RawDocumentBuf>>, ExpressionError> {
        let moment = Moment { stop: Stop(stop), ..Moment::at(now_ms) };
        let folded = self.folded(parts, moment);
        // What was stopped is not determined either.
        if folded.is_none() {
            moment.stop.check()?;
        }
        Ok(folded)
    }

    fn folded(&self, parts: &[impl WindowFigures], moment: Moment<'_>) -> Option<Vec<RawDocumentBuf>> {
        let has_edges = self.figures.iter().any(|figure| matches!(figure, Figure::First(_) | Figure::Last(_)));
        // Groups in the order in which they are found, and their numbers in that of their `_id`.
        let mut groups: Vec<GroupOfWindows> = Vec::new();
        let mut numbers: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        for (part, windows) in parts.iter().enumerate() {
            let mut ids = Ids::new(self, windows.metas(), moment);
            let mut meta_keys: Vec<Option<Vec<u8>>> = vec![None; windows.metas().len()];
            for window in 0..windows.count() {
                if window % STRIDE == 0 {
                    moment.stop.check().ok()?;
                }
                if !matches!(windows.figure(window, 0), Some(FigureValue::Int(1..))) {
                    continue;
                }
                let (start_ms, meta) = (windows.start_ms(window), windows.meta(window));
                if start_ms < self.since_ms {
                    return None;
                }
                let id = ids.evaluate(start_ms, meta)?;
                let meta_key = match &mut meta_keys[meta] {
                    _ if !has_edges => None,
                    Some(known) => Some(known.clone()),
                    fresh => {
                        let key = self.meta_key(windows.metas()[meta].clone(), moment.stop.0).ok()?;
                        Some(fresh.insert(key).clone())
                    }
                };
                match numbers.entry(value_key(id.as_raw_bson_ref())) {
                    Entry::Vacant(place) => {
                        place.insert(groups.len());
                        groups.push(GroupOfWindows { id, meta_key, first: (part, window), others: Vec::new() });
                    }
                    Entry::Occupied(number) => {
                        let group = &mut groups[*number.get()];
                        // Of several metas it is not known which has the earliest document. Nor which comes first of two `_id`s that
                        // compare equal but differ (1 and 1.0): that of the first document is kept.
                        if group.id != id || group.meta_key != meta_key {
                            return None;
                        }
                        group.others.push((part, window));
                    }
                }
            }
        }
        let places = |argument: &Expression| {
            argument.as_path().and_then(<[String]>::first).map(|field| Places::of(field, &self.figures))
        };
        let places: Vec<Option<Places>> = self.group.fields.iter().map(|(_, _, argument)| places(argument)).collect();
        let mut documents = Vec::with_capacity(groups.len());
        let mut bytes = 0;
        for group in groups {
            let document = self.document_of(&group, &places, parts, (bytes, moment))?;
            bytes = document_bytes(&document);
            documents.push(document);
        }
        Some(numbers.into_values().map(|number| std::mem::take(&mut documents[number])).collect())
    }

    /// The document of a group, which has about this number of bytes; `None` if the figures do not determine it.
    fn document_of(
        &self,
        group: &GroupOfWindows,
        places: &[Option<Places>],
        parts: &[impl WindowFigures],
        (bytes, moment): (usize, Moment<'_>),
    ) -> Option<RawDocumentBuf> {
        let mut document = DocumentWriter::with_capacity(bytes);
        document.append(cstr!("_id"), group.id.as_raw_bson_ref());
        for ((name, kind, argument), places) in self.group.fields.iter().zip(places) {
            let constant = argument.constant().and_then(|constant| Some(constant.as_ref()?.as_raw_bson_ref()));
            let mut accumulator = Accumulator::new(kind);
            for (at, (part, window)) in std::iter::once(&group.first).chain(&group.others).enumerate() {
                if at % STRIDE == 0 {
                    moment.stop.check().ok()?;
                }
                let figure = |figure| parts[*part].figure(*window, figure);
                accumulator.take_figures(kind, constant, places.as_ref(), figure)?;
            }
            document.append(name, accumulator.finish(kind).ok()?.as_raw_bson_ref());
        }
        (!document.is_too_long()).then(|| document.finish())
    }
}

/// A group and its windows, by part and number.
struct GroupOfWindows {
    id: RawBson,
    /// The key of its metas, if it must be one.
    meta_key: Option<Vec<u8>>,
    first: (usize, usize),
    others: Vec<(usize, usize)>,
}

/// The `_id`s of windows: what depends on the meta alone, or on the time alone, is not computed for each of them.
struct Ids<'p> {
    plan: &'p GroupPlan,
    metas: &'p [Option<RawBson>],
    moment: Moment<'p>,
    /// The members of an object, or the whole `_id` without a name.
    parts: Vec<(Option<&'p CString>, &'p Node, Known)>,
}

/// What was computed of a part of an `_id`.
enum Known {
    OfMeta(Vec<Option<Value>>),
    OfTime(HashMap<i64, Value>),
    Nothing,
}

impl<'p> Ids<'p> {
    fn new(plan: &'p GroupPlan, metas: &'p [Option<RawBson>], moment: Moment<'p>) -> Ids<'p> {
        let known = |node: &Node| match depends(node, &plan.time, plan.meta.as_deref()) {
            Some(Depends { width_ms: None, .. }) => Known::OfMeta(vec![None; metas.len()]),
            Some(Depends { on_meta: false, .. }) => Known::OfTime(HashMap::new()),
            _ => Known::Nothing,
        };
        let parts = match plan.group.id.node() {
            Node::Object(members) => members.iter().map(|(name, node)| (Some(name), node, known(node))).collect(),
            node => vec![(None, node, known(node))],
        };
        Ids { plan, metas, moment, parts }
    }

    /// The `_id` of a window; `None` if it cannot be computed.
    fn evaluate(&mut self, start_ms: i64, meta: usize) -> Option<RawBson> {
        let mut object = DocumentWriter::with_capacity(ID_BYTES);
        let is_alone = self.parts.len() == 1;
        for (name, node, known) in &mut self.parts {
            let compute = || {
                let document = self.plan.document(start_ms, self.metas[meta].clone());
                node.evaluate(&mut Scope::new(&document, self.moment)).ok()
            };
            let computed;
            let value = match known {
                Known::OfMeta(values) => {
                    let value = &mut values[meta];
                    if value.is_none() {
                        *value = Some(compute()?);
                    }
                    value.as_ref()?
                }
                Known::OfTime(values) => match values.entry(start_ms) {
                    hash_map::Entry::Occupied(value) => value.into_mut(),
                    hash_map::Entry::Vacant(place) => place.insert(compute()?),
                },
                Known::Nothing => {
                    computed = compute()?;
                    &computed
                }
            };
            match (name, value) {
                (None, value) => return Some(value.clone().unwrap_or(RawBson::Null)),
                (Some(name), Some(value)) => object.append(name, value.as_raw_bson_ref()),
                // As in a group of documents.
                (Some(name), None) if is_alone => object.append(name, RawBsonRef::Null),
                (Some(_), None) => {}
            }
        }
        (!object.is_too_long()).then(|| RawBson::Document(object.finish()))
    }
}

//! The lines of one text. Many have measurement, tags and names of fields in common: these are read once.

use super::{Cursor, text_of};
use ahash::AHashMap;
use ebbtide_buckets::{Cell, Measurement};
use ebbtide_ttl::{RuleError, Timestamp, Value};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

/// Names that are compared with each other; more are hashed.
const COMPARED_MAX: usize = 24;

/// Lines by measurement.
///
/// ```
/// use ebbtide::line_protocol::Lines;
/// use ebbtide::ttl::Timestamp;
///
/// let mut lines = Lines::default();
/// for (number, line) in ["cpu,host=a usage=0.5 5", "cpu,host=a usage=0.7 6"].iter().enumerate() {
///     lines.read(line.as_bytes(), number, |time| Ok(Timestamp::from_nanos(time.unwrap_or("0").parse().unwrap())))?;
/// }
/// let measurements: Vec<_> = lines.measurements().collect();
/// assert_eq!((measurements[0].name(), measurements[0].len()), ("cpu", 2));
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Default)]
pub struct Lines<'a> {
    /// The numbers of measurement and tags by what stands before the fields.
    heads: AHashMap<&'a str, (usize, usize)>,
    names: BTreeMap<Cow<'a, str>, usize>,
    measurements: Vec<Points<'a>>,
}

/// The points of one measurement.
#[derive(Debug)]
pub struct Points<'a> {
    name: Cow<'a, str>,
    /// Tags as objects; of equal ones there may be several.
    tags: Vec<Value>,
    /// Names of fields, as runs of lines have them.
    layouts: Vec<Vec<Cow<'a, str>>>,
    /// The values of all points, one after another.
    values: Vec<Cell<'a>>,
    points: Vec<Point>,
}

#[derive(Debug)]
struct Point {
    tags: usize,
    layout: usize,
    /// Its first value.
    begin: usize,
    instant: Timestamp,
    number: usize,
}

impl<'a> Lines<'a> {
    /// Reads a line, unless it is a comment. `number` is what [`LinePoint::number`] says, and `instant` makes an instant of the
    /// digits of its time.
    ///
    /// # Errors
    /// What is wrong with the line, or what `instant` says; it is as if the line had not been there.
    pub fn read(
        &mut self,
        line: &'a [u8],
        number: usize,
        instant: impl FnOnce(Option<&str>) -> Result<Timestamp, String>,
    ) -> Result<(), String> {
        let Some(text) = text_of(line)? else { return Ok(()) };
        let mut cursor = Cursor { text, at: 0 };
        let (measurement, tags) = self.head(&mut cursor)?;
        self.measurements[measurement].read(cursor, tags, number, instant)
    }

    /// The measurements that have points, by name.
    pub fn measurements(&self) -> impl Iterator<Item = &Points<'a>> {
        self.names.values().map(|at| &self.measurements[*at]).filter(|points| !points.is_empty())
    }

    /// The measurement of a line and its tags.
    fn head(&mut self, cursor: &mut Cursor<'a>) -> Result<(usize, usize), String> {
        if let Some((head, spaces)) = head_of(cursor.text)
            && let Some(known) = self.heads.get(head)
        {
            cursor.at = head.len() + spaces;
            return Ok(*known);
        }
        let (name, tags) = cursor.head()?;
        let head = &cursor.text[..cursor.at];
        if !cursor.spaces() {
            return Err(cursor.error("expected fields after a space"));
        }
        if let Some(twice) = twice(tags.iter().map(|(name, _)| &**name)) {
            return Err(format!("there are two tags '{twice}'"));
        }
        let measurement = match self.names.get(&name) {
            Some(known) => *known,
            None => {
                self.names.insert(name.clone(), self.measurements.len());
                self.measurements.push(Points::new(name));
                self.measurements.len() - 1
            }
        };
        let points = &mut self.measurements[measurement];
        let tags = tags.into_iter().map(|(name, value)| ((&*name).into(), Value::String(value.into_owned())));
        points.tags.push(Value::Object(tags.collect()));
        let known = (measurement, points.tags.len() - 1);
        self.heads.insert(head, known);
        Ok(known)
    }
}

/// What stands before the first space that is not escaped, and how many spaces there are.
fn head_of(text: &str) -> Option<(&str, usize)> {
    let is_end = |at: &usize| *at == 0 || text.as_bytes()[at - 1] != b'\\';
    let at = text.match_indices(' ').map(|(at, _)| at).find(is_end)?;
    let (head, rest) = text.split_at(at);
    Some((head, rest.bytes().take_while(|byte| *byte == b' ').count()))
}

/// The first name that comes a second time.
fn twice<'n>(names: impl ExactSizeIterator<Item = &'n str> + Clone) -> Option<&'n str> {
    if names.len() <= COMPARED_MAX {
        let before = names.clone();
        return names
            .enumerate()
            .find(|(at, name)| before.clone().take(*at).any(|other| other == *name))
            .map(|(_, name)| name);
    }
    let mut seen = HashSet::new();
    names.into_iter().find(|name| !seen.insert(*name))
}

impl<'a> Points<'a> {
    fn new(name: Cow<'a, str>) -> Points<'a> {
        Points { name, tags: Vec::new(), layouts: Vec::new(), values: Vec::new(), points: Vec::new() }
    }

    /// The name of the measurement.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many points there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// The names of fields that points have; [`LinePoint::layout`] tells which.
    #[must_use]
    pub fn layouts(&self) -> &[Vec<Cow<'a, str>>] {
        &self.layouts
    }

    /// The points, in the order of their lines, as measurements of a collection with a time field of this name.
    pub fn as_measurements<'p>(&'p self, time: &'p str) -> impl Iterator<Item = LinePoint<'p>> {
        self.points.iter().map(move |point| LinePoint { points: self, point, time })
    }

    fn read(
        &mut self,
        mut cursor: Cursor<'a>,
        tags: usize,
        number: usize,
        instant: impl FnOnce(Option<&str>) -> Result<Timestamp, String>,
    ) -> Result<(), String> {
        let begin = self.values.len();
        let read = self.fields(&mut cursor).and_then(|layout| Ok((layout, instant(cursor.time()?)?)));
        match read {
            Ok((layout, instant)) => {
                self.points.push(Point { tags, layout, begin, instant, number });
                Ok(())
            }
            Err(reason) => {
                self.values.truncate(begin);
                Err(reason)
            }
        }
    }

    /// Reads the fields of a line; which layout they have.
    fn fields(&mut self, cursor: &mut Cursor<'a>) -> Result<usize, String> {
        let (begin, at) = (self.values.len(), cursor.at);
        if self.fields_as_before(cursor)? {
            return Ok(self.layouts.len() - 1);
        }
        self.values.truncate(begin);
        cursor.at = at;
        let mut names = Vec::new();
        loop {
            let name = cursor.name()?;
            self.values.push(cursor.value(&name)?);
            names.push(name);
            if !cursor.take(b',') {
                break;
            }
        }
        if let Some(twice) = twice(names.iter().map(|name| &**name)) {
            return Err(format!("there are two fields '{twice}'"));
        }
        self.layouts.push(names);
        Ok(self.layouts.len() - 1)
    }

    /// Reads the fields of a line that has the names of the line before; false if it has others.
    fn fields_as_before(&mut self, cursor: &mut Cursor<'a>) -> Result<bool, String> {
        let Some(names) = self.layouts.last() else { return Ok(false) };
        for (at, name) in names.iter().enumerate() {
            // A name with escapes is written in another way than it reads.
            let Cow::Borrowed(name) = name else { return Ok(false) };
            if !cursor.take_text(name) || !cursor.take(b'=') {
                return Ok(false);
            }
            self.values.push(cursor.value(name)?);
            if cursor.take(b',') != (at + 1 < names.len()) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// One of several points, as a measurement whose meta are the tags.
#[derive(Debug, Clone, Copy)]
pub struct LinePoint<'p> {
    points: &'p Points<'p>,
    point: &'p Point,
    time: &'p str,
}

impl LinePoint<'_> {
    /// The number that its line was read with.
    #[must_use]
    pub fn number(&self) -> usize {
        self.point.number
    }

    /// Which of [`Points::layouts`] it has.
    #[must_use]
    pub fn layout(&self) -> usize {
        self.point.layout
    }

    /// Whether it has tags.
    #[must_use]
    pub fn has_tags(&self) -> bool {
        self.shared_meta().is_some()
    }
}

impl<'p> Measurement<'p> for LinePoint<'p> {
    fn members(self) -> Result<impl Iterator<Item = Result<(&'p str, Cell<'p>), RuleError>>, RuleError> {
        let Point { layout, begin, instant, .. } = self.point;
        let fields = self.points.layouts[*layout].iter().zip(&self.points.values[*begin..]);
        let fields = fields.map(|(name, value)| Ok((&**name, value.borrowed())));
        Ok(std::iter::once(Ok((self.time, Cell::Date(*instant)))).chain(fields))
    }

    fn shared_meta(self) -> Option<&'p Value> {
        let tags = &self.points.tags[self.point.tags];
        matches!(tags, Value::Object(members) if !members.is_empty()).then_some(tags)
    }
}

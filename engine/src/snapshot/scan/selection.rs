//! Which buckets of segments and of memory a request selects.

use super::request::{ScanReport, ScanRequest};
use crate::archive::bounds::may_have_metas;
use crate::error::{Error, Result};
use crate::segment::bounds::BucketBounds;
use crate::segment::{Classes, Segment, ordinal_number};
use crate::snapshot::CollectionSnapshot;
use crate::snapshot::row_filter::{RowFilter, Selection, StoredRange};
use ahash::AHashSet;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StringViewArray};
use arrow::buffer::BooleanBuffer;
use arrow::compute::kernels::cmp::eq;
use ebbtide_buckets::{
    BoundsCheck, Chunk, ChunkBucket, FieldType, MetaKey, Schema, SegmentReader, column_of_keys, keys_of_column, times,
};
use ebbtide_ttl::{Cutoff, Value};
use roaring::{MultiOps, RoaringBitmap};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// A bucket of a segment with rows that are selected.
pub(in crate::snapshot) struct SelectedBucket {
    pub(in crate::snapshot) ordinal: usize,
    /// Ordinal of its meta.
    pub(in crate::snapshot) meta: usize,
    pub(in crate::snapshot) bounds: BucketBounds,
    /// What its rows have to pass, if not all of them are selected.
    pub(in crate::snapshot) filter: Option<RowFilter>,
}

/// The values of a member of metas that are looked for.
pub(in crate::snapshot) struct WantedValues<'a> {
    /// The names that lead to the member.
    path: &'a [String],
    /// The values of buckets that were selected as a whole: no other bucket is needed for them.
    found: AHashSet<MetaKey>,
}

impl<'a> WantedValues<'a> {
    /// `None` if the member may be a list or an object, which is not told from others by its scalars, or a double.
    pub(in crate::snapshot) fn at(path: &'a [String], schema: &Schema) -> Option<WantedValues<'a>> {
        use FieldType::{Bool, Int64, Object, String, Timestamp};
        let member = path.iter().try_fold(schema.meta_type.as_ref()?, |ty, name| match ty {
            Object(members) => members.iter().find(|(member, _)| member == name).map(|(_, ty)| ty),
            _ => None,
        })?;
        let is_scalar = !path.is_empty() && matches!(member, Bool | Int64 | String | Timestamp);
        is_scalar.then(|| WantedValues { path, found: AHashSet::new() })
    }

    fn names(&self) -> Vec<&'a str> {
        self.path.iter().map(String::as_str).collect()
    }

    /// The values of the rows of a chunk, and the place of each row's among them; `None` if they cannot be told from its columns.
    fn of_rows(&self, chunk: &Chunk, schema: &Schema) -> Option<(Vec<MetaKey>, Vec<u32>)> {
        let mut column = chunk.batch.column_by_name(schema.meta.as_ref()?)?;
        for name in self.path {
            let object = column.as_struct_opt().filter(|object| object.null_count() == 0)?;
            column = object.column_by_name(name)?;
        }
        Some(keys_of_column(Some(column), chunk.batch.num_rows()))
    }
}

/// Up to this many values of a member are looked for among the bytes of metas, each in a pass of its own.
const SOUGHT_MAX: usize = 8;

/// The rows of a chunk that may have one of some values in a member of their metas; `None` if that is not known.
fn rows_having(chunk: &Chunk, schema: &Schema, path: &[String], values: &[Value]) -> Option<BooleanBuffer> {
    let column = member_column(chunk, schema, path)?.as_string_view_opt()?;
    let rows_of = |value: &Value| match value {
        Value::String(text) => Some(eq(column, &StringViewArray::new_scalar(text)).ok()?.values().clone()),
        _ => None,
    };
    let rows = values.iter().take(SOUGHT_MAX + 1).map(rows_of).collect::<Option<Vec<_>>>()?;
    if rows.len() > SOUGHT_MAX { None } else { rows.into_iter().reduce(|a, b| &a | &b) }
}

/// The values of a member of metas in the rows of a chunk, with anything at all where the object that it is a member of is null.
fn member_column<'c>(chunk: &'c Chunk, schema: &Schema, path: &[String]) -> Option<&'c ArrayRef> {
    let meta = chunk.batch.column_by_name(schema.meta.as_ref()?)?;
    path.iter().try_fold(meta, |column, name| column.as_struct_opt()?.column_by_name(name))
}

/// Files of archives that are opened at the same time, since each waits for the store.
const OPENED_AT_ONCE: usize = 16;

/// Selects the buckets that a request asks for, and reports what it leaves out.
pub(in crate::snapshot) struct BucketSelector<'a> {
    snapshot: &'a CollectionSnapshot,
    request: &'a ScanRequest,
    time: StoredRange,
    /// The metas that may be selected, if they are named.
    named: Option<AHashSet<MetaKey>>,
    /// The values that members of metas may have, by which files of archives are left out.
    members: Vec<(Vec<String>, Vec<Value>)>,
    /// Files of archives that were opened together with an earlier one, by the numbers of their segments.
    opened: HashMap<u64, Result<SegmentReader>>,
    report: ScanReport,
}

impl<'a> BucketSelector<'a> {
    pub(in crate::snapshot) fn new(snapshot: &'a CollectionSnapshot, request: &'a ScanRequest) -> Self {
        let time = request.time.stored(snapshot.options().precision);
        let candidates = request.meta.iter().flat_map(|filter| filter.candidates());
        let named = candidates.into_iter().find(|(path, _)| path.is_empty());
        let named = named.map(|(_, metas)| metas.iter().map(MetaKey::of).collect());
        let members = if snapshot.archived.is_some() { snapshot.metas_of(request) } else { Vec::new() };
        BucketSelector {
            snapshot,
            request,
            time,
            named,
            members,
            opened: HashMap::new(),
            report: ScanReport::default(),
        }
    }

    pub(in crate::snapshot) fn report(&self) -> ScanReport {
        self.report
    }

    /// The filter of metas with an effective rule (index in the rule set, E).
    fn filter(&self, class: Option<(usize, i64)>) -> RowFilter {
        let cutoff = self.snapshot.cutoff(class.map(|(_, e)| e));
        if self.snapshot.archived.is_none() {
            let cutoff = if self.request.include_hidden { Cutoff::NONE } else { cutoff };
            return RowFilter { time: self.time, cutoff };
        }
        // What the cut-off hides and is going to be archived, instead of what it shows.
        let is_archived = class.is_some_and(|(rule, _)| self.snapshot.state.archive_of(rule).is_some());
        let last = cutoff.last_hidden().filter(|last| is_archived && *last >= self.time.first);
        let time = last.map_or(StoredRange::NONE, |last| StoredRange { last: self.time.last.min(last), ..self.time });
        RowFilter { time, cutoff: Cutoff::NONE }
    }

    /// The filter of metas with an effective rule in a segment. All that is archived has expired, whatever the rules say now.
    fn filter_in(&self, segment: &Segment, class: Option<(usize, i64)>) -> RowFilter {
        match segment.archived.is_some() {
            true => RowFilter { time: self.time, cutoff: Cutoff::NONE },
            false => self.filter(class),
        }
    }

    /// Whether a filter selects rows of a bucket; if so, the filter unless it selects all of them.
    fn admit(&mut self, filter: RowFilter, bounds: &BucketBounds) -> Option<Option<RowFilter>> {
        match filter.select(bounds) {
            Selection::All => Some(None),
            Selection::Some => Some(Some(filter)),
            Selection::Pruned => {
                self.report.buckets_pruned += 1;
                None
            }
            Selection::Hidden => {
                self.report.buckets_hidden += 1;
                self.report.rows_hidden += bounds.rows;
                None
            }
        }
    }

    /// The selected buckets of a segment, in order; `None` if it is known without opening the segment that there are none.
    pub(in crate::snapshot) fn select(
        &mut self,
        segment: &Arc<Segment>,
    ) -> Result<Option<(SegmentReader, Vec<SelectedBucket>)>> {
        match self.open(segment)? {
            Some((reader, classes)) => Ok(Some(self.select_in(segment, reader, &classes)?)),
            None => Ok(None),
        }
    }

    /// Opens a segment, unless it is known without that that nothing of it is selected.
    fn open(&mut self, segment: &Arc<Segment>) -> Result<Option<(SegmentReader, Classes)>> {
        let live = segment.live();
        if live.buckets == 0 || !self.may_have_rows_of(segment) {
            self.report.buckets_pruned += u64::from(live.buckets);
            return Ok(None);
        }
        if segment.archived.is_some() {
            return Ok(Some((self.open_archived(segment)?, Classes::Uniform(None))));
        }
        let state = &self.snapshot.state;
        let classes = segment.classes(&state.rules, Some(state.rules_epoch))?;
        // A segment that is expired as a whole is skipped without its directory, and one that is visible as a whole if only
        // what has expired is read.
        let (least, longest) = classes.range();
        let hides = |e: i64, t: i64| self.snapshot.cutoff(Some(e)).hides(t);
        let skips = match self.snapshot.archived {
            Some(_) => least.is_none_or(|least| !hides(least, live.first_min)),
            None => !self.request.include_hidden && longest.is_some_and(|longest| hides(longest, live.last_max)),
        };
        if skips {
            self.report.buckets_hidden += u64::from(live.buckets);
            self.report.rows_hidden += live.rows;
            return Ok(None);
        }
        Ok(Some((segment.file.reader()?, classes)))
    }

    /// Whether a segment may have rows of interest, by its times, and by what its archive says of its metas.
    fn may_have_rows_of(&self, segment: &Segment) -> bool {
        let live = segment.live();
        self.time.overlaps(live.first_min, live.last_max)
            && segment.archived.as_ref().is_none_or(|bounds| may_have_metas(bounds, &self.members))
    }

    /// Opens a file of an archive, and those that are selected next.
    fn open_archived(&mut self, segment: &Arc<Segment>) -> Result<SegmentReader> {
        if let Some(opened) = self.opened.remove(&segment.file.id) {
            return opened;
        }
        if segment.file.is_open() {
            return segment.file.reader();
        }
        let after = self.snapshot.state.segments.range(segment.file.id..).skip(1).map(|(_, after)| after);
        let after = after.filter(|after| self.may_have_rows_of(after) && !after.file.is_open());
        let after: Vec<&Arc<Segment>> = after.take(OPENED_AT_ONCE - 1).collect();
        let (reader, opened) = std::thread::scope(|scope| {
            let opening = |after: &Arc<Segment>| {
                let file = Arc::clone(&after.file);
                let id = file.id;
                // Without a thread it is opened when it is its turn.
                let opening = std::thread::Builder::new().spawn_scoped(scope, move || file.reader());
                Some((id, opening.ok()?))
            };
            let opening: Vec<_> = after.into_iter().map_while(opening).collect();
            let reader = segment.file.reader();
            let joined = opening
                .into_iter()
                .map(|(id, opening)| (id, opening.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))));
            (reader, joined.collect::<Vec<_>>())
        });
        self.opened.extend(opened);
        reader
    }

    fn select_in(
        &mut self,
        segment: &Arc<Segment>,
        reader: SegmentReader,
        classes: &Classes,
    ) -> Result<(SegmentReader, Vec<SelectedBucket>)> {
        // A filter may fail on metas without a visible measurement: then it is asked again about the others.
        let metas = self.wanted_metas(&reader);
        let failed = metas.is_err();
        let metas = metas.unwrap_or_else(|_| (0..reader.directory().meta_count()).collect());
        let bounds = self.request.bounds.iter().map(|b| (b.field.as_str(), b.min, b.max));
        let field_bounds = BoundsCheck::new(reader.directory(), bounds);
        let mut selected = Vec::new();
        let mut examined = 0;
        for (ordinal, meta, bounds) in segment.buckets_of_metas(&reader, metas) {
            examined += 1;
            if !field_bounds.may_match(ordinal) {
                self.report.buckets_pruned += 1;
            } else if let Some(filter) = self.admit(self.filter_in(segment, classes.of(meta)), &bounds) {
                selected.push(SelectedBucket { ordinal, meta, bounds, filter });
            }
        }
        if failed {
            let mut metas: Vec<usize> = selected.iter().map(|bucket| bucket.meta).collect();
            metas.dedup();
            let keys: Vec<MetaKey> = metas.iter().map(|meta| reader.directory().meta(*meta)).collect();
            if let Some(wanted) = self.metas(&keys)? {
                let before = selected.len();
                selected.retain(|bucket| metas.binary_search(&bucket.meta).is_ok_and(|at| wanted.value(at)));
                examined -= (before - selected.len()) as u64;
            }
        }
        self.report_selected(segment, examined, &selected);
        Ok((reader, selected))
    }

    fn report_selected(&mut self, segment: &Segment, examined: u64, selected: &[SelectedBucket]) {
        self.report.buckets_pruned += u64::from(segment.live().buckets).saturating_sub(examined);
        self.report.buckets += selected.len() as u64;
        self.report.segments += u64::from(!selected.is_empty());
    }

    /// Like [`BucketSelector::select`], but for each value of the wanted member it stops at the first bucket that is selected as a
    /// whole.
    pub(in crate::snapshot) fn select_values(
        &mut self,
        segment: &Arc<Segment>,
        wanted: &mut WantedValues<'_>,
    ) -> Result<Option<(SegmentReader, Vec<SelectedBucket>)>> {
        let Some((reader, classes)) = self.open(segment)? else { return Ok(None) };
        let (directory, path) = (reader.directory(), wanted.names());
        let of_filter = self.request.meta.is_some().then(|| self.wanted_metas(&reader));
        let (Some(values), None | Some(Ok(_))) = (directory.values_at(&path), &of_filter) else {
            return Ok(Some(self.select_in(segment, reader, &classes)?));
        };
        let of_filter = of_filter.and_then(Result::ok).map(|metas| metas.into_iter().map(ordinal_number).collect());
        let others = RoaringBitmap::from_iter(0..ordinal_number(directory.meta_count())) - values.values().union();
        let null = MetaKey::of(&Value::Null);
        let mut selected: Vec<SelectedBucket> = Vec::new();
        let mut examined = 0;
        for (value, metas) in values.iter().chain([(&null, &others)]) {
            if wanted.found.contains(value) {
                continue;
            }
            let metas = match &of_filter {
                Some(of_filter) => Cow::Owned(metas & of_filter),
                None => Cow::Borrowed(metas),
            };
            let before = selected.len();
            for (ordinal, meta, bounds) in segment.buckets_of_metas(&reader, metas.iter().map(|meta| meta as usize)) {
                examined += 1;
                let Some(filter) = self.admit(self.filter_in(segment, classes.of(meta)), &bounds) else { continue };
                if filter.is_none() {
                    selected.truncate(before);
                    wanted.found.insert(value.clone());
                }
                selected.push(SelectedBucket { ordinal, meta, bounds, filter });
                if filter.is_none() {
                    break;
                }
            }
        }
        selected.sort_unstable_by_key(|bucket| bucket.ordinal);
        self.report_selected(segment, examined, &selected);
        Ok(Some((reader, selected)))
    }

    /// Like [`BucketSelector::select_open`], but only buckets whose metas have a value that was not found yet.
    pub(in crate::snapshot) fn select_open_values<'c>(
        &mut self,
        chunk: &'c Chunk,
        wanted: &mut WantedValues<'_>,
    ) -> Result<Vec<(usize, Cow<'c, [u32]>)>> {
        let Some((values, places)) = wanted.of_rows(chunk, &self.snapshot.state.schema) else {
            return self.select_open(chunk);
        };
        let of = |bucket: &ChunkBucket| bucket.rows.first().map(|row| &values[places[*row as usize] as usize]);
        let is_new: Vec<bool> = values.iter().map(|value| !wanted.found.contains(value)).collect();
        let may_be_wanted =
            |bucket: &ChunkBucket| bucket.rows.first().is_some_and(|row| is_new[places[*row as usize] as usize]);
        if is_new.iter().all(|is_new| !is_new) {
            self.report.buckets_pruned += chunk.buckets.len() as u64;
            return Ok(Vec::new());
        }
        let mut selected = self.select_open_if(chunk, may_be_wanted)?;
        let count = selected.len();
        selected.retain(|(number, rows)| {
            let Some(value) = of(&chunk.buckets[*number]) else { return true };
            match rows {
                Cow::Borrowed(_) => wanted.found.insert(value.clone()),
                Cow::Owned(_) => !wanted.found.contains(value),
            }
        });
        self.report.buckets -= (count - selected.len()) as u64;
        Ok(selected)
    }

    /// Ordinals of the selected metas of a segment.
    fn wanted_metas(&self, reader: &SegmentReader) -> Result<Vec<usize>> {
        let directory = reader.directory();
        let all = 0..directory.meta_count();
        let Some(filter) = &self.request.meta else { return Ok(all.collect()) };
        let mut found: Option<RoaringBitmap> = None;
        for (path, values) in filter.candidates() {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            let having: Option<RoaringBitmap> = match path.is_empty() {
                true => {
                    let metas = values.iter().filter_map(|value| directory.find_meta(&MetaKey::of(value)));
                    Some(metas.filter_map(|meta| u32::try_from(meta).ok()).collect())
                }
                false => {
                    let postings: Option<Vec<_>> = values.iter().map(|value| directory.posting(&path, value)).collect();
                    let sought = || values.iter().map(|value| directory.metas_containing(value)).collect::<Vec<_>>();
                    postings.or_else(|| (values.len() <= SOUGHT_MAX).then(sought)).map(MultiOps::union)
                }
            };
            found = match (found, having) {
                (Some(found), Some(having)) => Some(found & having),
                (found, having) => found.or(having),
            };
        }
        let (candidates, selected): (Vec<usize>, _) = match found {
            Some(found) => {
                let keys: Vec<MetaKey> = found.iter().map(|meta| directory.meta(meta as usize)).collect();
                (found.iter().map(|meta| meta as usize).collect(), self.metas(&keys)?)
            }
            None => {
                let keys = || all.clone().map(|meta| directory.meta(meta)).collect::<Vec<_>>();
                let metas = || reader.metas(&self.snapshot.state.schema).unwrap_or_else(|| self.column(&keys()));
                (all.clone().collect(), self.select_metas(metas)?)
            }
        };
        let Some(selected) = selected else { return Ok(candidates) };
        Ok(candidates.into_iter().zip(selected.values()).filter(|(_, wanted)| *wanted).map(|(meta, _)| meta).collect())
    }

    /// Which of the metas are selected; `None` if all are.
    fn metas(&self, metas: &[MetaKey]) -> Result<Option<BooleanArray>> {
        self.select_metas(|| self.column(metas))
    }

    /// Metas as a column; all null if no measurement has had a meta.
    fn column(&self, metas: &[MetaKey]) -> ArrayRef {
        let schema = &self.snapshot.state.schema;
        column_of_keys(metas, schema.meta_type.as_ref().unwrap_or(&FieldType::Unknown), schema.precision)
    }

    /// Which metas of a column are selected; `None` if all are.
    fn select_metas(&self, metas: impl FnOnce() -> ArrayRef) -> Result<Option<BooleanArray>> {
        let (Some(filter), Some(_)) = (&self.request.meta, &self.snapshot.state.schema.meta) else { return Ok(None) };
        let column = metas();
        let selected = filter.select(&column)?;
        Error::check_count("MetaFilter::select", selected.len(), column.len())?;
        let wanted = (0..column.len()).map(|i| Some(selected.is_valid(i) && selected.value(i))).collect();
        Ok(Some(wanted))
    }

    /// The selected buckets of a chunk by number, each with its selected rows in order of time.
    pub(in crate::snapshot) fn select_open<'c>(&mut self, chunk: &'c Chunk) -> Result<Vec<(usize, Cow<'c, [u32]>)>> {
        self.select_open_if(chunk, |_| true)
    }

    fn select_open_if<'c>(
        &mut self,
        chunk: &'c Chunk,
        may_be_wanted: impl Fn(&ChunkBucket) -> bool,
    ) -> Result<Vec<(usize, Cow<'c, [u32]>)>> {
        let state = &self.snapshot.state;
        let candidates = self.request.meta.iter().flat_map(|filter| filter.candidates());
        let members = candidates.filter(|(path, _)| !path.is_empty());
        let having = members.filter_map(|(path, values)| rows_having(chunk, &state.schema, path, values));
        let having = having.reduce(|a, b| &a & &b);
        let is_named = |bucket: &ChunkBucket| {
            let has = |rows: &BooleanBuffer| bucket.rows.first().is_some_and(|row| rows.value(*row as usize));
            having.as_ref().is_none_or(has) && self.named.as_ref().is_none_or(|named| named.contains(&bucket.id.meta))
        };
        let none = having.as_ref().is_some_and(|rows| !rows.has_true());
        let all = if none { &[] } else { chunk.buckets.as_slice() };
        let buckets: Vec<_> = all.iter().enumerate().filter(|(_, b)| is_named(b) && may_be_wanted(b)).collect();
        self.report.buckets_pruned += (chunk.buckets.len() - buckets.len()) as u64;
        if buckets.is_empty() {
            return Ok(Vec::new());
        }
        let metas: Vec<MetaKey> = buckets.iter().map(|(_, bucket)| bucket.id.meta.clone()).collect();
        let wanted = self.metas(&metas);
        let failed = wanted.is_err(); // As in a segment.
        let wanted = wanted.unwrap_or_default();
        let class_of_all = state.rules.effective_for_all();
        let values = times(&chunk.batch)?;
        let mut selected = Vec::new();
        for (at, (number, bucket)) in buckets.into_iter().enumerate() {
            if wanted.as_ref().is_some_and(|wanted| !wanted.value(at)) {
                self.report.buckets_pruned += 1;
                continue;
            }
            let class = class_of_all.unwrap_or_else(|| state.rules.effective(&bucket.id.meta.value()));
            let Some(filter) = self.admit(self.filter(class), &BucketBounds::from(bucket)) else {
                continue;
            };
            selected.push((
                number,
                match filter {
                    None => Cow::Borrowed(bucket.rows.as_slice()),
                    Some(filter) => {
                        let expired = |row: &&u32| filter.cutoff.hides(values[**row as usize]);
                        self.report.rows_hidden += bucket.rows.iter().filter(expired).count() as u64;
                        let keeps = |row: &&u32| filter.keeps(values[**row as usize]);
                        bucket.rows.iter().filter(keeps).copied().collect()
                    }
                },
            ));
        }
        if failed {
            let keys: Vec<MetaKey> =
                selected.iter().map(|(number, _)| chunk.buckets[*number].id.meta.clone()).collect();
            if let Some(wanted) = self.metas(&keys)? {
                let before = selected.len();
                let mut wanted = wanted.values().iter();
                selected.retain(|_| wanted.next().unwrap_or(false));
                self.report.buckets_pruned += (before - selected.len()) as u64;
            }
        }
        self.report.buckets += selected.len() as u64;
        Ok(selected)
    }
}

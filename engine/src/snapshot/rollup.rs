//! Rollups: what the bins of a ladder show.

use super::meta_range::MetaRange;
use super::scan::selection::BucketSelector;
use super::scan::{ScanRequest, ScanUnit};
use super::{CollectionSnapshot, MetaFilter, TimeRange};
use crate::error::{Error, Result};
use crate::ladder::fold::{Taken, add_open, add_sealed};
use crate::ladder::{LadderRecord, RungRecord};
use crate::segment::Segment;
use crate::state::CollectionState;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use ebbtide_buckets::{
    Bins, FieldType, MetaKey, Schema, cores, parallel, result_schema, results_in_order, stored_columns, to_usize,
};
use ebbtide_ttl::{Code, Ladder, Timestamp};
use std::sync::Arc;

/// The metas of a part; all if `None`.
type Metas = Option<Arc<dyn MetaFilter>>;

/// Results of more stored bins than these are made by several threads.
const PARTS_BINS_MIN: u64 = 1 << 15;

/// Which bins to show, and of which fields.
#[derive(Debug, Clone, Default)]
pub struct RollupRequest {
    /// The width of the bins in seconds: a multiple of the step of a rung.
    pub width_seconds: i64,
    /// The fields; all that the ladder has if `None`.
    pub fields: Option<Vec<String>>,
    /// The starts of the bins.
    pub time: TimeRange,
    /// Selects metas; all if `None`.
    pub meta: Option<Arc<dyn MetaFilter>>,
}

/// Times of which one rung shows the bins: whole bins from `first` to `last`, both inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Region {
    rung: usize,
    first: i64,
    last: i64,
}

impl Region {
    /// The bins that start before `limit`, and the others.
    fn split(self, limit: i64) -> (Option<Region>, Option<Region>) {
        if limit <= self.first {
            return (None, Some(self));
        }
        if limit > self.last {
            return (Some(self), None);
        }
        (Some(Region { last: limit - 1, ..self }), Some(Region { first: limit, ..self }))
    }
}

impl CollectionSnapshot {
    /// The collection's ladder, if it has one.
    #[must_use]
    pub fn ladder(&self) -> Option<Ladder> {
        self.state.ladder.as_ref().map(|ladder| ladder.definition())
    }

    /// The columns of [`CollectionSnapshot::rollup`]: the time field, which is the start of a bin, the meta field if there is one, the
    /// number of measurements, and those of each field: for a number `temp` these are `temp_count`, `temp_sum` (a double; of whole
    /// numbers a decimal), `temp_avg`, `temp_min`, `temp_max`, `temp_stddev` (of a sample), `temp_first`, `temp_first_time`,
    /// `temp_last` and `temp_last_time`, for a bool or a text those of them that need no arithmetic.
    ///
    /// # Errors
    /// [`Code::InvalidOptions`] without a ladder; [`Code::BadValue`] for a field that the ladder does not have.
    pub fn rollup_schema(&self, fields: Option<&[String]>) -> Result<SchemaRef> {
        let fields = self.rollup_fields(self.known_ladder()?, fields)?;
        Ok(result_schema(&self.state.schema, fields))
    }

    /// The fields that bins have aggregates of.
    ///
    /// # Errors
    /// [`Code::InvalidOptions`] without a ladder.
    pub fn rollup_field_names(&self) -> Result<Vec<String>> {
        let ladder = self.known_ladder()?;
        Ok(ladder.fields(&self.state.schema).map(|(name, _)| name.to_owned()).collect())
    }

    /// Fails if bins cannot have a width.
    ///
    /// # Errors
    /// [`Code::InvalidOptions`] without a ladder; [`Code::BadValue`] for a width that is no multiple of a step.
    pub fn check_rollup_width(&self, seconds: i64) -> Result<()> {
        self.rollup_width(self.known_ladder()?, seconds).map(drop)
    }

    /// What the bins of a width show at [`CollectionSnapshot::now`], in order of meta and time: the aggregates over all
    /// measurements that were stored in them since their rung was made, together with those stored then, whether these are still
    /// there or not. A bin is made from one rung, the finest that divides the width and still has all of it; where there is none, it is
    /// absent. The bins are in one batch, or in several that threads made.
    ///
    /// ```
    /// use ebbtide::ttl::{Ladder, Rung, Timestamp, Value};
    /// use ebbtide::{CollectionOptions, Database, RollupRequest};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let db = Database::open(folder.path().join("db"))?;
    /// let c = db.create_collection("c", CollectionOptions::new("t").expire_after_seconds(3600))?;
    /// db.set_ladder("c", Some(Ladder::new(vec![Rung { step_seconds: 600, expire_after_seconds: None }])), false)?;
    /// let noon = Timestamp::parse("2024-06-01T12:00:00Z")?;
    /// let at = |seconds, v| Value::Object(vec![("t".into(), Value::Date(noon.plus_seconds(seconds))), ("v".into(), Value::Int(v))]);
    /// c.insert_documents(&[at(0, 7), at(60, 9), at(600, 1)])?;
    /// db.sweep()?; // The measurements are years old.
    ///
    /// let rollup = db.snapshot().collection("c")?.rollup(&RollupRequest { width_seconds: 600, ..RollupRequest::default() })?;
    /// assert_eq!(rollup.iter().map(|batch| batch.num_rows()).sum::<usize>(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Code::InvalidOptions`] without a ladder; [`Code::BadValue`] for a width that is no multiple of a step, or a field that the
    /// ladder does not have; damage in a segment.
    pub fn rollup(&self, request: &RollupRequest) -> Result<Vec<RecordBatch>> {
        let ladder = self.known_ladder()?;
        let fields = self.rollup_fields(ladder, request.fields.as_deref())?;
        let width = self.rollup_width(ladder, request.width_seconds)?;
        let regions = self.regions(ladder, width, request);
        let bounds = regions.iter().map(|r| (r.first, r.last)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let (stored, parts) = self.parts(&regions, request)?;
        let (schema, single) = (&self.state.schema, self.single_rows_before(&regions, width));
        // Metas are in order from part to part.
        let parts = parallel(stored, parts.len(), &|| true, |at| {
            let part = RollupRequest { meta: parts[at].clone(), ..request.clone() };
            let mut bins = Bins::new(width, fields.iter().copied());
            let mut results = Vec::new();
            for region in &regions {
                let is_bin = ladder.rungs[region.rung].step(self.options().precision) == width;
                let (whole, pieces) = region.split(if is_bin { single } else { i64::MIN });
                if let Some(whole) = whole {
                    let (units, stored) = self.stored_bins(&bins, ladder, whole, &part)?;
                    let batches = batches(&units).collect::<Result<Vec<_>>>()?;
                    results.push(bins.results_of_stored(&batches, &stored, |field| ladder.stored(field), schema)?);
                }
                if let Some(pieces) = pieces {
                    let (units, stored) = self.stored_bins(&bins, ladder, pieces, &part)?;
                    bins.reserve(units.iter().map(|unit| to_usize(unit.rows_estimate())).sum());
                    for batch in batches(&units) {
                        bins.add_stored(&batch?, &stored, |field| ladder.stored(field))?;
                    }
                }
            }
            if let Some((first, last)) = bounds {
                self.add_measurements(&mut bins, (first, last), &part)?;
            }
            if results.is_empty() || !bins.is_empty() {
                results.push(bins.results(schema)?);
            }
            Ok::<_, Error>(results_in_order(results, schema)?)
        })?;
        Ok(parts.into_iter().flatten().collect())
    }

    /// The start of a bin before which every bin is one row of one rung: it has no second row in another segment, and no
    /// measurements are stored.
    fn single_rows_before(&self, regions: &[Region], width: i64) -> i64 {
        let first_open = |state: &CollectionState| {
            let chunks = state.memtable.chunks();
            chunks.flat_map(|chunk| chunk.buckets.iter().map(|bucket| bucket.first)).min().unwrap_or(i64::MAX)
        };
        let segments = |state: &CollectionState| {
            let live = state.segments.values().map(|segment| *segment.live()).filter(|live| live.buckets > 0);
            live.map(|live| (live.first_min, live.last_max)).collect::<Vec<_>>()
        };
        let sealed = segments(&self.state).into_iter().map(|(first, _)| first).min();
        let mut limit = first_open(&self.state).min(sealed.unwrap_or(i64::MAX));
        for rung in regions.iter().filter_map(|region| self.rungs.get(region.rung)) {
            let mut times = segments(rung);
            times.sort_unstable();
            let mut until = None;
            for (first, last) in times {
                if until.is_some_and(|until| first <= until) {
                    limit = limit.min(first);
                }
                until = until.max(Some(last));
            }
            limit = limit.min(first_open(rung));
        }
        limit.div_euclid(width).saturating_mul(width)
    }

    /// An upper bound of the number of stored bins, and the ranges of metas that threads process independently. A request that
    /// selects metas is not divided, since it usually selects few.
    fn parts(&self, regions: &[Region], request: &RollupRequest) -> Result<(u64, Vec<Metas>)> {
        let rungs = regions.iter().filter_map(|region| self.rungs.get(region.rung));
        let segments: Vec<&Arc<Segment>> = rungs.flat_map(|rung| rung.segments.values()).collect();
        let stored = segments.iter().map(|segment| segment.live().rows).sum();
        let largest = segments.iter().max_by_key(|segment| segment.live().rows);
        let Some(largest) = largest.filter(|_| request.meta.is_none() && stored >= PARTS_BINS_MIN) else {
            return Ok((stored, vec![request.meta.clone()]));
        };
        let reader = largest.file.reader()?;
        let (metas, count) = (reader.directory().meta_count(), cores());
        let mut bounds: Vec<Option<MetaKey>> =
            (1..count).map(|at| Some(reader.directory().meta(metas * at / count))).collect();
        bounds.dedup();
        let from = std::iter::once(None).chain(bounds.iter().cloned());
        let before = bounds.iter().cloned().chain(std::iter::once(None));
        let part = |(from, before)| Some(Arc::new(MetaRange { from, before }) as Arc<dyn MetaFilter>);
        Ok((stored, from.zip(before).map(part).collect()))
    }

    fn known_ladder(&self) -> Result<&Arc<LadderRecord>> {
        self.state.ladder.as_ref().ok_or_else(|| {
            let what = format!("collection '{}' has no ladder, so it has no bins: give it one", self.name());
            Error::new(Code::InvalidOptions, what)
        })
    }

    fn rollup_fields<'a>(
        &'a self,
        ladder: &'a LadderRecord,
        fields: Option<&[String]>,
    ) -> Result<Vec<(&'a str, &'a FieldType)>> {
        let known: Vec<_> = ladder.fields(&self.state.schema).collect();
        let Some(fields) = fields else { return Ok(known) };
        match fields.iter().find(|field| known.iter().all(|(name, _)| name != field)) {
            None => Ok(known.into_iter().filter(|(name, _)| fields.iter().any(|field| field == name)).collect()),
            Some(unknown) => {
                let what = format!("the ladder of collection '{}' has no field '{unknown}'", self.name());
                Err(Error::new(Code::BadValue, what))
            }
        }
    }

    /// The width in units.
    fn rollup_width(&self, ladder: &LadderRecord, seconds: i64) -> Result<i64> {
        let steps = || ladder.rungs.iter().map(|rung| rung.rung.step_seconds);
        if seconds > 0 && steps().any(|step| seconds % step == 0) {
            return Ok(seconds.saturating_mul(self.options().precision.per_second()));
        }
        let steps = steps().map(|step| format!("{step} s")).collect::<Vec<_>>().join(", ");
        let what = format!(
            "a width of {seconds} s is no multiple of a rung of collection '{}': its rungs are {steps}",
            self.name()
        );
        Err(Error::new(Code::BadValue, what))
    }

    /// Which rung shows which bins, the newest bins first.
    fn regions(&self, ladder: &LadderRecord, width: i64, request: &RollupRequest) -> Vec<Region> {
        let seconds = width / self.options().precision.per_second();
        // Whole bins, from the start of the first to the end of the last.
        let start_of = |number: i128| number * i128::from(width);
        let clamped = |t: i128| i64::try_from(t).unwrap_or(if t < 0 { i64::MIN } else { i64::MAX });
        let bin_of = |t: i64| i128::from(t.div_euclid(width));
        let wanted = request.time.stored(self.options().precision);
        let first_wanted = match start_of(bin_of(wanted.first)) {
            // The first bin that there is begins before all times.
            start if start < i128::from(wanted.first) && wanted.first > i64::MIN => clamped(start + i128::from(width)),
            start => clamped(start),
        };
        let mut last = clamped(start_of(bin_of(wanted.last) + 1) - 1);
        let mut regions = Vec::new();
        for (rung, record) in ladder.rungs.iter().enumerate() {
            if seconds % record.rung.step_seconds != 0 {
                continue;
            }
            let first = self.first_visible(record, width).max(first_wanted);
            if first <= last {
                regions.push(Region { rung, first, last });
                let Some(before) = first.checked_sub(1) else { break };
                last = before;
            }
        }
        regions
    }

    /// The start of the first bin of a width of which a rung has, and shows, every bin.
    fn first_visible(&self, record: &RungRecord, width: i64) -> i64 {
        let cutoff = record.cutoff(self.expires_at_now(), self.options().precision);
        let Some(lost) = cutoff.last_hidden().into_iter().chain(record.gone_before).max() else { return i64::MIN };
        // The first bin within ends a step after the start, and must end after what is lost.
        let after = i128::from(lost) - i128::from(record.step(self.options().precision)) + 1;
        let width = i128::from(width);
        let start = after.div_euclid(width) * width;
        let start = if start < after { start + width } else { start };
        i64::try_from(start.max(i128::from(i64::MIN))).unwrap_or(i64::MAX)
    }

    /// The instant at which expiry is decided, unless it is suspended.
    fn expires_at_now(&self) -> Option<Timestamp> {
        self.suspended.is_none().then_some(self.now)
    }

    /// What a rung has stored of the fields of these bins, and its schema.
    fn stored_bins(
        &self,
        of: &Bins,
        ladder: &LadderRecord,
        region: Region,
        request: &RollupRequest,
    ) -> Result<(Vec<ScanUnit>, Arc<Schema>)> {
        let Some(rung) = self.rungs.get(region.rung) else { return Ok((Vec::new(), self.state.schema.clone())) };
        let view = self.rung_view(rung);
        let request = ScanRequest {
            projection: Some(stored_columns(view.schema(), of.field_names().map(|field| ladder.stored(field)))),
            time: self.stored_range(region.first, region.last),
            meta: request.meta.clone(),
            // What is visible was decided already, and a whole bin at a time.
            include_hidden: true,
            ..ScanRequest::default()
        };
        Ok((view.scan(&request)?, view.state.schema.clone()))
    }

    /// A rung as a collection, with metas of the collection's own type.
    pub(crate) fn rung_view(&self, rung: &Arc<CollectionState>) -> CollectionSnapshot {
        let schema = Schema { meta_type: self.state.schema.meta_type.clone(), ..(*rung.schema).clone() };
        let state = Arc::new(CollectionState { schema: Arc::new(schema), ..(**rung).clone() });
        CollectionSnapshot { state, rungs: Arc::default(), places: None, ..self.clone() }
    }

    /// Adds the measurements that are stored, visible or not, within these times.
    fn add_measurements(&self, bins: &mut Bins, time: (i64, i64), request: &RollupRequest) -> Result<()> {
        let request = ScanRequest {
            time: self.stored_range(time.0, time.1),
            meta: request.meta.clone(),
            include_hidden: true,
            ..ScanRequest::default()
        };
        let mut selector = BucketSelector::new(self, &request);
        for segment in self.state.segments.values() {
            let Some((reader, selected)) = selector.select(segment)? else { continue };
            let taken: Vec<Taken> = selected.iter().map(|b| (b.ordinal, b.meta, b.filter)).collect();
            add_sealed(bins, segment, &reader, &taken)?;
        }
        for chunk in self.state.memtable.chunks() {
            let selected = selector.select_open(chunk)?;
            let rows: Vec<(usize, &[u32])> = selected.iter().map(|(bucket, rows)| (*bucket, rows.as_ref())).collect();
            add_open(bins, chunk, &rows)?;
        }
        Ok(())
    }
}

/// All batches of units, one after the other.
fn batches(units: &[ScanUnit]) -> impl Iterator<Item = Result<RecordBatch>> {
    units.iter().flat_map(|unit| match unit.read() {
        Ok(batches) => batches,
        Err(error) => Box::new(std::iter::once(Err(error))),
    })
}

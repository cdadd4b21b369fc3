//! Options of a collection, and changes to them.

use crate::error::{Error, Result};
use ebbtide_buckets::FIELD_NAME_BYTES_MAX;
use ebbtide_ttl::{
    Bucketing, Code, EXPIRE_AFTER_SECONDS_MAX, ExpiryMode, Granularity, IdPolicy, Ladder, OutOfRange, Precision,
};
use serde::{Deserialize, Serialize};

/// What a collection is created with.
///
/// ```
/// use ebbtide::CollectionOptions;
/// use ebbtide::ttl::Granularity;
///
/// let options = CollectionOptions::new("timestamp").meta_field("sensor").granularity(Granularity::Hours);
/// assert_eq!(options.bucketing.span_seconds(), 30 * 24 * 3600);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectionOptions {
    /// The field that holds a measurement's time.
    pub time_field: String,
    /// The field that names the series, if there is one.
    pub meta_field: Option<String>,
    /// The width of windows. Default: granularity `seconds`, one hour.
    pub bucketing: Bucketing,
    /// The unit of stored timestamps. Default: milliseconds.
    pub precision: Precision,
    /// Whether an expired measurement is hidden at once (`exact`, the default) or when its bucket is dropped.
    pub expiry: ExpiryMode,
    /// How times outside of 1970..2038 are treated. Default: they suspend expiry.
    pub out_of_range: OutOfRange,
    /// Whether the ObjectId of a document is stored, by those who insert documents of BSON or Extended JSON. Default: it is not.
    /// In the manifest it is an operation of its own.
    #[serde(skip)]
    pub ids: IdPolicy,
    /// Seconds after which measurements expire; `None` if the collection has no rule of its own. This is the initial value; the
    /// rule set holds the present one.
    #[serde(skip)]
    pub expire_after_seconds: Option<i64>,
    /// Seconds for which an expired bucket is still stored, hidden, before a sweep may drop it. Default: 0. In the manifest it is
    /// an operation of its own.
    #[serde(skip)]
    pub grace_seconds: i64,
    /// Bytes that the collection may take: when more is stored, a sweep drops the buckets of the oldest windows, expired or not.
    /// `None`, the default, for no limit. In the manifest it is an operation of its own.
    #[serde(skip)]
    pub max_bytes: Option<u64>,
    /// Whether buckets are dropped only after a sink has taken them over (see [`crate::Database::on_expiry`]). Default: no. In the
    /// manifest it is an operation of its own.
    #[serde(skip)]
    pub hand_off: bool,
    /// The URL of the archive that what expires is moved to. Default: it is deleted. In the manifest it is an operation of its own.
    #[serde(skip)]
    pub expire_into: Option<String>,
    /// Seconds after its time for which a measurement is kept in the archive; more than `expire_after_seconds`. `None`, the
    /// default, for ever. In the manifest it is an operation of its own.
    #[serde(skip)]
    pub keep_seconds: Option<i64>,
    /// The collection's ladder: bins of measurements that stay when these go. This is the initial one;
    /// [`CollectionSnapshot::ladder`](crate::CollectionSnapshot::ladder) says which it has now.
    #[serde(skip)]
    pub ladder: Option<Ladder>,
}

impl CollectionOptions {
    /// Options with this time field and every default.
    #[must_use]
    pub fn new(time_field: impl Into<String>) -> Self {
        CollectionOptions {
            time_field: time_field.into(),
            meta_field: None,
            bucketing: Bucketing::default(),
            precision: Precision::default(),
            expiry: ExpiryMode::default(),
            out_of_range: OutOfRange::default(),
            ids: IdPolicy::default(),
            expire_after_seconds: None,
            grace_seconds: 0,
            max_bytes: None,
            hand_off: false,
            expire_into: None,
            keep_seconds: None,
            ladder: None,
        }
    }

    /// Sets the meta field.
    #[must_use]
    pub fn meta_field(mut self, name: impl Into<String>) -> Self {
        self.meta_field = Some(name.into());
        self
    }

    /// Sets the width of windows to one of the presets.
    #[must_use]
    pub fn granularity(mut self, granularity: Granularity) -> Self {
        self.bucketing = Bucketing::Preset(granularity);
        self
    }

    /// Sets the width of windows in seconds, 1 to 31,536,000.
    #[must_use]
    pub fn span_seconds(mut self, span_seconds: i64) -> Self {
        self.bucketing = Bucketing::Custom { span_seconds };
        self
    }

    /// Sets the unit of stored timestamps.
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> Self {
        self.precision = precision;
        self
    }

    /// Sets when expired measurements are hidden.
    #[must_use]
    pub fn expiry(mut self, expiry: ExpiryMode) -> Self {
        self.expiry = expiry;
        self
    }

    /// Sets how times outside of 1970..2038 are treated.
    #[must_use]
    pub fn out_of_range(mut self, out_of_range: OutOfRange) -> Self {
        self.out_of_range = out_of_range;
        self
    }

    /// Sets whether the ObjectIds of documents are stored.
    #[must_use]
    pub fn ids(mut self, ids: IdPolicy) -> Self {
        self.ids = ids;
        self
    }

    /// Sets the seconds after which measurements expire.
    #[must_use]
    pub fn expire_after_seconds(mut self, seconds: i64) -> Self {
        self.expire_after_seconds = Some(seconds);
        self
    }

    /// Sets for how many seconds what has expired is still stored, hidden.
    #[must_use]
    pub fn grace_seconds(mut self, seconds: i64) -> Self {
        self.grace_seconds = seconds;
        self
    }

    /// Limits the bytes that the collection may take.
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// Has buckets dropped only after a sink has taken them over.
    #[must_use]
    pub fn hand_off(mut self, required: bool) -> Self {
        self.hand_off = required;
        self
    }

    /// Has what expires moved to an archive: `file:///folder`, `s3://bucket/path`, `gs://bucket/path` or `az://container/path`.
    #[must_use]
    pub fn expire_into(mut self, url: impl Into<String>) -> Self {
        self.expire_into = Some(url.into());
        self
    }

    /// Sets for how many seconds after its time a measurement is kept in the archive.
    #[must_use]
    pub fn keep_seconds(mut self, seconds: i64) -> Self {
        self.keep_seconds = Some(seconds);
        self
    }

    /// These options with those of `present` that are operations of their own in the manifest.
    pub(crate) fn with_settings_of(mut self, present: &CollectionOptions) -> Self {
        (self.ids, self.grace_seconds) = (present.ids, present.grace_seconds);
        (self.max_bytes, self.hand_off) = (present.max_bytes, present.hand_off);
        self.expire_into.clone_from(&present.expire_into);
        self.keep_seconds = present.keep_seconds;
        self
    }

    /// The options that differ from those of a collection that is there. A hand-off that was turned on there is none.
    pub(crate) fn others_than(&self, present: &CollectionOptions) -> Vec<&'static str> {
        let options = [
            ("timeField", self.time_field != present.time_field),
            ("metaField", self.meta_field != present.meta_field),
            ("granularity", self.bucketing != present.bucketing),
            ("precision", self.precision != present.precision),
            ("expiry", self.expiry != present.expiry),
            ("outOfRange", self.out_of_range != present.out_of_range),
            ("ids", self.ids != present.ids),
            ("expireAfterSeconds", self.expire_after_seconds != present.expire_after_seconds),
            ("graceSeconds", self.grace_seconds != present.grace_seconds),
            ("maxBytes", self.max_bytes != present.max_bytes),
            ("handOff", self.hand_off && !present.hand_off),
            ("expireInto", self.expire_into != present.expire_into),
            ("keepSeconds", self.keep_seconds != present.keep_seconds),
            ("ladder", self.ladder != present.ladder),
        ];
        options.into_iter().filter(|(_, differs)| *differs).map(|(option, _)| option).collect()
    }

    /// Sets the ladder.
    #[must_use]
    pub fn ladder(mut self, ladder: Ladder) -> Self {
        self.ladder = Some(ladder);
        self
    }

    /// Checks names and ranges.
    ///
    /// # Errors
    /// [`Code::InvalidOptions`] or [`Code::BadValue`], naming the option and what is allowed.
    pub fn validate(&self) -> Result<()> {
        check_field_name("timeField", &self.time_field)?;
        if let Some(meta) = &self.meta_field {
            check_field_name("metaField", meta)?;
            if *meta == self.time_field {
                let what = format!("metaField and timeField are both '{meta}': they must be two fields");
                return Err(Error::new(Code::InvalidOptions, what));
            }
        }
        let span = self.bucketing.span_seconds();
        if !(1..=ebbtide_ttl::SPAN_SECONDS_MAX).contains(&span) {
            let what = format!("a window of {span} s is not possible: 1 to {} s are", ebbtide_ttl::SPAN_SECONDS_MAX);
            return Err(Error::new(Code::BadValue, what));
        }
        if let Some(url) = &self.expire_into {
            crate::archive::check_url("expireInto", url)?;
            if self.hand_off {
                let what = "expireInto and handOff are two ways of keeping what expires: a collection has one of them";
                return Err(Error::new(Code::InvalidOptions, what));
            }
        }
        check_keep(self, self.expire_after_seconds)?;
        check_grace(self.grace_seconds)?;
        if self.grace_seconds > 0 && self.expiry == ExpiryMode::Bucket {
            let what =
                "graceSeconds needs expiry 'exact': with 'bucket' measurements are visible until they are dropped";
            return Err(Error::new(Code::InvalidOptions, what));
        }
        if let Some(bytes) = self.max_bytes.filter(|bytes| !(1..=MAX_BYTES_MAX).contains(bytes)) {
            let what = format!("maxBytes is {bytes}: it must be 1 to {MAX_BYTES_MAX}");
            return Err(Error::new(Code::InvalidOptions, what));
        }
        match self.expire_after_seconds {
            Some(e) if !(0..=EXPIRE_AFTER_SECONDS_MAX).contains(&e) => {
                let what = format!("expireAfterSeconds is {e}: it must be 0 to {EXPIRE_AFTER_SECONDS_MAX}");
                Err(Error::new(Code::InvalidOptions, what))
            }
            _ => Ok(()),
        }
    }
}

/// The greatest `maxBytes`: the greatest number of 64 bits with a sign.
pub(crate) const MAX_BYTES_MAX: u64 = i64::MAX as u64;

/// Checks a number of seconds of grace.
pub(crate) fn check_grace(seconds: i64) -> Result<()> {
    if (0..=EXPIRE_AFTER_SECONDS_MAX).contains(&seconds) {
        return Ok(());
    }
    let what = format!("graceSeconds is {seconds}: it must be 0 to {EXPIRE_AFTER_SECONDS_MAX}");
    Err(Error::new(Code::InvalidOptions, what))
}

/// Checks how long what is archived is kept, beside the other options and the collection's own E.
pub(crate) fn check_keep(options: &CollectionOptions, e: Option<i64>) -> Result<()> {
    let Some(keep) = options.keep_seconds else { return Ok(()) };
    if options.expire_into.is_none() {
        let what = format!("keepSeconds is {keep}: it is about an archive: give the collection one with expireInto");
        return Err(Error::new(Code::InvalidOptions, what));
    }
    check_keep_seconds(keep, e)
}

/// Checks how long an archive keeps, beside the E of the rule that it is of.
pub(crate) fn check_keep_seconds(keep: i64, e: Option<i64>) -> Result<()> {
    let wrong = if !(1..=EXPIRE_AFTER_SECONDS_MAX).contains(&keep) {
        format!("it must be 1 to {EXPIRE_AFTER_SECONDS_MAX}")
    } else if let Some(e) = e.filter(|e| *e >= keep) {
        format!("it counts from the time of a measurement, so it must be more than expireAfterSeconds, which is {e}")
    } else {
        return Ok(());
    };
    Err(Error::new(Code::InvalidOptions, format!("keepSeconds is {keep}: {wrong}")))
}

/// A top-level name: not empty, no dot, no leading dollar sign, no NUL, not `_id`.
pub(crate) fn check_field_name(option: &str, name: &str) -> Result<()> {
    let wrong = if name.is_empty() {
        "it must not be empty"
    } else if name == "_id" {
        "it must not be '_id'"
    } else if name.starts_with('$') {
        "it must not begin with '$'"
    } else if name.contains('.') {
        "it must be a top-level field, without '.'"
    } else if name.contains('\0') {
        "it must not hold a NUL character"
    } else if name.len() > FIELD_NAME_BYTES_MAX {
        "it must not be longer than 1024 bytes"
    } else {
        return Ok(());
    };
    let shown: String = name.chars().take(80).collect();
    Err(Error::new(Code::InvalidOptions, format!("{option} '{}' is not allowed: {wrong}", shown.escape_debug())))
}

/// Longest name of a collection, in bytes.
const COLLECTION_NAME_BYTES_MAX: usize = 255;

/// Checks the name of a collection.
///
/// # Errors
/// [`Code::InvalidNamespace`] for one that no collection may have.
pub fn check_collection_name(name: &str) -> Result<()> {
    let wrong = if name.is_empty() {
        "it must not be empty"
    } else if name.contains(['$', '\0']) {
        "it must not hold '$' or NUL"
    } else if name.starts_with('.') || name.ends_with('.') {
        "it must not begin or end with '.'"
    } else if name.len() > COLLECTION_NAME_BYTES_MAX {
        "it must not be longer than 255 bytes"
    } else {
        return Ok(());
    };
    let shown: String = name.chars().take(80).collect();
    Err(Error::new(
        Code::InvalidNamespace,
        format!("collection name '{}' is not allowed: {wrong}", shown.escape_debug()),
    ))
}

/// Bytes of a view's statement, at most: a mebibyte.
pub(crate) const VIEW_BYTES_MAX: usize = 1 << 20;

/// Checks the name and the statement of a view.
pub(crate) fn check_view(name: &str, text: &str) -> Result<()> {
    check_collection_name(name)?;
    if text.len() <= VIEW_BYTES_MAX {
        return Ok(());
    }
    let what = format!("view '{name}': its statement has {} bytes, {VIEW_BYTES_MAX} are possible", text.len());
    Err(Error::new(Code::BSONObjectTooLarge, what))
}

/// Changes to a collection; `None` leaves an option unchanged. Either all take effect or none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollectionChange {
    /// The collection's own rule: `Some(Some(n))` sets or changes it, `Some(None)` removes it.
    pub expire_after_seconds: Option<Option<i64>>,
    /// Wider windows. Old buckets keep theirs.
    pub bucketing: Option<Bucketing>,
    /// When expired measurements are hidden.
    pub expiry: Option<ExpiryMode>,
    /// How times outside of 1970..2038 are treated.
    pub out_of_range: Option<OutOfRange>,
    /// Whether the ObjectIds of documents are stored from now on.
    pub ids: Option<IdPolicy>,
    /// Seconds for which an expired bucket is still stored.
    pub grace_seconds: Option<i64>,
    /// `Some(Some(n))` limits the bytes that the collection may take, `Some(None)` removes the limit.
    pub max_bytes: Option<Option<u64>>,
    /// Whether buckets are dropped only after a sink has taken them over.
    pub hand_off: Option<bool>,
    /// `Some(Some(url))` has what expires moved to an archive, `Some(None)` has it deleted.
    pub expire_into: Option<Option<String>>,
    /// `Some(Some(seconds))` limits how long what is archived is kept, `Some(None)` keeps it for ever.
    pub keep_seconds: Option<Option<i64>>,
    /// The ladder: `Some(Some(ladder))` sets or changes it, `Some(None)` removes it (see [`crate::Database::set_ladder`]).
    pub ladder: Option<Option<Ladder>>,
    /// Whether rungs go that hold what is stored nowhere else.
    pub force: bool,
}

//! Ships a database: what changed in its folder becomes pieces of a copy, one after the other.

mod repair;

use super::epochs::{self, Claim};
use super::garbage;
use super::load::{self, Loaded, Position};
use super::piece::{Base, CopiedFile, Head, Piece, base_name, bases_folder, crc_of, piece_name};
use super::source::{Changes, Source};
use super::status::ShipStatus;
use super::store::{CopyStore, unreachable};
use super::unshipped::{self, Unshipped};
use super::writer::{Sent, ShippedNote, Writer};
use crate::archive::ArchivePlaces;
use crate::archive::apart::check_above;
use crate::error::{Error, Result};
use crate::failing::Attempt;
use crate::fs::Fs;
use crate::identity::{hex, new_identity};
use bytes::Bytes;
use ebbtide_ttl::{Clock, Code, Timestamp};
use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Without changes a piece is made this often, so that readers learn of the writer's clock.
const HEARTBEAT_SECONDS: i64 = 10;
/// A restore reads at most this many pieces after a base.
const PIECES_BETWEEN_BASES: u64 = 1_000;
/// Bytes of the log that one piece has, about.
const LOG_BYTES_MAX: usize = 16 << 20;
const SHIPPED_AGAIN: &str =
    "the copy has lost objects: the whole database is shipped again, and points in time before now may be lost";

/// How a database is shipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShipOptions {
    /// How often changes are shipped. Default: one second.
    pub every: Duration,
    /// For how long the copy keeps points in time; `None`: for ever. Default: seven days.
    pub keep: Option<Duration>,
}

impl Default for ShipOptions {
    fn default() -> Self {
        ShipOptions { every: Duration::from_secs(1), keep: Some(Duration::from_secs(7 * 86_400)) }
    }
}

/// Ships a database, step by step: [`crate::Database::ship`] does it in the background.
#[derive(Debug)]
pub struct Shipper {
    fs: Arc<dyn Fs>,
    clock: Arc<dyn Clock>,
    dir: PathBuf,
    store: Arc<dyn CopyStore>,
    options: ShipOptions,
    source: Source,
    writer: Option<Writer>,
    process: String,
    epoch: Option<Epoch>,
    /// The last piece of the epoch before, if the copy has lost objects and the next epoch begins because of that.
    lost: Option<Position>,
    /// What was read and is in no piece yet, since a file was removed before it could be shipped.
    unsent: Option<Changes>,
    status: ShipStatus,
    /// When it was last noted in the folder how far it is.
    noted: Option<Timestamp>,
    superseded: Option<Error>,
    /// The places among which this one is new. It is checked before anything is stored there.
    pub(super) new_among: Option<Arc<dyn ArchivePlaces>>,
}

/// The epoch that this process ships in.
#[derive(Debug)]
struct Epoch {
    number: u64,
    claim: Claim,
    parent: Option<(u64, u64)>,
    /// The last piece that counts.
    last: Option<Position>,
    last_at: Timestamp,
    last_base: u64,
    /// The piece with the first record that this base needs.
    records_from: u64,
    /// The object that says which piece it is.
    listed: String,
    /// Whether the copy has lost a file that pieces after the base name and the folder no longer has.
    wants_base: bool,
    checked_at: Timestamp,
    checks: usize,
    /// A piece that may have arrived or not. It is sent again until it is known: another one of its number is never made.
    sending: Option<Sending>,
    /// The files that the store has.
    copied: HashMap<String, CopiedFile>,
    /// Last record and number of the pieces that have records.
    records: VecDeque<(u64, u64)>,
    /// Files that were shipped and are in no piece yet.
    new_files: Vec<CopiedFile>,
    /// Objects that say which pieces have a base, and are not in the store yet.
    unlisted: VecDeque<String>,
}

#[derive(Debug)]
struct Sending {
    head: Head,
    bytes: Bytes,
    /// Whether the folder knows of it.
    is_noted: bool,
}

impl Shipper {
    pub(super) fn new(
        (fs, clock, dir): (Arc<dyn Fs>, Arc<dyn Clock>, PathBuf),
        (url, store): (&str, Arc<dyn CopyStore>),
        options: ShipOptions,
    ) -> Shipper {
        let process = hex(new_identity(clock.as_ref(), &dir));
        let source = Source::new(fs.clone(), clock.clone(), dir.clone());
        let status = ShipStatus { url: url.to_owned(), ..ShipStatus::default() };
        Shipper {
            fs,
            clock,
            dir,
            store,
            options,
            source,
            writer: None,
            process,
            epoch: None,
            lost: None,
            unsent: None,
            status,
            noted: None,
            superseded: None,
            new_among: None,
        }
    }

    /// How far it is.
    #[must_use]
    pub fn status(&self) -> &ShipStatus {
        &self.status
    }

    /// Why this folder is not shipped any more, if it is not the primary.
    #[must_use]
    pub fn superseded(&self) -> Option<&Error> {
        self.superseded.as_ref()
    }

    /// Ships everything that was acknowledged before the call.
    ///
    /// # Errors
    /// [`Code::HostUnreachable`] if the store cannot be reached: the next call goes on. [`Code::NotWritable`] if this folder is no
    /// longer the primary. [`Code::LockBusy`] if another process ships it. Errors of the file system.
    pub fn ship_now(&mut self) -> Result<ShipStatus> {
        let asked = self.clock.now();
        loop {
            let done = self.step()?;
            if done && self.status.shipped_until.is_some_and(|until| until >= asked) {
                return Ok(self.status.clone());
            }
        }
    }

    /// Makes the next piece, if there is something to ship or the last one was made some time ago. Returns whether the copy was up
    /// to date a moment ago.
    ///
    /// # Errors
    /// As for [`Shipper::ship_now`].
    pub fn step(&mut self) -> Result<bool> {
        if let Some(error) = &self.superseded {
            return Err(error.clone());
        }
        let refused = self.store.refused();
        let done = self.try_step();
        self.status.failed = done.as_ref().err().map(ToString::to_string);
        if let Err(error) = self.note_outcome((refused, self.store.refused())) {
            tracing::warn!(%error, "it could not be noted whether shipping fails");
        }
        done
    }

    /// Notes in the folder whether shipping fails or is throttled, unless the folder is no longer the primary.
    fn note_outcome(&mut self, refused: (u64, u64)) -> Result<()> {
        if self.superseded.is_some() {
            return Ok(());
        }
        if self.writer.is_none() {
            self.writer = Writer::of_folder(self.fs.as_ref(), &self.dir)?;
        }
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let attempt = Attempt::of(self.status.failed.as_deref(), refused);
        writer.note_outcome(self.fs.as_ref(), &self.dir, (&self.status.url, attempt), self.clock.now())
    }

    fn try_step(&mut self) -> Result<bool> {
        self.check_copy()?;
        if self.epoch.is_none() {
            if let Some(places) = &self.new_among {
                check_above(places.as_ref(), &self.status.url)?;
            }
            self.begin_epoch()?;
            // Not before: a store that is away shows no table either.
            self.new_among = None;
        }
        if self.send()? {
            return Ok(false);
        }
        // While the store is away, no more is read than fits into a piece.
        let unsent = self.unsent.as_ref().map_or(0, Changes::bytes);
        let read = self.source.read(LOG_BYTES_MAX.saturating_sub(unsent))?;
        let changes = match self.unsent.take() {
            Some(mut unsent) => {
                unsent.append(read);
                unsent
            }
            None => read,
        };
        let epoch = self.epoch.as_mut().ok_or_else(|| Error::internal("no epoch was taken"))?;
        let is_due = epoch.last.is_none() || changes.at >= epoch.last_at.plus_seconds(HEARTBEAT_SECONDS);
        if changes.is_empty() && changes.reached_end && !is_due {
            if let Some(claim) = epochs::claim_of(self.store.as_ref(), epoch.number + 1)? {
                return Err(self.supersede(&claim));
            }
            // Nothing was acknowledged since the last piece.
            self.status.shipped_until = Some(changes.at);
            return Ok(true);
        }
        self.status.records_behind = changes.records.len() as u64;
        let reached_end = changes.reached_end;
        // Other files are named only by edits, and all by a base.
        let uploaded = match (self.wants_base(&changes), changes.has_edits()) {
            (true, _) => self.replace_lost_files().and_then(|()| self.upload()),
            (false, true) => self.upload(),
            (false, false) => Ok(true),
        };
        if !matches!(uploaded, Ok(true)) {
            self.unsent = Some(changes);
            return uploaded;
        }
        self.make(changes)?;
        self.send()?;
        Ok(reached_end)
    }

    /// Uploads the segment files that the store does not have; returns false if one was removed since the manifest was read, which
    /// is to be read again.
    fn upload(&mut self) -> Result<bool> {
        let epoch = self.epoch.as_mut().ok_or_else(|| Error::internal("no epoch was taken"))?;
        for file in self.source.files() {
            if epoch.copied.get(&file.path).is_some_and(|copied| file.is(copied)) {
                continue;
            }
            let path = self.dir.join(&file.path);
            let Some(content) = self.source.content(&file.path)? else {
                return match self.source.is_current()? {
                    true => Err(Error::corrupt(&path, 0, "segment file is missing")),
                    false => Ok(false),
                };
            };
            file.check(&path, &content)?;
            let crc = crc32fast::hash(&content);
            let (bytes, footer) = (file.bytes, file.footer);
            let copied = CopiedFile { path: file.path, epoch: epoch.number, bytes, crc, footer };
            self.store.put(&copied.object(), content).map_err(unreachable)?;
            self.status.bytes += bytes;
            epoch.new_files.push(copied.clone());
            epoch.copied.insert(copied.path.clone(), copied);
        }
        Ok(true)
    }

    /// Whether the next piece gets a base.
    fn wants_base(&self, changes: &Changes) -> bool {
        let is_due = |epoch: &Epoch| {
            let is_far = |last: Position| last.number + 1 >= epoch.last_base + PIECES_BETWEEN_BASES;
            epoch.wants_base || epoch.last.is_none_or(is_far)
        };
        changes.edits.is_none() || self.epoch.as_ref().is_some_and(is_due)
    }

    /// Makes a piece, which is to be sent.
    fn make(&mut self, changes: Changes) -> Result<()> {
        let wants_base = self.wants_base(&changes);
        let epoch = self.epoch.as_mut().ok_or_else(|| Error::internal("no epoch was taken"))?;
        let number = epoch.last.map_or(1, |last| last.number + 1);
        let last_seq = self.source.last_seq();
        if !changes.records.is_empty() {
            epoch.records.push_back((last_seq, number));
        }
        let first_logged = self.source.first_logged();
        while epoch.records.front().is_some_and(|(last, _)| *last < first_logged) {
            epoch.records.pop_front();
        }
        let base = wants_base.then(|| {
            let used = self.source.files();
            let files = used.iter().filter_map(|file| epoch.copied.get(&file.path).cloned()).collect();
            let records_from = epoch.records.front().map_or(number, |(_, piece)| *piece);
            Base { checkpoint: self.source.checkpoint(), files, records_from }
        });
        if base.is_some() {
            let used: HashSet<_> = self.source.files().into_iter().map(|file| file.path).collect();
            epoch.copied.retain(|path, _| used.contains(path));
        }
        let head = Head {
            identity: self.source.identity()?,
            epoch: epoch.number,
            number,
            parent: epoch.parent,
            previous: epoch.last.map_or(0, |last| last.crc),
            at: changes.at,
            is_point: changes.reached_end,
            edits: changes.edits,
            base,
            files: std::mem::take(&mut epoch.new_files),
            last_seq,
        };
        let piece = Piece { head, records: changes.records };
        let bytes = piece.encode()?;
        epoch.sending = Some(Sending { head: piece.head, bytes, is_noted: false });
        Ok(())
    }

    /// Sends the piece that is to be sent, if there is one; returns whether there was.
    fn send(&mut self) -> Result<bool> {
        let Some(epoch) = &mut self.epoch else { return Ok(false) };
        let Some(Sending { head, bytes, is_noted }) = &mut epoch.sending else { return Ok(false) };
        if let Some(writer) = self.writer.as_mut().filter(|_| !*is_noted) {
            let (url, process) = (self.status.url.clone(), self.process.clone());
            let sent = Sent { url, process, epoch: head.epoch, piece: head.number };
            writer.note_sent(self.fs.as_ref(), &self.dir, sent)?;
            *is_noted = true;
        }
        let name = piece_name(head.epoch, head.number);
        let is_new = self.store.put_if_absent(&name, bytes.clone()).map_err(unreachable)?;
        if !is_new && self.store.get(&name).map_err(unreachable)?.as_ref() != Some(&*bytes) {
            let claim = epoch.claim.clone();
            self.check_claim(&claim)?;
            return Err(Error::internal(format!("{name} of the copy was made by somebody else in this epoch")));
        }
        if let Some(claim) = epochs::claim_of(self.store.as_ref(), head.epoch + 1)? {
            return Err(self.supersede(&claim));
        }
        let crc = crc_of(bytes);
        epoch.last = Some(Position { epoch: head.epoch, number: head.number, crc });
        epoch.last_at = head.at;
        self.status.piece = head.number;
        self.status.last_record = head.last_seq;
        self.status.records_behind = 0;
        self.status.bytes += bytes.len() as u64;
        if head.is_point {
            self.status.shipped_until = Some(head.at);
            let (url, epoch) = (self.status.url.clone(), epoch.number);
            let note = ShippedNote { url, until: head.at, last_record: head.last_seq, epoch };
            if let Some(writer) = &mut self.writer
                && self.noted.is_none_or(|noted| head.at >= noted.plus_seconds(HEARTBEAT_SECONDS))
            {
                self.noted = Some(head.at);
                if let Err(error) = writer.note_shipped(self.fs.as_ref(), &self.dir, note) {
                    tracing::warn!(%error, "it could not be noted how far the database is shipped");
                }
            }
        }
        let (records_from, number, at) = (head.base.as_ref().map(|base| base.records_from), head.number, head.at);
        epoch.sending = None;
        if let Some(records_from) = records_from {
            (epoch.last_base, epoch.records_from, epoch.wants_base) = (number, records_from, false);
            epoch.listed = format!("{}/{}", bases_folder(epoch.number), base_name(number, at));
            epoch.unlisted.push_back(epoch.listed.clone());
        }
        // In their order, so that the first one is listed if any is.
        while let Some(name) = epoch.unlisted.front() {
            if let Err(error) = self.store.put(name, Bytes::from_static(b"base")) {
                tracing::warn!(%error, "a base of the copy could not be listed; it is tried again");
                break;
            }
            epoch.unlisted.pop_front();
        }
        if let Some(keep) = self.options.keep.filter(|_| records_from.is_some()) {
            let seconds = i64::try_from(keep.as_secs()).unwrap_or(i64::MAX);
            if let Err(error) = garbage::collect(self.store.as_ref(), epoch.number, at.plus_seconds(-seconds)) {
                tracing::warn!(%error, "what the copy needs no more could not be removed");
            }
        }
        Ok(true)
    }

    /// Takes the next epoch.
    fn begin_epoch(&mut self) -> Result<()> {
        let store = self.store.clone();
        let store = store.as_ref();
        let identity = hex(self.source.identity()?);
        let mut writer = Writer::of_folder_or_new(self.fs.as_ref(), self.clock.as_ref(), &self.dir)?;
        if let Some(error) = writer.refusal() {
            self.superseded = Some(error.clone());
            return Err(error);
        }
        let newest = self.newest_claim(&writer, &identity)?;
        if let Some(claim) = newest.as_ref().filter(|claim| claim.process != self.process) {
            if claim.database != identity {
                return Err(self.of_another_database());
            }
            if claim.writer != writer.id {
                // A promotion takes an epoch after all that were shipped.
                if let Some(sent) = writer.sent_to(&self.status.url).filter(|sent| sent.epoch >= claim.epoch) {
                    let taken = Claim { epoch: sent.epoch, database: identity, ..claim.clone() };
                    return Err(repair::begun_by_another(&self.status.url, &taken, claim));
                }
                self.writer = Some(writer.clone());
                return match writer.has_shipped_to(&self.status.url) {
                    true => Err(self.supersede(claim)),
                    false => {
                        let what = format!(
                            "{} has the copy of a database that this one was restored from or copied to, and another folder is its \
                             primary since {}: choose another place, or make this one the primary with promote",
                            self.status.url, claim.at
                        );
                        Err(Error::new(Code::InvalidOptions, what))
                    }
                };
            }
        }
        let is_first = newest.is_none();
        let claim = match newest {
            // An earlier try took it.
            Some(claim) if claim.process == self.process => claim,
            newest => {
                let epoch = newest.map_or(1, |newest| newest.epoch + 1);
                self.check_unclaimed(epoch)?;
                let (writer, process) = (writer.id.clone(), self.process.clone());
                Claim { epoch, database: identity, writer, process, at: self.clock.now() }
            }
        };
        // Before the epoch is taken: an older copy of the folder must not stop the one that is shipped.
        let (changes, _) = self.read_checked(None)?;
        // Before the store knows it: a folder that has shipped knows where to.
        if is_first {
            // A copy that was there before has been removed.
            writer.forget_sent(self.fs.as_ref(), &self.dir, &self.status.url)?;
        }
        writer.note(self.fs.as_ref(), &self.dir, &self.status.url)?;
        // One that somebody has put back meanwhile counts.
        let is_taken = epochs::take(store, &claim)?;
        if !is_taken || epochs::newest(store)?.is_some_and(|newest| newest.epoch > claim.epoch) {
            let what = format!("another process has begun to ship this database to {}", self.status.url);
            // It may have been an earlier one, whose request was late: the next try takes the epoch after it.
            return Err(Error::new(Code::LockBusy, what));
        }
        // Only now: whatever is added to the epochs before does not count. Another process may have shipped more of this folder.
        let (changes, copy) = self.read_checked(Some(changes))?;
        let (parent, copied) = match copy {
            Some((position, loaded)) => (Some((position.epoch, position.number)), loaded.files.into_iter().collect()),
            None => (None, HashMap::new()),
        };
        self.unsent = Some(changes);
        (self.status.epoch, self.status.piece) = (claim.epoch, 0);
        self.writer = Some(writer);
        self.lost = None;
        self.epoch = Some(Epoch {
            number: claim.epoch,
            claim,
            parent,
            last: None,
            last_at: Timestamp::EPOCH,
            last_base: 0,
            records_from: 0,
            listed: String::new(),
            wants_base: false,
            checked_at: self.clock.now(),
            checks: 0,
            sending: None,
            copied,
            records: VecDeque::new(),
            new_files: Vec::new(),
            unlisted: VecDeque::new(),
        });
        Ok(())
    }

    /// All changes of the folder, `before` being those that were read already, and the state of the copy. It is an error if the folder does not
    /// contain what the copy has.
    fn read_checked(&mut self, before: Option<Changes>) -> Result<(Changes, Option<(Position, Loaded)>)> {
        let store = self.store.clone();
        let is_first = before.is_none();
        let (copy, lost) = match load::load(store.as_ref(), None) {
            // Whether this folder has what was there is found out below.
            Err(error) if error.code() == Code::DataCorruptionDetected => {
                let last = self.last_piece()?.ok_or_else(|| error.clone())?;
                (Some((last, Timestamp::EPOCH, Loaded::default())), Some(error))
            }
            copy => (copy?, None),
        };
        // The folder is read after the copy: another process that ships it notes a piece before it sends it.
        let changes = match before {
            Some(mut changes) => {
                changes.append(self.source.read(usize::MAX)?);
                self.read_on(changes)?
            }
            None => self.read_all()?,
        };
        let Some((position, _, loaded)) = copy else { return Ok((changes, None)) };
        let claim = epochs::claim_of(store.as_ref(), position.epoch)?;
        let writer = Writer::of_folder(self.fs.as_ref(), &self.dir)?;
        let url = &self.status.url;
        let is_own = writer.zip(claim).is_some_and(|(writer, claim)| writer.has_sent(url, &claim.process, position));
        if is_own && loaded.last_seq <= self.source.last_seq() {
            if let Some(error) = lost.filter(|_| is_first && self.lost.is_none()) {
                tracing::warn!(url, %error, "{SHIPPED_AGAIN}");
            }
            return Ok((changes, Some((position, loaded))));
        }
        let what = format!(
            "{url} has epoch {}, piece {} of this database, which was not shipped from {}: it is an older copy of the folder. Ship it to \
             another place; or continue with the newer state, in the folder that has it or in one that ebbtide promote makes",
            position.epoch,
            position.number,
            self.dir.display(),
        );
        Err(Error::new(Code::InvalidOptions, what))
    }

    /// Everything that the folder has.
    fn read_all(&mut self) -> Result<Changes> {
        self.source.restart();
        let changes = self.source.read(usize::MAX)?;
        self.read_on(changes)
    }

    /// Adds what follows, to the end.
    fn read_on(&mut self, mut changes: Changes) -> Result<Changes> {
        while !changes.reached_end {
            changes.append(self.source.read(usize::MAX)?);
        }
        Ok(changes)
    }

    /// What was acknowledged here and is not in the copy, where another folder is the primary since `claim`; `None` if nothing is known
    /// of it.
    fn unshipped(&mut self, claim: &Claim, writer: &str) -> Result<Option<Unshipped>> {
        let noted = self.writer.clone().and_then(Writer::shipped).filter(|noted| noted.url == self.status.url);
        let noted = noted.map(|noted| (noted.epoch, noted.until));
        let own = self.epoch.as_ref().map(|epoch| epoch.number).or(noted.map(|(epoch, _)| epoch));
        let end = match own {
            Some(own) => unshipped::end_of(self.store.as_ref(), writer, own, claim.epoch)?,
            None => None,
        };
        let found_at = self.clock.now();
        let Some((until, last_record)) = end else {
            let until = self.status.shipped_until.or(noted.map(|(_, until)| until));
            return Ok(until.map(|until| Unshipped { until, rows: None, found_at }));
        };
        let records = self.read_all()?.records;
        let mut later = records.iter().filter(|record| record.seq > last_record).peekable();
        // Records that were sealed may have left the log.
        let first = later.peek().map_or(self.source.last_seq() + 1, |record| record.seq);
        let rows = (first <= last_record + 1)
            .then(|| later.map(|record| Some(record.decode(|_| true).ok()?.rows())).sum::<Option<u64>>())
            .flatten();
        Ok(Some(Unshipped { until, rows, found_at }))
    }

    /// The same in words, after it was said in the copy.
    fn tell_unshipped(&mut self, claim: &Claim, writer: &str) -> String {
        let found = self.unshipped(claim, writer).unwrap_or_else(|error| {
            tracing::warn!(%error, "it could not be found out what is not in the copy");
            None
        });
        let Some(found) = found else { return String::new() };
        if let Err(error) = found.put(self.store.as_ref(), writer) {
            tracing::warn!(%error, "it could not be said in the copy what is not in it");
        }
        let Unshipped { until, rows, found_at } = found;
        match rows {
            Some(rows) => format!(
                "; measurements and changed documents that were acknowledged here after {until} and are not in the copy: {rows}, as of \
                 {found_at}"
            ),
            None => format!("; what was acknowledged here after {until} may not be in the copy"),
        }
    }

    /// Notes that another process or another folder ships to this place now.
    fn supersede(&mut self, claim: &Claim) -> Error {
        let (url, at) = (self.status.url.clone(), claim.at);
        let own = self.writer.as_ref().map(|writer| writer.id.clone()).filter(|id| *id != claim.writer);
        let taken = self.epoch.as_ref().map(|epoch| &epoch.claim);
        let error = match (taken, own) {
            (Some(taken), _) if claim.database != taken.database || claim.epoch <= taken.epoch => {
                repair::begun_by_another(&url, taken, claim)
            }
            (_, Some(own)) => {
                let reason = format!("another folder was made the primary of {url} at {at}");
                // From here on nobody else opens the folder as a primary.
                self.note_superseded(&reason);
                let reason = format!("{reason}{}", self.tell_unshipped(claim, &own));
                self.note_superseded(&reason);
                super::writer::not_primary(&reason)
            }
            (_, None) => {
                let what = format!("another process ships this database, or a copy of its folder, to {url} since {at}");
                Error::new(Code::LockBusy, what)
            }
        };
        self.epoch = None;
        self.superseded = Some(error.clone());
        error
    }

    fn note_superseded(&mut self, reason: &str) {
        let Some(writer) = &mut self.writer else { return };
        if let Err(error) = writer.supersede(self.fs.as_ref(), &self.dir, reason) {
            tracing::error!(%error, "it could not be noted that the folder is no longer the primary");
        }
    }
}

//! The one thread that writes a log: gathers what has queued, writes it, syncs once, answers every ticket.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use rustix::fs::{AtFlags, StatxFlags, statx};

use super::chain::{AuditError, Completion, Opened, Order, Policy, Settings, Shared, Signer, Stored};
use super::clock::Clock;
use super::frame::{HEADER_BYTES, Header};
use super::record::{Checkpoint, Event, Record, Retired, Sealed, SegmentOpened, Stamp, checkpoint_message};
use super::recovery::{BEGINNING, Found, Mark, Position, Undecided};
use super::retention::{self, Act};
use super::segment;
use crate::triple::Digest;

/// With the policy `buffered`: longest time a written record waits for a sync.
pub const SYNC_WITHIN: Duration = Duration::from_millis(500);
/// Most records that share one sync.
const BATCH_RECORDS_MAX: usize = 512;
/// Size at which a batch takes no further record, in bytes.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// With the policy `durable`: room written as NUL behind a record that finds none, in bytes. Into room that is there a
/// sync writes the record alone; at a file's growing end it writes the file's new length too, which costs the file
/// system a second write.
const RESERVE_BYTES: u64 = 64 * 1024;
/// How often an idle writer looks whether a sync, a checkpoint or another try is due.
const TICK: Duration = Duration::from_millis(250);

/// A file that is only ever written on behind what is good, and cut back.
pub(super) trait Medium: Send {
    /// Writes all bytes, beginning at this offset.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Returns when everything written is on disk.
    fn sync(&mut self) -> io::Result<()>;
    /// Cuts the file back to this many bytes.
    fn truncate(&mut self, bytes: u64) -> io::Result<()>;
    /// The file's size, in bytes; an error where the file is no longer in its directory.
    fn bytes(&self) -> io::Result<u64>;
}

/// Opens the file at a path for writing, making it where it is missing.
pub(super) type OpenMedium = Box<dyn FnMut(&Path) -> io::Result<Box<dyn Medium>> + Send>;

impl Medium for File {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn bytes(&self) -> io::Result<u64> {
        // Not by `metadata`: it asks for the times too, and a kernel with fine-grained ones (6.13 on) then gives the next
        // write a time of its own, which the sync has to put into the journal.
        let found = statx(self, "", AtFlags::EMPTY_PATH, StatxFlags::SIZE | StatxFlags::NLINK)?;
        if found.stx_nlink == 0 {
            return Err(io::Error::other("the file was removed under us"));
        }
        Ok(found.stx_size)
    }
}

/// The real file at this path, readable by the owner and its group.
pub(super) fn on_disk(path: &Path) -> io::Result<Box<dyn Medium>> {
    Ok(Box::new(File::options().write(true).create(true).truncate(false).mode(0o640).open(path)?))
}

/// Frames built and not yet written, and who waits for them.
struct Batch {
    bytes: Vec<u8>,
    end: Position,
    marks: Vec<Mark>,
    waiting: Vec<(Completion, Stored)>,
}

/// Why records are being turned away.
struct Failing {
    error: AuditError,
    refused: u64,
    lost: u64,
}

/// The writer's whole state; owned by its thread.
pub(super) struct Writer {
    settings: Settings,
    clock: Clock,
    signer: Option<Signer>,
    open_medium: OpenMedium,
    shared: Arc<Shared>,
    segment: u64,
    medium: Box<dyn Medium>,
    /// Behind the last record acknowledged.
    good: Position,
    /// Behind the last record known to be on disk.
    synced: Position,
    /// The file's length as it was left: NUL lies between the last record and there.
    reserved: u64,
    undecided: Undecided,
    sealed: Vec<Sealed>,
    retired: Retired,
    /// Sequence number and boot time of the last checkpoint.
    checkpoint: (u64, u64),
    synced_boot_ns: u64,
    opened_at: Stamp,
    retention_due: bool,
    /// Whether a step of retention may have been written down and not carried out.
    unfinished: bool,
    failing: Option<Failing>,
}

impl Writer {
    pub(super) fn open(
        settings: Settings,
        clock: Clock,
        signer: Option<Signer>,
        mut open_medium: OpenMedium,
        shared: Arc<Shared>,
        found: Option<Found>,
    ) -> Result<(Self, Opened), AuditError> {
        let fresh = found.is_none();
        let found = found.unwrap_or_else(|| Found {
            segment: 1,
            position: BEGINNING,
            undecided: Undecided::default(),
            sealed: Vec::new(),
            retired: Retired::default(),
            tail: None,
        });
        let path = segment::path_of(&settings.dir, found.segment);
        let medium = open_medium(&path).map_err(|error| failed("open", path, error))?;
        let opened_at = clock.now();
        let boot_ns = opened_at.boot_ns;
        let opened = Opened {
            sequence: found.position.sequence,
            tail: found.tail.clone(),
            undecided: found.undecided.ids.iter().copied().collect(),
            undecided_more: found.undecided.more,
        };
        let mut writer = Self {
            settings,
            clock,
            signer,
            open_medium,
            shared,
            segment: found.segment,
            medium,
            good: found.position,
            synced: found.position,
            reserved: found.position.offset,
            undecided: found.undecided,
            sealed: found.sealed,
            retired: found.retired,
            checkpoint: (found.position.sequence, boot_ns),
            synced_boot_ns: boot_ns,
            opened_at,
            retention_due: true,
            unfinished: true,
            failing: None,
        };
        if fresh {
            writer.begin_segment(None)?;
        } else {
            writer.cut_back().map_err(|error| failed("cut", writer.path(), error))?;
        }
        writer.write_down_what_was_found(&opened)?;
        Ok((writer, opened))
    }

    fn write_down_what_was_found(&mut self, opened: &Opened) -> Result<(), AuditError> {
        let tail = opened.tail.as_ref().map(|tail| Event::TailDropped {
            segment: tail.segment,
            bytes: tail.bytes,
            why: tail.damage.to_string(),
        });
        let crash = (!self.undecided.is_empty())
            .then(|| Event::CrashFound { check_ids: opened.undecided.clone(), more: opened.undecided_more });
        for event in tail.into_iter().chain(crash) {
            self.write_event(event)?;
        }
        self.sync()
    }

    /// Writes until the last caller is gone.
    pub(super) fn run(mut self, orders: &Receiver<Order>) {
        loop {
            self.tend();
            match orders.recv_timeout(TICK) {
                Ok(first) => self.serve(first, orders),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if self.failing.is_some() {
            return;
        }
        // The checkpoint goes out behind a sync of its own: by its mark it proves everything before it.
        if self.sync().is_ok() && self.good.sequence > self.checkpoint.0 {
            let _unsigned_end = self.write_checkpoint().and_then(|()| self.sync());
        }
        let _room_left_over = self.give_back();
    }

    fn serve(&mut self, first: Order, orders: &Receiver<Order>) {
        let mut batch = vec![first];
        let mut bytes = batch.iter().map(|order| order.payload.len()).sum::<usize>();
        while batch.len() < BATCH_RECORDS_MAX && bytes < BATCH_BYTES_MAX {
            let Ok(order) = orders.try_recv() else { break };
            bytes += order.payload.len();
            batch.push(order);
        }
        self.shared.records.fetch_sub(batch.len(), Ordering::Relaxed);
        self.shared.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.commit(batch);
    }

    /// Stores these records, in as many segments as they need, and answers each.
    fn commit(&mut self, orders: Vec<Order>) {
        let mut orders = orders.into_iter();
        let mut outcome = self.try_again();
        let mut batch = self.batch();
        while outcome.is_ok() {
            let Some(order) = orders.next() else { break };
            if self.would_overflow(&batch, order.payload.len()) {
                let full = std::mem::replace(&mut batch, self.batch());
                outcome = self.store(full).and_then(|()| self.rotate());
                batch = self.batch();
            }
            match outcome {
                Ok(()) => self.push(&mut batch, &order.payload, order.content, order.mark, Some(order.done)),
                Err(ref error) => self.refuse(order.done, error),
            }
        }
        match outcome {
            Ok(()) => {
                if self.checkpoint_due(&batch.end) {
                    self.push_checkpoint(&mut batch);
                }
                // The tickets have been told; the error stays in `failing`.
                let _told = self.store(batch);
            }
            Err(error) => orders.for_each(|order| self.refuse(order.done, &error)),
        }
    }

    fn refuse(&mut self, done: Completion, error: &AuditError) {
        if let Some(failing) = &mut self.failing {
            failing.refused += 1;
        }
        done(Err(error.clone()));
    }

    fn batch(&self) -> Batch {
        Batch { bytes: Vec::new(), end: self.good, marks: Vec::new(), waiting: Vec::new() }
    }

    fn would_overflow(&self, batch: &Batch, payload: usize) -> bool {
        let frame = u64::try_from(HEADER_BYTES + payload).unwrap_or(u64::MAX);
        let only_opening = batch.end.sequence <= batch.end.first_sequence;
        !only_opening && batch.end.offset.saturating_add(frame) > self.settings.segment_bytes_max
    }

    /// Puts one frame at the end of a batch.
    fn push(&self, batch: &mut Batch, payload: &[u8], content: Digest, mark: Mark, done: Option<Completion>) {
        // `Record::encode` bounds the payload far below this.
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let header = Header::seal(length, batch.end.sequence + 1, self.synced.offset, batch.end.head, content);
        batch.bytes.extend_from_slice(&header.to_bytes());
        batch.bytes.extend_from_slice(payload);
        batch.end.offset += header.frame_bytes();
        batch.end.sequence = header.sequence;
        batch.end.head = header.hash;
        batch.end.count(mark);
        batch.marks.push(mark);
        let stored = Stored { sequence: header.sequence, hash: header.hash };
        batch.waiting.extend(done.map(|done| (done, stored)));
    }

    /// Writes a batch (and, where the policy says so, syncs it) and answers its tickets, one way or the other.
    fn store(&mut self, batch: Batch) -> Result<(), AuditError> {
        let Batch { bytes, end, marks, waiting } = batch;
        if bytes.is_empty() {
            return Ok(());
        }
        match self.write(&bytes, end) {
            Ok(()) => {
                for mark in marks {
                    self.undecided.follow(mark);
                }
                waiting.into_iter().for_each(|(done, stored)| done(Ok(stored)));
                Ok(())
            }
            Err(error) => {
                waiting.into_iter().for_each(|(done, _)| self.refuse(done, &error));
                Err(error)
            }
        }
    }

    fn write(&mut self, bytes: &[u8], end: Position) -> Result<(), AuditError> {
        let size = self.medium.bytes().map_err(|error| self.fail("look at", error))?;
        if size != self.reserved {
            return Err(self.fail("append to", io::Error::other("its size was changed under us")));
        }
        let room = self.room_behind(end.offset);
        let written = if room > end.offset {
            let nul = usize::try_from(room - end.offset).unwrap_or_default();
            self.medium.write_at(&[bytes, &vec![0; nul]].concat(), self.good.offset)
        } else {
            self.medium.write_at(bytes, self.good.offset)
        };
        written.map_err(|error| self.fail("write to", error))?;
        self.reserved = self.reserved.max(room);
        match self.settings.policy {
            Policy::Buffered => self.good = end,
            Policy::Durable => {
                self.medium.sync().map_err(|error| self.fail("sync", error))?;
                self.good = end;
                self.synced = end;
            }
        }
        Ok(())
    }

    /// How long the file is to be once it holds records up to `end`.
    fn room_behind(&self, end: u64) -> u64 {
        match self.settings.policy {
            Policy::Durable if end > self.reserved => {
                end.saturating_add(RESERVE_BYTES).min(self.settings.segment_bytes_max).max(end)
            }
            Policy::Durable | Policy::Buffered => end,
        }
    }

    /// Cuts off the room that no record took.
    fn give_back(&mut self) -> io::Result<()> {
        if self.reserved > self.good.offset {
            self.medium.truncate(self.good.offset)?;
            self.reserved = self.good.offset;
        }
        Ok(())
    }

    /// Everything acknowledged goes to disk.
    fn sync(&mut self) -> Result<(), AuditError> {
        if self.synced.offset == self.good.offset {
            return Ok(());
        }
        if let Err(error) = self.medium.sync() {
            // The kernel may have thrown the pages away: what was acknowledged since the last sync is lost.
            let lost = self.good.sequence - self.synced.sequence;
            self.good = self.synced;
            let error = self.fail("sync", error);
            if let Some(failing) = &mut self.failing {
                failing.lost += lost;
            }
            return Err(error);
        }
        self.synced = self.good;
        self.synced_boot_ns = self.clock.now().boot_ns;
        Ok(())
    }

    /// Notes a failure and leaves no part of a record behind, as far as the file system lets us.
    fn fail(&mut self, action: &'static str, error: io::Error) -> AuditError {
        let error = failed(action, self.path(), error);
        // `try_again` repeats this, and checks it.
        let _first_try = self.medium.truncate(self.good.offset);
        self.reserved = self.good.offset;
        self.failing.get_or_insert_with(|| Failing { error: error.clone(), refused: 0, lost: 0 });
        self.shared.set_failing(Some(error.clone()));
        error
    }

    /// While failing: cuts the file back and tries to write down that writing failed. If that is stored, all is well.
    fn try_again(&mut self) -> Result<(), AuditError> {
        let Some(failing) = self.failing.take() else { return Ok(()) };
        let event =
            Event::WritesFailed { error: failing.error.to_string(), refused: failing.refused, lost: failing.lost };
        let outcome = self
            .cut_back()
            .map_err(|error| failed("cut", self.path(), error))
            .and_then(|()| self.write_event(event))
            .and_then(|()| self.sync());
        match outcome {
            Ok(()) => {
                self.shared.set_failing(None);
                Ok(())
            }
            Err(error) => {
                self.failing = Some(failing);
                self.shared.set_failing(Some(error.clone()));
                Err(error)
            }
        }
    }

    /// Removes whatever lies behind the last good record.
    fn cut_back(&mut self) -> io::Result<()> {
        let bytes = self.medium.bytes()?;
        if bytes < self.good.offset {
            return Err(io::Error::other("stored records were cut off under us"));
        }
        if bytes > self.good.offset {
            self.medium.truncate(self.good.offset)?;
            self.medium.sync()?;
        }
        self.reserved = self.good.offset;
        Ok(())
    }

    /// Writes one record of the log's own.
    fn write_event(&mut self, event: Event) -> Result<(), AuditError> {
        let record = Record::new(self.clock.now(), event);
        let payload = record.encode()?;
        let mut batch = self.batch();
        self.push(&mut batch, &payload, Digest::of(&payload), Mark::of(&record), None);
        self.store(batch)
    }

    /// Finishes this segment and begins the next. On failure this one goes on.
    fn rotate(&mut self) -> Result<(), AuditError> {
        self.sync()?;
        self.give_back().map_err(|error| self.fail("cut", error))?;
        let sealed = self.good.sealed(self.segment);
        let next = self.segment + 1;
        let path = segment::path_of(&self.settings.dir, next);
        let medium = (self.open_medium)(&path).map_err(|error| self.fail("open", error))?;
        let here = (self.segment, std::mem::replace(&mut self.medium, medium), self.good);
        self.segment = next;
        self.good = Position::start(here.2.sequence, here.2.head);
        self.synced = self.good;
        self.reserved = 0;
        // A leftover of an earlier try that did not get this far.
        let begun = self.medium.truncate(0).map_err(|error| failed("cut", path.clone(), error));
        if let Err(error) = begun.and_then(|()| self.begin_segment(Some(sealed.clone()))) {
            let _leftover = fs::remove_file(&path);
            (self.segment, self.medium, self.good) = here;
            self.synced = self.good;
            self.reserved = self.good.offset;
            self.failing.get_or_insert_with(|| Failing { error: error.clone(), refused: 0, lost: 0 });
            self.shared.set_failing(Some(error.clone()));
            return Err(error);
        }
        self.sealed.push(sealed);
        self.retention_due = true;
        Ok(())
    }

    fn begin_segment(&mut self, sealed: Option<Sealed>) -> Result<(), AuditError> {
        let opened = SegmentOpened {
            segment: self.segment,
            sealed,
            undecided: self.undecided.ids.iter().copied().collect(),
            retired: self.retired.clone(),
        };
        self.write_event(Event::SegmentOpened(Box::new(opened)))?;
        self.sync()?;
        segment::sync_dir(&self.settings.dir).map_err(|error| self.fail("sync the directory of", error))
    }

    fn checkpoint_due(&self, end: &Position) -> bool {
        let (sequence, _) = self.checkpoint;
        self.signer.is_some() && end.sequence.saturating_sub(sequence) >= self.settings.checkpoint_records
    }

    /// Signs the batch's end, so that the checkpoint shares the batch's sync.
    fn push_checkpoint(&mut self, batch: &mut Batch) {
        let now = self.clock.now();
        let Some(signer) = &mut self.signer else { return };
        let (sequence, head) = (batch.end.sequence, batch.end.head);
        let (key, signature) = (signer.0)(&checkpoint_message(sequence, &head));
        let (key, signature) = (hex::encode(key), hex::encode(signature));
        self.checkpoint = (sequence + 1, now.boot_ns);
        let record = Record::new(now, Event::Checkpoint(Checkpoint { sequence, head, key, signature }));
        if let Ok(payload) = record.encode() {
            self.push(batch, &payload, Digest::of(&payload), Mark::of(&record), None);
        }
    }

    fn write_checkpoint(&mut self) -> Result<(), AuditError> {
        let mut batch = self.batch();
        self.push_checkpoint(&mut batch);
        self.store(batch)
    }

    /// What is due without anybody asking.
    fn tend(&mut self) {
        if self.try_again().is_err() {
            return;
        }
        let now = self.clock.now();
        let due = |since: u64, within: Duration| u128::from(now.boot_ns.saturating_sub(since)) >= within.as_nanos();
        if due(self.synced_boot_ns, SYNC_WITHIN) && self.sync().is_err() {
            return;
        }
        let written = self.good.sequence > self.checkpoint.0;
        if written && due(self.checkpoint.1, self.settings.checkpoint_within) && self.write_checkpoint().is_err() {
            return;
        }
        if std::mem::take(&mut self.retention_due) {
            self.retire(self.steady_wall_ns(&now));
        }
    }

    /// The wall clock as it would be had nobody set it ahead since the log was opened: a step ages no record.
    fn steady_wall_ns(&self, now: &Stamp) -> u64 {
        let since_ns = now.boot_ns.saturating_sub(self.opened_at.boot_ns);
        now.wall_ns.min(self.opened_at.wall_ns.saturating_add(since_ns))
    }

    /// Takes out what the bounds ask for, one piece at a time, each written down before it goes.
    fn retire(&mut self, now_wall_ns: u64) {
        let dir = self.settings.dir.clone();
        if std::mem::take(&mut self.unfinished) {
            retention::finish(&dir, &self.retired);
        }
        while let Some(retirement) =
            retention::next(&self.settings.retention, &self.sealed, &self.retired, self.good.offset, now_wall_ns)
        {
            let going = match retirement.act {
                Act::Prune(segment) => retention::prunable(&dir, segment),
                Act::Drop(_) => Ok(BTreeSet::new()),
            };
            // A segment that cannot be read is left for `verify` to name.
            let Ok(going) = going else { return };
            let records = u64::try_from(going.len()).unwrap_or(u64::MAX);
            let Some(retired) = retention::after(&self.retired, &self.sealed, retirement.act, records) else { return };
            let event = Event::Retired { why: retirement.why, retired: retired.clone() };
            if self.write_event(event).and_then(|()| self.sync()).is_err() {
                return;
            }
            self.retired = retired;
            if retention::carry_out(&dir, &mut self.sealed, retirement.act, &going).is_err() {
                // Taken up again at the next rotation.
                self.unfinished = true;
                return;
            }
        }
    }

    fn path(&self) -> PathBuf {
        segment::path_of(&self.settings.dir, self.segment)
    }
}

fn failed(action: &'static str, path: PathBuf, error: io::Error) -> AuditError {
    AuditError::Io { action, path, error: Arc::new(error) }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::super::chain::{AuditLog, Settings};
    use super::super::record::tests::{received, stamp};
    use super::super::{read, verify};
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    /// What the disk does next.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Disk {
        Sound,
        /// Takes half of what is written, then is full; new files cannot be made.
        Full,
        /// Takes everything and cannot sync.
        SyncFails,
        /// Half a write, and it cannot be cut back either.
        ReadOnly,
    }

    struct Faulty {
        file: File,
        disk: Arc<Mutex<Disk>>,
    }

    impl Faulty {
        fn disk(&self) -> Disk {
            *self.disk.lock().expect("unpoisoned")
        }
    }

    fn os(code: i32) -> io::Error {
        io::Error::from_raw_os_error(code)
    }

    const EIO: i32 = 5;
    const ENOSPC: i32 = 28;
    const EROFS: i32 = 30;

    impl Medium for Faulty {
        fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
            let half = &bytes[..bytes.len() / 2];
            match self.disk() {
                Disk::Sound | Disk::SyncFails => Medium::write_at(&mut self.file, bytes, offset),
                Disk::Full => Medium::write_at(&mut self.file, half, offset).and(Err(os(ENOSPC))),
                Disk::ReadOnly => Medium::write_at(&mut self.file, half, offset).and(Err(os(EROFS))),
            }
        }

        fn sync(&mut self) -> io::Result<()> {
            if self.disk() == Disk::SyncFails { Err(os(EIO)) } else { Medium::sync(&mut self.file) }
        }

        fn truncate(&mut self, bytes: u64) -> io::Result<()> {
            if self.disk() == Disk::ReadOnly { Err(os(EROFS)) } else { Medium::truncate(&mut self.file, bytes) }
        }

        fn bytes(&self) -> io::Result<u64> {
            Medium::bytes(&self.file)
        }
    }

    struct Bench {
        dir: tempfile::TempDir,
        disk: Arc<Mutex<Disk>>,
        log: AuditLog,
    }

    fn bench(settings: impl FnOnce(&mut Settings)) -> Bench {
        bench_with(1, settings)
    }

    /// A log on a faulty disk, with a clock that moves on by so much each time it is asked.
    fn bench_with(step_ns: u64, settings: impl FnOnce(&mut Settings)) -> Bench {
        let dir = tempfile::tempdir().expect("a directory");
        let disk = Arc::new(Mutex::new(Disk::Sound));
        let ticks = AtomicU64::new(1);
        let clock = Clock::new(move || stamp(ticks.fetch_add(step_ns, Ordering::Relaxed)));
        let shared = disk.clone();
        let create: OpenMedium = Box::new(move |path| {
            let state = *shared.lock().expect("unpoisoned");
            if state == Disk::Full && !path.exists() {
                return Err(os(ENOSPC));
            }
            let file = File::options().write(true).create(true).truncate(false).open(path)?;
            Ok(Box::new(Faulty { file, disk: shared.clone() }))
        });
        let mut chosen = Settings::durable(dir.path());
        settings(&mut chosen);
        let log = AuditLog::open_on(chosen, clock, None, create).expect("opens");
        Bench { dir, disk, log }
    }

    impl Bench {
        fn set(&self, disk: Disk) {
            *self.disk.lock().expect("unpoisoned") = disk;
        }

        fn put(&self, id: u8) -> Result<Stored, AuditError> {
            self.log.append(&received(id)).expect("queued").wait_blocking(SOON)
        }

        fn newest(&self) -> PathBuf {
            let segment = *segment::list(self.dir.path()).expect("readable").last().expect("one");
            segment::path_of(self.dir.path(), segment)
        }

        fn newest_bytes(&self) -> u64 {
            fs::metadata(self.newest()).expect("there").len()
        }

        /// Where the records of the newest segment end.
        fn records_end(&self) -> u64 {
            let mut scan = segment::Scan::open(&self.newest(), None).expect("opens");
            let mut end = 0;
            while let segment::Step::Frame(frame) = scan.step().expect("reads") {
                end = frame.offset + frame.header.frame_bytes();
            }
            end
        }

        /// Closes, and gives what `writes-failed` says; the log must be whole and hold exactly these checks.
        fn end(self, ids: &[u8]) -> Vec<(u64, u64)> {
            let Self { dir, log, .. } = self;
            drop(log);
            let report = verify::verify(dir.path(), &[]).expect("readable");
            assert!(report.is_whole(), "{report:?}");
            let (mut found, mut failures) = (Vec::new(), Vec::new());
            for entry in read::entries(dir.path()).expect("readable") {
                let entry = entry.expect("sound");
                let record = entry.record().expect("a record");
                found.extend(record.check_id().map(|id| id.as_bytes()[0]));
                if let Event::WritesFailed { refused, lost, .. } = record.event {
                    failures.push((refused, lost));
                }
            }
            assert_eq!(found, ids);
            failures
        }
    }

    #[test]
    fn a_disk_that_fails_turns_records_away_until_it_works_and_says_so() {
        for disk in [Disk::Full, Disk::SyncFails, Disk::ReadOnly] {
            let bench = bench(|_| ());
            bench.put(1).expect("stored");
            let good = bench.records_end();
            bench.set(disk);
            for id in 2..5 {
                let error = bench.put(id).expect_err("the disk failed");
                assert!(matches!(error, AuditError::Io { .. }), "{error}");
                assert!(bench.log.failing().is_some());
                // Not at once: a try of the writer's own may be under way.
                let cut_back = (0..100).any(|_| {
                    std::thread::sleep(Duration::from_millis(1));
                    bench.newest_bytes() == good
                });
                assert!(cut_back || disk == Disk::ReadOnly, "{disk:?} left part of a record behind");
            }
            bench.set(Disk::Sound);
            bench.put(5).expect("stored again");
            assert!(bench.log.failing().is_none());
            assert_eq!(bench.end(&[1, 5]), [(3, 0)], "{disk:?}");
        }
    }

    #[test]
    fn a_durable_record_finds_room_until_it_is_used_up_to_the_byte() {
        let bench = bench(|_| ());
        let mut lengths = BTreeSet::new();
        for id in 1..=3 {
            bench.put(id).expect("stored");
            lengths.insert(bench.newest_bytes());
        }
        let room = lengths.first().copied().expect("one length");
        assert_eq!(lengths.len(), 1, "the file grew with a record that had room");
        assert!(verify::verify(bench.dir.path(), &[]).expect("readable").is_whole(), "while it is open");
        // Records of one length (ids of one digit) until none fits, and one past that.
        let before = bench.records_end();
        bench.put(4).expect("stored");
        let each = bench.records_end() - before;
        let fitting = (room - bench.records_end()) / each;
        for _ in 0..fitting {
            bench.put(4).expect("stored");
        }
        assert_eq!(bench.newest_bytes(), room);
        bench.put(4).expect("stored");
        assert_eq!(bench.newest_bytes(), bench.records_end() + RESERVE_BYTES);
        let (end, dir) = (bench.records_end(), bench.newest());
        let Bench { dir: _keep, log, .. } = bench;
        drop(log);
        assert_eq!(fs::metadata(dir).expect("there").len(), end, "closed, it has no room left over");
    }

    #[test]
    fn room_ends_where_the_segment_does() {
        let bench = bench(|settings| settings.segment_bytes_max = 1500);
        for id in 1..=9 {
            bench.put(id).expect("stored");
            // One record may reach past the limit; room never does.
            assert!(bench.newest_bytes() <= bench.records_end().max(1500));
        }
        let segments = segment::list(bench.dir.path()).expect("readable");
        for pair in segments.windows(2) {
            let bytes = fs::read(segment::path_of(bench.dir.path(), pair[0])).expect("there");
            assert_ne!(bytes.last(), Some(&0), "a finished segment has no room left over");
        }
        assert_eq!(bench.end(&[1, 2, 3, 4, 5, 6, 7, 8, 9]), []);
    }

    #[test]
    fn a_buffered_log_takes_no_room() {
        let bench = bench(|settings| settings.policy = Policy::Buffered);
        bench.put(1).expect("stored");
        assert_eq!(bench.newest_bytes(), bench.records_end());
    }

    #[test]
    fn a_failing_disk_is_tried_again_without_anybody_asking() {
        let bench = bench(|_| ());
        bench.set(Disk::Full);
        bench.put(1).expect_err("full");
        bench.set(Disk::Sound);
        let recovered = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            bench.log.failing().is_none()
        });
        assert!(recovered);
        assert_eq!(bench.end(&[]), [(1, 0)]);
    }

    #[test]
    fn every_answer_that_shared_a_failed_sync_is_told() {
        let bench = bench(|_| ());
        bench.set(Disk::SyncFails);
        let tickets: Vec<_> = (1..=50).map(|id| bench.log.append(&received(id)).expect("queued")).collect();
        for ticket in tickets {
            ticket.wait_blocking(SOON).expect_err("none is stored");
        }
        bench.set(Disk::Sound);
        bench.put(51).expect("stored");
        assert_eq!(bench.end(&[51]), [(50, 0)]);
    }

    #[test]
    fn a_buffered_log_says_how_much_a_failed_sync_cost() {
        // By this clock a sync is due after every record.
        let bench = bench_with(1_000_000_000, |settings| settings.policy = Policy::Buffered);
        bench.put(1).expect("stored");
        std::thread::sleep(Duration::from_millis(100));
        bench.set(Disk::SyncFails);
        bench.put(2).expect("in the kernel");
        let noticed = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            bench.log.failing().is_some()
        });
        assert!(noticed);
        bench.put(3).expect_err("failing");
        bench.set(Disk::Sound);
        bench.put(4).expect("stored");
        assert_eq!(bench.end(&[1, 4]), [(1, 1)]);
    }

    #[test]
    fn a_segment_that_cannot_be_begun_is_an_error_and_the_old_one_goes_on() {
        let bench = bench(|settings| settings.segment_bytes_max = 1500);
        bench.put(1).expect("stored");
        bench.set(Disk::Full);
        bench.put(2).expect_err("no next segment");
        bench.set(Disk::Sound);
        bench.put(3).expect("stored");
        bench.put(4).expect("stored");
        assert!(segment::list(bench.dir.path()).expect("readable").len() > 1);
        assert_eq!(bench.end(&[1, 3, 4]), [(1, 0)]);
    }
}

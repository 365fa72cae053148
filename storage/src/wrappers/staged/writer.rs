//! Thread that writes a stage. In: blocks from the tier. Out: files, and a ledger of their contents. Readers do not
//! wait for it: they have their bytes before the bytes are staged.
//!
//! A batch of blocks is written, made durable once per file, recorded in the journals, and only then in the ledger. A
//! failure is counted and logged, and only stops the staging: later callers read from the tier. After a failure staging
//! pauses, so that a full disk is not written to again and again.

use super::folder::{Files, Folder};
use super::journal::{Header, Record, checks_of};
use super::ledger::{Ledger, disk_bytes};
use super::{StageStats, WriterTask};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Bytes written before they are made durable.
const BATCH_BYTES: u64 = 16 << 20;
/// Maximum versions whose files stay open.
const OPEN_FILES: usize = 64;
/// Pause of staging after a failure.
const PAUSE: Duration = Duration::from_millis(200);
/// Excess over twice the needed size at which a journal is rewritten.
const SLACK_BYTES: u64 = 64 << 10;

/// State of the thread.
pub(super) struct Writer {
    folder: Folder,
    ledger: Arc<Mutex<Ledger>>,
    stats: Arc<StageStats>,
    capacity_bytes: u64,
    open: HashMap<u64, Files>,
    /// Blocks written but not yet durable, by version.
    records: BTreeMap<u64, Vec<Record>>,
    paused_until: Option<Instant>,
}

impl Writer {
    pub(super) fn new(folder: Folder, ledger: Arc<Mutex<Ledger>>, stats: Arc<StageStats>, capacity_bytes: u64) -> Self {
        Self {
            folder,
            ledger,
            stats,
            capacity_bytes,
            open: HashMap::new(),
            records: BTreeMap::new(),
            paused_until: None,
        }
    }

    pub(super) fn run(mut self, jobs: &Receiver<WriterTask>) {
        // The limit may be lower than when the blocks were staged.
        self.make_room(0, None);
        self.flush();
        while let Ok(job) = jobs.recv() {
            let (mut leads, mut bytes, mut next) = (Vec::new(), 0, Some(job));
            while let Some(job) = next.take() {
                if self.stats.stopped.load(Ordering::Acquire) {
                    return;
                }
                match job {
                    WriterTask::Store {
                        header,
                        blocks,
                        lead,
                        claim,
                    } => {
                        let len: u64 = blocks.iter().map(|(_, bytes)| bytes.len() as u64).sum();
                        self.store(&header, &blocks);
                        self.stats.pending.fetch_sub(len, Ordering::AcqRel);
                        leads.push((lead, claim));
                        bytes += len;
                    }
                    WriterTask::Drop { id, block } => self.drop_block(id, block),
                    WriterTask::Forget { header, blocks } => self.forget(&header, &blocks),
                    WriterTask::Flush(done) => {
                        self.flush();
                        leads.clear();
                        let _ = done.send(());
                    }
                    WriterTask::Stop => return,
                }
                if bytes < BATCH_BYTES {
                    next = jobs.try_recv().ok();
                }
            }
            self.flush();
            // Only now: until a block is staged, its fetch serves it, and no other process fetches it.
            drop(leads);
        }
    }

    /// Writes the blocks of a fetch.
    fn store(&mut self, header: &Header, blocks: &[(u64, Bytes)]) {
        if self.paused_until.is_some_and(|until| Instant::now() < until) {
            self.stats.metrics.skipped.inc_by(blocks.len() as u64);
            return;
        }
        let id = match self.version(header) {
            Ok(id) => id,
            Err(e) => return self.fail(header, &e, 0),
        };
        for (block, bytes) in blocks {
            let queued = |record: &Record| matches!(record, Record::Staged { block: b, .. } if b == block);
            let is_queued = self.records.get(&id).is_some_and(|records| records.iter().any(queued));
            if is_queued || self.ledger.lock().has(id, *block) {
                continue;
            }
            let len = disk_bytes(bytes.len() as u64);
            if !self.make_room(len, Some(id)) {
                self.stats.metrics.skipped.inc();
                continue;
            }
            let at = block * header.block_bytes;
            let written = self.files(id).map(|_| ()).and_then(|()| match self.open.get(&id) {
                Some(files) => self.folder.write_block(files, at, bytes),
                None => Err(io::ErrorKind::NotFound.into()),
            });
            if let Err(e) = written {
                if let Some(files) = self.open.get(&id) {
                    let _ = files.punch(at, header.len_of(*block));
                }
                self.fail(header, &e, len);
                return self.remove_if_empty(id);
            }
            let checks = checks_of(bytes);
            self.records
                .entry(id)
                .or_default()
                .push(Record::Staged { block: *block, checks });
        }
    }

    /// Handles a failure: pauses staging, and frees `wanted` bytes if the disk is full.
    fn fail(&mut self, header: &Header, error: &io::Error, wanted: u64) {
        self.stats.failed(&header.path, error);
        self.paused_until = Some(Instant::now() + PAUSE);
        if error.kind() == io::ErrorKind::StorageFull {
            let target_bytes = self.ledger.lock().bytes.saturating_sub(wanted.max(header.block_bytes));
            self.shrink(target_bytes, None);
        }
    }

    /// Number of a version. Creates its files if missing, and removes older versions of the object.
    fn version(&mut self, header: &Header) -> io::Result<u64> {
        if let Some(id) = self.ledger.lock().id(header) {
            return Ok(id);
        }
        let versions = self.ledger.lock().other_versions(header);
        for version in versions {
            self.remove(version);
        }
        let id = self.ledger.lock().last_id + 1;
        match self.folder.create(id, header) {
            Ok(files) => self.store_open(id, files),
            Err(e) => {
                self.folder.remove(id);
                return Err(e);
            }
        }
        self.ledger.lock().add(id, header.clone());
        Ok(id)
    }

    fn store_open(&mut self, id: u64, files: Files) {
        if self.open.len() >= OPEN_FILES {
            // Earlier writes must be made durable through these files before they are closed.
            self.flush();
            self.open.clear();
        }
        self.open.insert(id, files);
    }

    fn files(&mut self, id: u64) -> io::Result<&mut Files> {
        if !self.open.contains_key(&id) {
            let files = self.folder.reopen(id)?;
            self.store_open(id, files);
        }
        self.open.get_mut(&id).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Evicts until `bytes` more fit. Returns true if they do.
    fn make_room(&mut self, bytes: u64, writing: Option<u64>) -> bool {
        let queued: u64 = self
            .records
            .iter()
            .map(|(id, records)| self.queued_bytes(*id, records))
            .sum();
        let target_bytes = self.capacity_bytes.checked_sub(bytes + queued).unwrap_or_else(|| {
            self.flush();
            self.capacity_bytes.saturating_sub(bytes)
        });
        self.shrink(target_bytes, writing);
        self.ledger.lock().bytes <= target_bytes
    }

    fn queued_bytes(&self, id: u64, records: &[Record]) -> u64 {
        let header = self.ledger.lock().header(id);
        let of = |record: &Record| match (record, &header) {
            (Record::Staged { block, .. }, Some(header)) => disk_bytes(header.len_of(*block)),
            _ => 0,
        };
        records.iter().map(of).sum()
    }

    /// Evicts blocks until at most `target_bytes` bytes are staged.
    fn shrink(&mut self, target_bytes: u64, writing: Option<u64>) {
        while self.ledger.lock().bytes > target_bytes {
            let Some((id, block)) = self.ledger.lock().evict() else {
                return;
            };
            self.stats.metrics.evicted.inc();
            if self.ledger.lock().is_empty(id) && writing != Some(id) && !self.records.contains_key(&id) {
                self.remove(id);
            } else {
                self.drop_block(id, block);
            }
        }
    }

    fn remove_if_empty(&mut self, id: u64) {
        if self.ledger.lock().is_empty(id) && !self.records.contains_key(&id) {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: u64) {
        self.records.remove(&id);
        self.open.remove(&id);
        self.ledger.lock().forget(id);
        self.folder.remove(id);
    }

    fn forget(&mut self, header: &Header, blocks: &[u64]) {
        // Afterwards, blocks written but not yet recorded are in the ledger.
        self.flush();
        let lookup = self.ledger.lock().find(header, blocks);
        for held in &lookup.held {
            if self.ledger.lock().reject(lookup.id, held) {
                self.stats.metrics.torn.inc();
                self.drop_block(lookup.id, held.block);
            }
        }
    }

    /// Records that a block is gone, then frees its disk space. Losing the record in a crash is harmless: the dropped
    /// block no longer matches its checksums.
    fn drop_block(&mut self, id: u64, block: u64) {
        let Some(header) = self.ledger.lock().header(id) else {
            return;
        };
        let (at, len) = (block * header.block_bytes, header.len_of(block));
        let dropped = self.files(id).and_then(|files| {
            files.append(&[Record::Dropped { block }])?;
            files.punch(at, len)
        });
        self.ledger.lock().touch(id);
        if let Err(e) = dropped {
            // On file systems that cannot free parts of a file, the whole file is removed.
            self.stats.failed(&header.path, &e);
            self.remove(id);
        }
    }

    /// Makes all written blocks durable, records them and publishes them to readers.
    fn flush(&mut self) {
        for (id, records) in std::mem::take(&mut self.records) {
            let done = self.files(id).and_then(|files| {
                files.sync()?;
                files.append(&records)
            });
            self.ledger.lock().touch(id);
            if let Err(e) = done {
                let header = self.ledger.lock().header(id);
                self.stats
                    .failed(header.as_ref().map_or("", |header| header.path.as_str()), &e);
                self.paused_until = Some(Instant::now() + PAUSE);
            } else {
                self.ledger.lock().publish(id, &records);
                self.stats.metrics.written.inc_by(records.len() as u64);
                self.compact(id);
            }
            self.remove_if_empty(id);
        }
        self.stats.report_bytes(self.ledger.lock().bytes);
    }

    /// Rewrites a journal that is much longer than its state needs.
    fn compact(&mut self, id: u64) {
        let (Some(files), Some(header)) = (self.open.get(&id), self.ledger.lock().header(id)) else {
            return;
        };
        if files.journal_bytes <= 2 * self.ledger.lock().journal_bytes(id) + SLACK_BYTES {
            return;
        }
        // Reopened on demand, as the new file.
        self.open.remove(&id);
        let records = self.ledger.lock().records(id);
        if let Err(e) = self.folder.write_journal(id, &header, &records) {
            self.stats.failed(&header.path, &e);
        }
    }
}

//! Fetching what is not staged. In: blocks. Out: their bytes from the tier, once for all who ask, and a job for the
//! writer.

use super::stage::Stage;
use super::task::{Fetched, PENDING_BYTES, WriterTask};
use crate::error::{ErrorKind, StorageError};
use crate::ranges;
use crate::tier::{Object, ReadCost};
use crate::wrappers::single_flight::{Lead, Version, share_of};
use bytes::Bytes;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tierlab_protocol::via::{Via, ViaSet};

/// The cost of a fetch on its way from the task that makes it to the call that began it; whoever comes last passes it on.
#[derive(Debug, Default)]
struct Handover(Mutex<HandoverState>);

#[derive(Debug, Default)]
struct HandoverState {
    cost: Option<ReadCost>,
    caller_gone: bool,
}

impl Handover {
    fn lock(&self) -> MutexGuard<'_, HandoverState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The call that began a fetch. Dropped before it has taken the cost, it leaves it unreported.
struct Caller {
    stage: Arc<Stage>,
    handover: Arc<Handover>,
}

impl Caller {
    /// The call reports the cost itself.
    fn take_over(&self) {
        self.handover.lock().cost = None;
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let mut handed = self.handover.lock();
        handed.caller_gone = true;
        if let Some(cost) = handed.cost.take() {
            self.stage.unreported.add(&cost);
        }
    }
}

impl Stage {
    /// Blocks from the tier: from fetches under way, and from one of this call's own.
    pub(super) async fn fetch(self: &Arc<Self>, object: &Object, blocks: &[u64]) -> Result<Fetched, StorageError> {
        let mut landed = Fetched {
            parts: Vec::new(),
            cost: ReadCost::default(),
        };
        if blocks.is_empty() {
            return Ok(landed);
        }
        let version = Version::of(object);
        let keys = blocks.iter().map(|block| version.extent(&self.extent(object, *block)));
        let mut boarded = self.flights.board(keys.collect());
        let caller = boarded.lead.take().map(|lead| {
            // On a task of its own: it goes on when this call is dropped.
            let handover = Arc::<Handover>::default();
            let caller = Caller {
                stage: self.clone(),
                handover: handover.clone(),
            };
            let (stage, object) = (self.clone(), object.clone());
            tokio::spawn(async move { stage.lead(&object, lead, &handover).await });
            caller
        });
        let waiting = Instant::now();
        // What others have fetched already and is still being written is in memory.
        let in_memory = boarded
            .tickets
            .iter()
            .map(|ticket| !ticket.is_led() && ticket.has_landed());
        let in_memory: Vec<bool> = in_memory.collect();
        for (ticket, in_memory) in boarded.tickets.iter().zip(in_memory) {
            let other = ticket.landed(object).await?;
            let cost = match in_memory {
                true => ReadCost {
                    via: ViaSet::of(Via::Memory),
                    cache_hits: 1,
                    ..ReadCost::default()
                },
                false => share_of(&other.cost, ticket.is_led(), waiting.elapsed()),
            };
            landed.cost.merge(&cost);
            landed.parts.extend(other.parts.iter().cloned());
        }
        if let Some(caller) = caller {
            caller.take_over();
        }
        Ok(landed)
    }

    /// Makes a fetch, has it staged, and answers it: the writer has it before a reader has its bytes.
    async fn lead(&self, object: &Object, lead: Lead<Fetched>, handover: &Handover) {
        let landed = self.fetch_unless_staged(object, &lead).await.map(Arc::new);
        if let Ok(landed) = &landed {
            let mut handed = handover.lock();
            if handed.caller_gone {
                self.unreported.add(&landed.cost);
            } else {
                handed.cost = Some(landed.cost);
            }
        }
        let answer = lead.answer();
        match &landed {
            Ok(landed) => self.stage(object, landed, lead),
            // The next one who asks begins anew.
            Err(_) => drop(lead),
        }
        answer.land(landed);
    }

    /// The blocks of a fetch. Another fetch of the same blocks may have ended after this call looked for them and before it
    /// began its own: they are in the folder by now.
    async fn fetch_unless_staged(&self, object: &Object, lead: &Lead<Fetched>) -> Result<Fetched, StorageError> {
        let blocks: Vec<u64> = lead
            .keys()
            .iter()
            .map(|key| key.extent().start / self.block_bytes)
            .collect();
        let lookup = self.ledger.find(&self.header(object), &blocks);
        let held: Vec<Range<u64>> = lookup.held.iter().map(|held| self.extent(object, held.block)).collect();
        let staged = self.read_staged(object, &held, &lookup).await;
        let mut missing = [lookup.missing, staged.broken].concat();
        missing.sort_unstable();
        let mut landed = Fetched {
            parts: staged.parts,
            cost: staged.cost,
        };
        if !missing.is_empty() {
            let fetched = self.fetch_from_tier(object, &missing).await?;
            // One after the other: times add.
            let (queue, device) = (landed.cost.queue, landed.cost.device);
            landed.cost.merge(&fetched.cost);
            landed.cost.queue = queue + fetched.cost.queue;
            landed.cost.device = device + fetched.cost.device;
            landed.parts.extend(fetched.parts);
        }
        Ok(landed)
    }

    async fn fetch_from_tier(&self, object: &Object, blocks: &[u64]) -> Result<Fetched, StorageError> {
        let runs = ranges::adjacent(blocks.iter().map(|block| self.extent(object, *block)));
        let (parts, cost) = if let [run] = &runs[..] {
            // The tier's own way of reading one large range.
            let read = self.inner.read(object, run.clone()).await?;
            (vec![read.bytes], read.cost)
        } else {
            let read = self.inner.read_many(object, &runs).await?;
            (read.parts, read.cost)
        };
        let whole = |(run, bytes): (&Range<u64>, &Bytes)| bytes.len() as u64 == run.end - run.start;
        if parts.len() != runs.len() || !runs.iter().zip(&parts).all(whole) {
            let detail = "the tier returned fewer bytes than it was asked for";
            return Err(StorageError::new(ErrorKind::Corrupt, object.path.as_str(), detail));
        }
        let parts = runs.into_iter().zip(parts).collect();
        Ok(Fetched { parts, cost })
    }

    /// Hands blocks to the writer, unless too many are waiting.
    fn stage(&self, object: &Object, landed: &Fetched, lead: Lead<Fetched>) {
        let mut blocks = Vec::with_capacity(lead.keys().len());
        let mut len = 0;
        for key in lead.keys() {
            let extent = key.extent();
            let within = |(run, _): &&(Range<u64>, Bytes)| run.start <= extent.start && extent.end <= run.end;
            if let Some((run, bytes)) = landed.parts.iter().find(within) {
                let at = (extent.start - run.start) as usize;
                let block_len = (extent.end - extent.start) as usize;
                blocks.push((extent.start / self.block_bytes, bytes.slice(at..at + block_len)));
                len += block_len as u64;
            }
        }
        let pending = &self.tally.pending;
        let admitted = pending.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
            (now == 0 || now + len <= PENDING_BYTES).then_some(now + len)
        });
        if admitted.is_err() {
            self.tally.skipped.add(blocks.len());
            return;
        }
        let header = self.header(object);
        // An error would mean that the thread has ended: then nothing is staged any more.
        let _ = self.jobs.send(WriterTask::Store { header, blocks, lead });
    }
}

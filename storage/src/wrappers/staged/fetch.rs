//! Fetches of blocks that are not staged. In: blocks. Out: their bytes from the tier, fetched once for all callers, and
//! a task for the writer.

use super::neighbours::Claim;
use super::stage::{Fetched, PENDING_BYTES, Stage, WriterTask};
use crate::ranges;
use crate::wrappers::single_flight::{Lead, Version, share_of};
use crate::{ErrorKind, Object, ReadCost, StorageError};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tierlab_protocol::via::{Via, ViaSet};
use tokio::sync::oneshot;

/// Blocks read from the tier, with their claim if processes share a root.
struct ToStage {
    blocks: Vec<u64>,
    claim: Option<Claim>,
}

/// The call that began a fetch, and the fetch's cost once it has ended. Dropped before it has taken the cost, it leaves
/// it unreported; a fetch that ends later finds the channel closed, and does the same.
struct Caller {
    stage: Arc<Stage>,
    cost: oneshot::Receiver<ReadCost>,
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.cost.close();
        if let Ok(cost) = self.cost.try_recv() {
            self.stage.unreported.add(&cost);
        }
    }
}

impl Stage {
    /// Fetches blocks from the tier: joins fetches in flight, and begins one for the other blocks.
    pub(super) async fn fetch(self: &Arc<Self>, object: &Object, blocks: &[u64]) -> Result<Fetched, StorageError> {
        let mut landed = Fetched::default();
        if blocks.is_empty() {
            return Ok(landed);
        }
        let version = Version::of(object);
        let keys = blocks.iter().map(|block| version.extent(&self.extent(object, *block)));
        let mut boarded = self.flights.board(keys.collect());
        let caller = boarded.lead.take().map(|lead| {
            // On a task of its own: it goes on when this call is dropped.
            let (to_caller, cost) = oneshot::channel();
            let (stage, object) = (self.clone(), object.clone());
            tokio::spawn(async move { stage.lead(&object, lead, to_caller).await });
            Caller {
                stage: self.clone(),
                cost,
            }
        });
        let waiting = Instant::now();
        // Blocks that were already fetched and are still being written are in memory.
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
        if let Some(mut caller) = caller {
            // The call reports the cost itself.
            let _ = caller.cost.try_recv();
        }
        Ok(landed)
    }

    /// Makes a fetch, has it staged, and answers it: the writer has it before a reader has its bytes.
    async fn lead(&self, object: &Object, lead: Lead<Fetched>, to_caller: oneshot::Sender<ReadCost>) {
        let fetched = self.fetch_unless_staged(object, &lead).await;
        let (landed, to_stage) = match fetched {
            Ok((landed, to_stage)) => (Ok(Arc::new(landed)), Some(to_stage)),
            Err(error) => (Err(error), None),
        };
        if let Ok(landed) = &landed
            && let Err(cost) = to_caller.send(landed.cost)
        {
            self.unreported.add(&cost);
        }
        let answer = lead.answer();
        match (&landed, to_stage) {
            (Ok(landed), Some(to_stage)) => self.stage(object, landed, lead, to_stage),
            // The next caller begins a new fetch.
            _ => drop(lead),
        }
        answer.land(landed);
    }

    /// Fetches the blocks of `lead`. Another fetch of the same blocks may have ended between this call's look-up and
    /// the start of its own fetch: those blocks are in the folder by now.
    async fn fetch_unless_staged(
        &self,
        object: &Object,
        lead: &Lead<Fetched>,
    ) -> Result<(Fetched, ToStage), StorageError> {
        let blocks: Vec<u64> = lead
            .keys()
            .iter()
            .map(|key| key.extent().start / self.block_bytes)
            .collect();
        let header = self.header(object);
        let lookup = self.ledger.lock().find(&header, &blocks);
        let held: Vec<Range<u64>> = lookup.held.iter().map(|held| self.extent(object, held.block)).collect();
        let staged = self.read_staged(object, &held, &lookup).await;
        let mut missing = [lookup.missing, staged.broken].concat();
        missing.sort_unstable();
        let mut landed = staged.landed;
        let claim = self.ask_neighbours(object, &mut missing, &mut landed).await;
        if !missing.is_empty() {
            let fetched = self.fetch_from_tier(object, &missing).await?;
            landed.cost.then(&fetched.cost);
            landed.parts.extend(fetched.parts);
        }
        let to_stage = ToStage { blocks: missing, claim };
        Ok((landed, to_stage))
    }

    /// Takes the blocks that other processes have staged, or have fetched while this process waited, and claims the
    /// others.
    async fn ask_neighbours(&self, object: &Object, missing: &mut Vec<u64>, landed: &mut Fetched) -> Option<Claim> {
        let neighbours = self.neighbours.as_ref()?;
        let header = self.header(object);
        let mut claim = None;
        let asking = Instant::now();
        // Once more when they are claimed: another process may have been done with them just before.
        while !missing.is_empty() {
            let read = neighbours.read(&header, missing).await;
            self.tally.metrics.neighbours.inc_by(read.len() as u64);
            missing.retain(|block| read.iter().all(|(of, _)| of != block));
            let parts = read
                .into_iter()
                .map(|(block, bytes)| (self.extent(object, block), bytes));
            landed.parts.extend(parts);
            if claim.is_some() {
                break;
            }
            if !missing.is_empty() {
                claim = Some(neighbours.claim(&header, missing).await);
            }
        }
        landed.cost.queue += asking.elapsed();
        claim
    }

    async fn fetch_from_tier(&self, object: &Object, blocks: &[u64]) -> Result<Fetched, StorageError> {
        let runs = ranges::adjacent(blocks.iter().map(|block| self.extent(object, *block)));
        let (parts, cost) = if let [run] = &runs[..] {
            // The tier's own way of reading a large range.
            let read = self.inner.read(object, run.clone()).await?;
            (vec![read.bytes], read.cost)
        } else {
            let read = self.inner.read_many(object, &runs).await?;
            (read.parts, read.cost)
        };
        let whole = |(run, bytes): (&Range<u64>, &Bytes)| bytes.len() as u64 == run.end - run.start;
        if parts.len() != runs.len() || !runs.iter().zip(&parts).all(whole) {
            let detail = "the tier returned fewer bytes than it was asked for";
            return Err(ErrorKind::Corrupt.error(&object.path, detail));
        }
        let parts = runs.into_iter().zip(parts).collect();
        Ok(Fetched { parts, cost })
    }

    /// Hands blocks to the writer, unless too many are waiting.
    fn stage(&self, object: &Object, landed: &Fetched, lead: Lead<Fetched>, to_stage: ToStage) {
        let mut blocks = Vec::with_capacity(to_stage.blocks.len());
        let mut len = 0;
        for block in to_stage.blocks {
            let extent = self.extent(object, block);
            let within = |(run, _): &&(Range<u64>, Bytes)| run.start <= extent.start && extent.end <= run.end;
            if let Some((run, bytes)) = landed.parts.iter().find(within) {
                let at = (extent.start - run.start) as usize;
                let block_len = (extent.end - extent.start) as usize;
                blocks.push((block, bytes.slice(at..at + block_len)));
                len += block_len as u64;
            }
        }
        let pending = &self.tally.pending;
        let admitted = pending.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
            (now == 0 || now + len <= PENDING_BYTES).then_some(now + len)
        });
        if admitted.is_err() {
            self.tally.metrics.skipped.inc_by(blocks.len() as u64);
            return;
        }
        let header = self.header(object);
        // An error would mean that the thread has ended: then nothing is staged any more.
        let _ = self.jobs.send(WriterTask::Store {
            header,
            blocks,
            lead,
            claim: to_stage.claim,
        });
    }
}

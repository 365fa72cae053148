//! Readers that go on while something happens to the server, and check every byte.

use crate::wait;
use futures::future::join_all;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tierlab_storage::content::content;
use tierlab_storage::{Object, Tier};

pub(crate) struct Readers {
    pub(crate) tier: Arc<dyn Tier>,
    pub(crate) object: Object,
    /// Seed of the object's content.
    pub(crate) seed: u64,
    /// Bytes per long read; every other reader makes short reads.
    pub(crate) long: u64,
    stop: AtomicBool,
    done: AtomicU64,
    retries: AtomicU64,
}

impl Readers {
    pub(crate) fn new(tier: Arc<dyn Tier>, object: Object, seed: u64, long: u64) -> Self {
        Self {
            tier,
            object,
            seed,
            long,
            stop: AtomicBool::new(false),
            done: AtomicU64::new(0),
            retries: AtomicU64::new(0),
        }
    }

    /// Runs readers while `meanwhile` runs. Panics if a read fails, or returns a wrong byte.
    pub(crate) async fn during<T>(&self, readers: u64, meanwhile: impl Future<Output = T>) -> T {
        let until = async {
            let done = meanwhile.await;
            self.stop.store(true, Ordering::Relaxed);
            done
        };
        futures::join!(until, join_all((0..readers).map(|number| self.read(number)))).0
    }

    async fn read(&self, number: u64) {
        let len = if number.is_multiple_of(2) { 4096 } else { self.long };
        let mut at = number * 7919;
        while !self.stop.load(Ordering::Relaxed) {
            at = (at + 123_457) % (self.object.size - self.long);
            let read = self.tier.read(&self.object, at..at + len).await.unwrap();
            assert!(read.bytes == content(self.seed, at..at + len), "wrong bytes at {at}");
            self.done.fetch_add(1, Ordering::Relaxed);
            self.retries.fetch_add(u64::from(read.cost.retries), Ordering::Relaxed);
        }
    }

    /// Waits until the readers have made progress.
    pub(crate) async fn are_busy(&self) {
        let before = self.done.load(Ordering::Relaxed);
        wait(|| self.done.load(Ordering::Relaxed) > before + 30).await;
    }

    /// Waits until they have met the fault that was made and read on after it.
    pub(crate) async fn recover(&self, cause: impl AsyncFnOnce()) {
        let before = (self.done.load(Ordering::Relaxed), self.retries.load(Ordering::Relaxed));
        cause().await;
        wait(|| self.retries.load(Ordering::Relaxed) > before.1 && self.done.load(Ordering::Relaxed) > before.0 + 30)
            .await;
    }
}

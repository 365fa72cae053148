//! Cases, and the implementation of those that only read. In: a suite. Out: results that break the trait's guarantees.

use super::Suite;
use super::reach::Reach;
use super::running::{Bench, expect_kind, expect_parts};
use anyhow::{Result, ensure};
use futures::future::join_all;
use std::ops::Range;
use std::time::Duration;
use tierlab_protocol::via::Via;
use tierlab_storage::content::mix;
use tierlab_storage::{ErrorKind, Object, Read, ReadCost};

/// A guarantee of the [`Tier`](tierlab_storage::Tier) trait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Case {
    /// Stored objects are found with their size; others are not found.
    Stat,
    /// Ranges at the start, at the end, unaligned, across blocks, and the whole.
    Ranges,
    /// Empty ranges and an empty object.
    Empty,
    /// Ranges past the end and reversed ranges.
    PastEnd,
    /// Many ranges in one call: unordered, overlapping, repeated, empty.
    ManyAtOnce,
    /// Many tasks at once, on two objects.
    Concurrent,
    /// Futures dropped before they finish; later reads are right.
    Cancelled,
    /// The object is replaced between look-up and read.
    Changed,
    /// The object is removed between look-up and read.
    Removed,
    /// Readers while a writer replaces the object over and over.
    Racing,
    /// Different bytes of equal length are different versions.
    Versions,
    /// Paths that leave the root are refused, odd names are only names.
    Names,
    /// The longest names are accepted or refused, longer names are refused.
    LongNames,
    /// Symbolic links behind the tier that lead out of its root. Needs a [`Reach`](super::Reach).
    Links,
    /// Objects that the tier may not read. Needs a [`Reach`](super::Reach).
    Denied,
    /// Copies that fail their checksum. Needs a [`Reach`](super::Reach).
    Damaged,
    /// A put replaces the whole object and leaves nothing else behind.
    PutReplaces,
    /// Order and prefixes of listings.
    List,
    /// A big file, streamed to the tier and read back.
    Big,
    /// Each read reports its path and cost.
    Cost,
}

impl Case {
    /// Every case, with its name in reports, which is also that of the folder that it writes.
    pub(crate) const ALL: [(Self, &'static str); 20] = [
        (Self::Stat, "stat"),
        (Self::Ranges, "ranges"),
        (Self::Empty, "empty"),
        (Self::PastEnd, "past-end"),
        (Self::ManyAtOnce, "many-at-once"),
        (Self::Concurrent, "concurrent"),
        (Self::Cancelled, "cancelled"),
        (Self::Changed, "changed"),
        (Self::Removed, "removed"),
        (Self::Racing, "racing"),
        (Self::Versions, "versions"),
        (Self::Names, "names"),
        (Self::LongNames, "long-names"),
        (Self::Links, "links"),
        (Self::Denied, "denied"),
        (Self::Damaged, "damaged"),
        (Self::PutReplaces, "put-replaces"),
        (Self::List, "list"),
        (Self::Big, "big"),
        (Self::Cost, "cost"),
    ];

    /// Name in reports, and of the folder that the case writes.
    pub(crate) const fn name(self) -> &'static str {
        // The position of a case is its discriminant.
        Self::ALL[self as usize].1
    }
}

pub(super) async fn run(suite: &Suite, case: Case, reach: &Reach) -> Result<()> {
    let folder = suite.folder.join(case.name())?;
    let bench = Bench {
        suite,
        tier: &suite.tier,
        folder,
    };
    match case {
        Case::Stat => bench.stat().await,
        Case::Ranges => bench.ranges().await,
        Case::Empty => bench.empty().await,
        Case::PastEnd => bench.past_end().await,
        Case::ManyAtOnce => bench.many_at_once().await,
        Case::Concurrent => bench.concurrent().await,
        Case::Cancelled => bench.cancelled().await,
        Case::Changed => bench.changed().await,
        Case::Removed => bench.removed().await,
        Case::Racing => bench.racing().await,
        Case::Versions => bench.versions().await,
        Case::Names => bench.names().await,
        Case::LongNames => bench.long_names().await,
        Case::Links => with(reach.links(), |root| bench.links(root)).await,
        Case::Denied => with(reach.permissions(), |root| bench.denied(root)).await,
        Case::Damaged => with(reach.damage(), |damage| bench.damaged(damage)).await,
        Case::PutReplaces => bench.put_replaces().await,
        Case::List => bench.list().await,
        Case::Big => bench.big().await,
        Case::Cost => bench.cost().await,
    }
}

/// Runs a case that needs access to the storage behind the tier, if access is given.
async fn with<T, F: Future<Output = Result<()>>>(access: Option<T>, case: impl FnOnce(T) -> F) -> Result<()> {
    match access {
        Some(access) => case(access).await,
        None => Ok(()),
    }
}

/// Critical ranges of an object of `size` bytes: around its ends and around device, cache and page blocks.
fn interesting(size: u64) -> Vec<Range<u64>> {
    let mut ranges = vec![0..1, 0..size, size - 1..size, size / 2..size, 0..size / 3];
    for edge in [512, 4096, 8192, 65_536] {
        if edge + 1 < size {
            ranges.extend([
                edge - 1..edge + 1,
                edge..edge + 1,
                0..edge,
                edge..size,
                edge - 511..size - 1,
            ]);
        }
    }
    ranges
}

/// Pseudo-random ranges of an object of `size` bytes: `count` ranges of at most `longest` bytes.
fn scattered(seed: u64, count: u64, size: u64, longest: u64) -> Vec<Range<u64>> {
    let one = |i: u64| {
        let start = mix(seed ^ (i << 20)) % size;
        start..(start + mix(seed ^ (i << 20) ^ 1) % longest).min(size)
    };
    (0..count).map(one).collect()
}

impl Bench<'_> {
    async fn stat(&self) -> Result<()> {
        let object = self.put("here", 1, 10_000).await?;
        let seen = self.tier.stat(&object.path).await?;
        ensure!(seen == object, "stat says {seen:?}, put said {object:?}");
        let absent = self.path("absent")?;
        expect_kind("stat of nothing", self.tier.stat(&absent).await, &[ErrorKind::NotFound])?;
        expect_kind(
            "stat of a folder",
            self.tier.stat(&self.folder).await,
            &[ErrorKind::NotFound, ErrorKind::Invalid],
        )?;
        let fabricated = Object { path: absent, ..object };
        expect_kind(
            "read of nothing",
            self.read(&fabricated, 0..1).await,
            &[ErrorKind::NotFound],
        )
    }

    async fn ranges(&self) -> Result<()> {
        for size in [1, 511, 4096, 4097, 200_003] {
            let object = self.put(&format!("of-{size}"), size, size).await?;
            for range in interesting(size) {
                self.expect(&object, size, range).await?;
            }
            for range in scattered(size, 20, size, 20_000) {
                self.expect(&object, size, range).await?;
            }
        }
        Ok(())
    }

    async fn empty(&self) -> Result<()> {
        let object = self.put("full", 2, 5000).await?;
        for at in [0, 1, 4096, 4999, 5000] {
            self.expect(&object, 2, at..at).await?;
        }
        let empty = self.put("nothing", 2, 0).await?;
        ensure!(self.tier.stat(&empty.path).await? == empty, "size 0 is lost");
        self.expect(&empty, 2, 0..0).await?;
        let none = self.tier.read_many(&object, &[]).await?;
        ensure!(none.parts.is_empty(), "no ranges gave parts");
        Ok(())
    }

    async fn past_end(&self) -> Result<()> {
        let object = self.put("short", 3, 5000).await?;
        let past = [
            0..5001,
            4999..5001,
            5000..5001,
            6000..6001,
            6000..6000,
            0..u64::MAX,
            u64::MAX - 1..u64::MAX,
        ];
        #[expect(clippy::reversed_empty_ranges, reason = "a reversed range is what is tested")]
        let reversed = [10..9, 5000..0];
        for range in past.into_iter().chain(reversed) {
            let text = format!("read of {range:?} of 5000 bytes");
            expect_kind(&text, self.read(&object, range.clone()).await, &[ErrorKind::OutOfRange])?;
            let many = self.tier.read_many(&object, &[0..10, range]).await;
            expect_kind(&text, many, &[ErrorKind::OutOfRange])?;
        }
        self.expect(&object, 3, 0..5000).await
    }

    async fn many_at_once(&self) -> Result<()> {
        let size = 300_007;
        let object = self.put("table", 4, size).await?;
        let mut ranges = scattered(4, 400, size, 3000);
        ranges.extend(interesting(size));
        ranges.extend((0..100).map(|i| i * 512..(i + 1) * 512));
        ranges.extend([7..7, 0..size, 0..size, size..size, 100..612, 100..612]);
        let many = self.tier.read_many(&object, &ranges).await?;
        expect_parts(&many, 4, &ranges)
    }

    async fn concurrent(&self) -> Result<()> {
        let size = 250_001;
        let objects = [self.put("a", 5, size).await?, self.put("b", 6, size).await?];
        let tasks = (0..16u64).map(|task| {
            let tier = self.tier.clone();
            let object = objects[(task % 2) as usize].clone();
            let seed = 5 + task % 2;
            tokio::spawn(async move {
                for round in 0..20 {
                    let ranges = scattered(task % 4 * 100 + round, 12, size, 9000);
                    let many = tier.read_many(&object, &ranges).await?;
                    expect_parts(&many, seed, &ranges)?;
                }
                Ok::<_, anyhow::Error>(())
            })
        });
        join_all(tasks).await.into_iter().try_for_each(|done| done?)
    }

    async fn cancelled(&self) -> Result<()> {
        let size = 400_009;
        let object = self.put("dropped", 7, size).await?;
        for round in 0..100u64 {
            let ranges = scattered(round % 7, 8, size, 30_000);
            let dropped = (0..4).map(|_| self.tier.read_many(&object, &ranges));
            // Polled at least once, and dropped so early that most reads are still in flight.
            let limit = Duration::from_micros(mix(round) % 400);
            if let Ok(finished) = tokio::time::timeout(limit, join_all(dropped)).await {
                for many in finished {
                    expect_parts(&many?, 7, &ranges)?;
                }
            }
            if round % 5 == 0 {
                let many = self.tier.read_many(&object, &ranges).await?;
                expect_parts(&many, 7, &ranges)?;
            }
        }
        self.expect(&object, 7, 0..size).await
    }

    async fn cost(&self) -> Result<()> {
        let object = self.put("counted", 13, 100_000).await?;
        // Staged blocks need no request to the tier, whether or not a cache around the stage admits them.
        let is_staged = self.tier.info().wrappers.iter().any(|name| name.starts_with("staged"));
        let from_stage =
            |cost: &ReadCost| is_staged && cost.via.iter().any(|via| matches!(via, Via::Direct | Via::PageCache));
        let mut before = 0;
        for range in [0..50_000, 0..50_000, 99_000..100_000] {
            let Read { bytes, cost } = self.read(&object, range.clone()).await?;
            ensure!(!cost.via.is_empty(), "{range:?} came from nowhere: {cost:?}");
            let from_tier = cost.requests > 0 && cost.wire_bytes >= bytes.len() as u64;
            let accounted = cost.cache_hits > 0 || from_tier || from_stage(&cost);
            ensure!(accounted, "{range:?} cost nothing: {cost:?}");
            ensure!(cost.retries <= cost.requests, "more retries than requests: {cost:?}");
            before += bytes.len();
        }
        ensure!(before == 101_000, "{before} bytes");
        Ok(())
    }
}

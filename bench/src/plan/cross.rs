//! Factors to points. In: a plan's tables, and the kind of each tier. Out: every point once, or the reason why a point cannot be
//! measured. Pure.

use super::point::{CacheState, MAX_ZIPF_BLOCKS, Operation, Pattern, Point, Way, WriteSync, toml_name};
use super::{Access, RawCross};
use anyhow::{Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};

/// Kind of a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TierKind {
    /// Files of one local folder.
    Local {
        /// True if reads bypass the page cache.
        direct: bool,
    },
    /// Any other tier of this kind.
    Other(&'static str),
    /// Read-only tier of this kind.
    ReadOnly(&'static str),
}

/// Kind of each tier, by name.
type Kinds = BTreeMap<String, TierKind>;

/// Maximum number of points: more are a mistake in the plan.
const MAX_POINTS: usize = 5000;
/// Maximum objects of a point.
const MAX_FILES: u32 = 1_000_000;
/// Maximum calls of an open loop in one repeat, by one process, which holds their due times in memory.
const MAX_CALLS: f64 = 20e6;

/// Returns every combination. Combinations that differ only in factors without effect (an unused page cache, threads of a way without a
/// runtime) are merged.
///
/// # Errors
/// The factor and the value, and why they cannot be measured.
pub(super) fn points(cross: &[RawCross], kinds: &Kinds, access: &Access) -> Result<BTreeSet<Point>> {
    let mut points = BTreeSet::new();
    for table in cross {
        for point in combinations(table) {
            let point = resolve(point, kinds)?;
            check(&point, access)?;
            points.insert(point);
            if points.len() > MAX_POINTS {
                bail!("cross: more than {MAX_POINTS} points: remove some values");
            }
        }
    }
    ensure!(!points.is_empty(), "cross: no point: every factor needs a value");
    Ok(points)
}

/// Combines every value of each factor with every value of the others.
fn combinations(table: &RawCross) -> Vec<Point> {
    let mut all = vec![Point::reads("", 0)];
    vary(&mut all, &table.tier, |point, tier| point.tier.clone_from(tier));
    vary(&mut all, &table.pattern, |point, pattern| point.pattern = *pattern);
    vary(&mut all, &table.operation, |point, kind| point.operation = *kind);
    vary(&mut all, &table.way, |point, way| point.way = *way);
    vary(&mut all, &table.cache, |point, cache| point.cache = *cache);
    vary(&mut all, &table.sync, |point, sync| point.sync = *sync);
    vary(&mut all, &table.files, |point, files| point.files = *files);
    vary(&mut all, &table.threads, |point, threads| point.threads = *threads);
    vary(&mut all, &table.rate, |point, rate| point.rate = *rate);
    vary(&mut all, &table.block, |point, block| point.block_bytes = block.0);
    vary(&mut all, &table.depth, |point, depth| point.depth = *depth);
    all
}

/// Replaces each point by one per value.
fn vary<V>(all: &mut Vec<Point>, values: &[V], set: impl Fn(&mut Point, &V)) {
    for mut point in std::mem::take(all) {
        for value in values {
            set(&mut point, value);
            all.push(point.clone());
        }
    }
}

/// Resolves the way at the tier, and the state of the page cache there.
fn resolve(mut point: Point, kinds: &Kinds) -> Result<Point> {
    let tier = &point.tier;
    let Some(kind) = kinds.get(tier) else {
        let names = Vec::from_iter(kinds.keys().map(String::as_str)).join(", ");
        bail!("cross.tier: unknown tier `{tier}`: use one of {names}");
    };
    let (way, operation) = (toml_name(&point.way), toml_name(&point.operation));
    match (kind, point.way) {
        (TierKind::ReadOnly(kind), _) => {
            bail!(
                "cross.tier: `{tier}` is a `{kind}` tier, which is read only, and this plan writes its data: measure an object of \
                 it by flags, with --object"
            );
        }
        (TierKind::Local { direct: true }, Way::Tier) => point.way = Way::Direct,
        (TierKind::Local { direct: false }, Way::Tier) => point.way = Way::Buffered,
        (TierKind::Other(_), other) if other != Way::Tier => {
            bail!("cross.way: `{way}` reads local files, and `{tier}` is not an `nvme` tier with one root: use `tier`");
        }
        (_, peer) if peer.is_peer() && point.operation.takes_objects() => {
            bail!("cross.operation: `{way}` does not support `{operation}`, an operation of tiers: use the way `tier`");
        }
        _ => {}
    }
    if !matches!(point.cache, CacheState::Cold | CacheState::Warm) {
        bail!("cross.cache: must be `cold` or `warm`");
    }
    point.cache = match (kind, point.way.is_direct()) {
        (TierKind::Other(_) | TierKind::ReadOnly(_), _) => CacheState::AsIs,
        _ if point.operation.takes_objects() && !point.operation.reads() => CacheState::AsIs,
        (_, true) => CacheState::Bypassed,
        (_, false) => point.cache,
    };
    if point.operation.takes_objects() {
        point.pattern = match point.operation {
            Operation::Stat | Operation::List => Pattern::Random,
            _ => Pattern::Sequential,
        };
    }
    if point.operation.is_once() {
        point.files = 1;
    }
    if point.way.is_peer() {
        point.threads = 0;
    }
    if !point.writes_in_place() {
        point.sync = match kind {
            _ if !point.operation.writes() || *kind == TierKind::Other("memory") => WriteSync::None,
            TierKind::Other("nfs") => WriteSync::Commit,
            TierKind::Local { .. } | TierKind::Other("nvme" | "gds") => WriteSync::Each,
            TierKind::Other(_) | TierKind::ReadOnly(_) => WriteSync::Acknowledged,
        };
    }
    Ok(point)
}

fn check(point: &Point, access: &Access) -> Result<()> {
    let file_bytes = access.size / u64::from(point.files.max(1));
    let takes_objects = point.operation.takes_objects();
    let is_aligned = point.block_bytes.is_multiple_of(4096) && file_bytes.is_multiple_of(4096);
    let (block, files) = (point.block_bytes, point.files);
    let ends = takes_objects && point.ends_with_data();
    let repeat = access.warmup_of(point) + access.window;
    // Only writes are preconditioned.
    let longest = repeat.max(access.precondition * u32::from(point.operation.writes()));
    let calls = longest.as_secs_f64() * f64::from(point.rate) / f64::from(access.share.of);
    let fault = match (point.way, point.depth) {
        (_, 0) => "depth: must be at least 1",
        (_, 4097..) => "depth: at most 4096",
        _ if point.threads > 1024 => "threads: at most 1024",
        _ if files == 0 || files > MAX_FILES => "files: from 1 to 1000000",
        _ if block == 0 => "block: must be at least one byte",
        _ if point.rate > 0 && ends => "rate: must be 0 for operations that use up their objects",
        _ if calls > MAX_CALLS => {
            "rate: at most 20000000 calls in a repeat, its warm-up or its preconditioning; lower `rate` or their seconds"
        }
        _ if file_bytes == 0 && !takes_objects => "files: more than the bytes of `size`, so files would be empty",
        _ if point.writes_in_place() && point.sync > WriteSync::End => "sync: must be `none`, `each` or `end`",
        _ if block > file_bytes && !takes_objects => "block: larger than a file, which has `size` divided by `files`",
        _ if point.pattern == Pattern::Zipf && file_bytes / block * u64::from(files) > MAX_ZIPF_BLOCKS => {
            "pattern: at most 16777216 blocks for `zipf`; raise `block` or lower `size`"
        }
        (Way::Mmap, _) if point.operation != Operation::Read => "operation: `mmap` is read only; write with `pread`",
        (Way::PreadDirect, _) if !is_aligned => "block: `pread-direct` requires multiples of 4 KiB, also for files",
        _ => return Ok(()),
    };
    bail!("cross.{fault} ({point})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn access(size: u64) -> Access {
        Access::reads(size, Duration::from_secs(1), Duration::from_secs(1))
    }

    fn crossed(text: &str) -> Result<Vec<String>> {
        let table: RawCross = toml::from_str(text).unwrap();
        let kinds = [
            ("disk".to_owned(), TierKind::Local { direct: true }),
            ("bucket".to_owned(), TierKind::Other("s3")),
            ("filer".to_owned(), TierKind::Other("nfs")),
            ("tables".to_owned(), TierKind::ReadOnly("flight")),
        ];
        let points = points(&[table], &kinds.into(), &access(1 << 20))?;
        Ok(points.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn factors_are_crossed_and_what_is_the_same_is_one_point() {
        let all = crossed(
            "tier = [\"disk\"]\nway = [\"tier\", \"pread\"]\ncache = [\"cold\", \"warm\"]\nblock = [4096, \"64KiB\"]\nthreads = [1, 2]",
        );
        // Direct: two blocks, two threads. Pread: two blocks, two states of the cache.
        let all = all.unwrap();
        assert_eq!(all.len(), 8, "{all:?}");
        assert!(
            all.contains(&"disk by pread: random read, warm, 64 KiB, depth 1".to_owned()),
            "{all:?}"
        );
        assert!(
            all.contains(&"disk by direct: random read, 2 threads, 4 KiB, depth 1".to_owned()),
            "{all:?}"
        );
        let elsewhere =
            crossed("tier = [\"bucket\"]\nblock = [512]\ncache = [\"cold\", \"warm\"]\nrate = [0, 100]").unwrap();
        assert_eq!(elsewhere.len(), 2, "{elsewhere:?}");
    }

    #[test]
    fn durability_is_of_blocks_written_in_place() {
        let all = crossed(
            "tier = [\"disk\"]\nway = [\"tier\", \"pread\"]\noperation = [\"read\", \"write\"]\nblock = [4096]\nsync = [\"none\", \"each\", \"end\"]",
        );
        let all = all.unwrap();
        assert_eq!(all.len(), 6, "three writes by pread, and one of each other: {all:?}");
        assert!(
            all.contains(&"disk by direct: random write, each synced, 4 KiB, depth 1".to_owned()),
            "{all:?}"
        );
        for wanted in ["not synced", "each synced", "synced at the end"] {
            let text = format!("disk by pread: random write, cold, {wanted}, 4 KiB, depth 1");
            assert!(all.contains(&text), "{text}: {all:?}");
        }
    }

    #[test]
    fn the_writes_of_a_tier_have_its_durability() {
        let all = crossed(
            "tier = [\"bucket\", \"filer\"]\noperation = [\"write\", \"mixed\", \"checkpoint\", \"restore\", \"delete\"]\nblock = [4096]",
        );
        let labels = [("bucket", "each acknowledged"), ("filer", "each committed")];
        let wanted = labels.map(|(tier, label)| {
            ["random write", "random mixed", "checkpoint"]
                .map(|access| format!("{tier} by tier: {access}, {label}, 4 KiB, depth 1"))
        });
        let mut all = all.unwrap();
        assert!(wanted.iter().flatten().all(|text| all.contains(text)), "{all:?}");
        all.retain(|text| text.contains("each"));
        assert_eq!(all.len(), 6, "none of restores and removals: {all:?}");
    }

    #[test]
    fn operations_on_objects_have_no_pattern_and_a_checkpoint_has_an_object_for_each_caller() {
        let all = crossed(
            "tier = [\"bucket\"]\npattern = [\"random\", \"zipf\"]\noperation = [\"stat\", \"list\", \"delete\"]\nblock = [4096]\nfiles = [100]",
        );
        let wanted =
            ["stat", "list", "delete"].map(|word| format!("bucket by tier: {word}, 100 files, 4 KiB, depth 1"));
        assert_eq!(all.unwrap(), wanted);
        // Larger than `size`, which is that of data which is read in parts.
        let all = crossed(
            "tier = [\"disk\"]\nway = [\"buffered\"]\noperation = [\"checkpoint\", \"restore\"]\nblock = [\"2MiB\"]\ndepth = [4]",
        );
        let wanted = ["checkpoint, each synced", "restore, cold"]
            .map(|text| format!("disk by buffered: {text}, 2 MiB, depth 4"));
        assert_eq!(all.unwrap(), wanted);
    }

    #[test]
    fn more_blocks_than_zipf_has_are_refused_before_they_are_written() {
        let of = |size| {
            let point = Point {
                pattern: Pattern::Zipf,
                ..Point::reads("disk", 4096)
            };
            check(&point, &access(size))
        };
        of(64 << 30).unwrap();
        assert!(
            of(65 << 30)
                .unwrap_err()
                .to_string()
                .contains("cross.pattern: at most 16777216 blocks")
        );
    }

    #[test]
    fn an_open_loop_has_a_maximum_of_calls_for_each_process() {
        let is_allowed = |rate, operation, access: Access| {
            let point = Point {
                rate,
                operation,
                ..Point::reads("disk", 4096)
            };
            let error = check(&point, &access).err().map(|error| error.to_string());
            assert!(
                error
                    .iter()
                    .all(|text| text.starts_with("cross.rate: at most 20000000 calls")),
                "{error:?}"
            );
            error.is_none()
        };
        let one = access(1 << 20);
        // The window and the warm-up are two seconds.
        assert!(is_allowed(10_000_000, Operation::Read, one) && !is_allowed(10_000_001, Operation::Read, one));
        let mut two = one;
        two.share.of = 2;
        assert!(is_allowed(20_000_000, Operation::Read, two) && !is_allowed(20_000_001, Operation::Read, two));
        let mut preconditioned = one;
        preconditioned.precondition = Duration::from_secs(20);
        assert!(is_allowed(10_000_000, Operation::Read, preconditioned));
        assert!(!is_allowed(10_000_000, Operation::Write, preconditioned));
    }

    #[test]
    fn what_cannot_be_measured_is_named() {
        for (text, named) in [
            (
                "tier = [\"x\"]\nblock = [1]",
                "unknown tier `x`: use one of bucket, disk, filer",
            ),
            (
                "tier = [\"tables\"]\nblock = [1]",
                "`tables` is a `flight` tier, which is read only",
            ),
            (
                "tier = [\"disk\"]\nblock = [1]\nway = [\"pread\"]\noperation = [\"list\"]",
                "`pread` does not support `list`",
            ),
            (
                "tier = [\"disk\"]\nblock = [1]\noperation = [\"delete\"]\nrate = [10]",
                "cross.rate",
            ),
            (
                "tier = [\"bucket\"]\nblock = [1]\nway = [\"mmap\"]",
                "`mmap` reads local files",
            ),
            (
                "tier = [\"disk\"]\nblock = [1]\nway = [\"mmap\"]\noperation = [\"write\"]",
                "cross.operation",
            ),
            (
                "tier = [\"disk\"]\nblock = [1]\nway = [\"pread\"]\noperation = [\"write\"]\nsync = [\"commit\"]",
                "cross.sync",
            ),
            ("tier = [\"disk\"]\nblock = [0]", "cross.block"),
            ("tier = [\"disk\"]\nblock = [\"2MiB\"]", "larger than"),
            ("tier = [\"disk\"]\nblock = [\"64KiB\"]\nfiles = [32]", "larger than"),
            ("tier = [\"disk\"]\nblock = [512]\nway = [\"pread-direct\"]", "4 KiB"),
            ("tier = [\"disk\"]\nblock = [512]\ndepth = [0]", "cross.depth"),
            ("tier = [\"disk\"]\nblock = [512]\nthreads = [1025]", "cross.threads"),
            ("tier = [\"disk\"]\nblock = []", "no point"),
        ] {
            let error = crossed(text).unwrap_err().to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}

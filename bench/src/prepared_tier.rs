//! A tier of a run, opened on a runtime of its own, with its data. In: a tier's configuration. Out: repeats of points, or the open tier
//! for other measurements. Everything written is in one folder, and is removed at the end.

use crate::content::{Data, MAX_WRITES, remove, unique_run_name, with_retries};
use crate::drive::{RepeatResult, RepeatRun, run_tasks, run_threads};
use crate::machine::{Environment, MachineMonitor};
use crate::plan::{Access, CacheState, Common, Operation, Point, Way, WriteSync, bad_usage, toml_name};
use crate::report::{RunFacts, TierNotes};
use crate::stop::Stop;
use crate::ways::{LocalCaller, OBJECTS_PER_CALLER, TierCaller, drop_cache, sync, warm};
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tierlab_storage::{ErrorKind, ObjectPath, Tier, TierConfig, TierInfo};
use tokio::runtime::Runtime;

/// Tiers of a run by name.
pub(crate) type PreparedTiers = BTreeMap<String, PreparedTier>;

/// Opens the plan's tiers on `threads` threads each (0: one per core), measures on them, and removes everything written, also after
/// an error. An error of the removal is among the facts, so that what was measured is reported.
///
/// # Errors
/// A tier does not open, or `measure` fails.
pub(crate) fn with_tiers<T>(
    common: &Common,
    stop: &Stop,
    threads: u16,
    measure: impl FnOnce(&mut PreparedTiers) -> Result<T>,
) -> Result<(T, RunFacts)> {
    let mut tiers = PreparedTiers::new();
    for (name, config) in &common.tiers {
        let tier = PreparedTier::new(name, config, common.scratch.as_deref(), threads)?;
        tiers.insert(name.clone(), tier);
    }
    let environment = environment(&tiers);
    let measured = measure(&mut tiers);
    let mut run = RunFacts::new(common, stop, environment, notes(&tiers));
    // All are removed, also after an error.
    let failed = tiers.values().filter_map(|tier| tier.remove().err());
    run.failed = failed.map(|error| format!("{error:#}")).reduce(|first, _| first);
    Ok((measured?, run))
}

/// Returns the machine, with the file systems below local tiers.
pub(crate) fn environment(tiers: &PreparedTiers) -> Environment {
    Environment::current(tiers.values().filter_map(PreparedTier::root))
}

/// Returns the notes of each tier.
pub(crate) fn notes(tiers: &PreparedTiers) -> TierNotes {
    let of = |(name, tier): (&String, &PreparedTier)| (name.clone(), tier.notes());
    tiers.iter().map(of).collect()
}

/// Tier on a runtime.
pub(crate) struct OpenTier {
    pub(crate) tier: Arc<dyn Tier>,
    pub(crate) runtime: Runtime,
}

/// Key of an opened tier: threads, and direct reads if configurable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct TierKey {
    threads: u16,
    direct: Option<bool>,
}

/// Key of the data of points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct DataKey {
    files: u32,
    /// `Read` for data that is only read; `Write` for blocks written in place. The two have their own objects, because a tier refuses
    /// to read an object that changed after its look-up. Otherwise the operation that uses the objects.
    operation: Operation,
    /// Size of blocks written in place, since a read of another size would find unexpected bytes; size of an object for other operations;
    /// 0 for data that is only read.
    block: u64,
}

impl DataKey {
    fn of(point: &Point) -> Self {
        let operation = match point.operation {
            Operation::List => Operation::Stat,
            Operation::Restore => Operation::Checkpoint,
            other if other.takes_objects() => other,
            _ if point.writes_in_place() => Operation::Write,
            _ => Operation::Read,
        };
        Self {
            files: point.objects(),
            operation,
            block: match operation {
                Operation::Read => 0,
                _ => point.block_bytes,
            },
        }
    }

    /// Bytes of all files: `size` if they are read in parts.
    fn bytes(self, size: u64) -> u64 {
        match self.operation.takes_objects() {
            true => self.block.saturating_mul(self.files.into()),
            false => size,
        }
    }
}

/// One tier of a plan.
pub(crate) struct PreparedTier {
    config: TierConfig,
    /// Root of a local tier, removed on drop.
    root: Option<tempfile::TempDir>,
    /// Folder of its objects.
    pub(crate) folder: String,
    /// Key of the tier that always stays open.
    base: TierKey,
    opened: BTreeMap<TierKey, OpenTier>,
    data: BTreeMap<DataKey, Data>,
    /// Points whose writes have preconditioned the tier.
    pub(crate) preconditioned: BTreeSet<Point>,
    monitor: MachineMonitor,
}

impl PreparedTier {
    /// Creates the folder of a local tier, and opens the tier on `threads` threads; 0 is one per core. Writes nothing.
    pub(crate) fn new(name: &str, config: &TierConfig, scratch: Option<&Path>, threads: u16) -> Result<Self> {
        let mut config = config.clone();
        let mut root: Option<tempfile::TempDir> = None;
        let bare = match &mut config {
            TierConfig::Wrapped(wrapped) => &mut wrapped.tier,
            bare => bare,
        };
        let watched_folder = match bare {
            TierConfig::Nvme(nvme) if nvme.roots.is_empty() => {
                let folder = root.insert(folder_in(scratch, name)?).path().to_owned();
                nvme.root = Some(folder.clone());
                Some(folder)
            }
            TierConfig::Nfs(nfs) => nfs.path.clone(),
            _ => None,
        };
        let base = TierKey { threads, direct: None };
        let opened = OpenTier::new(&config, base, None).with_context(|| format!("tier `{name}`"))?;
        Ok(Self {
            config,
            root,
            folder: format!("storage-bench/{}", unique_run_name()),
            base,
            opened: BTreeMap::from([(base, opened)]),
            data: BTreeMap::new(),
            preconditioned: BTreeSet::new(),
            monitor: MachineMonitor(watched_folder),
        })
    }

    /// Distinct notes of the opened tiers, also about their calls so far. The way `buffered` needs no note that it is buffered.
    pub(crate) fn notes(&self) -> Vec<String> {
        let opened = self.opened.iter().filter(|(key, _)| key.direct != Some(false));
        let all = opened.flat_map(|(_, opened)| tier_notes(&opened.tier.info()));
        let mut seen = BTreeSet::new();
        all.filter(|note| seen.insert(note.clone())).collect()
    }

    /// Folder of a local tier.
    pub(crate) fn root(&self) -> Option<&Path> {
        self.root.as_ref().map(tempfile::TempDir::path)
    }

    /// Bytes that the points write to this tier's local folder, including copies for other tools; 0 for other tiers.
    pub(crate) fn local_bytes<'a>(&self, points: impl Iterator<Item = &'a Point> + Clone, size: u64) -> u64 {
        let points = points.filter(|_| self.root.is_some());
        let keys: BTreeSet<DataKey> = points.clone().map(DataKey::of).collect();
        // A checkpoint is stored in addition to the previous one until it is complete.
        let copies = keys.iter().map(|key| match key.operation {
            Operation::Write | Operation::Checkpoint => key.bytes(size).saturating_mul(2),
            _ => key.bytes(size),
        });
        // Temporary files of the objects that are written at the same time.
        let temporary = |key: &DataKey| key.bytes(size) / u64::from(key.files) * u64::from(key.files.min(MAX_WRITES));
        let copies = copies.chain(keys.iter().map(temporary).max());
        let is_object = |point: &&Point| matches!(point.operation, Operation::Write | Operation::Mixed);
        let objects = points.filter(|point| is_object(point) && !point.way.is_peer());
        let written = objects.map(|point| point.in_flight_bytes().saturating_mul(OBJECTS_PER_CALLER));
        copies.fold(written.max().unwrap_or(0), u64::saturating_add)
    }

    /// Bytes of the points' data if this tier holds it in memory; 0 for other tiers.
    pub(crate) fn memory_bytes<'a>(&self, points: impl Iterator<Item = &'a Point>, size: u64) -> u64 {
        let points = points.filter(|_| self.config.kind() == "memory");
        let keys: BTreeSet<DataKey> = points.map(DataKey::of).collect();
        keys.iter().map(|key| key.bytes(size)).fold(0, u64::saturating_add)
    }

    /// The tier opened first.
    pub(crate) fn opened(&self) -> &OpenTier {
        &self.opened[&self.base]
    }

    /// Returns the local file for other tools at a point with one file. Tools that write get a copy, because the point's own bytes are
    /// checked.
    pub(crate) fn peer_file(&self, point: &Point) -> Option<PathBuf> {
        match self.files(point).as_slice() {
            [file] if point.writes_in_place() => Some(file.with_extension("peer")),
            [file] => Some(file.clone()),
            _ => None,
        }
    }

    fn files(&self, point: &Point) -> Vec<PathBuf> {
        let (Some(root), Some(data)) = (self.root(), self.data.get(&DataKey::of(point))) else {
            return Vec::new();
        };
        let objects = data.objects.iter();
        objects.map(|object| root.join(object.path.as_str())).collect()
    }

    /// Writes the data that a point reads, if missing, and the data that it removes.
    pub(crate) fn prepare(&mut self, point: &Point, access: &Access, stop: &Stop) -> Result<()> {
        let key = DataKey::of(point);
        if self.data.contains_key(&key) && point.operation != Operation::Delete {
            return Ok(());
        }
        let (files, operation) = (key.files, toml_name(&key.operation));
        let folder = format!("{}/{files}-files-{operation}-{}", self.folder, key.block);
        let opened = self.opened();
        let amount = (files, key.bytes(access.size));
        let write = Data::write(&opened.tier, &folder, amount, access.seed, stop);
        let data = opened.runtime.block_on(write)?;
        self.data.insert(key, data);
        Ok(())
    }

    /// Brings the page cache to the state that a point requires, for a tool that reads or writes a file.
    pub(crate) fn prepare_peer_file(&self, point: &Point, file: PathBuf) -> Result<()> {
        if let [own] = self.files(point).as_slice()
            && !file.exists()
        {
            std::fs::copy(own, &file).with_context(|| format!("cannot write {}", file.display()))?;
        }
        apply_cache_state(point, &[file])
    }

    /// Measures one repeat, with the page cache as the point requires it. Its data must have been prepared. After preparation, `start`
    /// may change its start time.
    ///
    /// # Errors
    /// A call fails, bytes arrived by a way other than the configured one, or the errors of `start`.
    pub(crate) fn measure(
        &mut self,
        point: &Point,
        access: &Access,
        repeat: u32,
        stop: &Stop,
        start: impl FnOnce(RepeatRun) -> Result<RepeatRun>,
    ) -> Result<RepeatResult> {
        let files = self.files(point);
        apply_cache_state(point, &files)?;
        let data = self.data.get(&DataKey::of(point)).cloned();
        let data = data.context("the data was not prepared")?;
        let start_run = || start(RepeatRun::new(point, access, data.file_bytes, repeat, stop)?);
        if point.way.is_peer() {
            let files = Arc::new(files);
            let caller = |number| LocalCaller::new(point, files.clone(), data.clone(), number);
            let callers = (0..point.depth).map(caller).collect::<Result<Vec<_>>>()?;
            let outcome = run_threads(&start_run()?, callers, &self.monitor, || match point.sync {
                WriteSync::End => sync(&files),
                _ => Ok(()),
            })?;
            // Otherwise the kernel writes the pages during later repeats.
            if point.writes_in_place() && point.sync == WriteSync::None {
                sync(&files)?;
            }
            return Ok(outcome);
        }
        let key = TierKey {
            threads: point.threads,
            direct: match point.way {
                Way::Direct => Some(true),
                Way::Buffered => Some(false),
                _ => None,
            },
        };
        let monitor = self.monitor.clone();
        let opened = self.open(key)?;
        let caller = |number| TierCaller::new(opened.tier.clone(), data.clone(), point, number);
        // Created before the clock starts, because callers generate their content.
        let callers = (0..point.depth).map(caller).collect::<Result<Vec<_>>>()?;
        let outcome = run_tasks(&opened.runtime, &Arc::new(start_run()?), callers, &monitor)?;
        let mut all = self.opened.values();
        match all.find_map(|opened| opened.tier.shortfall(outcome.tally.via)) {
            Some(why) if outcome.tally.sums.calls > 0 => bail!("the requested way was not used: {why}"),
            _ => Ok(outcome),
        }
    }

    fn open(&mut self, key: TierKey) -> Result<&OpenTier> {
        let opened = match self.opened.remove(&key) {
            Some(opened) => opened,
            None => OpenTier::new(&self.config, key, Some(self.opened()))?,
        };
        Ok(self.opened.entry(key).or_insert(opened))
    }

    /// Removes everything written to the tier.
    pub(crate) fn remove(&self) -> Result<()> {
        let folder = ObjectPath::new(&self.folder)?;
        let OpenTier { tier, runtime } = self.opened();
        runtime.block_on(async {
            let mut written = match with_retries(async || tier.list(Some(&folder)).await).await {
                Ok(written) => written,
                // Nothing was written.
                Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
                // Without permission to list a bucket: the objects that points read are known.
                Err(_) if !self.data.is_empty() => {
                    let data = self.data.values();
                    data.flat_map(|data| data.objects.iter().cloned()).collect()
                }
                Err(error) => return Err(error).context("cannot list the written objects to remove them"),
            };
            // Measurements may have removed the objects, but not their folders.
            written.extend(self.data.values().map(|data| data.objects[0].clone()));
            remove(tier, written).await
        })
    }
}

/// Brings the page cache to the state that a point requires of its files.
fn apply_cache_state(point: &Point, files: &[PathBuf]) -> Result<()> {
    match point.cache {
        // Also if bypassed: the first direct reads would have to write or drop cached pages.
        CacheState::Cold | CacheState::Bypassed => drop_cache(files),
        CacheState::Warm => warm(files),
        CacheState::AsIs => Ok(()),
    }
}

impl OpenTier {
    /// Opens a tier. All runtimes share a tier that holds its objects in this process.
    fn new(config: &TierConfig, key: TierKey, first: Option<&Self>) -> Result<Self> {
        let mut config = config.clone();
        if let (TierConfig::Nvme(nvme), Some(direct)) = (&mut config, key.direct) {
            nvme.direct = direct;
        }
        let runtime = runtime(key.threads)?;
        let tier = match first {
            Some(first) if first.tier.info().kind == "memory" => Arc::clone(&first.tier),
            _ => runtime
                .block_on(tierlab_storage::open(&config))
                .context("cannot open the tier")?,
        };
        Ok(Self { tier, runtime })
    }
}

/// Creates a runtime with `threads` threads; 0 is one per core.
///
/// # Errors
/// The threads cannot be started.
pub(crate) fn runtime(threads: u16) -> Result<Runtime> {
    runtime_with(threads, || ())
}

/// Same as [`runtime`]; each thread begins with `prepare`.
pub(crate) fn runtime_with(threads: u16, prepare: fn()) -> Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.on_thread_start(prepare);
    if threads > 0 {
        builder.worker_threads(threads.into());
    }
    let enough = tierlab_program::can_start_workers(threads.into());
    let built = enough.and_then(|()| builder.enable_all().build());
    built.context("cannot start the runtime")
}

/// Notes of a tier, with a note if its origin is embedded on this machine.
fn tier_notes(info: &TierInfo) -> Vec<String> {
    let local_hosts = ["127.0.0.1", "localhost", "[::1]"];
    let is_address = !info.location.starts_with('/');
    let is_local = is_address && local_hosts.iter().any(|host| info.location.contains(host));
    let embedded = "embedded origin: it runs on this machine, without a network";
    std::iter::once(format!("{} {}", info.kind, info.location))
        .chain(info.wrappers.iter().map(|wrapper| format!("behind {wrapper}")))
        .chain(info.notes.clone())
        .chain(is_local.then(|| embedded.to_owned()))
        .collect()
}

/// Creates a folder of the run, removed when dropped.
///
/// # Errors
/// The folder cannot be created.
pub(crate) fn folder_in(scratch: Option<&Path>, name: &str) -> Result<tempfile::TempDir> {
    let parent = scratch.map_or_else(std::env::temp_dir, Path::to_owned);
    let advice = "choose an existing, writable folder";
    let refused = |error: std::io::Error| bad_usage(&parent.display().to_string(), &format!("{error}; {advice}"));
    let prefix = format!("tierlab-storage-bench-{name}-");
    let folder = parent.canonicalize().map_err(refused)?;
    let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(folder);
    folder.map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Pattern;
    use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
    use std::fs::File;
    use std::time::Duration;

    const SIZE: u64 = 8 << 20;

    /// Local tier below the test program: a temporary folder may lie in memory.
    fn disk() -> (tempfile::TempDir, PreparedTier) {
        let text = "kind = \"nvme\"\nroot = \"anywhere\"\n";
        let config = TierConfig::parse_with::<&str>("nvme.toml", text, &[]).unwrap();
        let scratch = tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
        let tier = PreparedTier::new("disk", &config, Some(scratch.path()), 1).unwrap();
        (scratch, tier)
    }

    #[test]
    fn data_needs_room_for_the_temporary_files_that_it_is_written_from() {
        let (_scratch, tier) = disk();
        let needed = |files| {
            let point = Point {
                files,
                ..Point::reads("disk", 4096)
            };
            tier.local_bytes([point].iter(), SIZE)
        };
        assert_eq!([1, 32].map(needed), [2 * SIZE, SIZE + SIZE / 2]);
    }

    #[test]
    fn pages_of_writes_that_are_not_synced_are_not_left_to_later_repeats() {
        let (_scratch, mut tier) = disk();
        let point = Point {
            way: Way::Pread,
            operation: Operation::Write,
            pattern: Pattern::Sequential,
            cache: CacheState::Warm,
            ..Point::reads("disk", 65_536)
        };
        let access = Access::reads(SIZE, Duration::from_millis(100), Duration::ZERO);
        let stop = Stop::default();
        tier.prepare(&point, &access, &stop).unwrap();
        tier.measure(&point, &access, 0, &stop, Ok).unwrap();
        let path = tier.files(&point).remove(0);
        let fetched = |drop_pages: &dyn Fn()| {
            drop_pages();
            let before = MachineMonitor::default().sample();
            assert_eq!(std::fs::read(&path).unwrap().len() as u64, SIZE);
            let used = MachineMonitor::default().sample().since(&before);
            used.fetched_bytes.unwrap_or(0)
        };
        // Drops clean pages alone.
        let file = File::open(&path).unwrap();
        let clean = fetched(&|| posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap());
        let all = fetched(&|| drop_cache(std::slice::from_ref(&path)).unwrap());
        // Both are 0 in a folder in memory.
        assert!(2 * clean >= all.min(SIZE), "{clean} of {all}");
    }
}

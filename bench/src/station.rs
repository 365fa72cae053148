//! A tier of a run, opened on a runtime of its own, with its data. In: a tier's configuration. Out: repeats of points, or the open tier
//! for others to measure. Everything that is written lies in one folder, and is removed at the end.

use crate::content::{Data, name_of_run, patiently, remove};
use crate::drive::{Course, Driven, tasks, threads};
use crate::machine::Watched;
use crate::plan::{Access, CacheState, Operation, Point, Way};
use crate::stop::Stop;
use crate::ways::{LocalCaller, ThroughTier, drop_cache, warm};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tierlab_storage::{ErrorKind, ObjectPath, Tier, TierConfig, TierInfo};
use tokio::runtime::Runtime;

/// Tiers of a run by name.
pub(crate) type Stations = BTreeMap<String, Station>;

/// Tier on a runtime.
pub(crate) struct Opened {
    pub(crate) tier: Arc<dyn Tier>,
    pub(crate) runtime: Runtime,
}

/// Key of an opened tier: threads, and direct reads if it has a choice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Manner {
    threads: u16,
    direct: Option<bool>,
}

/// Key of the data of points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Set {
    files: u32,
    /// True if the data was written in place, which a tier takes for another version of the object, and refuses to
    /// read.
    in_place: bool,
}

impl Set {
    fn of(point: &Point) -> Self {
        Self {
            files: point.files,
            in_place: point.way.is_peer() && point.operation != Operation::Read,
        }
    }
}

/// One tier of a plan.
pub(crate) struct Station {
    config: TierConfig,
    /// Root of a local tier, removed on drop.
    root: Option<tempfile::TempDir>,
    /// Folder of its objects.
    pub(crate) folder: String,
    /// Manner in which it is always open.
    base: Manner,
    opened: BTreeMap<Manner, Opened>,
    data: BTreeMap<Set, Data>,
    watched: Watched,
    /// Notes of the tier about itself.
    pub(crate) notes: Vec<String>,
}

impl Station {
    /// Creates the folder of a local tier, and opens the tier on `threads` threads; 0 is one per core. Writes nothing.
    pub(crate) fn new(name: &str, config: &TierConfig, scratch: Option<&Path>, threads: u16) -> Result<Self> {
        let mut config = config.clone();
        let root = local_root(name, &mut config, scratch)?;
        let watched = match (&root, &config) {
            (Some(root), _) => Watched::folder(root.path()),
            (None, TierConfig::Nfs(nfs)) => nfs.path.as_deref().map_or_else(Watched::default, Watched::folder),
            _ => Watched::default(),
        };
        let base = Manner { threads, direct: None };
        let opened = Opened::new(&config, base, None).with_context(|| format!("tier `{name}`"))?;
        Ok(Self {
            notes: notes_of(&opened.tier.info()),
            config,
            root,
            folder: format!("storage-bench/{}", name_of_run()),
            base,
            opened: BTreeMap::from([(base, opened)]),
            data: BTreeMap::new(),
            watched,
        })
    }

    /// Folder of a local tier.
    pub(crate) fn root(&self) -> Option<&Path> {
        self.root.as_ref().map(tempfile::TempDir::path)
    }

    /// The tier as it was opened first.
    pub(crate) fn opened(&self) -> &Opened {
        &self.opened[&self.base]
    }

    /// Returns the local file of a point with one file.
    pub(crate) fn file(&self, point: &Point) -> Option<PathBuf> {
        let files = self.files(point);
        files.first().filter(|_| files.len() == 1).cloned()
    }

    fn files(&self, point: &Point) -> Vec<PathBuf> {
        let (Some(root), Some(data)) = (self.root(), self.data.get(&Set::of(point))) else {
            return Vec::new();
        };
        data.objects
            .iter()
            .map(|object| root.join(object.path.as_str()))
            .collect()
    }

    /// Writes the data that a point reads, if it is missing.
    pub(crate) fn prepare(&mut self, point: &Point, access: &Access) -> Result<()> {
        if self.data.contains_key(&Set::of(point)) {
            return Ok(());
        }
        let folder = format!(
            "{}/{}-files{}",
            self.folder,
            point.files,
            if Set::of(point).in_place { "-written" } else { "" }
        );
        let opened = self.opened();
        let write = Data::write(&opened.tier, &folder, point.files, access.size, access.seed);
        let data = opened.runtime.block_on(write)?;
        self.data.insert(Set::of(point), data);
        Ok(())
    }

    /// Brings the page cache to the state that a point requires.
    pub(crate) fn settle(&self, point: &Point) -> Result<()> {
        let files = self.files(point);
        match point.cache {
            // Bypassed too: the first direct reads would have to write or drop cached pages.
            CacheState::Cold | CacheState::Bypassed => drop_cache(&files),
            CacheState::Warm => warm(&files),
            CacheState::AsIs => Ok(()),
        }
    }

    /// Measures one repeat, with the page cache as the point requires it. Its data must have been prepared.
    ///
    /// # Errors
    /// A call fails, or bytes arrived by another way than the tier was configured for.
    pub(crate) fn measure(&mut self, point: &Point, access: &Access, repeat: u32, stop: &Stop) -> Result<Driven> {
        self.settle(point)?;
        let driven = self.drive(point, access, repeat, stop)?;
        self.check_way(&driven)?;
        Ok(driven)
    }

    fn drive(&mut self, point: &Point, access: &Access, repeat: u32, stop: &Stop) -> Result<Driven> {
        let data = self.data.get(&Set::of(point)).context("the data is not there")?.clone();
        let course = |data: &Data| Course::new(point, access, data.file_bytes, repeat, stop);
        if point.way.is_peer() {
            let files = Arc::new(self.files(point));
            let block = usize::try_from(point.block_bytes)?;
            let caller = |_| LocalCaller::new(point.way, files.clone(), data.clone(), block);
            let callers = (0..point.depth).map(caller).collect::<Result<Vec<_>>>()?;
            return threads(&course(&data)?, callers, &self.watched);
        }
        let direct = match point.way {
            Way::Direct => Some(true),
            Way::Buffered => Some(false),
            _ => None,
        };
        let manner = Manner {
            threads: point.threads,
            direct,
        };
        let (folder, watched) = (self.folder.clone(), self.watched.clone());
        let opened = self.open(manner)?;
        let write_bytes = match point.operation {
            Operation::Read => 0,
            Operation::Write | Operation::Mixed => point.block_bytes,
        };
        let caller = |number| ThroughTier::new(opened.tier.clone(), data.clone(), &folder, number, write_bytes);
        let course = Arc::new(course(&data)?);
        tasks(&opened.runtime, &course, (0..point.depth).map(caller), &watched)
    }

    /// Checks that the bytes arrived as the tier was configured.
    fn check_way(&self, driven: &Driven) -> Result<()> {
        let mut opened = self.opened.values();
        match opened.find_map(|opened| opened.tier.shortfall(driven.tally.via)) {
            Some(why) if driven.tally.sums.calls > 0 => bail!("the way that was asked for was not taken: {why}"),
            _ => Ok(()),
        }
    }

    fn open(&mut self, manner: Manner) -> Result<&Opened> {
        let opened = match self.opened.remove(&manner) {
            Some(opened) => opened,
            None => Opened::new(&self.config, manner, Some(self.opened()))?,
        };
        Ok(self.opened.entry(manner).or_insert(opened))
    }

    /// Removes everything written to the tier.
    pub(crate) fn remove(&self) -> Result<()> {
        let folder = ObjectPath::new(&self.folder)?;
        let Opened { tier, runtime } = self.opened();
        runtime.block_on(async {
            let written = match patiently(async || tier.list(Some(&folder)).await).await {
                Ok(written) => written,
                // Nothing was written.
                Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
                // A bucket that may not be listed: the objects that points read are known.
                Err(_) if !self.data.is_empty() => {
                    let data = self.data.values();
                    data.flat_map(|data| data.objects.iter().cloned()).collect()
                }
                Err(error) => return Err(error).context("cannot list what was written, to remove it"),
            };
            remove(tier, written).await
        })
    }
}

impl Opened {
    /// Opens a tier. A tier with its objects in this process is shared by all runtimes.
    fn new(config: &TierConfig, manner: Manner, before: Option<&Self>) -> Result<Self> {
        let mut config = config.clone();
        if let (TierConfig::Nvme(nvme), Some(direct)) = (&mut config, manner.direct) {
            nvme.direct = direct;
        }
        let runtime = runtime(manner.threads)?;
        let tier = match before {
            Some(before) if before.tier.info().kind == "memory" => Arc::clone(&before.tier),
            _ => runtime
                .block_on(tierlab_storage::open(&config))
                .context("cannot open the tier")?,
        };
        Ok(Self { tier, runtime })
    }
}

/// A runtime on `threads` threads; 0 is one per core.
///
/// # Errors
/// The threads cannot be started.
pub(crate) fn runtime(threads: u16) -> Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if threads > 0 {
        builder.worker_threads(threads.into());
    }
    let enough = tierlab_program::can_start_workers(threads.into());
    let built = enough.and_then(|()| builder.enable_all().build());
    built.context("cannot start the runtime")
}

/// Makes a folder of the run the root of a tier of local files. `None` for other tiers.
fn local_root(name: &str, config: &mut TierConfig, scratch: Option<&Path>) -> Result<Option<tempfile::TempDir>> {
    let TierConfig::Nvme(nvme) = config else {
        return Ok(None);
    };
    if !nvme.roots.is_empty() {
        return Ok(None);
    }
    let root = folder_in(scratch, name)?;
    nvme.root = Some(root.path().to_owned());
    Ok(Some(root))
}

/// Notes of a tier about itself, and whether its origin only stands in on this machine.
fn notes_of(info: &TierInfo) -> Vec<String> {
    let here = ["127.0.0.1", "localhost", "[::1]"];
    let is_address = !info.location.starts_with('/');
    let is_here = is_address && here.iter().any(|here| info.location.contains(here));
    let embedded = "embedded origin: it runs on this machine, and no network lies between";
    std::iter::once(format!("{} {}", info.kind, info.location))
        .chain(info.wrappers.iter().map(|wrapper| format!("behind {wrapper}")))
        .chain(info.notes.clone())
        .chain(is_here.then(|| embedded.to_owned()))
        .collect()
}

/// A folder of the run, removed when dropped.
///
/// # Errors
/// The folder cannot be made.
pub(crate) fn folder_in(scratch: Option<&Path>, name: &str) -> Result<tempfile::TempDir> {
    let parent = scratch.map_or_else(std::env::temp_dir, Path::to_owned);
    let why = || {
        format!(
            "cannot make a folder in {}: it must exist and be writable; choose another with --scratch",
            parent.display()
        )
    };
    let parent = parent.canonicalize().with_context(why)?;
    let builder = tempfile::Builder::new()
        .prefix(&format!("tierlab-storage-bench-{name}-"))
        .tempdir_in(&parent);
    builder.with_context(why)
}

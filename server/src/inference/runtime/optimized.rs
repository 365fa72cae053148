//! Optimised graphs on disk: what ONNX Runtime made of a graph once need not be made again at the next cold start.
//!
//! In: graphs, and files that ONNX Runtime wrote. Out: optimised graphs that are whole. An entry's name is the sum of
//! everything that goes into it, and the sum of its own bytes: `KEY-SUM.onnx`. It appears whole, by a rename; one that was
//! damaged since is removed and made again. The oldest entries go when there are too many bytes.

use super::{Graph, Threads, Weights};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

/// Graphs with more bytes than this, weights included, are not kept: the file would not fit one protobuf message. Nor are
/// those whose weights are mapped: the kept graph would hold a copy for each session.
const MAX_GRAPH_BYTES: usize = 1_500_000_000;
/// The beginning of the names of files that are being written.
const PARTIAL: &str = "partial-";

/// The folder of optimised graphs: `[runtime] optimized_cache`, with `optimized_cache_max_bytes` in it at most.
#[derive(Debug)]
pub(crate) struct OptimizedCache {
    folder: PathBuf,
    max_bytes: u64,
    partials: AtomicU64,
}

impl OptimizedCache {
    /// Opens the folder, making it if need be, and removes what a crash left behind in it.
    ///
    /// # Errors
    /// A folder that cannot be made or read.
    pub(crate) fn open(folder: &Path, max_bytes: u64) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let own = format!("{PARTIAL}{}-", std::process::id());
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            // Another server may be writing here: only what nobody can be writing any more is removed.
            let pid = name.strip_prefix(PARTIAL).and_then(|rest| rest.split('-').next());
            let dead = pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists());
            if dead || name.starts_with(&own) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(Self {
            folder: folder.to_owned(),
            max_bytes,
            partials: AtomicU64::new(0),
        })
    }

    /// The key of a graph: its bytes, the library's version, the provider, the settings and the CPU's features, which the
    /// optimiser chooses layouts by. None for a graph that is not to be kept.
    pub(crate) fn key(graph: &Graph, version: &str, provider: &str, threads: Threads) -> Option<String> {
        let Weights::InMemory(files) = &graph.weights else {
            return None;
        };
        let external: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
        if graph.onnx.len().saturating_add(external) > MAX_GRAPH_BYTES {
            return None;
        }
        let mut sum = Sha256::new();
        let mut part = |bytes: &[u8]| {
            sum.update((bytes.len() as u64).to_le_bytes());
            sum.update(bytes);
        };
        part(&graph.onnx);
        for (name, bytes) in files {
            part(name.as_bytes());
            part(bytes);
        }
        let Threads { intra_op, inter_op, .. } = threads;
        let (arch, features) = (std::env::consts::ARCH, cpu_features());
        let settings = format!("{version} {provider} all {intra_op} {inter_op} {arch} {features}");
        part(settings.as_bytes());
        Some(hex::encode(sum.finalize()))
    }

    /// The optimised graph of a key, whole.
    pub(crate) fn find(&self, key: &str) -> Option<Bytes> {
        let (path, sum) = self.entry(key)?;
        let bytes = fs::read(&path).ok()?;
        if hex::encode(Sha256::digest(&bytes)) != sum {
            tracing::warn!(file = %path.display(), "the kept optimised graph is damaged; it is made again");
            let _ = fs::remove_file(&path);
            return None;
        }
        // Used now: the oldest by this time go first.
        let touched = File::options().append(true).open(&path);
        let _ = touched.and_then(|file| file.set_modified(SystemTime::now()));
        Some(bytes.into())
    }

    /// Removes the entry of a key.
    pub(crate) fn forget(&self, key: &str) {
        if let Some((path, _)) = self.entry(key) {
            let _ = fs::remove_file(path);
        }
    }

    fn entry(&self, key: &str) -> Option<(PathBuf, String)> {
        let entries = fs::read_dir(&self.folder).ok()?;
        entries.filter_map(Result::ok).find_map(|entry| {
            let name = entry.file_name();
            let sum = name
                .to_str()?
                .strip_prefix(key)?
                .strip_prefix('-')?
                .strip_suffix(".onnx")?;
            Some((entry.path(), sum.to_owned()))
        })
    }

    /// A file for ONNX Runtime to write to.
    pub(crate) fn partial(&self) -> PathBuf {
        let number = self.partials.fetch_add(1, Relaxed);
        self.folder
            .join(format!("{PARTIAL}{}-{number}.onnx", std::process::id()))
    }

    /// Makes a written file the entry of a key, if `complete` says that its bytes are all there is to it.
    ///
    /// # Errors
    /// The file system's.
    pub(crate) fn keep(&self, key: &str, partial: &Path, complete: impl Fn(Bytes) -> bool) -> io::Result<bool> {
        let kept = (|| {
            let bytes = Bytes::from(fs::read(partial)?);
            if !complete(bytes.clone()) || bytes.len() as u64 > self.max_bytes {
                return Ok(false);
            }
            File::open(partial)?.sync_all()?;
            let sum = hex::encode(Sha256::digest(&bytes));
            self.forget(key);
            fs::rename(partial, self.folder.join(format!("{key}-{sum}.onnx")))?;
            File::open(&self.folder)?.sync_all()?;
            Ok(true)
        })();
        if !matches!(kept, Ok(true)) {
            let _ = fs::remove_file(partial);
        }
        self.make_room()?;
        kept
    }

    fn make_room(&self) -> io::Result<()> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(PARTIAL) {
                continue;
            }
            let about = entry.metadata()?;
            entries.push((about.modified()?, about.len(), entry.path()));
        }
        entries.sort();
        let mut bytes: u64 = entries.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, length, path) in entries {
            if bytes <= self.max_bytes {
                break;
            }
            fs::remove_file(path)?;
            bytes -= length;
        }
        Ok(())
    }
}

/// CPU features that affect the layout of weights.
fn cpu_features() -> String {
    #[cfg(target_arch = "x86_64")]
    {
        let (avx2, avx512f) = (is_x86_feature_detected!("avx2"), is_x86_feature_detected!("avx512f"));
        let vnni = is_x86_feature_detected!("avx512vnni");
        format!("avx2={avx2} avx512f={avx512f} vnni={vnni}")
    }
    #[cfg(not(target_arch = "x86_64"))]
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(onnx: &'static [u8], weights: &'static [u8]) -> Graph {
        Graph {
            name: "m/1".into(),
            onnx: Bytes::from_static(onnx),
            weights: Weights::InMemory(vec![("w".into(), weights.into())]),
        }
    }

    fn written(cache: &OptimizedCache, bytes: &[u8]) -> PathBuf {
        let partial = cache.partial();
        fs::write(&partial, bytes).unwrap();
        partial
    }

    #[test]
    fn keys_tell_apart_everything_that_goes_in() {
        let threads = Threads {
            intra_op: 1,
            inter_op: 1,
            spinning: false,
        };
        let key = |graph: &Graph, version: &str, provider: &str, threads| {
            OptimizedCache::key(graph, version, provider, threads).unwrap()
        };
        let keys = std::collections::BTreeSet::from([
            key(&graph(b"a", b"b"), "1.31.1", "cpu", threads),
            key(&graph(b"ab", b""), "1.31.1", "cpu", threads),
            key(&graph(b"a", b"c"), "1.31.1", "cpu", threads),
            key(&graph(b"a", b"b"), "1.31.2", "cpu", threads),
            key(&graph(b"a", b"b"), "1.31.1", "cuda", threads),
            key(&graph(b"a", b"b"), "1.31.1", "cpu", Threads { intra_op: 2, ..threads }),
        ]);
        assert_eq!(keys.len(), 6);
    }

    #[test]
    fn entries_are_whole_or_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let cache = OptimizedCache::open(folder.path(), 1000).unwrap();
        assert_eq!(cache.find("k"), None);
        assert!(cache.keep("k", &written(&cache, b"graph"), |_| true).unwrap());
        assert_eq!(cache.find("k").unwrap(), "graph");
        assert!(cache.keep("k", &written(&cache, b"other"), |_| true).unwrap());
        assert_eq!(cache.find("k").unwrap(), "other");
        let (path, _) = cache.entry("k").unwrap();
        fs::write(&path, b"othe").unwrap();
        assert_eq!(cache.find("k"), None);
        assert!(!path.exists());
        // One that refers to other files is not kept, and leaves nothing behind.
        assert!(!cache.keep("k", &written(&cache, b"refers"), |_| false).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_crash_left_is_removed_and_the_oldest_make_room() {
        let folder = tempfile::tempdir().unwrap();
        let dead = folder.path().join("partial-999999999-0.onnx");
        let alive = folder
            .path()
            .join(format!("{PARTIAL}{}-0.onnx", std::os::unix::process::parent_id()));
        fs::write(&dead, b"x").unwrap();
        fs::write(&alive, b"x").unwrap();
        let cache = OptimizedCache::open(folder.path(), 25).unwrap();
        assert!(!dead.exists() && alive.exists());
        for key in ["a", "b", "c"] {
            cache.keep(key, &written(&cache, &[0; 10]), |_| true).unwrap();
            // File times are no finer than the clock's tick.
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert!(cache.find("a").is_none() && cache.find("b").is_some() && cache.find("c").is_some());
        assert!(!cache.keep("d", &written(&cache, &[0; 26]), |_| true).unwrap());
    }
}

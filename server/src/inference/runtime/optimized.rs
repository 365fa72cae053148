//! Optimised graphs on disk, so that a cold start need not optimise a graph again.
//!
//! In: graphs, and files written by ONNX Runtime. Out: complete optimised graphs. An entry is named `KEY-SUM.onnx`, by
//! the hash of everything that determines it and the hash of its own bytes. It is renamed into place; a damaged one is
//! removed and written again. The oldest entries are removed if there are too many bytes.

use super::{Graph, Threads, Weights};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

/// Maximum bytes of a stored graph, including weights: a larger file would not fit one protobuf message. Graphs with
/// mapped weights are not stored either: each session would hold a copy of the weights.
const MAX_GRAPH_BYTES: usize = 1_500_000_000;
/// Name prefix of files under construction.
const PARTIAL: &str = "partial-";
/// Name suffix of all files.
const SUFFIX: &str = ".onnx";

/// Key and checksum of a name `KEY-SUM.onnx`; `None` for a file of another program.
fn key_and_sum(name: &str) -> Option<(&str, &str)> {
    let (key, sum) = name.strip_suffix(SUFFIX)?.rsplit_once('-')?;
    let is_sum = sum.len() == 64 && sum.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_sum.then_some((key, sum))
}

/// Folder of optimised graphs: `[runtime] optimized_cache`, with at most `optimized_cache_max_bytes`.
#[derive(Debug)]
pub(crate) struct OptimizedCache {
    folder: PathBuf,
    max_bytes: u64,
    partials: AtomicU64,
}

impl OptimizedCache {
    /// Opens the folder, creates it if missing, and removes files left over from a crash and above the limit.
    ///
    /// # Errors
    /// Fails if the folder cannot be created or read.
    pub(crate) fn open(folder: &Path, max_bytes: u64) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            // Another server may write here, so only files of ended processes are removed, unless it was first.
            let rest = name.strip_prefix(PARTIAL).filter(|_| name.ends_with(SUFFIX));
            let pid = rest.and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
            let is_left = |pid: u32| pid == std::process::id() || !Path::new("/proc").join(pid.to_string()).exists();
            if pid.is_some_and(is_left) {
                let _ = fs::remove_file(entry.path());
            }
        }
        let cache = Self {
            folder: folder.to_owned(),
            max_bytes,
            partials: AtomicU64::new(0),
        };
        // Another server may remove the same files.
        if let Err(error) = cache.evict() {
            tracing::warn!(%error, "cannot remove old optimised graphs");
        }
        Ok(cache)
    }

    /// Key of a graph: its bytes, the library's version, the provider, the settings and the CPU features, which
    /// determine the optimiser's layouts. `None` for a graph that is not stored.
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

    /// Optimised graph of a key, if stored and complete.
    pub(crate) fn find(&self, key: &str) -> Option<Bytes> {
        let (path, sum) = self.entry(key)?;
        let bytes = fs::read(&path).ok()?;
        if hex::encode(Sha256::digest(&bytes)) != sum {
            tracing::warn!(file = %path.display(), "stored optimised graph is damaged; optimising again");
            let _ = fs::remove_file(&path);
            return None;
        }
        // Marks it as used: entries are removed by oldest time.
        let opened = File::options().append(true).open(&path);
        let _ = opened.and_then(|file| file.set_modified(SystemTime::now()));
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
            let (_, sum) = key_and_sum(name.to_str()?).filter(|(stored, _)| *stored == key)?;
            Some((entry.path(), sum.to_owned()))
        })
    }

    /// Path for ONNX Runtime to write to.
    pub(crate) fn partial(&self) -> PathBuf {
        let number = self.partials.fetch_add(1, Relaxed);
        self.folder
            .join(format!("{PARTIAL}{}-{number}.onnx", std::process::id()))
    }

    /// Stores a written file as the entry of a key, if `complete` confirms that it needs no other files.
    ///
    /// # Errors
    /// Returns I/O errors.
    pub(crate) fn store(&self, key: &str, partial: &Path, complete: impl Fn(Bytes) -> bool) -> io::Result<bool> {
        let stored = (|| {
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
        if !matches!(stored, Ok(true)) {
            let _ = fs::remove_file(partial);
        }
        self.evict()?;
        stored
    }

    fn evict(&self) -> io::Result<()> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if key_and_sum(&entry.file_name().to_string_lossy()).is_none() {
                continue;
            }
            let metadata = entry.metadata()?;
            entries.push((metadata.modified()?, metadata.len(), entry.path()));
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
        assert!(cache.store("k", &written(&cache, b"graph"), |_| true).unwrap());
        assert_eq!(cache.find("k").unwrap(), "graph");
        assert!(cache.store("k", &written(&cache, b"other"), |_| true).unwrap());
        assert_eq!(cache.find("k").unwrap(), "other");
        let (path, _) = cache.entry("k").unwrap();
        fs::write(&path, b"othe").unwrap();
        assert_eq!(cache.find("k"), None);
        assert!(!path.exists());
        // One that refers to other files is not kept, and leaves nothing behind.
        assert!(!cache.store("k", &written(&cache, b"refers"), |_| false).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_crash_left_is_removed_and_the_oldest_make_room() {
        let folder = tempfile::tempdir().unwrap();
        let stale = folder.path().join("partial-999999999-0.onnx");
        let alive = folder
            .path()
            .join(format!("{PARTIAL}{}-0.onnx", std::os::unix::process::parent_id()));
        fs::write(&stale, b"x").unwrap();
        // Cannot be removed, like a file that another server has just removed.
        fs::create_dir(folder.path().join("partial-999999999-1.onnx")).unwrap();
        fs::write(&alive, b"x").unwrap();
        let foreign = ["weights.bin", "partial-results.onnx", "partial-1-notes.txt", "a-b.onnx"];
        let foreign = foreign.map(|name| folder.path().join(name));
        foreign.iter().for_each(|file| fs::write(file, [0_u8; 30]).unwrap());
        let cache = OptimizedCache::open(folder.path(), 25).unwrap();
        assert!(!stale.exists() && alive.exists());
        for key in ["a", "b", "c"] {
            cache.store(key, &written(&cache, &[0; 10]), |_| true).unwrap();
            // File times are no finer than the clock's tick.
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert!(cache.find("a").is_none() && cache.find("b").is_some() && cache.find("c").is_some());
        assert!(!cache.store("d", &written(&cache, &[0; 26]), |_| true).unwrap());
        let smaller = OptimizedCache::open(folder.path(), 15).unwrap();
        assert!(smaller.find("b").is_none() && smaller.find("c").is_some());
        assert!(foreign.iter().all(|file| file.exists()), "files of others stay");
    }
}

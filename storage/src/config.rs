//! A tier's TOML, one file per tier in `configs/tiers/`, and [`open`], which builds the tier.
//!
//! Parse, then build: nothing deeper reads files or the environment, but for S3 credentials, which come from the usual
//! AWS environment and profile through `object_store`.

use crate::error::{ErrorKind, StorageError};
use crate::tier::Tier;
use crate::tiers;
use crate::tiers::flight::FlightConfig;
use crate::tiers::gds::GdsConfig;
use crate::tiers::nvme::{Driver, Tuning};
use crate::wrappers::{CacheConfig, StorageMetrics, WrapperConfig};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::path::PathBuf;
use std::sync::Arc;

/// One tier, and what lies around it. Its TOML has the keys of its kind, and may have the tables `[emulated]`,
/// `[staged]` and `[cache]`.
#[derive(Debug, Clone, PartialEq)]
pub enum TierConfig {
    /// In this process; filled from a directory at the start when `root` is given.
    Memory {
        /// A directory whose files are loaded.
        root: Option<PathBuf>,
    },
    /// One or several local directories read through io_uring.
    Nvme(NvmeConfig),
    /// An NFSv3 export read in user space, or a kernel mount.
    Nfs(NfsConfig),
    /// An S3-compatible bucket.
    S3(S3Config),
    /// An Arrow Flight server.
    Flight(FlightConfig),
    /// Local files into device memory: by GPUDirect Storage, or one of the ways beside it.
    Gds(GdsConfig),
    /// One of the others with wrappers around it: what a TOML with `[emulated]`, `[staged]` or `[cache]` gives.
    Wrapped(Box<WrappedConfig>),
}

/// A tier and what lies around it.
#[derive(Debug, Clone, PartialEq)]
pub struct WrappedConfig {
    /// The tier itself.
    pub tier: TierConfig,
    /// What lies around it.
    pub wrappers: WrapperConfig,
}

/// How the keys of a kind are read and written; the compiler holds it to [`TierConfig`]. The tables of wrappers, which
/// every kind may have, are taken away before.
#[derive(Serialize, Deserialize)]
#[serde(remote = "TierConfig", tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum Kind {
    Memory {
        #[serde(default)]
        root: Option<PathBuf>,
    },
    Nvme(NvmeConfig),
    Nfs(NfsConfig),
    S3(S3Config),
    Flight(FlightConfig),
    Gds(GdsConfig),
    #[serde(skip)]
    Wrapped(Box<WrappedConfig>),
}

impl<'de> Deserialize<'de> for TierConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let mut document = toml::Table::deserialize(deserializer)?;
        let mut tables = toml::Table::new();
        for name in WrapperConfig::TABLES {
            tables.extend(document.remove_entry(name));
        }
        let tier = Kind::deserialize(document).map_err(D::Error::custom)?;
        if tables.is_empty() {
            return Ok(tier);
        }
        let wrappers = tables.try_into().map_err(D::Error::custom)?;
        Ok(Self::Wrapped(Box::new(WrappedConfig { tier, wrappers })))
    }
}

impl Serialize for TierConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::Error as _;
        let Self::Wrapped(wrapped) = self else {
            return Kind::serialize(self, serializer);
        };
        let mut document = toml::Table::try_from(&wrapped.tier).map_err(S::Error::custom)?;
        document.extend(toml::Table::try_from(&wrapped.wrappers).map_err(S::Error::custom)?);
        document.serialize(serializer)
    }
}

/// Local directories read through io_uring: one (`root`), or several over which objects are striped (`roots`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvmeConfig {
    /// The directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<PathBuf>,
    /// The directories of a striped tier, each best on a device of its own; their order and number are part of the
    /// layout.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<PathBuf>,
    /// Bytes of an object that lie in one of `roots` before the next one's turn; for objects written from now on.
    #[serde(default = "default_stripe_bytes")]
    pub stripe_bytes: u64,
    /// Reads in flight at most, in each directory.
    #[serde(default = "default_depth")]
    pub queue_depth: u32,
    /// Whether to read with `O_DIRECT`; where the file system refuses, reads are buffered and say so.
    #[serde(default = "yes")]
    pub direct: bool,
    /// Bytes of one read at most; longer ranges become several reads that are in flight together.
    #[serde(default = "default_chunk_bytes")]
    pub chunk_bytes: u32,
    /// Memory registered with the kernel for reads to go into, in each directory's engine; 0 for none.
    #[serde(default = "default_registered_buffers_bytes")]
    pub registered_buffers_bytes: u64,
    /// Who submits reads and takes their completions: `runtime` (the tasks that read) or `thread` (one of the tier's own).
    #[serde(default = "default_driver")]
    pub driver: Driver,
}

/// An NFSv3 export, read in user space (`url`) or through a kernel mount (`path`): exactly one of the two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NfsConfig {
    /// `nfs://host[:port]/export`; the port given serves NFS, and MOUNT unless `mount_port` says another; without one
    /// the portmapper is asked.
    #[serde(default)]
    pub url: Option<String>,
    /// The port of MOUNT, where it is not that of NFS and no portmapper tells it.
    #[serde(default)]
    pub mount_port: Option<u16>,
    /// A kernel mount, instead of `url`.
    #[serde(default)]
    pub path: Option<PathBuf>,
    /// Connections in the pool; each has many calls under way.
    #[serde(default = "default_connections")]
    pub connections: u32,
    /// Data asked for at once per connection by READs of more than 64 KiB; further ones wait their turn. More hides a
    /// longer way to the server, less keeps its buffers warm.
    #[serde(default = "default_in_flight_bytes")]
    pub in_flight_bytes: u64,
    /// Ranges of one read that follow each other with no more than this between them are read as one; 0 joins those
    /// that touch.
    #[serde(default)]
    pub coalesce_bytes: u64,
    /// The user that the server takes the calls to be from; without one, that of this process.
    #[serde(default)]
    pub uid: Option<u32>,
    /// The group, likewise.
    #[serde(default)]
    pub gid: Option<u32>,
    /// The limit of one call with its repeats, in milliseconds.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
}

/// An S3-compatible bucket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct S3Config {
    /// The bucket.
    pub bucket: String,
    /// A prefix inside the bucket.
    #[serde(default)]
    pub prefix: Option<String>,
    /// The region; the environment's when left out.
    #[serde(default)]
    pub region: Option<String>,
    /// The endpoint of an S3-compatible server; AWS when left out.
    #[serde(default)]
    pub endpoint: Option<String>,
    /// Whether the bucket's name stands in the host's name instead of the path (virtual-hosted style).
    #[serde(default)]
    pub virtual_host: bool,
    /// A file of PEM certificates that the endpoint's may be signed with, besides the system's.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// Whether to send requests unsigned.
    #[serde(default)]
    pub anonymous: bool,
    /// A file of AWS profiles whose keys are used, instead of what the environment has.
    #[serde(default)]
    pub credentials_file: Option<PathBuf>,
    /// The profile in `credentials_file`; `default` when left out.
    #[serde(default)]
    pub profile: Option<String>,
    /// Whether to allow plain HTTP (embedded and test origins).
    #[serde(default)]
    pub allow_http: bool,
    /// Range GETs in flight at most.
    #[serde(default = "default_concurrency")]
    pub concurrency: u32,
    /// Bytes of one range GET of a large object.
    #[serde(default = "default_part_bytes")]
    pub part_bytes: u64,
    /// Gaps up to this many bytes between two ranges are read over instead of making two requests.
    #[serde(default = "default_coalesce_bytes")]
    pub coalesce_bytes: u64,
    /// Retries of one request.
    #[serde(default = "default_retries")]
    pub retries: u32,
    /// The limit of one request with its retries, in milliseconds.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
    /// The limit of one attempt at a GET, in milliseconds, to which the time of its bytes at `min_bytes_per_s` is
    /// added; the attempt is then given up, and the next one goes on from the byte reached.
    #[serde(default = "default_attempt_ms")]
    pub attempt_ms: u64,
    /// The speed below which an attempt is given up, in bytes per second.
    #[serde(default = "default_min_bytes_per_s")]
    pub min_bytes_per_s: u64,
    /// Sends a GET a second time when its reply has not begun after this quantile of the recent ones; the first reply
    /// is read. Both are counted as requests. Left out: never.
    #[serde(default)]
    pub hedge_after_quantile: Option<f64>,
    /// The GETs sent a second time by hedging at most, as a share of all GETs.
    #[serde(default = "default_hedge_max_share")]
    pub hedge_max_share: f64,
}

const fn default_attempt_ms() -> u64 {
    1_000
}
const fn default_min_bytes_per_s() -> u64 {
    4_000_000
}
const fn default_hedge_max_share() -> f64 {
    0.05
}
const fn default_depth() -> u32 {
    128
}
const fn default_stripe_bytes() -> u64 {
    1 << 20
}
fn default_chunk_bytes() -> u32 {
    Tuning::default().chunk_bytes
}
fn default_registered_buffers_bytes() -> u64 {
    Tuning::default().registered_buffers_bytes
}
fn default_driver() -> Driver {
    Tuning::default().driver
}
const fn default_in_flight_bytes() -> u64 {
    8 << 20
}
const fn default_connections() -> u32 {
    4
}
const fn default_timeout_ms() -> u64 {
    5_000
}
const fn default_concurrency() -> u32 {
    32
}
const fn default_part_bytes() -> u64 {
    8 << 20
}
const fn default_coalesce_bytes() -> u64 {
    64 << 10
}
const fn default_retries() -> u32 {
    3
}
const fn yes() -> bool {
    true
}

/// Parts of a key of [`overlay`] at most.
const MAX_KEY_PARTS: usize = 16;

impl TierConfig {
    /// The kind, as `--tier` names it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Memory { .. } => "memory",
            Self::Nvme(_) => "nvme",
            Self::Nfs(_) => "nfs",
            Self::S3(_) => "s3",
            Self::Flight(_) => "flight",
            Self::Gds(_) => "gds",
            Self::Wrapped(wrapped) => wrapped.tier.kind(),
        }
    }

    /// The tier's own `[cache]`, for whoever composes its cache; keys that it leaves out are the defaults.
    #[must_use]
    pub fn cache(&self) -> Option<CacheConfig> {
        match self {
            Self::Wrapped(wrapped) => wrapped.wrappers.cache,
            _ => None,
        }
    }

    /// Reads one tier's TOML, after laying `settings` over it, each as [`overlay`] takes it.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], naming `source` and the key, or the setting.
    pub fn parse_with<S: AsRef<str>>(source: &str, text: &str, settings: &[S]) -> Result<Self, StorageError> {
        let invalid = |e: toml::de::Error| StorageError::new(ErrorKind::Invalid, source, e.to_string().trim_end());
        let mut document: toml::Table = text.parse().map_err(invalid)?;
        for setting in settings {
            overlay(&mut document, setting.as_ref())?;
        }
        document.try_into().map_err(invalid)
    }

    /// Reads one tier's TOML.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], naming `source` and the key.
    pub fn parse(source: &str, text: &str) -> Result<Self, StorageError> {
        Self::parse_with::<&str>(source, text, &[])
    }
}

/// Sets one key of a TOML document, as `--set a.b=v` does: the table `a` is made when it is not there. `v` is read as
/// a TOML value (`8`, `true`, `["ctr"]`, `"text"`), and where it is none (`http://host:9000`) as plain text.
///
/// # Errors
/// [`ErrorKind::Invalid`]: no `=`, an empty or over-long key, or a part of the key that holds something else.
pub fn overlay(document: &mut toml::Table, setting: &str) -> Result<(), StorageError> {
    let invalid = |why: &str| {
        let detail = format!("{why}; write it as `key=value` or `table.key=value`");
        StorageError::new(ErrorKind::Invalid, setting, detail)
    };
    let (key, value) = setting.split_once('=').ok_or_else(|| invalid("no `=`"))?;
    let value = value.trim();
    let value = value.parse().unwrap_or_else(|_| toml::Value::String(value.to_owned()));
    let parts: Vec<&str> = key.split('.').map(str::trim).collect();
    let Some((last, tables)) = parts.split_last() else {
        return Err(invalid("no key"));
    };
    if parts.len() > MAX_KEY_PARTS || parts.iter().any(|part| part.is_empty()) {
        return Err(invalid("the key is empty, has an empty part or too many parts"));
    }
    let mut table = document;
    for part in tables {
        let entry = table
            .entry(*part)
            .or_insert_with(|| toml::Value::Table(toml::Table::new()));
        let toml::Value::Table(below) = entry else {
            return Err(invalid(&format!("`{part}` is a value, not a table")));
        };
        table = below;
    }
    table.insert((*last).to_owned(), value);
    Ok(())
}

/// Builds a tier with what lies directly around it: `[emulated]`, then `[staged]`. What is left to the caller is to
/// meter and to cache it ([`compose`](crate::wrappers::compose)). Reaches out: a root must exist, a server must answer.
///
/// # Errors
/// What is missing, where, and what to do.
pub async fn open(config: &TierConfig) -> Result<Arc<dyn Tier>, StorageError> {
    open_counted(config, &StorageMetrics::unscraped()?).await
}

/// As [`open`], with the metrics of what lies around the tier.
///
/// # Errors
/// As [`open`].
pub async fn open_counted(config: &TierConfig, metrics: &StorageMetrics) -> Result<Arc<dyn Tier>, StorageError> {
    let tier = tiers::open(config, metrics).await?;
    match config {
        TierConfig::Wrapped(wrapped) => wrapped.wrappers.wrap(tier, metrics).await,
        _ => Ok(tier),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlaid(text: &str, settings: &[&str]) -> Result<toml::Table, StorageError> {
        let mut document = text.parse().unwrap();
        settings
            .iter()
            .try_for_each(|setting| overlay(&mut document, setting))?;
        Ok(document)
    }

    #[test]
    fn settings_are_laid_over_the_document() {
        let settings = [
            "listen=127.0.0.1:0",
            "cache.capacity_bytes = 0",
            "tiers.s3.endpoint=http://127.0.0.1:9000/a=b",
            "models=[\"ctr\", \"mlp\"]",
            "flag=true",
            "quoted=\"12\"",
            "share=0.5",
            "empty=",
            "inline={ a = 1 }",
        ];
        let want = r#"
            listen = "127.0.0.1:0"
            models = ["ctr", "mlp"]
            flag = true
            quoted = "12"
            share = 0.5
            empty = ""
            inline = { a = 1 }
            [cache]
            capacity_bytes = 0
            block_bytes = 4096
            [tiers.s3]
            endpoint = "http://127.0.0.1:9000/a=b"
        "#;
        let before = "listen = \"x\"\n[cache]\ncapacity_bytes = 5\nblock_bytes = 4096";
        assert_eq!(overlaid(before, &settings).unwrap(), want.parse().unwrap());
    }

    #[test]
    fn a_value_stays_one_value() {
        let document = overlaid("", &["a=1\n[b]\nc = 2"]).unwrap();
        assert_eq!(document["a"].as_str(), Some("1\n[b]\nc = 2"));
        assert_eq!(document.len(), 1);
    }

    #[test]
    fn bad_settings_are_refused_by_name() {
        for bad in [
            "",
            "a",
            "=1",
            ".a=1",
            "a.=1",
            "a..b=1",
            "listen.port=1",
            &format!("{}a=1", "a.".repeat(16)),
        ] {
            let error = overlaid("listen = 1", &[bad]).unwrap_err();
            assert_eq!((error.kind(), error.object()), (ErrorKind::Invalid, bad));
        }
    }

    #[test]
    fn tables_of_wrappers_go_with_every_kind() {
        let text =
            "kind = \"memory\"\n[emulated]\nprofile = \"gp3\"\n[staged]\nroot = \"/s\"\n[cache]\npolicy = \"lru\"";
        let settings = ["emulated.seed=9", "staged.block_bytes=65536"];
        let config = TierConfig::parse_with("t", text, &settings).unwrap();
        assert_eq!(config.kind(), "memory");
        assert_eq!(config.cache().unwrap().policy, crate::wrappers::cache::Policy::Lru);
        let TierConfig::Wrapped(wrapped) = &config else {
            panic!("not wrapped")
        };
        assert_eq!(wrapped.tier, TierConfig::Memory { root: None });
        let WrapperConfig { emulated, staged, .. } = wrapped.wrappers.clone();
        let (emulated, staged) = (emulated.unwrap(), staged.unwrap());
        assert_eq!((emulated.profile.as_deref(), emulated.seed), (Some("gp3"), Some(9)));
        assert_eq!((staged.root, staged.block_bytes), (PathBuf::from("/s"), 65_536));
        // A table can be set where the file has none, and all of it is written as it was read.
        let set = TierConfig::parse_with("t", "kind = \"s3\"\nbucket = \"b\"", &["emulated.profile=s3-standard"]);
        for config in [config, set.unwrap(), TierConfig::Memory { root: None }] {
            let written = toml::to_string(&config).unwrap();
            assert_eq!(TierConfig::parse("t", &written).unwrap(), config);
        }
        for (text, key) in [
            ("kind = \"memory\"\n[emulated]\nspeed = 3", "speed"),
            ("kind = \"memory\"\n[staged]\nroot = \"/s\"\nblocks = 3", "blocks"),
            ("kind = \"memory\"\n[staged]\nblock_bytes = 65536", "root"),
            ("kind = \"memory\"\n[cache]\nsize = 3", "size"),
            ("kind = \"memory\"\n[retried]\ntimes = 3", "retried"),
            ("kind = \"memory\"\nemulated = 3", "struct"),
        ] {
            let error = TierConfig::parse("tiers/x.toml", text).unwrap_err();
            assert_eq!((error.kind(), error.object()), (ErrorKind::Invalid, "tiers/x.toml"));
            assert!(error.detail().contains(key), "{error}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_tier_opens_with_what_lies_around_it() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "kind = \"memory\"\n[emulated]\nprofile = \"gp3\"\n[staged]\nroot = \"{}\"",
            folder.path().display()
        );
        let tier = open(&TierConfig::parse("t", &text).unwrap()).await.unwrap();
        let info = tier.info();
        assert_eq!(info.kind, "memory");
        assert!(info.wrappers[0].starts_with("staged(") && info.wrappers[1].starts_with("emulated("));
        assert_eq!(info.notes[0], "emulated: gp3");
        let bad = TierConfig::parse("t", "kind = \"memory\"\n[emulated]\nprofile = \"floppy\"");
        let error = open(&bad.unwrap()).await.err().unwrap();
        assert_eq!((error.kind(), error.object()), (ErrorKind::Invalid, "emulated.profile"));
    }

    #[test]
    fn tiers_parse_and_unknown_keys_do_not() {
        let nvme = TierConfig::parse("t", "kind = \"nvme\"\nroot = \"/x\"").unwrap();
        let TierConfig::Nvme(nvme) = nvme else {
            panic!("another kind")
        };
        assert_eq!(nvme.root.as_deref(), Some("/x".as_ref()));
        assert_eq!(
            (nvme.queue_depth, nvme.direct, nvme.roots),
            (128, true, Vec::<PathBuf>::new())
        );
        let s3 = TierConfig::parse_with("t", "kind = \"s3\"\nbucket = \"b\"", &["retries=7", "allow_http=true"]);
        let TierConfig::S3(s3) = s3.unwrap() else {
            panic!("another kind")
        };
        assert_eq!((s3.retries, s3.allow_http, s3.bucket.as_str()), (7, true, "b"));
        for (text, key) in [
            ("kind = \"nvme\"\nroot = \"/x\"\ndepth = 3", "depth"),
            ("kind = \"s3\"\nbucket = \"b\"\nbuckets = 3", "buckets"),
            ("kind = \"nfs\"\nurl = \"nfs://x/y\"\nhost = 3", "host"),
            ("kind = \"flight\"\nurl = \"grpc://h:1\"\nport = 3", "port"),
            ("kind = \"flight\"", "url"),
            ("kind = \"floppy\"", "floppy"),
            ("kind = \"s3\"", "bucket"),
            ("root = \"/x\"", "kind"),
        ] {
            let error = TierConfig::parse("tiers/x.toml", text).unwrap_err();
            assert_eq!((error.kind(), error.object()), (ErrorKind::Invalid, "tiers/x.toml"));
            assert!(error.detail().contains(key), "{error}");
        }
    }
}

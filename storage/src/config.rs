//! TOML of a tier, one file per tier in `configs/tiers/`, and the tier opened from it. In: text, and settings that
//! override it. Out: a [`TierConfig`], and the tier with its wrappers. The keys of each kind are defined in the folder of
//! its tier. Reads no files or environment variables except certificates and credentials: `object_store` reads S3's from
//! the usual AWS variables and profile.

use crate::tiers::flight::FlightConfig;
#[cfg(feature = "flight")]
use crate::tiers::flight::FlightTier;
use crate::tiers::gds::GdsConfig;
#[cfg(feature = "gds")]
use crate::tiers::gds::GdsTier;
use crate::tiers::memory::MemoryTier;
use crate::tiers::nfs::{self, NfsConfig};
use crate::tiers::nvme::{self, NvmeConfig};
use crate::tiers::object::{BucketConfig, BucketTier};
use crate::tiers::redis::RedisConfig;
#[cfg(feature = "redis")]
use crate::tiers::redis::RedisTier;
use crate::wrappers::{CacheConfig, StorageMetrics, WrapperConfig};
use crate::{ErrorKind, StorageError, Tier};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::path::PathBuf;
use std::sync::Arc;
use tierlab_formats::toml_error::plain;

/// A tier and its wrappers. Its TOML has the keys of its kind, and optional tables `[emulated]`, `[staged]` and
/// `[cache]`.
#[derive(Debug, Clone, PartialEq)]
pub enum TierConfig {
    /// In this process; filled from a directory at the start when `root` is given.
    Memory {
        /// A directory whose files are loaded.
        root: Option<PathBuf>,
    },
    /// One or more local directories read through io_uring.
    Nvme(NvmeConfig),
    /// An NFSv3 export read in user space, or a kernel mount.
    Nfs(NfsConfig),
    /// A bucket of S3, Google Cloud Storage or Azure Blob Storage.
    Object(BucketConfig),
    /// Key-value store with the Redis protocol.
    Redis(RedisConfig),
    /// An Arrow Flight server.
    Flight(FlightConfig),
    /// Local files read into device memory: by GPUDirect Storage, or by another path.
    Gds(GdsConfig),
    /// Another kind with wrappers around it, read from a TOML with `[emulated]`, `[staged]` or `[cache]`.
    Wrapped(Box<WrappedConfig>),
}

/// A tier and its wrappers; its schema is that of a tier's TOML.
#[derive(Debug, Clone, PartialEq, JsonSchema)]
#[schemars(title = "Tierlab tier", deny_unknown_fields)]
pub struct WrappedConfig {
    /// The tier itself.
    #[schemars(flatten, with = "Kind")]
    pub tier: TierConfig,
    /// Wrappers around the tier.
    #[schemars(flatten)]
    pub wrappers: WrapperConfig,
}

/// Serialised form of a kind's keys; the compiler keeps it equal to [`TierConfig`]. The tables of wrappers, which every
/// kind may have, are removed before.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(remote = "TierConfig", tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum Kind {
    /// In this process; filled from a directory at the start when `root` is given.
    Memory {
        /// A directory whose files are loaded.
        root: Option<PathBuf>,
    },
    Nvme(NvmeConfig),
    Nfs(NfsConfig),
    #[serde(rename = "s3", alias = "object")]
    Object(BucketConfig),
    Redis(RedisConfig),
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
        if let Self::Object(config) = &tier {
            config.check().map_err(|error| D::Error::custom(error.detail()))?;
        }
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

/// Maximum parts of a key of [`overlay`].
const MAX_KEY_PARTS: usize = 16;

impl TierConfig {
    /// Name of the kind, as `--tier` takes it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Memory { .. } => "memory",
            Self::Nvme(_) => "nvme",
            Self::Nfs(_) => "nfs",
            Self::Object(config) => config.kind(),
            Self::Redis(_) => "redis",
            Self::Flight(_) => "flight",
            Self::Gds(_) => "gds",
            Self::Wrapped(wrapped) => wrapped.tier.kind(),
        }
    }

    /// The tier's own `[cache]` settings. Missing keys have their defaults.
    pub fn cache(&self) -> Option<CacheConfig> {
        match self {
            Self::Wrapped(wrapped) => wrapped.wrappers.cache,
            _ => None,
        }
    }

    /// Reads a tier's TOML after applying `settings`, each like [`overlay`].
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`]; names `source` and the key, or the setting.
    pub fn parse_with<S: AsRef<str>>(source: &str, text: &str, settings: &[S]) -> Result<Self, StorageError> {
        let invalid = |e: toml::de::Error| ErrorKind::Invalid.error(source, plain(&e.to_string()));
        let mut document: toml::Table = text.parse().map_err(invalid)?;
        for setting in settings {
            overlay(&mut document, setting.as_ref())?;
        }
        document.try_into().map_err(invalid)
    }

    /// Reads a tier's TOML.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`]; names `source` and the key.
    pub fn parse(source: &str, text: &str) -> Result<Self, StorageError> {
        Self::parse_with::<&str>(source, text, &[])
    }
}

/// Sets one key of a TOML document, like `--set a.b=v`. The table `a` is created if missing. `v` is read as a TOML
/// value (`8`, `true`, `["ctr"]`, `"text"`), or as plain text if it is not one (`http://host:9000`). An empty value
/// removes the key from the document.
///
/// # Errors
/// [`ErrorKind::Invalid`] if there is no `=`, if the key is empty or too long, if the table is a plain value, or if the
/// key to remove does not exist.
pub fn overlay(document: &mut toml::Table, setting: &str) -> Result<(), StorageError> {
    let invalid =
        |why: &str| ErrorKind::Invalid.error(setting, format!("{why}; write it as `key=value` or `table.key=value`"));
    let (key, value) = setting.split_once('=').ok_or_else(|| invalid("missing `=`"))?;
    let value = value.trim();
    let parts: Vec<&str> = key.split('.').map(str::trim).collect();
    let (last, tables) = parts.split_last().ok_or_else(|| invalid("missing key"))?;
    if parts.len() > MAX_KEY_PARTS || parts.iter().any(|part| part.is_empty()) {
        return Err(invalid("the key is empty, has an empty part or too many parts"));
    }
    let mut table = document;
    for part in tables {
        if value.is_empty() && !table.contains_key(*part) {
            return Err(missing_key(setting, part));
        }
        let entry = table.entry(*part).or_insert_with(|| toml::Table::new().into());
        let toml::Value::Table(below) = entry else {
            return Err(invalid(&format!("`{part}` is a value, not a table")));
        };
        table = below;
    }
    if value.is_empty() {
        return table.remove(*last).map(drop).ok_or_else(|| missing_key(setting, last));
    }
    let value = value.parse().unwrap_or_else(|_| toml::Value::String(value.to_owned()));
    table.insert((*last).to_owned(), value);
    Ok(())
}

/// Returns true if a setting of [`overlay`] removes its key.
pub fn removes_key(setting: &str) -> bool {
    matches!(setting.split_once('='), Some((_, value)) if value.trim().is_empty())
}

fn missing_key(setting: &str, part: &str) -> StorageError {
    let detail = format!(
        "an empty value removes the key, but `{part}` is not set; for an empty text write `key=\"\"`, quoted for the shell"
    );
    ErrorKind::Invalid.error(setting, detail)
}

/// Builds a tier with its inner wrappers: `[emulated]`, then `[staged]`. The caller adds metrics and cache
/// ([`compose`](crate::wrappers::compose)). Connects to the tier: a root must exist, a server must answer.
///
/// # Errors
/// Names the missing part, its place, and the remedy.
pub async fn open(config: &TierConfig) -> Result<Arc<dyn Tier>, StorageError> {
    open_counted(config, &StorageMetrics::unscraped()?).await
}

/// Same as [`open`], and counts on `metrics`.
///
/// # Errors
/// Same as [`open`].
pub async fn open_counted(config: &TierConfig, metrics: &StorageMetrics) -> Result<Arc<dyn Tier>, StorageError> {
    let tier = open_bare(config, metrics).await?;
    match config {
        TierConfig::Wrapped(wrapped) => wrapped.wrappers.wrap(tier, metrics).await,
        _ => Ok(tier),
    }
}

/// Builds the tier itself, without its wrappers.
async fn open_bare(config: &TierConfig, metrics: &StorageMetrics) -> Result<Arc<dyn Tier>, StorageError> {
    Ok(match config {
        TierConfig::Memory { root: None } => Arc::new(MemoryTier::default()),
        TierConfig::Memory { root: Some(root) } => Arc::new(MemoryTier::load(root).await?),
        TierConfig::Nvme(config) => nvme::open(config).await?,
        TierConfig::Nfs(config) => nfs::open(config).await?,
        TierConfig::Object(config) => Arc::new(BucketTier::connect(config).await?),
        #[cfg(feature = "redis")]
        TierConfig::Redis(config) => Arc::new(RedisTier::connect(config).await?),
        #[cfg(feature = "flight")]
        TierConfig::Flight(config) => Arc::new(FlightTier::connect(config).await?),
        #[cfg(feature = "gds")]
        TierConfig::Gds(config) => Arc::new(GdsTier::open_counted(config, metrics).await?),
        TierConfig::Wrapped(wrapped) => Box::pin(open_bare(&wrapped.tier, metrics)).await?,
        #[cfg(not(all(feature = "flight", feature = "gds", feature = "redis")))]
        unsupported => {
            let kind = unsupported.kind();
            let detail = format!("tier kind {kind} is not compiled in; run `make build`");
            return Err(ErrorKind::Unsupported.error(kind, detail));
        }
    })
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
            "empty=\"\"",
            "gone=",
            "cache.policy =  ",
            "tiers.nfs=",
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
        let before = "listen = \"x\"\ngone = 1\n[cache]\ncapacity_bytes = 5\nblock_bytes = 4096\npolicy = \"lru\"\n[tiers.nfs]\na = 1";
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
            "other=",
            "other.key=",
            "listen.port=",
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
        // A table can be set if the file has none, and is written as it was read.
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
        let TierConfig::Object(s3) = s3.unwrap() else {
            panic!("another kind")
        };
        assert_eq!((s3.retries, s3.allow_http, s3.bucket.as_deref()), (7, true, Some("b")));
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
}

//! The server's configuration: files, environment and flags to one validated [`Config`].
//!
//! In: `server.toml`, the `tiers/*.toml` beside it (one document, under `tiers.NAME`), `TIERLAB_A__B=value` variables, and
//! `--set a.b=value` flags, each over the ones before. Out: a validated configuration, or an error that names file and key.
//! Parse, then build: nothing deeper reads files or the environment.

use crate::admission::Limits;
use crate::runtime::{Device, Search};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tierlab_protocol::model::is_plain_name;
use tierlab_storage::TierConfig;
use tierlab_storage::config::overlay;
use tierlab_storage::wrappers::CacheConfig;

/// The prefix of environment variables that set keys.
const ENV_PREFIX: &str = "TIERLAB_";

/// A configuration that cannot be used; the message names file and key. Exit code 2.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

fn fail<T>(message: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError(message.into()))
}

/// What the command line and the environment say.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// `--config`: the path of `server.toml`; tiers lie in `tiers/` beside it.
    pub config: PathBuf,
    /// `--tier`: the tier of models and features.
    pub tier: Option<String>,
    /// `--model-tier`, over `--tier`.
    pub model_tier: Option<String>,
    /// `--feature-tier`, over `--tier`.
    pub feature_tier: Option<String>,
    /// `--listen`.
    pub listen: Option<String>,
    /// `--set KEY=VALUE`, in order.
    pub set: Vec<String>,
    /// The process's environment.
    pub environment: Vec<(String, String)>,
}

/// A validated configuration.
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) listen: SocketAddr,
    /// Models to serve; empty means all.
    pub(crate) models: Vec<String>,
    pub(crate) model_tier: TierConfig,
    pub(crate) feature_tier: TierConfig,
    pub(crate) cache: CacheConfig,
    pub(crate) limits: Limits,
    pub(crate) max_connections: usize,
    pub(crate) search: Search,
    pub(crate) device: Device,
    pub(crate) worker_threads: usize,
    pub(crate) drain: Duration,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Raw {
    listen: String,
    models: Vec<String>,
    tier: Option<String>,
    model_tier: Option<String>,
    feature_tier: Option<String>,
    cache: CacheConfig,
    admission: RawAdmission,
    runtime: RawRuntime,
    drain: RawDrain,
}

impl Default for Raw {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8000".into(),
            models: Vec::new(),
            tier: None,
            model_tier: None,
            feature_tier: None,
            cache: CacheConfig::default(),
            admission: RawAdmission::default(),
            runtime: RawRuntime::default(),
            drain: RawDrain::default(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawAdmission {
    max_in_flight: usize,
    max_body_bytes: usize,
    max_buffered_bytes: usize,
    max_connections: usize,
    timeout_ms: u64,
}

impl Default for RawAdmission {
    fn default() -> Self {
        Self {
            max_in_flight: 1024,
            max_body_bytes: 64 << 20,
            max_buffered_bytes: 1 << 30,
            max_connections: 4096,
            timeout_ms: 10_000,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawRuntime {
    library: Option<PathBuf>,
    device: Device,
    worker_threads: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawDrain {
    timeout_ms: u64,
}

impl Default for RawDrain {
    fn default() -> Self {
        Self { timeout_ms: 10_000 }
    }
}

impl Config {
    /// Reads and validates everything.
    ///
    /// # Errors
    /// A file that cannot be read or parsed, an unknown key, a value out of range, or a tier that is not configured.
    pub fn read(sources: &Sources) -> Result<Self, ConfigError> {
        let mut document = read_table(&sources.config)?;
        let mut tiers = read_tiers(&sources.config)?;
        if let Some(inside) = document.remove("tiers") {
            let toml::Value::Table(inside) = inside else {
                return fail(format!("{}: `tiers` is no table", sources.config.display()));
            };
            tiers.extend(inside);
        }
        document.insert("tiers".into(), toml::Value::Table(tiers));
        let mut library = None;
        for (name, value) in &sources.environment {
            if name == "ORT_DYLIB_PATH" && !value.is_empty() {
                library = Some(PathBuf::from(value));
            } else if let Some(key) = name.strip_prefix(ENV_PREFIX) {
                let key = key.to_lowercase().replace("__", ".");
                overlay(&mut document, &format!("{key}={value}")).map_err(|e| ConfigError(format!("{name}: {e}")))?;
            }
        }
        for set in &sources.set {
            overlay(&mut document, set).map_err(|e| ConfigError(format!("--set {e}")))?;
        }
        let tiers = match document.remove("tiers") {
            Some(toml::Value::Table(tiers)) => tiers,
            _ => toml::Table::new(),
        };
        let raw = Raw::deserialize(document).map_err(|e| {
            let what = e.to_string();
            ConfigError(format!(
                "{} (with TIERLAB_ and --set applied): {}",
                sources.config.display(),
                what.trim_end()
            ))
        })?;
        Self::build(raw, &parse_tiers(&sources.config, tiers)?, sources, library)
    }

    fn build(
        raw: Raw,
        tiers: &BTreeMap<String, TierConfig>,
        sources: &Sources,
        library: Option<PathBuf>,
    ) -> Result<Self, ConfigError> {
        let file = sources.config.display();
        let (flag_tier, file_tier) = (sources.tier.as_ref(), raw.tier.as_ref());
        let pick = |flag: &str, wanted: [Option<&String>; 4]| {
            let names = tiers.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let Some(name) = wanted.into_iter().flatten().next() else {
                return fail(format!("no tier chosen: give --tier or {flag}, one of {names}"));
            };
            let unknown = || {
                ConfigError(format!(
                    "no tier `{name}`: {file} and the tiers/ beside it have {names}"
                ))
            };
            tiers.get(name).cloned().ok_or_else(unknown)
        };
        let (models, features) = (sources.model_tier.as_ref(), sources.feature_tier.as_ref());
        let model_tier = pick("--model-tier", [models, flag_tier, raw.model_tier.as_ref(), file_tier])?;
        let feature_tier = pick(
            "--feature-tier",
            [features, flag_tier, raw.feature_tier.as_ref(), file_tier],
        )?;
        let listen = sources.listen.as_ref().unwrap_or(&raw.listen);
        let listen: SocketAddr = listen
            .parse()
            .map_err(|_| ConfigError(format!("`listen` = `{listen}` is no address such as 127.0.0.1:8000")))?;
        for (key, value) in [
            ("admission.max_in_flight", raw.admission.max_in_flight as u64),
            ("admission.max_body_bytes", raw.admission.max_body_bytes as u64),
            ("admission.max_buffered_bytes", raw.admission.max_buffered_bytes as u64),
            ("admission.max_connections", raw.admission.max_connections as u64),
            ("admission.timeout_ms", raw.admission.timeout_ms),
        ] {
            if value == 0 {
                return fail(format!("{file}: `{key}` must be at least 1"));
            }
        }
        if let Some(name) = raw.models.iter().find(|name| !is_plain_name(name)) {
            return fail(format!(
                "{file}: `models` holds `{name}`, no plain name (letters, digits, `.`, `_`, `-`)"
            ));
        }
        Ok(Self {
            listen,
            models: raw.models,
            model_tier,
            feature_tier,
            cache: raw.cache,
            limits: Limits {
                max_in_flight: raw.admission.max_in_flight,
                max_body_bytes: raw.admission.max_body_bytes,
                max_buffered_bytes: raw.admission.max_buffered_bytes,
                timeout: Duration::from_millis(raw.admission.timeout_ms),
            },
            max_connections: raw.admission.max_connections,
            search: Search {
                environment: library,
                config: raw.runtime.library,
            },
            device: raw.runtime.device,
            worker_threads: raw.runtime.worker_threads,
            drain: Duration::from_millis(raw.drain.timeout_ms),
        })
    }

    /// The address to listen on.
    #[must_use]
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Threads of the async runtime; 0 means one per core.
    #[must_use]
    pub fn worker_threads(&self) -> usize {
        self.worker_threads
    }
}

fn read_table(path: &Path) -> Result<toml::Table, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|e| {
        ConfigError(format!(
            "{}: cannot be read: {e}; give --config a file such as configs/server.toml",
            path.display()
        ))
    })?;
    text.parse()
        .map_err(|e: toml::de::Error| ConfigError(format!("{}: {}", path.display(), e.to_string().trim_end())))
}

/// Every `tiers/NAME.toml` beside the config, by name.
fn read_tiers(config: &Path) -> Result<toml::Table, ConfigError> {
    let folder = config.with_file_name("tiers");
    let mut tiers = toml::Table::new();
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(tiers),
        Err(e) => return fail(format!("{}: {e}", folder.display())),
    };
    for entry in entries {
        let path = entry
            .map_err(|e| ConfigError(format!("{}: {e}", folder.display())))?
            .path();
        let name = path.file_stem().and_then(|name| name.to_str());
        if let (Some(name), true) = (name, path.extension().is_some_and(|extension| extension == "toml")) {
            tiers.insert(name.to_owned(), toml::Value::Table(read_table(&path)?));
        }
    }
    Ok(tiers)
}

fn parse_tiers(config: &Path, tiers: toml::Table) -> Result<BTreeMap<String, TierConfig>, ConfigError> {
    let parse = |(name, value): (String, toml::Value)| {
        let tier = TierConfig::deserialize(value).map_err(|e| {
            let file = config.with_file_name("tiers").join(format!("{name}.toml"));
            ConfigError(format!(
                "{} (`tiers.{name}`): {}",
                file.display(),
                e.to_string().trim_end()
            ))
        })?;
        Ok((name, tier))
    };
    tiers.into_iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with a config and two tiers.
    fn folder(server: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("tiers")).unwrap();
        std::fs::write(folder.path().join("server.toml"), server).unwrap();
        std::fs::write(folder.path().join("tiers/memory.toml"), "kind = \"memory\"").unwrap();
        std::fs::write(
            folder.path().join("tiers/nvme.toml"),
            "kind = \"nvme\"\nroot = \"data\"",
        )
        .unwrap();
        folder
    }

    fn sources(folder: &tempfile::TempDir) -> Sources {
        Sources {
            config: folder.path().join("server.toml"),
            tier: Some("nvme".into()),
            ..Sources::default()
        }
    }

    #[test]
    fn files_environment_and_flags_overlay_each_other() {
        let folder = folder("models = [\"a\"]\n[cache]\ncapacity_bytes = 1\nblock_bytes = 512");
        let config = Config::read(&Sources {
            model_tier: Some("memory".into()),
            listen: Some("127.0.0.1:0".into()),
            set: vec![
                "tiers.nvme.root=/elsewhere".into(),
                "models=[\"ctr\", \"mlp\"]".into(),
                "cache.capacity_bytes=3".into(),
            ],
            environment: vec![
                ("TIERLAB_CACHE__CAPACITY_BYTES".into(), "2".into()),
                ("TIERLAB_ADMISSION__TIMEOUT_MS".into(), "77".into()),
                ("ORT_DYLIB_PATH".into(), "/lib/x.so".into()),
                ("OTHER".into(), "unrelated".into()),
            ],
            ..sources(&folder)
        })
        .unwrap();
        assert_eq!(config.models, ["ctr", "mlp"]);
        assert_eq!(
            config.cache,
            CacheConfig {
                capacity_bytes: 3,
                block_bytes: 512,
                ..CacheConfig::default()
            }
        );
        assert_eq!(config.limits.timeout, Duration::from_millis(77));
        assert_eq!(config.model_tier.kind(), "memory");
        assert!(
            matches!(&config.feature_tier, TierConfig::Nvme(nvme) if nvme.root.as_deref() == Some(Path::new("/elsewhere")))
        );
        assert_eq!(config.search.environment.as_deref(), Some(Path::new("/lib/x.so")));
    }

    #[test]
    fn errors_name_file_and_key() {
        let message = |server: &str, change: &dyn Fn(&mut Sources)| {
            let folder = folder(server);
            let mut sources = sources(&folder);
            change(&mut sources);
            Config::read(&sources).unwrap_err().to_string()
        };
        let nothing = &|_: &mut Sources| {};
        for (message, named) in [
            (message("liste = 1", nothing), vec!["server.toml", "liste"]),
            (
                message("[cache]\ncapacity = 1", nothing),
                vec!["server.toml", "capacity"],
            ),
            (message("[cache", nothing), vec!["server.toml", "line 1"]),
            (
                message("[admission]\nmax_in_flight = 0", nothing),
                vec!["server.toml", "admission.max_in_flight"],
            ),
            (message("models = [\"../x\"]", nothing), vec!["server.toml", "../x"]),
            (message("listen = \"nowhere\"", nothing), vec!["listen", "nowhere"]),
            (
                message("", &|s| s.tier = Some("tape".into())),
                vec!["tape", "memory, nvme"],
            ),
            (message("", &|s| s.tier = None), vec!["--tier", "memory, nvme"]),
            (
                message("", &|s| s.set = vec!["tiers.nvme.depth=1".into()]),
                vec!["nvme.toml", "depth"],
            ),
            (
                message("", &|s| s.set = vec!["cache".into()]),
                vec!["--set cache", "key=value"],
            ),
            (message("", &|s| s.set = vec!["cache..x=1".into()]), vec!["cache..x"]),
            (
                message("", &|s| s.set = vec!["listen.x=1".into()]),
                vec!["server.toml", "listen"],
            ),
            (
                message("", &|s| s.environment = vec![("TIERLAB_TYPO".into(), "1".into())]),
                vec!["typo"],
            ),
            (
                message("", &|s| s.config = "/nowhere/server.toml".into()),
                vec!["/nowhere/server.toml"],
            ),
        ] {
            for part in named {
                assert!(message.contains(part), "{message}\n  should name {part}");
            }
        }
    }

    #[test]
    fn the_shipped_configuration_is_valid() {
        let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/server.toml");
        for tier in ["memory", "nvme", "nfs", "s3", "gds"] {
            let sources = Sources {
                config: config.clone(),
                tier: Some(tier.into()),
                ..Sources::default()
            };
            assert_eq!(Config::read(&sources).unwrap().feature_tier.kind(), tier);
        }
    }
}

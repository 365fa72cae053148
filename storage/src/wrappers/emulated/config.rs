//! The `[emulated]` table. In: TOML, which may name a built-in profile or the file of a recorded profile. Out: a
//! validated [`Emulation`]. Knows nothing of time.

use super::latency::{Distribution, ErrorRule, InjectedError, LatencyConfig, faults, invalid};
use super::recorded::{Law, Recorded};
use crate::StorageError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// File name extension of a recorded profile.
const FILE_ENDING: &str = ".toml";
/// Name of a built-in profile, with its table.
macro_rules! profile {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../../../configs/tiers/emulated/", $name, ".toml")),
        )
    };
}
/// Built-in profiles.
const PROFILES: [(&str, &str); 10] = [
    profile!("s3-standard"),
    profile!("s3-express"),
    profile!("efs-nfs"),
    profile!("efs-elastic"),
    profile!("efs-one-zone"),
    profile!("efs-max-io"),
    profile!("fsx-lustre-125"),
    profile!("fsx-lustre-1000"),
    profile!("gp3"),
    profile!("elasticache"),
];
/// Largest accepted number of retries.
const MAX_RETRIES: u32 = 10;
/// Default seed.
const DEFAULT_SEED: u64 = 1;

/// Remote service emulated over a tier: `[emulated]` of a tier's TOML. Keys override those of the profile; 0 removes a
/// limit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EmulatedConfig {
    /// Base profile: `s3-standard`, `s3-express`, `efs-nfs`, `efs-elastic`, `efs-one-zone`, `efs-max-io`,
    /// `fsx-lustre-125`, `fsx-lustre-1000`, `gp3` or `elasticache`; or the path, ending in `.toml`, of a profile
    /// recorded by `tierlab-storage-bench calibrate`.
    pub profile: Option<String>,
    /// Seed of latencies and errors (default: 1). The same calls in the same order get the same values.
    pub seed: Option<u64>,
    /// Latency from the start of a request to its first byte.
    pub latency: Option<LatencyConfig>,
    /// Maximum requests served at the same time; others queue in order.
    pub connections: Option<u32>,
    /// Bytes per second of a request, after its first byte.
    pub connection_bytes_per_s: Option<u64>,
    /// Bytes per second of all requests of a client.
    pub total_bytes_per_s: Option<u64>,
    /// Bytes per second of the whole service.
    pub service_bytes_per_s: Option<u64>,
    /// Maximum requests started per second by the whole service; others queue in order.
    pub requests_per_s: Option<u32>,
    /// Bytes that count as one request in `requests_per_s`; a longer request counts as several.
    pub request_bytes: Option<u64>,
    /// File shared by the processes of one machine that are clients of one service. They share `requests_per_s` and
    /// `service_bytes_per_s`. Created if missing. Without it, each process has its own service.
    pub shared: Option<PathBuf>,
    /// Injected errors.
    pub errors: Option<Vec<InjectedError>>,
    /// Periods without answers.
    pub stall: Option<Stall>,
    /// Maximum retries after a transient error, as in the service's usual client.
    pub retries: Option<u32>,
    /// Milliseconds before the first retry. The delay doubles with each retry, up to a second.
    pub retry_delay_ms: Option<u64>,
}

/// Periods without answers: the last `for_ms` of every `every_ms`, counted from the opening of the tier. Answers due in
/// a period are sent at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stall {
    /// Milliseconds from the end of a stall to the end of the next stall.
    pub every_ms: u64,
    /// Milliseconds of silence.
    pub for_ms: u64,
}

/// Validated emulation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Emulation {
    /// Label in results: `s3-standard`, `s3-standard, adjusted` or `custom`.
    pub(crate) label: String,
    pub(crate) seed: u64,
    pub(crate) latency: Distribution,
    /// Recorded latencies of whole reads, which replace `latency`.
    pub(crate) law: Option<Law>,
    pub(crate) errors: Vec<ErrorRule>,
    pub(crate) retries: u32,
    pub(crate) retry_delay: Duration,
    /// Table overlaid on its profile; limits of 0 are removed.
    pub(crate) table: EmulatedConfig,
}

impl EmulatedConfig {
    /// Table of a built-in profile.
    fn profile(name: &str) -> Result<Self, StorageError> {
        let Some((_, text)) = PROFILES.into_iter().find(|(of, _)| *of == name) else {
            let known = PROFILES.map(|(name, _)| name).join(", ");
            let detail = format!("unknown profile `{name}`: use {known}, or a file ending in `{FILE_ENDING}`");
            return Err(invalid("profile", detail));
        };
        toml::from_str(text).map_err(|e| invalid("profile", format!("`{name}` does not parse: {e}")))
    }

    /// Recorded profile named by the config, if any.
    fn recorded(&self) -> Result<Option<Recorded>, StorageError> {
        let Some(file) = self.profile.as_deref().filter(|name| name.ends_with(FILE_ENDING)) else {
            return Ok(None);
        };
        if self.latency.is_some() {
            let detail = format!("set either a recorded profile (`{file}`) or latencies, not both");
            return Err(invalid("latency", detail));
        }
        Recorded::read(Path::new(file)).map(Some)
    }

    /// Overlays this table on its profile, and removes limits of 0.
    fn over_profile(&self, recorded: Option<&Recorded>) -> Result<Self, StorageError> {
        let base = match (&self.profile, recorded) {
            (_, Some(recorded)) => Self {
                errors: Some(recorded.errors.clone()),
                ..Self::default()
            },
            (Some(name), None) => Self::profile(name)?,
            (None, None) => Self::default(),
        };
        let table = |config: &Self| toml::Table::try_from(config).map_err(|e| invalid("profile", e.to_string()));
        let mut merged = table(&base)?;
        merged.extend(table(self)?);
        // A limit of 0 is none; other keys that may be 0 default to it.
        merged.retain(|key, value| key == "seed" || value.as_integer() != Some(0));
        merged
            .try_into()
            .map_err(|e: toml::de::Error| invalid("profile", e.to_string()))
    }

    /// Label in results; it shows if a profile was adjusted.
    fn label(&self, recorded: Option<&Recorded>) -> String {
        let Some(profile) = &self.profile else {
            return "custom".to_owned();
        };
        let profile = recorded.map_or_else(|| profile.clone(), Recorded::label);
        let bare = Self {
            profile: self.profile.clone(),
            seed: self.seed,
            shared: self.shared.clone(),
            ..Self::default()
        };
        if *self == bare {
            profile
        } else {
            format!("{profile}, adjusted")
        }
    }

    /// Checks the table.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`]; names the key.
    pub(crate) fn resolve(&self) -> Result<Emulation, StorageError> {
        let recorded = self.recorded()?;
        let table = self.over_profile(recorded.as_ref())?;
        let latency = table.latency.as_ref().map(LatencyConfig::resolve).transpose()?;
        if let Some(Stall { every_ms, for_ms }) = table.stall
            && (for_ms >= every_ms || for_ms == 0)
        {
            let detail = format!("`for_ms` ({for_ms}) must be more than 0 and less than `every_ms` ({every_ms})");
            return Err(invalid("stall", detail));
        }
        let retries = table.retries.unwrap_or_default();
        if retries > MAX_RETRIES {
            let detail = format!("must be at most {MAX_RETRIES}: {retries}");
            return Err(invalid("retries", detail));
        }
        if table.shared.is_some() && table.requests_per_s.is_none() && table.service_bytes_per_s.is_none() {
            let detail = "requires `requests_per_s` or `service_bytes_per_s`";
            return Err(invalid("shared", detail));
        }
        Ok(Emulation {
            label: self.label(recorded.as_ref()),
            seed: table.seed.unwrap_or(DEFAULT_SEED),
            latency: latency.unwrap_or(Distribution::NONE),
            law: recorded.as_ref().map(Recorded::law),
            errors: faults(table.errors.as_deref().unwrap_or_default())?,
            retries,
            retry_delay: Duration::from_millis(table.retry_delay_ms.unwrap_or_default()),
            table,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn resolve(text: &str) -> Result<Emulation, StorageError> {
        toml::from_str::<EmulatedConfig>(text).unwrap().resolve()
    }

    #[test]
    fn every_profile_resolves_under_its_name() {
        for (name, _) in PROFILES {
            let emulation = resolve(&format!("profile = \"{name}\"\nseed = 7")).unwrap();
            assert_eq!((emulation.label.as_str(), emulation.seed), (name, 7));
            assert!(emulation.latency != Distribution::NONE);
        }
        let s3 = resolve("profile = \"s3-standard\"").unwrap();
        assert_eq!((s3.table.connection_bytes_per_s, s3.retries), (Some(90_000_000), 3));
    }

    #[test]
    fn a_changed_profile_says_so_and_0_takes_a_limit_away() {
        let changed = resolve("profile = \"s3-standard\"\nconnection_bytes_per_s = 0\nretries = 0").unwrap();
        assert_eq!(changed.label, "s3-standard, adjusted");
        assert_eq!((changed.table.connection_bytes_per_s, changed.retries), (None, 0));
        assert_eq!(changed.table.requests_per_s, Some(5500));
        assert_eq!(resolve("connections = 2").unwrap().label, "custom");
    }

    #[test]
    fn senseless_tables_are_refused_by_key() {
        for (text, key) in [
            ("profile = \"floppy\"", "emulated.profile"),
            ("stall = { every_ms = 10, for_ms = 10 }", "emulated.stall"),
            ("stall = { every_ms = 10, for_ms = 0 }", "emulated.stall"),
            ("retries = 11", "emulated.retries"),
            ("errors = [{ kind = \"odd\", rate = 0.1 }]", "emulated.errors.kind"),
            ("errors = [{ kind = \"timeout\", rate = 1.1 }]", "emulated.errors.rate"),
            (
                "errors = [{ kind = \"timeout\", rate = 0.6 }, { kind = \"denied\", rate = 0.6 }]",
                "emulated.errors.rate",
            ),
            (
                "latency = { distribution = \"lognormal\", median_us = -1, sigma = 1 }",
                "emulated.latency",
            ),
        ] {
            let error = resolve(text).unwrap_err();
            assert_eq!((error.kind(), error.object()), (ErrorKind::Invalid, key), "{text}");
        }
        assert!(toml::from_str::<EmulatedConfig>("speed = 3").is_err());
        assert!(toml::from_str::<EmulatedConfig>("stall = { every_ms = 3, for_ms = 1, x = 1 }").is_err());
    }

    const RECORDED: &str = "schema = 1\nshares = [0.0, 1.0]\n\
        [origin]\ndate = \"2026-11-23T10:00:00Z\"\nplace = \"here\"\ntier = \"s3\"\n\
        [origin.environment]\nkernel = \"\"\ncpu = \"\"\ncpus = 1\nmemory_bytes = 1\nclient = \"\"\n\
        [limits]\ntotal_bytes_per_s = 1\ntotal_is_limit = false\nrequests_per_s = 1\nrequests_is_limit = false\n\
        [[errors]]\nkind = \"timeout\"\nrate = 0.25\n\
        [[points]]\nbytes = 4096\ndepth = 1\ncalls = 9\ncalls_per_s = 1.0\nlatency_us = [10.0, 20.0]\n";

    #[test]
    fn a_recorded_profile_is_named_by_its_file_and_called_by_its_origin() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("p.toml");
        std::fs::write(&file, RECORDED).unwrap();
        let named = format!("profile = \"{}\"\n", file.display());
        let emulation = resolve(&named).unwrap();
        assert_eq!(emulation.label, "recorded s3 of \"here\", 2026-11-23");
        assert_eq!(emulation.errors[0].rate, 0.25);
        assert_eq!(emulation.law.unwrap().latency_us(0.5, 4096, 1), 15.0);
        let changed = resolve(&format!("{named}errors = []\nconnections = 4")).unwrap();
        assert_eq!(changed.label, "recorded s3 of \"here\", 2026-11-23, adjusted");
        assert_eq!((changed.errors.len(), changed.table.connections), (0, Some(4)));
        let both = format!("{named}latency = {{ distribution = \"lognormal\", median_us = 9, sigma = 0 }}");
        assert_eq!(resolve(&both).unwrap_err().object(), "emulated.latency");
        std::fs::write(&file, RECORDED.replace("depth = 1", "depth = 0")).unwrap();
        let error = resolve(&named).unwrap_err();
        assert_eq!(error.object(), file.display().to_string());
        assert!(error.detail().contains("points[0].depth"), "{error}");
    }

    #[test]
    fn a_table_reads_back() {
        for (name, _) in PROFILES {
            let config = EmulatedConfig::profile(name).unwrap();
            let again: EmulatedConfig = toml::from_str(&toml::to_string(&config).unwrap()).unwrap();
            assert_eq!(again, config);
        }
    }
}

//! The `[emulated]` table. In: TOML, which may name a profile or the file of a recorded profile. Out: a validated
//! [`Emulation`]. Knows nothing of time.

use super::latency::{Distribution, LatencyConfig};
use super::recorded::{Law, Recorded};
use crate::error::{ErrorKind, StorageError};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// File name ending of a recorded profile.
const FILE_ENDING: &str = ".toml";
/// The profiles that can be named, with their tables.
const PROFILES: [(&str, &str); 9] = [
    (
        "s3-standard",
        include_str!("../../../../configs/tiers/emulated/s3-standard.toml"),
    ),
    (
        "s3-express",
        include_str!("../../../../configs/tiers/emulated/s3-express.toml"),
    ),
    (
        "efs-nfs",
        include_str!("../../../../configs/tiers/emulated/efs-nfs.toml"),
    ),
    (
        "efs-elastic",
        include_str!("../../../../configs/tiers/emulated/efs-elastic.toml"),
    ),
    (
        "efs-one-zone",
        include_str!("../../../../configs/tiers/emulated/efs-one-zone.toml"),
    ),
    (
        "efs-max-io",
        include_str!("../../../../configs/tiers/emulated/efs-max-io.toml"),
    ),
    (
        "fsx-lustre-125",
        include_str!("../../../../configs/tiers/emulated/fsx-lustre-125.toml"),
    ),
    (
        "fsx-lustre-1000",
        include_str!("../../../../configs/tiers/emulated/fsx-lustre-1000.toml"),
    ),
    ("gp3", include_str!("../../../../configs/tiers/emulated/gp3.toml")),
];
/// Largest accepted number of retries.
const MAX_RETRIES: u32 = 10;
/// Default seed.
const DEFAULT_SEED: u64 = 1;

/// A remote service emulated over a tier: `[emulated]` of a tier's TOML. Keys override those of the profile; 0 removes
/// a limit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EmulatedConfig {
    /// Base profile: `s3-standard`, `s3-express`, `efs-nfs`, `efs-elastic`, `efs-one-zone`, `efs-max-io`,
    /// `fsx-lustre-125`, `fsx-lustre-1000` or `gp3`; or the path, ending in `.toml`, of a profile recorded by
    /// `tierlab-storage-bench calibrate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Names the draws of latencies and errors; 1 when left out. The same calls in the same order draw the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// From the start of a request to its first byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyConfig>,
    /// Requests served at the same time; the others queue in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// Bytes per second of a request, after its first byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_bytes_per_s: Option<u64>,
    /// Bytes per second of all requests of a client together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_bytes_per_s: Option<u64>,
    /// Bytes per second of the whole service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_bytes_per_s: Option<u64>,
    /// Requests that the whole service begins per second; the others queue in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_s: Option<u32>,
    /// Bytes that count as one request in `requests_per_s`; a longer request counts as several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_bytes: Option<u64>,
    /// File that makes processes of one machine clients of one service. They share `requests_per_s` and
    /// `service_bytes_per_s`. Created if missing; without it each process has its own service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<PathBuf>,
    /// Errors that requests end in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<Vec<InjectedError>>,
    /// Times in which nothing is answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall: Option<Stall>,
    /// Repeats of a request that ends in a transient error, as the service's usual client makes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// Milliseconds before the first repeat; twice that before the second, and so on, up to a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_delay_ms: Option<u64>,
}

/// Periods without answers: the last `for_ms` of every `every_ms`, counted from when the tier was opened. Answers due
/// in a period are sent at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stall {
    /// Milliseconds from the end of a stall to the end of the next stall.
    pub every_ms: u64,
    /// Milliseconds of silence.
    pub for_ms: u64,
}

/// A validated emulation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Emulation {
    /// Label in results: `s3-standard`, `s3-standard, adjusted` or `custom`.
    pub(crate) label: String,
    pub(crate) seed: u64,
    pub(crate) latency: Distribution,
    /// Recorded tier that replaces `latency`; its latencies are those of whole reads.
    pub(crate) law: Option<Law>,
    pub(crate) connections: Option<usize>,
    pub(crate) connection_bytes_per_s: Option<f64>,
    pub(crate) total_bytes_per_s: Option<f64>,
    pub(crate) service_bytes_per_s: Option<f64>,
    pub(crate) requests_per_s: Option<f64>,
    pub(crate) request_bytes: Option<u64>,
    pub(crate) shared: Option<PathBuf>,
    pub(crate) errors: Vec<Fault>,
    /// Length of a period, and of the silence that ends it.
    pub(crate) stall: Option<(Duration, Duration)>,
    pub(crate) retries: u32,
    pub(crate) retry_delay: Duration,
}

fn invalid(key: &str, detail: impl Into<String>) -> StorageError {
    StorageError::new(ErrorKind::Invalid, format!("emulated.{key}"), detail)
}

/// 0 and nothing are no limit.
fn limit<T: Copy + PartialEq + Default>(value: Option<T>) -> Option<T> {
    value.filter(|value| *value != T::default())
}

impl EmulatedConfig {
    /// A profile's table.
    fn profile(name: &str) -> Result<Self, StorageError> {
        let Some((_, text)) = PROFILES.iter().find(|(known, _)| *known == name) else {
            let known = PROFILES.map(|(known, _)| known).join(", ");
            let detail = format!("no profile `{name}`: there are {known}, and files that end in `{FILE_ENDING}`");
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
            let detail = format!("`{file}` was recorded with its latencies: take one of the two out");
            return Err(invalid("latency", detail));
        }
        Recorded::read(Path::new(file)).map(Some)
    }

    /// Overlays this table on its profile.
    fn over_profile(&self, recorded: Option<&Recorded>) -> Result<Self, StorageError> {
        let base = match (&self.profile, recorded) {
            (_, Some(recorded)) => Self {
                errors: Some(recorded.errors.clone()),
                ..Self::default()
            },
            (Some(name), None) => Self::profile(name)?,
            (None, None) => Self::default(),
        };
        let own = self.clone();
        Ok(Self {
            profile: own.profile,
            seed: own.seed.or(base.seed),
            latency: own.latency.or(base.latency),
            connections: own.connections.or(base.connections),
            connection_bytes_per_s: own.connection_bytes_per_s.or(base.connection_bytes_per_s),
            total_bytes_per_s: own.total_bytes_per_s.or(base.total_bytes_per_s),
            service_bytes_per_s: own.service_bytes_per_s.or(base.service_bytes_per_s),
            requests_per_s: own.requests_per_s.or(base.requests_per_s),
            request_bytes: own.request_bytes.or(base.request_bytes),
            shared: own.shared.or(base.shared),
            errors: own.errors.or(base.errors),
            stall: own.stall.or(base.stall),
            retries: own.retries.or(base.retries),
            retry_delay_ms: own.retry_delay_ms.or(base.retry_delay_ms),
        })
    }

    /// The name that results carry: a profile that was changed is not called by its bare name.
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
    /// [`ErrorKind::Invalid`], naming the key.
    pub(crate) fn resolve(&self) -> Result<Emulation, StorageError> {
        let recorded = self.recorded()?;
        let whole = self.over_profile(recorded.as_ref())?;
        let latency = match &whole.latency {
            Some(latency) => latency.resolve()?,
            None => Distribution::NONE,
        };
        let stall = match whole.stall {
            Some(Stall { every_ms, for_ms }) if for_ms >= every_ms || for_ms == 0 => {
                let detail = format!("`for_ms` ({for_ms}) must be more than 0 and less than `every_ms` ({every_ms})");
                return Err(invalid("stall", detail));
            }
            stall => stall.map(|s| (Duration::from_millis(s.every_ms), Duration::from_millis(s.for_ms))),
        };
        let retries = whole.retries.unwrap_or_default();
        if retries > MAX_RETRIES {
            let detail = format!("at most {MAX_RETRIES} repeats are made, not {retries}");
            return Err(invalid("retries", detail));
        }
        let has_service_limit = limit(whole.requests_per_s).is_some() || limit(whole.service_bytes_per_s).is_some();
        if whole.shared.is_some() && !has_service_limit {
            let detail = "there is nothing to share: it needs `requests_per_s` or `service_bytes_per_s`";
            return Err(invalid("shared", detail));
        }
        Ok(Emulation {
            label: self.label(recorded.as_ref()),
            seed: whole.seed.unwrap_or(DEFAULT_SEED),
            latency,
            law: recorded.as_ref().map(Recorded::law),
            connections: limit(whole.connections).map(|n| n as usize),
            connection_bytes_per_s: limit(whole.connection_bytes_per_s).map(|n| n as f64),
            total_bytes_per_s: limit(whole.total_bytes_per_s).map(|n| n as f64),
            requests_per_s: limit(whole.requests_per_s).map(f64::from),
            service_bytes_per_s: limit(whole.service_bytes_per_s).map(|n| n as f64),
            request_bytes: limit(whole.request_bytes),
            shared: whole.shared,
            errors: faults(whole.errors.as_deref().unwrap_or_default())?,
            stall,
            retries,
            retry_delay: Duration::from_millis(whole.retry_delay_ms.unwrap_or_default()),
        })
    }
}

/// Kinds of errors that a tier under emulation may show.
const KINDS: [ErrorKind; 6] = [
    ErrorKind::Unavailable,
    ErrorKind::Timeout,
    ErrorKind::Denied,
    ErrorKind::NotFound,
    ErrorKind::Changed,
    ErrorKind::Corrupt,
];

/// The longest time to an error, in milliseconds: ten minutes, as of latencies.
const LONGEST_MS: u64 = 600_000;

/// An error that some requests end in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InjectedError {
    /// `unavailable`, `timeout`, `denied`, `not-found`, `changed` or `corrupt`.
    pub kind: String,
    /// Share of requests, from 0 to 1.
    pub rate: f64,
    /// Milliseconds from the start of the request to its error; as long as its latency when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<u64>,
}

/// A validated error.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fault {
    pub(crate) kind: ErrorKind,
    pub(crate) rate: f64,
    pub(crate) after: Option<Duration>,
}

/// Checks a list of errors.
///
/// # Errors
/// [`ErrorKind::Invalid`], naming the key.
pub(super) fn faults(errors: &[InjectedError]) -> Result<Vec<Fault>, StorageError> {
    let fault = |error: &InjectedError| {
        let Some(kind) = KINDS.into_iter().find(|kind| kind.as_str() == error.kind) else {
            let known = KINDS.map(ErrorKind::as_str).join(", ");
            let detail = format!("no kind `{}`: there are {known}", error.kind);
            return Err(invalid("errors.kind", detail));
        };
        if !(0.0..=1.0).contains(&error.rate) {
            let detail = format!("a share from 0 to 1, not {}", error.rate);
            return Err(invalid("errors.rate", detail));
        }
        if let Some(after) = error.after_ms.filter(|after| *after > LONGEST_MS) {
            let detail = format!("at most {LONGEST_MS}, not {after}");
            return Err(invalid("errors.after_ms", detail));
        }
        Ok(Fault {
            kind,
            rate: error.rate,
            after: error.after_ms.map(Duration::from_millis),
        })
    };
    let faults: Vec<Fault> = errors.iter().map(fault).collect::<Result<_, _>>()?;
    let all: f64 = faults.iter().map(|fault| fault.rate).sum();
    if all > 1.0 {
        return Err(invalid(
            "errors.rate",
            format!("the rates add up to {all}: more than 1"),
        ));
    }
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!((s3.connection_bytes_per_s, s3.retries), (Some(90e6), 3));
    }

    #[test]
    fn a_changed_profile_says_so_and_0_takes_a_limit_away() {
        let changed = resolve("profile = \"s3-standard\"\nconnection_bytes_per_s = 0\nretries = 0").unwrap();
        assert_eq!(changed.label, "s3-standard, adjusted");
        assert_eq!((changed.connection_bytes_per_s, changed.retries), (None, 0));
        assert_eq!(changed.requests_per_s, Some(5500.0));
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
        assert_eq!((changed.errors.len(), changed.connections), (0, Some(4)));
        let both = format!("{named}latency = {{ distribution = \"lognormal\", median_us = 9, sigma = 0 }}");
        assert_eq!(resolve(&both).unwrap_err().object(), "emulated.latency");
        std::fs::write(&file, RECORDED.replace("depth = 1", "depth = 0")).unwrap();
        let error = resolve(&named).unwrap_err();
        assert_eq!(error.object(), file.display().to_string());
        assert!(error.detail().contains("points[0].depth"), "{error}");
    }

    #[test]
    fn a_table_reads_back() {
        for (_, text) in PROFILES {
            let config: EmulatedConfig = toml::from_str(text).unwrap();
            let again: EmulatedConfig = toml::from_str(&toml::to_string(&config).unwrap()).unwrap();
            assert_eq!(again, config);
        }
    }
}

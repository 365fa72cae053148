//! The `[emulated]` table. In: TOML, perhaps naming a profile. Out: a validated [`Emulation`]. Knows nothing of time.

use super::latency::{Distribution, LatencyConfig};
use crate::error::{ErrorKind, StorageError};
use serde::{Deserialize, Serialize};
use std::time::Duration;

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
/// Kinds of errors that a tier under emulation may show.
const KINDS: [ErrorKind; 6] = [
    ErrorKind::Unavailable,
    ErrorKind::Timeout,
    ErrorKind::Denied,
    ErrorKind::NotFound,
    ErrorKind::Changed,
    ErrorKind::Corrupt,
];
/// Retries at most.
const MAX_RETRIES: u32 = 10;
/// The seed where none is given.
const DEFAULT_SEED: u64 = 1;

/// A remote service emulated over a tier: `[emulated]` of a tier's TOML. What a profile sets is replaced key by key;
/// 0 takes a limit away.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EmulatedConfig {
    /// A profile to begin with: `s3-standard`, `s3-express`, `efs-nfs`, `efs-elastic`, `efs-one-zone`, `efs-max-io`,
    /// `fsx-lustre-125`, `fsx-lustre-1000` or `gp3`.
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
    /// Bytes per second of one request, after its first byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_bytes_per_s: Option<u64>,
    /// Bytes per second of all requests together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_bytes_per_s: Option<u64>,
    /// Requests begun per second; the others queue in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_s: Option<u32>,
    /// Bytes that count as one request in `requests_per_s`; a longer one counts as several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_bytes: Option<u64>,
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

/// Times in which nothing is answered: the last `for_ms` of every `every_ms`, counted from when the tier was opened.
/// What was due in them is answered at their end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stall {
    /// Milliseconds from one end to the next.
    pub every_ms: u64,
    /// Milliseconds of silence.
    pub for_ms: u64,
}

/// A validated emulation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Emulation {
    /// What results are labelled with: `s3-standard`, `s3-standard, adjusted` or `custom`.
    pub(crate) label: String,
    pub(crate) seed: u64,
    pub(crate) latency: Distribution,
    pub(crate) connections: Option<usize>,
    pub(crate) connection_bytes_per_s: Option<f64>,
    pub(crate) total_bytes_per_s: Option<f64>,
    pub(crate) requests_per_s: Option<f64>,
    pub(crate) request_bytes: Option<u64>,
    pub(crate) errors: Vec<Fault>,
    /// Length of a period, and of the silence that ends it.
    pub(crate) stall: Option<(Duration, Duration)>,
    pub(crate) retries: u32,
    pub(crate) retry_delay: Duration,
}

/// A validated error.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fault {
    pub(crate) kind: ErrorKind,
    pub(crate) rate: f64,
    pub(crate) after: Option<Duration>,
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
            return Err(invalid("profile", format!("no profile `{name}`: there are {known}")));
        };
        toml::from_str(text).map_err(|e| invalid("profile", format!("`{name}` does not parse: {e}")))
    }

    /// This table over its profile's.
    fn over_profile(&self) -> Result<Self, StorageError> {
        let base = match &self.profile {
            Some(name) => Self::profile(name)?,
            None => Self::default(),
        };
        let own = self.clone();
        Ok(Self {
            profile: own.profile,
            seed: own.seed.or(base.seed),
            latency: own.latency.or(base.latency),
            connections: own.connections.or(base.connections),
            connection_bytes_per_s: own.connection_bytes_per_s.or(base.connection_bytes_per_s),
            total_bytes_per_s: own.total_bytes_per_s.or(base.total_bytes_per_s),
            requests_per_s: own.requests_per_s.or(base.requests_per_s),
            request_bytes: own.request_bytes.or(base.request_bytes),
            errors: own.errors.or(base.errors),
            stall: own.stall.or(base.stall),
            retries: own.retries.or(base.retries),
            retry_delay_ms: own.retry_delay_ms.or(base.retry_delay_ms),
        })
    }

    /// The name that results carry: a profile that was changed is not called by its bare name.
    fn label(&self) -> String {
        let Some(profile) = &self.profile else {
            return "custom".to_owned();
        };
        let bare = Self {
            profile: self.profile.clone(),
            seed: self.seed,
            ..Self::default()
        };
        if *self == bare {
            profile.clone()
        } else {
            format!("{profile}, adjusted")
        }
    }

    /// Checks the table.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], naming the key.
    pub(crate) fn resolve(&self) -> Result<Emulation, StorageError> {
        let whole = self.over_profile()?;
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
        Ok(Emulation {
            label: self.label(),
            seed: whole.seed.unwrap_or(DEFAULT_SEED),
            latency,
            connections: limit(whole.connections).map(|n| n as usize),
            connection_bytes_per_s: limit(whole.connection_bytes_per_s).map(|n| n as f64),
            total_bytes_per_s: limit(whole.total_bytes_per_s).map(|n| n as f64),
            requests_per_s: limit(whole.requests_per_s).map(f64::from),
            request_bytes: limit(whole.request_bytes),
            errors: faults(whole.errors.as_deref().unwrap_or_default())?,
            stall,
            retries,
            retry_delay: Duration::from_millis(whole.retry_delay_ms.unwrap_or_default()),
        })
    }
}

fn faults(errors: &[InjectedError]) -> Result<Vec<Fault>, StorageError> {
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

    #[test]
    fn a_table_reads_back() {
        for (_, text) in PROFILES {
            let config: EmulatedConfig = toml::from_str(text).unwrap();
            let again: EmulatedConfig = toml::from_str(&toml::to_string(&config).unwrap()).unwrap();
            assert_eq!(again, config);
        }
    }
}

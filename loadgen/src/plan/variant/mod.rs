//! `[[variant]]`: one way to store models and features. In: TOML, whose factors may be lists to cross. Out: variants with distinct names.

use super::check::{Base, PlanFacts, check_pairs, pairs};
use super::fault::{Fault, check_name, conflict, empty, fault, missing, only_with, refuse};
use super::storage::{CacheState, Origin, RawFleet, TierPlan};
use super::target::{self, RawTarget, TargetPlan};
use super::value::{AnyTable, Factor};
use schemars::JsonSchema;
use serde::Deserialize;
use std::fmt::{self, Display};
use std::path::Path;
use tierlab_analysis::record::StageFill;
use tierlab_formats::LAYOUTS;
use tierlab_load::keys::KeyDistribution;
use tierlab_load::payload::Protocol;

/// Maximum variants: more are a mistake in the factors.
const MAX_VARIANTS: usize = 64;

/// Layout of tables as published: files of rows.
const ROWS: &str = "rows";

/// Profiles of emulated services that the server has, from `configs/tiers/emulated/`.
const PROFILES: [&str; 10] = [
    "efs-elastic",
    "efs-max-io",
    "efs-nfs",
    "efs-one-zone",
    "elasticache",
    "fsx-lustre-1000",
    "fsx-lustre-125",
    "gp3",
    "s3-express",
    "s3-standard",
];

/// Profiles without a limit of the whole service, which leave a fleet nothing to share. Recorded ones have none either.
const UNLIMITED: [&str; 1] = ["s3-express"];

/// Profiles of a volume that belongs to one server, as its price does: each server of a fleet has its own.
const OWN_VOLUMES: [&str; 1] = ["gp3"];

/// Tier of a server that has none, or does not report it.
pub const NO_TIER: &str = "none";

/// Variant of a lab: a server to measure.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VariantPlan {
    /// Name; empty without `[[variant]]`, where tier and cache state tell pairs apart.
    pub name: String,
    /// Tier of its data.
    pub tier: TierPlan,
    /// State of its feature cache.
    pub cache: CacheState,
    /// Profile of a remote service to emulate over the tier, or the file of a recorded one.
    pub emulated: Option<String>,
    /// Copy on a local folder.
    pub staged: Option<StagePlan>,
    /// Feature table layout (default: row files).
    pub layout: Option<String>,
    /// Entry of the price list for its tier.
    pub price: Option<String>,
    /// Instance type for its price.
    pub instance: Option<String>,
    /// Servers that share the tier and take turns; 1 is not a fleet.
    pub servers: u32,
    /// Keys of an emulated service that all servers share, as `KEY=VALUE`.
    pub shared: Vec<String>,
    /// Keys of the server's config.
    pub set: toml::Table,
    /// Existing server to measure instead of starting one.
    pub target: Option<Box<TargetPlan>>,
}

impl VariantPlan {
    /// Variant without any factor set.
    pub(super) fn new(tier: TierPlan, cache: CacheState, name: String) -> Self {
        Self {
            name,
            tier,
            cache,
            servers: 1,
            ..Self::default()
        }
    }

    /// True if the servers of a fleet are clients of one emulated service.
    pub fn shares_service(&self) -> bool {
        self.servers > 1 && self.emulated.is_some() && !self.has_own_volumes()
    }

    /// True if each server of a fleet has an emulated volume of its own.
    fn has_own_volumes(&self) -> bool {
        let profile = self.emulated.as_deref();
        profile.is_some_and(|profile| OWN_VOLUMES.contains(&profile))
    }

    /// Key used for prices, origins and labels.
    pub fn label(&self) -> &str {
        match self.name.as_str() {
            "" => &self.tier.name,
            name => name,
        }
    }

    /// Layout to write its tables in; `None` for row files.
    pub fn laid_out(&self) -> Option<&str> {
        self.layout.as_deref().filter(|&layout| layout != ROWS)
    }

    /// Name of the variant or pair in files and messages.
    pub fn file_name(&self) -> String {
        match self.name.as_str() {
            "" => format!("{}-{}", self.tier.name, self.cache.name),
            name => name.to_owned(),
        }
    }
}

/// Number of servers of a fleet.
struct FleetSize(u32);

impl Display for FleetSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-server{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

/// One value of a key in `matrix`.
struct Level<'a> {
    key: &'a str,
    value: &'a toml::Value,
}

impl Display for Level<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.key.rsplit('.').next().unwrap_or(self.key);
        let text = self.value.as_str();
        let value = text.map_or_else(|| self.value.to_string(), str::to_owned);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        write!(f, "{last}-{}", value.replace(|c| !is_plain(c), "-"))
    }
}

/// Parts of the plan that variants refer to.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    pub(super) facts: PlanFacts<'a>,
    pub(super) tiers: &'a [TierPlan],
    pub(super) caches: &'a [CacheState],
    /// Keys of the plan.
    pub(super) keys: &'a KeyDistribution,
    /// Rows per request of the question and the loads.
    pub(super) batch_sizes: &'a [u32],
}

/// Every variant, factors crossed, in the plan's order.
pub(super) fn validate(raw: &[RawVariant], parts: &Parts<'_>) -> Result<Vec<VariantPlan>, Fault> {
    let mut variants: Vec<VariantPlan> = Vec::new();
    for (index, raw) in raw.iter().enumerate() {
        let at = format!("variant[{index}]");
        for variant in crossed(raw, &at, parts)? {
            if variants.iter().any(|other| other.name == variant.name) {
                refuse!(format!("{at}.name"), "two variants are named `{}`", variant.name);
            }
            let unnamed = |variant: &VariantPlan| VariantPlan {
                name: String::new(),
                ..variant.clone()
            };
            if let Some(same) = variants.iter().find(|other| unnamed(other) == unnamed(&variant)) {
                refuse!(at, "`{}` and `{}` differ only in their names", same.name, variant.name);
            }
            variants.push(variant);
        }
        check_number("variant", variants.len())?;
    }
    Ok(variants)
}

/// Refuses more variants than a lab can have.
fn check_number(key: &str, variants: usize) -> Result<(), Fault> {
    if variants > MAX_VARIANTS {
        refuse!(key, "{variants} crossed variants; the limit is {MAX_VARIANTS}");
    }
    Ok(())
}

/// Variants of a factorial design, crossed one factor at a time.
struct Crossing(Vec<VariantPlan>);

impl Crossing {
    /// Creates one variant of each for each level of a factor. `set` gets the level and the path of its key.
    fn cross<T: Display>(
        &mut self,
        key: &str,
        factor: Option<&Factor<T>>,
        set: impl Fn(&mut VariantPlan, &T, &str) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let levels = match factor {
            None => return Ok(()),
            // The only level has no part in the variant's name.
            Some(Factor::One(level)) => vec![(key.to_owned(), level, String::new())],
            Some(Factor::Several(levels)) if levels.is_empty() => return empty(key),
            Some(Factor::Several(levels)) => {
                let named = |(index, level): (usize, _)| {
                    let suffix = format!("-{level}").replace('/', "-");
                    (format!("{key}[{index}]"), level, suffix)
                };
                levels.iter().enumerate().map(named).collect()
            }
        };
        check_number(key, self.0.len() * levels.len())?;
        let mut crossed = Vec::new();
        for variant in &self.0 {
            for (key, level, suffix) in &levels {
                let mut variant = variant.clone();
                variant.name += suffix;
                set(&mut variant, level, key)?;
                crossed.push(variant);
            }
        }
        self.0 = crossed;
        Ok(())
    }
}

fn crossed(raw: &RawVariant, at: &str, parts: &Parts<'_>) -> Result<Vec<VariantPlan>, Fault> {
    let key = |name: &str| format!("{at}.{name}");
    let target = target(raw, at, parts)?.map(Box::new);
    let tier = match &target {
        Some(target) => target_tier(target),
        None => started_tier(raw, &key("tier"), parts)?,
    };
    check_pairs(&key("set"), &raw.set)?;
    check_pairs(&key("matrix"), &raw.matrix)?;
    let fleet = parts.facts.fleet;
    let mut variants = Crossing(vec![VariantPlan {
        price: raw.price.clone(),
        shared: fleet.map_or_else(Vec::new, RawFleet::shared_limits),
        set: raw.set.clone(),
        target,
        ..VariantPlan::new(tier, CacheState::none(), raw.name.clone())
    }]);
    variants.cross(&key("emulated"), raw.emulated.as_ref(), |variant, name, at| {
        variant.emulated = Some(profile(at, name, parts.facts.base)?);
        Ok(())
    })?;
    variants.cross(&key("cache"), raw.cache.as_ref(), |variant, name, at| {
        variant.cache = cache_state(at, name, parts)?;
        Ok(())
    })?;
    variants.cross(&key("staged"), raw.staged.as_ref(), |variant, staged, _| {
        variant.staged = staged.stage(raw.staged_bytes);
        Ok(())
    })?;
    variants.cross(&key("layout"), raw.layout.as_ref(), |variant, layout, at| {
        if !LAYOUTS.contains(&layout.as_str()) {
            refuse!(at, "no such layout: `{layout}`; use one of {}", LAYOUTS.join(", "));
        }
        variant.layout = Some(layout.clone());
        Ok(())
    })?;
    for (name, values) in matrix(&key("matrix"), &raw.matrix)? {
        let levels = values.iter().map(|value| Level { key: &name, value });
        let levels = Factor::Several(levels.collect());
        let at = key(&format!("matrix.{name}"));
        if pairs(&raw.set).iter().any(|pair| pair.starts_with(&format!("{name}="))) {
            return conflict(at, key(&format!("set.{name}")), "leave one of them out");
        }
        variants.cross(&at, Some(&levels), |variant, level, _| {
            variant.set.insert(name.clone(), level.value.clone());
            Ok(())
        })?;
    }
    variants.cross(&key("instance"), raw.instance.as_ref(), |variant, instance, _| {
        variant.instance = Some(instance.clone());
        Ok(())
    })?;
    // An existing server is always one.
    if let Some(fleet) = fleet.filter(|_| !raw.is_running()) {
        let sizes = Factor::Several(fleet.sizes()?.iter().copied().map(FleetSize).collect());
        variants.cross("fleet.servers", Some(&sizes), |variant, servers, _| {
            variant.servers = servers.0;
            Ok(())
        })?;
    }
    for variant in &mut variants.0 {
        if variant.has_own_volumes() {
            variant.shared.clear();
        }
        check(variant, raw, at, parts)?;
    }
    Ok(variants.0)
}

/// Dotted keys of `matrix` with their values.
fn matrix<'a>(at: &str, table: &'a toml::Table) -> Result<Vec<(String, &'a Vec<toml::Value>)>, Fault> {
    let mut keys = Vec::new();
    for (key, value) in table {
        match value {
            toml::Value::Array(values) => keys.push((key.clone(), values)),
            toml::Value::Table(inner) => {
                let below = matrix(&format!("{at}.{key}"), inner)?.into_iter();
                keys.extend(below.map(|(name, values)| (format!("{key}.{name}"), values)));
            }
            other => refuse!(
                format!("{at}.{key}"),
                "{other} is not a list; give the values to cross, or write a single value in `set`"
            ),
        }
    }
    Ok(keys)
}

/// Profile by name, or the path of a recorded one from the plan's folder.
fn profile(at: &str, name: &str, base: Base<'_>) -> Result<String, Fault> {
    if name.ends_with(".toml") {
        let path = base.path(Path::new(name));
        // Agents start no servers and get no profiles.
        if base.is_local() && !path.is_file() {
            refuse!(
                at,
                "recorded profile {} does not exist; record it by `tierlab-storage-bench calibrate`",
                path.display()
            );
        }
        return Ok(path.display().to_string());
    }
    if !PROFILES.contains(&name) {
        refuse!(
            at,
            "unknown profile `{name}`; use one of {}, or the path of a recorded profile, ending in `.toml`",
            PROFILES.join(", ")
        );
    }
    Ok(name.to_owned())
}

fn started_tier(raw: &RawVariant, at: &str, parts: &Parts<'_>) -> Result<TierPlan, Fault> {
    let Some(name) = &raw.tier else {
        return missing(at, "the tier of the server to start, or `url` of an existing one");
    };
    let tier = parts.tiers.iter().find(|tier| tier.name == *name);
    tier.cloned()
        .ok_or_else(|| fault!(at, "`{name}` is not in `lab.tiers`"))
}

/// Tier of an existing server's results.
fn target_tier(target: &TargetPlan) -> TierPlan {
    let name = target.tier.clone().unwrap_or_else(|| NO_TIER.to_owned());
    TierPlan {
        kind: name.clone(),
        name,
        ..TierPlan::default()
    }
}

/// Existing server of a variant.
fn target(raw: &RawVariant, at: &str, parts: &Parts<'_>) -> Result<Option<TargetPlan>, Fault> {
    if !raw.is_running() {
        return Ok(None);
    }
    let key = |name: &str| format!("{at}.{name}");
    let of_started = [
        ("emulated", raw.emulated.is_some()),
        ("staged", raw.staged.is_some()),
        ("staged_bytes", raw.staged_bytes.is_some()),
        ("cache", raw.cache.is_some()),
        ("layout", raw.layout.is_some()),
        ("set", !raw.set.is_empty()),
        ("matrix", !raw.matrix.is_empty()),
    ];
    let owner = "a `tier`: the lab neither starts nor changes an existing server";
    only_with(at, owner, &of_started)?;
    let at_target = key("target");
    let scope = target::Scope::new(&at_target, parts.facts, parts.keys);
    let plan = target::validate(&raw.target.clone().unwrap_or_default(), &scope)?;
    for (name, is_duplicate) in [
        ("url", plan.url.is_some() && raw.url.is_some()),
        ("tier", plan.tier.is_some() && raw.tier.is_some()),
    ] {
        if is_duplicate {
            let other = format!("{at}.target.{name}");
            return conflict(key(name), other, "leave one of them out");
        }
    }
    if let Some(url) = &raw.url {
        target::address(key("url"), url)?;
    }
    let plan = plan.overridden_by(TargetPlan {
        url: raw.url.clone(),
        tier: raw.tier.clone(),
        price: raw.price.clone(),
        ..TargetPlan::default()
    });
    if plan.url.is_none() {
        return missing(key("url"), "the address of the server");
    }
    if scope.protocol == Protocol::Grpc && plan.grpc_url.is_none() {
        let advice = "the address of the server's gRPC service, since the plan's `protocol` is \"grpc\"";
        return missing(key("target.grpc_url"), advice);
    }
    if let Some(custom) = &plan.custom {
        target::check_rows(custom, parts.batch_sizes, scope.at)?;
    }
    Ok(Some(plan))
}

fn cache_state(at: &str, name: &str, parts: &Parts<'_>) -> Result<CacheState, Fault> {
    match parts.caches.iter().find(|state| state.name == name) {
        Some(state) => Ok(state.clone()),
        None if name == "cold" => Ok(CacheState::none()),
        None => {
            let mut names: Vec<&str> = parts.caches.iter().map(|state| state.name.as_str()).collect();
            if !names.contains(&"cold") {
                names.push("cold");
            }
            Err(fault!(
                at,
                "no `[[lab.cache]]` is named `{name}`; use one of {}",
                names.join(", ")
            ))
        }
    }
}

/// Refuses contradictions of a variant.
fn check(variant: &VariantPlan, raw: &RawVariant, at: &str, parts: &Parts<'_>) -> Result<(), Fault> {
    let name = &variant.name;
    let key = |name: &str| format!("{at}.{name}");
    if variant.staged.is_some_and(|stage| stage.is_shared) && parts.facts.fleet.is_none() {
        refuse!(
            key("staged"),
            "\"shared\" is one stage of several servers: add a `[fleet]`"
        );
    }
    if let Some(profile) = variant.emulated.as_deref().filter(|_| variant.shares_service())
        && (UNLIMITED.contains(&profile) || profile.ends_with(".toml"))
        && variant.shared.is_empty()
    {
        refuse!(
            "fleet",
            "variant `{name}` emulates `{profile}`, which has no limit that its servers could share; set `fleet.requests_per_s` or \
             `fleet.bytes_per_s`"
        );
    }
    check_name(&key("name"), name)?;
    if raw.staged_bytes.is_some() && raw.staged.is_none() {
        refuse!(
            key("staged_bytes"),
            "variant `{name}` has no stage; set `staged` to \"empty\" or \"filled\""
        );
    }
    if variant.emulated.is_some()
        && variant.tier.origin == Origin::Real
        && matches!(variant.tier.kind.as_str(), "s3" | "nfs")
    {
        refuse!(
            key("emulated"),
            "variant `{name}` would emulate a service over the real tier `{}`, whose own latency adds to it",
            variant.tier.name
        );
    }
    if variant.staged.is_some() && variant.tier.kind == "memory" {
        refuse!(
            key("staged"),
            "variant `{name}` would keep a copy of what is in memory on a disk"
        );
    }
    if !parts.facts.has_prices && (variant.price.is_some() || variant.instance.is_some()) {
        refuse!(key("price"), "variant `{name}` is priced, but the plan has no `prices`");
    }
    Ok(())
}

/// Default capacity of a stage, in bytes: more than the lab's own tables.
const STAGED_BYTES: u64 = 1 << 30;

/// Copy on a local folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StagePlan {
    /// Content at the start of measuring.
    pub fill: StageFill,
    /// If true, all servers of a fleet share it, as processes of one host do; else each is a host of its own.
    pub is_shared: bool,
    /// Capacity in bytes.
    pub capacity_bytes: u64,
}

/// Variant to choose among. A factor may be a list, `cache = ["cold", "warm"]`. Lists are crossed: a variant for each
/// combination, with its levels in its name.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawVariant {
    /// Name in results.
    name: String,
    /// Tier: a file of the folder `tiers` beside the servers' configuration.
    pub(super) tier: Option<String>,
    /// Address of an existing server to measure, in place of `tier`. `[variant.target]` has its other settings.
    pub(super) url: Option<String>,
    pub(super) target: Option<RawTarget>,
    /// Profile of `tiers/emulated`, or the file of a recorded one, over that tier.
    pub(super) emulated: Option<Factor<String>>,
    /// Copy on a local disk, "empty" or "filled" when measuring begins; "shared" is empty, and one for all servers of a fleet;
    /// or "none".
    pub(super) staged: Option<Factor<RawStaged>>,
    /// Maximum size of the copy in bytes (default: 1073741824).
    pub(super) staged_bytes: Option<u64>,
    /// Cache state by its name in `[[lab.cache]]`; "cold" is no cache.
    pub(super) cache: Option<Factor<String>>,
    /// Feature table layout, written to the tier before anything is measured: "rows", "files", "tar", "tfrecord", "parquet",
    /// "parquet-snappy", "parquet-lz4", "parquet-zstd", "arrow", "arrow-lz4" or "arrow-zstd" (default: "rows").
    pub(super) layout: Option<Factor<String>>,
    /// Entry of the price list for the tier, or "included".
    pub(super) price: Option<String>,
    /// Instance type (default: the plan's).
    pub(super) instance: Option<Factor<String>>,
    /// Keys of the server's config.
    #[serde(default)]
    #[schemars(with = "AnyTable")]
    pub(super) set: toml::Table,
    /// Keys of the server's config, each with a list of values to cross: `"runtime.instances.cores" = [1, 4]`,
    /// `"model_config.MODEL.max_batch_size" = [0, 32]` (0 runs each request alone).
    #[serde(default)]
    #[schemars(with = "AnyTable")]
    pub(super) matrix: toml::Table,
}

impl RawVariant {
    /// True for an existing server.
    pub(super) const fn is_running(&self) -> bool {
        self.url.is_some() || self.target.is_some()
    }
}

/// `staged`: content of the stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawStaged {
    #[strum(to_string = "unstaged")]
    None,
    #[strum(to_string = "stage-empty")]
    Empty,
    #[strum(to_string = "stage-filled")]
    Filled,
    /// Empty, and one for all servers of a fleet.
    #[strum(to_string = "stage-shared")]
    Shared,
}

impl RawStaged {
    pub(super) fn stage(self, bytes: Option<u64>) -> Option<StagePlan> {
        let fill = match self {
            Self::None => return None,
            Self::Empty | Self::Shared => StageFill::Empty,
            Self::Filled => StageFill::Filled,
        };
        Some(StagePlan {
            fill,
            is_shared: self == Self::Shared,
            capacity_bytes: bytes.unwrap_or(STAGED_BYTES),
        })
    }
}

#[cfg(test)]
mod tests;

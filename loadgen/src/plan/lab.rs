//! The `[lab]` part of a plan: tiers, cache states, data, and the folder that the lab works in.

use super::check::{Base, overlays};
use super::driven::ClosedLoopPlan;
use super::fault::{Fault, conflict, distinct, duplicate, empty, fault, misplaced, missing, plain, refuse, within};
use super::raw::{RawColdStart, RawData, RawLab, RawTier};
use super::storage::{CacheState, Origin, RawFleet, TierPlan};
use super::variant::{self, RawVariant, VariantPlan};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tierlab_analysis::record::{ColdWay, PageCache, Question, StageFill};
use tierlab_load::keys::KeyDistribution;
use tierlab_load::load::Load;
use tierlab_load::wire::Protocol;

/// A validated `[lab]`.
#[derive(Debug, Clone)]
pub struct LabPlan {
    /// Tiers that the variants read from.
    pub tiers: Vec<TierPlan>,
    /// Variants to measure, in order: the plan's, or each tier in each cache state.
    pub variants: Vec<VariantPlan>,
    /// Cold starts to measure before the loads.
    pub cold_start: Option<ColdStartPlan>,
    /// Models and tables.
    pub data: Data,
    /// Folder of origins, generated data and logs.
    pub work: PathBuf,
    /// Config file of the servers.
    pub server_config: PathBuf,
    /// Time limit for an origin or a server to report that it is ready.
    pub ready_timeout: Duration,
    /// Keys of the server's config set for every server, as `--set` takes them.
    pub server_set: Vec<String>,
}

/// Cold starts of a lab.
#[derive(Debug, Clone, PartialEq)]
pub struct ColdStartPlan {
    /// Repeats of each way on each tier.
    pub repeats: u32,
    /// Ways in which models come to be served, each once.
    pub ways: Vec<ColdWay>,
    /// Handling of the page cache below the tier's files before each.
    pub page_cache: PageCache,
    /// Seconds over which a fleet's servers start at random times; each way is measured with each. 0 starts all at once.
    pub jitter_s: Vec<f64>,
}

/// Models and tables of a lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// None: every server is an existing one.
    None,
    /// Made by `tierlab-models` below the lab's folder.
    Generated {
        /// Rows of the feature table.
        rows: u64,
        /// `small` or `full`.
        model_size: String,
    },
    /// Existing data, used as they are.
    Given {
        /// The model repository.
        repository: PathBuf,
        /// The folder of the feature tables.
        features: PathBuf,
    },
}

impl LabPlan {
    /// Config file of a tier: `tiers/NAME.toml` beside the server's config.
    #[must_use]
    pub fn tier_file(&self, tier: &str) -> PathBuf {
        tier_file(&self.server_config, tier)
    }
}

/// Parts of the plan that a lab depends on.
#[derive(Debug)]
pub(super) struct Around<'a> {
    pub(super) base: Base<'a>,
    pub(super) variants: &'a [RawVariant],
    pub(super) has_prices: bool,
    /// Question of the plan, whose answer names every variant.
    pub(super) question: Option<&'a Question>,
    pub(super) protocol: Protocol,
    pub(super) keys: &'a KeyDistribution,
    pub(super) loads: &'a [Load],
    pub(super) closed_loops: &'a [ClosedLoopPlan],
    pub(super) fleet: Option<&'a RawFleet>,
}

pub(super) fn validate(raw: RawLab, around: &Around<'_>) -> Result<LabPlan, Fault> {
    let base = around.base;
    let starts_servers = around.variants.is_empty() || around.variants.iter().any(|variant| !variant.is_running());
    let server_config = match &raw.server_config {
        Some(file) => base.path(file),
        None if starts_servers => return missing("lab.server_config", "the config of the servers that the lab starts"),
        None => PathBuf::new(),
    };
    let tiers = tiers(&raw, around, &server_config)?;
    let caches = caches(&raw, around.variants.is_empty())?;
    let cold_start = raw
        .cold_start
        .as_ref()
        .map(|raw| cold_start(raw, around.fleet.is_some()))
        .transpose()?;
    let of_caches = caches.iter().enumerate();
    let of_caches = of_caches.map(|(i, cache)| (format!("lab.cache[{i}].page_cache"), cache.page_cache));
    let of_starts = cold_start.iter();
    let of_starts = of_starts.map(|plan| ("lab.cold_start.page_cache".to_owned(), plan.page_cache));
    if let Some((key, _)) = of_caches
        .chain(of_starts)
        .find(|(_, pages)| *pages == PageCache::Dropped)
    {
        has_files_here(key, &tiers)?;
    }
    let variants = variants(&tiers, &caches, around)?;
    if let Some(plan) = &cold_start {
        check_cold_start(plan, &variants, starts_servers)?;
    }
    Ok(LabPlan {
        tiers,
        variants,
        cold_start,
        data: match starts_servers {
            true => data(raw.data, base)?,
            false => Data::None,
        },
        work: base.path(&raw.work),
        server_config,
        ready_timeout: Duration::from_secs(raw.ready_timeout_s),
        server_set: overlays("lab.server", &raw.server)?,
    })
}

/// The plan's variants, or each tier in each cache state.
fn variants(tiers: &[TierPlan], caches: &[CacheState], around: &Around<'_>) -> Result<Vec<VariantPlan>, Fault> {
    if around.fleet.is_some() {
        if around.variants.iter().all(RawVariant::is_running) {
            refuse!(
                "fleet",
                "the lab starts its servers, so it needs a `[[variant]]` with a `tier`"
            );
        }
        if around.question.is_some() {
            return conflict(
                "fleet",
                "question",
                "a question finds the number of instances by itself; leave one of them out",
            );
        }
    }
    if around.variants.is_empty() {
        return Ok(every_pair(tiers, caches, around.question.is_some()));
    }
    let asked = around.question.iter().map(|question| question.batch_size);
    let of_users = around.closed_loops.iter().map(|closed| closed.batch_size);
    let of_loads = around.loads.iter().map(|load| load.batch_size);
    let batch_sizes: Vec<u32> = of_loads.chain(of_users).chain(asked).collect();
    let known = variant::Known {
        tiers,
        caches,
        has_prices: around.has_prices,
        base: around.base,
        protocol: around.protocol,
        keys: around.keys,
        batch_sizes: &batch_sizes,
        fleet: around.fleet,
    };
    variant::validate(around.variants, &known)
}

/// Refuses cold starts that no variant can make.
fn check_cold_start(plan: &ColdStartPlan, variants: &[VariantPlan], starts_servers: bool) -> Result<(), Fault> {
    if !starts_servers {
        return misplaced(
            "lab.cold_start",
            "servers that the lab starts, and every variant is an existing one",
        );
    }
    let stages_empty = |variant: &&VariantPlan| variant.staged.is_some_and(|stage| stage.fill == StageFill::Empty);
    match variants.iter().find(stages_empty) {
        Some(variant) if plan.ways.contains(&ColdWay::Load) => Err(fault!(
            "lab.cold_start.ways",
            "a running server has staged its model already, so variant `{}` has no `load` from an empty stage; measure it by \
                 `restart`",
            variant.name
        )),
        _ => Ok(()),
    }
}

/// Tiers of the plan. In a plan of this host, each needs its file.
fn tiers(raw: &RawLab, around: &Around<'_>, server_config: &Path) -> Result<Vec<TierPlan>, Fault> {
    let names = tier_names(raw, around.variants)?;
    if let Some(stray) = raw.tier.keys().find(|tier| names.iter().all(|(name, _)| name != tier)) {
        refuse!(format!("lab.tier.{stray}"), "not in `lab.tiers`");
    }
    let mut tiers = Vec::new();
    for (name, key) in names {
        let file = tier_file(server_config, name);
        if around.base.is_here() && !file.is_file() {
            has_siblings(&key, name, &file)?;
        }
        tiers.push(tier(name, kind(&file, name), raw.tier.get(name))?);
    }
    Ok(tiers)
}

/// Names of the tiers with the paths of their keys: those of `lab.tiers`, or else of the variants.
fn tier_names<'a>(raw: &'a RawLab, variants: &'a [RawVariant]) -> Result<Vec<(&'a str, String)>, Fault> {
    let listed = raw.tiers.iter().enumerate();
    let listed = listed.map(|(i, name)| (name.as_str(), format!("lab.tiers[{i}]")));
    let mut names: Vec<_> = listed.collect();
    distinct("lab.tiers", &raw.tiers)?;
    if names.is_empty() {
        let started = variants.iter().enumerate().filter(|(_, variant)| !variant.is_running());
        for (i, tier) in started.filter_map(|(i, variant)| Some((i, variant.tier.as_deref()?))) {
            if names.iter().all(|(name, _)| *name != tier) {
                names.push((tier, format!("variant[{i}].tier")));
            }
        }
    }
    for (name, key) in &names {
        plain(key, name)?;
    }
    // Existing servers need none.
    if names.is_empty() && variants.is_empty() {
        return missing("lab.tiers", "a lab needs a tier or a `[[variant]]`");
    }
    Ok(names)
}

/// Refuses a tier without a file beside those of other tiers. Without the folder, the server's config is missing too.
fn has_siblings(key: &str, name: &str, file: &Path) -> Result<(), Fault> {
    let Some(entries) = file.parent().and_then(|folder| folder.read_dir().ok()) else {
        return Ok(());
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let tiers = paths.filter(|path| path.extension().is_some_and(|kind| kind == "toml"));
    let mut there: Vec<String> = tiers
        .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
        .collect();
    there.sort();
    Err(fault!(
        key,
        "no such tier `{name}`: {} does not exist; there are: {}",
        file.display(),
        there.join(", ")
    ))
}

/// Config file of a tier: `tiers/NAME.toml` beside the server's config.
fn tier_file(server_config: &Path, tier: &str) -> PathBuf {
    let beside = server_config.parent().unwrap_or_else(|| Path::new(""));
    beside.join("tiers").join(format!("{tier}.toml"))
}

/// Kind in a tier's file; its name without such a file, which is an error later.
fn kind(file: &Path, name: &str) -> String {
    #[derive(serde::Deserialize)]
    struct OfKind {
        kind: String,
    }
    let text = std::fs::read_to_string(file).unwrap_or_default();
    toml::from_str::<OfKind>(&text).map_or_else(|_| name.to_owned(), |tier| tier.kind)
}

/// Each tier in each cache state, named for the answer of a question.
fn every_pair(tiers: &[TierPlan], caches: &[CacheState], are_named: bool) -> Vec<VariantPlan> {
    let pair = |tier: &TierPlan, cache: &CacheState| {
        let name = match are_named {
            true => format!("{}-{}", tier.name, cache.name),
            false => String::new(),
        };
        VariantPlan::on(tier.clone(), cache.clone(), name)
    };
    tiers
        .iter()
        .flat_map(|tier| caches.iter().map(move |cache| pair(tier, cache)))
        .collect()
}

/// Refuses tiers whose page cache is on another machine, where it cannot be dropped.
fn has_files_here(key: String, tiers: &[TierPlan]) -> Result<(), Fault> {
    let here = |tier: &&TierPlan| tier.origin == Origin::Embedded || matches!(tier.kind.as_str(), "nvme" | "gds");
    match tiers.iter().find(|tier| !here(tier)) {
        None => Ok(()),
        Some(tier) => Err(fault!(
            key,
            "\"dropped\" is for files on this machine, and those of tier `{}` are not; leave it out, or measure an \
                 embedded origin",
            tier.name
        )),
    }
}

fn cold_start(raw: &RawColdStart, has_fleet: bool) -> Result<ColdStartPlan, Fault> {
    const JITTER: &str = "lab.cold_start.jitter_s";
    if raw.ways.is_empty() {
        return empty("lab.cold_start.ways");
    }
    distinct("lab.cold_start.ways", &raw.ways)?;
    let jitter_s = match &raw.jitter_s {
        None => vec![0.0],
        Some(_) if !has_fleet => return misplaced(JITTER, "a `[fleet]` of servers that start together"),
        Some(seconds) if seconds.is_empty() => return empty(JITTER),
        Some(seconds) => seconds.clone(),
    };
    for (i, seconds) in jitter_s.iter().enumerate() {
        within(&format!("{JITTER}[{i}]"), *seconds, 0.0, 600.0)?;
    }
    distinct(JITTER, &jitter_s)?;
    Ok(ColdStartPlan {
        repeats: raw.repeats,
        ways: raw.ways.clone(),
        page_cache: raw.page_cache,
        jitter_s,
    })
}

fn tier(name: &str, kind: String, raw: Option<&RawTier>) -> Result<TierPlan, Fault> {
    let served = matches!(kind.as_str(), "s3" | "nfs" | "flight");
    let origin = raw
        .and_then(|tier| tier.origin)
        .unwrap_or(if served { Origin::Embedded } else { Origin::Real });
    if origin == Origin::Embedded && !served {
        refuse!(
            format!("lab.tier.{name}.origin"),
            "only tiers of kind `s3`, `nfs` and `flight` have an embedded origin"
        );
    }
    Ok(TierPlan {
        name: name.to_owned(),
        kind,
        origin,
        publish: raw.and_then(|tier| tier.publish).unwrap_or(true),
        set: raw.map_or(Ok(Vec::new()), |tier| {
            overlays(&format!("lab.tier.{name}.set"), &tier.set)
        })?,
    })
}

fn caches(raw: &RawLab, are_needed: bool) -> Result<Vec<CacheState>, Fault> {
    if raw.cache.is_empty() && are_needed {
        return missing("lab.cache", "a lab needs at least one `[[lab.cache]]`");
    }
    let mut states: Vec<CacheState> = Vec::new();
    for (i, cache) in raw.cache.iter().enumerate() {
        let key = format!("lab.cache[{i}].name");
        plain(&key, &cache.name)?;
        if states.iter().any(|state| state.name == cache.name) {
            return duplicate(key, &cache.name);
        }
        if cache.prefill && cache.share == 0.0 {
            refuse!(
                format!("lab.cache[{i}].prefill"),
                "there is nothing to fill at `share = 0`"
            );
        }
        let at = format!("lab.cache[{i}].set");
        if cache.set.contains_key("capacity_bytes") {
            refuse!(
                format!("{at}.capacity_bytes"),
                "the state's `share` sets the capacity of its cache; leave it out"
            );
        }
        let set = overlays(&at, &cache.set)?;
        states.push(CacheState {
            name: cache.name.clone(),
            share: cache.share,
            prefill: cache.prefill,
            page_cache: cache.page_cache,
            set: set.into_iter().map(|pair| format!("cache.{pair}")).collect(),
        });
    }
    Ok(states)
}

fn data(raw: RawData, base: Base<'_>) -> Result<Data, Fault> {
    match (raw.repository, raw.features) {
        (Some(repository), Some(features)) => {
            if raw.rows.is_some() || raw.model_size.is_some() {
                refuse!(
                    "lab.data",
                    "`rows` and `model_size` are for generated data, `repository` and `features` for your own"
                );
            }
            Ok(Data::Given {
                repository: base.path(&repository),
                features: base.path(&features),
            })
        }
        (None, None) => {
            let Some(rows) = raw.rows else {
                return missing("lab.data.rows", "the number of rows of the generated table");
            };
            let model_size = raw.model_size.unwrap_or_else(|| "small".into());
            if !matches!(model_size.as_str(), "small" | "full") {
                refuse!("lab.data.model_size", "`{model_size}` is neither `small` nor `full`");
            }
            Ok(Data::Generated { rows, model_size })
        }
        (Some(_), None) => missing("lab.data.features", "it belongs to `lab.data.repository`"),
        (None, Some(_)) => missing("lab.data.repository", "it belongs to `lab.data.features`"),
    }
}

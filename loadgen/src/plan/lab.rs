//! The `[lab]` part of a plan: tiers, cache states, data, and the folder that the lab works in.

use super::Traffic;
use super::check::{Base, Source, check_pairs};
use super::fault::{Fault, conflict, distinct, duplicate, empty, fault, misplaced, missing, plain, refuse, within};
use super::raw::{RawData, RawLab, RawPlan, RawTier};
use super::storage::{CacheState, ColdStartPlan, Origin, TierPlan, at_once};
use super::variant::{self, RawVariant, VariantPlan};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tierlab_analysis::record::{ColdWay, PageCache, Question, StageFill};
use tierlab_load::keys::KeyDistribution;

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
    /// Keys of the server's config set for every server.
    pub server_set: toml::Table,
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

/// Validates `[lab]`, with the fleet and the variants that it starts.
pub(super) fn validate(
    (plan, source): (&RawPlan, Source<'_>),
    traffic: &Traffic,
    question: Option<&Question>,
    keys: &KeyDistribution,
) -> Result<Option<LabPlan>, Fault> {
    let base = source.base;
    check_fleet(plan, traffic)?;
    let Some(raw) = &plan.lab else { return Ok(None) };
    let starts_servers = plan.variant.is_empty() || plan.variant.iter().any(|variant| !variant.is_running());
    let server_config = match &raw.server_config {
        Some(file) => base.path(file),
        None if starts_servers => return missing("lab.server_config", "the config of the servers that the lab starts"),
        None => PathBuf::new(),
    };
    let tiers = tiers(raw, &plan.variant, base, &server_config)?;
    check_caches(&raw.cache, plan.variant.is_empty())?;
    if base.is_here() {
        check_pages(raw, &tiers)?;
    }
    check_pairs("lab.server", &raw.server)?;
    let variants = match &plan.variant[..] {
        [] => every_pair(&tiers, &raw.cache, question.is_some()),
        given => {
            let asked = question.iter().map(|question| question.batch_size);
            let of_users = traffic.closed_loops.iter().map(|closed| closed.batch_size);
            let of_loads = traffic.loads.iter().map(|load| load.batch_size);
            let batch_sizes: Vec<u32> = of_loads.chain(of_users).chain(asked).collect();
            let known = variant::Known {
                source,
                tiers: &tiers,
                caches: &raw.cache,
                keys,
                batch_sizes: &batch_sizes,
            };
            variant::validate(given, &known)?
        }
    };
    if let Some(cold_start) = &raw.cold_start {
        check_cold_start(cold_start, plan, &variants, starts_servers)?;
    }
    Ok(Some(LabPlan {
        tiers,
        variants,
        cold_start: raw.cold_start.clone(),
        data: match starts_servers {
            true => data(&raw.data, base)?,
            false => Data::None,
        },
        work: base.path(&raw.work),
        server_config,
        ready_timeout: Duration::from_secs(raw.ready_timeout_s.into()),
        server_set: raw.server.clone(),
    }))
}

/// Refuses a fleet that no lab starts, or whose servers cannot take turns.
fn check_fleet(plan: &RawPlan, traffic: &Traffic) -> Result<(), Fault> {
    if plan.fleet.is_none() {
        return Ok(());
    }
    if plan.lab.is_none() {
        return misplaced("fleet", "servers that a lab starts, in a `[lab]`");
    }
    if !traffic.closed_loops.is_empty() || !traffic.journeys.is_empty() {
        refuse!(
            "fleet",
            "its servers take turns at requests of a rate, and users and journeys stay with one; leave them out"
        );
    }
    if plan.variant.iter().all(RawVariant::is_running) {
        refuse!(
            "fleet",
            "the lab starts its servers, so it needs a `[[variant]]` with a `tier`"
        );
    }
    if plan.question.is_some() {
        return conflict(
            "fleet",
            "question",
            "a question finds the number of instances by itself; leave one of them out",
        );
    }
    Ok(())
}

/// Refuses cold starts that no variant can make.
fn check_cold_start(
    cold_start: &ColdStartPlan,
    plan: &RawPlan,
    variants: &[VariantPlan],
    starts_servers: bool,
) -> Result<(), Fault> {
    const JITTER: &str = "lab.cold_start.jitter_s";
    if cold_start.ways.is_empty() {
        return empty("lab.cold_start.ways");
    }
    distinct("lab.cold_start.ways", &cold_start.ways)?;
    if cold_start.jitter_s.is_empty() {
        return empty(JITTER);
    }
    if cold_start.jitter_s != at_once() && plan.fleet.is_none() {
        return misplaced(JITTER, "a `[fleet]` of servers that start together");
    }
    for (i, seconds) in cold_start.jitter_s.iter().enumerate() {
        within(&format!("{JITTER}[{i}]"), *seconds, 0.0, 600.0)?;
    }
    distinct(JITTER, &cold_start.jitter_s)?;
    if !starts_servers {
        return misplaced(
            "lab.cold_start",
            "servers that the lab starts, and every variant is an existing one",
        );
    }
    let stages_empty = |variant: &&VariantPlan| variant.staged.is_some_and(|stage| stage.fill == StageFill::Empty);
    match variants.iter().find(stages_empty) {
        Some(variant) if cold_start.ways.contains(&ColdWay::Load) => Err(fault!(
            "lab.cold_start.ways",
            "a running server has staged its model already, so variant `{}` has no `load` from an empty stage; measure it by \
                 `restart`",
            variant.name
        )),
        _ => Ok(()),
    }
}

/// Tiers of the plan. In a plan of this host, each needs its file.
fn tiers(raw: &RawLab, variants: &[RawVariant], base: Base<'_>, server_config: &Path) -> Result<Vec<TierPlan>, Fault> {
    let names = tier_names(raw, variants)?;
    if let Some(stray) = raw.tier.keys().find(|tier| names.iter().all(|(name, _)| name != tier)) {
        refuse!(format!("lab.tier.{stray}"), "not in `lab.tiers`");
    }
    let mut tiers = Vec::new();
    for (name, key) in names {
        let file = tier_file(server_config, name);
        if base.is_here() && !file.is_file() {
            has_siblings(&key, name, &file)?;
        }
        let kind = kind(&file, name);
        if kind == "flight" {
            refuse!(
                key,
                "tier `{name}` has feature tables only, and a lab puts models on its tiers: start `tierlab-server --model-tier \
                     nvme --feature-tier {name}` yourself, and measure it by a `[[variant]]` with its `url`"
            );
        }
        tiers.push(tier(name, kind, raw.tier.get(name), base)?);
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

/// Refuses to drop the page cache of tiers whose files are on another machine.
fn check_pages(raw: &RawLab, tiers: &[TierPlan]) -> Result<(), Fault> {
    let of_caches = raw.cache.iter().enumerate();
    let of_caches = of_caches.map(|(i, cache)| (format!("lab.cache[{i}].page_cache"), cache.page_cache));
    let of_starts = raw.cold_start.iter();
    let of_starts = of_starts.map(|plan| ("lab.cold_start.page_cache".to_owned(), plan.page_cache));
    let mut all = of_caches.chain(of_starts);
    let Some((key, _)) = all.find(|(_, pages)| *pages == PageCache::Dropped) else {
        return Ok(());
    };
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

fn tier(name: &str, kind: String, raw: Option<&RawTier>, base: Base<'_>) -> Result<TierPlan, Fault> {
    let served = matches!(kind.as_str(), "s3" | "nfs");
    let origin = raw
        .and_then(|tier| tier.origin)
        .unwrap_or(if served { Origin::Embedded } else { Origin::Real });
    // Agents have no tiers' files, and so do not know their kinds.
    if origin == Origin::Embedded && !served && base.is_here() {
        refuse!(
            format!("lab.tier.{name}.origin"),
            "only tiers of kind `s3` and `nfs` have an embedded origin"
        );
    }
    let set = raw.map_or_else(toml::Table::new, |tier| tier.set.clone());
    check_pairs(&format!("lab.tier.{name}.set"), &set)?;
    Ok(TierPlan {
        name: name.to_owned(),
        kind,
        origin,
        publish: raw.and_then(|tier| tier.publish).unwrap_or(true),
        set,
    })
}

fn check_caches(caches: &[CacheState], are_needed: bool) -> Result<(), Fault> {
    if caches.is_empty() && are_needed {
        return missing("lab.cache", "a lab needs at least one `[[lab.cache]]`");
    }
    for (i, cache) in caches.iter().enumerate() {
        let at = |key: &str| format!("lab.cache[{i}].{key}");
        plain(&at("name"), &cache.name)?;
        if caches[..i].iter().any(|other| other.name == cache.name) {
            return duplicate(at("name"), &cache.name);
        }
        if cache.prefill && cache.share == 0.0 {
            refuse!(at("prefill"), "there is nothing to fill at `share = 0`");
        }
        if cache.set.contains_key("capacity_bytes") {
            refuse!(
                at("set.capacity_bytes"),
                "the state's `share` sets the capacity of its cache; leave it out"
            );
        }
        check_pairs(&at("set"), &cache.set)?;
    }
    Ok(())
}

fn data(raw: &RawData, base: Base<'_>) -> Result<Data, Fault> {
    match (&raw.repository, &raw.features) {
        (Some(repository), Some(features)) => {
            if raw.rows.is_some() || raw.model_size.is_some() {
                refuse!(
                    "lab.data",
                    "`rows` and `model_size` are for generated data, `repository` and `features` for your own"
                );
            }
            Ok(Data::Given {
                repository: base.path(repository),
                features: base.path(features),
            })
        }
        (None, None) => {
            let Some(rows) = raw.rows else {
                return missing("lab.data.rows", "the number of rows of the generated table");
            };
            let model_size = raw.model_size.clone().unwrap_or_else(|| "small".into());
            if !matches!(model_size.as_str(), "small" | "full") {
                refuse!("lab.data.model_size", "`{model_size}` is neither `small` nor `full`");
            }
            Ok(Data::Generated { rows, model_size })
        }
        (Some(_), None) => missing("lab.data.features", "it belongs to `lab.data.repository`"),
        (None, Some(_)) => missing("lab.data.repository", "it belongs to `lab.data.features`"),
    }
}

//! The `[lab]` part of a plan: tiers, cache states, data, and the folder that the lab works in.

use super::check::{Base, within};
use super::driven::ClosedLoopPlan;
use super::overlays::overlays;
use super::raw::{RawColdStart, RawData, RawLab};
use super::storage::{CacheState, Origin, RawFleet, TierPlan};
use super::variant::{self, RawVariant, VariantPlan};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tierlab_analysis::record::{ColdWay, PageCache, Question, StageFill};
use tierlab_formats::model::is_plain_name;
use tierlab_load::keys::KeyDistribution;
use tierlab_load::load::Load;
use tierlab_load::wire::Protocol;

/// A validated `[lab]`.
#[derive(Debug, Clone)]
pub struct LabPlan {
    /// Where data lie; what the variants read from.
    pub tiers: Vec<TierPlan>,
    /// What is measured, in order: the plan's variants, or each tier in each cache state.
    pub variants: Vec<VariantPlan>,
    /// Cold starts to measure before the loads.
    pub cold_start: Option<ColdStartPlan>,
    /// Models and tables.
    pub data: Data,
    /// Where origins, generated data and logs live.
    pub work: PathBuf,
    /// The server's config.
    pub server_config: PathBuf,
    /// How long an origin or a server may take to say that it is ready.
    pub ready_timeout: Duration,
    /// Keys of the server's config set for every server, as `--set` takes them.
    pub server_set: Vec<String>,
}

/// Cold starts of a lab.
#[derive(Debug, Clone, PartialEq)]
pub struct ColdStartPlan {
    /// Of each way on each tier.
    pub repeats: u32,
    /// How models come to be served; each once.
    pub ways: Vec<ColdWay>,
    /// The page cache below the tier's files before each.
    pub page_cache: PageCache,
    /// Seconds over which a fleet's servers start, each at a moment of its own; each way is measured with each. One 0: all at once.
    pub jitter_s: Vec<f64>,
}

/// Models and tables of a lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// None: every server runs already.
    None,
    /// Made by `tierlab-models` below the lab's folder.
    Generated {
        /// Rows of the feature table.
        rows: u64,
        /// `small` or `full`.
        model_size: String,
    },
    /// Brought along, and used as it is.
    Given {
        /// The model repository.
        repository: PathBuf,
        /// The folder of the feature tables.
        features: PathBuf,
    },
}

impl LabPlan {
    /// The config file of a tier: `tiers/NAME.toml` beside the server's config.
    #[must_use]
    pub fn tier_file(&self, tier: &str) -> PathBuf {
        let beside = self.server_config.parent().unwrap_or_else(|| Path::new(""));
        beside.join("tiers").join(format!("{tier}.toml"))
    }
}

/// What stands around a `[lab]` in its plan.
#[derive(Debug)]
pub(super) struct Around<'a> {
    pub(super) base: Base<'a>,
    pub(super) variants: &'a [RawVariant],
    pub(super) has_prices: bool,
    /// The plan's question, whose answer calls every variant by its name.
    pub(super) question: Option<&'a Question>,
    pub(super) protocol: Protocol,
    pub(super) keys: &'a KeyDistribution,
    pub(super) loads: &'a [Load],
    pub(super) closed_loops: &'a [ClosedLoopPlan],
    pub(super) fleet: Option<&'a RawFleet>,
}

pub(super) fn validate(raw: RawLab, around: &Around<'_>) -> Result<LabPlan, String> {
    let base = around.base;
    let names = tier_names(&raw, around.variants)?;
    if let Some(stray) = raw.tier.keys().find(|name| !names.contains(name)) {
        return Err(format!("`lab.tier.{stray}` is not in `lab.tiers`"));
    }
    within("lab.ready_timeout_s", raw.ready_timeout_s as f64, 1.0, 3_600.0)?;
    let starts_servers = around.variants.is_empty() || around.variants.iter().any(|variant| !variant.is_running());
    let server_config = match &raw.server_config {
        Some(file) => base.path(file),
        None if starts_servers => {
            return Err("`lab.server_config` is missing: the config of the servers that the lab starts".into());
        }
        None => PathBuf::new(),
    };
    let tiers = names
        .iter()
        .map(|name| tier(name, kind(&server_config, name), raw.tier.get(name)))
        .collect::<Result<Vec<_>, _>>()?;
    let caches = caches(&raw, around.variants.is_empty())?;
    let cold_start = raw
        .cold_start
        .as_ref()
        .map(|raw| cold_start(raw, around.fleet.is_some()))
        .transpose()?;
    let drops = caches.iter().map(|cache| cache.page_cache);
    let drops = drops.chain(cold_start.iter().map(|plan| plan.page_cache));
    if drops.into_iter().any(|pages| pages == PageCache::Dropped) {
        has_files_here(&tiers)?;
    }
    let server_set = overlays("lab.server", &raw.server)?;
    let asked = around.question.iter().map(|question| question.batch_size);
    let of_users = around.closed_loops.iter().map(|closed| closed.batch_size);
    let of_loads = around.loads.iter().map(|load| load.batch_size);
    let batch_sizes: Vec<u32> = of_loads.chain(of_users).chain(asked).collect();
    let known = variant::Known {
        tiers: &tiers,
        caches: &caches,
        has_prices: around.has_prices,
        base,
        protocol: around.protocol,
        keys: around.keys,
        batch_sizes: &batch_sizes,
        fleet: around.fleet,
    };
    if around.fleet.is_some() {
        if around.variants.iter().all(RawVariant::is_running) {
            return Err("`fleet`: the lab starts its servers, so that it needs a `[[variant]]` with a `tier`".into());
        }
        if around.question.is_some() {
            return Err(
                "`fleet` and `question` do not go together: a question finds the number of instances by itself".into(),
            );
        }
    }
    let variants = if around.variants.is_empty() {
        every_pair(&tiers, &caches, around.question.is_some())
    } else {
        variant::validate(around.variants, &known)?
    };
    leave_capacity(&tiers, &variants, &server_set)?;
    let variants_start_nothing = variants.iter().all(|variant| variant.target.is_some());
    if variants_start_nothing && cold_start.is_some() {
        return Err("`lab.cold_start` is of servers that the lab starts, and every variant runs already".into());
    }
    let stages_empty = |variant: &&VariantPlan| variant.staged.is_some_and(|stage| stage.fill == StageFill::Empty);
    if let (Some(plan), Some(variant)) = (&cold_start, variants.iter().find(stages_empty))
        && plan.ways.contains(&ColdWay::Load)
    {
        return Err(format!(
            "`lab.cold_start.ways`: a server that runs has staged its model already, and so a `load` from the empty stage of variant \
             `{}` is none; measure it by `restart`",
            variant.name
        ));
    }
    Ok(LabPlan {
        tiers,
        variants,
        cold_start,
        data: if variants_start_nothing {
            Data::None
        } else {
            data(raw.data, base)?
        },
        work: base.path(&raw.work),
        server_config,
        ready_timeout: Duration::from_secs(raw.ready_timeout_s),
        server_set,
    })
}

/// The tiers of the plan, each once: those that are named, or else those of the variants.
fn tier_names(raw: &RawLab, variants: &[RawVariant]) -> Result<Vec<String>, String> {
    let mut names: Vec<String> = Vec::new();
    for name in &raw.tiers {
        if !is_plain_name(name) {
            return Err(format!("`lab.tiers`: `{name}` is no plain name"));
        }
        if names.contains(name) {
            return Err(format!("`lab.tiers`: `{name}` stands twice"));
        }
        names.push(name.clone());
    }
    if raw.tiers.is_empty() {
        let started = variants.iter().filter(|variant| !variant.is_running());
        for tier in started.filter_map(|variant| variant.tier.as_ref()) {
            if !is_plain_name(tier) {
                return Err(format!("`variant.tier` = `{tier}` is no plain name"));
            }
            if !names.contains(tier) {
                names.push(tier.clone());
            }
        }
    }
    // Servers that run already need none.
    if names.is_empty() && variants.is_empty() {
        return Err("`lab.tiers` is empty, and there is no `[[variant]]`".into());
    }
    Ok(names)
}

/// What a tier's file says that it is; its name where there is no such file, which is an error of its own later.
fn kind(server_config: &Path, name: &str) -> String {
    #[derive(serde::Deserialize)]
    struct OfKind {
        kind: String,
    }
    let file = server_config
        .parent()
        .unwrap_or_else(|| Path::new(""))
        .join("tiers")
        .join(format!("{name}.toml"));
    let text = std::fs::read_to_string(file).unwrap_or_default();
    toml::from_str::<OfKind>(&text).map_or_else(|_| name.to_owned(), |tier| tier.kind)
}

/// Each tier in each cache state; named where a question asks about them.
fn every_pair(tiers: &[TierPlan], caches: &[CacheState], are_named: bool) -> Vec<VariantPlan> {
    let pair = |tier: &TierPlan, cache: &CacheState| VariantPlan {
        name: if are_named {
            format!("{}-{}", tier.name, cache.name)
        } else {
            String::new()
        },
        tier: tier.clone(),
        cache: cache.clone(),
        emulated: None,
        staged: None,
        layout: None,
        batching: None,
        sessions: None,
        price: None,
        instance: None,
        servers: 1,
        shared: Vec::new(),
        set: Vec::new(),
        target: None,
    };
    tiers
        .iter()
        .flat_map(|tier| caches.iter().map(move |cache| pair(tier, cache)))
        .collect()
}

/// Only this machine's page cache can be dropped.
fn has_files_here(tiers: &[TierPlan]) -> Result<(), String> {
    let here = |tier: &&TierPlan| tier.origin == Origin::Embedded || matches!(tier.kind.as_str(), "nvme" | "gds");
    match tiers.iter().find(|tier| !here(tier)) {
        None => Ok(()),
        Some(tier) => Err(format!(
            "`page_cache` = \"dropped\": the files of tier `{}` are not on this machine, so what is cached of them cannot be \
             dropped; leave it out, or measure an embedded origin",
            tier.name
        )),
    }
}

fn cold_start(raw: &RawColdStart, has_fleet: bool) -> Result<ColdStartPlan, String> {
    within("lab.cold_start.repeats", f64::from(raw.repeats), 1.0, 100.0)?;
    if raw.ways.is_empty() {
        return Err("`lab.cold_start.ways` is empty: \"load\", \"restart\" or both".into());
    }
    if let Some(twice) = raw
        .ways
        .iter()
        .enumerate()
        .find(|(i, way)| raw.ways[..*i].contains(way))
    {
        return Err(format!("`lab.cold_start.ways`: `{}` stands twice", twice.1));
    }
    let jitter_s = match &raw.jitter_s {
        None => vec![0.0],
        Some(_) if !has_fleet => {
            return Err(
                "`lab.cold_start.jitter_s` is of servers that start together, and there is no `[fleet]` of them".into(),
            );
        }
        Some(seconds) if seconds.is_empty() => return Err("`lab.cold_start.jitter_s` is an empty list".into()),
        Some(seconds) => seconds.clone(),
    };
    for (i, seconds) in jitter_s.iter().enumerate() {
        within("lab.cold_start.jitter_s", *seconds, 0.0, 600.0)?;
        if jitter_s[..i].contains(seconds) {
            return Err(format!("`lab.cold_start.jitter_s`: {seconds} stands twice"));
        }
    }
    Ok(ColdStartPlan {
        repeats: raw.repeats,
        ways: raw.ways.clone(),
        page_cache: raw.page_cache,
        jitter_s,
    })
}

fn tier(name: &str, kind: String, raw: Option<&crate::plan::raw::RawTier>) -> Result<TierPlan, String> {
    let served = matches!(kind.as_str(), "s3" | "nfs" | "flight");
    let origin = raw
        .and_then(|tier| tier.origin)
        .unwrap_or(if served { Origin::Embedded } else { Origin::Real });
    if origin == Origin::Embedded && !served {
        return Err(format!(
            "`lab.tier.{name}.origin` = \"embedded\": only tiers of kind `s3`, `nfs` and `flight` have an embedded origin"
        ));
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

/// Refuses settings of what a cache state is made of: they would go before it, and every state would be the same.
fn leave_capacity(tiers: &[TierPlan], variants: &[VariantPlan], server_set: &[String]) -> Result<(), String> {
    let key = |pair: &str| pair.split_once('=').map_or("", |(key, _)| key).trim().to_owned();
    let of_tiers = tiers.iter().flat_map(|tier| {
        let at = format!("lab.tier.{}.set", tier.name);
        tier.set.iter().map(move |pair| (at.clone(), key(pair)))
    });
    let of_server = server_set.iter().map(|pair| ("lab.server".to_owned(), key(pair)));
    let of_variants = variants.iter().flat_map(|variant| {
        let at = format!("variant.{}.set", variant.name);
        variant.set.iter().map(move |pair| (at.clone(), key(pair)))
    });
    for (at, key) in of_tiers.chain(of_server).chain(of_variants) {
        if format!(".{key}").ends_with(".cache.capacity_bytes") {
            return Err(format!(
                "`{at}` sets `{key}`: a lab chooses the cache's capacity by `[[lab.cache]]`, whose `share` is of the table"
            ));
        }
    }
    Ok(())
}

fn caches(raw: &RawLab, are_needed: bool) -> Result<Vec<CacheState>, String> {
    if raw.cache.is_empty() && are_needed {
        return Err("`[[lab.cache]]` is missing: a lab needs at least one cache state".into());
    }
    let mut states: Vec<CacheState> = Vec::new();
    for (i, cache) in raw.cache.iter().enumerate() {
        if !is_plain_name(&cache.name) {
            return Err(format!("`lab.cache[{i}].name` = `{}` is no plain name", cache.name));
        }
        if states.iter().any(|state| state.name == cache.name) {
            return Err(format!("`lab.cache[{i}].name` = `{}` stands twice", cache.name));
        }
        within(&format!("lab.cache[{i}].share"), cache.share, 0.0, 10.0)?;
        if cache.prefill && cache.share == 0.0 {
            return Err(format!(
                "`lab.cache[{i}].prefill`: there is nothing to fill at `share = 0`"
            ));
        }
        let at = format!("lab.cache[{i}].set");
        if cache.set.contains_key("capacity_bytes") {
            return Err(format!(
                "`{at}.capacity_bytes`: a state's `share` says how large its cache is"
            ));
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

fn data(raw: RawData, base: Base<'_>) -> Result<Data, String> {
    match (raw.repository, raw.features) {
        (Some(repository), Some(features)) => {
            if raw.rows.is_some() || raw.model_size.is_some() {
                return Err(
                    "`lab.data`: `rows` and `model_size` are for generated data, `repository` and `features` for your own"
                        .into(),
                );
            }
            Ok(Data::Given {
                repository: base.path(&repository),
                features: base.path(&features),
            })
        }
        (None, None) => {
            let rows = raw
                .rows
                .ok_or("`lab.data.rows` is missing: how many rows has the table?")?;
            within("lab.data.rows", rows as f64, 1.0, 1e9)?;
            let model_size = raw.model_size.unwrap_or_else(|| "small".into());
            if !matches!(model_size.as_str(), "small" | "full") {
                return Err(format!(
                    "`lab.data.model_size` = `{model_size}` is neither `small` nor `full`"
                ));
            }
            Ok(Data::Generated { rows, model_size })
        }
        (Some(_), None) => Err("`lab.data.features` is missing beside `lab.data.repository`".into()),
        (None, Some(_)) => Err("`lab.data.repository` is missing beside `lab.data.features`".into()),
    }
}

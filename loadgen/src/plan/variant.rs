//! `[[variant]]`: one way to keep models and features. In: TOML, whose factors may be lists that are crossed. Out: variants,
//! each with a name of its own. Knows nothing of servers.

use super::check::{Base, within};
use super::overlays::overlays;
use super::storage::{CacheState, Origin, RawFleet, TierPlan};
use super::target::{self, RawTarget, TargetPlan};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use tierlab_analysis::record::StageFill;
use tierlab_formats::model::is_plain_name;
use tierlab_load::endpoint::Address;
use tierlab_load::keys::KeyDistribution;
use tierlab_load::wire::Protocol;

/// Bytes that a stage may hold where the plan does not say: more than the lab's own tables.
const STAGED_BYTES: u64 = 1 << 30;
/// More variants are a mistake in the factors.
const MOST: usize = 64;

/// The layout of tables that are files of rows, as they are published.
const ROWS: &str = "rows";

/// The tier of a server that has none, or does not say.
pub const NO_TIER: &str = "none";

/// One variant of a lab: a server that is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct VariantPlan {
    /// Its name; empty where the plan has no variants, and tier and cache state say all.
    pub name: String,
    /// Where its data lie.
    pub tier: TierPlan,
    /// Its cache.
    pub cache: CacheState,
    /// The profile of a remote service that is emulated over its tier, or the file of a recorded one.
    pub emulated: Option<String>,
    /// Its copy on a local folder.
    pub staged: Option<Stage>,
    /// How its feature tables lie; as files of rows where the plan does not say.
    pub layout: Option<String>,
    /// Rows of one run at most; 0 is each request alone, and what the model's config says where the plan does not say.
    pub batching: Option<u32>,
    /// Cores that sessions are fitted to; 1 where the plan does not say.
    pub sessions: Option<u32>,
    /// The entry of the price list that its tier is charged by.
    pub price: Option<String>,
    /// The instance type that it is priced on.
    pub instance: Option<String>,
    /// Servers that take turns and share the tier; 1 is no fleet.
    pub servers: u32,
    /// Keys of an emulated service that all servers share, as `KEY=VALUE`.
    pub shared: Vec<String>,
    /// Keys of the server's config, as `KEY=VALUE`.
    pub set: Vec<String>,
    /// The server, where somebody runs it already and the lab starts none.
    pub target: Option<Box<TargetPlan>>,
}

impl VariantPlan {
    /// What prices, origins and labels are kept by.
    #[must_use]
    pub fn label(&self) -> &str {
        if self.name.is_empty() {
            &self.tier.name
        } else {
            &self.name
        }
    }

    /// The layout that its tables are to be written in; `None` where they are files of rows.
    #[must_use]
    pub fn laid_out(&self) -> Option<&str> {
        self.layout.as_deref().filter(|&layout| layout != ROWS)
    }

    /// The variant's or the pair's name, as files and messages call it.
    #[must_use]
    pub fn file_name(&self) -> String {
        if self.name.is_empty() {
            format!("{}-{}", self.tier.name, self.cache.name)
        } else {
            self.name.clone()
        }
    }
}

/// A copy on a local folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stage {
    /// What it holds when measuring begins.
    pub fill: StageFill,
    /// Whether all servers of a fleet share it, as processes of one host do; else each is a host of its own.
    pub is_shared: bool,
    /// Maximum bytes.
    pub capacity_bytes: u64,
}

/// `[[variant]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawVariant {
    name: String,
    #[serde(default)]
    pub(super) tier: Option<String>,
    /// The address of a server that runs already, in place of `tier`: the lab starts none for it. How it is asked stands in
    /// [variant.target].
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    pub(super) target: Option<RawTarget>,
    #[serde(default)]
    emulated: Option<Factor<String>>,
    #[serde(default)]
    staged: Option<Factor<RawStaged>>,
    #[serde(default)]
    staged_bytes: Option<u64>,
    #[serde(default)]
    cache: Option<Factor<String>>,
    #[serde(default)]
    layout: Option<Factor<String>>,
    #[serde(default)]
    batching: Option<Factor<RawBatching>>,
    #[serde(default)]
    sessions: Option<Factor<u32>>,
    #[serde(default)]
    price: Option<String>,
    #[serde(default)]
    instance: Option<Factor<String>>,
    #[serde(default)]
    set: BTreeMap<String, toml::Value>,
}

/// One value, or several that are crossed with those of the other factors.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Factor<T> {
    One(T),
    Several(Vec<T>),
}

/// `staged`: what the stage holds, or that there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawStaged {
    None,
    Empty,
    Filled,
    /// Empty, and one of all servers of a fleet.
    Shared,
}

impl Display for RawStaged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "unstaged",
            Self::Empty => "stage-empty",
            Self::Filled => "stage-filled",
            Self::Shared => "stage-shared",
        })
    }
}

/// `batching`: rows of one run at most; 0 is none.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(transparent)]
struct RawBatching {
    rows: u32,
}

impl Display for RawBatching {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.rows {
            0 => f.write_str("unbatched"),
            rows => write!(f, "batches-of-{rows}"),
        }
    }
}

/// A level of a factor, and what the variant's name gets of it: nothing where it is the only one.
#[derive(Debug, Clone)]
struct Level<T> {
    value: Option<T>,
    suffix: String,
}

fn levels<T: Clone + Display>(at: &str, factor: Option<&Factor<T>>) -> Result<Vec<Level<T>>, String> {
    let one = |value: Option<T>| {
        vec![Level {
            value,
            suffix: String::new(),
        }]
    };
    match factor {
        None => Ok(one(None)),
        Some(Factor::One(value)) => Ok(one(Some(value.clone()))),
        Some(Factor::Several(values)) if values.is_empty() => Err(format!("`{at}` is an empty list")),
        Some(Factor::Several(values)) => Ok(values
            .iter()
            .map(|value| Level {
                value: Some(value.clone()),
                suffix: format!("-{}", value.to_string().replace('/', "-")),
            })
            .collect()),
    }
}

/// What variants refer to.
#[derive(Debug)]
pub(super) struct Known<'a> {
    pub(super) tiers: &'a [TierPlan],
    pub(super) caches: &'a [CacheState],
    pub(super) has_prices: bool,
    /// The plan's folder.
    pub(super) base: Base<'a>,
    /// What the plan sends over.
    pub(super) protocol: Protocol,
    /// Which entities it asks for.
    pub(super) keys: &'a KeyDistribution,
    /// How many servers each variant is measured with.
    pub(super) fleet: Option<&'a RawFleet>,
    /// Rows that every request is to have: those of the question and of the loads.
    pub(super) batch_sizes: &'a [u32],
}

impl RawVariant {
    /// Whether somebody runs its server already.
    pub(super) const fn is_running(&self) -> bool {
        self.url.is_some() || self.target.is_some()
    }
}

/// Every variant, factors crossed, in the plan's order.
pub(super) fn validate(raw: &[RawVariant], known: &Known<'_>) -> Result<Vec<VariantPlan>, String> {
    let mut all: Vec<VariantPlan> = Vec::new();
    for (index, raw) in raw.iter().enumerate() {
        for variant in crossed(raw, index, known)? {
            if let Some(same) = all.iter().find(|other| other.name == variant.name) {
                return Err(format!(
                    "`variant[{index}].name`: two variants are called `{}`",
                    same.name
                ));
            }
            let unnamed = |variant: &VariantPlan| VariantPlan {
                name: String::new(),
                ..variant.clone()
            };
            if let Some(same) = all.iter().find(|other| unnamed(other) == unnamed(&variant)) {
                return Err(format!(
                    "`variant[{index}]`: `{}` and `{}` are the same but for their names",
                    same.name, variant.name
                ));
            }
            all.push(variant);
        }
        if all.len() > MOST {
            return Err(format!(
                "`variant`: {} variants with all factors crossed; {MOST} at most",
                all.len()
            ));
        }
    }
    Ok(all)
}

fn crossed(raw: &RawVariant, index: usize, known: &Known<'_>) -> Result<Vec<VariantPlan>, String> {
    let at = |key: &str| format!("variant[{index}].{key}");
    let target = target(raw, index, known)?.map(Box::new);
    let tier = match &target {
        Some(target) => tier_of(target),
        None => known_tier(raw, &at("tier"), known)?,
    };
    let base = VariantPlan {
        name: raw.name.clone(),
        tier,
        cache: CacheState::none(),
        emulated: None,
        staged: None,
        layout: None,
        batching: None,
        sessions: None,
        price: raw.price.clone(),
        instance: None,
        servers: 1,
        shared: known.fleet.map_or_else(Vec::new, RawFleet::shared_limits),
        set: overlays(&at("set"), &raw.set)?,
        target,
    };
    let is_running = base.target.is_some();
    let mut variants = vec![base];
    cross(
        &mut variants,
        &levels(&at("emulated"), raw.emulated.as_ref())?,
        |variant, name| {
            variant.emulated = Some(profile(known.base, name));
        },
    );
    let cache = |level: Level<String>| {
        let state = cache_state(&at("cache"), level.value.as_deref(), known)?;
        Ok(Level {
            value: Some(state),
            suffix: level.suffix,
        })
    };
    let caches = levels(&at("cache"), raw.cache.as_ref())?.into_iter().map(cache);
    cross(
        &mut variants,
        &caches.collect::<Result<Vec<_>, String>>()?,
        |variant, state| {
            variant.cache = state.clone();
        },
    );
    cross(
        &mut variants,
        &levels(&at("staged"), raw.staged.as_ref())?,
        |variant, staged| {
            variant.staged = stage(*staged, raw.staged_bytes);
        },
    );
    cross(
        &mut variants,
        &levels(&at("layout"), raw.layout.as_ref())?,
        |variant, layout| {
            variant.layout = Some(layout.clone());
        },
    );
    cross(
        &mut variants,
        &levels(&at("batching"), raw.batching.as_ref())?,
        |variant, batching| {
            variant.batching = Some(batching.rows);
        },
    );
    cross(
        &mut variants,
        &levels(&at("sessions"), raw.sessions.as_ref())?,
        |variant, cores| {
            variant.sessions = Some(*cores);
        },
    );
    cross(
        &mut variants,
        &levels(&at("instance"), raw.instance.as_ref())?,
        |variant, instance| {
            variant.instance = Some(instance.clone());
        },
    );
    cross(&mut variants, &fleet_sizes(is_running, known)?, |variant, servers| {
        variant.servers = *servers;
    });
    for variant in &variants {
        check(variant, raw, index, known)?;
    }
    Ok(variants)
}

/// Makes of each variant one for each level of a factor.
fn cross<T>(variants: &mut Vec<VariantPlan>, levels: &[Level<T>], set: impl Fn(&mut VariantPlan, &T)) {
    let of = |variant: &VariantPlan, level: &Level<T>| {
        let mut variant = variant.clone();
        variant.name += &level.suffix;
        if let Some(value) = &level.value {
            set(&mut variant, value);
        }
        variant
    };
    let crossed = variants
        .iter()
        .flat_map(|variant| levels.iter().map(|level| of(variant, level)));
    *variants = crossed.collect();
}

/// A server that runs already is one.
fn fleet_sizes(is_running: bool, known: &Known<'_>) -> Result<Vec<Level<u32>>, String> {
    let Some(fleet) = known.fleet.filter(|_| !is_running) else {
        return levels("", None);
    };
    let level = |&servers: &u32| Level {
        value: Some(servers),
        suffix: format!("-{servers}-server{}", if servers == 1 { "" } else { "s" }),
    };
    Ok(fleet.sizes()?.iter().map(level).collect())
}

/// A profile's name as it is; the file of a recorded one from the plan's folder.
fn profile(base: Base<'_>, name: &str) -> String {
    if name.ends_with(".toml") {
        base.path(Path::new(name)).display().to_string()
    } else {
        name.to_owned()
    }
}

fn known_tier(raw: &RawVariant, at: &str, known: &Known<'_>) -> Result<TierPlan, String> {
    let Some(name) = &raw.tier else {
        return Err(format!(
            "`{at}` is missing: the tier that a server is started with, or `url` of one that runs already"
        ));
    };
    let tier = known.tiers.iter().find(|tier| tier.name == *name);
    tier.cloned()
        .ok_or_else(|| format!("`{at}` = `{name}` is not in `lab.tiers`"))
}

/// What the results of a running server are kept by.
fn tier_of(target: &TargetPlan) -> TierPlan {
    let name = target.tier.clone().unwrap_or_else(|| NO_TIER.to_owned());
    TierPlan {
        kind: name.clone(),
        name,
        origin: Origin::Real,
        publish: false,
        set: Vec::new(),
    }
}

/// The server of a variant that somebody runs already.
fn target(raw: &RawVariant, index: usize, known: &Known<'_>) -> Result<Option<TargetPlan>, String> {
    if !raw.is_running() {
        return Ok(None);
    }
    let at = |key: &str| format!("`variant[{index}].{key}`");
    let of_started = [
        ("emulated", raw.emulated.is_some()),
        ("staged", raw.staged.is_some()),
        ("staged_bytes", raw.staged_bytes.is_some()),
        ("cache", raw.cache.is_some()),
        ("layout", raw.layout.is_some()),
        ("batching", raw.batching.is_some()),
        ("sessions", raw.sessions.is_some()),
        ("set", !raw.set.is_empty()),
    ];
    if let Some((key, _)) = of_started.into_iter().find(|(_, is_given)| *is_given) {
        return Err(format!(
            "{}: variant `{}` is a server that runs already, by its `url`; the lab starts none for it and changes nothing of it",
            at(key),
            raw.name
        ));
    }
    let place = target::Place {
        at: &format!("variant[{index}].target"),
        base: known.base,
        protocol: known.protocol,
        keys: known.keys,
    };
    let given = target::validate(raw.target.clone().unwrap_or_default(), &place)?;
    if given.url.is_some() && raw.url.is_some() {
        return Err(format!("{} and {}: one of them", at("url"), at("target.url")));
    }
    if raw.tier.is_some() && given.tier.is_some() {
        return Err(format!("{} and {}: one of them", at("tier"), at("target.tier")));
    }
    if let Some(url) = &raw.url {
        Address::parse(url).map_err(|error| format!("{}: {error}", at("url")))?;
    }
    let given = given.with(TargetPlan {
        url: raw.url.clone(),
        tier: raw.tier.clone(),
        price: raw.price.clone(),
        ..TargetPlan::default()
    });
    if given.url.is_none() {
        return Err(format!("{} is missing: where is the server?", at("url")));
    }
    if known.protocol == Protocol::Grpc && given.grpc_url.is_none() {
        return Err(format!(
            "{} is missing: the plan's `protocol` is \"grpc\", and the lab does not know where this server speaks it",
            at("target.grpc_url")
        ));
    }
    if let Some(custom) = &given.custom {
        target::carries(custom, known.batch_sizes).map_err(|what| format!("{}: {what}", at("target")))?;
    }
    Ok(Some(given))
}

fn cache_state(at: &str, name: Option<&str>, known: &Known<'_>) -> Result<CacheState, String> {
    let Some(name) = name else {
        return Ok(CacheState::none());
    };
    let state = known.caches.iter().find(|state| state.name == name).cloned();
    match (state, name) {
        (Some(state), _) => Ok(state),
        (None, "cold") => Ok(CacheState::none()),
        (None, _) => Err(format!("`{at}` = `{name}`: no `[[lab.cache]]` has that name")),
    }
}

const fn stage(staged: RawStaged, bytes: Option<u64>) -> Option<Stage> {
    let fill = match staged {
        RawStaged::None => return None,
        RawStaged::Empty | RawStaged::Shared => StageFill::Empty,
        RawStaged::Filled => StageFill::Filled,
    };
    let capacity_bytes = match bytes {
        Some(bytes) => bytes,
        None => STAGED_BYTES,
    };
    Some(Stage {
        fill,
        is_shared: matches!(staged, RawStaged::Shared),
        capacity_bytes,
    })
}

/// Refuses what contradicts itself, by the variant's name.
fn check(variant: &VariantPlan, raw: &RawVariant, index: usize, known: &Known<'_>) -> Result<(), String> {
    let name = &variant.name;
    let at = |key: &str| format!("variant[{index}].{key}");
    if variant.staged.is_some_and(|stage| stage.is_shared) && known.fleet.is_none() {
        return Err(format!(
            "`{}` = \"shared\": one stage of several servers, and there is no `[fleet]` of them",
            at("staged")
        ));
    }
    if !is_plain_name(name) {
        return Err(format!(
            "`{}` = `{name}` is no plain name (letters, digits, `.`, `_`, `-`)",
            at("name")
        ));
    }
    if let Some(layout) = variant.layout.as_deref().filter(|layout| !is_plain_name(layout)) {
        return Err(format!("`{}` = `{layout}` is no layout", at("layout")));
    }
    if let Some(rows) = variant.batching {
        within(&at("batching"), f64::from(rows), 0.0, 1_000_000.0)?;
    }
    if let Some(sessions) = variant.sessions {
        within(&at("sessions"), f64::from(sessions), 1.0, 1_024.0)?;
    }
    if raw.staged_bytes.is_some() && raw.staged.is_none() {
        return Err(format!(
            "`{}`: variant `{name}` has no stage; set `staged` to \"empty\" or \"filled\"",
            at("staged_bytes")
        ));
    }
    if variant.emulated.is_some()
        && variant.tier.origin == Origin::Real
        && matches!(variant.tier.name.as_str(), "s3" | "nfs" | "flight")
    {
        return Err(format!(
            "`{}`: variant `{name}` would emulate a service over the real tier `{}`, whose own latency adds to it",
            at("emulated"),
            variant.tier.name
        ));
    }
    if variant.staged.is_some() && variant.tier.kind == "memory" {
        return Err(format!(
            "`{}`: variant `{name}` would keep a copy of what is in memory on a disk",
            at("staged")
        ));
    }
    if !known.has_prices && (variant.price.is_some() || variant.instance.is_some()) {
        return Err(format!(
            "`{}`: variant `{name}` is priced, but the plan has no `prices`",
            at("price")
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<VariantPlan>, String> {
        #[derive(Deserialize)]
        struct File {
            variant: Vec<RawVariant>,
        }
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        let tier = |name: &str, origin| TierPlan {
            name: name.into(),
            kind: name.into(),
            origin,
            publish: true,
            set: Vec::new(),
        };
        let warm = CacheState {
            name: "warm".into(),
            share: 0.2,
            prefill: true,
            ..CacheState::none()
        };
        validate(
            &file.variant,
            &Known {
                tiers: &[
                    tier("s3", Origin::Embedded),
                    tier("nvme", Origin::Real),
                    tier("memory", Origin::Real),
                ],
                caches: &[warm],
                has_prices: true,
                base: Base::here(Path::new("")),
                protocol: Protocol::Http,
                keys: &KeyDistribution::Uniform,
                batch_sizes: &[1],
                fleet: None,
            },
        )
    }

    #[test]
    fn layouts_and_batches_are_factors() {
        let all = read(
            "[[variant]]\nname = \"a\"\ntier = \"nvme\"\nlayout = [\"rows\", \"tar\"]\nbatching = [0, 32]\n[[variant]]\n\
             name = \"b\"\ntier = \"nvme\"\nlayout = \"rows\"\nbatching = 8",
        )
        .unwrap();
        let found: Vec<_> = all
            .iter()
            .map(|variant| (variant.name.as_str(), variant.laid_out(), variant.batching))
            .collect();
        assert_eq!(
            found,
            [
                ("a-rows-unbatched", None, Some(0)),
                ("a-rows-batches-of-32", None, Some(32)),
                ("a-tar-unbatched", Some("tar"), Some(0)),
                ("a-tar-batches-of-32", Some("tar"), Some(32)),
                ("b", None, Some(8)),
            ]
        );
        let refused = read("[[variant]]\nname = \"a\"\ntier = \"nvme\"\nlayout = \"a/b\"").unwrap_err();
        assert!(
            refused.contains("variant[0].layout") && refused.contains("a/b"),
            "{refused}"
        );
        assert!(read("[[variant]]\nname = \"a\"\ntier = \"nvme\"\nbatching = 2000000").is_err());
    }

    #[test]
    fn factors_are_crossed_and_name_their_levels() {
        let all = read(
            "[[variant]]\nname = \"s3\"\ntier = \"s3\"\nemulated = [\"s3-standard\", \"s3-express\"]\ncache = [\"cold\", \
             \"warm\"]\nstaged = \"filled\"\n[[variant]]\nname = \"local\"\ntier = \"nvme\"",
        )
        .unwrap();
        let names: Vec<&str> = all.iter().map(|variant| variant.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "s3-s3-standard-cold",
                "s3-s3-standard-warm",
                "s3-s3-express-cold",
                "s3-s3-express-warm",
                "local"
            ]
        );
        assert!(
            all[..4]
                .iter()
                .all(|variant| variant.staged.unwrap().fill == StageFill::Filled)
        );
        assert_eq!(all[4].cache.share, 0.0);
        assert_eq!((all[1].cache.share, all[2].cache.share), (0.2, 0.0));
    }

    #[test]
    fn a_recorded_profile_lies_beside_the_plan() {
        assert_eq!(profile(Base::here(Path::new("plans")), "s3-express"), "s3-express");
        assert_eq!(
            profile(Base::here(Path::new("plans")), "mine/bucket.toml"),
            "plans/mine/bucket.toml"
        );
        assert_eq!(
            profile(Base::here(Path::new("plans")), "/data/bucket.toml"),
            "/data/bucket.toml"
        );
    }

    #[test]
    fn a_running_server_is_a_variant_by_its_address() {
        let all = read(
            "[[variant]]\nname = \"triton\"\nurl = \"http://h:8000\"\ninstance = [\"a\", \"b\"]\n[variant.target]\nmetrics = []\n\
             [[variant]]\nname = \"local\"\ntier = \"nvme\"",
        )
        .unwrap();
        let names: Vec<&str> = all.iter().map(|variant| variant.name.as_str()).collect();
        assert_eq!(names, ["triton-a", "triton-b", "local"]);
        let target = all[0].target.as_deref().unwrap();
        assert_eq!(
            (target.url.as_deref(), &target.metrics),
            (Some("http://h:8000"), &Some(vec![]))
        );
        assert_eq!(all[0].tier.name, NO_TIER);
        assert!(all[2].target.is_none());
    }

    #[test]
    fn contradictions_are_refused_by_name() {
        for (text, says) in [
            ("name = \"a\"", "`url` of one that runs already"),
            ("name = \"a\"\nurl = \"h\"", "`variant[0].url`"),
            ("name = \"a\"\nurl = \"http://h\"\ncache = \"warm\"", "runs already"),
            (
                "name = \"a\"\n[variant.target]\nca = \"x\"",
                "`variant[0].url` is missing",
            ),
            (
                "name = \"a\"\nurl = \"http://h\"\n[variant.target]\nkind = \"http\"\npath = \"/p\"\nrows_per_request = 4",
                "rows_per_request",
            ),
            ("name = \"a\"\ntier = \"tape\"", "`tape` is not in `lab.tiers`"),
            ("name = \"a\"\ntier = \"s3\"\ncache = \"hot\"", "no `[[lab.cache]]`"),
            ("name = \"a b\"\ntier = \"s3\"", "no plain name"),
            ("name = \"a\"\ntier = \"s3\"\nstaged_bytes = 5", "`a` has no stage"),
            (
                "name = \"a\"\ntier = \"memory\"\nstaged = \"empty\"",
                "copy of what is in memory",
            ),
            ("name = \"a\"\ntier = \"s3\"\ncache = []", "empty list"),
            (
                "name = \"a\"\ntier = \"s3\"\n[[variant]]\nname = \"b\"\ntier = \"s3\"",
                "`a` and `b` are the same",
            ),
            (
                "name = \"a\"\ntier = \"s3\"\n[[variant]]\nname = \"a\"\ntier = \"nvme\"",
                "two variants are called `a`",
            ),
        ] {
            let error = read(&format!("[[variant]]\n{text}")).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}

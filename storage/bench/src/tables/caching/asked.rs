//! The plan of a comparison of caches. In: TOML, and flags over it. Out: what is measured, checked.

use super::options::Options;
use super::price::{Prices, RawPrice};
use super::strategy::{Kind, Ram, Strategy, Unit};
use super::trace::Law;
use crate::plan::{Size, bad_usage, check_name};
use crate::tables::plan::{Common, Found, PricedTier, check_counts, check_once, check_within, find, tiers};
use anyhow::Result;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tierlab_storage::TierConfig;
use tierlab_storage::wrappers::cache::Policy;

/// The whole table lies in memory too, to hold every row against.
const MOST_TABLE_BYTES: u64 = 1 << 30;
/// Steps of a run at most: it would take days, and a slip of the pen makes as many.
const MOST_STEPS: u64 = 100_000;
/// A value stands for every look-up of a trace and of every round.
const MOST_LOOKUPS: u64 = 10_000_000;

/// A plan as its TOML has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    /// Its name, which folders of results begin with.
    name: String,
    /// Names every random choice: the table, traces, order.
    #[serde(default = "one")]
    seed: u64,
    /// Rounds, in each of which everything is measured once, with a trace of its own.
    #[serde(default = "five")]
    repeats: u32,
    /// Rows of the table.
    #[serde(default = "rows")]
    rows: u32,
    /// Bytes of a row: a power of two.
    #[serde(default = "row_bytes")]
    row_bytes: Size,
    /// Look-ups that are measured in a repeat, beginning with nothing cached.
    #[serde(default = "lookups")]
    lookups: u32,
    /// Look-ups of the same traces that hit ratios are computed over; at least `lookups`.
    #[serde(default = "trace_lookups")]
    trace_lookups: u32,
    /// Look-ups on their way at the same time.
    #[serde(default = "thirty_two")]
    depth: usize,
    /// A repeat ends after so many seconds, with what it has.
    #[serde(default = "twenty_seconds")]
    seconds: f64,
    /// How popular rows are.
    laws: Vec<Law>,
    /// Which ways of caching are measured; all where left out.
    #[serde(default = "all")]
    strategies: Vec<Kind>,
    /// Sizes of a cache in memory that are measured: shares of the table's bytes.
    #[serde(default = "tenth")]
    measured_shares: Vec<f64>,
    /// Sizes that hit ratios are computed for.
    #[serde(default = "shares")]
    shares: Vec<f64>,
    /// Which parts leave a full cache.
    #[serde(default = "policies")]
    policies: Vec<Policy>,
    /// What a cache in memory keeps as one: `row`, or bytes of a block.
    #[serde(default = "units")]
    units: Vec<String>,
    /// How much of the table a staged copy may hold.
    #[serde(default = "whole")]
    staged_share: f64,
    /// Bytes of its blocks.
    #[serde(default = "staged_block")]
    staged_block_bytes: Size,
    /// A folder on the disk that local tiers measure and staged copies lie on.
    #[serde(default)]
    scratch: Option<PathBuf>,
    /// What requests and memory cost.
    #[serde(default)]
    price: Option<RawPrice>,
    /// The tiers, by name.
    tiers: BTreeMap<String, PricedTier>,
}

/// What is measured.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) common: Common,
    pub(super) rows: u32,
    pub(super) row_bytes: u64,
    pub(super) lookups: u32,
    pub(super) trace_lookups: u32,
    pub(super) depth: usize,
    pub(super) longest: Duration,
    pub(super) laws: Vec<Law>,
    pub(super) strategies: Vec<Strategy>,
    pub(super) shares: Vec<f64>,
    pub(super) units: Vec<Unit>,
    pub(super) staged_block_bytes: u64,
    pub(super) prices: Option<Prices>,
}

impl Asked {
    /// Reads a plan and the files that it names.
    ///
    /// # Errors
    /// The file and the key, and what it should be.
    pub(super) fn read(options: &Options) -> Result<Self> {
        let Found {
            file,
            folder,
            text,
            mut raw,
        } = find::<Raw>(&options.plan)?;
        if let Some(lookups) = options.lookups {
            raw.lookups = lookups;
            raw.trace_lookups = raw.trace_lookups.max(lookups);
        }
        raw.repeats = options.repeats.unwrap_or(raw.repeats);
        let wrong = |why: String| bad_usage(&file, &why);
        let units = check(&raw).map_err(wrong)?;
        let strategies = strategies(&raw, &units).map_err(wrong)?;
        bound(&raw, &strategies).map_err(wrong)?;
        let (tiers, entries) = tiers(&folder, raw.tiers)?;
        for (tier, config) in &tiers {
            if let TierConfig::Wrapped(wrapped) = config
                && wrapped.wrappers.staged.is_some()
            {
                return Err(wrong(format!(
                    "tiers.{tier}: its TOML has a table [staged]; leave it out, `strategies` says what is staged"
                )));
            }
        }
        let prices = raw
            .price
            .map(|price| Prices::read(&file, &folder, &price, &entries))
            .transpose()?;
        let from_plan = raw.scratch.map(|scratch| folder.join(scratch));
        Ok(Self {
            common: Common {
                name: raw.name,
                text,
                seed: raw.seed,
                repeats: raw.repeats,
                scratch: options.scratch.clone().or(from_plan),
                tiers,
            },
            rows: raw.rows,
            row_bytes: raw.row_bytes.0,
            lookups: raw.lookups,
            trace_lookups: raw.trace_lookups,
            depth: raw.depth,
            longest: Duration::from_secs_f64(raw.seconds),
            laws: raw.laws,
            strategies,
            shares: raw.shares,
            units,
            staged_block_bytes: raw.staged_block_bytes.0,
            prices,
        })
    }

    pub(super) fn table_bytes(&self) -> u64 {
        u64::from(self.rows) * self.row_bytes
    }
}

fn check(raw: &Raw) -> Result<Vec<Unit>, String> {
    check_name("name", &raw.name)?;
    check_counts(&[
        ("repeats", u64::from(raw.repeats), 1000),
        ("rows", u64::from(raw.rows), 1 << 24),
        ("lookups", u64::from(raw.lookups), MOST_LOOKUPS),
        ("trace_lookups", u64::from(raw.trace_lookups), MOST_LOOKUPS),
        ("depth", raw.depth as u64, 1024),
        ("staged_block_bytes", raw.staged_block_bytes.0, 64 << 20),
    ])?;
    let row = raw.row_bytes.0;
    if !row.is_power_of_two() || !(512..=1 << 16).contains(&row) {
        return Err(format!("row_bytes: a power of two from 512 to 65536, not {row}"));
    }
    if u64::from(raw.rows) * row > MOST_TABLE_BYTES {
        return Err(format!(
            "rows × row_bytes: at most {MOST_TABLE_BYTES} bytes, for the table lies in memory too"
        ));
    }
    if raw.trace_lookups < raw.lookups {
        return Err(format!("trace_lookups: at least `lookups`, {}", raw.lookups));
    }
    let staged = raw.staged_block_bytes.0;
    if !staged.is_power_of_two() || staged < 64 << 10 {
        return Err(format!(
            "staged_block_bytes: a power of two from 65536 to 67108864, not {staged}"
        ));
    }
    check_within("seconds", raw.seconds, 0.01, 3600.0)?;
    for (key, shares) in [
        ("measured_shares", raw.measured_shares.as_slice()),
        ("shares", &raw.shares),
        ("staged_share", std::slice::from_ref(&raw.staged_share)),
    ] {
        if let Some(share) = shares.iter().find(|share| !(0.0001..=8.0).contains(*share)) {
            return Err(format!("{key}: shares of the table from 0.0001 to 8, not {share}"));
        }
    }
    raw.laws.iter().try_for_each(Law::check)?;
    if raw.tiers.is_empty() || raw.laws.is_empty() || raw.strategies.is_empty() || raw.policies.is_empty() {
        return Err("`tiers`, `laws`, `strategies` and `policies`: at least one of each".to_owned());
    }
    let units: Vec<Unit> = raw
        .units
        .iter()
        .map(|unit| unit_of(unit, row))
        .collect::<Result<_, _>>()?;
    if units.is_empty() || raw.measured_shares.is_empty() || raw.shares.is_empty() {
        return Err("`units`, `shares` and `measured_shares`: at least one of each".to_owned());
    }
    check_once("laws", &raw.laws)?;
    check_once("strategies", &raw.strategies)?;
    check_once("policies", &raw.policies)?;
    check_once("units", &units)?;
    check_once("shares", &raw.shares)?;
    check_once("measured_shares", &raw.measured_shares)?;
    // The smallest cache of each unit: what the cache itself would refuse in the middle of a run.
    for &unit in &units {
        for (key, shares) in [("shares", &raw.shares), ("measured_shares", &raw.measured_shares)] {
            let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
            let ram = Ram {
                share: least,
                policy: Policy::TinyLfu,
                unit,
            };
            let config = ram.config(u64::from(raw.rows) * row, row);
            if config.most_blocks() == 0 {
                return Err(format!(
                    "{key}: {least} of the table is {} bytes, too few for one entry of {unit} with its bookkeeping; take larger shares or more rows",
                    config.capacity_bytes
                ));
            }
        }
    }
    Ok(units)
}

fn unit_of(text: &str, row_bytes: u64) -> Result<Unit, String> {
    if text == "row" {
        return Ok(Unit::Row);
    }
    let bytes = tierlab_instrument::units::parse_bytes(text)
        .map_err(|why| format!("units: `row`, or bytes of a block as `4KiB`: {why}"))?;
    match bytes.is_power_of_two() && (row_bytes..=1 << 20).contains(&bytes) {
        true => Ok(Unit::Block(bytes)),
        false => Err(format!(
            "units: `row`, or a power of two from row_bytes, {row_bytes}, to 1048576, not {bytes}"
        )),
    }
}

/// Every strategy that is measured. Over a staged copy stand the first policy and the first unit only.
fn strategies(raw: &Raw, units: &[Unit]) -> Result<Vec<Strategy>, String> {
    let mut out = Vec::new();
    let rams = |policies: &[Policy], units: &[Unit]| -> Vec<Ram> {
        let mut rams = Vec::new();
        for &share in &raw.measured_shares {
            for &unit in units {
                rams.extend(policies.iter().map(|&policy| Ram { share, policy, unit }));
            }
        }
        rams
    };
    for kind in &raw.strategies {
        match kind {
            Kind::None => out.push(Strategy::None),
            Kind::Staged => out.push(Strategy::Staged(raw.staged_share)),
            Kind::Ram => out.extend(rams(&raw.policies, units).into_iter().map(Strategy::Ram)),
            Kind::RamOverStaged => {
                let over = |ram| Strategy::RamOverStaged(ram, raw.staged_share);
                out.extend(rams(&raw.policies[..1], &units[..1]).into_iter().map(over));
            }
        }
    }
    if raw.price.is_some() && !raw.strategies.contains(&Kind::None) {
        return Err("price: what a cache saves is held against `none`; add it to `strategies`".to_owned());
    }
    Ok(out)
}

fn bound(raw: &Raw, strategies: &[Strategy]) -> Result<(), String> {
    let measured = raw.tiers.len() as u64 * strategies.len() as u64;
    let computed = raw.shares.len() as u64 * raw.units.len() as u64;
    let rounds = u64::from(raw.repeats) * raw.laws.len() as u64;
    let steps = rounds * (measured + computed);
    if steps > MOST_STEPS {
        return Err(format!(
            "{steps} steps, at most {MOST_STEPS}: take fewer repeats, laws, tiers, sizes or units"
        ));
    }
    let kept = rounds * measured * u64::from(raw.lookups);
    match kept > 50 * MOST_LOOKUPS {
        true => Err(format!(
            "lookups: {kept} latencies of all repeats together would be kept, at most {}; take fewer",
            50 * MOST_LOOKUPS
        )),
        false => Ok(()),
    }
}

const fn one() -> u64 {
    1
}
const fn five() -> u32 {
    5
}
const fn rows() -> u32 {
    4096
}
const fn row_bytes() -> Size {
    Size(512)
}
const fn lookups() -> u32 {
    5000
}
const fn trace_lookups() -> u32 {
    20_000
}
const fn thirty_two() -> usize {
    32
}
const fn twenty_seconds() -> f64 {
    20.0
}
const fn whole() -> f64 {
    1.0
}
const fn staged_block() -> Size {
    Size(64 << 10)
}
fn all() -> Vec<Kind> {
    vec![Kind::None, Kind::Ram, Kind::Staged, Kind::RamOverStaged]
}
fn tenth() -> Vec<f64> {
    vec![0.1]
}
fn shares() -> Vec<f64> {
    vec![0.01, 0.03, 0.1, 0.3, 1.0, 2.0]
}
fn policies() -> Vec<Policy> {
    vec![Policy::TinyLfu, Policy::Lru]
}
fn units() -> Vec<String> {
    vec!["row".to_owned(), "4KiB".to_owned()]
}

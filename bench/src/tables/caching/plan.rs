//! The plan of a comparison of caches, and what a cache saves. In: TOML, flags over it, the price file. Out: settings, checked; dollars.
//! A GB is 2^30 bytes and a month 730 hours, as in the price file.

use super::play::Law;
use super::strategy::{Kind, Ram, Strategy, Unit};
use crate::plan::{
    Common, Flags, OneOrMany, RawTier, Size, Source, check_counts, check_each, check_list, check_name, check_table,
    check_within, hundredths, number,
};
use anyhow::{Result, anyhow, bail};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tierlab_instrument::prices::{BYTES_PER_GB, HOURS_PER_MONTH, ReadPrices};
use tierlab_instrument::units::parse_bytes;
use tierlab_storage::TierConfig;
use tierlab_storage::wrappers::cache::Policy;

/// Maximum bytes of the table, which is also in memory to check every row.
const MAX_TABLE_BYTES: u64 = 1 << 30;
/// Maximum steps of a run. More would take days, and are a mistake in the plan.
const MAX_STEPS: u64 = 100_000;
/// Maximum look-ups of a trace: each one of every round takes memory.
const MAX_LOOKUPS: u64 = 10_000_000;

/// Flags of `caching`.
#[derive(Debug, Args)]
pub(crate) struct CachingOptions {
    #[command(flatten)]
    pub(super) flags: Flags,
    /// Look-ups of a repeat, instead of the plan's
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    lookups: Option<u32>,
}

/// A plan.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CachingPlan {
    /// Name of the run, used as prefix of result folders.
    name: String,
    /// Seed of every random choice: the table, traces, order.
    #[serde(default = "number::<_, 1>")]
    seed: u64,
    /// Rounds, each of which measures everything once, with a trace of its own.
    #[serde(default = "number::<_, 5>")]
    repeats: u32,
    /// Rows of the table.
    #[serde(default = "number::<_, 4096>")]
    pub(super) rows: u32,
    /// Bytes of a row: a power of two.
    #[serde(default = "number::<_, 512>")]
    pub(super) row_bytes: Size,
    /// Look-ups measured in a repeat, starting with empty caches.
    #[serde(default = "number::<_, 5000>")]
    pub(super) lookups: u32,
    /// Look-ups of the same traces for computed hit ratios; at least `lookups`.
    #[serde(default = "number::<_, 20000>")]
    pub(super) trace_lookups: u32,
    /// Look-ups in flight; each value of a list is measured.
    #[serde(default = "depth")]
    depth: OneOrMany<usize>,
    /// Seconds after which a repeat ends, even with look-ups left.
    #[serde(default = "hundredths::<2000>")]
    pub(super) seconds: f64,
    /// Laws of the rows' popularity.
    pub(super) laws: Vec<Law>,
    /// Caching strategies to measure (default: all).
    #[serde(default = "all")]
    strategies: Vec<Kind>,
    /// Measured sizes of a cache in memory, as shares of the table's bytes.
    #[serde(default = "tenth")]
    measured_shares: Vec<f64>,
    /// Cache sizes for computed hit ratios, as shares of the table's bytes.
    #[serde(default = "shares")]
    pub(super) shares: Vec<f64>,
    /// Eviction policies of a cache in memory.
    #[serde(default = "policies")]
    policies: Vec<Policy>,
    /// Entry of a cache in memory: `row`, or bytes of a block.
    #[serde(default = "units")]
    units: Vec<String>,
    /// Capacity of a staged copy, as a share of the table.
    #[serde(default = "hundredths::<100>")]
    staged_share: f64,
    /// Bytes of the blocks of a staged copy.
    #[serde(default = "number::<_, 65536>")]
    pub(super) staged_block_bytes: Size,
    /// Folder on the disk for local tiers and staged copies.
    scratch: Option<PathBuf>,
    /// Prices of requests and memory.
    #[serde(default, skip_serializing)]
    price: Option<RawCachingPrice>,
    /// The tiers, by name.
    #[serde(skip_serializing)]
    tiers: BTreeMap<String, RawTier>,
}

/// `[price]` of a plan of caches.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCachingPrice {
    /// Price file, relative to the plan's folder.
    file: PathBuf,
    /// Look-ups per second, around the clock.
    lookups_per_s: f64,
    /// Size of the table represented by the measured one, with the same cache shares.
    table: Size,
}

/// Prices of a run of caches.
#[derive(Debug, Clone, Serialize)]
pub(super) struct CachingPrices {
    pub(super) lookups_per_s: f64,
    pub(super) table_bytes: u64,
    #[serde(flatten)]
    pub(super) reads: ReadPrices,
}

impl CachingPrices {
    /// Reads the file that a plan names. `entries` are the tiers' `price`s.
    ///
    /// # Errors
    /// The file and the key, and its allowed values.
    fn read(source: &Source, raw: &RawCachingPrice, entries: &BTreeMap<String, String>) -> Result<Self> {
        check_within("price.lookups_per_s", raw.lookups_per_s, 1e-6, 1e9)
            .and_then(|()| check_within("price.table", raw.table.0, 1, u64::MAX))
            .map_err(|why| source.invalid(why))?;
        Ok(Self {
            lookups_per_s: raw.lookups_per_s,
            table_bytes: raw.table.0,
            reads: source.prices(&raw.file, None, entries)?,
        })
    }

    /// Returns dollars a month saved per GB of a cache of `share` of the table, before the price of its memory. `requests` and `bytes` are
    /// the origin's per look-up, without the cache and with it.
    pub(super) fn saved(&self, tier: &str, share: f64, requests: (f64, f64), bytes: (f64, f64)) -> Option<f64> {
        let price = self.reads.tiers.get(tier)?;
        let lookups = self.lookups_per_s * 3600.0 * HOURS_PER_MONTH;
        let each = (requests.0 - requests.1) * price.usd_per_request + (bytes.0 - bytes.1) * price.usd_per_byte;
        Some(lookups * each / (share * self.table_bytes as f64 / BYTES_PER_GB))
    }
}

/// Settings of a run.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) common: Common,
    pub(super) plan: CachingPlan,
    pub(super) strategies: Vec<Strategy>,
    pub(super) units: Vec<Unit>,
    pub(super) prices: Option<CachingPrices>,
}

impl Settings {
    /// Reads a plan and the files that it names.
    ///
    /// # Errors
    /// The file and the key, and its allowed values.
    pub(super) fn read(options: &CachingOptions) -> Result<Self> {
        let (source, mut plan) = Source::read::<CachingPlan>(&options.flags.plan)?;
        if let Some(lookups) = options.lookups {
            plan.lookups = lookups;
            plan.trace_lookups = plan.trace_lookups.max(lookups);
        }
        plan.repeats = options.flags.repeats.unwrap_or(plan.repeats);
        let invalid = |why: anyhow::Error| source.invalid(why);
        let units = plan.check().map_err(invalid)?;
        let strategies = plan.strategies(&units).map_err(invalid)?;
        plan.bound(strategies.len()).map_err(invalid)?;
        let (tiers, entries) = source.priced_tiers(&plan.tiers)?;
        let is_staged =
            |config: &TierConfig| matches!(config, TierConfig::Wrapped(own) if own.wrappers.staged.is_some());
        if let Some((tier, _)) = tiers.iter().find(|(_, config)| is_staged(config)) {
            let why = "its TOML has a table [staged]: remove it, since `strategies` sets staging";
            return Err(source.invalid(format!("tiers.{tier}: {why}")));
        }
        let prices = |price| CachingPrices::read(&source, price, &entries);
        let prices = plan.price.as_ref().map(prices).transpose()?;
        let head = (plan.name.as_str(), plan.seed, plan.repeats);
        Ok(Self {
            common: source.common(&options.flags, head, plan.scratch.as_ref(), tiers),
            plan,
            strategies,
            units,
            prices,
        })
    }
}

impl CachingPlan {
    pub(super) fn table_bytes(&self) -> u64 {
        u64::from(self.rows) * self.row_bytes.0
    }

    /// Numbers of look-ups in flight.
    pub(super) const fn depths(&self) -> &[usize] {
        self.depth.values()
    }

    fn check(&self) -> Result<Vec<Unit>> {
        check_name("name", &self.name)?;
        check_counts(&[
            ("repeats", u64::from(self.repeats), 1000),
            ("rows", u64::from(self.rows), 1 << 24),
            ("lookups", u64::from(self.lookups), MAX_LOOKUPS),
            ("trace_lookups", u64::from(self.trace_lookups), MAX_LOOKUPS),
        ])?;
        check_each("depth", self.depths(), 1, 1024)?;
        check_power("row_bytes", self.row_bytes.0, 512, 1 << 16)?;
        check_power("staged_block_bytes", self.staged_block_bytes.0, 64 << 10, 64 << 20)?;
        check_within("rows × row_bytes", self.table_bytes(), 1, MAX_TABLE_BYTES)?;
        if self.trace_lookups < self.lookups {
            bail!("trace_lookups: must be at least `lookups`, {}", self.lookups);
        }
        check_within("seconds", self.seconds, 0.01, 3600.0)?;
        check_each("measured_shares", &self.measured_shares, 0.0001, 8.0)?;
        check_each("shares", &self.shares, 0.0001, 8.0)?;
        check_within("staged_share", self.staged_share, 0.0001, 8.0)?;
        self.laws.iter().try_for_each(Law::check)?;
        let unit = |unit: &String| unit_of(unit, self.row_bytes.0);
        let units: Vec<Unit> = self.units.iter().map(unit).collect::<Result<_>>()?;
        check_table("tiers", &self.tiers)?;
        check_list("laws", &self.laws)?;
        check_list("strategies", &self.strategies)?;
        check_list("policies", &self.policies)?;
        check_list("units", &units)?;
        units.iter().try_for_each(|unit| self.check_smallest(*unit))?;
        Ok(units)
    }

    /// Checks the smallest cache of a unit, which the cache itself would only refuse during a run.
    fn check_smallest(&self, unit: Unit) -> Result<()> {
        for (key, shares) in [("shares", &self.shares), ("measured_shares", &self.measured_shares)] {
            let min = shares.iter().copied().fold(f64::INFINITY, f64::min);
            let ram = Ram {
                share: min,
                policy: Policy::TinyLfu,
                unit,
            };
            let config = ram.config(self.table_bytes(), self.row_bytes.0);
            if config.max_blocks() == 0 {
                bail!(
                    "{key}: {min} of the table is {} bytes, too few for one entry of {unit} with its bookkeeping; raise the shares \
                    or `rows`",
                    config.capacity_bytes
                );
            }
        }
        Ok(())
    }

    /// Returns every strategy to measure. Over a staged copy, only with the first policy and the first unit.
    fn strategies(&self, units: &[Unit]) -> Result<Vec<Strategy>> {
        if self.price.is_some() && !self.strategies.contains(&Kind::None) {
            bail!("price: savings are relative to the strategy `none`; add it to `strategies`");
        }
        let mut out = Vec::new();
        for kind in &self.strategies {
            match kind {
                Kind::None => out.push(Strategy::None),
                Kind::Staged => out.push(Strategy::Staged(self.staged_share)),
                Kind::Ram => out.extend(self.rams(&self.policies, units).into_iter().map(Strategy::Ram)),
                Kind::RamOverStaged => {
                    let over = |ram| Strategy::RamOverStaged(ram, self.staged_share);
                    out.extend(self.rams(&self.policies[..1], &units[..1]).into_iter().map(over));
                }
            }
        }
        Ok(out)
    }

    fn rams(&self, policies: &[Policy], units: &[Unit]) -> Vec<Ram> {
        let of_share = |&share: &f64| {
            let of_unit = move |&unit: &Unit| policies.iter().map(move |&policy| Ram { share, policy, unit });
            units.iter().flat_map(of_unit)
        };
        self.measured_shares.iter().flat_map(of_share).collect()
    }

    fn bound(&self, strategies: usize) -> Result<()> {
        let measured = (self.tiers.len() * self.depths().len() * strategies) as u64;
        let computed = self.shares.len() as u64 * self.units.len() as u64;
        let rounds = u64::from(self.repeats) * self.laws.len() as u64;
        let steps = rounds * (measured + computed);
        if steps > MAX_STEPS {
            bail!("{steps} steps, maximum {MAX_STEPS}: use fewer repeats, laws, tiers, sizes or units");
        }
        let (latencies, max) = (rounds * measured * u64::from(self.lookups), 50 * MAX_LOOKUPS);
        if latencies > max {
            let why = "latencies in all repeats together";
            bail!("lookups: {latencies} {why}, maximum {max}; lower `lookups`");
        }
        Ok(())
    }
}

fn check_power(key: &str, value: u64, min: u64, max: u64) -> Result<()> {
    if value.is_power_of_two() && (min..=max).contains(&value) {
        return Ok(());
    }
    bail!("{key}: must be a power of two from {min} to {max}, not {value}")
}

fn unit_of(text: &str, row_bytes: u64) -> Result<Unit> {
    if text == "row" {
        return Ok(Unit::Row);
    }
    let bytes =
        parse_bytes(text).map_err(|why| anyhow!("units: must be `row`, or bytes of a block such as `4KiB`: {why}"))?;
    check_power("units: `row`, or bytes of a block", bytes, row_bytes, 1 << 20)?;
    Ok(Unit::Block(bytes))
}

fn all() -> Vec<Kind> {
    vec![Kind::None, Kind::Ram, Kind::Staged, Kind::RamOverStaged]
}
fn depth() -> OneOrMany<usize> {
    OneOrMany::One(32)
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

#[cfg(test)]
mod tests {
    use super::*;
    use tierlab_instrument::prices::ReadPrice;

    #[test]
    fn savings_by_hand() {
        let price = ReadPrice {
            usd_per_request: 4e-7,
            usd_per_byte: 0.01 / BYTES_PER_GB,
        };
        let prices = CachingPrices {
            lookups_per_s: 1000.0,
            table_bytes: 64 << 30,
            reads: ReadPrices {
                tiers: BTreeMap::from([("s3".to_owned(), price)]),
                ..ReadPrices::default()
            },
        };
        // 2.628e9 look-ups a month, half a request of 4e-7 saved for each, over 6.4 GB; no bytes saved.
        let saved = prices.saved("s3", 0.1, (1.0, 0.5), (512.0, 512.0)).unwrap();
        assert!((saved - 2.628e9 * 0.5 * 4e-7 / 6.4).abs() < 1e-9, "{saved}");
        // A block of 4 KiB per miss reads more bytes than no cache, which costs money.
        assert!(prices.saved("s3", 0.1, (1.0, 1.0), (512.0, 2048.0)).unwrap() < 0.0);
        assert_eq!(prices.saved("disk", 0.1, (1.0, 0.0), (1.0, 0.0)), None);
    }
}

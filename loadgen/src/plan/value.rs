//! Values with a form of their own: lists to cross, shares, times, objectives, numbers with a range. In: TOML. Out: typed values, or
//! an error with the form to write. Knows no key.

use super::fault::out_of_range;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;
use tierlab_analysis::record::{Objective, Percentile, StreamFigure};
use tierlab_load::by_goose::closed_loop::Think;

/// Schema of a table with any keys, such as those of another program's config.
pub(super) type AnyTable = serde_json::Map<String, serde_json::Value>;

/// One value, or several to cross with those of the other factors.
#[derive(Debug, Clone, JsonSchema)]
#[schemars(untagged, inline)]
pub(super) enum Factor<T> {
    One(T),
    Several(Vec<T>),
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Factor<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(deserializer)? {
            list @ toml::Value::Array(_) => part(list).map(Self::Several),
            one => part(one).map(Self::One),
        }
    }
}

/// Number of a TOML value, which may be written as an integer.
pub(super) fn number(value: &toml::Value) -> Option<f64> {
    let integer = || value.as_integer().map(|number| number as f64);
    value.as_float().or_else(integer)
}

/// Part of a value that is a table or list. Its error omits TOML's position in the part.
pub(super) fn part<T: DeserializeOwned, E: Error>(value: toml::Value) -> Result<T, E> {
    value
        .try_into()
        .map_err(|error: toml::de::Error| E::custom(error.message().replace('\n', " ")))
}

/// Share from 0 to 1, written as `0.05` or `"5 %"`.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema)]
#[schemars(inline, extend("type" = ["number", "string"], "minimum" = 0, "maximum" = 1))]
pub(super) struct Share(pub(super) f64);

impl Share {
    /// Parses a share; `None` outside 0 to 1.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| text.trim().parse::<f64>().ok();
        match text.trim().strip_suffix('%') {
            Some(percent) => Self::new(number(percent)? / 100.0),
            None => Self::new(number(text)?),
        }
    }

    fn new(share: f64) -> Option<Self> {
        (0.0..=1.0).contains(&share).then_some(Self(share))
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = toml::Value::deserialize(deserializer)?;
        let share = value.as_str().map_or_else(|| Self::new(number(&value)?), Self::parse);
        share.ok_or_else(|| D::Error::custom(not_a_share(&value)))
    }
}

/// Problem with a value that is not a share.
pub(super) fn not_a_share(value: impl fmt::Display) -> String {
    format!("{value} is not a share; write it as `5 %` or `0.05`")
}

/// Length of time, written as `"10m"`, `"1h 30m"` or `"90s"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(inline, with = "String")]
pub(super) struct Period(pub(super) Duration);

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = toml::Value::deserialize(deserializer)?;
        let text = match &value {
            toml::Value::String(text) => text.trim(),
            other => {
                let seconds = number(other).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                return Err(D::Error::custom(match seconds {
                    Some(time) => format!("{other} has no unit; write \"{}\"", humantime::format_duration(time)),
                    None => format!("{other} is not a time; write it as \"10m\" or \"90s\""),
                }));
            }
        };
        humantime::parse_duration(text).map(Self).map_err(|error| {
            D::Error::custom(format!(
                "`{text}` is not a time: {error}; write it as \"10m\" or \"90s\""
            ))
        })
    }
}

/// Longest think time, in milliseconds.
const MAX_THINK_MS: f64 = 600_000.0;

/// Think time as written.
#[derive(JsonSchema)]
#[schemars(untagged, inline)]
pub(super) enum ThinkTime {
    /// Time in milliseconds.
    Fixed(f64),
    /// Least and most milliseconds.
    Uniform([f64; 2]),
    Exponential(ExponentialTime),
}

/// Mean of an exponential time.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(super) struct ExponentialTime {
    /// Mean in milliseconds.
    exponential: f64,
}

/// Reads a [`ThinkTime`].
pub(super) fn think_time_ms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Think>, D::Error> {
    let checked = |ms: f64, least: f64| match (least..=MAX_THINK_MS).contains(&ms) {
        true => Ok(ms),
        false => Err(D::Error::custom(out_of_range(ms, least, MAX_THINK_MS))),
    };
    let written = match toml::Value::deserialize(deserializer)? {
        list @ toml::Value::Array(_) => part(list).map(ThinkTime::Uniform),
        table @ toml::Value::Table(_) => part(table).map(ThinkTime::Exponential),
        ms => part(ms).map(ThinkTime::Fixed),
    };
    let think = match written? {
        ThinkTime::Fixed(ms) => Think::Fixed(checked(ms, 0.0)?),
        ThinkTime::Uniform([least_ms, most_ms]) => {
            let (least_ms, most_ms) = (checked(least_ms, 0.0)?, checked(most_ms, 0.0)?);
            if least_ms > most_ms {
                let problem = format!("[{least_ms}, {most_ms}] ends before it begins");
                return Err(D::Error::custom(problem));
            }
            Think::Uniform { least_ms, most_ms }
        }
        ThinkTime::Exponential(ExponentialTime { exponential }) => Think::Exponential {
            mean_ms: checked(exponential, 0.001)?,
        },
    };
    Ok(Some(think))
}

/// Range of a plan's number.
pub(super) trait Range {
    type Number: Copy + PartialOrd + fmt::Display + JsonSchema + Into<serde_json::Value> + DeserializeOwned;
    const LEAST: Self::Number;
    const MOST: Self::Number;
}

/// Reader and schema of a number with a range, for `serde(with = ...)`.
pub(super) struct Within<R>(PhantomData<R>);

impl<R: Range> Within<R> {
    /// Reads a number; for an optional key, `T` is an `Option`.
    pub(super) fn deserialize<'de, D, T>(deserializer: D) -> Result<T, D::Error>
    where
        D: Deserializer<'de>,
        T: From<R::Number>,
    {
        let number = R::Number::deserialize(deserializer)?;
        match (R::LEAST..=R::MOST).contains(&number) {
            true => Ok(T::from(number)),
            false => Err(D::Error::custom(out_of_range(number, R::LEAST, R::MOST))),
        }
    }

    /// Writes a key's default into the schema.
    pub(super) fn serialize<T: Serialize, S: Serializer>(default: &T, serializer: S) -> Result<S::Ok, S::Error> {
        default.serialize(serializer)
    }
}

impl<R: Range> JsonSchema for Within<R> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        R::Number::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = R::Number::json_schema(generator);
        schema.insert("minimum".into(), R::LEAST.into());
        schema.insert("maximum".into(), R::MOST.into());
        schema
    }
}

macro_rules! ranges {
    ($($name:ident: $number:ty, $least:expr, $most:expr;)*) => {$(
        pub(super) struct $name;

        impl Range for $name {
            type Number = $number;
            const LEAST: $number = $least;
            const MOST: $number = $most;
        }
    )*};
}

/// Default of a key.
pub(super) const fn default<const N: u32>() -> u32 {
    N
}

ranges! {
    Repeats: u32, 1, 100;
    Warmup: f64, 0.0, 3_600.0;
    Step: f64, 0.1, 3_600.0;
    Drain: f64, 0.05, 600.0;
    MaxInFlight: u32, 1, 8_192;
    Timeout: u32, 1, 600_000;
    ReplyLimit: u64, 1_024, 4_000_000_000;
    ReadyTimeout: u32, 1, 3_600;
    ZipfExponent: f64, 0.01, 10.0;
    // Coefficient of variation of gamma arrivals.
    Variation: f64, 0.05, 20.0;
    Ratio: f64, 0.0, 1.0;
    Speed: f64, 1e-3, 1e6;
    // Above 1, the cache is larger than the table.
    CacheShare: f64, 0.0, 10.0;
    Tolerance: f64, 0.0, 1e6;
    RowsPerRequest: u32, 1, 1_000_000;
    TableRows: u64, 1, 1_000_000_000;
    TableGib: f64, 1e-6, 1e6;
    Weight: f64, 1e-6, 1e6;
    Resolution: f64, 0.01, 1.0;
    // Up to a week.
    SearchLimit: f64, 1.0, 604_800.0;
    Status: u16, 100, 599;
    // Limits that servers of a fleet share.
    SharedRequests: u32, 1, u32::MAX;
    SharedBytes: u64, 1, u64::MAX;
    EntityCount: u64, 1, 1_000_000_000_000_000;
}

/// Smallest share of goodput that is an objective.
const LEAST_GOODPUT: f64 = 0.5;

/// Parses a latency objective, such as `p99 < 20 ms`, `mean < 5 ms`, `99.5 % within 50 ms` or `ttft p99 < 300 ms`.
pub(super) fn objective(text: &str) -> Option<Objective> {
    if let Some((share, limit)) = text.split_once("within") {
        let within_us = latency_us(limit)?;
        let Share(goodput_share) = Share::parse(share)?;
        let goodput = Objective::Goodput {
            goodput_share,
            within_us,
        };
        return (LEAST_GOODPUT..1.0).contains(&goodput_share).then_some(goodput);
    }
    let (name, limit) = text.split_once('<')?;
    let (name, limit_us) = (name.trim(), latency_us(limit)?);
    if name == "mean" {
        let mean_limit_us = limit_us;
        return Some(Objective::Mean { mean_limit_us });
    }
    if let Some((figure, percentile)) = name.split_once(' ') {
        let figure = StreamFigure::named(figure).filter(|figure| figure.is_time())?;
        let percentile = Percentile::named(percentile.trim())?;
        return Some(Objective::Stream {
            figure,
            percentile,
            limit_us,
        });
    }
    let percentile = Percentile::named(name)?;
    Some(Objective::Percentile { percentile, limit_us })
}

/// Parses a positive latency, such as `20 ms`, to microseconds.
fn latency_us(text: &str) -> Option<f64> {
    let limit = text.trim();
    let digits = limit.trim_end_matches(|c: char| c.is_alphabetic());
    let unit_us = match &limit[digits.len()..] {
        "us" | "µs" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return None,
    };
    let us = digits.trim().parse::<f64>().ok()? * unit_us;
    (us.is_finite() && us > 0.0).then_some(us)
}

/// Parses the largest share of failed requests, such as `errors < 0.1 %`.
pub(super) fn errors(text: &str) -> Option<f64> {
    let (name, limit) = text.split_once('<')?;
    let Share(share) = Share::parse(limit).filter(|_| name.trim() == "errors")?;
    (share < 1.0).then_some(share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierlab_analysis::record::StageFill;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Keys {
        share: Option<Share>,
        period: Option<Period>,
        factor: Option<Factor<StageFill>>,
        sizes: Option<Factor<u32>>,
        #[serde(with = "Within::<Resolution>")]
        resolution: Option<f64>,
    }

    fn read(text: &str) -> Result<Keys, crate::plan::Fault> {
        crate::plan::fault::read(text).map_err(|(_, fault)| fault)
    }

    #[test]
    fn keys_are_read_in_every_form() {
        let keys = read("share = \"5 %\"\nperiod = \"1h 30m\"\nfactor = \"filled\"\nsizes = [1, 8]\nresolution = 0.5")
            .unwrap();
        assert_eq!(keys.share, Some(Share(0.05)));
        assert_eq!(keys.period, Some(Period(Duration::from_secs(5_400))));
        assert!(matches!(keys.factor, Some(Factor::One(StageFill::Filled))));
        assert!(matches!(&keys.sizes, Some(Factor::Several(sizes)) if sizes == &[1, 8]));
        assert_eq!(keys.resolution, Some(0.5));
        assert_eq!(read("share = 1").unwrap().share, Some(Share(1.0)));
    }

    #[test]
    fn errors_name_the_value_and_the_form_to_write() {
        for (text, says) in [
            ("share = 5", "`share`: 5 is not a share; write it as `5 %` or `0.05`"),
            ("share = \"120 %\"", "\"120 %\" is not a share"),
            ("period = 180", "`period`: 180 has no unit; write \"3m\""),
            ("period = 1.5", "1.5 has no unit; write \"1s 500ms\""),
            ("period = -1", "-1 is not a time; write it as \"10m\""),
            ("period = \"soon\"", "`period`: `soon` is not a time"),
            (
                "factor = \"full\"",
                "`factor`: unknown variant `full`, expected `empty` or `filled`",
            ),
            ("factor = [\"empty\", \"full\"]", "`factor`: unknown variant `full`"),
            ("sizes = -1", "`sizes`: invalid value: integer `-1`"),
            ("sizes = { a = 1 }", "`sizes`: invalid type: map"),
            ("resolution = 0", "`resolution`: 0 is not between 0.01 and 1"),
        ] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn objectives_and_shares_are_read_as_they_are_shown() {
        assert_eq!(Share::parse("5 %"), Some(Share(0.05)));
        assert_eq!(Share::parse("0.05"), Some(Share(0.05)));
        assert_eq!(Share::parse("5"), None);
        assert!((errors("errors < 0.1 %").unwrap() - 0.001).abs() < 1e-12);
        assert_eq!(errors("errors < 100 %"), None);
        assert_eq!(errors("p99 < 5 %"), None);
        for text in [
            "p50 < 300 us",
            "p90 < 4 ms",
            "p99.9 < 50 ms",
            "mean < 5 ms",
            "99.6 % within 50 ms",
            "ttft p99 < 300 ms",
            "gap p99.9 < 50 ms",
            "first_byte p50 < 2 s",
        ] {
            assert_eq!(objective(text).unwrap().to_string(), text);
        }
        for text in [
            "p98 < 5 ms",
            "tokens p99 < 5 ms",
            "ttft < 5 ms",
            "gap mean < 5 ms",
            "max < 5 ms",
            "mean < 0 ms",
            "p99 > 5 ms",
            "p999 < 5 ms",
            "mean < 5",
            "100 % within 5 ms",
            "20 % within 5 ms",
            "99 within 5 ms",
        ] {
            assert_eq!(objective(text), None, "{text}");
        }
    }
}

//! `[inputs]`: what the inputs of requests are. In: TOML, and the files that it names. Out: validated rules. Which of them a model
//! needs, and of which type, is found out when one is asked ([`tierlab_load::inputs`]).

use super::check::{Base, within};
use crate::inputs::{columns, lines, npy, npz, perf_data, read, short, whole};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tierlab_load::inputs::{
    CheckRule, Dim, Expectations, InputRules, Law, Lengths, Order, Records, TensorRule, Values,
};

/// The largest dimension that a plan may give.
const MAX_DIM: u64 = 1 << 31;

/// `[inputs]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawInputs {
    /// In which order prepared requests are sent: one after the other, in a random order, or the first ones most often.
    #[serde(default)]
    order: RawOrder,
    /// Of `order = "zipf"`: the request of rank r comes with a frequency proportional to r^-exponent.
    zipf_exponent: Option<f64>,
    /// What counts as inferences of one request for $/10k and inferences per second; its rows where left out.
    rows_per_request: Option<u32>,
    /// perf_analyzer's `--input-data`: its JSON file (streams, `content`, `shape`, `b64`, `validation_data`), or its folder.
    data: Option<PathBuf>,
    /// Whole requests, the JSON body of one on each line; they are sent as they stand.
    requests: Option<PathBuf>,
    #[serde(default)]
    tensor: BTreeMap<String, RawTensor>,
    check: Option<RawCheck>,
    /// The same keys for another model that a mix asks: `[inputs.model.NAME]`, `[inputs.model.NAME.tensor.INPUT]`.
    #[serde(default)]
    model: BTreeMap<String, RawInputs>,
}

/// `inputs.order`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawOrder {
    #[default]
    Sequential,
    Shuffled,
    Zipf,
}

/// `[inputs.tensor.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTensor {
    /// Every dimension: a number; `"rows"`, the load's rows; `{ choices = [224, 320] }`; `{ uniform = [1, 128] }`;
    /// `{ lognormal = { median = 64, sigma = 0.6 }, min = 1, max = 512 }`; `{ file = "lengths.txt" }`; `{ same_as = 2 }` or
    /// `{ same_as = "input.1" }`. The model's own where left out, if it has no free ones.
    shape: Option<Vec<toml::Value>>,
    /// Its elements: `"zeros"`; `{ uniform = [0, 1] }`; `{ normal = { mean = 0, sd = 1 } }`; `{ integers = [0, 30000] }`;
    /// `{ text = { words = [3, 12] } }` or `{ text = { bytes = [10, 200] } }`; of a file `{ npy = "x.npy" }`,
    /// `{ npz = "x.npz", name = "x" }`, `{ parquet = "f.parquet", column = "c" }`, `{ arrow = "f.arrow", column = "c" }`,
    /// `{ file = "lines.txt" }`. Where left out: floats of [0, 1), bytes of 0 to 255, other integers of 0 and 1.
    values: Option<toml::Value>,
}

/// `[inputs.check]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCheck {
    /// Of the replies, how many have their values compared; of all others structure alone is looked at.
    #[serde(default = "default_share")]
    share: f64,
    /// Tolerance of a value: the maximum deviation is `tolerance × (1 + |expected|)`.
    #[serde(default = "default_tolerance")]
    tolerance: f64,
    /// What replies should say: validation data of perf_analyzer (.json), or an .npz with an array for each output; the
    /// `validation_data` of `inputs.data` where left out.
    expected: Option<PathBuf>,
}

const fn default_share() -> f64 {
    0.01
}
const fn default_tolerance() -> f64 {
    0.001
}

/// A dimension that is a table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDim {
    choices: Option<Vec<u64>>,
    uniform: Option<[u64; 2]>,
    lognormal: Option<RawLognormal>,
    file: Option<PathBuf>,
    same_as: Option<toml::Value>,
    min: Option<u64>,
    max: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLognormal {
    median: f64,
    sigma: f64,
}

/// Values that are a table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawValues {
    uniform: Option<[f64; 2]>,
    normal: Option<RawNormal>,
    integers: Option<[i64; 2]>,
    text: Option<RawText>,
    npy: Option<PathBuf>,
    npz: Option<PathBuf>,
    name: Option<String>,
    parquet: Option<PathBuf>,
    arrow: Option<PathBuf>,
    column: Option<String>,
    file: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNormal {
    mean: f64,
    sd: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawText {
    words: Option<[u32; 2]>,
    bytes: Option<[u32; 2]>,
}

/// What a plan says of inputs.
#[derive(Debug, Clone, Default)]
pub(super) struct InputsPlan {
    /// Of the plan's model.
    pub(super) rules: InputRules,
    /// Of other models, by name.
    pub(super) of_others: BTreeMap<String, InputRules>,
    /// Every file that requests are made of.
    pub(super) files: Vec<PathBuf>,
}

/// Where files lie, and which were named.
struct Files<'a> {
    base: Base<'a>,
    named: Vec<PathBuf>,
}

impl Files<'_> {
    fn at(&mut self, path: &Path) -> PathBuf {
        let path = self.base.path(path);
        if !self.named.contains(&path) {
            self.named.push(path.clone());
        }
        path
    }
}

/// Validates them; `others` are the models that may have inputs of their own.
pub(super) fn validate(mut raw: RawInputs, others: &[&str], base: Base<'_>) -> Result<InputsPlan, String> {
    let mut files = Files {
        base,
        named: Vec::new(),
    };
    let mut of_others = BTreeMap::new();
    for (name, mut raw) in std::mem::take(&mut raw.model) {
        if !others.contains(&name.as_str()) {
            return Err(format!(
                "`inputs.model.{name}`: no part of a mix asks `{name}`, or it is the plan's own model"
            ));
        }
        if !std::mem::take(&mut raw.model).is_empty() {
            return Err(format!("`inputs.model.{name}.model`: a model has no models of its own"));
        }
        let rules = rules(raw, &mut files).map_err(|what| of_model(&name, &what))?;
        of_others.insert(name, rules);
    }
    Ok(InputsPlan {
        rules: rules(raw, &mut files)?,
        of_others,
        files: files.named,
    })
}

/// What is said of `inputs` and its keys, said of another model's.
pub(super) fn of_model(model: &str, what: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let key = match model.chars().all(is_bare) {
        true => model.to_owned(),
        false => toml::Value::from(model).to_string(),
    };
    let below = |open: &str| format!("{open}inputs.model.{key}.");
    what.replace("`inputs.", &below("`")).replace("[inputs.", &below("["))
}

fn rules(raw: RawInputs, files: &mut Files<'_>) -> Result<InputRules, String> {
    let order = match (raw.order, raw.zipf_exponent) {
        (RawOrder::Sequential, None) => Order::Sequential,
        (RawOrder::Shuffled, None) => Order::Shuffled,
        (RawOrder::Zipf, Some(exponent)) => {
            within("inputs.zipf_exponent", exponent, 0.01, 10.0)?;
            Order::Zipf { exponent }
        }
        (RawOrder::Zipf, None) => return Err("`inputs.zipf_exponent` is missing: zipf needs one, as 1.1".into()),
        (_, Some(_)) => return Err("`inputs.zipf_exponent` belongs to `inputs.order = \"zipf\"`".into()),
    };
    if let Some(rows) = raw.rows_per_request {
        within("inputs.rows_per_request", rows.into(), 1.0, 1e6)?;
    }
    let recorded = match (raw.data, raw.requests) {
        (Some(_), Some(_)) => {
            return Err("`inputs.data` and `inputs.requests` do not go together: name one of them".into());
        }
        (Some(data), None) => {
            let read = perf_data::requests(&files.at(&data)).map_err(|what| format!("`inputs.data`: {what}"))?;
            Some(Arc::new(read))
        }
        (None, Some(requests)) => {
            if !raw.tensor.is_empty() {
                return Err(
                    "`inputs.requests` are whole: leave out `inputs.tensor`, or record single inputs in `inputs.data`"
                        .into(),
                );
            }
            let read = whole::requests(&files.at(&requests)).map_err(|what| format!("`inputs.requests`: {what}"))?;
            Some(Arc::new(read))
        }
        (None, None) => None,
    };
    let mut tensors = BTreeMap::new();
    for (name, tensor) in raw.tensor {
        let rule = tensor_rule(&name, tensor, files)?;
        tensors.insert(name, rule);
    }
    let check = raw.check.map(|check| check_rule(check, files)).transpose()?;
    Ok(InputRules {
        order,
        rows_per_request: raw.rows_per_request,
        tensors,
        recorded,
        check,
    })
}

fn tensor_rule(name: &str, raw: RawTensor, files: &mut Files<'_>) -> Result<TensorRule, String> {
    let at = format!("inputs.tensor.{name}");
    let shape = raw.shape.map(|dims| {
        let dims = dims.into_iter().enumerate();
        dims.map(|(axis, dim)| dimension(&format!("{at}.shape[{axis}]"), dim, files))
            .collect::<Result<Vec<_>, _>>()
    });
    Ok(TensorRule {
        shape: shape.transpose()?,
        values: raw
            .values
            .map(|raw| values(&format!("{at}.values"), raw, files))
            .transpose()?,
    })
}

/// A table in its own shape; what is wrong is said of `at`.
fn table<T: DeserializeOwned>(at: &str, value: toml::Value, forms: &str) -> Result<T, String> {
    if !value.is_table() {
        return Err(format!("`{at}` = {value} is none of {forms}"));
    }
    value.try_into().map_err(|error: toml::de::Error| {
        let says = error.message().replace('\n', " ");
        format!("`{at}`: {says}; it is one of {forms}")
    })
}

const DIMS: &str = "a number, \"rows\", { choices = [224, 320] }, { uniform = [1, 128] }, { lognormal = { median = 64, sigma = 0.6 }, \
                    min = 1, max = 512 }, { file = \"lengths.txt\" }, { same_as = 2 }, { same_as = \"input.1\" }";

fn dimension(at: &str, value: toml::Value, files: &mut Files<'_>) -> Result<Dim, String> {
    let size = |size: i64| {
        let found = u64::try_from(size).ok().filter(|size| *size <= MAX_DIM);
        found.ok_or_else(|| format!("`{at}` = {size} is not within 0 and {MAX_DIM}"))
    };
    match &value {
        toml::Value::Integer(fixed) => return size(*fixed).map(Dim::Fixed),
        toml::Value::String(word) if word == "rows" => return Ok(Dim::Rows),
        _ => {}
    }
    let raw: RawDim = table(at, value, DIMS)?;
    let ways = [
        raw.choices.is_some(),
        raw.uniform.is_some(),
        raw.lognormal.is_some(),
        raw.file.is_some(),
        raw.same_as.is_some(),
    ];
    if ways.iter().filter(|way| **way).count() != 1 {
        return Err(format!("`{at}` says more than one thing, or none; it is one of {DIMS}"));
    }
    if raw.lognormal.is_none() && (raw.min.is_some() || raw.max.is_some()) {
        return Err(format!("`{at}`: `min` and `max` belong to `lognormal`"));
    }
    if let Some(choices) = raw.choices {
        if choices.is_empty() || choices.iter().any(|choice| *choice > MAX_DIM) {
            return Err(format!("`{at}`: `choices` is empty, or has one above {MAX_DIM}"));
        }
        return Ok(Dim::Choices(choices));
    }
    if let Some([least, most]) = raw.uniform {
        let lengths = lengths(at, Law::Uniform, least, most)?;
        return Ok(Dim::Draw(lengths));
    }
    if let Some(RawLognormal { median, sigma }) = raw.lognormal {
        within(&format!("{at}.median"), median, 1e-3, MAX_DIM as f64)?;
        within(&format!("{at}.sigma"), sigma, 0.0, 10.0)?;
        let most = raw
            .max
            .ok_or_else(|| format!("`{at}`: `max` is missing: a lognormal length has no bound of its own"))?;
        let lengths = lengths(at, Law::Lognormal { median, sigma }, raw.min.unwrap_or(1), most)?;
        return Ok(Dim::Draw(lengths));
    }
    if let Some(file) = raw.file {
        let path = files.at(&file);
        let lengths = lines::lengths(&path).map_err(|what| format!("`{at}`: {what}"))?;
        if let Some(length) = lengths.iter().find(|length| **length > MAX_DIM) {
            return Err(format!("`{at}`: {}: {length} is above {MAX_DIM}", path.display()));
        }
        return Ok(Dim::Listed {
            file: short(&path),
            lengths: lengths.into(),
        });
    }
    let other = raw.same_as.unwrap_or(toml::Value::Boolean(false));
    same_as(at, &other)
}

fn same_as(at: &str, other: &toml::Value) -> Result<Dim, String> {
    let refuse = || {
        format!(
            "`{at}`: `same_as` = {other} is neither a dimension of this input, as 2, nor of another, as \"input.1\""
        )
    };
    match other {
        toml::Value::Integer(axis) => Ok(Dim::SameAs {
            input: None,
            axis: usize::try_from(*axis).map_err(|_| refuse())?,
        }),
        toml::Value::String(text) => {
            let (input, axis) = text.rsplit_once('.').ok_or_else(refuse)?;
            Ok(Dim::SameAs {
                input: Some(input.to_owned()),
                axis: axis.parse().map_err(|_| refuse())?,
            })
        }
        _ => Err(refuse()),
    }
}

fn lengths(at: &str, law: Law, least: u64, most: u64) -> Result<Lengths, String> {
    if least > most || most > MAX_DIM {
        return Err(format!(
            "`{at}`: {least} to {most} is no range of lengths up to {MAX_DIM}"
        ));
    }
    Ok(Lengths { law, least, most })
}

const VALUES: &str = "\"zeros\", { uniform = [0, 1] }, { normal = { mean = 0, sd = 1 } }, { integers = [0, 9] }, { text = { words = [3, 12] } }, \
                      { text = { bytes = [10, 200] } }, { npy = \"x.npy\" }, { npz = \"x.npz\", name = \"x\" }, { parquet = \"f.parquet\", \
                      column = \"c\" }, { arrow = \"f.arrow\", column = \"c\" }, { file = \"lines.txt\" }";

fn values(at: &str, value: toml::Value, files: &mut Files<'_>) -> Result<Values, String> {
    if value.as_str() == Some("zeros") {
        return Ok(Values::Zeros);
    }
    let raw: RawValues = table(at, value, VALUES)?;
    let ways = [
        raw.uniform.is_some(),
        raw.normal.is_some(),
        raw.integers.is_some(),
        raw.text.is_some(),
        raw.npy.is_some(),
        raw.npz.is_some(),
        raw.parquet.is_some(),
        raw.arrow.is_some(),
        raw.file.is_some(),
    ];
    if ways.iter().filter(|way| **way).count() != 1 {
        return Err(format!(
            "`{at}` says more than one thing, or none; it is one of {VALUES}"
        ));
    }
    if raw.name.is_some() && raw.npz.is_none() {
        return Err(format!("`{at}`: `name` belongs to `npz`"));
    }
    if raw.column.is_some() && raw.parquet.is_none() && raw.arrow.is_none() {
        return Err(format!("`{at}`: `column` belongs to `parquet` or `arrow`"));
    }
    let backwards =
        |from: &dyn std::fmt::Display, to: &dyn std::fmt::Display| Err(format!("`{at}`: {from} to {to} is no range"));
    if let Some([from, to]) = raw.uniform {
        let is_range = from.is_finite() && to.is_finite() && from <= to;
        return if is_range {
            Ok(Values::Uniform { from, to })
        } else {
            backwards(&from, &to)
        };
    }
    if let Some(RawNormal { mean, sd }) = raw.normal {
        within(&format!("{at}.mean"), mean, -1e300, 1e300)?;
        within(&format!("{at}.sd"), sd, 0.0, 1e300)?;
        return Ok(Values::Normal { mean, sd });
    }
    if let Some([least, most]) = raw.integers {
        let (least, most) = (i128::from(least), i128::from(most));
        return if least <= most {
            Ok(Values::Integers { least, most })
        } else {
            backwards(&least, &most)
        };
    }
    if let Some(text) = raw.text {
        return texts(at, &text);
    }
    file_values(at, raw, files).map(|records| Values::File(Arc::new(records)))
}

fn texts(at: &str, text: &RawText) -> Result<Values, String> {
    /// Words, or bytes, of one text.
    const MOST: u32 = 1 << 24;
    let range = |[least, most]: [u32; 2]| {
        if least <= most && most <= MOST {
            Ok((least, most))
        } else {
            Err(format!("`{at}`: {least} to {most} is no range up to {MOST}"))
        }
    };
    match (text.words, text.bytes) {
        (Some(words), None) => range(words).map(|(least, most)| Values::Words { least, most }),
        (None, Some(bytes)) => range(bytes).map(|(least, most)| Values::TextBytes { least, most }),
        _ => Err(format!(
            "`{at}`: `text` is {{ words = [3, 12] }} or {{ bytes = [10, 200] }}"
        )),
    }
}

fn file_values(at: &str, raw: RawValues, files: &mut Files<'_>) -> Result<Records, String> {
    let column =
        |column: Option<String>| column.ok_or_else(|| "`column` is missing: which of its columns is it?".to_owned());
    let records = if let Some(path) = raw.npy {
        let path = files.at(&path);
        read(&path).and_then(|bytes| npy::read(&short(&path), &bytes))
    } else if let Some(path) = raw.npz {
        let path = files.at(&path);
        read(&path).and_then(|bytes| npz::array(&short(&path), &bytes, raw.name.as_deref()))
    } else if let Some(path) = raw.parquet {
        column(raw.column).and_then(|column| columns::parquet(&files.at(&path), &column))
    } else if let Some(path) = raw.arrow {
        column(raw.column).and_then(|column| columns::arrow(&files.at(&path), &column))
    } else {
        lines::records(&files.at(&raw.file.unwrap_or_default()))
    };
    records.map_err(|what| format!("`{at}`: {what}"))
}

fn check_rule(raw: RawCheck, files: &mut Files<'_>) -> Result<CheckRule, String> {
    within("inputs.check.share", raw.share, 0.0, 1.0)?;
    within("inputs.check.tolerance", raw.tolerance, 0.0, 1e6)?;
    let expected = match raw.expected {
        None => None,
        Some(path) => {
            let path = files.at(&path);
            let is_npz = path.extension().is_some_and(|extension| extension == "npz");
            let expected = if is_npz {
                let arrays = read(&path).and_then(|bytes| npz::read(&short(&path), &bytes));
                arrays.map(|arrays| {
                    let shared = arrays.into_iter().map(|(name, records)| (name, Arc::new(records)));
                    Expectations::Arrays(shared.collect())
                })
            } else {
                perf_data::expectations(&path).map(Expectations::Recorded)
            };
            Some(Arc::new(
                expected.map_err(|what| format!("`inputs.check.expected`: {what}"))?,
            ))
        }
    };
    Ok(CheckRule {
        share: raw.share,
        tolerance: raw.tolerance,
        expected,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierlab_load::inputs::{Declared, Inputs, Wish};
    use tierlab_load::payload::Form;
    use tierlab_load::wire::Encoding;
    use tierlab_protocol::tensor::{DataType, TensorSpec};

    fn parse(text: &str) -> Result<InputRules, String> {
        let raw = toml::from_str(text).map_err(|error| error.to_string())?;
        validate(raw, &[], Base::here(Path::new(""))).map(|plan| plan.rules)
    }

    #[test]
    fn another_model_of_a_mix_has_inputs_of_its_own() {
        let of =
            |text: &str, others: &[&str]| validate(toml::from_str(text).unwrap(), others, Base::here(Path::new("")));
        let text =
            "[tensor.x]\nshape = [1]\n[model.\"ctr.2\".tensor.y]\nshape = [2]\n[model.b]\norder = \"shuffled\"\n";
        let plan = of(text, &["ctr.2", "b"]).unwrap();
        assert!(plan.rules.tensors.contains_key("x") && plan.of_others["ctr.2"].tensors.contains_key("y"));
        assert_eq!(plan.of_others["b"].order, Order::Shuffled);
        for (text, what) in [
            (text, "no part of a mix asks `b`"),
            (
                "[model.\"ctr.2\".tensor.y]\nshape = [-1]",
                "`inputs.model.\"ctr.2\".tensor.y.shape[0]` = -1",
            ),
            ("[model.\"ctr.2\".model.c]\norder = \"zipf\"", "no models of its own"),
        ] {
            let refused = of(text, &["ctr.2"]).expect_err(what);
            assert!(refused.contains(what), "{refused}");
        }
        assert_eq!(
            of_model("b", "add\n[inputs.tensor.x]\nto `inputs.order`"),
            "add\n[inputs.model.b.tensor.x]\nto `inputs.model.b.order`"
        );
    }

    #[test]
    fn every_form_of_a_dimension_and_of_values_is_taken() {
        let rules = parse(
            "order = \"zipf\"\nzipf_exponent = 1.1\nrows_per_request = 2\n[tensor.image]\n\
             shape = [\"rows\", 3, { choices = [224, 320] }, { same_as = 2 }, { uniform = [1, 128] }, \
             { lognormal = { median = 64, sigma = 0.6 }, max = 512 }, { same_as = \"other.in.1\" }]\n\
             values = { normal = { mean = 0.0, sd = 1.0 } }\n[tensor.ids]\nvalues = { integers = [0, 30000] }\n\
             [tensor.text]\nvalues = { text = { words = [3, 12] } }\n[tensor.state]\nvalues = \"zeros\"\n\
             [tensor.float]\nvalues = { uniform = [0, 1] }\n",
        )
        .unwrap();
        let image = rules.tensors["image"].shape.as_ref().unwrap();
        assert_eq!((&image[0], &image[1]), (&Dim::Rows, &Dim::Fixed(3)));
        let named = Dim::SameAs {
            input: Some("other.in".into()),
            axis: 1,
        };
        assert_eq!(image[6], named);
        assert!(matches!(rules.tensors["state"].values, Some(Values::Zeros)));
        assert_eq!(rules.order, Order::Zipf { exponent: 1.1 });
    }

    #[test]
    fn what_is_wrong_is_named_by_its_key() {
        for (text, what) in [
            ("ordre = \"zipf\"", "ordre"),
            ("order = \"zipf\"", "`inputs.zipf_exponent` is missing"),
            ("[tensor.x]\nshape = [-1]", "`inputs.tensor.x.shape[0]` = -1"),
            ("[tensor.x]\nshape = [\"row\"]", "is none of a number, \"rows\""),
            (
                "[tensor.x]\nshape = [1, { choise = [1] }]",
                "`inputs.tensor.x.shape[1]`: unknown field `choise`",
            ),
            ("[tensor.x]\nshape = [{ choices = [] }]", "`choices` is empty"),
            (
                "[tensor.x]\nshape = [{ choices = [1], uniform = [1, 2] }]",
                "more than one thing",
            ),
            ("[tensor.x]\nshape = [{ uniform = [3, 2] }]", "3 to 2 is no range"),
            (
                "[tensor.x]\nshape = [{ lognormal = { median = 64, sigma = 1 } }]",
                "`max` is missing",
            ),
            ("[tensor.x]\nshape = [{ same_as = \"other\" }]", "`same_as`"),
            (
                "[tensor.x]\nvalues = \"ones\"",
                "`inputs.tensor.x.values` = \"ones\" is none of \"zeros\"",
            ),
            ("[tensor.x]\nvalues = { uniform = [1, 0] }", "1 to 0 is no range"),
            ("[tensor.x]\nvalues = { text = {} }", "`text` is"),
            (
                "[tensor.x]\nvalues = { parquet = \"f.parquet\" }",
                "`column` is missing",
            ),
            (
                "[tensor.x]\nvalues = { file = \"f\", column = \"c\" }",
                "`column` belongs to",
            ),
            ("[tensor.x]\nvalues = { npy = \"/no/such.npy\" }", "/no/such.npy"),
            ("data = \"/no/such.json\"", "`inputs.data`: /no/such.json"),
            ("requests = \"a\"\ndata = \"b\"", "do not go together"),
            ("[check]\nshare = 2", "`inputs.check.share` = 2"),
        ] {
            let refused = parse(text).expect_err(what);
            assert!(refused.contains(what), "{refused} does not say {what}");
        }
    }

    /// The lines of a refusal, as somebody pastes them.
    fn pasted(said: &str) -> String {
        let toml = said.lines().filter(|line| {
            ["[inputs.", "shape = ", "values = "]
                .iter()
                .any(|start| line.starts_with(start))
        });
        toml.map(|line| format!("{}\n", line.replacen("[inputs.", "[", 1)))
            .collect()
    }

    proptest! {
        /// Whatever a model declares: it can be asked, or what the refusal says makes that it can.
        #[test]
        fn the_lines_of_every_refusal_work(
            shapes in prop::collection::vec((prop::collection::vec(prop::sample::select(vec![-1_i64, 1, 2, 3, 4]), 0..5), 0_usize..14), 1..4),
            name in "[a-z.\\[\"/ ]{1,6}",
            batched: bool,
        ) {
            let spec = |(index, (shape, dtype)): (usize, &(Vec<i64>, usize))| TensorSpec {
                name: format!("{name}{index}"),
                dtype: DataType::ALL[*dtype],
                shape: shape.clone(),
            };
            let inputs: Vec<TensorSpec> = shapes.iter().enumerate().map(spec).collect();
            let declared = Declared { model: "m", inputs: &inputs, outputs: &[], batched };
            let made = Inputs::resolve(&InputRules::default(), &declared).or_else(|said| {
                let rules = parse(&pasted(&said)).map_err(|error| format!("{error}: {said}"))?;
                Inputs::resolve(&rules, &declared).map_err(|error| format!("{error}: {said}"))
            });
            let made = made.map_err(TestCaseError::fail)?;
            let wish = Wish { form: Form::Http(Encoding::Binary), rows: 1, requests: 2, seed: 1, entities: None };
            made.prepare(&wish).map_err(TestCaseError::fail)?;
        }

        #[test]
        fn any_text_is_taken_or_refused(text in "[a-z\\[\\]{}=\"., 0-9-]{0,60}") {
            let _ = parse(&format!("[tensor.x]\nshape = [{text}]"));
            let _ = parse(&format!("[tensor.x]\nvalues = {text}"));
        }
    }
}

//! `[inputs]`: inputs of requests. In: TOML, and its files. Out: validated rules. [`tierlab_load::inputs`] applies them to the inputs
//! that a model declares.

use super::check::Base;
use super::fault::{Fault, check_range, conflict, fault, misplaced, missing, out_of_range, refuse};
use super::value::{self, Within};
use crate::inputs::{InputError, columns, lines, numpy, perf_data, short};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tierlab_formats::toml_error::plain;
use tierlab_load::inputs::{
    CheckRule, Dim, Expectations, InputRules, Law, Lengths, Order, Recorded, RecordedRequest, Records, TensorRule,
    Values, toml_key,
};
use tierlab_load::recording::Call;

/// Largest dimension in a plan.
const MAX_DIM: u64 = 1 << 31;

/// Inputs of requests.
#[derive(Debug, Default, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawInputs {
    /// Order of prepared requests: one after the other, in a random order, or the first ones most often.
    #[serde(default)]
    order: RawOrder,
    /// Exponent of `order = "zipf"`: the request of rank r has a frequency proportional to r^-exponent.
    #[serde(default, with = "Within::<value::ZipfExponent>")]
    zipf_exponent: Option<f64>,
    /// Inferences of one request, for $/10k and inferences per second (default: its rows).
    #[serde(default, with = "Within::<value::RowsPerRequest>")]
    rows_per_request: Option<u32>,
    /// Data of perf_analyzer's `--input-data`: its JSON file (streams, `content`, `shape`, `b64`, `validation_data`), or its folder.
    data: Option<PathBuf>,
    /// File of whole requests, one JSON body per line, sent unchanged.
    requests: Option<PathBuf>,
    /// Rules by the name of the input.
    #[serde(default)]
    tensor: BTreeMap<String, RawTensor>,
    /// Comparison of replies with expected values.
    check: Option<RawCheck>,
    /// The same keys for another model of a mix: `[inputs.model.NAME]`, `[inputs.model.NAME.tensor.INPUT]`.
    #[serde(default)]
    model: BTreeMap<String, RawInputs>,
}

/// `inputs.order`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawOrder {
    #[default]
    Sequential,
    Shuffled,
    Zipf,
}

/// Shape and values of one input.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RawTensor {
    /// Dimensions, each a number; `"rows"`, the load's rows; `{ choices = [224, 320] }`; `{ uniform = [1, 128] }`;
    /// `{ lognormal = { median = 64, sigma = 0.6 }, min = 1, max = 512 }`; `{ file = "lengths.txt" }`; `{ same_as = 2 }` or
    /// `{ same_as = "input.1" }` (default: the model's own, if none is free).
    #[schemars(with = "Option<Vec<serde_json::Value>>")]
    shape: Option<Vec<toml::Value>>,
    /// Elements: `"zeros"`; `{ uniform = [0, 1] }`; `{ normal = { mean = 0, sd = 1 } }`; `{ integers = [0, 30000] }`;
    /// `{ text = { words = [3, 12] } }` or `{ text = { bytes = [10, 200] } }`; of a file `{ npy = "x.npy" }`,
    /// `{ npz = "x.npz", name = "x" }`, `{ parquet = "f.parquet", column = "c" }`, `{ arrow = "f.arrow", column = "c" }`,
    /// `{ file = "lines.txt" }` (default: floats of [0, 1), bytes of 0 to 255, other integers of 0 and 1).
    #[schemars(with = "Option<serde_json::Value>")]
    values: Option<toml::Value>,
}

/// Comparison of replies with expected values.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RawCheck {
    /// Share of replies whose values are compared; of all others, only the structure is checked.
    #[serde(default = "default_share", with = "Within::<value::Ratio>")]
    share: f64,
    /// Accepted difference of a value, absolute and as a share of the expected value.
    #[serde(default = "default_tolerance", with = "Within::<value::Tolerance>")]
    tolerance: f64,
    /// Expected replies: validation data of perf_analyzer (.json), or an .npz with an array for each output (default: the
    /// `validation_data` of `inputs.data`).
    expected: Option<PathBuf>,
}

const fn default_share() -> f64 {
    0.01
}
const fn default_tolerance() -> f64 {
    0.001
}

/// Dimension that is a table of one key.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawDim {
    Choices(Vec<u64>),
    Uniform([u64; 2]),
    File(PathBuf),
    SameAs(toml::Value),
}

/// Dimension with a lognormal length.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLengths {
    lognormal: RawLognormal,
    min: Option<u64>,
    max: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLognormal {
    median: f64,
    sigma: f64,
}

/// Elements that are a table of one key.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum RawValues {
    Uniform([f64; 2]),
    Normal { mean: f64, sd: f64 },
    Integers([i64; 2]),
    Text(RawText),
    Npy(PathBuf),
    File(PathBuf),
}

/// Elements in one array or column of a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawColumn {
    npz: Option<PathBuf>,
    name: Option<String>,
    parquet: Option<PathBuf>,
    arrow: Option<PathBuf>,
    column: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawText {
    Words([u32; 2]),
    Bytes([u32; 2]),
}

/// Inputs of a plan's requests.
#[derive(Debug, Clone, Default)]
pub(super) struct InputsPlan {
    /// Rules of the plan's model.
    pub(super) rules: InputRules,
    /// Rules of other models, by name.
    pub(super) by_model: BTreeMap<String, InputRules>,
}

/// Validates `[inputs]`; `others` are the models that may have inputs of their own.
pub(super) fn validate(mut raw: RawInputs, others: &[&str], base: Base<'_>) -> Result<InputsPlan, Fault> {
    let mut by_model = BTreeMap::new();
    for (name, mut raw) in std::mem::take(&mut raw.model) {
        if !others.contains(&name.as_str()) {
            refuse!(
                format!("inputs.model.{name}"),
                "no part of a mix requests `{name}`, or it is the plan's own model"
            );
        }
        if !std::mem::take(&mut raw.model).is_empty() {
            refuse!(format!("inputs.model.{name}.model"), "a model has no models of its own");
        }
        let rules = rules(raw, &format!("inputs.model.{}", toml_key(&name)), base)?;
        by_model.insert(name, rules);
    }
    Ok(InputsPlan {
        rules: rules(raw, "inputs", base)?,
        by_model,
    })
}

/// Takes the recorded bodies of a replay as whole requests, in their order.
pub(super) fn replay(inputs: &mut InputsPlan, calls: &[Call]) -> Result<(), Fault> {
    let has_body = |call: &&Call| call.body.as_ref().is_some_and(|body| !body.is_empty());
    if !calls.iter().any(|call| has_body(&call)) {
        return Ok(());
    }
    if let Some(bodiless) = calls.iter().find(|call| !has_body(call)) {
        refuse!(
            "arrival.file",
            "{} has no body, but other requests have one; record the bodies of all requests or of none",
            bodiless.place()
        );
    }
    if inputs.rules.recorded.is_some() || inputs.rules.order != Order::Sequential {
        let advice = "a replay sends its own bodies, in their order; leave it out";
        return conflict("inputs", "arrivals", advice);
    }
    let whole = |call: &Call| RecordedRequest {
        place: call.place(),
        whole: call.body.clone().map(Bytes::from),
        ..RecordedRequest::default()
    };
    inputs.rules.recorded = Some(Arc::new(Recorded {
        source: "`arrival.file`".into(),
        requests: calls.iter().map(whole).collect(),
    }));
    Ok(())
}

/// Rewrites the keys of a message about `inputs` to those of another model's inputs.
pub(super) fn rekey(model: &str, text: &str) -> String {
    let key = toml_key(model);
    let below = |open: &str| format!("{open}inputs.model.{key}.");
    text.replace("`inputs.", &below("`")).replace("[inputs.", &below("["))
}

fn rules(raw: RawInputs, at: &str, base: Base<'_>) -> Result<InputRules, Fault> {
    let order = match (raw.order, raw.zipf_exponent) {
        (RawOrder::Sequential, None) => Order::Sequential,
        (RawOrder::Shuffled, None) => Order::Shuffled,
        (RawOrder::Zipf, Some(exponent)) => Order::Zipf { exponent },
        (RawOrder::Zipf, None) => return missing(format!("{at}.zipf_exponent"), "zipf needs one, such as 1.1"),
        (_, Some(_)) => return misplaced(format!("{at}.zipf_exponent"), format!("`{at}.order = \"zipf\"`")),
    };
    let key = |name: &str| format!("{at}.{name}");
    let recorded = match (raw.data, raw.requests) {
        (Some(_), Some(_)) => return conflict(key("data"), key("requests"), "leave one of them out"),
        (Some(data), None) => Some(("data", perf_data::requests(&base.request_file(&data)))),
        (None, Some(requests)) => {
            if !raw.tensor.is_empty() {
                let data = key("data");
                let advice = format!("requests are whole; leave one of them out, or record single inputs in `{data}`");
                return conflict(key("requests"), key("tensor"), advice);
            }
            Some(("requests", lines::requests(&base.request_file(&requests))))
        }
        (None, None) => None,
    };
    let recorded = recorded.map(|(name, read)| read.map_err(|error| file_fault(key(name), &error)));
    let recorded = recorded.transpose()?.map(Arc::new);
    let mut tensors = BTreeMap::new();
    for (name, tensor) in raw.tensor {
        let rule = tensor_rule(&format!("{at}.tensor.{name}"), tensor, base)?;
        tensors.insert(name, rule);
    }
    let check = raw.check.map(|check| check_rule(check, at, base)).transpose()?;
    Ok(InputRules {
        order,
        rows_per_request: raw.rows_per_request,
        tensors,
        recorded,
        check,
    })
}

fn tensor_rule(at: &str, raw: RawTensor, base: Base<'_>) -> Result<TensorRule, Fault> {
    let dim = |(axis, dim): (usize, toml::Value)| dimension(&format!("{at}.shape[{axis}]"), dim, base);
    let shape = raw
        .shape
        .map(|dims| dims.into_iter().enumerate().map(dim).collect::<Result<Vec<_>, _>>());
    let values = raw.values.map(|raw| values(&format!("{at}.values"), raw, base));
    Ok(TensorRule {
        shape: shape.transpose()?,
        values: values.transpose()?,
    })
}

/// Reads a table that has one of the `forms`.
fn table<T: DeserializeOwned>(at: &str, value: toml::Value, forms: &str) -> Result<T, Fault> {
    if !value.is_table() {
        refuse!(at, "invalid value {value}; give one of {forms}");
    }
    value::part(value).map_err(|error: toml::de::Error| fault!(at, "{}; give one of {forms}", plain(error.message())))
}

/// Reads a length that is fixed, or drawn from a distribution.
pub(super) fn drawn_length(at: &str, value: toml::Value, base: Base<'_>) -> Result<Lengths, Fault> {
    match dimension(at, value, base)? {
        Dim::Draw(lengths) => Ok(lengths),
        Dim::Fixed(length) => lengths(at, Law::Uniform, length, length),
        _ => refuse!(
            at,
            "give a number, {{ uniform = [16, 256] }} or {{ lognormal = {{ median = 64, sigma = 0.6 }}, min = 1, max = 512 }}"
        ),
    }
}

const DIMS: &str = "a number, \"rows\", { choices = [224, 320] }, { uniform = [1, 128] }, { lognormal = { median = 64, sigma = 0.6 }, \
                    min = 1, max = 512 }, { file = \"lengths.txt\" }, { same_as = 2 }, { same_as = \"input.1\" }";

fn dimension(at: &str, value: toml::Value, base: Base<'_>) -> Result<Dim, Fault> {
    let size = |size: i64| {
        let found = u64::try_from(size).ok().filter(|size| *size <= MAX_DIM);
        found.ok_or_else(|| Fault::new(at, out_of_range(size, 0, MAX_DIM as i64)))
    };
    match &value {
        toml::Value::Integer(fixed) => return size(*fixed).map(Dim::Fixed),
        toml::Value::String(word) if word == "rows" => return Ok(Dim::Rows),
        toml::Value::Table(keys) if keys.contains_key("lognormal") => {
            let RawLengths { lognormal, min, max } = table(at, value, DIMS)?;
            let RawLognormal { median, sigma } = lognormal;
            check_range(&format!("{at}.median"), median, 1e-3, MAX_DIM as f64)?;
            check_range(&format!("{at}.sigma"), sigma, 0.0, 10.0)?;
            return lengths(at, Law::Lognormal { median, sigma }, min.unwrap_or(1), max).map(Dim::Draw);
        }
        _ => {}
    }
    match table(at, value, DIMS)? {
        RawDim::Choices(choices) => {
            if choices.is_empty() || choices.iter().any(|choice| *choice > MAX_DIM) {
                refuse!(at, "`choices` is empty, or has a value above {MAX_DIM}");
            }
            Ok(Dim::Choices(choices))
        }
        RawDim::Uniform([least, most]) => lengths(at, Law::Uniform, least, most).map(Dim::Draw),
        RawDim::File(file) => {
            let path = base.request_file(&file);
            let lengths = lines::lengths(&path).map_err(|error| file_fault(at, &error))?;
            if let Some(length) = lengths.iter().find(|length| **length > MAX_DIM) {
                refuse!(at, "{}: {length} is above {MAX_DIM}", path.display());
            }
            Ok(Dim::Listed {
                file: short(&path),
                lengths: lengths.into(),
            })
        }
        RawDim::SameAs(other) => same_as(at, &other),
    }
}

fn same_as(at: &str, other: &toml::Value) -> Result<Dim, Fault> {
    let dim = match other {
        toml::Value::Integer(axis) => usize::try_from(*axis).ok().map(|axis| (None, axis)),
        toml::Value::String(text) => text
            .rsplit_once('.')
            .and_then(|(input, axis)| Some((Some(input.to_owned()), axis.parse().ok()?))),
        _ => None,
    };
    let Some((input, axis)) = dim else {
        refuse!(
            at,
            "`same_as` = {other} is neither a dimension of this input, such as 2, nor of another, such as \"input.1\""
        );
    };
    Ok(Dim::SameAs { input, axis })
}

fn lengths(at: &str, law: Law, least: u64, most: u64) -> Result<Lengths, Fault> {
    if least > most || most > MAX_DIM {
        refuse!(at, "{least} to {most} is not a range of lengths up to {MAX_DIM}");
    }
    Ok(Lengths { law, least, most })
}

const VALUES: &str = "\"zeros\", { uniform = [0, 1] }, { normal = { mean = 0, sd = 1 } }, { integers = [0, 9] }, { text = { words = [3, 12] } }, \
                      { text = { bytes = [10, 200] } }, { npy = \"x.npy\" }, { npz = \"x.npz\", name = \"x\" }, { parquet = \"f.parquet\", \
                      column = \"c\" }, { arrow = \"f.arrow\", column = \"c\" }, { file = \"lines.txt\" }";

fn values(at: &str, value: toml::Value, base: Base<'_>) -> Result<Values, Fault> {
    if value.as_str() == Some("zeros") {
        return Ok(Values::Zeros);
    }
    let has = |key: &str| value.get(key).is_some();
    let records = if has("npz") || has("parquet") || has("arrow") {
        column_values(at, table(at, value, VALUES)?, base)?
    } else {
        match table(at, value, VALUES)? {
            RawValues::Uniform([from, to]) if from.is_finite() && to.is_finite() && from <= to => {
                return Ok(Values::Uniform { from, to });
            }
            RawValues::Uniform([from, to]) => refuse!(at, "{from} to {to} is not a range"),
            RawValues::Normal { mean, sd } => {
                check_range(&format!("{at}.mean"), mean, -1e300, 1e300)?;
                check_range(&format!("{at}.sd"), sd, 0.0, 1e300)?;
                return Ok(Values::Normal { mean, sd });
            }
            RawValues::Integers([least, most]) if least <= most => {
                let (least, most) = (least.into(), most.into());
                return Ok(Values::Integers { least, most });
            }
            RawValues::Integers([least, most]) => refuse!(at, "{least} to {most} is not a range"),
            RawValues::Text(text) => return texts(at, &text),
            RawValues::Npy(path) => numpy::npy(&base.request_file(&path)),
            RawValues::File(path) => lines::records(&base.request_file(&path)),
        }
    };
    let records = records.map_err(|error| file_fault(at, &error))?;
    Ok(Values::File(Arc::new(records)))
}

fn texts(at: &str, text: &RawText) -> Result<Values, Fault> {
    /// Maximum words or bytes of one text.
    const MAX: u32 = 1 << 24;
    let (RawText::Words([least, most]) | RawText::Bytes([least, most])) = *text;
    if least > most || most > MAX {
        refuse!(at, "{least} to {most} is not a range up to {MAX}");
    }
    Ok(match text {
        RawText::Words(_) => Values::Words { least, most },
        RawText::Bytes(_) => Values::TextBytes { least, most },
    })
}

/// Reads one array or column of a file.
fn column_values(at: &str, raw: RawColumn, base: Base<'_>) -> Result<Result<Records, InputError>, Fault> {
    Ok(match (raw.npz, raw.parquet, raw.arrow, raw.name, raw.column) {
        (Some(path), None, None, name, None) => numpy::npz_array(&base.request_file(&path), name.as_deref()),
        (None, Some(path), None, None, Some(column)) => columns::parquet(&base.request_file(&path), &column),
        (None, None, Some(path), None, Some(column)) => columns::arrow(&base.request_file(&path), &column),
        _ => refuse!(at, "give one of {VALUES}"),
    })
}

fn file_fault(key: impl Into<String>, error: &InputError) -> Fault {
    Fault::new(key, error.to_string())
}

fn check_rule(raw: RawCheck, at: &str, base: Base<'_>) -> Result<CheckRule, Fault> {
    let expected = raw.expected.map(|path| {
        let path = base.request_file(&path);
        if path.extension().is_none_or(|extension| extension != "npz") {
            return perf_data::expectations(&path).map(Expectations::Recorded);
        }
        let arrays = numpy::npz(&path)?.into_iter();
        let shared = arrays.map(|(name, records)| (name, Arc::new(records)));
        Ok(Expectations::Arrays(shared.collect()))
    });
    let expected = expected.transpose();
    let expected = expected.map_err(|error| file_fault(format!("{at}.check.expected"), &error))?;
    Ok(CheckRule {
        share: raw.share,
        tolerance: raw.tolerance,
        expected: expected.map(Arc::new),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;
    use tierlab_load::inputs::{Declared, Demand, Inputs};
    use tierlab_load::payload::Encoding;
    use tierlab_load::payload::Form;
    use tierlab_protocol::tensor::{DataType, TensorSpec};

    fn parse(text: &str) -> Result<InputRules, Fault> {
        let raw = crate::plan::fault::read(text).map_err(|(_, fault)| fault)?;
        Ok(validate(raw, &[], Base::local(Path::new("")))?.rules)
    }

    #[test]
    fn another_model_of_a_mix_has_inputs_of_its_own() {
        let of =
            |text: &str, others: &[&str]| validate(toml::from_str(text).unwrap(), others, Base::local(Path::new("")));
        let text =
            "[tensor.x]\nshape = [1]\n[model.\"ctr.2\".tensor.y]\nshape = [2]\n[model.b]\norder = \"shuffled\"\n";
        let plan = of(text, &["ctr.2", "b"]).unwrap();
        assert!(plan.rules.tensors.contains_key("x") && plan.by_model["ctr.2"].tensors.contains_key("y"));
        assert_eq!(plan.by_model["b"].order, Order::Shuffled);
        for (text, problem) in [
            (text, "no part of a mix requests `b`"),
            (
                "[model.\"ctr.2\".tensor.y]\nshape = [-1]",
                "`inputs.model.\"ctr.2\".tensor.y.shape[0]`: -1",
            ),
            ("[model.\"ctr.2\".model.c]\norder = \"zipf\"", "no models of its own"),
        ] {
            let refused = of(text, &["ctr.2"]).expect_err(problem).to_string();
            assert!(refused.contains(problem), "{refused}");
        }
        assert_eq!(
            rekey("b", "add\n[inputs.tensor.x]\nto `inputs.order`"),
            "add\n[inputs.model.b.tensor.x]\nto `inputs.model.b.order`"
        );
    }

    #[test]
    fn every_form_of_dimensions_and_values_is_accepted() {
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
    fn errors_name_the_key() {
        for (text, problem) in [
            ("ordre = \"zipf\"", "ordre"),
            ("order = \"zipf\"", "`inputs.zipf_exponent` is missing"),
            ("[tensor.x]\nshape = [-1]", "`inputs.tensor.x.shape[0]`: -1"),
            ("[tensor.x]\nshape = [\"row\"]", "give one of a number, \"rows\""),
            (
                "[tensor.x]\nshape = [1, { choise = [1] }]",
                "`inputs.tensor.x.shape[1]`: unknown variant `choise`",
            ),
            ("[tensor.x]\nshape = [{ choices = [] }]", "`choices` is empty"),
            (
                "[tensor.x]\nshape = [{ choices = [1], uniform = [1, 2] }]",
                "give one of a number",
            ),
            ("[tensor.x]\nshape = [{ uniform = [3, 2] }]", "3 to 2 is not a range"),
            (
                "[tensor.x]\nshape = [{ lognormal = { median = 64, sigma = 1 } }]",
                "missing field `max`",
            ),
            ("[tensor.x]\nshape = [{ same_as = \"other\" }]", "`same_as`"),
            (
                "[tensor.x]\nvalues = \"ones\"",
                "`inputs.tensor.x.values`: invalid value \"ones\"; give one of \"zeros\"",
            ),
            ("[tensor.x]\nvalues = { uniform = [1, 0] }", "1 to 0 is not a range"),
            ("[tensor.x]\nvalues = { text = {} }", "give one of \"zeros\""),
            (
                "[tensor.x]\nvalues = { parquet = \"f.parquet\" }",
                "give one of \"zeros\"",
            ),
            (
                "[tensor.x]\nvalues = { file = \"f\", column = \"c\" }",
                "give one of \"zeros\"",
            ),
            ("[tensor.x]\nvalues = { npy = \"/no/such.npy\" }", "/no/such.npy"),
            ("data = \"/no/such.json\"", "`inputs.data`: /no/such.json"),
            ("requests = \"a\"\ndata = \"b\"", "exclude each other"),
            ("[check]\nshare = 2", "`check.share`: 2 is not between 0 and 1"),
        ] {
            let refused = parse(text).expect_err(problem).to_string();
            assert!(refused.contains(problem), "{refused} does not say {problem}");
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
                let rules = parse(&pasted(&said.to_string())).map_err(|error| format!("{error}: {said}"))?;
                Inputs::resolve(&rules, &declared).map_err(|error| format!("{error}: {said}"))
            });
            let made = made.map_err(TestCaseError::fail)?;
            let wish = Demand { form: Form::Http(Encoding::Binary), rows: 1, requests: 2, seed: 1, entities: None };
            made.prepare(&wish).map_err(|error| TestCaseError::fail(error.to_string()))?;
        }

        #[test]
        fn any_text_is_accepted_or_refused(text in "[a-z\\[\\]{}=\"., 0-9-]{0,60}") {
            let _ = parse(&format!("[tensor.x]\nshape = [{text}]"));
            let _ = parse(&format!("[tensor.x]\nvalues = {text}"));
        }
    }
}

//! `[[journey]]`: requests in a row, begun at given rates, with values handed from replies to later requests. In: TOML. Out: validated
//! journeys, their templates parsed. Knows nothing of what a model declares.

use super::path::{headers, method};
use crate::plan::check::{MAX_RATE, MAX_REQUESTS_PER_STEP, within};
use crate::plan::raw::{RawJourney, RawStep};
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use tierlab_analysis::record::{Driven, Mode};
use tierlab_formats::model::is_plain_name;
use tierlab_load::by_goose::journey::Take;
use tierlab_load::by_goose::journey::template::{Place, Template};
use tierlab_load::load::Load;
use tierlab_load::wire::Protocol;

/// The most steps of a journey.
const MAX_STEPS: usize = 32;
/// The most values that a journey takes.
const MAX_VALUES: usize = 64;
/// The longest name of a journey or step: files are called by both.
const MAX_NAME: usize = 40;
/// The value that every journey has: an entity, drawn as `[keys]` says.
const ENTITY: &str = "entity_id";
/// A journey.
#[derive(Debug, Clone)]
pub struct JourneyPlan {
    /// Its name.
    pub name: String,
    /// Journeys begun per second.
    pub rates: Vec<f64>,
    /// Its steps, in order.
    pub steps: Vec<StepPlan>,
    /// The names of its values by their numbers; the first is `entity_id`.
    pub values: Vec<String>,
}

/// A step of a journey.
#[derive(Debug, Clone)]
pub struct StepPlan {
    /// Its name.
    pub name: String,
    /// What is asked.
    pub ask: Ask,
    /// What is handed on.
    pub take: Vec<Take>,
    /// How many of the journey's values are known when it begins.
    pub known: usize,
}

/// What a step asks.
#[derive(Debug, Clone)]
pub enum Ask {
    /// A model, by the Open Inference Protocol.
    Model {
        /// Its name.
        model: String,
        /// What the request goes over.
        protocol: Protocol,
        /// What it is given.
        content: Content,
    },
    /// A path of the server.
    Http {
        /// How.
        method: Method,
        /// Path and query.
        path: Template,
        /// As the plan writes them.
        path_text: String,
        /// Headers of every request.
        headers: HeaderMap,
        /// The body.
        body: Option<Template>,
        /// The status that says success; any 2xx where absent.
        status: Option<u16>,
    },
}

/// What a model is given.
#[derive(Debug, Clone)]
pub enum Content {
    /// The journey's entity, whose rows the server joins.
    Entity,
    /// Values by input; strings may be templates.
    Inputs(BTreeMap<String, Json>),
    /// A whole request as JSON.
    Body(Template),
}

impl JourneyPlan {
    /// What is begun at a rate.
    #[must_use]
    pub const fn load(rate: f64) -> Load {
        Load {
            mode: Mode::Realtime,
            batch_size: 1,
            rate,
        }
    }

    /// What tells its points from others: the whole, or one step.
    #[must_use]
    pub fn driven(&self, step: Option<&StepPlan>) -> Driven {
        Driven::Journey {
            name: self.name.clone(),
            step: step.map(|step| step.name.clone()),
        }
    }

    /// Whether any step asks for an entity.
    #[must_use]
    pub fn takes_entity(&self) -> bool {
        self.steps.iter().any(|step| match &step.ask {
            Ask::Model { content, .. } => match content {
                Content::Entity => true,
                Content::Body(body) => body.slots().any(|slot| slot == 0),
                Content::Inputs(inputs) => inputs.values().any(|value| {
                    value
                        .as_str()
                        .is_some_and(|text| text.contains(&format!("{{{ENTITY}}}")))
                }),
            },
            Ask::Http { path, body, .. } => path
                .slots()
                .chain(body.iter().flat_map(Template::slots))
                .any(|slot| slot == 0),
        })
    }

    /// Whether any step goes over gRPC.
    #[must_use]
    pub fn speaks_grpc(&self) -> bool {
        let is_grpc = |step: &StepPlan| {
            matches!(
                step.ask,
                Ask::Model {
                    protocol: Protocol::Grpc,
                    ..
                }
            )
        };
        self.steps.iter().any(is_grpc)
    }

    /// The models that it asks.
    pub fn models(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().filter_map(|step| match &step.ask {
            Ask::Model { model, .. } => Some(model.as_str()),
            Ask::Http { .. } => None,
        })
    }
}

/// What a plan says of every journey: how long a measured step is, and what models are asked over.
#[derive(Debug, Clone, Copy)]
pub(in crate::plan) struct Frame {
    pub(in crate::plan) warmup_s: f64,
    pub(in crate::plan) step_s: f64,
    pub(in crate::plan) protocol: Protocol,
}

pub(in crate::plan) fn validate(raw: Vec<RawJourney>, frame: Frame) -> Result<Vec<JourneyPlan>, String> {
    let mut journeys: Vec<JourneyPlan> = Vec::new();
    for (index, raw) in raw.into_iter().enumerate() {
        let at = format!("journey[{index}]");
        let journey = journey(raw, &at, frame)?;
        if journeys.iter().any(|other| other.name == journey.name) {
            return Err(format!("`{at}.name` = `{}` stands twice", journey.name));
        }
        journeys.push(journey);
    }
    Ok(journeys)
}

fn journey(raw: RawJourney, at: &str, frame: Frame) -> Result<JourneyPlan, String> {
    check_name(&raw.name, &format!("{at}.name"))?;
    within(
        &format!("{at}.step (their number)"),
        raw.step.len() as f64,
        1.0,
        MAX_STEPS as f64,
    )?;
    if raw.rates.is_empty() {
        return Err(format!("`{at}.rates` is empty"));
    }
    for (i, &rate) in raw.rates.iter().enumerate() {
        within(&format!("{at}.rates"), rate, 0.01, MAX_RATE)?;
        if raw.rates[..i].contains(&rate) {
            return Err(format!("`{at}.rates`: {rate} stands twice"));
        }
        if rate * frame.step_s < 1.0 {
            return Err(format!(
                "`{at}.rates`: {rate} per second begins nothing in a step of {} s",
                frame.step_s
            ));
        }
        if rate * (frame.warmup_s + frame.step_s) * raw.step.len() as f64 > MAX_REQUESTS_PER_STEP {
            return Err(format!(
                "`{at}.rates`: {rate} per second of {} requests each is more than {MAX_REQUESTS_PER_STEP} requests a step; shorten \
                 `step_s`",
                raw.step.len()
            ));
        }
    }
    let mut values = vec![ENTITY.to_owned()];
    let mut steps: Vec<StepPlan> = Vec::new();
    for (index, raw) in raw.step.into_iter().enumerate() {
        let at = format!("{at}.step[{index}]");
        check_name(&raw.name, &format!("{at}.name"))?;
        if steps.iter().any(|other| other.name == raw.name) {
            return Err(format!("`{at}.name` = `{}` stands twice", raw.name));
        }
        steps.push(step(&raw, &at, &mut values, frame.protocol)?);
    }
    Ok(JourneyPlan {
        name: raw.name,
        rates: raw.rates,
        steps,
        values,
    })
}

fn check_name(name: &str, key: &str) -> Result<(), String> {
    if is_plain_name(name) && name.len() <= MAX_NAME {
        Ok(())
    } else {
        Err(format!(
            "`{key}` = `{name}` is no plain name of at most {MAX_NAME} letters, digits, `.`, `_`, `-`"
        ))
    }
}

fn step(raw: &RawStep, at: &str, values: &mut Vec<String>, protocol: Protocol) -> Result<StepPlan, String> {
    let known = values.len();
    let take = take(&raw.take, at, values)?;
    let names = &values[..known];
    let name = raw.name.clone();
    let ask = match (&raw.model, &raw.path) {
        (Some(_), Some(_)) => return Err(format!("`{at}.path`: a step asks a `model` or a `path`, not both")),
        (None, None) => {
            return Err(format!(
                "`{at}.model` is missing: a step asks a `model`, or a `path` of the server"
            ));
        }
        (Some(model), None) => of_model(raw, model, at, names, raw.protocol.unwrap_or(protocol))?,
        (None, Some(path)) => of_path(raw, path, at, names)?,
    };
    Ok(StepPlan { name, ask, take, known })
}

fn of_model(raw: &RawStep, model: &str, at: &str, names: &[String], protocol: Protocol) -> Result<Ask, String> {
    if !is_plain_name(model) {
        return Err(format!("`{at}.model` = `{model}` is no plain name"));
    }
    for (key, is_there) in [
        ("method", raw.method.is_some()),
        ("headers", !raw.headers.is_empty()),
        ("status", raw.status.is_some()),
    ] {
        if is_there {
            return Err(format!(
                "`{at}.{key}` belongs to a step with `path`; a model is asked by the Open Inference Protocol"
            ));
        }
    }
    let content = match (&raw.inputs, &raw.body) {
        (Some(_), Some(_)) => return Err(format!("`{at}.body`: a model is given `inputs` or a `body`, not both")),
        (None, None) => Content::Entity,
        (None, Some(body)) => {
            if protocol == Protocol::Grpc && body.contains("\"parameters\"") {
                return Err(format!(
                    "`{at}.body`: over gRPC its `id`, `inputs` and `outputs` are sent as a message, and its `parameters` are not; leave \
                     them out, or give the step `protocol = \"http\"`"
                ));
            }
            let body = Template::parse(body, Place::Body, names).map_err(|what| format!("`{at}.body`: {what}"))?;
            Content::Body(body)
        }
        (Some(inputs), None) => {
            let mut given = BTreeMap::new();
            for (name, value) in inputs {
                let key = format!("{at}.inputs.{name}");
                let value = json(value, &key)?;
                if let Some(text) = value.as_str() {
                    Template::parse(text, Place::Path, names).map_err(|what| format!("`{key}`: {what}"))?;
                }
                given.insert(name.clone(), value);
            }
            if given.is_empty() {
                return Err(format!("`{at}.inputs` is empty"));
            }
            Content::Inputs(given)
        }
    };
    Ok(Ask::Model {
        model: model.to_owned(),
        protocol,
        content,
    })
}

fn of_path(raw: &RawStep, path: &str, at: &str, names: &[String]) -> Result<Ask, String> {
    if raw.inputs.is_some() {
        return Err(format!("`{at}.inputs` belongs to a step with `model`; give a `body`"));
    }
    if raw.protocol == Some(Protocol::Grpc) {
        return Err(format!(
            "`{at}.protocol` belongs to a step with `model`: a `path` is asked over HTTP, and gRPC has none"
        ));
    }
    if !path.starts_with('/') || path.starts_with("//") || path.contains(|c: char| c.is_whitespace() || c == '#') {
        return Err(format!(
            "`{at}.path` = `{path}` is no path of the server; it begins with one `/` and has neither blanks nor `#`"
        ));
    }
    let body = raw
        .body
        .as_ref()
        .map(|body| Template::parse(body, Place::Body, names).map_err(|what| format!("`{at}.body`: {what}")));
    let body = body.transpose()?;
    if let Some(status) = raw.status {
        within(&format!("{at}.status"), f64::from(status), 100.0, 599.0)?;
    }
    Ok(Ask::Http {
        method: method(raw.method.as_deref(), body.is_some(), at)?,
        path: Template::parse(path, Place::Path, names).map_err(|what| format!("`{at}.path`: {what}"))?,
        path_text: path.to_owned(),
        headers: headers(&raw.headers, body.is_some(), at)?,
        body,
        status: raw.status,
    })
}

/// What a step hands on, its names added to those known.
fn take(raw: &BTreeMap<String, String>, at: &str, values: &mut Vec<String>) -> Result<Vec<Take>, String> {
    let mut taken = Vec::new();
    for (name, pointer) in raw {
        let key = format!("{at}.take.{name}");
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_name {
            return Err(format!("`{key}`: a value is called by letters, digits and `_`"));
        }
        if values.contains(name) {
            return Err(format!("`{key}`: there is a value of that name already"));
        }
        if !(pointer.is_empty() || pointer.starts_with('/')) {
            return Err(format!(
                "`{key}` = `{pointer}` is no JSON pointer; write it as /outputs/0/data, or as \"\" for the whole reply"
            ));
        }
        if values.len() > MAX_VALUES {
            return Err(format!("`{key}`: a journey takes at most {MAX_VALUES} values"));
        }
        taken.push(Take {
            slot: values.len(),
            pointer: pointer.clone(),
        });
        values.push(name.clone());
    }
    Ok(taken)
}

fn json(value: &toml::Value, key: &str) -> Result<Json, String> {
    match value {
        toml::Value::String(text) => Ok(Json::from(text.as_str())),
        toml::Value::Integer(number) => Ok(Json::from(*number)),
        toml::Value::Float(number) if number.is_finite() => Ok(Json::from(*number)),
        toml::Value::Boolean(is) => Ok(Json::from(*is)),
        toml::Value::Array(items) => items.iter().map(|item| json(item, key)).collect(),
        toml::Value::Float(_) | toml::Value::Datetime(_) | toml::Value::Table(_) => Err(format!(
            "`{key}`: an input is a number, a text, true or false, or a list of them"
        )),
    }
}

//! `[[journey]]`: sequences of requests, begun at given rates, that pass values from replies to later requests. In:
//! TOML. Out: validated journeys with parsed templates.

use super::check::StepTimes;
use super::fault::{
    Fault, check_count, check_distinct, check_name, conflict, duplicate, empty, fault, misplaced, missing, only_with,
    refuse, require_goose,
};
use super::raw::{RawJourney, RawPlan, RawStep};
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use tierlab_analysis::record::{Driven, Mode};
use tierlab_load::by_goose::journey::Extraction;
use tierlab_load::by_goose::journey::template::{Template, Usage};
use tierlab_load::payload::{Encoding, Protocol};
use tierlab_load::schedule::Load;

/// Maximum steps of a journey.
const MAX_STEPS: usize = 32;
/// Maximum values that a journey takes.
const MAX_VALUES: usize = 64;
/// Longest name of a journey or step, in bytes: file names contain both.
const MAX_NAME: usize = 40;
/// Headers that carry credentials, which a result would keep.
const CREDENTIALS: [&str; 4] = ["authorization", "proxy-authorization", "cookie", "x-api-key"];

/// Methods of requests to a path.
const METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"];
/// Value of every journey: an entity, drawn from `[keys]`.
const ENTITY: &str = "entity_id";

/// Sequence of requests.
#[derive(Debug, Clone)]
pub struct JourneyPlan {
    /// Name in results.
    pub name: String,
    /// Journeys begun per second.
    pub rates: Vec<f64>,
    /// Steps, in order.
    pub steps: Vec<StepPlan>,
    /// Names of its values by number; the first is `entity_id`.
    pub values: Vec<String>,
}

/// One request of a journey.
#[derive(Debug, Clone)]
pub struct StepPlan {
    /// Name in results.
    pub name: String,
    /// Request to make.
    pub request: Request,
    /// Values passed to later steps.
    pub take: Vec<Extraction>,
    /// Number of the journey's values that are known when the step begins.
    pub available: usize,
}

/// Request of a step.
#[derive(Debug, Clone)]
pub enum Request {
    /// Request to a model, by the Open Inference Protocol.
    Model {
        /// Name of the model.
        model: String,
        /// Transport of the request.
        protocol: Protocol,
        /// Inputs of the request.
        content: StepInputs,
    },
    /// Request to a path of the server.
    Http {
        /// HTTP method.
        method: Method,
        /// Path and query.
        path: Template,
        /// Path and query as the plan writes them.
        path_text: String,
        /// Headers of every request.
        headers: HeaderMap,
        /// Body of the request.
        body: Option<Template>,
        /// Status of a success (default: any 2xx).
        status: Option<u16>,
    },
}

/// Inputs of a model.
#[derive(Debug, Clone)]
pub enum StepInputs {
    /// Entity of the journey, whose rows the server joins.
    Entity,
    /// Values by input; strings may be templates.
    Inputs(BTreeMap<String, Json>),
    /// A whole request as JSON.
    Body(Template),
}

impl JourneyPlan {
    /// Load of journeys begun at a rate.
    pub const fn load(rate: f64) -> Load {
        Load {
            mode: Mode::Realtime,
            batch_size: 1,
            rate,
        }
    }

    /// Factor of the points of the whole journey or of one step.
    pub fn driven(&self, step: Option<&StepPlan>) -> Driven {
        Driven::Journey {
            name: self.name.clone(),
            step: step.map(|step| step.name.clone()),
        }
    }

    /// True if any step requests an entity.
    pub fn takes_entity(&self) -> bool {
        let names_entity = |value: &Json| value.as_str().is_some_and(|text| text.contains("{entity_id}"));
        let uses_entity = |template: &Template| template.slots().any(|slot| slot == 0);
        self.steps.iter().any(|step| match &step.request {
            Request::Model { content, .. } => match content {
                StepInputs::Entity => true,
                StepInputs::Body(body) => uses_entity(body),
                StepInputs::Inputs(inputs) => inputs.values().any(names_entity),
            },
            Request::Http { path, body, .. } => uses_entity(path) || body.iter().any(uses_entity),
        })
    }

    /// True if any step goes over gRPC.
    pub fn speaks_grpc(&self) -> bool {
        let is_grpc = |call: &Request| matches!(call, Request::Model { protocol, .. } if *protocol == Protocol::Grpc);
        self.steps.iter().any(|step| is_grpc(&step.request))
    }

    /// Models that it requests.
    pub fn models(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().filter_map(|step| match &step.request {
            Request::Model { model, .. } => Some(model.as_str()),
            Request::Http { .. } => None,
        })
    }
}

pub(super) fn validate(plan: &RawPlan, lengths: StepTimes) -> Result<Vec<JourneyPlan>, Fault> {
    if !plan.journey.is_empty() && plan.encoding == Some(Encoding::Binary) {
        return conflict(
            "encoding",
            "journey",
            "values of replies are passed on as JSON; leave `encoding` out, or send binary tensors by `protocol = \"grpc\"`",
        );
    }
    let mut journeys: Vec<JourneyPlan> = Vec::new();
    for (index, raw) in plan.journey.iter().enumerate() {
        let at = format!("journey[{index}]");
        require_goose(&at)?;
        let journey = journey(raw, &at, lengths, plan.protocol)?;
        if journeys.iter().any(|other| other.name == journey.name) {
            return duplicate(format!("{at}.name"), journey.name);
        }
        journeys.push(journey);
    }
    Ok(journeys)
}

fn journey(raw: &RawJourney, at: &str, lengths: StepTimes, protocol: Protocol) -> Result<JourneyPlan, Fault> {
    check_label(&raw.name, &format!("{at}.name"))?;
    check_count(&format!("{at}.step"), raw.step.len(), 1, MAX_STEPS)?;
    if raw.rates.is_empty() {
        return empty(format!("{at}.rates"));
    }
    check_distinct(&format!("{at}.rates"), &raw.rates)?;
    for (i, &rate) in raw.rates.iter().enumerate() {
        let key = format!("{at}.rates[{i}]");
        lengths.check_rate(&key, rate, raw.step.len())?;
    }
    let mut values = vec![ENTITY.to_owned()];
    let mut steps: Vec<StepPlan> = Vec::new();
    for (index, raw) in raw.step.iter().enumerate() {
        let at = format!("{at}.step[{index}]");
        check_label(&raw.name, &format!("{at}.name"))?;
        if steps.iter().any(|other| other.name == raw.name) {
            return duplicate(format!("{at}.name"), &raw.name);
        }
        steps.push(step(raw, &at, &mut values, protocol)?);
    }
    Ok(JourneyPlan {
        name: raw.name.clone(),
        rates: raw.rates.clone(),
        steps,
        values,
    })
}

fn check_label(name: &str, key: &str) -> Result<(), Fault> {
    if name.len() > MAX_NAME {
        refuse!(key, "`{name}` has more than {MAX_NAME} characters");
    }
    check_name(key, name)
}

fn step(raw: &RawStep, at: &str, values: &mut Vec<String>, protocol: Protocol) -> Result<StepPlan, Fault> {
    let available = values.len();
    let take = take(&raw.take, at, values)?;
    let names = &values[..available];
    let request = match (&raw.model, &raw.path) {
        (Some(_), Some(_)) => refuse!(format!("{at}.path"), "a step requests a `model` or a `path`, not both"),
        (None, None) => {
            let advice = "a step requests a `model`, or a `path` of the server";
            return missing(format!("{at}.model"), advice);
        }
        (Some(model), None) => for_model(raw, model, at, names, raw.protocol.unwrap_or(protocol))?,
        (None, Some(path)) => for_path(raw, path, at, names)?,
    };
    Ok(StepPlan {
        name: raw.name.clone(),
        request,
        take,
        available,
    })
}

fn for_model(raw: &RawStep, model: &str, at: &str, names: &[String], protocol: Protocol) -> Result<Request, Fault> {
    check_name(&format!("{at}.model"), model)?;
    let given = [
        ("method", raw.method.is_some()),
        ("headers", !raw.headers.is_empty()),
        ("status", raw.status.is_some()),
    ];
    let owner = "`path`; a model is requested by the Open Inference Protocol";
    only_with(at, owner, &given)?;
    let content = match (&raw.inputs, &raw.body) {
        (Some(_), Some(_)) => refuse!(format!("{at}.body"), "a model takes `inputs` or a `body`, not both"),
        (None, None) => StepInputs::Entity,
        (None, Some(body)) => {
            if protocol == Protocol::Grpc && body.contains("\"parameters\"") {
                refuse!(
                    format!("{at}.body"),
                    "over gRPC its `id`, `inputs` and `outputs` are sent as a message, and its `parameters` are not; leave them out, or \
                     give the step `protocol = \"http\"`"
                );
            }
            let body = Template::parse(body, Usage::Body, names);
            StepInputs::Body(body.map_err(|problem| Fault::new(format!("{at}.body"), problem))?)
        }
        (Some(inputs), None) => {
            let mut given = BTreeMap::new();
            for (name, value) in inputs {
                let key = format!("{at}.inputs.{name}");
                let value = json(value, &key)?;
                if let Some(text) = value.as_str() {
                    Template::parse(text, Usage::Path, names).map_err(|problem| Fault::new(key, problem))?;
                }
                given.insert(name.clone(), value);
            }
            if given.is_empty() {
                return empty(format!("{at}.inputs"));
            }
            StepInputs::Inputs(given)
        }
    };
    Ok(Request::Model {
        model: model.to_owned(),
        protocol,
        content,
    })
}

fn for_path(raw: &RawStep, path: &str, at: &str, names: &[String]) -> Result<Request, Fault> {
    if raw.inputs.is_some() {
        return misplaced(format!("{at}.inputs"), "`model`; give a `body`");
    }
    if raw.protocol == Some(Protocol::Grpc) {
        return misplaced(format!("{at}.protocol"), "`model`: a `path` is requested over HTTP");
    }
    if !path.starts_with('/') || path.starts_with("//") || path.contains(|c: char| c.is_whitespace() || c == '#') {
        refuse!(
            format!("{at}.path"),
            "`{path}` is not a path of the server; it begins with one `/` and has neither blanks nor `#`"
        );
    }
    let fault_at = |key: &'static str| move |problem: anyhow::Error| Fault::new(format!("{at}.{key}"), problem);
    let body = raw.body.as_ref().map(|body| Template::parse(body, Usage::Body, names));
    let body = body.transpose().map_err(fault_at("body"))?;
    Ok(Request::Http {
        method: method(raw.method.as_deref(), body.is_some(), at)?,
        path: Template::parse(path, Usage::Path, names).map_err(fault_at("path"))?,
        path_text: path.to_owned(),
        headers: headers(&raw.headers, body.is_some(), at)?,
        body,
        status: raw.status,
    })
}

/// Values that a step passes to later steps. Adds their names to `values`.
fn take(raw: &BTreeMap<String, String>, at: &str, values: &mut Vec<String>) -> Result<Vec<Extraction>, Fault> {
    let mut takes = Vec::new();
    for (name, pointer) in raw {
        let key = format!("{at}.take.{name}");
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_name {
            refuse!(key, "invalid name of a value; use letters, digits and `_`");
        }
        if values.contains(name) {
            refuse!(key, "another value has this name");
        }
        if !(pointer.is_empty() || pointer.starts_with('/')) {
            refuse!(
                key,
                "`{pointer}` is not a JSON pointer; write it as /outputs/0/data, or as \"\" for the whole reply"
            );
        }
        if values.len() > MAX_VALUES {
            refuse!(key, "too many values; the limit per journey is {MAX_VALUES}");
        }
        takes.push(Extraction {
            slot: values.len(),
            pointer: pointer.clone(),
        });
        values.push(name.clone());
    }
    Ok(takes)
}

fn json(value: &toml::Value, key: &str) -> Result<Json, Fault> {
    match value {
        toml::Value::String(text) => Ok(Json::from(text.as_str())),
        toml::Value::Integer(number) => Ok(Json::from(*number)),
        toml::Value::Float(number) if number.is_finite() => Ok(Json::from(*number)),
        toml::Value::Boolean(is) => Ok(Json::from(*is)),
        toml::Value::Array(items) => items.iter().map(|item| json(item, key)).collect(),
        toml::Value::Float(_) | toml::Value::Datetime(_) | toml::Value::Table(_) => Err(fault!(
            key,
            "an input is a number, a text, true or false, or a list of them"
        )),
    }
}

/// Method of a step (default: POST with a body, else GET).
fn method(chosen: Option<&str>, has_body: bool, at: &str) -> Result<Method, Fault> {
    let name = chosen.unwrap_or(if has_body { "POST" } else { "GET" });
    let method = name.parse().ok().filter(|_: &Method| METHODS.contains(&name));
    let Some(method) = method else {
        refuse!(
            format!("{at}.method"),
            "unsupported method `{name}`; use GET, POST, PUT, PATCH, DELETE or HEAD"
        );
    };
    if has_body && matches!(method, Method::GET | Method::HEAD) {
        refuse!(format!("{at}.body"), "a {method} request has no body");
    }
    Ok(method)
}

/// Headers of a step's requests, beside those of the target.
fn headers(extra: &BTreeMap<String, String>, has_body: bool, at: &str) -> Result<HeaderMap, Fault> {
    let mut headers = HeaderMap::new();
    if has_body {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    for (name, value) in extra {
        let key = format!("{at}.headers.{name}");
        let name: HeaderName = name.parse().map_err(|_| fault!(&key, "invalid header name"))?;
        if CREDENTIALS.contains(&name.as_str()) {
            refuse!(key, "credentials are not allowed in journeys: results keep the plan");
        }
        let value = HeaderValue::from_str(value).map_err(|_| fault!(key, "invalid header value"))?;
        headers.insert(name, value);
    }
    Ok(headers)
}

//! Plan as written in its file. In: TOML. Out: keys with their defaults, numbers within their ranges. [`super::Plan`]
//! checks keys that depend on each other.

use super::check::{Base, PlanFacts, StepTimes};
use super::value::{self, Within};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tierlab_analysis::record::Limits;
use tierlab_load::driver::{Compress, ConnectionUse};

/// JSON Schema of plans.
pub fn schema() -> Schema {
    tierlab_program::schema::of_toml::<RawPlan>()
}

/// Plan of a sweep, or with `[lab]` of a lab.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Tierlab plan")]
pub(super) struct RawPlan {
    /// Name of the run, a plain word. The folder of its results is named after it and the time.
    pub(super) name: String,
    /// Model to request. The server must have it.
    pub(super) model: String,
    /// Seed of every step's arrivals and keys: the same plan sends the same requests at the same times.
    pub(super) seed: u64,
    /// Repeats of each configuration. Each repeat passes over all configurations. Ten short repeats tell more than three long
    /// ones: intervals rest on the differences between repeats.
    #[serde(default = "value::default::<10>", with = "Within::<value::Repeats>")]
    pub(super) repeats: u32,
    /// Seconds at the start of a step that are cut off by schedule.
    #[serde(with = "Within::<value::Warmup>")]
    pub(super) warmup_s: f64,
    /// Measured seconds of a step.
    #[serde(with = "Within::<value::Step>")]
    pub(super) step_s: f64,
    /// Seconds after a step in which replies may arrive. A request still in flight then is an error with its age as
    /// latency.
    #[serde(with = "Within::<value::Drain>")]
    pub(super) drain_s: f64,
    /// Users, and so the maximum of requests in flight. A request that finds every user busy waits, and its wait counts.
    #[serde(default = "value::default::<256>", with = "Within::<value::MaxInFlight>")]
    pub(super) max_in_flight: u32,
    /// "kept" for a connection of each user that its requests share; "new" for a connection of each request, whose set-up counts as
    /// service time; or a number of connections, opened before the step, for which requests wait as in a client's pool: over HTTP/1.1
    /// one request at a time on each, over HTTP/2 and gRPC any number (open loops only).
    #[serde(default)]
    pub(super) connections: ConnectionUse,
    /// Bodies compressed with gzip: "requests", "replies" or "both". Times end with the last byte, before it is decompressed.
    pub(super) compress: Option<Compress>,
    /// If true, requests in open loops go over HTTP/2, with TLS by ALPN and without by prior knowledge. Metadata and the request before
    /// the measurement go over HTTP/1.1.
    #[serde(default)]
    pub(super) http2: bool,
    /// Client's time limit for one request, from its actual send.
    #[serde(default = "value::default::<2_000>", with = "Within::<value::Timeout>")]
    pub(super) timeout_ms: u32,
    /// Longest reply that is read, in bytes (default: from the declared outputs; 64 MiB if they are unknown).
    #[serde(default, with = "Within::<value::ReplyLimit>")]
    pub(super) reply_limit_bytes: Option<u64>,
    /// Transport of the Open Inference Protocol: "http", or "grpc" at `--grpc-url`. A lab starts its servers with it.
    #[serde(default)]
    pub(super) protocol: tierlab_load::payload::Protocol,
    /// Encoding of tensors over HTTP, in requests and replies: "json", or "binary" (the binary tensor data extension) (default:
    /// "json").
    pub(super) encoding: Option<tierlab_load::payload::Encoding>,
    /// Arrival process: "poisson", "constant", "gamma" (bursts), "trace" (gaps of recorded requests, stretched to the load's
    /// rate), or "replay" (recorded requests at their own times, without a `[[load]]`). The last three have their keys in `[arrival]`.
    #[serde(default)]
    pub(super) arrivals: super::arrivals::RawProcess,
    #[serde(default)]
    pub(super) arrival: super::arrivals::RawArrival,
    /// Rate over the window, with the load's rate as its mean (default: flat). A straight line between two shares of it, `{
    /// kind = "ramp", from = 0.5, to = 1.5 }`, or pieces of equal length, `{ kind = "steps", shares = [1, 4, 1] }`.
    pub(super) shape: Option<super::arrivals::RawShape>,
    #[serde(default)]
    pub(super) keys: RawKeys,
    #[serde(default)]
    pub(super) inputs: super::inputs::RawInputs,
    /// If true, the highest real-time load is first measured on an endpoint that does nothing.
    #[serde(default)]
    pub(super) noise_floor: bool,
    /// If true, `selfcheck` (29 s) runs first and its lines are in the report. If false, the report has the lines of this
    /// machine's certificate, which `tierlab-loadgen selfcheck` stores for 7 days.
    #[serde(default)]
    pub(super) selfcheck: bool,
    /// Price list (default: nothing is priced).
    pub(super) prices: Option<PathBuf>,
    /// Instance of that list which the server is assumed to run on.
    pub(super) instance: Option<String>,
    #[serde(default)]
    pub(super) limits: Limits,
    pub(super) search: Option<super::search::RawSearch>,
    /// If true, every request is a row of a Parquet file of its step, below `requests` in the run's folder (requests in open loops,
    /// sent by one process); `--keep-requests` sets it too.
    #[serde(default)]
    pub(super) keep_requests: bool,
    /// If true, higher rates of a kind of request are left out once a lower one is saturated.
    #[serde(default)]
    pub(super) stop_at_saturation: bool,
    /// If true, a disturbed step is not measured again, and no step waits for a quiet machine: a first figure in a known time.
    #[serde(default)]
    pub(super) measure_once: bool,
    #[serde(default)]
    pub(super) load: Vec<super::loads::RawLoad>,
    #[serde(default)]
    pub(super) mix: Vec<super::loads::Mix>,
    #[serde(default)]
    pub(super) journey: Vec<RawJourney>,
    pub(super) question: Option<super::question::RawQuestion>,
    #[serde(default)]
    pub(super) variant: Vec<super::variant::RawVariant>,
    pub(super) target: Option<super::target::RawTarget>,
    pub(super) lab: Option<RawLab>,
    /// Servers that share a tier, and its limits for all of them.
    pub(super) fleet: Option<super::storage::RawFleet>,
}

impl RawPlan {
    /// Facts that its parts are checked against; its paths are relative to `base`.
    pub(super) const fn facts<'a>(&'a self, base: Base<'a>) -> PlanFacts<'a> {
        PlanFacts {
            base,
            step: StepTimes {
                warmup_s: self.warmup_s,
                step_s: self.step_s,
            },
            repeats: self.repeats,
            limits: &self.limits,
            protocol: self.protocol,
            fleet: self.fleet.as_ref(),
            has_prices: self.prices.is_some(),
            replay: None,
        }
    }
}

/// Distribution of the requested entities.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawKeys {
    /// "uniform"; "zipf", whose popular entities are scattered over the table; "sequential"; or "file", whose ids are requested
    /// in its order.
    #[serde(default)]
    pub(super) distribution: RawDistribution,
    /// Exponent of "zipf".
    #[serde(default, with = "Within::<value::ZipfExponent>")]
    pub(super) exponent: Option<f64>,
    /// CSV file of ids, with "file".
    pub(super) file: Option<PathBuf>,
    /// Column of ids, with "file" (default: "entity_id").
    pub(super) column: Option<String>,
    /// True if keys are texts or UUIDs, separated by `;` within a cell; with "file".
    #[serde(default)]
    pub(super) text: bool,
}

/// `keys.distribution`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawDistribution {
    #[default]
    Uniform,
    Zipf,
    Sequential,
    File,
}

/// Sequence of requests that depend on each other.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawJourney {
    /// Name in the result, a plain word.
    pub(super) name: String,
    /// Journeys begun per second, by the plan's arrivals; each rate is measured by itself.
    pub(super) rates: Vec<f64>,
    /// Requests, in their order.
    #[serde(default)]
    pub(super) step: Vec<RawStep>,
}

/// Request of a journey.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawStep {
    /// Name in the result, a plain word.
    pub(super) name: String,
    /// Model to request, in place of a `path`.
    pub(super) model: Option<String>,
    /// Transport for a `model`: "http", or "grpc" at `--grpc-url` (default: the plan's `protocol`).
    pub(super) protocol: Option<tierlab_load::payload::Protocol>,
    /// Value of each input of a `model`, a number, a list or a text; `"{name}"` is a value that an earlier step took,
    /// or `{entity_id}`. Without `inputs` and `body` the model joins the row of `{entity_id}`.
    #[schemars(with = "Option<value::AnyTable>")]
    pub(super) inputs: Option<BTreeMap<String, toml::Value>>,
    /// Method for a `path`: GET, POST, PUT, PATCH, DELETE or HEAD (default: POST with a body, else GET).
    pub(super) method: Option<String>,
    /// Path of the server with its query; `{name}` in it is a value's text, percent-encoded.
    pub(super) path: Option<String>,
    /// Headers of a request to a `path`, without credentials, since results keep the plan.
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    /// Body of the request with `{name}` for values: as JSON, or as text inside a JSON string; `{{name}}` is the text
    /// `{name}`. With `model` a whole infer request.
    pub(super) body: Option<String>,
    /// Status of a success for a `path` (default: any 2xx).
    #[serde(default, with = "Within::<value::Status>")]
    pub(super) status: Option<u16>,
    /// Values passed to later steps: names, and JSON pointers into the reply (`/outputs/0/data`). A reply without a
    /// value is wrong.
    #[serde(default)]
    pub(super) take: BTreeMap<String, String>,
}

/// Lab: servers and data that it generates, starts and stops itself.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLab {
    /// Tiers to measure (default: those of the variants). Without variants, each is measured in each cache state.
    #[serde(default)]
    pub(super) tiers: Vec<String>,
    /// Folder for everything that the lab creates: generated data, the origins' folders, stages, logs.
    pub(super) work: PathBuf,
    /// Configuration of the servers. Tiers are read from the folder `tiers` beside it.
    pub(super) server_config: Option<PathBuf>,
    /// Seconds that an origin or a server may take until it is ready.
    #[serde(default = "value::default::<120>", with = "Within::<value::ReadyTimeout>")]
    pub(super) ready_timeout_s: u32,
    /// Keys of the server's config to set for every server, except the cache's capacity, which `[[lab.cache]]` sets.
    #[serde(default)]
    #[schemars(with = "value::AnyTable")]
    pub(super) server: toml::Table,
    #[serde(default)]
    pub(super) cache: Vec<super::storage::CacheState>,
    pub(super) cold_start: Option<super::storage::ColdStartPlan>,
    #[serde(default)]
    pub(super) data: RawData,
    #[serde(default)]
    pub(super) tier: BTreeMap<String, RawTier>,
}

/// Generated models and tables, or your own. Generated ones are below `work` and are reused while these keys stay the same.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawData {
    /// Rows of the generated feature table.
    #[serde(default, with = "Within::<value::TableRows>")]
    pub(super) rows: Option<u64>,
    /// Size of generated models: "small" or "full" (default: "small").
    pub(super) model_size: Option<String>,
    /// Your own models, as NAME/VERSION/model.onnx, instead of generated ones.
    pub(super) repository: Option<PathBuf>,
    /// Your own tables, as TABLE.rows, instead of generated ones.
    pub(super) features: Option<PathBuf>,
}

/// Settings of one tier.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTier {
    /// Service behind the tier; results are labelled by it (default: "embedded" for kinds s3 and nfs, else "real").
    pub(super) origin: Option<super::storage::Origin>,
    /// If true, the lab writes models and tables to it; false if they are already there (default: true).
    pub(super) publish: Option<bool>,
    /// Keys of the tier's own file.
    #[serde(default)]
    #[schemars(with = "value::AnyTable")]
    pub(super) set: toml::Table,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::path::Path;

    /// Keywords that only describe.
    const NOTES: [&str; 7] = ["$schema", "$defs", "title", "description", "default", "format", "$ref"];

    fn list(said: &Value) -> &Vec<Value> {
        said.as_array().expect("a list")
    }

    /// Returns the path of the first value that a schema refuses; panics at a keyword that it does not know.
    fn refused(root: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
        let Some(keywords) = schema.as_object() else {
            return (schema == &Value::Bool(false)).then(|| at.to_owned());
        };
        if let Some(name) = schema["$ref"].as_str() {
            let held = root.pointer(&name[1..]).expect("a definition");
            if let Some(fault) = refused(root, held, value, at) {
                return Some(fault);
            }
        }
        let fits = |schema: &&Value| refused(root, schema, value, at).is_none();
        let is_type = |name: &Value| match name.as_str().expect("a name") {
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            other => panic!("type {other}"),
        };
        let number = |limit: &Value| Some((value.as_f64()?, limit.as_f64()?));
        let count = |limit: &Value| Some((value.as_array()?.len() as u64, limit.as_u64()?));
        for (keyword, said) in keywords {
            let holds = match keyword.as_str() {
                note if NOTES.contains(&note) => true,
                "type" => match said {
                    Value::Array(any) => any.iter().any(is_type),
                    one => is_type(one),
                },
                "const" => said == value,
                "enum" => list(said).contains(value),
                "anyOf" => list(said).iter().any(|one| fits(&one)),
                "oneOf" => list(said).iter().filter(fits).count() == 1,
                "minimum" => number(said).is_none_or(|(value, least)| value >= least),
                "maximum" => number(said).is_none_or(|(value, most)| value <= most),
                "minItems" => count(said).is_none_or(|(items, least)| items >= least),
                "maxItems" => count(said).is_none_or(|(items, most)| items <= most),
                "required" => {
                    let there = |name: &Value| value.get(name.as_str().expect("a name")).is_some();
                    !value.is_object() || list(said).iter().all(there)
                }
                "items" => {
                    let items = value.as_array().into_iter().flatten().enumerate();
                    let mut faults = items.filter_map(|(i, item)| refused(root, said, item, &format!("{at}[{i}]")));
                    match faults.next() {
                        Some(fault) => return Some(fault),
                        None => true,
                    }
                }
                "properties" | "additionalProperties" => {
                    let named = &schema["properties"];
                    for (name, held) in value.as_object().into_iter().flatten() {
                        let rule = match keyword.as_str() {
                            "properties" => said.get(name),
                            _ => named.get(name).is_none().then_some(said),
                        };
                        if let Some(fault) = rule.and_then(|rule| refused(root, rule, held, &format!("{at}.{name}"))) {
                            return Some(fault);
                        }
                    }
                    true
                }
                other => panic!("unknown keyword {other} at {at}"),
            };
            if !holds {
                return Some(at.to_owned());
            }
        }
        None
    }

    fn refused_in(plan: &str) -> Option<String> {
        let plan: toml::Table = toml::from_str(plan).unwrap();
        let schema = schema().to_value();
        refused(&schema, &schema, &serde_json::to_value(plan).unwrap(), "plan")
    }

    #[test]
    fn every_shipped_plan_fits_its_schema() {
        let mut plans = 0;
        for folder in ["../configs/labs", "../configs/sweeps", "src/commands/init"] {
            let entries = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).read_dir().unwrap();
            let files = entries.map(|entry| entry.unwrap().path());
            for file in files.filter(|file| file.extension().is_some_and(|kind| kind == "toml")) {
                let text = std::fs::read_to_string(&file).unwrap();
                assert_eq!(refused_in(&text), None, "{}", file.display());
                plans += 1;
            }
        }
        assert!(plans >= 14, "{plans}");
    }

    #[test]
    fn schemas_refuse_unknown_keys_wrong_types_and_values_out_of_range() {
        const HEAD: &str = "name = \"t\"\nmodel = \"m\"\nseed = 1\nwarmup_s = 0\nstep_s = 1\ndrain_s = 1\n";
        for (more, at) in [
            ("", None),
            ("shape = { kind = \"steps\", shares = [1, 4] }", None),
            ("shape = { kind = \"steps\", share = [1, 4] }", Some("plan.shape")),
            ("[[load]]\nmode = \"concurrency\"\nthink_time_ms = [0, 5]", None),
            (
                "[[load]]\nmode = \"concurrency\"\nthink_time_ms = [0, 5, 9]",
                Some("plan.load[0].think_time_ms"),
            ),
            ("[[load]]\nmode = \"fast\"", Some("plan.load[0].mode")),
            ("[[load]]\nrates = [1]", Some("plan.load[0]")),
            ("lod = 1", Some("plan.lod")),
            ("repeats = \"ten\"", Some("plan.repeats")),
            ("repeats = 101", Some("plan.repeats")),
            ("[keys]\nexponent = 0", Some("plan.keys.exponent")),
            (
                "[[variant]]\nname = \"v\"\nstaged = [\"none\", \"full\"]",
                Some("plan.variant[0].staged"),
            ),
            (
                "[[variant]]\nname = \"v\"\nset = { a.b = 1 }\nstaged = [\"none\", \"filled\"]",
                None,
            ),
            (
                "[question]\nslo = []\nbudget = \"1m\"\ntie = 2",
                Some("plan.question.tie"),
            ),
            (
                "[question]\nslo = []\nbudget = \"1m\"\ntie = \"2 %\"\ndemand_rps = { trace = \"t.csv\" }",
                None,
            ),
        ] {
            assert_eq!(refused_in(&format!("{HEAD}{more}")).as_deref(), at, "{more}");
        }
    }

    #[test]
    fn every_key_has_a_description() {
        fn undescribed(schema: &Value, found: &mut Vec<String>) {
            for (name, key) in schema["properties"].as_object().into_iter().flatten() {
                // A table has the description of its type.
                let is_table = key.to_string().contains("$ref");
                if key["description"].is_null() && key["const"].is_null() && !is_table {
                    found.push(name.clone());
                }
                undescribed(key, found);
            }
        }
        let schema = schema().to_value();
        let mut found = Vec::new();
        undescribed(&schema, &mut found);
        for held in schema["$defs"].as_object().unwrap().values() {
            undescribed(held, &mut found);
        }
        assert_eq!(found, Vec::<String>::new());
    }
}

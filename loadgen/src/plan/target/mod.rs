//! `[target]`: an existing server to measure. In: TOML, flags of the command line. Out: a validated [`TargetPlan`]. Tokens and keys
//! stay names of variables and files here.

mod custom;

pub(super) use custom::{check_rows, set_rows};

use super::fault::{Fault, check_name, conflict, refuse};
use crate::plan::check::{Base, PlanFacts};
use crate::plan::value::{self, Within};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tierlab_agents::tls::Identity;
use tierlab_agents::token::TokenSource;
use tierlab_load::custom::{CustomSpec, StreamKind, Success};
use tierlab_load::endpoint::{AccessSpec, Address, Header};
use tierlab_load::keys::KeyDistribution;
use tierlab_load::payload::Protocol;
use tierlab_load::recording::RecordingSpec;

/// Maximum addresses of metrics.
const MOST_METRICS: usize = 256;

/// Existing server to measure.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TargetPlan {
    /// Address; `None` if the command line must give it.
    pub url: Option<String>,
    /// Address of its gRPC service.
    pub grpc_url: Option<String>,
    /// Version of the model.
    pub model_version: Option<String>,
    /// Headers, credentials and certificates.
    pub access: AccessSpec,
    /// Addresses of each replica's metrics; `None` looks for them below its address.
    pub metrics: Option<Vec<String>>,
    /// Tier of its results; `None` if the server reports it, or has none.
    pub tier: Option<String>,
    /// Entry of the price list for its storage.
    pub price: Option<String>,
    /// Requests and replies other than the Open Inference Protocol.
    pub custom: Option<CustomSpec>,
}

impl TargetPlan {
    /// The same target with the settings of `overrides`, such as flags of the command line, in place of its own.
    pub fn overridden_by(self, overrides: Self) -> Self {
        let mut access = self.access;
        let is_overridden = |header: &Header| {
            let mut headers = overrides.access.headers.iter();
            headers.any(|other| other.name.eq_ignore_ascii_case(&header.name))
        };
        access.headers.retain(|header| !is_overridden(header));
        access.headers.extend(overrides.access.headers);
        Self {
            url: overrides.url.or(self.url),
            grpc_url: overrides.grpc_url.or(self.grpc_url),
            model_version: overrides.model_version.or(self.model_version),
            access: AccessSpec {
                host: overrides.access.host.or(access.host),
                headers: access.headers,
                token: overrides.access.token.or(access.token),
                ca: overrides.access.ca.or(access.ca),
                identity: overrides.access.identity.or(access.identity),
            },
            metrics: overrides.metrics.or(self.metrics),
            tier: overrides.tier.or(self.tier),
            price: overrides.price.or(self.price),
            custom: overrides.custom.or(self.custom),
        }
    }
}

/// Validates a `[target]`.
pub(super) fn validate(raw: &RawTarget, scope: &Scope<'_>) -> Result<TargetPlan, Fault> {
    let at = |key: &str| format!("{}.{key}", scope.at);
    for (key, url) in [("url", &raw.url), ("grpc_url", &raw.grpc_url)] {
        if let Some(url) = url {
            address(at(key), url)?;
        }
    }
    if raw.metrics.as_ref().is_some_and(|metrics| metrics.len() > MOST_METRICS) {
        refuse!(at("metrics"), "more than {MOST_METRICS} addresses");
    }
    for (i, url) in raw.metrics.iter().flatten().enumerate() {
        address(at(&format!("metrics[{i}]")), url)?;
    }
    for (key, name) in [("tier", &raw.tier), ("model_version", &raw.model_version)] {
        if let Some(name) = name {
            check_name(&at(key), name)?;
        }
    }
    let access = access(raw, scope)?;
    let spec = match raw.kind {
        RawKind::V2 => {
            custom::refuse_keys(raw, scope)?;
            None
        }
        RawKind::Http => Some(custom::validate(raw, scope)?),
    };
    Ok(TargetPlan {
        url: raw.url.clone(),
        grpc_url: raw.grpc_url.clone(),
        model_version: raw.model_version.clone(),
        access,
        metrics: raw.metrics.clone(),
        tier: raw.tier.clone(),
        price: raw.price.clone(),
        custom: spec,
    })
}

/// Refuses an invalid address.
pub(super) fn address(key: String, url: &str) -> Result<(), Fault> {
    Address::parse(url).map(|_| ()).map_err(|error| Fault::new(key, error))
}

fn access(raw: &RawTarget, scope: &Scope<'_>) -> Result<AccessSpec, Fault> {
    let at = |key: &str| format!("{}.{key}", scope.at);
    let file = |path: &Option<PathBuf>| path.as_deref().map(|path| scope.base.path(path));
    let token = match (&raw.token_env, file(&raw.token_file)) {
        (Some(_), Some(_)) => return conflict(at("token_env"), at("token_file"), "leave one of them out"),
        (Some(name), None) => Some(TokenSource::Env(name.clone())),
        (None, path) => path.map(TokenSource::File),
    };
    let identity = match (file(&raw.cert), file(&raw.key)) {
        (Some(cert), Some(key)) => Some(Identity { cert, key }),
        (None, None) => None,
        _ => refuse!(at("cert"), "`{}` must be set with it", at("key")),
    };
    let headers = raw.headers.iter().map(|(name, value)| Header {
        name: name.clone(),
        value: value.clone(),
    });
    let access = AccessSpec {
        host: raw.host.clone(),
        headers: headers.collect(),
        token,
        ca: file(&raw.ca),
        identity,
    };
    // Tokens are read when they are needed: a plan is valid by their names alone.
    let without_token = AccessSpec {
        token: None,
        ..access.clone()
    };
    without_token.open().map_err(|error| Fault::new(at("headers"), error))?;
    Ok(access)
}

/// Existing server to measure: `[target]` of a sweep, `[variant.target]` of a lab. Flags of `sweep` take precedence.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTarget {
    /// "v2", the Open Inference Protocol; or "http", any HTTP endpoint, whose requests and replies the plan describes.
    #[serde(default)]
    kind: RawKind,
    /// Address of the server, http://HOST:PORT or https://HOST:PORT/PREFIX; `--url` takes precedence.
    url: Option<String>,
    /// Address of its gRPC service; `--grpc-url` takes precedence.
    grpc_url: Option<String>,
    /// Version of the model (default: the server chooses).
    model_version: Option<String>,
    /// Host of requests, in place of the address's: Host, :authority, and the name in its certificate.
    host: Option<String>,
    /// Headers of every request by name; results do not keep their values. Not for tokens, which others could read here.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Environment variable of the bearer token, which is written nowhere.
    token_env: Option<String>,
    /// File whose first line is the bearer token.
    token_file: Option<PathBuf>,
    /// Certificates to trust, a PEM file (default: the system's).
    ca: Option<PathBuf>,
    /// Client certificate, a PEM file.
    cert: Option<PathBuf>,
    /// Key of the client certificate, a PEM file.
    key: Option<PathBuf>,
    /// Addresses of metrics, one per replica, whose counters are added; an empty list disables them (default: /metrics
    /// below the server's address). Headers and token are sent only to the server's own address.
    metrics: Option<Vec<String>>,
    /// Tier of results and prices (default: as the server reports it, else none).
    tier: Option<String>,
    /// Entry of the price list's [storage] for its storage, or "included". Without it, a server without tier is priced by its
    /// instance alone.
    price: Option<String>,
    /// Method, with "http" (default: "POST").
    method: Option<String>,
    /// Path and query below the prefix of the address, with "http".
    path: Option<String>,
    /// Type of the body, with "http" (default: "application/json", and every body must be JSON).
    content_type: Option<String>,
    /// Body, with "http", a template: {entity_id} is an id drawn by [keys], {entity_ids} as many as the load's rows
    /// with commas between, {NAME} the column of that name in `rows_file`; {{NAME}} is the text {NAME}.
    body: Option<String>,
    /// File with the template of `body`, with "http".
    body_file: Option<PathBuf>,
    /// File with a body on every line, sent in turn, with "http".
    bodies: Option<PathBuf>,
    /// CSV file with a header, whose rows fill the template in turn, with "http".
    rows_file: Option<PathBuf>,
    /// Inferences of one request, for prices, with "http" (default: 1, or the number of {entity_ids}).
    #[serde(default, with = "Within::<value::RowsPerRequest>")]
    rows_per_request: Option<u32>,
    /// Number of ids for {entity_id}, with "http".
    #[serde(default, with = "Within::<value::EntityCount>")]
    entities: Option<u64>,
    /// First id for {entity_id}, with "http" (default: 0).
    first_id: Option<i64>,
    /// Values drawn for {NAME} in each body, with "http". A number is `{ uniform = [16, 256] }` or `{ lognormal = {
    /// median = 64, sigma = 0.6 }, min = 1, max = 512 }`; a text is `{ words = ... }` with as many random words. With
    /// `arrivals = "replay"`, `{ words = "input_length", blocks = "hash_ids" }` has the recorded number of words, and
    /// equal words for equal ids of blocks of 512.
    #[serde(default)]
    #[schemars(with = "value::AnyTable")]
    values: BTreeMap<String, toml::Value>,
    /// Form of streamed replies, with "http": "sse" for server-sent events, "chunked" for bytes as they arrive; the
    /// events of each reply are timed (default: a reply is timed as a whole).
    reply: Option<StreamKind>,
    /// JSON pointer to the number of tokens in an event, with `reply = "sse"`, such as "/usage/completion_tokens"; the
    /// last one counts.
    tokens: Option<String>,
    success: Option<Success>,
}

impl RawTarget {
    /// True for `kind = "http"`.
    pub(super) fn is_http(&self) -> bool {
        self.kind == RawKind::Http
    }
}

/// `target.kind`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum RawKind {
    /// The Open Inference Protocol.
    #[default]
    V2,
    /// Any HTTP endpoint.
    Http,
}

/// Position of a `[target]` in its plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope<'a> {
    /// Path of its table: `target`, `variant[2].target`.
    pub(super) at: &'a str,
    /// Folder of the plan.
    pub(super) base: Base<'a>,
    /// Transport of the plan.
    pub(super) protocol: Protocol,
    /// Keys of the plan.
    pub(super) keys: &'a KeyDistribution,
    /// Recording with `arrivals = "replay"`, whose requests are sent.
    pub(super) replay: Option<&'a RecordingSpec>,
}

impl<'a> Scope<'a> {
    pub(super) const fn new(at: &'a str, facts: PlanFacts<'a>, keys: &'a KeyDistribution) -> Self {
        Self {
            at,
            base: facts.base,
            protocol: facts.protocol,
            keys,
            replay: facts.replay,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use tierlab_analysis::record::Mode;
    use tierlab_load::custom::{Drawn, StreamSpec};
    use tierlab_load::keys::KeyDistribution;
    use tierlab_load::payload::Protocol;
    use tierlab_load::schedule::Load;

    fn read(text: &str) -> anyhow::Result<TargetPlan> {
        let raw: RawTarget = toml::from_str(text)?;
        let target = validate(
            &raw,
            &Scope {
                at: "target",
                base: crate::plan::check::Base::local(Path::new("plans")),
                protocol: Protocol::Http,
                keys: &KeyDistribution::Uniform,
                replay: None,
            },
        );
        Ok(target?)
    }

    #[test]
    fn a_target_is_read_with_its_files_beside_the_plan() {
        let target = read(
            "url = \"https://h:8443/p\"\ntoken_file = \"t\"\nca = \"ca.pem\"\ncert = \"c.pem\"\nkey = \"c.key\"\nheaders = { X-A = \"b\" }\n\
             metrics = [\"http://a:1/metrics\", \"http://b:1\"]\n",
        )
        .unwrap();
        assert_eq!(target.access.ca.as_deref(), Some(Path::new("plans/ca.pem")));
        assert_eq!(target.access.token, Some(TokenSource::File("plans/t".into())));
        assert_eq!(target.metrics.as_ref().unwrap().len(), 2);
        let flags = TargetPlan {
            url: Some("http://other".into()),
            metrics: Some(Vec::new()),
            ..TargetPlan::default()
        };
        let both = target.overridden_by(flags);
        assert_eq!(
            (both.url.as_deref(), both.metrics),
            (Some("http://other"), Some(vec![]))
        );
        assert!(both.access.identity.is_some());
    }

    #[test]
    fn a_custom_target_says_its_requests_and_its_success() {
        let target = read(
            "kind = \"http\"\npath = \"/p\"\nbody = '{\"id\": {entity_id}}'\nentities = 10\n[success]\npointer = \"/a\"\nequals = 1\n",
        )
        .unwrap();
        let custom = target.custom.clone().unwrap();
        assert_eq!(
            (custom.method.as_str(), custom.success.equals.clone()),
            ("POST", Some(1.into()))
        );
        let mut loads = [Load {
            mode: Mode::Batch,
            batch_size: 4,
            rate: 1.0,
        }];
        let refused = set_rows(&custom, &mut loads).unwrap_err().to_string();
        assert!(refused.contains("rows_per_request"), "{refused}");
    }

    #[test]
    fn replies_that_stream_and_drawn_values_are_read() {
        let target = read(
            "kind = \"http\"\npath = \"/p\"\nbody = '{\"p\": \"{prompt}\", \"n\": {n}}'\nreply = \"sse\"\ntokens = \"/usage/n\"\n\
             [values]\nn = { uniform = [1, 9] }\n\
             prompt = { words = { lognormal = { median = 90, sigma = 0.8 }, max = 900 } }\n",
        );
        let custom = target.unwrap().custom.unwrap();
        let tokens = Some("/usage/n".to_owned());
        assert_eq!(
            custom.stream,
            Some(StreamSpec {
                kind: StreamKind::Sse,
                tokens
            })
        );
        assert!(matches!(custom.values["prompt"], Drawn::Words(lengths) if lengths.most == 900));
        assert!(matches!(custom.values["n"], Drawn::Number(lengths) if lengths.least == 1));
    }

    fn refuses(cases: &[(&str, &str)]) {
        for (text, says) in cases {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("S3CRET"), "{text}: {error}");
        }
    }

    #[test]
    fn contradictions_are_refused_by_key() {
        refuses(&[
            ("url = \"h:1\"", "`target.url`"),
            ("url = \"http://u:p@h\"", "--token-env"),
            ("token_env = \"A\"\ntoken_file = \"b\"", "exclude each other"),
            ("cert = \"a\"", "`target.key` must be set"),
            ("path = \"/x\"", "only allowed with `kind = \"http\"`"),
            ("kind = \"http\"", "`target.path` is missing"),
            ("kind = \"http\"\npath = \"x\"", "must begin with `/`"),
            ("kind = \"http\"\npath = \"/x/{entity_id}\"", "for a `[[journey.step]]`"),
            (
                "kind = \"http\"\npath = \"/x\"\nbody = '{entity_id}'",
                "`target.entities` is missing",
            ),
            (
                "kind = \"http\"\npath = \"/x\"\nbody = '{}'\nentities = 9",
                "`target.entities`: unused: {entity_id} is missing",
            ),
            ("kind = \"http\"\npath = \"/x\"\nbody = '{'", "not JSON"),
            (
                "kind = \"http\"\npath = \"/x\"\nbody = '1'\nbodies = \"b\"",
                "set one of",
            ),
            (
                "kind = \"http\"\npath = \"/x\"\nbodies = \"no.jsonl\"",
                "`target.bodies`: cannot be opened: plans/no.jsonl: ",
            ),
            (
                "kind = \"http\"\npath = \"/x\"\nbody = '{a}'\nrows_file = \"no.csv\"",
                "`target.rows_file`: cannot be opened: plans/no.csv: ",
            ),
            ("kind = \"http\"\npath = \"/x\"\ngrpc_url = \"http://h\"", "gRPC"),
            (
                "kind = \"http\"\npath = \"/x\"\n[success]\nstatus = []",
                "`target.success.status` is an empty list",
            ),
            (
                "kind = \"http\"\npath = \"/x\"\n[success]\npointer = \"a\"",
                "begins with `/`",
            ),
            (
                "kind = \"http\"\npath = \"/x\"\n[success]\nequals = 1",
                "`target.success.pointer` is missing",
            ),
            ("reply = \"sse\"", "only allowed with `kind = \"http\"`"),
            (
                "kind = \"http\"\npath = \"/x\"\nreply = \"chunked\"\ntokens = \"/n\"",
                "only allowed with `reply = \"sse\"`",
            ),
            (
                "kind = \"http\"\npath = \"/x\"\nreply = \"sse\"\ntokens = \"n\"",
                "`target.tokens`: invalid JSON pointer `n`",
            ),
            ("headers = { Authorization = \"S3CRET\" }", "--token-env"),
            ("nonsense = 1", "unknown field"),
        ]);
    }

    #[test]
    fn contradictory_values_are_refused_by_key() {
        refuses(&[
            (
                "kind = \"http\"\npath = \"/x\"\nbody = '{}'\nvalues = { n = { choices = [1] } }",
                "`target.values.n`",
            ),
            (
                "kind = \"http\"\npath = \"/x\"\nbody = '{}'\nvalues = { n = { words = \"w\", block = \"b\" } }",
                "`target.values.n`: unknown field `block`",
            ),
            (
                "kind = \"http\"\npath = \"/x\"\nbody = '{}'\nvalues = { n = { words = 9, blocks = \"b\" } }",
                "`target.values.n.blocks` is only allowed with `words` of a recording",
            ),
            (
                "kind = \"http\"\npath = \"/x\"\nbody = '{}'\nvalues = { n = 3 }",
                "{n} is missing in `target.body`",
            ),
        ]);
    }
}

//! `[target]` as it stands in its file: keys and defaults.

use crate::plan::check::{Base, Source};
use crate::plan::value;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tierlab_load::keys::KeyDistribution;
use tierlab_load::wire::Protocol;

/// Existing server to measure: `[target]` of a sweep, `[variant.target]` of a lab. Flags of `sweep` take precedence.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::plan) struct RawTarget {
    /// "v2", the Open Inference Protocol; or "http", any HTTP endpoint, whose requests and replies the plan describes.
    #[serde(default)]
    pub(super) kind: RawKind,
    /// Address of the server, http://HOST:PORT or https://HOST:PORT/PREFIX; `--url` takes precedence.
    pub(super) url: Option<String>,
    /// Address of its gRPC service; `--grpc-url` takes precedence.
    pub(super) grpc_url: Option<String>,
    /// Version of the model (default: the server chooses).
    pub(super) model_version: Option<String>,
    /// Host of requests, in place of the address's: Host, :authority, and the name in its certificate.
    pub(super) host: Option<String>,
    /// Headers of every request by name; results do not keep their values. Not for tokens, which others could read here.
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    /// Environment variable of the bearer token, which is written nowhere.
    pub(super) token_env: Option<String>,
    /// File whose first line is the bearer token.
    pub(super) token_file: Option<PathBuf>,
    /// Certificates to trust, a PEM file (default: the system's).
    pub(super) ca: Option<PathBuf>,
    /// Client certificate, a PEM file.
    pub(super) cert: Option<PathBuf>,
    /// Key of the client certificate, a PEM file.
    pub(super) key: Option<PathBuf>,
    /// Addresses of metrics, one a replica, whose counters are added; an empty list is none (default: /metrics below the server's
    /// address). Headers and token are sent only to the server's own address.
    pub(super) metrics: Option<Vec<String>>,
    /// Tier of results and prices (default: as the server reports it, else none).
    pub(super) tier: Option<String>,
    /// Entry of the price list's [storage] for its storage, or "included". Without it, a server without tier is priced by its
    /// instance alone.
    pub(super) price: Option<String>,
    /// With "http": method (default: "POST").
    pub(super) method: Option<String>,
    /// With "http": path and query, below the prefix of the address.
    pub(super) path: Option<String>,
    /// With "http": type of the body (default: "application/json", and every body must be JSON).
    pub(super) content_type: Option<String>,
    /// With "http": body, a template: {entity_id} is an id drawn by [keys], {entity_ids} as many as the load's rows with
    /// commas between, {NAME} the column of that name in `rows_file`; {{NAME}} is the text {NAME}.
    pub(super) body: Option<String>,
    /// With "http": file of that template.
    pub(super) body_file: Option<PathBuf>,
    /// With "http": file whose every line is a body, sent in turn.
    pub(super) bodies: Option<PathBuf>,
    /// With "http": CSV file with a header, whose rows fill the template in turn.
    pub(super) rows_file: Option<PathBuf>,
    /// With "http": inferences of one request, for prices (default: 1, or the number of {entity_ids}).
    #[serde(default, deserialize_with = "value::rows_per_request")]
    pub(super) rows_per_request: Option<u32>,
    /// With "http": number of ids for {entity_id}.
    #[serde(default, deserialize_with = "value::entities")]
    pub(super) entities: Option<u64>,
    /// With "http": first of these ids (default: 0).
    pub(super) first_id: Option<i64>,
    pub(super) success: Option<RawSuccess>,
}

/// `target.kind`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawKind {
    /// The Open Inference Protocol.
    #[default]
    V2,
    /// Any HTTP endpoint.
    Http,
}

/// Rule for a success of `kind = "http"`; every other reply is an error (default: status 200 with any body).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSuccess {
    /// Statuses of success (default: 200).
    pub(super) status: Option<Vec<u16>>,
    /// JSON pointer (RFC 6901) to a value that must be in the body.
    pub(super) pointer: Option<String>,
    /// Required value at the pointer (default: any).
    pub(super) equals: Option<toml::Value>,
    /// Data of the last event of a stream of server-sent events: `"[DONE]"`.
    pub(super) last_event: Option<String>,
}

/// Position of a `[target]` in its plan.
#[derive(Debug, Clone, Copy)]
pub(in crate::plan) struct Place<'a> {
    /// Path of its table: `target`, `variant[2].target`.
    pub(in crate::plan) at: &'a str,
    /// Folder of the plan.
    pub(in crate::plan) base: Base<'a>,
    /// Transport of the plan.
    pub(in crate::plan) protocol: Protocol,
    /// Keys of the plan.
    pub(in crate::plan) keys: &'a KeyDistribution,
}

impl<'a> Place<'a> {
    pub(in crate::plan) const fn new(at: &'a str, source: Source<'a>, keys: &'a KeyDistribution) -> Self {
        Self {
            at,
            base: source.base,
            protocol: source.raw.protocol,
            keys,
        }
    }
}

//! `[target]` as it stands in its file. Nothing here is checked for sense.

use crate::plan::check::Base;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tierlab_load::keys::KeyDistribution;
use tierlab_load::wire::Protocol;

/// A server that runs already, and how it is asked: of a sweep `[target]`, of a lab's variant `[variant.target]`. Flags of `sweep` go
/// before these keys.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::plan) struct RawTarget {
    /// "v2", the Open Inference Protocol; or "http", any HTTP endpoint, whose requests and replies the plan describes.
    #[serde(default)]
    pub(super) kind: RawKind,
    /// The server's address, http://HOST:PORT or https://HOST:PORT/PREFIX; `--url` goes before it.
    #[serde(default)]
    pub(super) url: Option<String>,
    /// Where it speaks gRPC; `--grpc-url` goes before it.
    #[serde(default)]
    pub(super) grpc_url: Option<String>,
    /// The version of the model to ask for; the server chooses when left out.
    #[serde(default)]
    pub(super) model_version: Option<String>,
    /// What requests call the server, in place of the address's host: Host and :authority, and the name in its certificate.
    #[serde(default)]
    pub(super) host: Option<String>,
    /// Headers of every request by name; their values are in no result. Not for tokens, which others could read here.
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    /// The variable that holds the bearer token, which is read from there and written nowhere.
    #[serde(default)]
    pub(super) token_env: Option<String>,
    /// The file whose first line is the bearer token.
    #[serde(default)]
    pub(super) token_file: Option<PathBuf>,
    /// The certificates to trust, a PEM file; the system's when left out.
    #[serde(default)]
    pub(super) ca: Option<PathBuf>,
    /// The client's own certificate, a PEM file.
    #[serde(default)]
    pub(super) cert: Option<PathBuf>,
    /// Its key, a PEM file.
    #[serde(default)]
    pub(super) key: Option<PathBuf>,
    /// Where metrics are, one address for each replica, whose counters are added; none where it is empty; /metrics behind the
    /// server's address, where there is one, when left out. Headers and token go there only at the address of the server
    /// itself.
    #[serde(default)]
    pub(super) metrics: Option<Vec<String>>,
    /// The tier that results are kept and priced by; what the server says when left out, else none.
    #[serde(default)]
    pub(super) tier: Option<String>,
    /// The entry of the price list's [storage] that its storage is charged by, or "included"; a server without tier is priced
    /// by its instance alone when left out.
    #[serde(default)]
    pub(super) price: Option<String>,
    /// Of "http": the method; "POST" when left out.
    #[serde(default)]
    pub(super) method: Option<String>,
    /// Of "http": path and query, behind the prefix of the address.
    #[serde(default)]
    pub(super) path: Option<String>,
    /// Of "http": the type of the body; "application/json" when left out, and then every body must be JSON.
    #[serde(default)]
    pub(super) content_type: Option<String>,
    /// Of "http": the body, a template: {entity_id} is an id drawn by [keys], {entity_ids} as many as the load's rows with
    /// commas between, {NAME} the column of that name in `rows_file`; {{NAME}} is the text {NAME}.
    #[serde(default)]
    pub(super) body: Option<String>,
    /// Of "http": the file of that template.
    #[serde(default)]
    pub(super) body_file: Option<PathBuf>,
    /// Of "http": a file whose every line is a body, sent in turn.
    #[serde(default)]
    pub(super) bodies: Option<PathBuf>,
    /// Of "http": a CSV file with a header, whose rows fill the template in turn.
    #[serde(default)]
    pub(super) rows_file: Option<PathBuf>,
    /// Of "http": inferences of one request, which prices are divided by; 1 when left out, as many as there are {entity_ids}
    /// where they are used.
    #[serde(default)]
    pub(super) rows_per_request: Option<u32>,
    /// Of "http": how many ids stand for {entity_id}.
    #[serde(default)]
    pub(super) entities: Option<u64>,
    /// Of "http": the first of them; 0 when left out.
    #[serde(default)]
    pub(super) first_id: Option<i64>,
    #[serde(default)]
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

/// When a reply of `kind = "http"` is a success; every other is an error. Status 200 with any body when left out.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSuccess {
    /// The statuses of success; 200 alone when left out.
    #[serde(default)]
    pub(super) status: Option<Vec<u16>>,
    /// A JSON pointer (RFC 6901) to what must be in the body.
    #[serde(default)]
    pub(super) pointer: Option<String>,
    /// What must be there: any value.
    #[serde(default)]
    pub(super) equals: Option<toml::Value>,
    /// Data of the event that a stream of server-sent events must end with: `"[DONE]"`.
    #[serde(default)]
    pub(super) last_event: Option<String>,
}

/// Where a `[target]` stands.
#[derive(Debug, Clone, Copy)]
pub(in crate::plan) struct Place<'a> {
    /// What its keys begin with: `target`, `variant[2].target`.
    pub(in crate::plan) at: &'a str,
    /// The plan's folder.
    pub(in crate::plan) base: Base<'a>,
    /// What the plan sends over.
    pub(in crate::plan) protocol: Protocol,
    /// Which entities it asks for.
    pub(in crate::plan) keys: &'a KeyDistribution,
}

//! `[target]`: a server that somebody runs already, and how it is asked. In: TOML, flags of the command line. Out: a validated
//! [`TargetPlan`]. Tokens and keys stay names of variables and files here.

use super::check::{below, within};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tierlab_analysis::record::Mode;
use tierlab_formats::model::is_plain_name;
use tierlab_load::custom::{BodySource, Custom, CustomSpec, Entities, Success};
use tierlab_load::endpoint::{AccessSpec, Address, Header, Identity, TargetSpec, TokenSource};
use tierlab_load::keys::KeyDistribution;
use tierlab_load::load::Load;
use tierlab_load::wire::Protocol;

/// Addresses of metrics, at most.
const MOST_METRICS: usize = 256;

/// A server that somebody runs already.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TargetPlan {
    /// Its address; absent where the command line has to give it.
    pub url: Option<String>,
    /// Where it speaks gRPC.
    pub grpc_url: Option<String>,
    /// The version of the model.
    pub model_version: Option<String>,
    /// How it is asked.
    pub access: AccessSpec,
    /// Where its metrics are, each replica's; absent where they are looked for behind its address.
    pub metrics: Option<Vec<String>>,
    /// The tier that its results are kept by; absent where it says so itself, or has none.
    pub tier: Option<String>,
    /// The entry of the price list that its storage is charged by.
    pub price: Option<String>,
    /// What it is asked, where that is not the Open Inference Protocol.
    pub custom: Option<CustomSpec>,
}

impl TargetPlan {
    /// What a load process has to be told; `None` where no address is given.
    #[must_use]
    pub fn spec(&self) -> Option<TargetSpec> {
        Some(TargetSpec {
            url: self.url.clone()?,
            grpc_url: self.grpc_url.clone(),
            model_version: self.model_version.clone(),
            access: self.access.clone(),
            custom: self.custom.clone(),
        })
    }

    /// The files that decide what it is asked.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        match self.custom.as_ref().map(|custom| &custom.body) {
            Some(BodySource::File(file) | BodySource::Recorded(file) | BodySource::Rows { rows: file, .. }) => {
                vec![file.clone()]
            }
            _ => Vec::new(),
        }
    }

    /// What was said in part of a command line goes before what the plan says.
    #[must_use]
    pub fn with(self, over: Self) -> Self {
        let AccessSpec {
            host,
            mut headers,
            token,
            ca,
            identity,
        } = self.access;
        let is_said = |header: &Header| {
            let mut said = over.access.headers.iter();
            said.any(|other| other.name.eq_ignore_ascii_case(&header.name))
        };
        headers.retain(|header| !is_said(header));
        headers.extend(over.access.headers);
        Self {
            url: over.url.or(self.url),
            grpc_url: over.grpc_url.or(self.grpc_url),
            model_version: over.model_version.or(self.model_version),
            access: AccessSpec {
                host: over.access.host.or(host),
                headers,
                token: over.access.token.or(token),
                ca: over.access.ca.or(ca),
                identity: over.access.identity.or(identity),
            },
            metrics: over.metrics.or(self.metrics),
            tier: over.tier.or(self.tier),
            price: over.price.or(self.price),
            custom: over.custom.or(self.custom),
        }
    }
}

/// A server that runs already, and how it is asked: of a sweep `[target]`, of a lab's variant `[variant.target]`. Flags of `sweep` go
/// before these keys.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTarget {
    /// "v2", the Open Inference Protocol; or "http", any HTTP endpoint, whose requests and replies the plan describes.
    #[serde(default)]
    kind: RawKind,
    /// The server's address, http://HOST:PORT or https://HOST:PORT/PREFIX; `--url` goes before it.
    #[serde(default)]
    url: Option<String>,
    /// Where it speaks gRPC; `--grpc-url` goes before it.
    #[serde(default)]
    grpc_url: Option<String>,
    /// The version of the model to ask for; the server chooses when left out.
    #[serde(default)]
    model_version: Option<String>,
    /// What requests call the server, in place of the address's host: Host and :authority, and the name in its certificate.
    #[serde(default)]
    host: Option<String>,
    /// Headers of every request by name; their values are in no result. Not for tokens, which others could read here.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The variable that holds the bearer token, which is read from there and written nowhere.
    #[serde(default)]
    token_env: Option<String>,
    /// The file whose first line is the bearer token.
    #[serde(default)]
    token_file: Option<PathBuf>,
    /// The certificates to trust, a PEM file; the system's when left out.
    #[serde(default)]
    ca: Option<PathBuf>,
    /// The client's own certificate, a PEM file.
    #[serde(default)]
    cert: Option<PathBuf>,
    /// Its key, a PEM file.
    #[serde(default)]
    key: Option<PathBuf>,
    /// Where metrics are, one address for each replica, whose counters are added; none where it is empty; /metrics behind the
    /// server's address, where there is one, when left out. Headers and token go there only at the address of the server
    /// itself.
    #[serde(default)]
    metrics: Option<Vec<String>>,
    /// The tier that results are kept and priced by; what the server says when left out, else none.
    #[serde(default)]
    tier: Option<String>,
    /// The entry of the price list's [storage] that its storage is charged by, or "included"; a server without tier is priced
    /// by its instance alone when left out.
    #[serde(default)]
    price: Option<String>,
    /// Of "http": the method; "POST" when left out.
    #[serde(default)]
    method: Option<String>,
    /// Of "http": path and query, behind the prefix of the address.
    #[serde(default)]
    path: Option<String>,
    /// Of "http": the type of the body; "application/json" when left out, and then every body must be JSON.
    #[serde(default)]
    content_type: Option<String>,
    /// Of "http": the body, a template: {entity_id} is an id drawn by [keys], {entity_ids} as many as the load's rows with
    /// commas between, {NAME} the column of that name in `rows_file`; {{NAME}} is the text {NAME}.
    #[serde(default)]
    body: Option<String>,
    /// Of "http": the file of that template.
    #[serde(default)]
    body_file: Option<PathBuf>,
    /// Of "http": a file whose every line is a body, sent in turn.
    #[serde(default)]
    bodies: Option<PathBuf>,
    /// Of "http": a CSV file with a header, whose rows fill the template in turn.
    #[serde(default)]
    rows_file: Option<PathBuf>,
    /// Of "http": inferences of one request, which prices are divided by; 1 when left out, as many as there are {entity_ids}
    /// where they are used.
    #[serde(default)]
    rows_per_request: Option<u32>,
    /// Of "http": how many ids stand for {entity_id}.
    #[serde(default)]
    entities: Option<u64>,
    /// Of "http": the first of them; 0 when left out.
    #[serde(default)]
    first_id: Option<i64>,
    #[serde(default)]
    success: Option<RawSuccess>,
}

/// `target.kind`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawKind {
    /// The Open Inference Protocol.
    #[default]
    V2,
    /// Any HTTP endpoint.
    Http,
}

/// When a reply of `kind = "http"` is a success; every other is an error. Status 200 with any body when left out.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSuccess {
    /// The statuses of success.
    #[serde(default = "ok")]
    status: Vec<u16>,
    /// A JSON pointer (RFC 6901) to what must be in the body.
    #[serde(default)]
    pointer: Option<String>,
    /// What must be there.
    #[serde(default)]
    equals: Option<toml::Value>,
}

fn ok() -> Vec<u16> {
    vec![200]
}

/// Where a `[target]` stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// What its keys begin with: `target`, `variant[2].target`.
    pub(super) at: &'a str,
    /// The plan's folder.
    pub(super) base: &'a Path,
    /// What the plan sends over.
    pub(super) protocol: Protocol,
    /// Which entities it asks for.
    pub(super) keys: &'a KeyDistribution,
}

/// A `[target]` made sense of.
pub(super) fn validate(raw: RawTarget, place: &Place<'_>) -> Result<TargetPlan, String> {
    let at = |key: &str| format!("{}.{key}", place.at);
    for (key, url) in [("url", &raw.url), ("grpc_url", &raw.grpc_url)] {
        if let Some(url) = url {
            Address::parse(url).map_err(|error| format!("`{}`: {error}", at(key)))?;
        }
    }
    if raw.metrics.as_ref().is_some_and(|metrics| metrics.len() > MOST_METRICS) {
        return Err(format!("`{}`: more than {MOST_METRICS} addresses", at("metrics")));
    }
    for url in raw.metrics.iter().flatten() {
        Address::parse(url).map_err(|error| format!("`{}`: {error}", at("metrics")))?;
    }
    if let Some(tier) = &raw.tier
        && !is_plain_name(tier)
    {
        return Err(format!("`{}` = `{tier}` is no plain name", at("tier")));
    }
    if let Some(version) = &raw.model_version
        && !is_plain_name(version)
    {
        return Err(format!("`{}` = `{version}` is no plain name", at("model_version")));
    }
    let access = access(&raw, place)?;
    let custom = match raw.kind {
        RawKind::V2 => {
            refuse_custom_keys(&raw, place)?;
            None
        }
        RawKind::Http => Some(custom(&raw, place)?),
    };
    Ok(TargetPlan {
        url: raw.url,
        grpc_url: raw.grpc_url,
        model_version: raw.model_version,
        access,
        metrics: raw.metrics,
        tier: raw.tier,
        price: raw.price,
        custom,
    })
}

fn access(raw: &RawTarget, place: &Place<'_>) -> Result<AccessSpec, String> {
    let at = |key: &str| format!("{}.{key}", place.at);
    let file = |path: &Option<PathBuf>| path.as_deref().map(|path| below(place.base, path));
    let token = match (&raw.token_env, file(&raw.token_file)) {
        (Some(_), Some(_)) => {
            return Err(format!("`{}` and `{}`: one of them", at("token_env"), at("token_file")));
        }
        (Some(name), None) => Some(TokenSource::Env(name.clone())),
        (None, path) => path.map(TokenSource::File),
    };
    let identity = match (file(&raw.cert), file(&raw.key)) {
        (Some(cert), Some(key)) => Some(Identity { cert, key }),
        (None, None) => None,
        _ => return Err(format!("`{}` and `{}` belong together", at("cert"), at("key"))),
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
    // Tokens are read when they are needed: by their names alone a plan is right.
    let without_token = AccessSpec {
        token: None,
        ..access.clone()
    };
    without_token
        .open()
        .map_err(|error| format!("`{}`: {error}", at("headers")))?;
    Ok(access)
}

/// Keys of `kind = "http"` in a target that is none.
fn refuse_custom_keys(raw: &RawTarget, place: &Place<'_>) -> Result<(), String> {
    let given = [
        ("method", raw.method.is_some()),
        ("path", raw.path.is_some()),
        ("content_type", raw.content_type.is_some()),
        ("body", raw.body.is_some()),
        ("body_file", raw.body_file.is_some()),
        ("bodies", raw.bodies.is_some()),
        ("rows_file", raw.rows_file.is_some()),
        ("rows_per_request", raw.rows_per_request.is_some()),
        ("entities", raw.entities.is_some()),
        ("first_id", raw.first_id.is_some()),
        ("success", raw.success.is_some()),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((key, _)) => Err(format!(
            "`{}.{key}` belongs to `kind = \"http\"`: requests of the Open Inference Protocol follow from the model",
            place.at
        )),
    }
}

fn custom(raw: &RawTarget, place: &Place<'_>) -> Result<CustomSpec, String> {
    let at = |key: &str| format!("{}.{key}", place.at);
    if place.protocol == Protocol::Grpc || raw.grpc_url.is_some() {
        return Err(format!(
            "`{}` = \"http\" and gRPC do not go together: over gRPC the Open Inference Protocol is measured",
            at("kind")
        ));
    }
    if raw.model_version.is_some() {
        return Err(format!(
            "`{}` belongs to the Open Inference Protocol; write the version into `{}`",
            at("model_version"),
            at("path")
        ));
    }
    let Some(path) = raw.path.clone() else {
        return Err(format!(
            "`{}` is missing: \"/v1/models/m:predict\", for example",
            at("path")
        ));
    };
    if !path.starts_with('/') || path.contains(['#', ' ']) {
        return Err(format!(
            "`{}` = `{path}` is no path of a URL, which begins with `/`",
            at("path")
        ));
    }
    let rows_per_request = raw.rows_per_request.unwrap_or(1);
    within(&at("rows_per_request"), f64::from(rows_per_request), 1.0, 1e6)?;
    let spec = CustomSpec {
        method: raw.method.clone().unwrap_or_else(|| "POST".into()).to_ascii_uppercase(),
        path,
        content_type: raw.content_type.clone().unwrap_or_else(|| "application/json".into()),
        body: body(raw, place)?,
        rows_per_request,
        entities: entities(raw, place)?,
        success: success(raw.success.as_ref(), place)?,
    };
    let read = Custom::open(&spec).map_err(|error| error.replace("`target.", &format!("`{}.", place.at)))?;
    if (read.wants_an_id() || read.wants_ids()) && spec.entities.is_none() {
        return Err(format!(
            "`{}` is missing: which ids stand for {{entity_id}}? `entities = 100000` takes 0 to 99999 (`first_id` begins elsewhere), \
             drawn by `[keys]`",
            at("entities")
        ));
    }
    if read.wants_ids() && raw.rows_per_request.is_some() {
        return Err(format!(
            "`{}`: a request has as many rows as it has {{entity_ids}}, which the load says",
            at("rows_per_request")
        ));
    }
    Ok(spec)
}

fn body(raw: &RawTarget, place: &Place<'_>) -> Result<BodySource, String> {
    let file = |path: &PathBuf| below(place.base, path);
    let at = |key: &str| format!("`{}.{key}`", place.at);
    match (&raw.body, &raw.body_file, &raw.bodies, &raw.rows_file) {
        (None, None, None, None) => Ok(BodySource::Empty),
        (Some(text), None, None, None) => Ok(BodySource::Text(text.clone())),
        (None, Some(path), None, None) => Ok(BodySource::File(file(path))),
        (None, None, Some(path), None) => Ok(BodySource::Recorded(file(path))),
        (Some(text), None, None, Some(rows)) => Ok(BodySource::Rows {
            template: text.clone(),
            rows: file(rows),
        }),
        (None, Some(path), None, Some(rows)) => {
            let path = file(path);
            let template = std::fs::read_to_string(&path)
                .map_err(|error| format!("{}: {}: {error}", at("body_file"), path.display()))?;
            Ok(BodySource::Rows {
                template,
                rows: file(rows),
            })
        }
        (None, None, None, Some(_)) => Err(format!(
            "{} has no template whose places its columns fill; give {}",
            at("rows_file"),
            at("body")
        )),
        _ => Err(format!(
            "{}, {} and {}: one of them; {} goes with the first two",
            at("body"),
            at("body_file"),
            at("bodies"),
            at("rows_file")
        )),
    }
}

fn entities(raw: &RawTarget, place: &Place<'_>) -> Result<Option<Entities>, String> {
    let first_id = raw.first_id.unwrap_or(0);
    // Those of a file are its own.
    let of_file = matches!(place.keys, KeyDistribution::File { .. }).then_some(1);
    let Some(count) = raw.entities.or(of_file) else {
        return Ok(None);
    };
    within(&format!("{}.entities", place.at), count as f64, 1.0, 1e15)?;
    if first_id.checked_add_unsigned(count).is_none() {
        return Err(format!("`{}.first_id`: the last id would be beyond 64 bits", place.at));
    }
    Ok(Some(Entities { first_id, count }))
}

fn success(raw: Option<&RawSuccess>, place: &Place<'_>) -> Result<Success, String> {
    let Some(raw) = raw else { return Ok(Success::default()) };
    let at = |key: &str| format!("`{}.success.{key}`", place.at);
    if raw.status.is_empty() {
        return Err(format!("{} is empty: no reply would be a success", at("status")));
    }
    if let Some(bad) = raw.status.iter().find(|status| !(100..=599).contains(*status)) {
        return Err(format!("{}: {bad} is no status of HTTP", at("status")));
    }
    if let Some(pointer) = &raw.pointer
        && !(pointer.is_empty() || pointer.starts_with('/'))
    {
        return Err(format!(
            "{} = `{pointer}` is no JSON pointer, which begins with `/`: \"/predictions/0\"",
            at("pointer")
        ));
    }
    let equals = raw
        .equals
        .as_ref()
        .map(|value| serde_json::to_value(value).map_err(|error| format!("{}: {error}", at("equals"))));
    if equals.is_some() && raw.pointer.is_none() {
        return Err(format!("{} says what, and {} not where", at("equals"), at("pointer")));
    }
    Ok(Success {
        status: raw.status.clone(),
        pointer: raw.pointer.clone(),
        equals: equals.transpose()?,
    })
}

/// The loads of a plan with the rows that its requests carry, where these are said and not asked for.
pub(super) fn loads_of(target: &TargetPlan, loads: &mut [Load]) -> Result<(), String> {
    let Some(spec) = &target.custom else { return Ok(()) };
    let read = Custom::open(spec)?;
    if read.wants_ids() {
        return Ok(());
    }
    for load in loads {
        match load.mode {
            Mode::Realtime => load.batch_size = spec.rows_per_request,
            Mode::Batch if load.batch_size == spec.rows_per_request => {}
            Mode::Batch => {
                return Err(format!(
                    "`batch_sizes`: a request of {} rows is asked for, and `target.rows_per_request` says that each carries {}; \
                     {{entity_ids}} in the body takes as many as the load says",
                    load.batch_size, spec.rows_per_request
                ));
            }
        }
    }
    Ok(())
}

/// Whether the requests of a server carry as many rows as every load asks for.
pub(super) fn carries(target: &TargetPlan, batch_sizes: &[u32]) -> Result<(), String> {
    let Some(spec) = &target.custom else { return Ok(()) };
    if Custom::open(spec)?.wants_ids() {
        return Ok(());
    }
    match batch_sizes.iter().find(|rows| **rows != spec.rows_per_request) {
        None => Ok(()),
        Some(rows) => Err(format!(
            "every request is to have {rows} rows, and `rows_per_request` says that each carries {}; {{entity_ids}} in the body takes as \
             many as the load says",
            spec.rows_per_request
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<TargetPlan, String> {
        let raw: RawTarget = toml::from_str(text).map_err(|error| error.to_string())?;
        validate(
            raw,
            &Place {
                at: "target",
                base: Path::new("plans"),
                protocol: Protocol::Http,
                keys: &KeyDistribution::Uniform,
            },
        )
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
        let both = target.with(flags);
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
            (custom.method.as_str(), custom.success.equals),
            ("POST", Some(1.into()))
        );
        let mut loads = [Load {
            mode: Mode::Batch,
            batch_size: 4,
            rate: 1.0,
        }];
        assert!(loads_of(&target, &mut loads).unwrap_err().contains("rows_per_request"));
    }

    #[test]
    fn contradictions_are_refused_by_key() {
        for (text, says) in [
            ("url = \"h:1\"", "`target.url`"),
            ("url = \"http://u:p@h\"", "--token-env"),
            ("token_env = \"A\"\ntoken_file = \"b\"", "one of them"),
            ("cert = \"a\"", "belong together"),
            ("path = \"/x\"", "belongs to `kind = \"http\"`"),
            ("kind = \"http\"", "`target.path` is missing"),
            ("kind = \"http\"\npath = \"x\"", "begins with `/`"),
            (
                "kind = \"http\"\npath = \"/x\"\nbody = '{entity_id}'",
                "`target.entities` is missing",
            ),
            ("kind = \"http\"\npath = \"/x\"\nbody = '{'", "no JSON"),
            (
                "kind = \"http\"\npath = \"/x\"\nbody = '1'\nbodies = \"b\"",
                "one of them",
            ),
            ("kind = \"http\"\npath = \"/x\"\ngrpc_url = \"http://h\"", "gRPC"),
            (
                "kind = \"http\"\npath = \"/x\"\n[success]\nstatus = []",
                "no reply would be",
            ),
            (
                "kind = \"http\"\npath = \"/x\"\n[success]\npointer = \"a\"",
                "begins with `/`",
            ),
            ("kind = \"http\"\npath = \"/x\"\n[success]\nequals = 1", "not where"),
            ("headers = { Authorization = \"S3CRET\" }", "--token-env"),
            ("nonsense = 1", "unknown field"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(says) && !error.contains("S3CRET"), "{text}: {error}");
        }
    }
}

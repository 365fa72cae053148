//! `[target]`: a server that somebody runs already, and how it is asked. In: TOML, flags of the command line. Out: a validated
//! [`TargetPlan`]. Tokens and keys stay names of variables and files here.

mod custom;
mod raw;

pub(super) use custom::{carries, loads_of};
pub(super) use raw::{Place, RawTarget};

use raw::RawKind;
use std::path::PathBuf;
use tierlab_formats::model::is_plain_name;
use tierlab_load::custom::{BodySource, CustomSpec};
use tierlab_load::endpoint::{AccessSpec, Address, Header, Identity, TargetSpec, TokenSource};

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
            others: Vec::new(),
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
    let asked = match raw.kind {
        RawKind::V2 => {
            custom::refuse_keys(&raw, place)?;
            None
        }
        RawKind::Http => Some(custom::validate(&raw, place)?),
    };
    Ok(TargetPlan {
        url: raw.url,
        grpc_url: raw.grpc_url,
        model_version: raw.model_version,
        access,
        metrics: raw.metrics,
        tier: raw.tier,
        price: raw.price,
        custom: asked,
    })
}

fn access(raw: &RawTarget, place: &Place<'_>) -> Result<AccessSpec, String> {
    let at = |key: &str| format!("{}.{key}", place.at);
    let file = |path: &Option<PathBuf>| path.as_deref().map(|path| place.base.path(path));
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use tierlab_analysis::record::Mode;
    use tierlab_load::keys::KeyDistribution;
    use tierlab_load::load::Load;
    use tierlab_load::wire::Protocol;

    fn read(text: &str) -> Result<TargetPlan, String> {
        let raw: RawTarget = toml::from_str(text).map_err(|error| error.to_string())?;
        validate(
            raw,
            &Place {
                at: "target",
                base: crate::plan::check::Base::here(Path::new("plans")),
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
            (custom.method.as_str(), custom.success.equals.clone()),
            ("POST", Some(1.into()))
        );
        let mut loads = [Load {
            mode: Mode::Batch,
            batch_size: 4,
            rate: 1.0,
        }];
        assert!(loads_of(&custom, &mut loads).unwrap_err().contains("rows_per_request"));
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

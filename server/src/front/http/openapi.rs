//! The OpenAPI 3.1 document of the HTTP front.
//!
//! In: the operations and the schemas of their bodies, from the files beside this one. Out: `/openapi.json`, built
//! once.

use crate::front::JSON;
use crate::front::state::SharedState;
use axum::routing::{MethodRouter, get};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// JSON schemas of the bodies, by the names that the operations use.
const SCHEMAS: &str = include_str!("schemas.json");

/// Descriptions of every operation, by path and method.
const OPERATIONS: &str = include_str!("operations.json");

/// Serves the document.
pub(super) fn serve() -> MethodRouter<SharedState> {
    let document = Bytes::from(document().to_string());
    get(async move || ([(CONTENT_TYPE, JSON)], document.clone()))
}

fn operations() -> BTreeMap<String, BTreeMap<String, Operation>> {
    serde_json::from_str(OPERATIONS).expect("the operations beside this file are JSON")
}

fn document() -> Value {
    let mut paths = Map::new();
    for (path, operations) in operations() {
        let described = |(method, operation): (&String, &Operation)| (method.clone(), described(operation));
        let mut item: Map<String, Value> = operations.iter().map(described).collect();
        let parameters: Vec<Value> = placeholders(&path)
            .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
            .collect();
        if !parameters.is_empty() {
            item.insert("parameters".into(), parameters.into());
        }
        paths.insert(path, item.into());
    }
    let schemas: Value = serde_json::from_str(SCHEMAS).expect("the schemas beside this file are JSON");
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tierlab",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The Open Inference Protocol v2 with Triton's extensions for binary tensors, classification, \
                            model configuration, the model repository and statistics. Errors are {\"error\": …}.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

/// Names between the braces of a path.
fn placeholders(path: &str) -> impl Iterator<Item = &str> {
    path.split('/')
        .filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

fn described(operation: &Operation) -> Value {
    let content = |schema: &str| {
        let mut content = json!({"application/json": {"schema": reference(schema)}});
        if schema.starts_with("Infer") {
            let binary =
                "the JSON part, of the length given in Inference-Header-Content-Length, then the binary tensors";
            content["application/octet-stream"] =
                json!({"schema": {"type": "string", "format": "binary", "description": binary}});
        }
        content
    };
    let reply = match &operation.reply {
        ReplyMedia::Json(schema) => content(schema),
        ReplyMedia::Text(media) => json!({media: {"schema": {"type": "string"}}}),
    };
    let refused = json!({"description": "refused", "content": {"application/json": {"schema": reference("Error")}}});
    let mut described = json!({
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": {"200": {"description": "done", "content": reply}, "default": refused},
    });
    if let Some(schema) = &operation.request {
        described["requestBody"] = json!({"content": content(schema)});
    }
    described
}

/// Body of a reply.
#[derive(Deserialize)]
enum ReplyMedia {
    /// JSON, by name of its schema.
    #[serde(rename = "reply")]
    Json(String),
    /// Text, by media type.
    #[serde(rename = "text")]
    Text(String),
}

/// Method of a path.
#[derive(Deserialize)]
struct Operation {
    summary: String,
    /// Group of the protocol.
    tag: String,
    /// Name of the request body's schema; `None` without a JSON body.
    request: Option<String>,
    #[serde(flatten)]
    reply: ReplyMedia,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::http::routes;
    use std::collections::BTreeSet;

    #[test]
    fn every_path_that_is_served_is_described_and_no_other() {
        let served: BTreeSet<String> = routes().into_iter().map(|(path, _)| path).collect();
        assert!(served.iter().eq(operations().keys()));
    }

    #[test]
    fn every_schema_that_is_named_is_there_and_used() {
        let text = document().to_string();
        let schemas: Map<String, Value> = serde_json::from_str(SCHEMAS).unwrap();
        for name in schemas.keys() {
            assert!(
                text.contains(&format!("#/components/schemas/{name}\"")),
                "{name} is not used"
            );
        }
        for named in text.split("#/components/schemas/").skip(1) {
            let name = named.split('"').next().unwrap();
            assert!(schemas.contains_key(name), "no schema {name}");
        }
    }
}

//! The OpenAPI 3.1 document of the HTTP front, made from the list of routes.
//!
//! In: the routes, and the schemas of the bodies beside this file. Out: `/openapi.json`, built once.

use crate::front::JSON;
use crate::front::state::SharedState;
use axum::routing::{MethodRouter, get};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use serde_json::{Map, Value, json};

/// JSON schemas of the bodies, by the names that the routes use.
const SCHEMAS: &str = include_str!("schemas.json");

/// Serves a document.
pub(super) fn serve(document: &Value) -> MethodRouter<SharedState> {
    let document = Bytes::from(document.to_string());
    get(async move || ([(CONTENT_TYPE, JSON)], document.clone()))
}

/// The document of some routes.
pub(super) fn document(routes: &[Route]) -> Value {
    let mut paths = Map::new();
    for route in routes {
        let mut item: Map<String, Value> = route
            .operations
            .iter()
            .map(|operation| (operation.method.to_owned(), described(operation)))
            .collect();
        let parameters: Vec<Value> = placeholders(&route.path)
            .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
            .collect();
        if !parameters.is_empty() {
            item.insert("parameters".into(), parameters.into());
        }
        paths.insert(route.path.clone(), item.into());
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

/// The names between braces of a path.
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
            let binary = "the JSON part, whose length Inference-Header-Content-Length gives, then the binary tensors";
            content["application/octet-stream"] =
                json!({"schema": {"type": "string", "format": "binary", "description": binary}});
        }
        content
    };
    let ok = match operation.reply {
        ReplyBody::Json(schema) => json!({"description": "done", "content": content(schema)}),
        ReplyBody::Text(media) => json!({"description": "done", "content": {media: {"schema": {"type": "string"}}}}),
    };
    let refused = json!({"description": "refused", "content": {"application/json": {"schema": reference("Error")}}});
    let mut described = json!({
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": {"200": ok, "default": refused},
    });
    if let Some(schema) = operation.request {
        described["requestBody"] = json!({"content": content(schema)});
    }
    described
}

/// Body of a reply.
#[derive(Clone, Copy)]
pub(super) enum ReplyBody {
    /// JSON of a schema, by its name.
    Json(&'static str),
    /// Text of a media type.
    Text(&'static str),
}

/// OpenAPI description of one method of a path.
pub(super) struct Operation {
    /// `get` or `post`.
    pub(super) method: &'static str,
    pub(super) summary: &'static str,
    /// The group of the protocol that it belongs to.
    pub(super) tag: &'static str,
    /// The schema of the request's body, by name; none where there is no JSON body.
    pub(super) request: Option<&'static str>,
    pub(super) reply: ReplyBody,
}

/// One path.
pub(super) struct Route {
    pub(super) path: String,
    pub(super) serve: MethodRouter<SharedState>,
    pub(super) operations: Vec<Operation>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::http::routes::routes;

    #[test]
    fn every_schema_that_is_named_is_there_and_used() {
        let text = document(&routes()).to_string();
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

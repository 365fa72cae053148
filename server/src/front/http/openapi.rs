//! The OpenAPI 3.1 document of the HTTP front.
//!
//! In: the document beside this file. Out: `/openapi.json`, with the version of the server.

use crate::front::JSON;
use crate::front::state::SharedState;
use axum::routing::{MethodRouter, get};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use serde_json::Value;

const DOCUMENT: &str = include_str!("openapi.json");

/// Serves the document.
pub(super) fn serve() -> MethodRouter<SharedState> {
    let document = Bytes::from(document().to_string());
    get(async move || ([(CONTENT_TYPE, JSON)], document.clone()))
}

fn document() -> Value {
    let mut document: Value = serde_json::from_str(DOCUMENT).expect("the document beside this file is JSON");
    document["info"]["version"] = env!("CARGO_PKG_VERSION").into();
    document
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::http::routes;
    use std::collections::BTreeSet;

    #[test]
    fn every_path_that_is_served_is_described_and_no_other() {
        let served: BTreeSet<String> = routes().into_iter().map(|(path, _)| path).collect();
        let document = document();
        let described: BTreeSet<String> = document["paths"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(served, described);
    }

    #[test]
    fn every_schema_that_is_named_is_there_and_used() {
        let document = document();
        let text = document.to_string();
        let schemas = document["components"]["schemas"].as_object().unwrap();
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

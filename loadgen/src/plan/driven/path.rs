//! Method and headers of a journey's step that requests a path. In: the plan's keys. Out: both, validated.

use crate::plan::fault::{Fault, fault, refuse};
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use std::collections::BTreeMap;

/// Headers that carry credentials, which a result would keep.
const SECRET: [&str; 4] = ["authorization", "proxy-authorization", "cookie", "x-api-key"];

/// Method of a step (default: POST with a body, else GET).
pub(super) fn method(given: Option<&str>, has_body: bool, at: &str) -> Result<Method, Fault> {
    let method = match given {
        None if has_body => Method::POST,
        None | Some("GET") => Method::GET,
        Some("POST") => Method::POST,
        Some("PUT") => Method::PUT,
        Some("PATCH") => Method::PATCH,
        Some("DELETE") => Method::DELETE,
        Some("HEAD") => Method::HEAD,
        Some(other) => refuse!(
            format!("{at}.method"),
            "`{other}` is none of GET, POST, PUT, PATCH, DELETE and HEAD"
        ),
    };
    if has_body && matches!(method, Method::GET | Method::HEAD) {
        refuse!(format!("{at}.body"), "a {method} has no body");
    }
    Ok(method)
}

/// Headers of a step's requests, beside those of the target.
pub(super) fn headers(given: &BTreeMap<String, String>, has_body: bool, at: &str) -> Result<HeaderMap, Fault> {
    let mut headers = HeaderMap::new();
    if has_body {
        headers.insert(
            reqwest::header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
    }
    for (name, value) in given {
        let key = format!("{at}.headers.{name}");
        let name: HeaderName = name.parse().map_err(|_| fault!(&key, "not a name of a header"))?;
        if SECRET.contains(&name.as_str()) {
            refuse!(key, "no credentials in journeys: results keep the plan");
        }
        let value = HeaderValue::from_str(value).map_err(|_| fault!(key, "not a value of a header"))?;
        headers.insert(name, value);
    }
    Ok(headers)
}

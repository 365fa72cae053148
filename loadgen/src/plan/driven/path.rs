//! How a journey's step asks a path of the server. In: what the plan says of its method and headers. Out: both, or what is wrong with them
//! by key. Knows nothing of values.

use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use std::collections::BTreeMap;

/// Headers that carry credentials, which a result would keep.
const SECRET: [&str; 4] = ["authorization", "proxy-authorization", "cookie", "x-api-key"];

/// How a path is asked.
pub(super) fn method(given: Option<&str>, has_body: bool, at: &str) -> Result<Method, String> {
    let method = match given {
        None if has_body => Method::POST,
        None | Some("GET") => Method::GET,
        Some("POST") => Method::POST,
        Some("PUT") => Method::PUT,
        Some("PATCH") => Method::PATCH,
        Some("DELETE") => Method::DELETE,
        Some("HEAD") => Method::HEAD,
        Some(other) => {
            return Err(format!(
                "`{at}.method` = `{other}` is none of GET, POST, PUT, PATCH, DELETE and HEAD"
            ));
        }
    };
    if has_body && matches!(method, Method::GET | Method::HEAD) {
        return Err(format!("`{at}.body` does not belong to a {method}"));
    }
    Ok(method)
}

/// What every request to a path has beside those of the target.
pub(super) fn headers(given: &BTreeMap<String, String>, has_body: bool, at: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    if has_body {
        headers.insert(
            reqwest::header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
    }
    for (name, value) in given {
        let key = format!("{at}.headers.{name}");
        let name: HeaderName = name.parse().map_err(|_| format!("`{key}` is no name of a header"))?;
        if SECRET.contains(&name.as_str()) {
            return Err(format!(
                "`{key}`: results keep the plan, so that journeys carry no credentials"
            ));
        }
        let value = HeaderValue::from_str(value).map_err(|_| format!("`{key}` is no value of a header"))?;
        headers.insert(name, value);
    }
    Ok(headers)
}

//! The server's own page, for people: loaded models, number of requests, and time by stage.
//!
//! In: nothing. Out: `GET /`, one self-contained document. It is the same for everybody and contains no information
//! about the server: its script requests `/metrics` and the repository's index like any client, with a token if needed.
//! Knows neither models nor metrics.

use crate::front::state::SharedState;
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, get};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderName, HeaderValue};
use sha2::{Digest, Sha256};

/// Document with a mark in the place of each other file.
const DOCUMENT: &str = include_str!("page.html");
/// Files inserted into the document, each with its mark.
const STYLE: (&str, &str) = ("/*page.css*/", include_str!("page.css"));
const SCRIPTS: [(&str, &str); 2] = [
    ("/*readings.js*/", include_str!("readings.js")),
    ("/*page.js*/", include_str!("page.js")),
];

/// Source expression of a file in a content security policy. No other script or style is used.
fn source((_, text): (&str, &str)) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)))
}

/// Serves the page.
pub(super) fn serve() -> MethodRouter<SharedState> {
    let policy = HeaderValue::try_from(policy()).expect("a policy of hashes and words is a header's value");
    let document = Bytes::from(document());
    get(async move || (headers(policy.clone()), document.clone()).into_response())
}

fn headers(policy: HeaderValue) -> [(HeaderName, HeaderValue); 6] {
    let value = HeaderValue::from_static;
    [
        (CONTENT_TYPE, value("text/html; charset=utf-8")),
        (CONTENT_SECURITY_POLICY, policy),
        (X_CONTENT_TYPE_OPTIONS, value("nosniff")),
        (X_FRAME_OPTIONS, value("DENY")),
        (REFERRER_POLICY, value("no-referrer")),
        // After an update the page and its requests must match.
        (CACHE_CONTROL, value("no-store")),
    ]
}

/// Content security policy of the page: its own style and scripts, and requests to this server. No script may turn text
/// into markup.
fn policy() -> String {
    let scripts = SCRIPTS.map(source).join(" ");
    format!(
        "default-src 'none'; script-src {scripts}; style-src {}; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
        source(STYLE)
    )
}

fn document() -> String {
    let parts = std::iter::once(STYLE).chain(SCRIPTS);
    parts.fold(DOCUMENT.to_owned(), |document, (mark, text)| {
        document.replacen(mark, text, 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        let page = document();
        for (mark, text) in std::iter::once(STYLE).chain(SCRIPTS) {
            assert_eq!(DOCUMENT.matches(mark).count(), 1, "{mark}");
            assert_eq!(page.matches(text).count(), 1, "{mark}");
            assert!(!text.contains("</"), "{mark} would end its element");
        }
        for outside in ["src=", "@import", "url(", "http://", "https://", "innerHTML", "style="] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}

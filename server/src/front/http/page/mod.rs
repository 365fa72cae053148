//! The server's own page, for people: what is loaded, how many requests there are, and where their time goes.
//!
//! In: nothing. Out: `GET /`, one document that loads nothing else. It is the same for everybody and tells nothing of the
//! server: its script asks `/metrics` and the repository's index as any client does, with a token where one is needed.
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

/// The document, with a mark where each of the other files goes.
const DOCUMENT: &str = include_str!("page.html");
/// Files that are put into the document, each behind its mark.
const STYLE: (&str, &str) = ("/*page.css*/", include_str!("page.css"));
const SCRIPTS: [(&str, &str); 2] = [
    ("/*readings.js*/", include_str!("readings.js")),
    ("/*page.js*/", include_str!("page.js")),
];

/// Source expression of a file in a content security policy. Nothing else of its kind is run or applied.
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
    let word = HeaderValue::from_static;
    [
        (CONTENT_TYPE, word("text/html; charset=utf-8")),
        (CONTENT_SECURITY_POLICY, policy),
        (X_CONTENT_TYPE_OPTIONS, word("nosniff")),
        (X_FRAME_OPTIONS, word("DENY")),
        (REFERRER_POLICY, word("no-referrer")),
        // After an update the page and what it asks for belong together.
        (CACHE_CONTROL, word("no-store")),
    ]
}

/// Content security policy of the page: its own style and scripts, requests to this server, and nothing else. No script may
/// turn text into markup.
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

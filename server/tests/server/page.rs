//! The server's own page: its headers, its completeness, and access to its data. A browser runs it in
//! `scripts/check-page`.

use crate::harness::{Data, Reply, Server, on_tier};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use sha2::{Digest, Sha256};
use tierlab_models::generators::ModelKind;

/// Content of each element of a name, which has no attributes.
fn elements<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    let (begin, end) = (format!("<{name}>"), format!("</{name}>"));
    let after = page.split(begin.as_str()).skip(1);
    after.map(|text| text.split(end.as_str()).next().unwrap()).collect()
}

/// The hashes that a policy lists for a kind of source.
fn hashes<'a>(policy: &'a str, directive: &str) -> Vec<&'a str> {
    let mut directives = policy.split(';').map(str::trim);
    let listed = directives.find_map(|one| one.strip_prefix(directive)?.strip_prefix(' '));
    listed.unwrap_or_default().split(' ').collect()
}

#[tokio::test]
async fn the_page_is_one_document_under_a_strict_policy() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let server = Server::start(&on_tier(&data, "memory"), &[]);
    let reply = server.get("/").await;
    assert_eq!(reply.status, 200);
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(reply.header(name), Some(value), "{name}");
    }
    let (page, policy) = (reply.text(), reply.header("content-security-policy").unwrap());
    // A browser runs what the policy has a hash of: each script and the style, as they stand in the page, and no more.
    for (element, directive, count) in [("script", "script-src", 2), ("style", "style-src", 1)] {
        let found = elements(&page, element);
        let found = found
            .iter()
            .map(|text| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text))));
        let found: Vec<String> = found.collect();
        assert_eq!(found.len(), count, "{element}");
        assert_eq!(page.matches(&format!("<{element}")).count(), count, "{element}");
        assert_eq!(hashes(policy, directive), found, "{policy}");
    }
    for directive in [
        "default-src 'none'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ] {
        assert!(policy.split("; ").any(|one| one == directive), "{directive}: {policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    let head = server.client.head(server.url("/")).send().await.unwrap();
    assert_eq!(head.status(), 200);
    assert_eq!(head.headers()["content-security-policy"], policy);
    let post = Reply::of(server.client.post(server.url("/")).send().await.unwrap()).await;
    assert_eq!((post.status, post.header("allow")), (405, Some("GET,HEAD")));
}

#[tokio::test]
async fn the_page_needs_no_token_and_tells_nothing_that_does() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let open = Server::start(&on_tier(&data, "memory"), &[]);
    let environment = [("TIERLAB_ACCESS__TOKEN", "a-token-of-this-test")];
    let closed = Server::start_with(&on_tier(&data, "memory"), &[], &environment);
    let page = closed.get("/").await;
    assert_eq!(page.status, 200);
    // The same for everybody, before and after a token: what is loaded comes by calls that ask for one.
    assert_eq!(page.body, open.get("/").await.body);
    for secret in ["mlp", "a-token", env!("CARGO_PKG_VERSION")] {
        assert!(!page.text().contains(secret), "{secret}");
    }
    for (method, path) in [
        (Method::GET, "/metrics"),
        (Method::GET, "/v2/models/mlp"),
        (Method::POST, "/v2/repository/index"),
        (Method::GET, "//"),
        (Method::GET, "/index.html"),
    ] {
        let request = || closed.client.request(method.clone(), closed.url(path));
        assert_eq!(request().send().await.unwrap().status(), 401, "{method} {path}");
        let authorized = request().bearer_auth("a-token-of-this-test").send().await.unwrap();
        assert_ne!(authorized.status(), 401, "{method} {path}");
    }
    assert_eq!(closed.get("/v2/health/ready").await.status, 200);
}

//! Ways to address a bucket and to sign requests, against the embedded origin.

use super::harness::{Harness, connect, put};
use crate::conformance::Suite;
use crate::path;
use std::sync::Arc;
use tierlab_origins::s3::{ACCESS_KEY, SECRET_KEY};
use tierlab_storage::{ErrorKind, Tier};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bucket_in_the_hosts_name_conforms() {
    let harness = Harness::new().await;
    let endpoint = format!("http://localhost:{}", harness.port);
    let keys = "allow_http = true\nanonymous = true\nvirtual_host = true\nretries = 0";
    let tier = Arc::new(connect(&endpoint, keys).await.unwrap());
    let object = put(&tier, "o", 1, 10).await;
    harness.fault("error-rate=1");
    let error = tier.read(&object, 0..10).await.unwrap_err();
    assert!(error.detail().contains("http://tierlab.localhost:"), "{error}");
    harness.fault("");
    let scratch = tempfile::tempdir().unwrap();
    let suite = Suite {
        tier,
        folder: path("suite"),
        scratch: scratch.path().to_owned(),
        notices_changes: true,
    };
    suite.run().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_takes_no_bucket_in_front() {
    let keys = "allow_http = true\nanonymous = true\nvirtual_host = true";
    let error = connect("http://127.0.0.1:1", keys).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.detail().contains("virtual_host"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_a_credentials_file_sign() {
    let harness = Harness::new().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("credentials");
    let profile = |name: &str, id: &str, secret: &str| {
        format!("[{name}]\naws_access_key_id = {id}\naws_secret_access_key = {secret}\n")
    };
    let text = profile("default", ACCESS_KEY, "not-it") + &profile("lab", ACCESS_KEY, SECRET_KEY);
    std::fs::write(&file, text).unwrap();
    let endpoint = format!("http://127.0.0.1:{}", harness.port);
    let keys = |more: &str| format!("allow_http = true\ncredentials_file = \"{}\"\n{more}", file.display());
    let tier = connect(&endpoint, &keys("profile = \"lab\"")).await.unwrap();
    let object = put(&tier, "a b/c+d", 1, 100_000).await;
    assert_eq!(tier.stat(&object.path).await.unwrap(), object);
    assert_eq!(tier.read(&object, 5..50_000).await.unwrap().bytes.len(), 49_995);
    let error = connect(&endpoint, &keys("")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(!error.to_string().contains("not-it"), "{error}");
    let error = connect(&endpoint, &keys("profile = \"nobody\"")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.detail().contains("nobody"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_cannot_be_are_named() {
    for (keys, named) in [
        ("hedge_after_quantile = 1.5", "hedge_after_quantile"),
        ("hedge_max_share = -1.0", "hedge_max_share"),
        ("ca_file = \"/no/such/file\"", "/no/such/file"),
        ("ca_file = \"/dev/null\"", "no PEM certificate"),
        ("profile = \"x\"", "credentials_file"),
        ("credentials_file = \"/no/such/file\"", "/no/such/file"),
    ] {
        let keys = format!("allow_http = true\nanonymous = true\n{keys}");
        let error = connect("http://127.0.0.1:1", &keys).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.detail().contains(named), "{error}");
    }
}

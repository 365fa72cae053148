//! TLS, users and passwords.

use super::{Store, open, try_open};
use std::path::Path;
use tierlab_storage::ErrorKind;

const SECRET: &str = "correct-horse-battery-staple";

/// Writes a certificate for the loopback, and its key.
fn certificate(folder: &Path) -> (String, String) {
    let identity = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    std::fs::write(&cert, identity.cert.pem()).unwrap();
    std::fs::write(&key, identity.signing_key.serialize_pem()).unwrap();
    (cert.display().to_string(), key.display().to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_needs_a_known_authority() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = certificate(folder.path());
    let arguments = [
        "--tls-port",
        "PORT",
        "--tls-auth-clients",
        "no",
        "--tls-ca-cert-file",
        &cert,
    ];
    let tls = ["--tls-cert-file", &cert, "--tls-key-file", &key];
    let store = Store::start(&[&arguments[..], &tls[..]].concat());
    let url = store.url().replace("redis:", "rediss:");
    let tier = open(&url, &format!("ca_file = \"{cert}\"")).await;
    let object = crate::put(&tier, "a", 1, 2 << 20).await;
    assert_eq!(tier.read(&object, 0..2 << 20).await.unwrap().bytes.len(), 2 << 20);
    let error = try_open(&url, "retries = 0").await.err().unwrap();
    assert!(error.detail().contains("`ca_file`"), "{error}");
    // Plain text to a TLS port ends as soon as the server says so.
    let error = try_open(&store.url(), "retries = 0").await.err().unwrap();
    assert_ne!(error.kind(), ErrorKind::Denied);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_have_the_keys_that_they_may_read() {
    let store = Store::start(&["--requirepass", SECRET]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, format!("{SECRET}\n")).unwrap();
    let password = format!("password_file = \"{}\"", file.display());
    let tier = open(&store.url(), &password).await;
    let object = crate::put(&tier, "a", 1, 1000).await;
    assert!(!format!("{:?}", tier.info()).contains(SECRET));

    let mut connection = redis::Client::open(format!("redis://:{SECRET}@127.0.0.1:{}", store.port))
        .unwrap()
        .get_connection()
        .unwrap();
    let rights = ["reader", "on", &format!(">{SECRET}"), "~*", "+mget", "+hget", "+hscan"];
    redis::cmd("ACL")
        .arg("SETUSER")
        .arg(&rights)
        .exec(&mut connection)
        .unwrap();
    let reader = open(&store.url(), &format!("username = \"reader\"\n{password}")).await;
    assert_eq!(reader.read(&object, 0..1000).await.unwrap().bytes.len(), 1000);
    let refused = reader.delete(&object.path).await.unwrap_err();
    assert!(
        refused.kind() == ErrorKind::Denied && refused.detail().contains("NOPERM"),
        "{refused}"
    );

    std::fs::write(&file, "wrong-password").unwrap();
    for more in [
        password.clone(),
        format!("username = \"reader\"\n{password}"),
        String::new(),
    ] {
        let error = try_open(&store.url(), &more).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(
            error.detail().contains("password_file") && !error.to_string().contains("wrong"),
            "{error}"
        );
    }
}

/// The text of a refusal is longer than most, and comes once for each chunk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_refusal_is_no_damage() {
    let store = Store::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let (file, user) = (folder.path().join("password"), "u".repeat(300));
    std::fs::write(&file, SECRET).unwrap();
    store.query::<()>(&[
        "ACL",
        "SETUSER",
        &user,
        "on",
        &format!(">{SECRET}"),
        "~*",
        "+@all",
        "-set",
    ]);
    let more = format!("username = \"{user}\"\npassword_file = \"{}\"", file.display());
    let tier = open(&store.url(), &more).await;
    let body = bytes::Bytes::from(vec![7; 4 << 20]);
    let refused = tier.put(&crate::path("a"), body.into()).await.unwrap_err();
    assert!(
        refused.kind() == ErrorKind::Denied && refused.detail().contains("NOPERM"),
        "{refused}"
    );
}

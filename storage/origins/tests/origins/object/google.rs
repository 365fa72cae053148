//! The tier over Google Cloud Storage. Its XML API is S3's with other headers, so the embedded origin answers for it; Google's signatures
//! and tokens are `object_store`'s and not tried here.

use super::harness::Harness;
use crate::conformance::Suite;
use crate::path;
use std::sync::Arc;
use tierlab_storage::tiers::object::BucketTier;
use tierlab_storage::{Tier, TierConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Relays to an S3 origin, which would refuse Google's tokens: renames the header of each request's token to one of equal length. On
/// loopback a request's head is a single segment.
async fn relay(to: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let origin = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
            let ((mut requests, mut replies), (mut answers, mut asks)) = (client.into_split(), origin.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut answers, &mut replies).await });
            tokio::spawn(async move {
                let mut buffer = vec![0; 1 << 16];
                while let Ok(count @ 1..) = requests.read(&mut buffer).await {
                    let (name, other) = (b"authorization: Bearer", b"x-google-auth");
                    if let Some(at) = buffer[..count].windows(name.len()).position(|window| window == name) {
                        buffer[at..at + other.len()].copy_from_slice(other);
                    }
                    asks.write_all(&buffer[..count]).await.unwrap();
                }
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_of_google_conforms() {
    let harness = Harness::new().await;
    let document = format!(
        "kind = \"object\"\nurl = \"gs://tierlab/some/prefix\"\nendpoint = \"http://127.0.0.1:{}\"\nallow_http = true\nanonymous = true\n",
        relay(harness.port).await
    );
    let TierConfig::Object(config) = TierConfig::parse("test", &document).unwrap() else {
        panic!("kind is object")
    };
    let tier = BucketTier::connect(&config).await.unwrap();
    let info = tier.info();
    assert_eq!(info.kind, "gcs");
    assert!(
        info.location.starts_with("gs://tierlab/some/prefix at http://"),
        "{info:?}"
    );
    let scratch = tempfile::tempdir().unwrap();
    let suite = Suite {
        tier: Arc::new(tier),
        folder: path("suite"),
        scratch: scratch.path().to_owned(),
        notices_changes: true,
    };
    suite.run().await.unwrap();
}

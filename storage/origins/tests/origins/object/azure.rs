//! The tier over Azure Blob Storage: the conformance suite against Azurite, Microsoft's emulator, which checks signatures as the service
//! does.

use super::peer::{Peer, run, runtime};
use crate::conformance::Suite;
use crate::{path, put};
use std::process::Command;
use std::sync::Arc;
use tierlab_storage::content::content;
use tierlab_storage::tiers::object::BucketTier;
use tierlab_storage::{ErrorKind, StorageError, Tier, TierConfig};

const SETUP: &str = "scripts/setup azurite";
/// Azurite's account and its key, which its documentation publishes.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Makes the container: its URL, the account and its key are the arguments.
const MAKE_CONTAINER: &str = "
import base64, datetime, hashlib, hmac, http.client, sys, urllib.parse
url, account, key = urllib.parse.urlparse(sys.argv[1]), sys.argv[2], sys.argv[3]
now = datetime.datetime.now(datetime.timezone.utc).strftime('%a, %d %b %Y %H:%M:%S GMT')
headers = {'x-ms-date': now, 'x-ms-version': '2021-08-06'}
signed = 'PUT' + 12 * '\\n' + ''.join(f'{k}:{v}\\n' for k, v in headers.items()) + f'/{account}{url.path}\\nrestype:container'
digest = hmac.new(base64.b64decode(key), signed.encode(), hashlib.sha256).digest()
headers['Authorization'] = f'SharedKey {account}:{base64.b64encode(digest).decode()}'
connection = http.client.HTTPConnection(url.netloc)
connection.request('PUT', url.path + '?restype=container', headers=headers)
reply = connection.getresponse()
assert reply.status == 201, (reply.status, reply.read())
";

fn start() -> Peer {
    let program = runtime("azurite/node_modules/.bin/azurite-blob", SETUP);
    let mut command = Command::new("node");
    command
        .arg(program)
        .args(["--blobHost", "127.0.0.1", "--blobPort", "0"]);
    command.args(["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]);
    let mut azurite = Peer::start(&mut command, "successfully listens on ", SETUP);
    azurite.endpoint += &format!("/{ACCOUNT}");
    run(
        MAKE_CONTAINER,
        &[&format!("{}/tierlab", azurite.endpoint), ACCOUNT, KEY],
    );
    azurite
}

async fn connect(azurite: &Peer, url: &str, key: &str) -> Result<BucketTier, StorageError> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, format!("{key}\n")).unwrap();
    let document = format!(
        "kind = \"object\"\nurl = \"{url}\"\naccount = \"{ACCOUNT}\"\nendpoint = \"{}\"\nallow_http = true\nretries = 1\n\
         timeout_ms = 60000\nattempt_ms = 30000\n\
         part_bytes = 1000000\ncredentials_file = \"{}\"\n",
        azurite.endpoint,
        file.display()
    );
    let TierConfig::Object(config) = TierConfig::parse("test", &document)? else {
        panic!("kind is object")
    };
    BucketTier::connect(&config).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_of_azure_conforms() {
    let azurite = start();
    let tier = connect(&azurite, "az://tierlab/some/prefix", KEY).await.unwrap();
    assert_eq!(tier.info().kind, "azure");
    let scratch = tempfile::tempdir().unwrap();
    let tier: Arc<dyn Tier> = Arc::new(tier);
    let suite = Suite {
        tier: Arc::clone(&tier),
        folder: path("suite"),
        scratch: scratch.path().to_owned(),
        notices_changes: true,
    };
    suite.run().await.unwrap();
    let (size, seed) = (12_345_678, 5);
    let object = put(&tier, "large", seed, size).await;
    let listed = tier.list(Some(&path("large"))).await.unwrap();
    assert_eq!(listed, std::slice::from_ref(&object));
    let whole = tier.read(&listed[0], 0..size).await.unwrap();
    assert!(whole.bytes == content(seed, 0..size));
    assert_eq!((whole.cost.requests, whole.cost.wire_bytes), (13, size));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_key_and_a_missing_container_are_told_apart() {
    let azurite = start();
    let wrong = KEY.replace("Eby8", "Fby8");
    let error = connect(&azurite, "az://tierlab", &wrong).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(!error.to_string().contains("Fby8"), "{error}");
    let error = connect(&azurite, "az://nobody", KEY).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.detail().contains("no bucket `nobody`"), "{error}");
}

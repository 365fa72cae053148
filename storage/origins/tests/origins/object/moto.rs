//! The S3 tier against moto, a second S3 server, written by others: over HTTP and over TLS with a CA of its own.

use super::harness::{connect, put};
use super::peer::{Peer, python, run};
use crate::conformance::Suite;
use crate::path;
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;
use tierlab_storage::content::content;
use tierlab_storage::{ErrorKind, Tier};

/// Makes a CA, and a certificate for loopback that it signed, in the folder of its argument.
const CERTIFY: &str = "
import datetime, ipaddress, pathlib, sys
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
folder = pathlib.Path(sys.argv[1])
now = datetime.datetime.now(datetime.timezone.utc)
def name(text): return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])
def issue(subject, key, issuer, by, extensions):
    builder = (x509.CertificateBuilder().subject_name(name(subject)).issuer_name(name(issuer)).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30)))
    for extension, critical in extensions: builder = builder.add_extension(extension, critical)
    return builder.sign(by, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
ca, leaf = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
(folder / 'ca.pem').write_bytes(issue('test CA', ca, 'test CA', ca, [(x509.BasicConstraints(True, None), True)]))
names = x509.SubjectAlternativeName([x509.DNSName('localhost'), x509.IPAddress(ipaddress.ip_address('127.0.0.1'))])
usage = x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH])
(folder / 'leaf.pem').write_bytes(issue('localhost', leaf, 'test CA', ca, [(names, False), (usage, False)]))
(folder / 'leaf.key').write_bytes(leaf.private_bytes(serialization.Encoding.PEM,
    serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
";

/// Makes the bucket: endpoint, and the CA or nothing, are the arguments.
const MAKE_BUCKET: &str = "
import boto3, sys
boto3.client('s3', endpoint_url=sys.argv[1], verify=sys.argv[2] or None, region_name='us-east-1',
    aws_access_key_id='any', aws_secret_access_key='any').create_bucket(Bucket='tierlab')
";

/// A running moto.
struct Moto {
    endpoint: String,
    folder: TempDir,
    _peer: Peer,
}

impl Moto {
    fn start(tls: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let mut command = Command::new(python());
        command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]);
        if tls {
            run(CERTIFY, &[folder.path().to_str().unwrap()]);
            command.args(["--ssl-cert", &file("leaf.pem"), "--ssl-key", &file("leaf.key")]);
        }
        let peer = Peer::start(&mut command, "Running on ", "scripts/setup python");
        let moto = Self {
            endpoint: peer.endpoint.clone(),
            folder,
            _peer: peer,
        };
        let ca = if tls { moto.file("ca.pem") } else { String::new() };
        run(MAKE_BUCKET, &[&moto.endpoint, &ca]);
        moto
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// The keys of a config that signs with keys that moto takes.
    fn signed(&self) -> String {
        let file = self.file("credentials");
        std::fs::write(
            &file,
            "[default]\naws_access_key_id = any\naws_secret_access_key = any\n",
        )
        .unwrap();
        format!("credentials_file = \"{file}\"\nallow_http = true\n")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conforms_on_moto() {
    let moto = Moto::start(false);
    let tier = connect(&moto.endpoint, &moto.signed()).await.unwrap();
    let suite = Suite {
        tier: Arc::new(tier),
        folder: path("suite"),
        scratch: moto.folder.path().to_owned(),
        notices_changes: true,
    };
    suite.run().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_objects_and_rows_come_right_from_moto() {
    let moto = Moto::start(false);
    let keys = format!("{}part_bytes = 1000000\nconcurrency = 8", moto.signed());
    let tier = connect(&moto.endpoint, &keys).await.unwrap();
    let size = 12_345_678;
    let object = put(&tier, "large", 1, size).await;
    let whole = tier.read(&object, 0..size).await.unwrap();
    assert!(whole.bytes == content(1, 0..size));
    assert_eq!((whole.cost.requests, whole.cost.wire_bytes), (13, size));
    let rows: Vec<_> = (0..60).map(|i| i * 200_000..i * 200_000 + 999).collect();
    let many = tier.read_many(&object, &rows).await.unwrap();
    for (range, part) in rows.iter().zip(&many.parts) {
        assert_eq!(part, &content(1, range.clone()));
    }
    let new = put(&tier, "large", 2, size).await;
    let error = tier.read(&object, 0..size).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
    assert!(tier.read(&new, 0..size).await.unwrap().bytes == content(2, 0..size));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_wants_a_ca_that_is_known() {
    let moto = Moto::start(true);
    assert!(moto.endpoint.starts_with("https://"), "{}", moto.endpoint);
    let keys = format!("{}retries = 0\nca_file = \"{}\"", moto.signed(), moto.file("ca.pem"));
    let tier = connect(&moto.endpoint, &keys).await.unwrap();
    let object = put(&tier, "o", 3, 3_000_000).await;
    assert!(tier.read(&object, 0..3_000_000).await.unwrap().bytes == content(3, 0..3_000_000));
    let error = connect(&moto.endpoint, &format!("{}retries = 0", moto.signed()))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let text = error.to_string().to_lowercase();
    assert!(text.contains("certificate") && text.contains("ca_file"), "{error}");
}

//! Identities that AWS gives to an instance, a pod or a token, from a local metadata server. The keys are those of the
//! embedded origin, which checks signatures. A task of ECS has its server at a fixed address and is not tried here.

use super::harness::{Harness, connect, put};
use super::peer::{Peer, python};
use std::process::Command;
use tempfile::TempDir;
use tierlab_origins::s3::{ACCESS_KEY, SECRET_KEY};
use tierlab_storage::Tier as _;

/// Serves keys over HTTP and, as the token service, over TLS: to an instance with its session's token, to a pod with
/// its token, and for a web identity. The arguments are the keys, and the files of the certificate and its key.
const METADATA: &str = r#"
import http.server, json, ssl, sys, threading
key, secret, cert, private = sys.argv[1:]
ends = "2099-01-01T00:00:00Z"
keys = {"AccessKeyId": key, "SecretAccessKey": secret, "Token": "session", "Expiration": ends}
web = f"""<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>
<AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey><SessionToken>session</SessionToken>
<Expiration>{ends}</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"""

class Answer(http.server.BaseHTTPRequestHandler):
    def say(self, text, allowed=True):
        self.send_response(200 if allowed else 403)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
    def do_PUT(self):
        self.say("token of an instance")
    def do_GET(self):
        roles = "/latest/meta-data/iam/security-credentials/"
        header, token = ("authorization", "token of a pod") if self.path == "/pod" \
            else ("x-aws-ec2-metadata-token", "token of an instance")
        body = "role" if self.path == roles else json.dumps(keys)
        self.say(body, self.path in (roles, roles + "role", "/pod") and self.headers.get(header) == token)
    def do_POST(self):
        wanted = ("Action=AssumeRoleWithWebIdentity", "RoleArn=role", "WebIdentityToken=web")
        self.say(web, all(part in self.path for part in wanted))

plain, tls = (http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) for _ in range(2))
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(cert, private)
tls.socket = context.wrap_socket(tls.socket, server_side=True)
threading.Thread(target=tls.serve_forever, daemon=True).start()
print(f"listens on 127.0.0.1:{plain.server_port} 127.0.0.1:{tls.server_port}", flush=True)
plain.serve_forever()
"#;

/// Variable that says to the test's own process which certificate to trust.
const CERTIFICATE: &str = "TIERLAB_TEST_CERTIFICATE";

/// Metadata server whose keys have the secret `secret`, with the variables of each identity.
fn metadata(folder: &TempDir, secret: &str) -> (Peer, [Vec<(&'static str, String)>; 3]) {
    let file = |name: &str| folder.path().join(name).display().to_string();
    let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(file("cert.pem"), certified.cert.pem()).unwrap();
    std::fs::write(file("key.pem"), certified.signing_key.serialize_pem()).unwrap();
    std::fs::write(file("pod"), "token of a pod").unwrap();
    std::fs::write(file("web"), "web").unwrap();
    let mut command = Command::new(python());
    command.args(["-c", METADATA, ACCESS_KEY, secret]);
    command.args([file("cert.pem"), file("key.pem")]);
    let peer = Peer::start(&mut command, "listens on ", "scripts/setup python");
    let (plain, tls) = peer.endpoint.split_once(' ').unwrap();
    let instance = vec![("AWS_METADATA_ENDPOINT", format!("http://{plain}"))];
    let pod = vec![
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", format!("http://{plain}/pod")),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file("pod")),
    ];
    let web = vec![
        ("AWS_WEB_IDENTITY_TOKEN_FILE", file("web")),
        ("AWS_ROLE_ARN", "role".to_owned()),
        ("AWS_ENDPOINT_URL_STS", format!("https://{tls}")),
    ];
    (peer, [instance, pod, web])
}

/// Calls itself in a process for each identity, with its variables alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn identities_of_the_cloud_sign_requests() {
    if let Ok(certificate) = std::env::var(CERTIFICATE) {
        let harness = Harness::new().await;
        let endpoint = format!("http://127.0.0.1:{}", harness.port);
        let keys = format!("allow_http = true\nca_file = \"{certificate}\"");
        match connect(&endpoint, &keys).await {
            Ok(tier) => {
                let object = put(&tier, "a", 1, 1000).await;
                assert_eq!(tier.read(&object, 0..1000).await.unwrap().bytes.len(), 1000);
            }
            Err(error) => {
                eprintln!("{:?}: {error}", error.kind());
                std::process::exit(3);
            }
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let asserts = |variables: &[(&'static str, String)], code, words: &[&str]| {
        let name = "object::identities::identities_of_the_cloud_sign_requests";
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", name, "--nocapture"]).env_clear();
        child.env(CERTIFICATE, folder.path().join("cert.pem"));
        let output = child.envs(variables.to_vec()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert_eq!(output.status.code(), Some(code), "{variables:?}: {said}");
        assert!(words.iter().all(|word| said.contains(word)), "{variables:?}: {said}");
    };
    let (wrong, identities) = metadata(&folder, "other");
    for variables in identities {
        asserts(&variables, 3, &["Denied", "SignatureDoesNotMatch"]);
    }
    drop(wrong);
    let (_peer, identities) = metadata(&folder, SECRET_KEY);
    for variables in &identities {
        asserts(variables, 0, &["1 passed"]);
    }
    std::fs::write(folder.path().join("pod"), "token of a pod\n").unwrap();
    asserts(&identities[1], 3, &["Invalid", "has a line break"]);
}

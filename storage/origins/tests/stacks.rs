//! Stacks that a server reads from: every tier, opened from its TOML and wrapped by `compose`, passes the suite. It
//! does so alone, under a stage over an emulated service, and where files may not be read. Flight, which cannot be
//! written to, has a table read instead.

#[path = "../../tests/conformance/mod.rs"]
mod conformance;

use conformance::{Case, Reach, Suite};
use prometheus::Registry;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use tierlab_formats::table::{TableHeader, TableSchema};
use tierlab_origins::{flight::FlightOrigin, nfs::NfsOrigin, s3::S3Origin};
use tierlab_protocol::tensor::DataType;
use tierlab_storage::wrappers::{CacheConfig, Role, StorageMetrics, compose};
use tierlab_storage::{Object, ObjectPath, Tier, TierConfig, open, open_counted};
use tokio::net::TcpListener;

/// Set for the child that the permissions of files hold for.
const CHILD: &str = "TIERLAB_TEST_PERMISSIONS";

/// TOML of a tier, and its storage, for as long as the test's runtime.
struct Place {
    toml: String,
    folder: TempDir,
    /// Below the folder, where the objects are.
    objects: &'static str,
}

impl Place {
    fn reach(&self) -> Reach {
        Reach::folder(&self.folder.path().join(self.objects))
    }
}

fn rooted(kind: &str, folder: TempDir) -> Place {
    Place {
        toml: format!("kind = \"{kind}\"\nroot = \"{}\"\n", folder.path().display()),
        folder,
        objects: "",
    }
}

async fn s3_place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let origin = S3Origin::open(folder.path()).unwrap();
    origin.ensure_bucket("tierlab").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap();
    tokio::spawn(origin.serve(listener, std::future::pending()));
    let toml = format!(
        "kind = \"s3\"\nbucket = \"tierlab\"\nendpoint = \"http://{endpoint}\"\nallow_http = true\nanonymous = true\n"
    );
    Place {
        toml,
        folder,
        objects: "tierlab",
    }
}

async fn nfs_place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let origin = NfsOrigin::bind("127.0.0.1:0".parse().unwrap(), folder.path())
        .await
        .unwrap();
    let url = origin.url();
    tokio::spawn(origin.serve(std::future::pending()));
    Place {
        toml: format!("kind = \"nfs\"\nurl = \"{url}\"\n"),
        folder,
        objects: "",
    }
}

async fn flight_place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let origin = FlightOrigin::open(folder.path()).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(origin.serve(listener, std::future::pending()));
    Place {
        toml: format!("kind = \"flight\"\nurl = \"grpc://{address}\"\n"),
        folder,
        objects: "",
    }
}

fn nvme_place() -> Place {
    rooted("nvme", tempfile::tempdir().unwrap())
}

/// The tier as a server composes it, with a cache so small that blocks leave it during the suite.
async fn stack(toml: &str, registry: &Registry, scratch: &Path) -> Suite {
    let config = TierConfig::parse("test", toml).unwrap();
    let metrics = StorageMetrics::register(registry).unwrap();
    let cache = CacheConfig {
        capacity_bytes: 1 << 20,
        block_bytes: 4096,
        ..CacheConfig::default()
    };
    let tier = open_counted(&config, &metrics).await.unwrap();
    let tier = compose(tier, Role::Feature, &cache, &metrics).unwrap();
    assert_eq!(tier.info().kind, config.kind());
    Suite {
        tier,
        folder: ObjectPath::new("suite").unwrap(),
        scratch: scratch.to_owned(),
        notices_changes: false,
    }
}

/// The sum of a metric over its labels.
fn sum(registry: &Registry, name: &str) -> f64 {
    let families = registry.gather();
    let family = families.iter().find(|family| family.name() == name);
    let family = family.unwrap_or_else(|| panic!("no metric `{name}`"));
    family
        .get_metric()
        .iter()
        .map(|one| one.get_counter().get_value())
        .sum()
}

async fn conforms(toml: &str, reach: &Reach) {
    let (registry, scratch) = (Registry::new(), tempfile::tempdir().unwrap());
    let suite = stack(toml, &registry, scratch.path()).await;
    suite.run_with(reach).await.unwrap();
    assert!(
        sum(&registry, "tierlab_tier_requests_total") > 0.0,
        "the tier was never asked"
    );
}

/// Reads blocks of the cache in order until one comes from the stage, which has the whole stage block once it is
/// written.
async fn hit_the_stage(tier: &dyn Tier, object: &Object, content: &[u8], registry: &Registry) {
    const BLOCK: usize = 4096;
    for (block, wanted) in content.chunks(BLOCK).enumerate() {
        let start = (block * BLOCK) as u64;
        let read = tier.read(object, start..start + wanted.len() as u64).await.unwrap();
        assert!(read.bytes == wanted, "block {block}");
        if sum(registry, "tierlab_staged_hits_total") > 0.0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

/// `cache(metered(staged(emulated(tier))))`, with faults that are tried again and a stage that has to evict.
async fn layers(place: &Place, registry: &Registry, scratch: &Path, stage: &Path) -> Suite {
    let toml = format!(
        "{}[emulated]\nretries = 9\nerrors = [{{ kind = \"unavailable\", rate = 0.02 }}]\n\
         latency = {{ distribution = \"lognormal\", median_us = 30, p99_us = 300 }}\n\
         [staged]\nroot = \"{}\"\nblock_bytes = 65536\ncapacity_bytes = 1048576\n",
        place.toml,
        stage.display()
    );
    let suite = stack(&toml, registry, scratch).await;
    let wrappers = suite.tier.info().wrappers;
    let names: Vec<&str> = wrappers.iter().map(|name| name.split('(').next().unwrap()).collect();
    assert_eq!(names, ["cache", "metered", "staged", "emulated"]);
    suite
}

fn each_layer_worked(registry: &Registry) {
    for counted in [
        "tierlab_cache_hits_total",
        "tierlab_staged_hits_total",
        "tierlab_staged_evicted_blocks_total",
        "tierlab_emulated_faults_total",
    ] {
        assert!(sum(registry, counted) > 0.0, "{counted}");
    }
    assert_eq!(sum(registry, "tierlab_staged_torn_blocks_total"), 0.0);
}

async fn conforms_in_layers(place: &Place) {
    let (registry, scratch, stage) = (
        Registry::new(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let suite = layers(place, &registry, scratch.path(), stage.path()).await;
    suite.run_with(&place.reach()).await.unwrap();
    let (path, content) = (ObjectPath::new("suite/again").unwrap(), vec![7; 64 << 10]);
    let body = bytes::Bytes::from(content.clone()).into();
    let object = suite.tier.put(&path, body).await.unwrap();
    hit_the_stage(&*suite.tier, &object, &content, &registry).await;
    each_layer_worked(&registry);
}

/// A table of 3 MiB.
fn table() -> Vec<u8> {
    let schema = TableSchema::lay_out("t", &[("x", DataType::Uint8, &[500])]).unwrap();
    let header = TableHeader::without_blocks(schema, 6000, 0).unwrap();
    let mut file = header.encode();
    for id in header.ids() {
        let mut row = vec![0; header.stride as usize];
        row[..500].fill(id as u8);
        header.seal_row(id, &mut row);
        file.extend_from_slice(&row);
    }
    file
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flight_in_layers() {
    let (place, file) = (flight_place().await, table());
    std::fs::create_dir(place.folder.path().join("features")).unwrap();
    std::fs::write(place.folder.path().join("features/t.rows"), &file).unwrap();
    let (registry, scratch, stage) = (
        Registry::new(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let suite = layers(&place, &registry, scratch.path(), stage.path()).await;
    let object = suite
        .tier
        .stat(&ObjectPath::new("features/t.rows").unwrap())
        .await
        .unwrap();
    for round in 0..600_usize {
        let start = round * 7919 * 512 % (file.len() - 10_000);
        // Twice, so that the cache has it.
        for _ in 0..2 {
            let range = start as u64..start as u64 + 10_000;
            let read = suite.tier.read(&object, range).await.unwrap();
            assert!(read.bytes == file[start..start + 10_000], "{start}");
        }
    }
    hit_the_stage(&*suite.tier, &object, &file, &registry).await;
    each_layer_worked(&registry);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory() {
    let place = rooted("memory", tempfile::tempdir().unwrap());
    std::fs::create_dir_all(place.folder.path().join("models/ctr")).unwrap();
    std::fs::write(place.folder.path().join("models/ctr/config.toml"), "x = 1").unwrap();
    let tier = open(&TierConfig::parse("test", &place.toml).unwrap()).await.unwrap();
    let loaded = tier
        .stat(&ObjectPath::new("models/ctr/config.toml").unwrap())
        .await
        .unwrap();
    assert_eq!(tier.read(&loaded, 0..5).await.unwrap().bytes, "x = 1");
    conforms(&place.toml, &Reach::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nvme() {
    let place = nvme_place();
    conforms(&place.toml, &place.reach()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3() {
    let place = s3_place().await;
    conforms(&place.toml, &place.reach()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nfs() {
    let place = nfs_place().await;
    conforms(&place.toml, &place.reach()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nvme_in_layers() {
    conforms_in_layers(&nvme_place()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_in_layers() {
    conforms_in_layers(&s3_place().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nfs_in_layers() {
    conforms_in_layers(&nfs_place().await).await;
}

/// Root may read everything, so this runs again in a process without that right.
#[test]
fn what_may_not_be_read_is_denied_and_then_read() {
    let itself = std::env::current_exe().unwrap();
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let mut command = if is_root {
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--inh-caps=-all", "--bounding-set=-dac_override,-dac_read_search"]);
        setpriv.arg(itself);
        setpriv
    } else {
        Command::new(itself)
    };
    command
        .args(["--ignored", "--exact", "permissions", "--nocapture"])
        .env(CHILD, "1");
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("setpriv cannot be run: {e}; it comes with util-linux"));
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{stdout}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a process of its own, started by the test above"]
async fn permissions() {
    assert!(std::env::var_os(CHILD).is_some(), "only for the test above");
    for place in [nvme_place(), s3_place().await, nfs_place().await] {
        let scratch = tempfile::tempdir().unwrap();
        let suite = stack(&place.toml, &Registry::new(), scratch.path()).await;
        let reach = place.reach().with_permissions();
        let outcome = suite.run_case(Case::Denied, &reach).await;
        outcome.unwrap_or_else(|why| panic!("{}: {why}", place.toml));
    }
}

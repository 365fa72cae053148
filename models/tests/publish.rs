//! Publishing to a directory through the real nvme tier, and through a memory tier that records the order of writes.

use async_trait::async_trait;
use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tierlab_formats::table::TableHeader;
use tierlab_models::ModelsError;
use tierlab_models::generators::{ModelKind, Request, Size};
use tierlab_models::publish::{Selection, Summary, open_tier, publish};
use tierlab_models::repository::write_generated;
use tierlab_models::stop::Stop;
use tierlab_models::tables::{TableKind, generate};
use tierlab_origins::flight::FlightOrigin;
use tierlab_origins::nfs::NfsOrigin;
use tierlab_origins::s3::S3Origin;
use tierlab_storage::{Body, ErrorKind, Object, ObjectPath, ReadMany, StorageError, Tier, TierConfig, TierInfo};

/// A repository with `mlp` and `ctr`, a `ctr` table, and an empty directory to publish to.
struct Local {
    folder: tempfile::TempDir,
    selection: Selection,
}

impl Local {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (repository, features) = (folder.path().join("repository"), folder.path().join("features"));
        for kind in [ModelKind::Mlp, ModelKind::Ctr] {
            let request = Request {
                kind,
                size: Size::Small,
                seed: 1,
            };
            write_generated(&repository, &request, &Stop::never()).unwrap();
        }
        generate(TableKind::Ctr, 500, 1, &features, &Stop::never()).unwrap();
        fs::create_dir(folder.path().join("tier")).unwrap();
        let selection = Selection {
            repository: Some(repository),
            features: Some(features),
            ..Selection::default()
        };
        Self { folder, selection }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    /// Returns each object of the tier with its source file.
    fn objects(&self) -> Vec<(String, PathBuf)> {
        let mut objects = vec![("features/ctr.rows".to_owned(), self.path("features/ctr.rows"))];
        for model in ["ctr", "mlp"] {
            for file in ["1/model.onnx", "config.toml", "manifest.json"] {
                objects.push((
                    format!("models/{model}/{file}"),
                    self.path(&format!("repository/{model}/{file}")),
                ));
            }
        }
        objects
    }
}

async fn nvme(local: &Local) -> Arc<dyn Tier> {
    let toml = local.path("nvme.toml");
    fs::write(&toml, "kind = \"nvme\"\nroot = \"/overlaid\"\n").unwrap();
    let root = format!("root={}", local.path("tier").display());
    open_tier(&toml, &[root]).await.unwrap()
}

async fn read_whole(tier: &dyn Tier, path: &str) -> Vec<u8> {
    let object = tier.stat(&ObjectPath::new(path).unwrap()).await.unwrap();
    tier.read(&object, 0..object.size).await.unwrap().bytes.to_vec()
}

async fn put(tier: &dyn Tier, local: &Local) -> Summary {
    publish(tier, &local.selection, &Stop::never()).await.unwrap()
}

fn flip_last_byte(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn a_directory_gets_everything_once() {
    let local = Local::new();
    let tier = nvme(&local).await;
    let first = put(&*tier, &local).await;
    assert_eq!((first.put, first.unchanged), (7, 0));
    for (object, file) in local.objects() {
        assert!(read_whole(&*tier, &object).await == fs::read(file).unwrap(), "{object}");
    }
    let again = put(&*tier, &local).await;
    assert_eq!((again.put, again.unchanged), (0, 7));
}

#[tokio::test]
async fn a_run_goes_whole_and_alone_and_its_record_last() {
    let local = Local::new();
    let run = local.path("results/night");
    fs::create_dir_all(run.join("hdr")).unwrap();
    for (file, text) in [
        ("run.json", "{}"),
        ("report.html", "<html>"),
        ("hdr/nvme-100.hdr", "h"),
        ("summary.csv", "a"),
    ] {
        fs::write(run.join(file), text).unwrap();
    }
    let selection = Selection {
        runs: vec![run.clone()],
        ..local.selection.clone()
    };
    let tier = RecordingTier::new("").await;
    let summary = publish(&tier, &selection, &Stop::never()).await.unwrap();
    assert_eq!(summary.put, 4);
    let order = tier.written.lock().unwrap().clone();
    assert_eq!(
        order,
        [
            "results/night/hdr/nvme-100.hdr",
            "results/night/report.html",
            "results/night/summary.csv",
            "results/night/run.json"
        ]
    );
    let model = (local.path("repository/mlp/1"), &local.selection);
    for (folder, selection) in [(run.clone(), &selection), model] {
        let odd = folder.join(OsStr::from_bytes(b"odd\xff"));
        fs::write(&odd, "").unwrap();
        let refused = publish(&tier, selection, &Stop::never()).await.unwrap_err().to_string();
        assert!(refused.contains("not UTF-8"), "{refused}");
        fs::remove_file(odd).unwrap();
    }
    fs::remove_file(run.join("run.json")).unwrap();
    let refused = publish(&tier, &selection, &Stop::never())
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("run.json") && refused.contains("night"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_and_nfs_get_everything_once() {
    let local = Local::new();
    for folder in ["s3", "nfs"] {
        fs::create_dir(local.path(folder)).unwrap();
    }
    let s3 = S3Origin::open(&local.path("s3")).unwrap();
    s3.ensure_bucket("tierlab").unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("endpoint=http://{}", listener.local_addr().unwrap());
    let nfs = NfsOrigin::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), &local.path("nfs"))
        .await
        .unwrap();
    let url = format!("url={}", nfs.url());
    tokio::spawn(s3.serve(listener, std::future::pending()));
    tokio::spawn(nfs.serve(std::future::pending()));

    let s3 = "kind = \"s3\"\nbucket = \"tierlab\"\nregion = \"us-east-1\"\nanonymous = true\nallow_http = true\n";
    for (toml, set, root) in [(s3, endpoint, "s3/tierlab"), ("kind = \"nfs\"\n", url, "nfs")] {
        let path = local.path("tier.toml");
        fs::write(&path, toml).unwrap();
        let tier = open_tier(&path, &[set]).await.unwrap();
        assert_eq!(put(&*tier, &local).await.put, 7, "{root}");
        for (object, file) in local.objects() {
            let wanted = fs::read(file).unwrap();
            assert!(read_whole(&*tier, &object).await == wanted, "{object} read from {root}");
            assert!(
                fs::read(local.path(root).join(&object)).unwrap() == wanted,
                "{object} below {root}"
            );
        }
        let again = put(&*tier, &local).await;
        assert_eq!((again.put, again.unchanged), (0, 7), "{root}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flight_server_is_refused() {
    let local = Local::new();
    let flight = FlightOrigin::open(&local.path("flight")).await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("url=grpc://{}", listener.local_addr().unwrap());
    tokio::spawn(flight.serve(listener, std::future::pending()));
    let path = local.path("tier.toml");
    fs::write(&path, "kind = \"flight\"\n").unwrap();
    let tier = open_tier(&path, &[url]).await.unwrap();
    let refused = publish(&*tier, &local.selection, &Stop::never()).await.unwrap_err();
    assert!(refused.to_string().contains("read-only"), "{refused}");
}

#[tokio::test]
async fn only_what_changed_is_put_again() {
    let local = Local::new();
    let tier = nvme(&local).await;
    put(&*tier, &local).await;

    fs::write(local.path("repository/ctr/config.toml"), "max_batch_size = 7\n").unwrap();
    let edited = put(&*tier, &local).await;
    assert_eq!((edited.put, edited.unchanged), (1, 6));
    assert_eq!(
        read_whole(&*tier, "models/ctr/config.toml").await,
        b"max_batch_size = 7\n"
    );

    fs::remove_file(local.path("repository/ctr/config.toml")).unwrap();
    let removed = put(&*tier, &local).await;
    assert_eq!((removed.put, removed.removed), (0, 1));

    let other = Request {
        kind: ModelKind::Mlp,
        size: Size::Small,
        seed: 2,
    };
    write_generated(&local.path("repository"), &other, &Stop::never()).unwrap();
    generate(TableKind::Ctr, 500, 2, &local.path("features"), &Stop::never()).unwrap();
    let reseeded = put(&*tier, &local).await;
    // The graph and manifest of `mlp`, the latter before and after, and the table, which has the same length as before.
    assert_eq!((reseeded.put, reseeded.unchanged), (4, 3));

    // A lost object is put again although the tier's manifest lists it.
    tier.delete(&ObjectPath::new("models/ctr/1/model.onnx").unwrap())
        .await
        .unwrap();
    let lost = put(&*tier, &local).await;
    assert_eq!(lost.put, 1);
    for (object, file) in local
        .objects()
        .into_iter()
        .filter(|(object, _)| object != "models/ctr/config.toml")
    {
        assert!(read_whole(&*tier, &object).await == fs::read(file).unwrap(), "{object}");
    }
}

#[tokio::test]
async fn a_table_with_other_values_is_put_again() {
    let local = Local::new();
    let tier = nvme(&local).await;
    put(&*tier, &local).await;
    let path = local.path("features/ctr.rows");
    let mut file = fs::read(&path).unwrap();
    let mut header = TableHeader::decode(&file, file.len() as u64).unwrap();
    let range = header.row_range(7).unwrap();
    let row = &mut file[range.start as usize..range.end as usize];
    row[0] ^= 1;
    header.seal_row(7, row);
    let (block, _) = header.block(0).unwrap();
    header.block_crcs[0] = crc32c::crc32c(&file[block.start as usize..block.end as usize]);
    file[..header.header_len() as usize].copy_from_slice(&header.encode());
    fs::write(&path, &file).unwrap();
    let again = put(&*tier, &local).await;
    assert_eq!((again.put, again.unchanged), (1, 6));
    assert!(read_whole(&*tier, "features/ctr.rows").await == file);
}

#[tokio::test]
async fn names_choose_what_is_put() {
    let mut local = Local::new();
    let tier = nvme(&local).await;
    local.selection.models = vec!["mlp".to_owned()];
    assert_eq!(put(&*tier, &local).await.put, 3);
    let listed = tier.list(None).await.unwrap();
    assert!(
        listed
            .iter()
            .all(|object| object.path.as_str().starts_with("models/mlp/"))
    );
    local.selection.models = vec!["bert".to_owned()];
    let refused = publish(&*tier, &local.selection, &Stop::never()).await.unwrap_err();
    assert_eq!(refused.exit_code(), 2);
    assert!(refused.to_string().contains("no model `bert`"), "{refused}");
}

#[tokio::test]
async fn damaged_files_are_not_put() {
    for (damaged, named) in [
        ("repository/ctr/1/model.onnx", "1/model.onnx"),
        ("features/ctr.rows", "ctr.rows"),
    ] {
        let local = Local::new();
        let tier = nvme(&local).await;
        flip_last_byte(&local.path(damaged));
        let refused = publish(&*tier, &local.selection, &Stop::never()).await.unwrap_err();
        assert!(refused.to_string().contains(named), "{refused}");
        assert!(tier.list(None).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn models_without_a_manifest_are_put_whole() {
    let local = Local::new();
    let tier = nvme(&local).await;
    fs::remove_file(local.path("repository/ctr/manifest.json")).unwrap();
    fs::write(local.path("repository/ctr/1/notes.txt"), "mine").unwrap();
    assert_eq!(put(&*tier, &local).await.put, 7);
    assert_eq!(read_whole(&*tier, "models/ctr/1/notes.txt").await, b"mine");
    // The graph and the notes cannot be compared; the rest is known to exist.
    let again = put(&*tier, &local).await;
    assert_eq!((again.put, again.unchanged), (2, 5));
}

/// Records writes, and refuses one object.
struct RecordingTier {
    inner: Arc<dyn Tier>,
    refused: &'static str,
    written: Mutex<Vec<String>>,
}

impl RecordingTier {
    async fn new(refused: &'static str) -> Self {
        let inner = tierlab_storage::open(&TierConfig::Memory { root: None }).await.unwrap();
        Self {
            inner,
            refused,
            written: Mutex::default(),
        }
    }
}

#[async_trait]
impl Tier for RecordingTier {
    fn info(&self) -> TierInfo {
        self.inner.info()
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        self.inner.stat(path).await
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        self.inner.read_many(object, ranges).await
    }

    async fn list(&self, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        self.inner.list(prefix).await
    }

    async fn put(&self, path: &ObjectPath, body: Body) -> Result<Object, StorageError> {
        if path.as_str() == self.refused {
            return Err(ErrorKind::Denied.error(path.as_str(), "read-only here"));
        }
        self.written.lock().unwrap().push(path.to_string());
        self.inner.put(path, body).await
    }

    async fn delete(&self, path: &ObjectPath) -> Result<(), StorageError> {
        self.inner.delete(path).await
    }
}

#[tokio::test]
async fn tables_come_before_models_and_a_manifest_after_everything_it_names() {
    let local = Local::new();
    let tier = RecordingTier::new("").await;
    put(&tier, &local).await;
    let written = tier.written.into_inner().unwrap();
    let wanted = [
        "features/ctr.rows",
        "models/ctr/1/model.onnx",
        "models/ctr/config.toml",
        "models/ctr/manifest.json",
        "models/mlp/1/model.onnx",
        "models/mlp/config.toml",
        "models/mlp/manifest.json",
    ];
    assert_eq!(written, wanted);
}

#[tokio::test]
async fn a_refusing_tier_is_named_with_the_object_and_gets_no_manifest() {
    let local = Local::new();
    let tier = RecordingTier::new("models/ctr/1/model.onnx").await;
    let error = publish(&tier, &local.selection, &Stop::never()).await.unwrap_err();
    assert!(matches!(error, ModelsError::Tier { .. }));
    let text = error.to_string();
    assert!(text.contains("models/ctr/1/model.onnx on the memory tier"), "{text}");
    assert!(text.contains("read-only here"), "{text}");
    assert!(
        tier.stat(&ObjectPath::new("models/ctr/manifest.json").unwrap())
            .await
            .is_err()
    );
}

/// A publish that stops before its manifest, and then one of the files from before.
#[tokio::test]
async fn a_replaced_file_is_not_taken_for_the_one_before() {
    let local = Local::new();
    let tier = RecordingTier::new("models/mlp/config.toml").await;
    let model = |seed| {
        let (kind, size) = (ModelKind::Mlp, Size::Small);
        write_generated(&local.path("repository"), &Request { kind, size, seed }, &Stop::never()).unwrap();
        fs::read(local.path("repository/mlp/1/model.onnx")).unwrap()
    };
    let before = model(1);
    put(&*tier.inner, &local).await;
    let after = model(2);
    fs::write(local.path("repository/mlp/config.toml"), "max_batch_size = 7\n").unwrap();
    publish(&tier, &local.selection, &Stop::never()).await.unwrap_err();
    assert!(read_whole(&tier, "models/mlp/1/model.onnx").await == after);
    assert!(model(1) == before && before.len() == after.len());
    put(&*tier.inner, &local).await;
    assert!(read_whole(&tier, "models/mlp/1/model.onnx").await == before);
}

#[tokio::test]
async fn links_out_of_the_repository_circles_and_pipes_are_refused_by_name() {
    let local = Local::new();
    let tier = nvme(&local).await;
    let model = local.path("repository/mlp");
    let secret = local.path("secret");
    fs::write(&secret, "of somebody else").unwrap();
    let inside = local.path("repository/ctr/1/model.onnx");
    let refused = async |path: &Path, word: &str| {
        let error = publish(&*tier, &local.selection, &Stop::never())
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(word) && error.contains(path.to_str().unwrap()),
            "{error}"
        );
        fs::remove_file(path).unwrap();
    };
    let link = |to: &Path, name: &str| {
        let path = model.join(name);
        std::os::unix::fs::symlink(to, &path).unwrap();
        path
    };
    refused(&link(&secret, "1/w.bin"), "which is not in").await;
    refused(&link(local.folder.path(), "1/up"), "which is not in").await;
    refused(&link(&model, "1/again"), "contains it").await;
    refused(&link(Path::new("."), "1/here"), "contains it").await;
    let pipe = model.join("1/pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    refused(&pipe, "neither a file nor a folder").await;
    assert!(!local.path("tier/models").exists());
    link(&inside, "1/same.onnx");
    put(&*tier, &local).await;
    assert_eq!(
        read_whole(&*tier, "models/mlp/1/same.onnx").await,
        fs::read(inside).unwrap()
    );
}

//! The repository over a memory tier: what is found, and what is refused by object.

use super::list;
use super::*;
use crate::inference::runtime::{MappedConfig, NEVER_FROM_MEMORY_BYTES, Weights};
use bytes::Bytes;
use prost::Message as _;
use std::sync::Arc;
use tierlab_formats::model::ManifestFile;
use tierlab_formats::onnx::messages::{
    ModelProto, StringStringEntryProto, TensorProto, TensorShapeProto, TensorType, TypeProto,
};
use tierlab_storage::TierConfig;

async fn tier(files: &[(&str, &[u8])]) -> Arc<dyn Tier> {
    let tier = tierlab_storage::open(&TierConfig::Memory { root: None }).await.unwrap();
    for (path, bytes) in files {
        let path = ObjectPath::new(path).unwrap();
        tier.put(&path, Bytes::copy_from_slice(bytes).into()).await.unwrap();
    }
    tier
}

async fn read_model(files: &[(&str, &[u8])], name: &str) -> Result<VersionFiles, LoadError> {
    let tier = tier(files).await;
    let models = list(&*tier, None).await.unwrap();
    read_highest(&*tier, name, &models[name]).await
}

async fn read_highest(tier: &dyn Tier, name: &str, objects: &[Object]) -> Result<VersionFiles, LoadError> {
    let described = describe(tier, name, objects, None).await?;
    let version = *described.versions.last().unwrap();
    let mapped = MappedWeights::new(MappedConfig {
        from_bytes: NEVER_FROM_MEMORY_BYTES,
        folder: "/nowhere".into(),
        max_bytes: 0,
    });
    described.read(tier, version, &mapped).await
}

fn in_memory(found: &VersionFiles) -> &[(String, Arc<[u8]>)] {
    match &found.graph.weights {
        Weights::InMemory(files) => files,
        Weights::Mapped(folder) => panic!("{folder:?}"),
    }
}

/// The smallest model there is: an empty graph, and a number to tell one from another.
const GRAPH: &[u8] = b"\x08\x01\x3a\x00";
const OTHER_GRAPH: &[u8] = b"\x08\x02\x3a\x00";

fn manifest(graph: &[u8]) -> Vec<u8> {
    let file = ManifestFile {
        path: "1/model.onnx".into(),
        bytes: graph.len() as u64,
        sha256: hex::encode(Sha256::digest(graph)),
    };
    let manifest = Manifest {
        schema_version: Manifest::SCHEMA_VERSION,
        name: "m".into(),
        generator: "test".into(),
        seed: None,
        inputs: vec![],
        outputs: vec![],
        files: vec![file],
    };
    serde_json::to_vec(&manifest).unwrap()
}

#[tokio::test]
async fn a_folder_with_only_a_graph_is_enough_and_the_highest_version_is_read() {
    let files: &[(&str, &[u8])] = &[
        ("models/m/2/model.onnx", GRAPH),
        ("models/m/10/model.onnx", OTHER_GRAPH),
        ("models/m/10/weights.data", b"w"),
        ("models/m/11/notes.txt", b"no graph"),
        ("models/stray.txt", b"no model"),
        ("models/bad name/1/model.onnx", b"passed over"),
        ("features/t.rows", b"no model"),
    ];
    let tier = tier(files).await;
    let models = list(&*tier, None).await.unwrap();
    assert_eq!(models.keys().collect::<Vec<_>>(), ["m"]);
    let found = read_highest(&*tier, "m", &models["m"]).await.unwrap();
    assert_eq!((found.version, &found.graph.onnx[..]), (10, OTHER_GRAPH));
    // Nothing refers to the file beside it.
    assert!(in_memory(&found).is_empty());
    let described = describe(&*tier, "m", &models["m"], None).await.unwrap();
    assert_eq!(described.config, ModelConfig::default());
}

#[tokio::test]
async fn what_is_broken_is_refused_by_object() {
    let whole = manifest(GRAPH);
    let mut two_files = Manifest::parse(&whole).unwrap();
    two_files.files.push(ManifestFile {
        path: "1/weights.bin".into(),
        ..two_files.files[0].clone()
    });
    let two_files = serde_json::to_vec(&two_files).unwrap();
    for (files, named) in [
        (
            vec![("models/m/x/model.onnx", GRAPH)],
            "models/m: missing VERSION/model.onnx",
        ),
        (
            vec![("models/m/1/model.onnx", GRAPH), ("models/m/config.toml", b"a = 1")],
            "models/m/config.toml",
        ),
        (
            vec![
                ("models/m/1/model.onnx", &GRAPH[..3]),
                ("models/m/manifest.json", &whole),
            ],
            "models/m/1/model.onnx",
        ),
        (
            vec![
                ("models/m/1/model.onnx", OTHER_GRAPH),
                ("models/m/manifest.json", &whole),
            ],
            "sha256",
        ),
        (
            vec![("models/m/1/model.onnx", GRAPH), ("models/m/manifest.json", b"{")],
            "models/m/manifest.json",
        ),
        (
            vec![
                ("models/m/1/other", GRAPH),
                ("models/m/2/model.onnx", GRAPH),
                (
                    "models/m/config.toml",
                    b"version_policy = { specific = { versions = [1] } }",
                ),
            ],
            "models/m: missing 1/model.onnx",
        ),
        (
            vec![("models/m/1/model.onnx", GRAPH), ("models/m/manifest.json", &two_files)],
            "models/m/1/weights.bin: listed in the manifest, but missing",
        ),
    ] {
        let error = read_model(&files, "m").await.unwrap_err().to_string();
        assert!(error.contains(named), "{error}\n should name {named}");
    }
    let good: &[(&str, &[u8])] = &[("models/m/1/model.onnx", GRAPH), ("models/m/manifest.json", &whole)];
    assert_eq!(read_model(good, "m").await.unwrap().version, 1);
}

#[tokio::test]
async fn labels_are_read_by_output_and_what_is_wrong_with_them_names_file_and_key() {
    let config = b"[[outputs]]\nname = 'y'\ndatatype = 'FP32'\ndims = [2]\nlabels = 'names/y.txt'\n";
    let read = async |labels: Option<&[u8]>| {
        let mut files = vec![("models/m/1/model.onnx", GRAPH), ("models/m/config.toml", &config[..])];
        files.extend(labels.map(|labels| ("models/m/names/y.txt", labels)));
        read_model(&files, "m").await.map_err(|error| error.to_string())
    };
    let found = read(Some("\u{feff}cat\r\n\nsch\u{f6}n\n".as_bytes())).await.unwrap();
    assert_eq!(found.labels["y"], ["cat", "", "sch\u{f6}n"].map(Box::from));
    let missing = read(None).await.unwrap_err();
    assert!(
        missing.contains("models/m/names/y.txt: `labels` (`label_filename`) of output `y`"),
        "{missing}"
    );
    let no_text = read(Some(b"\xff")).await.unwrap_err();
    assert!(
        no_text.contains("models/m/names/y.txt") && no_text.contains("utf-8"),
        "{no_text}"
    );
    let many = read(Some(&vec![b'\n'; MAX_LABELS + 1])).await.unwrap_err();
    assert!(
        many.contains("models/m/names/y.txt: `labels` (`label_filename`) of output `y` exceeds 1048576 lines"),
        "{many}"
    );
}

#[tokio::test]
async fn weights_are_read_from_the_versions_folder_and_from_nowhere_else() {
    // One initializer whose weights lie in a file: graph, initializer, external_data, key and value.
    let refers_to = |file: &str| {
        let field = |tag: u8, inner: Vec<u8>| [vec![tag << 3 | 2, inner.len() as u8], inner].concat();
        let entry = [field(1, b"location".to_vec()), field(2, file.as_bytes().to_vec())].concat();
        field(7, field(5, field(13, entry)))
    };
    let inside = refers_to("w/a.bin");
    let beside: &[(&str, &[u8])] = &[("models/m/3/model.onnx", &inside), ("models/m/3/w/a.bin", b"weights")];
    let found = read_model(beside, "m").await.unwrap();
    let external = in_memory(&found);
    assert_eq!(
        (external[0].0.as_str(), &external[0].1[..]),
        ("w/a.bin", &b"weights"[..])
    );
    let elsewhere: &[(&str, &[u8])] = &[("models/m/3/model.onnx", &inside), ("models/m/w/a.bin", b"")];
    let missing = read_model(elsewhere, "m").await.unwrap_err().to_string();
    assert!(
        missing.contains("models/m/3/model.onnx") && missing.contains("w/a.bin"),
        "{missing}"
    );
    let outside = refers_to("../../n/a.bin");
    let error = read_model(&[("models/m/3/model.onnx", &outside), ("models/n/a.bin", b"")], "m").await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("outside the version's folder"), "{error}");
}

#[tokio::test]
async fn the_policy_chooses_and_marks_follow_the_files() {
    let files: &[(&str, &[u8])] = &[
        ("models/m/1/model.onnx", GRAPH),
        ("models/m/2/model.onnx", GRAPH),
        ("models/m/config.toml", b"version_policy = { all = {} }"),
    ];
    let tier = tier(files).await;
    let describe_now = async || {
        describe(&*tier, "m", &list(&*tier, None).await.unwrap()["m"], None)
            .await
            .unwrap()
    };
    let put = async |path: &str, bytes: &'static [u8]| {
        let path = ObjectPath::new(path).unwrap();
        tier.put(&path, Bytes::from_static(bytes).into()).await.unwrap();
    };
    let before = describe_now().await;
    assert_eq!(before.versions, BTreeSet::from([1, 2]));
    put("models/m/2/model.onnx", OTHER_GRAPH).await;
    let after = describe_now().await;
    assert_eq!(before.fingerprint(1), after.fingerprint(1));
    assert_ne!(before.fingerprint(2), after.fingerprint(2));
    put("models/m/config.toml", b"").await;
    let configured = describe_now().await;
    assert_eq!(configured.versions, BTreeSet::from([2]));
    assert_ne!(after.fingerprint(2), configured.fingerprint(2));
}

fn graph_with_weights_in(location: &str) -> Bytes {
    let tensor = TensorProto {
        name: "w".into(),
        external_data: vec![StringStringEntryProto {
            key: "location".into(),
            value: location.into(),
        }],
        ..TensorProto::default()
    };
    let model = ModelProto {
        graph: Some(GraphProto {
            initializer: vec![tensor],
            ..GraphProto::default()
        }),
        ..ModelProto::default()
    };
    model.encode_to_vec().into()
}

#[test]
fn paths_that_leave_the_folder_are_refused() {
    for bad in ["../1/model.onnx", "/etc/passwd", "a/../../b", "", "a\\b", "./../a"] {
        assert!(external(graph_with_weights_in(bad)).is_err(), "{bad}");
    }
    // ONNX Runtime's mark for addresses in memory is a path like any other: it is looked for, and missing.
    for path in ["w.bin", "./w.bin", "a/w.bin", "*/_ORT_MEM_ADDR_/*"] {
        assert!(
            external(graph_with_weights_in(path)).unwrap().files.contains_key(path),
            "{path}"
        );
    }
    assert!(external(Bytes::from_static(b"not a model")).is_err());
}

#[test]
fn an_input_of_unknown_rank_is_not_served_as_a_scalar() {
    let graph = |shape| {
        let tensor_type = Some(TensorType { elem_type: 1, shape });
        let input = ValueInfoProto {
            name: "x".into(),
            r#type: Some(TypeProto { tensor_type }),
        };
        let graph = GraphProto {
            input: vec![input],
            ..GraphProto::default()
        };
        let model = ModelProto {
            graph: Some(graph),
            ..ModelProto::default()
        };
        Bytes::from(model.encode_to_vec())
    };
    assert!(external(graph(Some(TensorShapeProto::default()))).is_ok());
    let refused = external(graph(None)).unwrap_err().to_string();
    assert!(refused.contains("`x` has no shape"), "{refused}");
}

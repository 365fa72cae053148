//! The files that hold a graph's large weights, as the graph names them.
//!
//! In: the bytes of a `model.onnx`. Out: the files beside it that it refers to, each a path that stays in the version's
//! folder, and the size of the largest tensor in them; or what is wrong with it, before any of them is read. Weights in the
//! graph are not copied.

use bytes::Bytes;
use prost::Message;
use std::collections::BTreeSet;
use tierlab_formats::onnx::inference_tensors;
use tierlab_formats::onnx::messages::{ModelProto, TensorProto};
use tierlab_storage::ObjectPath;

/// What a graph keeps in other files.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct External {
    /// The files, relative to the graph's own folder.
    pub(crate) files: BTreeSet<String>,
    /// Bytes of the largest tensor in them.
    pub(crate) largest_tensor: u64,
}

/// What a graph refers to.
///
/// # Errors
/// Bytes that are no ONNX model; a path that leaves the folder.
pub(crate) fn external(onnx: Bytes) -> Result<External, String> {
    let model = ModelProto::decode(onnx).map_err(|e| format!("no ONNX model, or not all of one: {e}"))?;
    if model.graph.is_none() {
        return Err("no ONNX model: it has no graph".to_owned());
    }
    let mut found = External::default();
    inference_tensors(&model)
        .into_iter()
        .try_for_each(|tensor| found.tensor(tensor))?;
    Ok(found)
}

/// Bytes of an element by its `TensorProto.DataType`; the most there are for one that came later. Half bytes count as one.
fn element_bytes(data_type: i32) -> u64 {
    match data_type {
        2 | 3 | 9 | 17..=25 => 1,
        4 | 5 | 10 | 16 => 2,
        1 | 6 | 12 => 4,
        7 | 11 | 13 | 14 => 8,
        _ => 16,
    }
}

/// Bytes of a tensor's elements: what its record says, or where that is less or missing, what its shape says.
fn tensor_bytes(tensor: &TensorProto) -> u64 {
    let length = tensor.external_data.iter().find(|entry| entry.key == "length");
    let length = length.and_then(|entry| entry.value.parse().ok()).unwrap_or(0);
    let dims = tensor.dims.iter().map(|&dim| u64::try_from(dim).unwrap_or(0));
    let by_shape = dims.fold(element_bytes(tensor.data_type), u64::saturating_mul);
    by_shape.max(length)
}

impl External {
    fn tensor(&mut self, tensor: &TensorProto) -> Result<(), String> {
        for entry in tensor.external_data.iter().filter(|entry| entry.key == "location") {
            if ObjectPath::new(&entry.value).is_err() {
                return Err(format!(
                    "the weights of `{}` lie in {:?}, which is no path inside the version's folder",
                    tensor.name, entry.value
                ));
            }
            self.files.insert(entry.value.clone());
            self.largest_tensor = self.largest_tensor.max(tensor_bytes(tensor));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierlab_formats::onnx::messages::{AttributeProto, GraphProto, NodeProto, StringStringEntryProto};

    fn tensor(location: &str) -> TensorProto {
        let entry = |key: &str, value: &str| StringStringEntryProto {
            key: key.into(),
            value: value.into(),
        };
        TensorProto {
            name: "w".into(),
            external_data: vec![entry("offset", "../0"), entry("location", location)],
            ..TensorProto::default()
        }
    }

    fn model(graph: GraphProto) -> Bytes {
        let model = ModelProto {
            ir_version: 8,
            graph: Some(graph),
            ..ModelProto::default()
        };
        model.encode_to_vec().into()
    }

    #[test]
    fn files_are_found_at_every_depth() {
        let inner = GraphProto {
            initializer: vec![tensor("inner/b.bin")],
            ..GraphProto::default()
        };
        let attribute = AttributeProto {
            t: Some(tensor("c.bin")),
            graphs: vec![inner],
            ..AttributeProto::default()
        };
        let graph = GraphProto {
            initializer: vec![tensor("a.bin"), tensor("a.bin"), TensorProto::default()],
            node: vec![NodeProto {
                attribute: vec![attribute],
                ..NodeProto::default()
            }],
            ..GraphProto::default()
        };
        let found: Vec<String> = external(model(graph)).unwrap().files.into_iter().collect();
        assert_eq!(found, ["a.bin", "c.bin", "inner/b.bin"]);
    }

    #[test]
    fn paths_that_leave_the_folder_are_refused() {
        for bad in [
            "../1/model.onnx",
            "/etc/passwd",
            "a/../../b",
            "",
            "a\\b",
            "./a",
            "*/_ORT_MEM_ADDR_/*",
        ] {
            let graph = GraphProto {
                initializer: vec![tensor(bad)],
                ..GraphProto::default()
            };
            let found = external(model(graph));
            // ONNX Runtime's mark for addresses in memory is a path like any other: it is looked for, and missing.
            assert!(found.is_err() || bad.starts_with('*'), "{bad}");
        }
        assert!(external(Bytes::new()).is_err());
        assert!(external(Bytes::from_static(b"not a model")).is_err());
    }

    #[test]
    fn the_largest_tensor_is_told_by_its_record_or_its_shape() {
        let largest = |tensors: Vec<TensorProto>| {
            let graph = GraphProto {
                initializer: tensors,
                ..GraphProto::default()
            };
            external(model(graph)).unwrap().largest_tensor
        };
        let of = |data_type: i32, dims: &[i64], length: Option<&str>| {
            let mut of = tensor("w.bin");
            (of.data_type, of.dims) = (data_type, dims.to_vec());
            of.external_data.extend(length.map(|length| StringStringEntryProto {
                key: "length".into(),
                value: length.into(),
            }));
            of
        };
        let (float, int8) = (1, 3);
        assert_eq!(largest(vec![of(float, &[3, 5], None)]), 60);
        assert_eq!(
            largest(vec![of(float, &[3, 5], None), of(int8, &[7, 11], Some("77"))]),
            77
        );
        assert_eq!(largest(vec![of(int8, &[2], Some("5000000000"))]), 5_000_000_000);
        assert_eq!(largest(vec![of(float, &[i64::MAX, i64::MAX], Some("none"))]), u64::MAX);
        // Only what lies in files counts.
        let inside = TensorProto {
            external_data: vec![],
            ..of(float, &[1 << 40], None)
        };
        assert_eq!(largest(vec![inside]), 0);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = external(bytes.into());
        }
    }
}

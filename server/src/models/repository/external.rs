//! The files that hold a graph's large weights, as the graph names them.
//!
//! In: the bytes of a `model.onnx`. Out: the files beside it that it refers to, each a path that stays in the version's
//! folder, and the size of the largest tensor in them; or what is wrong with it, before any of them is read. Messages and
//! field numbers: <https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3>.
//! Only what can lead to a tensor is declared; everything else, weights in the graph included, is passed over.

use prost::Message;
use std::collections::BTreeSet;
use tierlab_storage::ObjectPath;

#[derive(Clone, PartialEq, Message)]
struct ModelProto {
    #[prost(int64, tag = "1")]
    ir_version: i64,
    #[prost(message, optional, tag = "7")]
    graph: Option<GraphProto>,
    #[prost(message, repeated, tag = "25")]
    functions: Vec<FunctionProto>,
}

#[derive(Clone, PartialEq, Message)]
struct FunctionProto {
    #[prost(message, repeated, tag = "7")]
    node: Vec<NodeProto>,
}

#[derive(Clone, PartialEq, Message)]
struct GraphProto {
    #[prost(message, repeated, tag = "1")]
    node: Vec<NodeProto>,
    #[prost(message, repeated, tag = "5")]
    initializer: Vec<TensorProto>,
    #[prost(message, repeated, tag = "15")]
    sparse_initializer: Vec<SparseTensorProto>,
}

#[derive(Clone, PartialEq, Message)]
struct NodeProto {
    #[prost(message, repeated, tag = "5")]
    attribute: Vec<AttributeProto>,
}

#[derive(Clone, PartialEq, Message)]
struct AttributeProto {
    #[prost(message, optional, tag = "5")]
    t: Option<TensorProto>,
    #[prost(message, optional, tag = "6")]
    g: Option<GraphProto>,
    #[prost(message, repeated, tag = "10")]
    tensors: Vec<TensorProto>,
    #[prost(message, repeated, tag = "11")]
    graphs: Vec<GraphProto>,
    #[prost(message, optional, tag = "22")]
    sparse_tensor: Option<SparseTensorProto>,
    #[prost(message, repeated, tag = "23")]
    sparse_tensors: Vec<SparseTensorProto>,
}

#[derive(Clone, PartialEq, Message)]
struct SparseTensorProto {
    #[prost(message, optional, tag = "1")]
    values: Option<TensorProto>,
    #[prost(message, optional, tag = "2")]
    indices: Option<TensorProto>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorProto {
    #[prost(int64, repeated, tag = "1")]
    dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    data_type: i32,
    #[prost(string, tag = "8")]
    name: String,
    #[prost(message, repeated, tag = "13")]
    external_data: Vec<StringStringEntryProto>,
}

#[derive(Clone, PartialEq, Message)]
struct StringStringEntryProto {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

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
pub(crate) fn external(onnx: &[u8]) -> Result<External, String> {
    let model = ModelProto::decode(onnx).map_err(|e| format!("no ONNX model, or not all of one: {e}"))?;
    let graph = model.graph.ok_or("no ONNX model: it has no graph")?;
    let mut found = External::default();
    found.graph(&graph)?;
    for function in &model.functions {
        found.nodes(&function.node)?;
    }
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

impl TensorProto {
    /// Bytes of its elements: what its record says, or where that is less or missing, what its shape says.
    fn bytes(&self) -> u64 {
        let length = self.external_data.iter().find(|entry| entry.key == "length");
        let length = length.and_then(|entry| entry.value.parse().ok()).unwrap_or(0);
        let dims = self.dims.iter().map(|&dim| u64::try_from(dim).unwrap_or(0));
        let by_shape = dims.fold(element_bytes(self.data_type), u64::saturating_mul);
        by_shape.max(length)
    }
}

impl External {
    fn graph(&mut self, graph: &GraphProto) -> Result<(), String> {
        graph.initializer.iter().try_for_each(|tensor| self.tensor(tensor))?;
        graph
            .sparse_initializer
            .iter()
            .try_for_each(|tensor| self.sparse(tensor))?;
        self.nodes(&graph.node)
    }

    fn nodes(&mut self, nodes: &[NodeProto]) -> Result<(), String> {
        for attribute in nodes.iter().flat_map(|node| &node.attribute) {
            let tensors = attribute.t.iter().chain(&attribute.tensors);
            tensors.into_iter().try_for_each(|tensor| self.tensor(tensor))?;
            let sparse = attribute.sparse_tensor.iter().chain(&attribute.sparse_tensors);
            sparse.into_iter().try_for_each(|tensor| self.sparse(tensor))?;
            let graphs = attribute.g.iter().chain(&attribute.graphs);
            graphs.into_iter().try_for_each(|graph| self.graph(graph))?;
        }
        Ok(())
    }

    fn sparse(&mut self, sparse: &SparseTensorProto) -> Result<(), String> {
        let mut tensors = sparse.values.iter().chain(&sparse.indices);
        tensors.try_for_each(|tensor| self.tensor(tensor))
    }

    fn tensor(&mut self, tensor: &TensorProto) -> Result<(), String> {
        for entry in tensor.external_data.iter().filter(|entry| entry.key == "location") {
            if ObjectPath::new(&entry.value).is_err() {
                return Err(format!(
                    "the weights of `{}` lie in {:?}, which is no path inside the version's folder",
                    tensor.name, entry.value
                ));
            }
            self.files.insert(entry.value.clone());
            self.largest_tensor = self.largest_tensor.max(tensor.bytes());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    fn model(graph: GraphProto) -> Vec<u8> {
        ModelProto {
            ir_version: 8,
            graph: Some(graph),
            functions: vec![],
        }
        .encode_to_vec()
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
            }],
            ..GraphProto::default()
        };
        let found: Vec<String> = external(&model(graph)).unwrap().files.into_iter().collect();
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
            let found = external(&model(graph));
            // ONNX Runtime's mark for addresses in memory is a path like any other: it is looked for, and missing.
            assert!(found.is_err() || bad.starts_with('*'), "{bad}");
        }
        assert!(external(b"").is_err());
        assert!(external(b"not a model").is_err());
    }

    #[test]
    fn the_largest_tensor_is_told_by_its_record_or_its_shape() {
        let largest = |tensors: Vec<TensorProto>| {
            let graph = GraphProto {
                initializer: tensors,
                ..GraphProto::default()
            };
            external(&model(graph)).unwrap().largest_tensor
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
            let _ = external(&bytes);
        }
    }
}

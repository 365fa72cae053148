//! The files that hold a graph's large weights, as the graph names them.
//!
//! In: the bytes of a `model.onnx`. Out: the files beside it that it refers to, each a path that stays in the version's
//! folder; or what is wrong with it, before any of them is read. Messages and field numbers: <https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3>.
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

/// Bytes of one tensor at most: ONNX Runtime makes a protobuf message of each that it takes from memory.
const MAX_TENSOR_BYTES: u64 = i32::MAX as u64;

/// The files that a graph refers to, relative to its own folder. Together they may be of any size.
///
/// # Errors
/// Bytes that are no ONNX model; a path that leaves the folder; a tensor of more than [`MAX_TENSOR_BYTES`].
pub(crate) fn files(onnx: &[u8]) -> Result<BTreeSet<String>, String> {
    let model = ModelProto::decode(onnx).map_err(|e| format!("no ONNX model: {e}"))?;
    let graph = model.graph.ok_or("no ONNX model: it has no graph")?;
    let mut found = Search(BTreeSet::new());
    found.graph(&graph)?;
    for function in &model.functions {
        found.nodes(&function.node)?;
    }
    Ok(found.0)
}

struct Search(BTreeSet<String>);

impl Search {
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
            self.0.insert(entry.value.clone());
        }
        let length = tensor.external_data.iter().find(|entry| entry.key == "length");
        match length.and_then(|entry| entry.value.parse::<u64>().ok()) {
            Some(bytes) if bytes > MAX_TENSOR_BYTES => Err(format!(
                "the weights of `{}` have {bytes} bytes, and ONNX Runtime takes one tensor of at most {MAX_TENSOR_BYTES} \
                 from memory: split it in the graph",
                tensor.name
            )),
            _ => Ok(()),
        }
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
        let found: Vec<String> = files(&model(graph)).unwrap().into_iter().collect();
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
            let found = files(&model(graph));
            // ONNX Runtime's mark for addresses in memory is a path like any other: it is looked for, and missing.
            assert!(found.is_err() || bad.starts_with('*'), "{bad}");
        }
        assert!(files(b"").is_err());
        assert!(files(b"not a model").is_err());
    }

    #[test]
    fn a_tensor_that_is_too_large_is_refused_and_many_large_ones_are_not() {
        let of = |bytes: u64| {
            let mut large = tensor("w.bin");
            large.external_data.push(StringStringEntryProto {
                key: "length".into(),
                value: bytes.to_string(),
            });
            large
        };
        let graph = |tensors: Vec<TensorProto>| GraphProto {
            initializer: tensors,
            ..GraphProto::default()
        };
        let most = MAX_TENSOR_BYTES;
        assert_eq!(
            files(&model(graph(vec![of(most), of(most), of(most)]))).unwrap().len(),
            1
        );
        let error = files(&model(graph(vec![of(most + 1)]))).unwrap_err();
        assert!(error.contains("`w`") && error.contains("2147483648"), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = files(&bytes);
        }
    }
}

//! Every tensor of a model: weights and constants, in the graph, in subgraphs and in functions.

use super::messages::{AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto};

/// The tensors that inference can use: those of the graph and of the functions that it calls.
#[must_use]
pub fn inference_tensors(model: &ModelProto) -> Vec<&TensorProto> {
    let mut found = Vec::new();
    model.graph.iter().for_each(|graph| in_graph(graph, &mut found));
    for function in &model.functions {
        in_nodes(&function.node, &mut found);
        in_attributes(&function.attribute_proto, &mut found);
    }
    found
}

/// Every tensor: those of [`inference_tensors`], and those of the graphs for training.
#[must_use]
pub fn all_tensors(model: &ModelProto) -> Vec<&TensorProto> {
    let mut found = inference_tensors(model);
    for training in &model.training_info {
        let graphs = training.initialization.iter().chain(&training.algorithm);
        graphs.for_each(|graph| in_graph(graph, &mut found));
    }
    found
}

// Messages nest no deeper than prost reads them, so recursion is bounded.
fn in_graph<'a>(graph: &'a GraphProto, found: &mut Vec<&'a TensorProto>) {
    found.extend(&graph.initializer);
    in_sparse(&graph.sparse_initializer, found);
    in_nodes(&graph.node, found);
}

fn in_nodes<'a>(nodes: &'a [NodeProto], found: &mut Vec<&'a TensorProto>) {
    nodes.iter().for_each(|node| in_attributes(&node.attribute, found));
}

fn in_attributes<'a>(attributes: &'a [AttributeProto], found: &mut Vec<&'a TensorProto>) {
    for attribute in attributes {
        found.extend(attribute.t.iter().chain(&attribute.tensors));
        in_sparse(attribute.sparse_tensor.iter().chain(&attribute.sparse_tensors), found);
        let graphs = attribute.g.iter().chain(&attribute.graphs);
        graphs.for_each(|graph| in_graph(graph, found));
    }
}

fn in_sparse<'a>(sparse: impl IntoIterator<Item = &'a SparseTensorProto>, found: &mut Vec<&'a TensorProto>) {
    for tensor in sparse {
        found.extend(tensor.values.iter().chain(&tensor.indices));
    }
}

#[cfg(test)]
mod tests {
    use super::super::messages::{FunctionProto, TrainingInfoProto};
    use super::*;

    fn tensor(name: &str) -> TensorProto {
        TensorProto {
            name: name.to_owned(),
            ..TensorProto::default()
        }
    }

    fn sparse(name: &str) -> SparseTensorProto {
        SparseTensorProto {
            values: Some(tensor(name)),
            indices: Some(tensor(&format!("{name}.indices"))),
            dims: vec![],
        }
    }

    fn node(attribute: AttributeProto) -> NodeProto {
        NodeProto {
            attribute: vec![attribute],
            ..NodeProto::default()
        }
    }

    fn graph(name: &str) -> GraphProto {
        GraphProto {
            initializer: vec![tensor(name)],
            ..GraphProto::default()
        }
    }

    fn names(found: &[&TensorProto]) -> Vec<String> {
        let mut names: Vec<String> = found.iter().map(|tensor| tensor.name.clone()).collect();
        names.sort();
        names
    }

    #[test]
    fn tensors_are_found_wherever_one_can_stand() {
        let attribute = AttributeProto {
            t: Some(tensor("t")),
            tensors: vec![tensor("tensors")],
            g: Some(graph("g")),
            graphs: vec![GraphProto {
                node: vec![node(AttributeProto {
                    g: Some(graph("deep")),
                    ..AttributeProto::default()
                })],
                ..GraphProto::default()
            }],
            sparse_tensor: Some(sparse("sparse")),
            sparse_tensors: vec![sparse("sparses")],
            ..AttributeProto::default()
        };
        let default = AttributeProto {
            t: Some(tensor("default")),
            ..AttributeProto::default()
        };
        let model = ModelProto {
            graph: Some(GraphProto {
                node: vec![node(attribute)],
                initializer: vec![tensor("initializer")],
                sparse_initializer: vec![sparse("sparse_initializer")],
                ..GraphProto::default()
            }),
            functions: vec![FunctionProto {
                node: vec![node(AttributeProto {
                    t: Some(tensor("function")),
                    ..AttributeProto::default()
                })],
                attribute_proto: vec![default],
                ..FunctionProto::default()
            }],
            training_info: vec![TrainingInfoProto {
                initialization: Some(graph("initialization")),
                algorithm: Some(graph("algorithm")),
            }],
            ..ModelProto::default()
        };
        let inference = [
            "deep",
            "default",
            "function",
            "g",
            "initializer",
            "sparse",
            "sparse.indices",
            "sparse_initializer",
            "sparse_initializer.indices",
            "sparses",
            "sparses.indices",
            "t",
            "tensors",
        ];
        assert_eq!(names(&inference_tensors(&model)), inference);
        let mut all: Vec<&str> = inference.to_vec();
        all.extend(["algorithm", "initialization"]);
        all.sort_unstable();
        assert_eq!(names(&all_tensors(&model)), all);
    }
}

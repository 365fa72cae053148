//! Graphs against configs and manifests that fit them, and that do not.

use super::*;
use crate::model::JoinedInput;
use std::collections::BTreeMap;

fn spec(name: &str, shape: &[i64]) -> TensorSpec {
    TensorSpec {
        name: name.into(),
        dtype: DataType::Fp32,
        shape: shape.to_vec(),
    }
}

fn signature(inputs: Vec<TensorSpec>, outputs: Vec<TensorSpec>, batched: bool) -> Signature {
    Signature {
        inputs,
        outputs,
        batched,
    }
}

fn declared(dims: &[i64], reshape: Option<&[i64]>) -> DeclaredTensor {
    DeclaredTensor {
        name: "x".into(),
        datatype: DataType::Fp32,
        dims: dims.to_vec(),
        reshape: reshape.map(<[i64]>::to_vec),
        labels: None,
    }
}

fn manifest(output: TensorSpec) -> Manifest {
    Manifest {
        schema_version: Manifest::SCHEMA_VERSION,
        name: "m".into(),
        generator: "test".into(),
        seed: None,
        inputs: vec![spec("x", &[-1, 4])],
        outputs: vec![output],
        files: vec![],
    }
}

/// Served shape of `x` [-1, 3, -1].
fn narrowed(tensor: DeclaredTensor, batched: bool) -> Result<Vec<i64>> {
    let mut signature = signature(vec![spec("x", &[-1, 3, -1])], vec![], batched);
    let config = ModelConfig {
        inputs: vec![tensor],
        ..ModelConfig::default()
    };
    signature.declare(&config)?;
    Ok(signature.inputs.remove(0).shape)
}

#[test]
fn free_dimensions_are_narrowed_and_others_must_be_the_same() {
    let narrow = |dims: &[i64], batched| narrowed(declared(dims, None), batched);
    assert_eq!(narrow(&[3, 16], true).unwrap(), [-1, 3, 16]);
    assert_eq!(narrow(&[3, -1], true).unwrap(), [-1, 3, -1]);
    assert_eq!(narrow(&[8, 3, 16], false).unwrap(), [8, 3, 16]);
    for (dims, batched, expected) in [
        (&[4, 16][..], true, "[4, 16]"),
        (&[3], true, "after the batch dimension [3, -1]"),
        (&[-1, 3, 16, 1], false, "the graph has [-1, 3, -1]"),
        (&[-1, 16], true, "[-1, 16]"),
    ] {
        let error = narrow(dims, batched).unwrap_err().to_string();
        assert!(error.contains("`x`") && error.contains(expected), "{error}");
    }
    let mut double = declared(&[3, 16], None);
    double.datatype = DataType::Fp64;
    assert!(narrowed(double, true).unwrap_err().to_string().contains("FP64"));
}

#[test]
fn what_a_runtime_infers_fits_what_a_file_leaves_free_and_nothing_else() {
    let graph = |output: &[i64]| signature(vec![spec("x", &[-1, 4])], vec![spec("y", output)], false);
    let listed = manifest(spec("y", &[1, -1, 128]));
    for found in [&[1, 1, 128][..], &[1, -1, 128], &[-1, -1, -1]] {
        graph(found).check_manifest(&listed).unwrap();
    }
    for found in [&[1, 1, 64][..], &[1, 128], &[2, 1, 128]] {
        let error = graph(found).check_manifest(&listed).unwrap_err().to_string();
        let expected = format!("output `y` is FP32 [1, -1, 128] in the manifest and FP32 {found:?} in the graph");
        assert!(error.contains(&expected), "{error}\n  should say {expected}");
    }
    let other = graph(&[1]).check_manifest(&manifest(spec("z", &[1])));
    let other = other.unwrap_err().to_string();
    assert!(
        other.contains("output `z`, FP32 [1], is in the manifest and not in the graph"),
        "{other}"
    );
    let mut more = graph(&[1]);
    more.outputs.push(spec("state", &[2, 3]));
    let error = more.check_manifest(&manifest(spec("y", &[1]))).unwrap_err().to_string();
    assert!(
        error.contains("output `state`, FP32 [2, 3], is in the graph"),
        "{error}"
    );
}

#[test]
fn an_output_may_be_free_in_the_config_and_fixed_in_the_graph() {
    let mut graph = signature(vec![spec("i", &[-1])], vec![spec("x", &[1, 1, 128])], false);
    let config = ModelConfig {
        outputs: vec![declared(&[1, -1, 128], None)],
        ..ModelConfig::default()
    };
    graph.declare(&config).unwrap();
    assert_eq!(graph.outputs[0].shape, [1, 1, 128]);
}

#[test]
fn reshaped_tensors_are_served_as_clients_see_them() {
    let config = ModelConfig {
        inputs: vec![declared(&[1], Some(&[]))],
        ..ModelConfig::default()
    };
    for (shape, batched, seen, sent, in_graph) in [
        (&[][..], false, &[1][..], &[1][..], &[][..]),
        (&[-1], true, &[-1, 1], &[7, 1], &[7]),
    ] {
        let mut signature = signature(vec![spec("x", shape)], vec![spec("y", &[-1])], batched);
        let reshapes = signature.declare(&config).unwrap();
        assert_eq!(signature.inputs[0].shape, seen);
        assert_eq!(reshapes.inputs[0].as_ref().unwrap().apply(sent).unwrap(), in_graph);
        assert_eq!(reshapes.outputs, [None]);
    }
    let mut other = signature(vec![spec("x", &[2])], vec![], false);
    let error = other.declare(&config).unwrap_err().to_string();
    assert!(error.contains("[] after `reshape`, the graph has [2]"), "{error}");
    let outputs = ModelConfig {
        outputs: vec![declared(&[4], Some(&[2, 2]))],
        ..ModelConfig::default()
    };
    let mut signature = signature(vec![], vec![spec("x", &[-1, 2, 2])], true);
    let reshapes = signature.declare(&outputs).unwrap();
    assert_eq!(signature.outputs[0].shape, [-1, 4]);
    assert_eq!(reshapes.outputs[0].as_ref().unwrap().apply(&[3, 2, 2]).unwrap(), [3, 4]);
}

#[test]
fn joined_inputs_are_those_of_the_graph() {
    let joined = |table: &str| JoinedInput {
        table: table.into(),
        column: None,
    };
    let config = |inputs: &[(&str, &str)]| ModelConfig {
        joined: inputs
            .iter()
            .map(|(name, table)| ((*name).to_owned(), joined(table)))
            .collect::<BTreeMap<_, _>>(),
        ..ModelConfig::default()
    };
    let graph = signature(
        vec![spec("b", &[-1, 2]), spec("a", &[-1]), spec("s", &[])],
        vec![],
        false,
    );
    let columns = graph.joined(&config(&[("a", "t"), ("b", "t")])).unwrap();
    assert_eq!(
        columns.iter().map(|column| column.column.as_str()).collect::<Vec<_>>(),
        ["b", "a"]
    );
    for (inputs, expected) in [
        (&[("c", "t")][..], "`joined.c`: the graph has no such input"),
        (&[("a", "t"), ("b", "u")], "`t` and `u`"),
        (&[("s", "t")], "`joined.s`: the input has no dimension"),
    ] {
        let error = graph.joined(&config(inputs)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn what_the_protocol_cannot_carry_is_named() {
    let tensor = |name: &str, dtype| SessionTensor {
        name: name.into(),
        dtype,
        type_name: "Sequence".into(),
        shape: vec![-1],
        symbols: vec!["n".into()],
    };
    let good = [tensor("x", Some(DataType::Fp32))];
    assert!(Signature::of_session(&good, &good, 4).unwrap().batched);
    let error = Signature::of_session(&good, &[tensor("y", None)], 0);
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("`y` is Sequence") && error.contains("a tensor of another type"),
        "{error}"
    );
    let mut fixed = tensor("y", Some(DataType::Fp32));
    fixed.shape = vec![3];
    let error = Signature::of_session(&good, &[fixed], 4).unwrap_err().to_string();
    assert!(
        error.contains("`max_batch_size` = 4") && error.contains("fixed at 3"),
        "{error}"
    );
}

/// First dimension of a session's tensor.
#[derive(Debug, Clone, Copy)]
enum FirstDim {
    None,
    Fixed(i64),
    Free(&'static str),
}

fn session_tensor(name: &str, first: FirstDim) -> SessionTensor {
    let (shape, symbols) = match first {
        FirstDim::None => (vec![], vec![]),
        FirstDim::Fixed(size) => (vec![size], vec![String::new()]),
        FirstDim::Free(symbol) => (vec![-1], vec![symbol.to_owned()]),
    };
    SessionTensor {
        name: name.into(),
        dtype: Some(DataType::Fp32),
        type_name: "tensor(float)".into(),
        shape,
        symbols,
    }
}

#[test]
fn names_that_differ_are_no_batch_axis_and_unknown_ones_say_nothing() {
    use FirstDim::{Fixed, Free};
    let refused = |inputs: &[FirstDim], output: FirstDim| {
        let inputs = ["a", "b", "c"].into_iter().zip(inputs);
        let inputs: Vec<_> = inputs.map(|(name, first)| session_tensor(name, *first)).collect();
        let checked = check_batch_axis(&inputs, &[session_tensor("y", output)]);
        checked.err().map_or_else(String::new, |error| error.to_string())
    };
    for (inputs, output) in [
        (&[Free("N"), Free("N")][..], Free("N")),
        (&[Free(""), Free("N")], Free("")),
        (&[Free("unk__7")], Free("unk__9")),
        (&[Free("")], Free("batch")),
    ] {
        assert_eq!(refused(inputs, output), "", "{inputs:?} {output:?}");
    }
    for (inputs, output, expected) in [
        (
            &[Free("N"), Free("M")][..],
            Free("N"),
            "input `b` is `M`, that of input `a` is `N`",
        ),
        (
            &[Free("N"), Free("")],
            Free("K"),
            "output `y` is `K`, that of input `a` is `N`",
        ),
        (&[Free("N"), Fixed(3)], Free("N"), "input `b` is fixed at 3"),
        (&[Free("N")], Fixed(1), "output `y` is fixed at 1"),
        (&[Free("N")], FirstDim::None, "output `y` has no first dimension"),
    ] {
        let error = refused(inputs, output);
        assert!(error.contains(expected), "{error} should say {expected}");
    }
}

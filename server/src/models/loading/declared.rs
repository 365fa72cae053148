//! What a model's config declares of its tensors, against its graph.
//!
//! In: the config, and the graph's signature. Out: the signature with free dimensions narrowed to those declared, or the
//! first tensor that does not fit. The data that a request sends is then held against the narrowed one.

use crate::inference::session::signature::Signature;
use tierlab_formats::model::{DeclaredTensor, ModelConfig};
use tierlab_protocol::tensor::TensorSpec;

/// Matches declared tensors with the graph's.
///
/// # Errors
/// A tensor that the graph does not have, of another type, or of other dimensions, by name.
pub(super) fn narrow(config: &ModelConfig, signature: &mut Signature) -> Result<(), String> {
    let batched = signature.batched;
    for (what, declared, specs) in [
        ("input", &config.inputs, &mut signature.inputs),
        ("output", &config.outputs, &mut signature.outputs),
    ] {
        for tensor in declared {
            let name = &tensor.name;
            let Some(spec) = specs.iter_mut().find(|spec| spec.name == *name) else {
                let have: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
                return Err(format!(
                    "the config declares {what} `{name}`, the graph has {}",
                    have.join(", ")
                ));
            };
            narrow_one(tensor, spec, batched).map_err(|e| format!("{what} `{name}`: {e}"))?;
        }
    }
    Ok(())
}

fn narrow_one(declared: &DeclaredTensor, spec: &mut TensorSpec, batched: bool) -> Result<(), String> {
    if declared.datatype != spec.dtype {
        return Err(format!(
            "the config declares {}, the graph has {}",
            declared.datatype, spec.dtype
        ));
    }
    let behind_batch = spec.shape.get_mut(usize::from(batched)..).unwrap_or_default();
    let fits = declared.dims.len() == behind_batch.len()
        && declared
            .dims
            .iter()
            .zip(&*behind_batch)
            .all(|(&declared, &have)| have < 0 || declared == have);
    if !fits {
        let batch = if batched { "behind the batch dimension " } else { "" };
        return Err(format!(
            "the config declares dimensions {:?}, the graph has {batch}{behind_batch:?}",
            declared.dims
        ));
    }
    behind_batch.copy_from_slice(&declared.dims);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierlab_protocol::tensor::DataType;

    fn narrowed(dims: &[i64], datatype: DataType, batched: bool) -> Result<Vec<i64>, String> {
        let mut signature = Signature {
            inputs: vec![TensorSpec {
                name: "x".into(),
                dtype: DataType::Fp32,
                shape: vec![-1, 3, -1],
            }],
            outputs: vec![],
            batched,
        };
        let config = ModelConfig {
            inputs: vec![DeclaredTensor {
                name: "x".into(),
                datatype,
                dims: dims.to_vec(),
            }],
            ..ModelConfig::default()
        };
        narrow(&config, &mut signature)?;
        Ok(signature.inputs.remove(0).shape)
    }

    #[test]
    fn free_dimensions_are_narrowed_and_others_must_be_the_same() {
        assert_eq!(narrowed(&[3, 16], DataType::Fp32, true).unwrap(), [-1, 3, 16]);
        assert_eq!(narrowed(&[3, -1], DataType::Fp32, true).unwrap(), [-1, 3, -1]);
        assert_eq!(narrowed(&[8, 3, 16], DataType::Fp32, false).unwrap(), [8, 3, 16]);
        for (dims, datatype, batched, told) in [
            (&[4, 16][..], DataType::Fp32, true, "[4, 16]"),
            (&[3], DataType::Fp32, true, "behind the batch dimension [3, -1]"),
            (&[-1, 3, 16, 1], DataType::Fp32, false, "the graph has [-1, 3, -1]"),
            (&[-1, 16], DataType::Fp32, true, "[-1, 16]"),
            (&[3, 16], DataType::Fp64, true, "FP64"),
        ] {
            let error = narrowed(dims, datatype, batched).unwrap_err();
            assert!(error.contains("`x`") && error.contains(told), "{error}");
        }
    }
}

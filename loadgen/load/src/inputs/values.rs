//! Expected output values from validation data. In: recorded tensors and the model's outputs. Out: values in the outputs'
//! types.

use super::recorded::{RecordedTensor, elements};
use crate::reply::OutputValues;
use std::sync::Arc;
use tierlab_protocol::tensor::TensorSpec;

pub(super) fn typed_expectations(
    expected: &[RecordedTensor],
    outputs: &[TensorSpec],
) -> Result<Arc<[OutputValues]>, String> {
    let mut all = Vec::with_capacity(expected.len());
    for tensor in expected {
        let spec = outputs.iter().find(|spec| spec.name == tensor.name).ok_or_else(|| {
            let known: Vec<_> = outputs.iter().map(|spec| spec.name.as_str()).collect();
            format!(
                "`{}` is no output of the model; those are {}",
                tensor.name,
                known.join(", ")
            )
        })?;
        let (data, _) = tensor
            .elements(spec.dtype)
            .map_err(|what| format!("expected output `{}`: {what}", tensor.name))?;
        if elements(spec.dtype, &data).is_none() {
            return Err(format!(
                "expected output `{}`: its bytes are no whole elements",
                tensor.name
            ));
        }
        all.push(OutputValues {
            name: spec.name.clone(),
            dtype: spec.dtype,
            data,
        });
    }
    Ok(all.into())
}

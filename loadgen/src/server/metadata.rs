//! Model metadata of any server. In: the JSON of `GET /v2/models/M`. Out: the model's metadata, with nothing in place of
//! missing parts, or the fault.

use anyhow::{Context as _, Result, anyhow, ensure};
use serde::Deserialize;
use tierlab_protocol::metadata::{JoinedMetadata, ModelMetadata};
use tierlab_protocol::tensor::TensorSpec;

/// Metadata as received: servers leave fields out, send null, or add their own.
#[derive(Deserialize)]
struct RawMetadata {
    name: String,
    versions: Option<Vec<String>>,
    platform: Option<String>,
    inputs: Option<Vec<RawTensorMetadata>>,
    outputs: Option<Vec<RawTensorMetadata>>,
    batched: Option<bool>,
    max_batch_size: Option<u32>,
    joined: Option<JoinedMetadata>,
}

#[derive(Deserialize)]
struct RawTensorMetadata {
    name: String,
    datatype: String,
    shape: Option<Vec<i64>>,
}

/// Reads the metadata of `model`.
///
/// # Errors
/// Bytes that are not metadata, or of another model; an invalid tensor.
pub fn read(model: &str, body: &[u8]) -> Result<ModelMetadata> {
    let raw: RawMetadata = serde_json::from_slice(body).map_err(|error| {
        let begin: String = String::from_utf8_lossy(body).chars().take(60).collect();
        anyhow!("invalid model metadata: {error}: {begin:?}; check that the Open Inference Protocol v2 is at this address, over HTTP")
    })?;
    ensure!(
        raw.name == model,
        "metadata of model `{}` instead of `{model}`",
        raw.name.chars().take(120).collect::<String>()
    );
    Ok(ModelMetadata {
        name: raw.name,
        versions: raw.versions.unwrap_or_default(),
        platform: raw.platform.unwrap_or_default(),
        inputs: tensors("input", raw.inputs)?,
        outputs: tensors("output", raw.outputs)?,
        batched: raw.batched,
        max_batch_size: raw.max_batch_size,
        joined: raw.joined,
    })
}

fn tensors(kind: &str, raw: Option<Vec<RawTensorMetadata>>) -> Result<Vec<TensorSpec>> {
    let tensor = |raw: RawTensorMetadata| {
        let RawTensorMetadata { name, datatype, shape } = raw;
        // Some servers pass on Triton's configurations, which write TYPE_FP32.
        let plain = datatype.strip_prefix("TYPE_").unwrap_or(&datatype);
        let plain = if plain == "STRING" { "BYTES" } else { plain };
        let dtype = plain
            .parse()
            .map_err(|_| anyhow!("{kind} `{name}`: unknown data type `{datatype}`"))?;
        let shape = shape.with_context(|| format!("{kind} `{name}`: shape is missing"))?;
        Ok(TensorSpec { name, dtype, shape })
    };
    raw.unwrap_or_default().into_iter().map(tensor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_servers_leave_out_is_nothing_and_what_is_wrong_is_named() {
        let triton = r#"{"name":"m","versions":["1"],"platform":"python","inputs":[{"name":"x","datatype":"FP32","shape":[-1,64]}],"outputs":[]}"#;
        assert_eq!(read("m", triton.as_bytes()).unwrap().inputs[0].shape, [-1, 64]);
        let mlserver = r#"{"name":"m","versions":[],"platform":"","inputs":[{"name":"x","datatype":"BYTES","shape":[-1],"parameters":{"content_type":"str"}}],"parameters":{}}"#;
        assert_eq!(read("m", mlserver.as_bytes()).unwrap().outputs, []);
        let kserve = r#"{"name":"m","versions":null,"platform":"","inputs":[],"outputs":null}"#;
        assert_eq!(read("m", kserve.as_bytes()).unwrap().inputs, []);
        for (body, says) in [
            (r#"{"name":"other"}"#, "of model `other`"),
            (r#"{"error":"no"}"#, "invalid model metadata"),
            ("", "check that the Open Inference Protocol v2 is at this address"),
            ("<html>\n", r#"column 1: "<html>\n"; check"#),
            (
                r#"{"name":"m","inputs":[{"name":"x","datatype":"FLOAT","shape":[1]}]}"#,
                "input `x`: unknown data type `FLOAT`",
            ),
            (
                r#"{"name":"m","inputs":[{"name":"x","datatype":"FP32"}]}"#,
                "shape is missing",
            ),
        ] {
            let error = read("m", body.as_bytes()).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_body_is_read_or_refused(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read("m", &body);
        }
    }
}

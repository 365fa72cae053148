//! The bodies of a step's requests, made before it starts so that nothing is encoded while the clock runs.
//!
//! In: what the model wants and which entities are asked for. Out: ready bodies. Knows no HTTP client.

use crate::wire::Encoding;
use bytes::Bytes;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tierlab_protocol::grpc::client::framed;
use tierlab_protocol::grpc::messages::ModelInferRequest;
use tierlab_protocol::infer::{InferRequest, Tensor};
use tierlab_protocol::metadata::ENTITY_ID;
use tierlab_protocol::tensor::{DataType, TensorSpec};

/// Bytes of the distinct bodies of a step with inline tensors, at most; they are sent in turn.
const INLINE_BYTES: usize = 64 << 20;
/// Distinct bodies of a step with inline tensors, at most.
const INLINE_BODIES: usize = 64;

/// One input of one request, at most: its shape is what a server says.
const INPUT_BYTES: usize = 256 << 20;

/// What a request is encoded as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form<'a> {
    /// A body over HTTP.
    Http(Encoding),
    /// A framed message over gRPC, which names its model.
    Grpc(&'a str),
}

impl From<Encoding> for Form<'_> {
    fn from(encoding: Encoding) -> Self {
        Self::Http(encoding)
    }
}

/// One request's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    /// What is sent.
    pub bytes: Bytes,
    /// Length of the JSON part where binary tensors follow it.
    pub json_len: Option<usize>,
}

impl Body {
    /// Encodes a request.
    #[must_use]
    pub fn encode(request: InferRequest, form: Form<'_>) -> Self {
        match form {
            Form::Grpc(model) => Self {
                bytes: framed(&ModelInferRequest::of(model, request)),
                json_len: None,
            },
            Form::Http(Encoding::Json) => Self {
                bytes: request.encode_json().into(),
                json_len: None,
            },
            Form::Http(Encoding::Binary) => {
                let (bytes, json_len) = request.encode_binary();
                Self {
                    bytes,
                    json_len: Some(json_len),
                }
            }
        }
    }
}

/// The body of a joined request: the server reads the rows of `ids` itself.
#[must_use]
pub fn joined<'a>(ids: &[i64], form: impl Into<Form<'a>>) -> Body {
    let form = form.into();
    let request = InferRequest {
        inputs: vec![Tensor {
            name: ENTITY_ID.into(),
            dtype: DataType::Int64,
            shape: vec![ids.len() as i64],
            data: ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>().into(),
        }],
        binary_output: form == Form::Http(Encoding::Binary),
        ..InferRequest::default()
    };
    Body::encode(request, form)
}

/// Bodies of requests that bring their own tensors, random but for the seed; a step sends them in turn.
///
/// # Errors
/// An input whose type has no fixed size, by name.
pub fn inline<'a>(specs: &[TensorSpec], rows: u32, form: impl Into<Form<'a>>, seed: u64) -> Result<Vec<Body>, String> {
    inline_within(INLINE_BYTES, specs, rows, form.into(), seed)
}

fn inline_within(
    limit_bytes: usize,
    specs: &[TensorSpec],
    rows: u32,
    form: Form<'_>,
    seed: u64,
) -> Result<Vec<Body>, String> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut bodies = Vec::new();
    let mut bytes = 0;
    while bodies.len() < INLINE_BODIES && (bodies.is_empty() || bytes < limit_bytes) {
        let inputs = specs
            .iter()
            .map(|spec| random_tensor(spec, rows, &mut rng))
            .collect::<Result<_, _>>()?;
        let request = InferRequest {
            inputs,
            binary_output: form == Form::Http(Encoding::Binary),
            ..InferRequest::default()
        };
        let body = Body::encode(request, form);
        bytes += body.bytes.len();
        bodies.push(body);
    }
    Ok(bodies)
}

/// A tensor of `rows` rows; every other free dimension is 1. Floats lie in [0, 1), integers are 0 or 1 so that they are
/// valid as indices, `UINT8` (pixels) takes its whole range.
fn random_tensor(spec: &TensorSpec, rows: u32, rng: &mut ChaCha8Rng) -> Result<Tensor, String> {
    let shape: Vec<i64> = spec
        .shape
        .iter()
        .enumerate()
        .map(|(axis, &dim)| match (axis, dim) {
            (0, -1) => i64::from(rows),
            (_, -1) => 1,
            _ => dim,
        })
        .collect();
    let count = tierlab_protocol::tensor::element_count(&shape)
        .ok_or_else(|| format!("input `{}` has no usable shape: {:?}", spec.name, spec.shape))?;
    let unsupported = || {
        format!(
            "input `{}` is {}: only joined or plain numeric inputs can be generated",
            spec.name, spec.dtype
        )
    };
    let size = spec.dtype.size().ok_or_else(unsupported)?;
    let bytes = count.checked_mul(size).filter(|&bytes| bytes <= INPUT_BYTES);
    let bytes = bytes.ok_or_else(|| {
        format!(
            "input `{}` of shape {shape:?} would take more than {} MiB in one request",
            spec.name,
            INPUT_BYTES >> 20
        )
    })?;
    let mut data = vec![0_u8; bytes];
    match spec.dtype {
        DataType::Uint8 => rng.fill(&mut data[..]),
        DataType::Fp32 => fill(&mut data, || rng.random::<f32>().to_le_bytes()),
        DataType::Fp64 => fill(&mut data, || rng.random::<f64>().to_le_bytes()),
        DataType::Fp16 | DataType::Bf16 | DataType::Bytes => return Err(unsupported()),
        // The lowest byte of a little-endian integer.
        _ => data
            .iter_mut()
            .step_by(size)
            .for_each(|byte| *byte = rng.random_range(0..2)),
    }
    Ok(Tensor {
        name: spec.name.clone(),
        dtype: spec.dtype,
        shape,
        data: data.into(),
    })
}

fn fill<const N: usize>(data: &mut [u8], mut element: impl FnMut() -> [u8; N]) {
    for slot in data.chunks_exact_mut(N) {
        slot.copy_from_slice(&element());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn joined_bodies_carry_the_ids(ids in prop::collection::vec(any::<i64>(), 1..50), binary: bool) {
            let encoding = if binary { Encoding::Binary } else { Encoding::Json };
            let body = joined(&ids, encoding);
            let request = InferRequest::decode(&body.bytes.into(), body.json_len).unwrap();
            prop_assert_eq!(&request.inputs[0].name, ENTITY_ID);
            prop_assert_eq!(&request.inputs[0].shape, &vec![ids.len() as i64]);
            let read: Vec<i64> = request.inputs[0]
                .data
                .whole()
                .chunks_exact(8)
                .map(|chunk| i64::from_le_bytes(chunk.try_into().unwrap()))
                .collect();
            prop_assert_eq!(read, ids);
            prop_assert_eq!(request.binary_output, binary);
        }
    }

    #[test]
    fn inline_bodies_have_the_models_shape_and_are_bounded() {
        let spec = |name: &str, dtype, shape: &[i64]| TensorSpec {
            name: name.into(),
            dtype,
            shape: shape.into(),
        };
        let specs = [
            spec("x", DataType::Fp32, &[-1, 64]),
            spec("c", DataType::Int64, &[-1, -1]),
        ];
        for encoding in [Encoding::Json, Encoding::Binary] {
            let bodies = inline(&specs, 3, encoding, 1).unwrap();
            assert_eq!(bodies.len(), INLINE_BODIES);
            assert_ne!(bodies[0], bodies[1]);
            let request = InferRequest::decode(&bodies[0].bytes.clone().into(), bodies[0].json_len).unwrap();
            assert_eq!(request.inputs[0].shape, [3, 64]);
            assert_eq!(request.inputs[1].shape, [3, 1]);
        }
        let image = [spec("i", DataType::Uint8, &[-1, 3, 32, 32])];
        let large = inline_within(100_000, &image, 4, Encoding::Binary.into(), 1).unwrap();
        assert_eq!(large.len(), 9);
        assert_eq!(
            inline_within(1, &image, 4, Encoding::Binary.into(), 1).unwrap().len(),
            1
        );
        assert!(inline(&[spec("s", DataType::Bytes, &[-1])], 1, Encoding::Json, 1).is_err());
        for shape in [&[-1, 1 << 40][..], &[1 << 62], &[1 << 62, 1 << 62]] {
            assert!(inline(&[spec("h", DataType::Fp64, shape)], 1, Encoding::Json, 1).is_err());
        }
    }
}

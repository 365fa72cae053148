//! Client side of an infer call: request to message, message to reply, and the frame around both.
//!
//! In: an [`InferRequest`], or a [`ModelInferResponse`]. Out: a message with raw contents, or an [`InferReply`] whose
//! tensors share the message's memory if they arrived raw. Sources: KServe's `grpc_predict_v2.proto`; gRPC's
//! `PROTOCOL-HTTP2.md` for the frame.

use super::SERVICE;
use super::infer::{raw, tensor};
use super::messages::{
    InferParameter, InferRequestedOutputTensor, InferTensor, ModelInferRequest, ModelInferResponse, ParameterChoice,
    Parameters,
};
use super::status::Code;
use crate::infer::{BadRequest, Data, InferReply, InferRequest};
use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

/// Bytes before each message: the compression flag and the length.
const PREFIX_BYTES: usize = 5;

/// Returns the path of infer calls.
pub fn infer_path() -> String {
    format!("/{SERVICE}/ModelInfer")
}

/// Returns the name of a status code; `None` for codes that gRPC does not define.
pub fn code_name(code: u16) -> Option<&'static str> {
    let code = Code::try_from(i32::from(code)).ok()?;
    Some(code.as_str_name())
}

/// Returns a message in its frame, uncompressed.
pub fn framed(message: &impl Message) -> Bytes {
    let len = message.encoded_len();
    let mut out = BytesMut::with_capacity(PREFIX_BYTES + len);
    out.put_u8(0);
    out.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
    // Cannot fail: the buffer holds all of it.
    let _ = message.encode(&mut out);
    out.freeze()
}

/// Returns the only message of a body; `None` if the body is not exactly one whole, uncompressed frame.
pub fn unframed(body: &Bytes) -> Option<Bytes> {
    let (prefix, rest) = body.split_first_chunk::<PREFIX_BYTES>()?;
    let len = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
    (prefix[0] == 0 && rest.len() == len).then(|| body.slice(PREFIX_BYTES..))
}

impl ModelInferRequest {
    /// Converts a request for `model`, with raw inputs.
    pub fn of(model: &str, request: InferRequest) -> Self {
        let timeout = request.timeout_us.map(|timeout_us| ("timeout", timeout_us));
        let priority = (request.priority > 0).then_some(("priority", request.priority));
        let parameter = |(name, number): (&str, u64)| {
            let parameter_choice = Some(ParameterChoice::Uint64Param(number));
            (name.to_owned(), InferParameter { parameter_choice })
        };
        let parameters = timeout.into_iter().chain(priority).map(parameter).collect();
        let (inputs, raw_input_contents) = raw(request.inputs);
        let output = |name| InferRequestedOutputTensor {
            name,
            parameters: Parameters::new(),
        };
        Self {
            model_name: model.to_owned(),
            model_version: String::new(),
            id: request.id.unwrap_or_default(),
            parameters,
            inputs,
            outputs: request.outputs.into_iter().map(|one| output(one.name)).collect(),
            raw_input_contents,
        }
    }
}

impl TryFrom<ModelInferResponse> for InferReply {
    type Error = BadRequest;

    /// # Errors
    /// An output without data, of an unknown type, or whose length differs from its shape's; the message names it.
    fn try_from(message: ModelInferResponse) -> Result<Self, BadRequest> {
        let (outputs, raw) = (message.outputs, message.raw_output_contents);
        // Either all are raw, or each holds its own elements.
        if !raw.is_empty() && outputs.len() != raw.len() {
            let (entries, outputs) = (raw.len(), outputs.len());
            let detail = format!("`raw_output_contents` has {entries} entries for {outputs} outputs");
            return Err(BadRequest(detail));
        }
        let mut raw = raw.into_iter();
        let tensor = |output: InferTensor| {
            let raw = match (raw.next(), &output.contents) {
                (None, None) if output.shape.contains(&0) => Some(Bytes::new()),
                (None, None) => {
                    let detail = "neither `contents` nor `raw_output_contents`";
                    return Err(BadRequest(format!("output `{}`: {detail}", output.name)));
                }
                (raw, _) => raw,
            };
            tensor("output", output, raw.map(Data::from))
        };
        Ok(Self {
            model_name: message.model_name,
            model_version: message.model_version,
            id: Some(message.id).filter(|id| !id.is_empty()),
            outputs: outputs.into_iter().map(tensor).collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::infer::Tensor;
    use crate::tensor::DataType;
    use proptest::prelude::*;

    fn tensor(name: &str, values: &[i64]) -> Tensor {
        Tensor {
            name: name.into(),
            dtype: DataType::Int64,
            shape: vec![values.len() as i64],
            data: values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        }
    }

    proptest! {
        #[test]
        fn what_a_client_sends_a_server_reads(
            ids in prop::collection::vec(any::<i64>(), 1..40), timeout_us in prop::option::of(1_u64..1_000_000), priority in 0_u64..4,
        ) {
            let request = InferRequest {
                id: Some("7".into()),
                inputs: vec![tensor("entity_id", &ids)],
                timeout_us,
                priority,
                ..InferRequest::default()
            };
            let body = framed(&ModelInferRequest::of("m", request.clone()));
            let read = ModelInferRequest::decode(unframed(&body).unwrap()).unwrap();
            prop_assert_eq!(&read.model_name, "m");
            let read = InferRequest::try_from(read).unwrap();
            prop_assert_eq!(read, InferRequest { binary_output: true, ..request });
        }

        #[test]
        fn what_a_server_sends_a_client_reads(values in prop::collection::vec(any::<i64>(), 0..40)) {
            let reply = InferReply {
                model_name: "m".into(),
                model_version: "1".into(),
                id: None,
                outputs: vec![tensor("y", &values)],
            };
            let body = framed(&ModelInferResponse::from(reply.clone()));
            let read = ModelInferResponse::decode(unframed(&body).unwrap()).unwrap();
            prop_assert_eq!(InferReply::try_from(read).unwrap(), reply);
        }

        #[test]
        fn any_body_is_a_frame_or_not(body in prop::collection::vec(any::<u8>(), 0..30)) {
            if let Some(message) = unframed(&Bytes::from(body)) {
                let _ = ModelInferResponse::decode(message).map(InferReply::try_from);
            }
        }
    }

    #[test]
    fn a_reply_whose_outputs_hold_their_elements_is_read() {
        use super::super::messages::InferTensorContents;
        let output = |datatype: &str, contents| InferTensor {
            name: "y".into(),
            datatype: datatype.into(),
            shape: vec![2],
            parameters: Parameters::new(),
            contents: Some(contents),
        };
        let read = |output| {
            InferReply::try_from(ModelInferResponse {
                outputs: vec![output],
                ..ModelInferResponse::default()
            })
        };
        let floats = InferTensorContents {
            fp32_contents: vec![0.25, 0.5],
            ..InferTensorContents::default()
        };
        let bytes: Vec<u8> = [0.25_f32, 0.5].iter().flat_map(|value| value.to_le_bytes()).collect();
        let reply = read(output("FP32", floats.clone())).unwrap();
        assert_eq!(*reply.outputs[0].data.whole(), bytes);
        let refused = read(output("INT64", floats)).unwrap_err().to_string();
        assert!(
            refused.contains("`y`") && refused.contains("int64_contents"),
            "{refused}"
        );
    }

    #[test]
    fn a_reply_that_does_not_fit_is_refused_by_name() {
        let reply = InferReply {
            model_name: "m".into(),
            model_version: "1".into(),
            id: None,
            outputs: vec![tensor("y", &[1, 2])],
        };
        let sent = ModelInferResponse::from(reply);
        let mut short = sent.clone();
        short.raw_output_contents[0] = Bytes::from_static(&[0; 8]);
        assert!(InferReply::try_from(short).unwrap_err().to_string().contains("`y`"));
        let mut none = sent;
        none.raw_output_contents.clear();
        assert!(
            InferReply::try_from(none)
                .unwrap_err()
                .to_string()
                .contains("raw_output_contents")
        );
        assert_eq!(code_name(14), Some("UNAVAILABLE"));
        assert_eq!(code_name(17), None);
    }
}

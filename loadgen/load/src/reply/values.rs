//! Check of a reply's values. In: the expected values of each output, and a reply with a correct structure. Out:
//! nothing, or the first difference in words.

use super::checked::{NoReply, quoted, wrong_value};
use crate::element::{self, Number};
use tierlab_protocol::infer::{InferReply, Tensor, bytes_elements};
use tierlab_protocol::tensor::DataType;

/// Expected values of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputValues {
    /// Name of the output.
    pub name: String,
    /// Element type.
    pub dtype: DataType,
    /// Elements in the protocol's binary encoding.
    pub data: Vec<u8>,
}

/// Expected values of a reply.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplyValues {
    /// Expected values by output; other outputs are not checked.
    pub outputs: Vec<OutputValues>,
    /// Tolerance of a value: the maximum deviation is `tolerance × (1 + |expected|)`.
    pub tolerance: f64,
}

impl ReplyValues {
    pub(super) fn check(&self, reply: &InferReply) -> Result<(), NoReply> {
        for expected in &self.outputs {
            let output = reply.outputs.iter().find(|output| output.name == expected.name);
            let name = quoted(expected.name.as_bytes());
            let output = output.ok_or_else(|| wrong_value(format_args!("output `{name}` is missing")))?;
            self.compare(&name, expected, output)?;
        }
        Ok(())
    }

    fn compare(&self, name: &str, expected: &OutputValues, output: &Tensor) -> Result<(), NoReply> {
        let got = output.data.whole();
        let differ = |index: usize, wanted: String, got: String| {
            Err(wrong_value(format_args!(
                "output `{name}`, element {index}: expected {wanted}, got {got}"
            )))
        };
        let amount = |wanted: usize, got: usize| {
            let what = format_args!("output `{name}`: expected {wanted} elements, got {got}");
            if wanted == got { Ok(()) } else { Err(wrong_value(what)) }
        };
        let Some(size) = expected.dtype.size() else {
            let texts = |data| bytes_elements(data).map(Result::unwrap_or_default);
            amount(texts(&expected.data).count(), texts(&got).count())?;
            for (index, (wanted, got)) in texts(&expected.data).zip(texts(&got)).enumerate() {
                if wanted != got {
                    return differ(index, format!("`{}`", quoted(wanted)), format!("`{}`", quoted(got)));
                }
            }
            return Ok(());
        };
        amount(expected.data.len() / size, got.len() / size)?;
        // Most values are identical to the bit.
        if *expected.data == *got {
            return Ok(());
        }
        let number = |bytes| element::read(expected.dtype, bytes).unwrap_or(Number::Int(0));
        for (index, (wanted, got)) in expected.data.chunks_exact(size).zip(got.chunks_exact(size)).enumerate() {
            let (wanted, got) = (number(wanted), number(got));
            if !self.near(expected.dtype, wanted, got) {
                return differ(index, wanted.to_string(), got.to_string());
            }
        }
        Ok(())
    }

    /// True if |got - expected| <= tolerance + tolerance * |expected|; NaN only matches itself.
    fn near(&self, dtype: DataType, expected: Number, got: Number) -> bool {
        if expected == got || dtype == DataType::Bool {
            return expected == got;
        }
        let (expected, got) = (expected.float(), got.float());
        if expected.is_nan() || got.is_nan() {
            return expected.is_nan() && got.is_nan();
        }
        let allowed = self.tolerance + self.tolerance * expected.abs();
        // Infinities differ from all other values.
        expected.is_finite() && (got - expected).abs() <= allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::Expected;
    use prost::Message as _;
    use tierlab_analysis::record::Failure;
    use tierlab_protocol::grpc::messages::ModelInferResponse;
    use tierlab_protocol::tensor::TensorSpec;

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn output(name: &str, dtype: DataType, data: Vec<u8>) -> OutputValues {
        OutputValues {
            name: name.into(),
            dtype,
            data,
        }
    }

    fn reply(y: &[f32], label: &[u8]) -> InferReply {
        let tensor = |name: &str, dtype, shape: &[i64], data: Vec<u8>| Tensor {
            name: name.into(),
            dtype,
            shape: shape.to_vec(),
            data: data.into(),
        };
        let mut text = Vec::new();
        element::push_bytes(label, &mut text);
        InferReply {
            model_name: "m".into(),
            model_version: "1".into(),
            id: None,
            outputs: vec![
                tensor("y", DataType::Fp32, &[1, y.len() as i64], floats(y)),
                tensor("label", DataType::Bytes, &[1], text),
            ],
        }
    }

    fn expected(tolerance: f64) -> Expected {
        let spec = |name: &str, dtype, shape: &[i64]| TensorSpec {
            name: name.into(),
            dtype,
            shape: shape.to_vec(),
        };
        let outputs = [
            spec("y", DataType::Fp32, &[1, -1]),
            spec("label", DataType::Bytes, &[-1]),
        ];
        let values = ReplyValues {
            outputs: vec![
                output("y", DataType::Fp32, floats(&[1.0, -100.0, f32::NAN])),
                output("label", DataType::Bytes, b"\x03\0\0\0cat".to_vec()),
            ],
            tolerance,
        };
        Expected::new("m", &outputs, None).with_values(values)
    }

    fn check(expected: &Expected, reply: InferReply) -> Result<(), NoReply> {
        let (json, _) = reply.encode(&[false, false]);
        let over_http = expected.check_http(&json, None);
        let over_grpc = expected.check_grpc(&ModelInferResponse::from(reply).encode_to_vec().into());
        assert_eq!(over_http.is_ok(), over_grpc.is_ok());
        assert_eq!(over_http.clone().err(), over_grpc.err());
        over_http.map(drop)
    }

    #[test]
    fn values_within_the_tolerance_pass_and_the_first_other_is_named() {
        let strict = expected(1e-3);
        let good = [1.0005_f32, -100.05, f32::NAN];
        assert_eq!(check(&strict, reply(&good, b"cat")), Ok(()));
        for (y, label, what) in [
            (
                &[1.01, -100.0, f32::NAN][..],
                &b"cat"[..],
                "output `y`, element 0: expected 1, got 1.0",
            ),
            (
                &[1.0, -101.0, f32::NAN],
                b"cat",
                "output `y`, element 1: expected -100, got -101",
            ),
            (
                &[1.0, -100.0, 0.0],
                b"cat",
                "output `y`, element 2: expected NaN, got 0",
            ),
            (&[1.0, -100.0], b"cat", "output `y`: expected 3 elements, got 2"),
            (
                &[1.0, -100.0, f32::NAN],
                b"dog",
                "output `label`, element 0: expected `cat`, got `dog`",
            ),
        ] {
            let fault = check(&strict, reply(y, label)).unwrap_err();
            assert_eq!(fault.failure, Failure::WrongValue);
            assert!(fault.to_string().contains(what), "{fault} does not say {what}");
        }
        assert!(check(&expected(0.0), reply(&good, b"cat")).is_err());
        // An invalid reply is not a wrong value.
        let broken = strict.check_http(&"{\"error\":\"x\"}".into(), None).unwrap_err();
        assert_eq!(broken.failure, Failure::WrongReply);
    }
}

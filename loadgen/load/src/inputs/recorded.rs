//! Recorded requests, from perf_analyzer's input data and files of whole requests: names and contents, whose types the
//! model determines. In: contents as stored in the file. Out: tensors.

use crate::element::{self, Number};
use anyhow::{Context as _, Result, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;
use tierlab_protocol::infer::{Tensor, bytes_elements};
use tierlab_protocol::tensor::{DataType, TensorSpec, element_count};

/// Recorded requests, in order.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Name of the source.
    pub source: String,
    /// Recorded requests; at least one.
    pub requests: Vec<RecordedRequest>,
}

impl Recorded {
    /// True if any request holds an input of that name, or may hold it as a part of the whole.
    pub fn holds(&self, name: &str) -> bool {
        let has = |request: &RecordedRequest| {
            request.whole.is_some() || request.inputs.iter().any(|tensor| tensor.name == name)
        };
        self.requests.iter().any(has)
    }
}

/// Recorded request.
#[derive(Debug, Clone, Default)]
pub struct RecordedRequest {
    /// Position in words: `request 7`, `stream 0, step 6`.
    pub place: String,
    /// Input tensors.
    pub inputs: Vec<RecordedTensor>,
    /// Expected reply.
    pub expected: Vec<RecordedTensor>,
    /// Recorded body, if the whole request was recorded.
    pub whole: Option<Bytes>,
}

/// One tensor.
#[derive(Debug, Clone)]
pub struct RecordedTensor {
    /// Name of the tensor.
    pub name: String,
    /// Dimensions, without that of the rows if the model is batched; `None` if the file lacks them.
    pub shape: Option<Vec<u64>>,
    /// Content of the tensor.
    pub content: RecordedContent,
}

/// Elements as stored in a file.
#[derive(Debug, Clone)]
pub enum RecordedContent {
    /// A JSON array of numbers, booleans or strings, nested or not.
    Json(Box<RawValue>),
    /// Encoding of the protocol's binary tensors: little-endian, strings behind their lengths.
    Raw(Bytes),
    /// File whose lines are the elements of a `BYTES` tensor, and whose bytes are those of any other.
    File(Bytes),
}

impl RecordedTensor {
    /// Returns the elements in a type, with the shape of nested arrays.
    ///
    /// # Errors
    /// The element that the type cannot hold.
    pub(super) fn elements(&self, dtype: DataType) -> Result<(Vec<u8>, Option<Vec<i64>>)> {
        match &self.content {
            RecordedContent::File(bytes) if dtype == DataType::Bytes => {
                let text = std::str::from_utf8(bytes).map_err(|_| anyhow!("its file is not UTF-8"))?;
                let mut data = Vec::new();
                for line in text.lines() {
                    element::push_bytes(line.as_bytes(), &mut data);
                }
                Ok((data, None))
            }
            RecordedContent::Raw(bytes) | RecordedContent::File(bytes) => Ok((bytes.to_vec(), None)),
            RecordedContent::Json(text) => {
                let value: Value = serde_json::from_str(text.get())?;
                let mut leaves = Leaves {
                    dtype,
                    data: Vec::new(),
                    count: 0,
                    shape: Vec::new(),
                    is_ragged: false,
                };
                leaves.take(&value, 0)?;
                let shape = (!leaves.is_ragged).then_some(leaves.shape);
                Ok((leaves.data, shape))
            }
        }
    }

    /// Returns the tensor as an input of a model. If `batched`, the server declares the first dimension as the rows.
    ///
    /// # Errors
    /// A tensor that does not fit the input.
    pub(super) fn typed(&self, spec: &TensorSpec, batched: bool) -> Result<Tensor> {
        let (data, nested) = self.elements(spec.dtype)?;
        let count = elements(spec.dtype, &data).context("its bytes are not a whole number of elements")?;
        let is_fixed = |dims: &[i64]| !dims.is_empty() && dims.iter().all(|dim| *dim >= 0);
        let rows_only = matches!(&spec.shape[..], [first, rest @ ..] if *first < 0 && is_fixed(rest));
        let of_row = spec.shape.get(usize::from(batched || rows_only)..).unwrap_or_default();
        let signed = |dim: &u64| i64::try_from(*dim).unwrap_or(i64::MAX);
        let shape: Vec<i64> = match (&self.shape, nested) {
            (Some(shape), _) => shape.iter().map(signed).collect(),
            (None, _) if element_count(of_row) == Some(count) => of_row.to_vec(),
            // Nested arrays determine it themselves.
            (None, Some(nested)) if nested.len() > 1 && nested.len() >= of_row.len() => nested,
            (None, _) if of_row.iter().all(|dim| *dim >= 0) => of_row.to_vec(),
            // A vector may have any length.
            (None, _) if of_row.len() == 1 => vec![count as i64],
            (None, _) => {
                bail!(
                    "`shape` is missing, and the model's is free: {:?}; write {{\"content\": [...], \"shape\": [...]}}",
                    spec.shape
                );
            }
        };
        let rows = usize::from(shape.len() + 1 == spec.shape.len());
        let full: Vec<i64> = std::iter::repeat_n(1, rows).chain(shape).collect();
        if !fits(&full, &spec.shape) {
            bail!("shape {full:?} does not match the model's {:?}", spec.shape);
        }
        if element_count(&full) != Some(count) {
            bail!("{count} elements do not fill shape {full:?}");
        }
        Ok(Tensor {
            name: spec.name.clone(),
            dtype: spec.dtype,
            shape: full,
            data: data.into(),
        })
    }
}

/// True if a tensor of this shape fits the declared one.
pub(super) fn fits(shape: &[i64], declared: &[i64]) -> bool {
    let dim_fits = |(dim, declared): (&i64, &i64)| *declared < 0 || dim == declared;
    shape.len() == declared.len() && shape.iter().zip(declared).all(dim_fits)
}

/// Number of elements of a type in some bytes.
pub(crate) fn elements(dtype: DataType, data: &[u8]) -> Option<usize> {
    match dtype.size() {
        Some(size) => data.len().is_multiple_of(size).then_some(data.len() / size),
        None => bytes_elements(data).try_fold(0, |count, element| element.ok().map(|_| count + 1)),
    }
}

struct Leaves {
    dtype: DataType,
    data: Vec<u8>,
    count: usize,
    /// Lengths by depth, from the first array of each.
    shape: Vec<i64>,
    is_ragged: bool,
}

impl Leaves {
    /// Nesting is bounded by the JSON reader.
    fn take(&mut self, value: &Value, depth: usize) -> Result<()> {
        if let Value::Array(items) = value {
            let length = items.len() as i64;
            match self.shape.get(depth) {
                None => self.shape.push(length),
                Some(&first) => self.is_ragged |= first != length,
            }
            return items.iter().try_for_each(|item| self.take(item, depth + 1));
        }
        let is_valid = match (value, self.dtype) {
            (Value::String(text), DataType::Bytes) => element::push_bytes(text.as_bytes(), &mut self.data),
            (Value::Object(object), DataType::Bytes) => {
                let encoded = object.get("b64").and_then(Value::as_str).unwrap_or_default();
                let bytes = STANDARD.decode(encoded);
                bytes.is_ok_and(|bytes| object.contains_key("b64") && element::push_bytes(&bytes, &mut self.data))
            }
            (Value::Bool(value), DataType::Bool) => {
                element::push(DataType::Bool, Number::Int(i128::from(*value)), &mut self.data)
            }
            (Value::Number(number), dtype) => {
                let whole = number.as_i64().map(i128::from).or(number.as_u64().map(i128::from));
                let number = whole.map(Number::Int).or(number.as_f64().map(Number::Float));
                number.is_some_and(|number| element::push(dtype, number, &mut self.data))
            }
            _ => false,
        };
        if !is_valid {
            let shown: String = value.to_string().chars().take(60).collect();
            bail!("element {}: `{shown}` is not a valid {}", self.count, self.dtype);
        }
        self.count += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str, shape: Option<&[u64]>) -> RecordedTensor {
        RecordedTensor {
            name: "x".into(),
            shape: shape.map(<[u64]>::to_vec),
            content: RecordedContent::Json(RawValue::from_string(text.into()).unwrap()),
        }
    }

    fn spec(dtype: DataType, shape: &[i64]) -> TensorSpec {
        TensorSpec {
            name: "x".into(),
            dtype,
            shape: shape.to_vec(),
        }
    }

    fn shape(tensor: &RecordedTensor, spec: &TensorSpec, batched: bool) -> Result<Vec<i64>> {
        tensor.typed(spec, batched).map(|tensor| tensor.shape)
    }

    #[test]
    fn shapes_come_from_the_file_the_model_or_the_nesting() {
        let free = spec(DataType::Fp32, &[-1, -1]);
        assert_eq!(shape(&json("[1,2,3]", None), &free, true).unwrap(), [1, 3]);
        assert_eq!(shape(&json("[[1,2],[3,4]]", None), &free, false).unwrap(), [2, 2]);
        assert_eq!(shape(&json("[1,2,3,4]", Some(&[2, 2])), &free, false).unwrap(), [2, 2]);
        assert_eq!(
            shape(&json("[1,2]", None), &spec(DataType::Int8, &[-1, 2]), true).unwrap(),
            [1, 2]
        );
        let scalar = shape(&json("[7]", None), &spec(DataType::Int8, &[]), false).unwrap();
        assert!(scalar.is_empty());
        let refused = shape(&json("[1,2,3,4]", None), &free, false).unwrap_err().to_string();
        assert!(refused.contains("`shape` is missing"), "{refused}");
        let refused = shape(&json("[1,2,3]", Some(&[2, 2])), &free, false).unwrap_err();
        assert!(refused.to_string().contains("3 elements"), "{refused}");
        let refused = shape(&json("[1,2,3]", Some(&[3])), &spec(DataType::Fp32, &[-1, 2]), true).unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("[1, 3] does not match the model's [-1, 2]"),
            "{refused}"
        );
    }

    #[test]
    fn elements_are_of_the_models_type() {
        let texts = json(r#"["a", {"b64": "/w=="}]"#, None);
        assert_eq!(texts.elements(DataType::Bytes).unwrap().0, b"\x01\0\0\0a\x01\0\0\0\xff");
        assert_eq!(json("[true, 0]", None).elements(DataType::Bool).unwrap().0, [1, 0]);
        assert_eq!(json("[1.5]", None).elements(DataType::Fp16).unwrap().0, [0, 0x3e]);
        for (text, dtype) in [
            ("[1, \"a\"]", DataType::Int8),
            ("[0.5]", DataType::Int64),
            ("[null]", DataType::Fp32),
        ] {
            let refused = json(text, None).elements(dtype).unwrap_err().to_string();
            assert!(refused.contains("element"), "{refused}");
        }
    }
}

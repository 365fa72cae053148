//! Check of a gRPC reply: the fields of a `ModelInferResponse` are read in place. Source: KServe's
//! `grpc_predict_v2.proto`, and Protocol Buffers' encoding. A message library would build every tensor that a server
//! sends, even empty ones.

use super::expected::{Expected, Seen};
use super::found::{Found, Shape, Wrong, check_raw, quoted, wrong};
use tierlab_protocol::tensor::DataType;

const MODEL_NAME: u32 = 1;
const OUTPUTS: u32 = 5;
const RAW_CONTENTS: u32 = 6;
const TENSOR_NAME: u32 = 1;
const TENSOR_TYPE: u32 = 2;
const TENSOR_SHAPE: u32 = 3;
const TENSOR_CONTENTS: u32 = 5;

pub(super) fn check(expected: &Expected, message: &[u8]) -> Result<(), Wrong> {
    // Raw contents may come before or after the outputs, so a second cursor reads them.
    let mut raw = Fields(message);
    let mut seen = Seen::default();
    let mut name = &[][..];
    let (mut has_raw, mut has_typed) = (false, false);
    let mut fields = Fields(message);
    while let Some((number, value)) = fields.next()? {
        match (number, value) {
            (MODEL_NAME, Value::Bytes(bytes)) => name = bytes,
            (OUTPUTS, Value::Bytes(bytes)) => {
                let tensor = tensor(bytes)?;
                let (dtype, elements) = expected.tensor(&tensor.found, &mut seen)?;
                if let Some(contents) = tensor.contents.filter(|contents| !contents.is_empty()) {
                    has_typed = true;
                    typed(tensor.found.name, dtype, elements, contents)?;
                } else if let Some(bytes) = raw.next_raw()? {
                    has_raw = true;
                    check_raw(tensor.found.name, dtype, elements, bytes)?;
                } else if elements > 0 {
                    return Err(wrong(format_args!(
                        "output `{}` has no data",
                        quoted(tensor.found.name)
                    )));
                }
            }
            _ => {}
        }
    }
    expected.model_is(name)?;
    expected.all_came(&seen)?;
    if (has_raw && has_typed) || raw.next_raw()?.is_some() {
        return Err(wrong("the reply has raw contents that belong to no output"));
    }
    Ok(())
}

struct Tensor<'a> {
    found: Found<'a>,
    contents: Option<&'a [u8]>,
}

fn tensor(bytes: &[u8]) -> Result<Tensor<'_>, Wrong> {
    let mut tensor = Tensor {
        found: Found::default(),
        contents: None,
    };
    let mut fields = Fields(bytes);
    while let Some((number, value)) = fields.next()? {
        match (number, value) {
            (TENSOR_NAME, Value::Bytes(bytes)) => tensor.found.name = bytes,
            (TENSOR_TYPE, Value::Bytes(bytes)) => tensor.found.dtype = bytes,
            (TENSOR_SHAPE, Value::Number(dim)) => tensor.found.shape.push(dim)?,
            (TENSOR_SHAPE, Value::Bytes(packed)) => dims(packed, &mut tensor.found.shape)?,
            (TENSOR_CONTENTS, Value::Bytes(bytes)) => tensor.contents = Some(bytes),
            _ => {}
        }
    }
    Ok(tensor)
}

fn dims(packed: &[u8], shape: &mut Shape) -> Result<(), Wrong> {
    let mut packed = Fields(packed);
    while !packed.0.is_empty() {
        shape.push(packed.varint()?)?;
    }
    Ok(())
}

/// Counts elements in the field of their type, packed or not.
fn typed(name: &[u8], dtype: DataType, elements: u64, contents: &[u8]) -> Result<(), Wrong> {
    let (field, width) = match dtype {
        DataType::Bool => (1, None),
        DataType::Int8 | DataType::Int16 | DataType::Int32 => (2, None),
        DataType::Int64 => (3, None),
        DataType::Uint8 | DataType::Uint16 | DataType::Uint32 => (4, None),
        DataType::Uint64 => (5, None),
        DataType::Fp32 => (6, Some(4)),
        DataType::Fp64 => (7, Some(8)),
        DataType::Bytes => (8, None),
        // The protocol has no field for them.
        DataType::Fp16 | DataType::Bf16 => (0, None),
    };
    let mut count = 0;
    let mut fields = Fields(contents);
    while let Some((number, value)) = fields.next()? {
        count += match (number == field, value) {
            (false, _) => continue,
            (true, Value::Bytes(_)) if dtype == DataType::Bytes => 1,
            (true, Value::Number(_) | Value::Fixed) => 1,
            (true, Value::Bytes(packed)) => match width {
                Some(width) => (packed.len() / width) as u64,
                // Each number ends with a byte below 128.
                None => packed.iter().filter(|byte| **byte < 0x80).count() as u64,
            },
        };
    }
    if count == elements {
        return Ok(());
    }
    Err(wrong(format_args!(
        "output `{}` has {count} values for {elements} elements",
        quoted(name)
    )))
}

/// Rest of a message.
struct Fields<'a>(&'a [u8]);

enum Value<'a> {
    Number(u64),
    /// Four or eight bytes.
    Fixed,
    Bytes(&'a [u8]),
}

impl<'a> Fields<'a> {
    fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, Wrong> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let len = self.varint()?;
                Value::Bytes(self.take(len)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            other => return Err(wrong(format_args!("no protobuf message: wire type {other}"))),
        };
        Ok(Some((u32::try_from(key >> 3).unwrap_or(0), value)))
    }

    fn next_raw(&mut self) -> Result<Option<&'a [u8]>, Wrong> {
        while let Some((number, value)) = self.next()? {
            if let (RAW_CONTENTS, Value::Bytes(bytes)) = (number, value) {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8], Wrong> {
        let split = usize::try_from(len).ok().and_then(|len| self.0.split_at_checked(len));
        let (taken, rest) = split.ok_or_else(|| wrong("the message is cut off"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, Wrong> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or_else(|| wrong("the message is cut off"))?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(wrong("no protobuf message: a number of more than 64 bits"))
    }
}

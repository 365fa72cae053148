//! Data types and shapes, as the Open Inference Protocol v2 names them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

/// A tensor element type of the Open Inference Protocol v2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[derive(Display, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "UPPERCASE", parse_err_ty = UnknownDataType, parse_err_fn = UnknownDataType::of)]
#[allow(missing_docs, reason = "the variants are the protocol's own names")]
pub enum DataType {
    Bool,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Int8,
    Int16,
    Int32,
    Int64,
    Fp16,
    Bf16,
    Fp32,
    Fp64,
    Bytes,
}

impl DataType {
    /// Every type, in the protocol's order.
    pub const ALL: [Self; Self::VARIANTS.len()] = *Self::VARIANTS.first_chunk().unwrap();

    /// The protocol's name.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Bytes of one element; `None` for `BYTES`, whose elements carry their own length.
    pub const fn size(self) -> Option<usize> {
        match self {
            Self::Bool | Self::Uint8 | Self::Int8 => Some(1),
            Self::Uint16 | Self::Int16 | Self::Fp16 | Self::Bf16 => Some(2),
            Self::Uint32 | Self::Int32 | Self::Fp32 => Some(4),
            Self::Uint64 | Self::Int64 | Self::Fp64 => Some(8),
            Self::Bytes => None,
        }
    }

    /// Values of an integer type, or of `BOOL`; `None` for other types.
    pub fn integers(self) -> Option<Range<i128>> {
        let bits = 8 * self.size()?;
        match self {
            Self::Bool => Some(0..2),
            Self::Uint8 | Self::Uint16 | Self::Uint32 | Self::Uint64 => Some(0..1 << bits),
            Self::Int8 | Self::Int16 | Self::Int32 | Self::Int64 => Some(-(1 << (bits - 1))..1 << (bits - 1)),
            Self::Fp16 | Self::Bf16 | Self::Fp32 | Self::Fp64 | Self::Bytes => None,
        }
    }
}

/// Maximum characters of an unknown name in its message.
const SHOWN_CHARS: usize = 64;

/// Name that is not a [`DataType`], shortened if long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a data type of the Open Inference Protocol v2")]
pub struct UnknownDataType(pub String);

impl UnknownDataType {
    fn of(name: &str) -> Self {
        Self(name.chars().take(SHOWN_CHARS).collect())
    }
}

/// Returns the number of elements of a shape; `None` if a dimension is negative or the product overflows.
pub fn element_count(shape: &[i64]) -> Option<usize> {
    shape
        .iter()
        .try_fold(1_usize, |count, &dim| count.checked_mul(usize::try_from(dim).ok()?))
}

/// Name, type and shape of a model's input or output. A dimension of -1 is free; the first one is the batch if the
/// model is batched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorSpec {
    /// The tensor's name in the graph.
    pub name: String,
    /// Element type.
    #[serde(rename = "datatype")]
    pub dtype: DataType,
    /// Dimensions, as in the graph.
    pub shape: Vec<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back() {
        for dtype in DataType::ALL {
            assert_eq!(dtype.as_str().parse::<DataType>().unwrap(), dtype);
            assert_eq!(
                serde_json::to_string(&dtype).unwrap(),
                format!("\"{}\"", dtype.as_str())
            );
        }
    }

    #[test]
    fn counts_refuse_negative_and_overflow() {
        assert_eq!(element_count(&[2, 3]), Some(6));
        assert_eq!(element_count(&[]), Some(1));
        assert_eq!(element_count(&[-1, 3]), None);
        assert_eq!(element_count(&[i64::MAX, i64::MAX]), None);
    }
}

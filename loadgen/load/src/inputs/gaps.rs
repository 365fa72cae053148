//! Message about insufficiently described inputs, with the plan lines to add. It replaces a measurement at arbitrary
//! sizes. In: the model and the unknown parts. Out: text, its last part TOML to paste into the plan.

use super::resolved::Declared;
use crate::element::is_float;
use crate::template::escape;
use std::fmt::Write as _;
use tierlab_protocol::tensor::{DataType, TensorSpec};

/// Input without a complete description.
#[derive(Debug)]
pub(super) struct Gap {
    pub(super) spec: TensorSpec,
    pub(super) lacks_shape: bool,
    pub(super) lacks_values: bool,
}

/// Message about all gaps.
pub(super) fn gaps(declared: &Declared<'_>, gaps: &[Gap]) -> String {
    let mut text = format!(
        "model `{}` cannot be measured yet: the plan does not describe these inputs\n",
        declared.model
    );
    for gap in gaps {
        let what = match (gap.lacks_shape, gap.lacks_values) {
            (true, true) => "free dimensions (-1) and text",
            (true, false) => "free dimensions (-1)",
            _ => "text",
        };
        let _ = writeln!(
            text,
            "  `{}` {} {:?}: {what}",
            gap.spec.name, gap.spec.dtype, gap.spec.shape
        );
    }
    text += "add these lines to the plan, with the sizes and ranges of your own requests (docs/how-to/inputs.md has the other ways: \
             distributions, files, recorded requests):\n";
    let mut lengths = Vec::new();
    for gap in gaps {
        let spec = &gap.spec;
        let _ = write!(text, "\n[inputs.tensor.{}]\n", toml_key(&spec.name));
        if gap.lacks_shape {
            let _ = writeln!(text, "shape = [{}]", shape(spec, declared, &mut lengths).join(", "));
        }
        if spec.dtype == DataType::Bytes && gap.lacks_values {
            text += "values = { text = { words = [3, 12] } }\n";
        } else if !is_float(spec.dtype) && !matches!(spec.dtype, DataType::Bytes | DataType::Uint8 | DataType::Bool) {
            text += "values = { integers = [0, 1] }\n";
        }
    }
    text
}

/// Returns the dimensions of an input. `lengths` are the inputs and indices of the chosen lengths, which others of the
/// same index follow.
fn shape(spec: &TensorSpec, declared: &Declared<'_>, lengths: &mut Vec<(String, usize)>) -> Vec<String> {
    let dims = &spec.shape;
    let is_free = |axis: usize| dims.get(axis).is_some_and(|dim| *dim < 0);
    let is_vector = dims.len() == 1 && !declared.batched;
    // A state of recurrent models: layers, rows, width.
    let free = dims.iter().filter(|dim| **dim < 0).count();
    let has_rows = |other: &TensorSpec| other.shape.len() > 1 && other.shape[0] < 0;
    let is_state = dims.len() > 2 && !is_free(0) && free == 1 && declared.inputs.iter().any(has_rows);
    let has_pixels = spec.dtype == DataType::Uint8 || is_float(spec.dtype);
    let is_image = has_pixels && dims.len() >= 3 && dims.iter().any(|dim| matches!(dim, 1 | 3 | 4));
    // Three free sides are a volume, whose requests would be too large with the side of a picture or the length of a text.
    let sides = free - usize::from(is_free(0));
    let (side, median, longest) = if sides > 2 { (32, 16, 32) } else { (224, 64, 512) };
    let mut first_side = None;
    let mut out = Vec::new();
    for (axis, dim) in dims.iter().enumerate() {
        out.push(if *dim >= 0 {
            dim.to_string()
        } else if is_state
            || (axis == 0 && !is_vector && !(dims.len() == 3 && is_image && is_free(1) && !declared.batched))
        {
            "\"rows\"".to_owned()
        } else if is_image {
            match first_side {
                Some(side) => format!("{{ same_as = {side} }}"),
                None => {
                    first_side = Some(axis);
                    format!("{{ choices = [{side}] }}")
                }
            }
        } else if let Some((input, _)) = lengths.iter().find(|(_, other)| *other == axis) {
            format!("{{ same_as = \"{}.{axis}\" }}", escaped(input))
        } else {
            lengths.push((spec.name.clone(), axis));
            format!("{{ lognormal = {{ median = {median}, sigma = 0.6 }}, min = 1, max = {longest} }}")
        });
    }
    out
}

/// Formats a name as a part of a TOML key, quoted if necessary.
pub fn toml_key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.chars().all(is_bare) {
        name.to_owned()
    } else {
        format!("\"{}\"", escaped(name))
    }
}

/// Escapes text for a basic string, as for a JSON string; JSON alone allows DEL.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    escape(text, &mut out);
    out.replace('\u{7f}', "\\u007F")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, dtype: DataType, shape: &[i64]) -> TensorSpec {
        TensorSpec {
            name: name.into(),
            dtype,
            shape: shape.to_vec(),
        }
    }

    fn lines(inputs: &[TensorSpec]) -> String {
        let declared = Declared {
            model: "m",
            inputs,
            outputs: &[],
            batched: false,
        };
        let found: Vec<Gap> = inputs
            .iter()
            .map(|spec| Gap {
                spec: spec.clone(),
                lacks_shape: spec.shape.contains(&-1),
                lacks_values: spec.dtype == DataType::Bytes,
            })
            .filter(|gap| gap.lacks_shape || gap.lacks_values)
            .collect();
        gaps(&declared, &found)
    }

    #[test]
    fn lines_are_of_the_models_kind() {
        let image = lines(&[spec("image", DataType::Fp32, &[-1, 3, -1, -1])]);
        assert!(
            image.contains("[inputs.tensor.image]\nshape = [\"rows\", 3, { choices = [224] }, { same_as = 2 }]\n"),
            "{image}"
        );
        let volume = lines(&[spec("scan", DataType::Fp64, &[3, -1, -1, -1])]);
        assert!(
            volume.contains("shape = [3, { choices = [32] }, { same_as = 1 }, { same_as = 1 }]"),
            "{volume}"
        );
        let boxes = lines(&[spec("boxes", DataType::Int64, &[-1, -1, -1, -1])]);
        assert!(
            boxes.contains("median = 16, sigma = 0.6 }, min = 1, max = 32 }"),
            "{boxes}"
        );
        let text = lines(&[
            spec("input_ids", DataType::Int64, &[-1, -1]),
            spec("attention_mask", DataType::Int64, &[-1, -1]),
        ]);
        assert!(
            text.contains("shape = [\"rows\", { same_as = \"input_ids.1\" }]"),
            "{text}"
        );
        let state = lines(&[
            spec("input", DataType::Fp32, &[-1, 512]),
            spec("state/0", DataType::Fp32, &[2, -1, 128]),
            spec("sr", DataType::Int64, &[]),
        ]);
        assert!(
            state.contains("[inputs.tensor.\"state/0\"]\nshape = [2, \"rows\", 128]"),
            "{state}"
        );
        assert!(!state.contains("tensor.sr"), "{state}");
        let vector = lines(&[spec("wave", DataType::Fp32, &[-1])]);
        assert!(!vector.contains("rows"), "a vector may be a sequence: {vector}");
        let words = lines(&[spec("t\"x", DataType::Bytes, &[-1, 1])]);
        assert!(
            words.contains("[inputs.tensor.\"t\\\"x\"]\nshape = [\"rows\", 1]\nvalues = { text"),
            "{words}"
        );
    }
}

//! Body of a step that queries a model: an infer request of the Open Inference Protocol as a template. In: a value for
//! each input, as JSON whose strings may be templates, and the model's declaration. Out: a [`Template`]. Knows no HTTP.

use super::template::{Piece, Template, Usage, Value, ValueForm, shape};
use crate::template::escape;
use anyhow::{Result, anyhow, bail};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use tierlab_protocol::metadata::ENTITY_ID;
use tierlab_protocol::tensor::{DataType, TensorSpec};

/// Creates the body with these inputs.
///
/// # Errors
/// An unknown input, a missing one, a value of another size or type, an unknown name.
pub fn body(inputs: &BTreeMap<String, Json>, specs: &[TensorSpec], names: &[String]) -> Result<Template> {
    let of_rows = TensorSpec {
        name: ENTITY_ID.into(),
        dtype: DataType::Int64,
        shape: vec![-1],
    };
    let by_ids = inputs.contains_key(ENTITY_ID);
    let mut pieces = vec![Piece::Text("{\"inputs\":[".into())];
    for (index, (name, value)) in inputs.iter().enumerate() {
        let spec = specs.iter().find(|spec| spec.name == *name);
        let Some(spec) = spec.or_else(|| (name == ENTITY_ID).then_some(&of_rows)) else {
            let valid: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
            bail!("the model has no input `{name}` (it has {})", valid.join(", "));
        };
        let between = if index > 0 { "," } else { "" };
        let mut head = format!("{between}{{\"name\":\"");
        escape(name, &mut head);
        head += &format!("\",\"datatype\":\"{}\",\"shape\":", spec.dtype);
        pieces.push(Piece::Text(head));
        pieces.extend(tensor(spec, value, names)?);
        pieces.push(Piece::Text("}".into()));
    }
    // The server reads joined inputs itself, and the metadata does not name them.
    if let Some(missing) = specs.iter().find(|spec| !by_ids && !inputs.contains_key(&spec.name)) {
        bail!("input `{}` of the model is missing", missing.name);
    }
    pieces.push(Piece::Text("]}".into()));
    Ok(Template { pieces })
}

/// Returns the shape and the data of one input.
fn tensor(spec: &TensorSpec, value: &Json, names: &[String]) -> Result<Vec<Piece>> {
    let at = |error: anyhow::Error| anyhow!("input `{}`: {error}", spec.name);
    let data = |text: &str| Piece::Text(format!(",\"data\":{text}"));
    if let Json::String(text) = value {
        let template = Template::parse(text, Usage::Path, names).map_err(at)?;
        if let Some(slot) = template.alone() {
            return Ok(vec![
                Piece::Shape {
                    slot,
                    input: spec.name.clone(),
                    declared: spec.shape.clone(),
                },
                data(""),
                Piece::Value {
                    slot,
                    form: ValueForm::List,
                },
            ]);
        }
        if spec.dtype != DataType::Bytes {
            return Err(at(anyhow!(
                "text is not valid for {}; give numbers, or one value as \"{{name}}\"",
                spec.dtype
            )));
        }
        let mut quoted = String::from("\"");
        escape(text, &mut quoted);
        quoted.push('"');
        let inside = Template::parse(&quoted, Usage::Body, names).map_err(at)?;
        let shape = shape(&spec.name, &spec.shape, 1)?;
        let mut pieces = vec![Piece::Text(format!("{shape:?}")), data("[")];
        pieces.extend(inside.pieces);
        pieces.push(Piece::Text("]".into()));
        return Ok(pieces);
    }
    if matches!(value, Json::Object(_) | Json::Null) {
        return Err(at(anyhow!("give a number, a text, or a list of them")));
    }
    let list = Json::Array(vec![value.clone()]);
    let list = if value.is_array() { value } else { &list };
    let shape = shape(&spec.name, &spec.shape, Value::of(list).elements)?;
    Ok(vec![Piece::Text(format!("{shape:?}")), data(&list.to_string())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(name: &str, dtype: DataType, shape: &[i64]) -> TensorSpec {
        TensorSpec {
            name: name.into(),
            dtype,
            shape: shape.to_vec(),
        }
    }

    fn built(inputs: Json, specs: &[TensorSpec], value: &Json) -> Result<Json> {
        let inputs: BTreeMap<String, Json> = serde_json::from_value(inputs).unwrap();
        let template = body(&inputs, specs, &["entity_id".to_owned(), "v".to_owned()])?;
        let text = template.fill(&[Some(Value::of(&json!(42))), Some(Value::of(value))])?;
        Ok(serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn inputs_become_a_request() {
        let specs = [spec("x", DataType::Fp32, &[-1, 4]), spec("t", DataType::Bytes, &[-1])];
        let request = built(json!({"x": "{v}", "t": "say \"{v}\" {{v}}"}), &specs, &json!("a"));
        // One element does not fill rows of four.
        assert!(request.unwrap_err().to_string().contains("1 elements do not fill"));
        let request = built(json!({"x": "{v}", "t": "of {entity_id}"}), &specs, &json!([1, 2, 3, 4])).unwrap();
        assert_eq!(
            request,
            json!({"inputs": [
                {"name": "t", "datatype": "BYTES", "shape": [1], "data": ["of 42"]},
                {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]},
            ]})
        );
        let request = built(json!({"entity_id": "{entity_id}"}), &specs, &json!(0)).unwrap();
        assert_eq!(
            request["inputs"][0],
            json!({"name": "entity_id", "datatype": "INT64", "shape": [1], "data": [42]})
        );
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let specs = [spec("x", DataType::Fp32, &[-1, 4])];
        for (inputs, message) in [
            (json!({"y": 1}), "no input `y` (it has x)"),
            (json!({}), "input `x` of the model is missing"),
            (json!({"x": "text"}), "text is not valid for FP32"),
            (json!({"x": [1, 2]}), "2 elements do not fill the shape [-1, 4]"),
            (json!({"x": "{w}"}), "unknown value `{w}`"),
            (json!({"x": {"a": 1}}), "give a number"),
        ] {
            let refused = built(inputs, &specs, &json!(1)).unwrap_err().to_string();
            assert!(refused.contains(message), "{refused}");
        }
    }
}

//! Inputs and outputs: their types, and their dimensions for clients and in the graph.

use crate::model::{DeclaredTensor, Reshape};
use crate::pbtxt::fields::{Once, Read, read_enum, read_false, short};
use crate::pbtxt::refusals::Refusals;
use crate::pbtxt::tree::{Field, PbtxtError, Value};
use tierlab_protocol::tensor::DataType;

pub(super) fn data_type(field: &Field) -> Result<DataType, PbtxtError> {
    let word = field.word()?;
    let name = match word {
        "TYPE_STRING" => "BYTES",
        word => word.strip_prefix("TYPE_").unwrap_or(""),
    };
    let known = name.parse().ok().filter(|_| word != "TYPE_BYTES");
    known.ok_or_else(|| field.refuse(format!("`{}` is no data type such as TYPE_FP32", short(word))))
}

pub(super) fn dimension(field: &Field) -> Result<i64, PbtxtError> {
    match field.value {
        Value::Integer(dim) if dim == -1 || dim > 0 => {
            i64::try_from(dim).map_err(|_| field.refuse("a dimension is too large"))
        }
        _ => Err(field.refuse("a dimension is at least 1, or -1 where it is free")),
    }
}

/// The dimensions that the graph has, where those that clients see are others.
fn reshape(field: &Field, refusals: &mut Refusals) -> Option<Vec<i64>> {
    let mut shape = Vec::new();
    for inner in &refusals.note(field.message())?.fields {
        match inner.name.as_str() {
            "shape" => shape.extend(refusals.note(dimension(inner))),
            _ => drop(refusals.note::<()>(Err(inner.unknown()))),
        }
    }
    Some(shape)
}

/// An input or an output; none where anything is wrong with it.
pub(super) fn tensor(field: &Field, refusals: &mut Refusals) -> Option<DeclaredTensor> {
    let mut once = Once::default();
    let (mut name, mut datatype) = (String::new(), None);
    let (mut dims, mut reshaped, mut type_given) = (Vec::new(), None, false);
    for inner in &refusals.note(field.message())?.fields {
        if inner.name == "dims" {
            dims.extend(refusals.note(dimension(inner)));
            continue;
        }
        refusals.note(once.see(inner));
        let read = match inner.name.as_str() {
            "name" => inner.text().map(|text| text.clone_into(&mut name)),
            "data_type" => {
                type_given = true;
                data_type(inner).map(|of| datatype = Some(of))
            }
            "format" => read_enum(inner, "FORMAT_NONE"),
            "is_shape_tensor" | "allow_ragged_batch" | "optional" | "is_non_linear_format_io" => read_false(inner),
            "reshape" => {
                reshaped = reshape(inner, refusals).map(|shape| (inner, shape));
                Ok(())
            }
            "label_filename" => match inner.text() {
                Ok("") => Ok(()),
                Ok(_) => Err(inner.refuse("the classification extension is not offered: remove it")),
                Err(error) => Err(error),
            },
            _ => Err(inner.unknown()),
        };
        refusals.note(read);
    }
    if name.is_empty() {
        refusals.note::<()>(Err(field.refuse("`name` is missing")));
    }
    if !type_given {
        refusals.note::<()>(Err(
            field.refuse(format!("`data_type` of `{}` is missing", short(&name)))
        ));
    }
    if let Some((at, shape)) = &reshaped {
        refusals.note(Reshape::new(&dims, shape).map_err(|what| at.refuse(what)));
    }
    Some(DeclaredTensor {
        name,
        datatype: datatype?,
        dims,
        reshape: reshaped.map(|(_, shape)| shape),
    })
}

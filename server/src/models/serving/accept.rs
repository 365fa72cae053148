//! Check of a decoded request against the graph's signature.
//!
//! In: a request. Out: its rows, its inline parts by input, and the ids to read from the feature table; or a refusal
//! that names the input. Without batching, the shapes of the inputs are independent, except that joined inputs have as
//! many rows as there are ids. No I/O.

use crate::features::ids::{EntityIds, IdKind};
use crate::inference::tensors;
use crate::models::serving::Model;
use crate::request::{Part, Refusal};
use anyhow::{Result, anyhow, bail};
use tierlab_formats::model::Signature;
use tierlab_protocol::infer::{InferRequest, RequestedOutput, Tensor};
use tierlab_protocol::metadata::ENTITY_ID;
use tierlab_protocol::tensor::{DataType, TensorSpec, element_count};

/// Request that matches its model.
#[derive(Debug)]
pub(crate) struct Accepted {
    /// Number of rows. Without batching: the number of ids, or 1 without ids.
    pub(crate) rows: usize,
    /// One per input of the graph; `None` if the feature table fills it.
    pub(crate) parts: Vec<Option<Part>>,
    /// Entity ids, one per row; empty without a join.
    pub(crate) ids: EntityIds,
}

impl Accepted {
    /// Memory needed during a run for the sent tensors, besides their own; `inputs` are the graph's.
    pub(crate) fn run_bytes(&self, inputs: &[TensorSpec]) -> usize {
        let laid_out = self.parts.iter().zip(inputs).map(|(part, input)| match part {
            Some(part) => tensors::run_bytes(input.dtype, &part.shape, part.data.len()),
            None => 0,
        });
        laid_out.fold(0, usize::saturating_add)
    }
}

/// Output requested by the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SelectedOutput {
    /// Index in the graph.
    pub(crate) index: usize,
    /// True if the output is sent as raw bytes.
    pub(crate) binary: bool,
    /// Number of classes per row to send instead of the output; 0 sends the output.
    pub(crate) classes: u64,
}

/// Model properties that a request is checked against.
pub(crate) struct RequestCheck<'a> {
    pub(crate) model: &'a str,
    pub(crate) signature: &'a Signature,
    /// Inputs that the feature table fills; `None` without a join.
    pub(crate) filled: Option<&'a dyn Fn(usize) -> bool>,
    /// Kind of entity id.
    pub(crate) id_kind: IdKind,
    /// Maximum rows of a run; 0 if the model is not batched.
    pub(crate) max_batch_size: usize,
    /// Maximum rows of a request, if batched.
    pub(crate) max_request_rows: usize,
}

impl Model {
    /// Memory that [`Model::accept`] needs for the entities of a request.
    pub(crate) fn ids_bytes(&self, inputs: &[Tensor]) -> usize {
        let is_ids = |input: &&Tensor| self.join.is_some() && input.name == ENTITY_ID;
        let id_tensors = inputs.iter().filter(is_ids).map(EntityIds::bytes_of);
        id_tensors.fold(0, usize::saturating_add)
    }

    /// Checks the inputs of a request and takes them.
    pub(crate) fn accept(&self, inputs: Vec<Tensor>) -> Result<Accepted, Refusal> {
        let fills = self.join.as_ref().map(|join| move |input| join.fills(input));
        let filled = fills.as_ref().map(|fills| fills as &dyn Fn(usize) -> bool);
        let check = RequestCheck {
            model: &self.name,
            signature: &self.signature,
            filled,
            id_kind: self.join.as_ref().map_or(IdKind::Dense, |join| join.id_kind),
            max_batch_size: self.config.max_batch_size as usize,
            max_request_rows: self.max_request_rows,
        };
        let mut accepted = check.accept(inputs)?;
        for (index, reshape) in self.reshapes.inputs.iter().enumerate() {
            if let (Some(reshape), Some(part)) = (reshape, &mut accepted.parts[index])
                && let Some(in_graph) = reshape.apply(&part.shape)
            {
                part.shape = in_graph;
            }
        }
        Ok(accepted)
    }

    /// Outputs to send.
    pub(crate) fn select_outputs(&self, request: &InferRequest) -> Result<Vec<SelectedOutput>, Refusal> {
        let (outputs, binary) = (&self.signature.outputs, request.binary_output);
        select_outputs(&self.name, outputs, &request.outputs, binary)
    }
}

impl RequestCheck<'_> {
    fn accept(&self, inputs: Vec<Tensor>) -> Result<Accepted, Refusal> {
        let specs = &self.signature.inputs;
        let mut accepted = Accepted {
            rows: 0,
            parts: vec![None; specs.len()],
            ids: EntityIds::Int64(Vec::new()),
        };
        let mut rows: Option<(usize, String)> = None;
        if inputs.is_empty() {
            return Err(Refusal::bad("`inputs` is empty"));
        }
        for tensor in inputs {
            let bad = |error: anyhow::Error| Refusal::bad(format!("input `{}`: {error}", tensor.name));
            let tensor_rows = if tensor.name == ENTITY_ID && self.filled.is_some() {
                let count = element_count(&tensor.shape).unwrap_or(usize::MAX);
                if self.signature.batched && count > self.max_request_rows {
                    self.check_rows(count, ENTITY_ID)?;
                }
                accepted.ids = EntityIds::of(&tensor, self.id_kind).map_err(bad)?;
                accepted.ids.len()
            } else {
                let index = specs.iter().position(|spec| spec.name == tensor.name);
                let index = index.ok_or_else(|| bad(anyhow!("model `{}` has {}", self.model, self.names())))?;
                fits(&specs[index], &tensor).map_err(bad)?;
                let first = self.signature.batched.then(|| tensor.shape[0]);
                accepted.parts[index] = Some(Part {
                    shape: tensor.shape,
                    data: tensor.data.into(),
                });
                match first {
                    Some(first) => usize::try_from(first).unwrap_or(usize::MAX),
                    None => continue,
                }
            };
            match &rows {
                Some((rows, first)) if *rows != tensor_rows => {
                    let name = &tensor.name;
                    let message = format!("input `{name}` has {tensor_rows} rows, but `{first}` has {rows}");
                    return Err(Refusal::bad(message));
                }
                Some(_) => {}
                None => rows = Some((tensor_rows, tensor.name)),
            }
        }
        accepted.rows = match &rows {
            Some((rows, first)) => self.check_rows(*rows, first)?,
            None => 1,
        };
        self.check_complete(&accepted)?;
        Ok(accepted)
    }

    /// Checks the number of rows; `first` is the input that has them.
    fn check_rows(&self, rows: usize, first: &str) -> Result<usize, Refusal> {
        let (model, limit) = (self.model, self.max_request_rows);
        if rows == 0 {
            return Err(Refusal::bad(format!("input `{first}` has no rows")));
        }
        if !self.signature.batched || rows <= limit {
            return Ok(rows);
        }
        // Triton's wording, which its clients may recognise.
        let mut message = format!("input `{first}`: inference request batch-size must be <= {limit} for ");
        message += &format!("'{model}', but it has {rows} rows");
        if limit == self.max_batch_size {
            message += "; set `batching.max_request_rows` in the model's config to split larger requests";
        }
        Err(Refusal::bad(message))
    }

    /// Checks that every input comes from exactly one source.
    fn check_complete(&self, accepted: &Accepted) -> Result<(), Refusal> {
        let mut joins = 0;
        for (index, (spec, part)) in self.signature.inputs.iter().zip(&accepted.parts).enumerate() {
            let joined = self.filled.is_some_and(|fills| fills(index));
            let read = joined && !accepted.ids.is_empty();
            joins += usize::from(read);
            if part.is_some() && read {
                let message = format!("input `{}` is both sent and filled by `{ENTITY_ID}`", spec.name);
                return Err(Refusal::bad(message));
            }
            let (name, ids) = (&spec.name, accepted.ids.len());
            let wanted = spec.shape.first().and_then(|&rows| usize::try_from(rows).ok());
            if let Some(wanted) = wanted.filter(|&rows| read && rows != ids) {
                let message =
                    format!("input `{ENTITY_ID}` has {ids} rows, but the model's input `{name}` requires {wanted}");
                return Err(Refusal::bad(message));
            }
            if part.is_none() && !read {
                let hint = joined.then(|| format!(" (send it, or `{ENTITY_ID}`)"));
                let message = format!("input `{name}` is missing{}", hint.unwrap_or_default());
                return Err(Refusal::bad(message));
            }
        }
        debug_assert!(joins > 0 || accepted.ids.is_empty(), "a join fills at least one input");
        Ok(())
    }

    fn names(&self) -> String {
        let inputs = self.signature.inputs.iter();
        let mut names: Vec<String> = inputs.map(|spec| format!("`{}`", spec.name)).collect();
        if self.filled.is_some() {
            names.push(format!("`{ENTITY_ID}`"));
        }
        format!("no such input; it has {}", names.join(", "))
    }
}

fn fits(spec: &TensorSpec, tensor: &Tensor) -> Result<()> {
    let (actual, required) = (tensor.dtype, spec.dtype);
    if actual != required {
        bail!("`datatype` is {actual}, but the model requires {required}");
    }
    let (actual, required) = (&tensor.shape, &spec.shape);
    let fits = |(&actual, &required): (&i64, &i64)| required < 0 || actual == required;
    if actual.len() == required.len() && actual.iter().zip(required).all(fits) {
        return Ok(());
    }
    bail!("`shape` is {actual:?}, but the model requires {required:?}")
}

fn select_outputs(
    model: &str,
    specs: &[TensorSpec],
    requested: &[RequestedOutput],
    binary: bool,
) -> Result<Vec<SelectedOutput>, Refusal> {
    let selected: Vec<SelectedOutput> = if requested.is_empty() {
        let all = |index| SelectedOutput {
            index,
            binary,
            classes: 0,
        };
        (0..specs.len()).map(all).collect()
    } else {
        let select = |output: &RequestedOutput| match specs.iter().position(|spec| spec.name == output.name) {
            Some(index) => Ok(SelectedOutput {
                index,
                binary: output.binary,
                classes: output.classes,
            }),
            None => {
                let names: Vec<String> = specs.iter().map(|spec| format!("`{}`", spec.name)).collect();
                let message = format!("output `{}`: model `{model}` has {}", output.name, names.join(", "));
                Err(Refusal::bad(message))
            }
        };
        requested.iter().map(select).collect::<Result<_, _>>()?
    };
    for &SelectedOutput { index, binary, classes } in &selected {
        let TensorSpec { name, dtype, .. } = &specs[index];
        let message = match dtype {
            DataType::Bytes if classes > 0 => {
                "`classification` requires numbers, but it is BYTES: remove `classification`".into()
            }
            DataType::Fp16 | DataType::Bf16 if !binary && classes == 0 => {
                format!("{dtype} has no JSON form: request binary data")
            }
            _ => continue,
        };
        return Err(Refusal::bad(format!("output `{name}`: {message}")));
    }
    Ok(selected)
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

    fn tensor(name: &str, dtype: DataType, shape: &[i64]) -> Tensor {
        let count: i64 = shape.iter().product();
        let data = vec![1; count as usize * dtype.size().unwrap()].into();
        Tensor {
            name: name.into(),
            dtype,
            shape: shape.to_vec(),
            data,
        }
    }

    fn signature(batched: bool) -> Signature {
        Signature {
            inputs: vec![
                spec("dense", DataType::Fp32, &[-1, 13]),
                spec("user", DataType::Int64, &[-1, 2]),
            ],
            outputs: vec![
                spec("y", DataType::Fp32, &[-1, 1]),
                spec("half", DataType::Fp16, &[-1, 1]),
            ],
            batched,
        }
    }

    /// `dense` is joined, `user` is not.
    fn accept(joined: bool, inputs: Vec<Tensor>) -> Result<Accepted, Refusal> {
        let fills = |input: usize| input == 0;
        let filled = joined.then_some(&fills as &dyn Fn(usize) -> bool);
        RequestCheck {
            model: "m",
            signature: &signature(true),
            filled,
            id_kind: IdKind::Dense,
            max_batch_size: 4,
            max_request_rows: 8,
        }
        .accept(inputs)
    }

    /// An unbatched model: `a` [-1, 13] is joined, `b` [-1, -1] and `c` [4, 2] are not.
    fn accept_unbatched(inputs: Vec<Tensor>) -> Result<Accepted, Refusal> {
        let fills = |input: usize| input == 0;
        let signature = Signature {
            inputs: vec![
                spec("a", DataType::Fp32, &[-1, 13]),
                spec("b", DataType::Fp32, &[-1, -1]),
                spec("c", DataType::Fp32, &[4, 2]),
            ],
            outputs: vec![spec("y", DataType::Fp32, &[-1])],
            batched: false,
        };
        RequestCheck {
            model: "m",
            signature: &signature,
            filled: Some(&fills),
            id_kind: IdKind::Dense,
            max_batch_size: 0,
            max_request_rows: 0,
        }
        .accept(inputs)
    }

    #[test]
    fn without_batches_first_dimensions_have_nothing_to_do_with_each_other() {
        let others = || {
            [
                tensor("b", DataType::Fp32, &[0, 7]),
                tensor("c", DataType::Fp32, &[4, 2]),
            ]
        };
        let with = |input: Tensor| accept_unbatched(others().into_iter().chain([input]).collect());
        assert_eq!(with(tensor("a", DataType::Fp32, &[9000, 13])).unwrap().rows, 1);
        let joined = with(tensor("entity_id", DataType::Int64, &[9000])).unwrap();
        assert_eq!((joined.rows, joined.ids.len()), (9000, 9000));
        let none = with(tensor("entity_id", DataType::Int64, &[0])).unwrap_err();
        assert!(none.message.contains("no rows"), "{none}");
        let misfit = with(tensor("c", DataType::Fp32, &[3, 2])).unwrap_err();
        assert!(misfit.message.contains("`shape` is [3, 2]"), "{misfit}");
        assert!(accept_unbatched(Vec::new()).unwrap_err().message.contains("empty"));
    }

    #[test]
    fn ids_stand_for_joined_inputs() {
        let user = || tensor("user", DataType::Int64, &[3, 2]);
        for ids in [
            tensor("entity_id", DataType::Int64, &[3]),
            tensor("entity_id", DataType::Int64, &[3, 1]),
        ] {
            let accepted = accept(true, vec![user(), ids]).unwrap();
            assert_eq!(accepted.rows, 3);
            assert_eq!(accepted.ids, EntityIds::Int64(vec![0x0101_0101_0101_0101; 3]));
            assert!(accepted.parts[0].is_none() && accepted.parts[1].is_some());
        }
        let inline = accept(true, vec![user(), tensor("dense", DataType::Fp32, &[3, 13])]).unwrap();
        assert!(inline.ids.is_empty() && inline.parts[0].is_some());
    }

    #[test]
    #[allow(clippy::too_many_lines, reason = "a table of cases")]
    fn misfits_are_refused_by_input() {
        let dense = || tensor("dense", DataType::Fp32, &[3, 13]);
        let user = || tensor("user", DataType::Int64, &[3, 2]);
        let ids = || tensor("entity_id", DataType::Int64, &[3]);
        for (joined, inputs, named) in [
            (false, vec![dense()], "input `user` is missing"),
            (true, vec![user()], "input `dense` is missing (send it, or `entity_id`)"),
            (
                false,
                vec![dense(), user(), tensor("x", DataType::Int8, &[3])],
                "input `x`",
            ),
            (
                false,
                vec![ids(), user()],
                "input `entity_id`: model `m` has no such input",
            ),
            (true, vec![ids(), user(), dense()], "input `dense` is both sent"),
            (
                true,
                vec![tensor("entity_id", DataType::Int32, &[3]), user()],
                "input `entity_id`: INT32",
            ),
            (
                true,
                vec![tensor("entity_id", DataType::Int64, &[3, 2]), user()],
                "input `entity_id`: INT64 [3, 2]",
            ),
            (
                true,
                vec![tensor("entity_id", DataType::Int64, &[0]), user()],
                "has 3 rows",
            ),
            (
                true,
                vec![tensor("entity_id", DataType::Int64, &[2]), user()],
                "input `user` has 3 rows, but `entity_id` has 2",
            ),
            (
                false,
                vec![tensor("dense", DataType::Fp64, &[3, 13]), user()],
                "input `dense`: `datatype` is FP64",
            ),
            (
                false,
                vec![tensor("dense", DataType::Fp32, &[3, 14]), user()],
                "input `dense`: `shape` is [3, 14]",
            ),
            (
                false,
                vec![tensor("dense", DataType::Fp32, &[13]), user()],
                "input `dense`: `shape` is [13]",
            ),
            (
                false,
                vec![
                    tensor("dense", DataType::Fp32, &[9, 13]),
                    tensor("user", DataType::Int64, &[9, 2]),
                ],
                "batch-size must be <= 8 for 'm', but it has 9 rows",
            ),
            (
                false,
                vec![
                    tensor("dense", DataType::Fp32, &[0, 13]),
                    tensor("user", DataType::Int64, &[0, 2]),
                ],
                "no rows",
            ),
        ] {
            let refusal = accept(joined, inputs).unwrap_err();
            assert!(refusal.message.contains(named), "{refusal}\n  should say {named}");
        }
    }

    #[test]
    fn outputs_are_selected_by_name_and_half_floats_only_as_binary() {
        let outputs = signature(true).outputs;
        let wanted = |name: &str, binary| RequestedOutput {
            name: name.into(),
            binary,
            classes: 0,
        };
        let selected = |outputs: &[(usize, bool)]| -> Vec<SelectedOutput> {
            let outputs = outputs.iter();
            outputs
                .map(|&(index, binary)| SelectedOutput {
                    index,
                    binary,
                    classes: 0,
                })
                .collect()
        };
        assert_eq!(
            select_outputs("m", &outputs, &[], true).unwrap(),
            selected(&[(0, true), (1, true)])
        );
        let both = [wanted("half", true), wanted("y", false)];
        assert_eq!(
            select_outputs("m", &outputs, &both, false).unwrap(),
            selected(&[(1, true), (0, false)])
        );
        let refusal = |wanted: &[RequestedOutput], binary| select_outputs("m", &outputs, wanted, binary).unwrap_err();
        assert!(refusal(&[], false).message.contains("output `half`"));
        assert!(refusal(&[wanted("z", true)], true).message.contains("output `z`"));
        let classes = |name: &str| RequestedOutput {
            classes: 2,
            ..wanted(name, false)
        };
        let texts = [
            spec("half", DataType::Fp16, &[-1]),
            spec("text", DataType::Bytes, &[-1]),
        ];
        let select_one = |name: &str| select_outputs("m", &texts, &[classes(name)], false);
        assert_eq!(select_one("half").unwrap()[0].classes, 2, "classes are texts");
        let refused = select_one("text").unwrap_err();
        assert!(refused.message.contains("output `text`: `classification`"), "{refused}");
    }
}

//! Inputs and outputs of a model's graph, checked against its config and its manifest.
//!
//! In: the tensors of a session, as reported by a runtime; the config; the manifest. Out: the served signature, or the first
//! mismatch, by tensor. Server and import use the same check, so that the server can serve what the import accepts.

use super::Manifest;
use super::config::{DeclaredTensor, ModelConfig, Reshape};
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use tierlab_protocol::infer::{MAX_NAME_BYTES, MAX_RANK, MAX_TENSORS};
use tierlab_protocol::metadata::ENTITY_ID;
use tierlab_protocol::tensor::{DataType, TensorSpec};

/// Inputs and outputs of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// Inputs, in the graph's order.
    pub inputs: Vec<TensorSpec>,
    /// Outputs, in the graph's order.
    pub outputs: Vec<TensorSpec>,
    /// True if the model's config makes the first dimension of every input and output a batch of rows, so that requests can
    /// share a run.
    pub batched: bool,
}

/// Input or output of a session, as reported by the runtime.
#[derive(Debug, Clone)]
pub struct SessionTensor {
    /// Name of the tensor.
    pub name: String,
    /// Data type; `None` if the protocol does not have it.
    pub dtype: Option<DataType>,
    /// Type as written by the runtime.
    pub type_name: String,
    /// Dimensions; a free one is negative.
    pub shape: Vec<i64>,
    /// Names of the free dimensions, if they have any.
    pub symbols: Vec<String>,
}

/// Shape differences between a served model and its graph.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reshapes {
    /// Maps of the inputs, from the shapes of clients to those of the graph.
    pub inputs: Vec<Option<Reshape>>,
    /// Maps of the outputs, from the shapes of the graph to those of clients.
    pub outputs: Vec<Option<Reshape>>,
}

/// Input that is read from a feature table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinedColumn {
    /// Index of the input in the graph.
    pub input: usize,
    /// Column of the table.
    pub column: String,
}

impl Signature {
    /// Returns the signature of a session.
    ///
    /// # Errors
    /// A tensor that the protocol cannot carry, by name; no inputs or no outputs; with `max_batch_size`, a tensor
    /// without a batch dimension.
    pub fn of_session(inputs: &[SessionTensor], outputs: &[SessionTensor], max_batch_size: u32) -> Result<Self> {
        let signature = Self {
            inputs: inputs.iter().map(spec).collect::<Result<_, _>>()?,
            outputs: outputs.iter().map(spec).collect::<Result<_, _>>()?,
            batched: max_batch_size > 0,
        };
        if inputs.is_empty() || outputs.is_empty() {
            bail!("the graph has no inputs or no outputs");
        }
        let count = inputs.len().max(outputs.len());
        ensure!(
            count <= MAX_TENSORS,
            "the graph has {count} inputs or outputs; the limit of a request is {MAX_TENSORS}"
        );
        if signature.batched {
            check_batch_axis(inputs, outputs).map_err(|what| {
                anyhow!(
                    "the config sets `max_batch_size` = {max_batch_size}, but {what}, so its rows are not a batch: remove \
                     `max_batch_size` to serve it unbatched"
                )
            })?;
        }
        Ok(signature)
    }

    /// Checks the signature against the model's manifest. A dimension that is free on one side fits any size, because
    /// runtimes differ in the dimensions that they infer.
    ///
    /// # Errors
    /// The first tensor that is missing on one side or differs in type or shape, with both sides.
    pub fn check_manifest(&self, manifest: &Manifest) -> Result<()> {
        for (role, listed, found) in [
            ("input", &manifest.inputs, &self.inputs),
            ("output", &manifest.outputs, &self.outputs),
        ] {
            for spec in listed {
                let named = found.iter().find(|found| found.name == spec.name);
                let found = named.with_context(|| only_in(role, spec, "manifest", "graph"))?;
                if !is_compatible(spec, found) {
                    bail!(
                        "{role} `{}` is {} {:?} in the manifest and {} {:?} in the graph: import or generate the model again",
                        spec.name,
                        spec.dtype,
                        spec.shape,
                        found.dtype,
                        found.shape
                    );
                }
            }
            let is_listed = |found: &TensorSpec| listed.iter().any(|spec| spec.name == found.name);
            if let Some(spec) = found.iter().find(|found| !is_listed(found)) {
                bail!(only_in(role, spec, "graph", "manifest"));
            }
        }
        Ok(())
    }

    /// Applies the config's declarations: free dimensions are narrowed to those declared, and reshaped tensors get the
    /// dimensions that clients see.
    ///
    /// # Errors
    /// A declared tensor that is not in the graph, or differs in type or dimensions, by name.
    pub fn declare(&mut self, config: &ModelConfig) -> Result<Reshapes> {
        let batched = self.batched;
        let mut reshapes = Reshapes {
            inputs: vec![None; self.inputs.len()],
            outputs: vec![None; self.outputs.len()],
        };
        for (role, declared, specs, reshapes) in [
            ("input", &config.inputs, &mut self.inputs, &mut reshapes.inputs),
            ("output", &config.outputs, &mut self.outputs, &mut reshapes.outputs),
        ] {
            for tensor in declared {
                let name = &tensor.name;
                let Some(index) = specs.iter().position(|spec| spec.name == *name) else {
                    let have: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
                    let have = have.join(", ");
                    bail!("the config declares {role} `{name}`, the graph has {have}");
                };
                let reshape = declare_tensor(tensor, &mut specs[index], batched, role == "output");
                reshapes[index] = reshape.map_err(|what| anyhow!("{role} `{name}`: {what}"))?;
            }
        }
        Ok(reshapes)
    }

    /// Returns the inputs to read from a feature table, in the graph's order.
    ///
    /// # Errors
    /// An input that is not in the graph or does not have a dimension for the rows; two tables; a graph input with the
    /// name of the ids' tensor.
    pub fn joined(&self, config: &ModelConfig) -> Result<Vec<JoinedColumn>> {
        let Some(first) = config.joined.values().next() else {
            return Ok(Vec::new());
        };
        if self.inputs.iter().any(|input| input.name == ENTITY_ID) {
            bail!("the graph has an input `{ENTITY_ID}`, which is the name of the ids of joined inputs: rename it");
        }
        let mut wanted = Vec::new();
        for (name, joined) in &config.joined {
            if joined.table != first.table {
                let (one, other) = (&first.table, &joined.table);
                bail!("joined inputs of a model must be from one table, not from `{one}` and `{other}`");
            }
            let input = self.inputs.iter().position(|input| input.name == *name);
            let input = input.with_context(|| format!("`joined.{name}`: the graph has no such input"))?;
            if self.inputs[input].shape.is_empty() {
                bail!("`joined.{name}`: the input has no dimension for the rows");
            }
            let mut declared = config.inputs.iter().filter(|declared| declared.name == *name);
            if declared.any(|declared| declared.reshape.is_some()) {
                bail!("`joined.{name}`: a joined input cannot be reshaped");
            }
            wanted.push(JoinedColumn {
                input,
                column: joined.column.clone().unwrap_or_else(|| name.clone()),
            });
        }
        wanted.sort_unstable_by_key(|column| column.input);
        Ok(wanted)
    }
}

fn spec(tensor: &SessionTensor) -> Result<TensorSpec> {
    let (name, rank) = (&tensor.name, tensor.shape.len());
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        let (head, len): (String, usize) = (name.chars().take(40).collect(), name.len());
        bail!("the tensor name `{head}` has {len} bytes; a request allows 1 to {MAX_NAME_BYTES}: rename it");
    }
    ensure!(
        rank <= MAX_RANK,
        "`{name}` has {rank} dimensions; the limit of a request is {MAX_RANK}"
    );
    let unsupported = || {
        let type_name = &tensor.type_name;
        let hint = match type_name.contains("Map") {
            true => " (scikit-learn: `to_onnx(model, X, options={'zipmap': False})`)",
            false => "",
        };
        format!(
            "`{name}` is {type_name}, which the Open Inference Protocol does not support: export it as a tensor of another type{hint}"
        )
    };
    Ok(TensorSpec {
        name: name.clone(),
        dtype: tensor.dtype.with_context(unsupported)?,
        shape: tensor.shape.clone(),
    })
}

/// Name prefix that tf2onnx (`make_onnx_shape`) and ONNX's shape inference give to unknown dimensions, followed by a number.
/// Two such dimensions may be equal.
const UNKNOWN_DIM_PREFIX: &str = "unk__";

/// Checks that the first dimensions of a graph's tensors can be one batch axis. Dimensions with one name (ONNX's
/// `dim_param`) have one size; without names, the graph does not show it. It never shows if its rows are independent.
///
/// # Errors
/// The first tensor whose first dimension is missing, fixed, or named differently from the first named one.
pub fn check_batch_axis(inputs: &[SessionTensor], outputs: &[SessionTensor]) -> Result<()> {
    let inputs = inputs.iter().map(|tensor| ("input", tensor));
    let outputs = outputs.iter().map(|tensor| ("output", tensor));
    let mut batch: Option<(&str, &str, &str)> = None;
    for (role, tensor) in inputs.chain(outputs) {
        let (name, shape, symbols) = (&tensor.name, &tensor.shape, &tensor.symbols);
        let symbol = match shape.first() {
            None => bail!("{role} `{name}` has no first dimension"),
            Some(size @ 0..) => bail!("the first dimension of {role} `{name}` is fixed at {size}"),
            Some(_) => symbols.first().map_or("", String::as_str),
        };
        if symbol.is_empty() || symbol.starts_with(UNKNOWN_DIM_PREFIX) {
            continue;
        }
        let (other_role, other, batch) = *batch.get_or_insert((role, name.as_str(), symbol));
        ensure!(
            batch == symbol,
            "the first dimension of {role} `{name}` is `{symbol}`, that of {other_role} `{other}` is `{batch}`"
        );
    }
    Ok(())
}

/// True if two descriptions can be of one tensor.
fn is_compatible(one: &TensorSpec, other: &TensorSpec) -> bool {
    let mut dims = one.shape.iter().zip(&other.shape);
    one.dtype == other.dtype
        && one.shape.len() == other.shape.len()
        && dims.all(|(&one, &other)| one < 0 || other < 0 || one == other)
}

fn only_in(role: &str, spec: &TensorSpec, present: &str, absent: &str) -> String {
    format!(
        "{role} `{}`, {} {:?}, is in the {present} and not in the {absent}: import or generate the model again",
        spec.name, spec.dtype, spec.shape
    )
}

fn declare_tensor(
    declared: &DeclaredTensor,
    spec: &mut TensorSpec,
    batched: bool,
    is_output: bool,
) -> Result<Option<Reshape>> {
    if declared.datatype != spec.dtype {
        let (wanted, found) = (declared.datatype, spec.dtype);
        bail!("the config declares {wanted}, the graph has {found}");
    }
    let batch = usize::from(batched).min(spec.shape.len());
    let in_graph = declared.reshape.as_ref().unwrap_or(&declared.dims);
    let row_dims = spec.shape.get_mut(batch..).unwrap_or_default();
    // An output may be free in the config and fixed in the graph, if the runtime infers more than the exporter wrote.
    let dim_fits = |declared: i64, have: i64| have < 0 || declared == have || (is_output && declared < 0);
    let mut dims = in_graph.iter().zip(&*row_dims);
    if in_graph.len() != row_dims.len() || !dims.all(|(&declared, &have)| dim_fits(declared, have)) {
        let prefix = if batched { "after the batch dimension " } else { "" };
        let reshaped = declared.reshape.as_ref().map_or("", |_| " after `reshape`");
        bail!("the config declares dimensions {in_graph:?}{reshaped}, the graph has {prefix}{row_dims:?}");
    }
    if declared.reshape.is_none() {
        for (have, &declared) in row_dims.iter_mut().zip(in_graph) {
            if declared >= 0 {
                *have = declared;
            }
        }
        return Ok(None);
    }
    let with_batch = |dims: &[i64]| [&spec.shape[..batch], dims].concat();
    let (client_shape, graph_shape) = (with_batch(&declared.dims), with_batch(in_graph));
    let (from, to) = if is_output {
        (&graph_shape, &client_shape)
    } else {
        (&client_shape, &graph_shape)
    };
    let reshape = Reshape::new(from, to)?;
    spec.shape = client_shape;
    Ok(Some(reshape))
}

#[cfg(test)]
mod tests;

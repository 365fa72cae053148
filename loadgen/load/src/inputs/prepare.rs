//! Bodies of a step in the order of sending, with their statistics.
//!
//! In: inputs, a form, a seed. Out: bodies with the expectations for their replies. Bounded in number and bytes: bodies
//! repeat if a step has more requests, and the result gives the number of different ones.

use super::draw::Slot;
use super::resolved::{Inputs, RowsBy, Source};
use super::rule::{Dim, Order, Values};
use super::sent::Fact;
use crate::keys::{Population, zipf_ranks};
use crate::payload::{Body, Encoding, Form};
use crate::reply::{Expected, OutputValues, ReplyValues, ShapeFit, WantedReply};
use anyhow::{Result, anyhow, bail};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::sync::Arc;
use tierlab_analysis::record::SentRequests;
use tierlab_protocol::infer::{InferRequest, Tensor};
use tierlab_protocol::tensor::{DataType, TensorSpec};

/// Maximum bytes of the different bodies of a step, except the first.
const BODIES_BYTES: usize = 128 << 20;
/// Maximum number of different generated bodies of a step.
const GENERATED_BODIES: usize = 4_096;
/// Maximum number of different generated bodies if the plan does not describe inputs.
const DEFAULT_BODIES: usize = 64;
/// Random stream of orders, separate from that of bodies.
const ORDER_STREAM: u64 = 3;

/// Requests to prepare.
#[derive(Debug, Clone, Copy)]
pub struct Demand<'a> {
    /// Encoding of requests.
    pub form: Form<'a>,
    /// Rows of the load: 1 in real-time mode.
    pub rows: u32,
    /// Requests of the step.
    pub requests: usize,
    /// Seed of shapes, values and order.
    pub seed: u64,
    /// Entities that the server joins; absent if it joins none.
    pub entities: Option<Entities<'a>>,
}

/// Entities of a step's requests.
#[derive(Debug, Clone, Copy)]
pub struct Entities<'a> {
    /// Population that the entities are drawn from.
    pub population: &'a Population,
    /// Ids of entities: one for each row of each request.
    pub ids: &'a [i64],
}

/// Bodies of a step.
#[derive(Debug)]
pub struct Prepared {
    /// Bodies in the order of sending, repeated as needed.
    pub bodies: Vec<Body>,
    /// Statistics of the requests.
    pub sent: SentRequests,
}

impl Inputs {
    /// Builds a step's bodies.
    ///
    /// # Errors
    /// Values that cannot be encoded, do not fit the model, or lack rows that the load needs; in words for the plan's
    /// author.
    pub fn prepare(&self, demand: &Demand<'_>) -> Result<Prepared> {
        self.check_form(demand.form)?;
        let (model, rows) = (&self.model, demand.rows);
        if rows > 1 && demand.entities.is_none() && !self.accepts_rows() {
            bail!(
                "`load`: no dimension of the inputs of model `{model}` takes a batch of {rows} rows; write \"rows\" \
                 for one in `inputs.tensor.NAME.shape`, or measure mode \"realtime\" only (`inputs.rows_per_request` \
                 sets the inferences per request)"
            );
        }
        let distinct = self.distinct(demand);
        let mut rng = ChaCha8Rng::seed_from_u64(demand.seed);
        let mut expected_by_rows: BTreeMap<Option<u32>, Arc<Expected>> = BTreeMap::new();
        let (mut bodies, mut facts, mut bytes) = (Vec::new(), Vec::new(), 0);
        while bodies.len() < distinct && (bodies.is_empty() || bytes < BODIES_BYTES) {
            let (body, fact) = self.build_body(demand, bodies.len(), &mut rng, &mut expected_by_rows)?;
            bytes += body.bytes.len();
            bodies.push(body);
            facts.push(fact);
        }
        let sent = self.sent(&bodies, &facts);
        Ok(Prepared {
            bodies: self.ordered(bodies, demand),
            sent,
        })
    }

    /// Returns the expected reply to a request of `rows` rows.
    pub fn expected(&self, rows: u32) -> Expected {
        self.expected_rows(Some(rows).filter(|_| self.rows_by != RowsBy::Unknown))
    }

    /// Returns the expected reply with these rows; `None` leaves first dimensions free.
    fn expected_rows(&self, rows: Option<u32>) -> Expected {
        let fit = |name: &str| self.shape_fits.get().and_then(|shape_fits| shape_fits.get(name));
        Expected::of_rows(&self.model, &self.outputs, |name| rows.filter(|_| fit(name).is_none()))
            .with_any_shape(|name| fit(name) == Some(&ShapeFit::Other))
    }

    /// Rejects types that JSON cannot represent.
    fn check_form(&self, form: Form<'_>) -> Result<()> {
        if form != Form::Http(Encoding::Json) {
            return Ok(());
        }
        let is_binary = |dtype: DataType| matches!(dtype, DataType::Fp16 | DataType::Bf16);
        let inputs = self.wanted.iter().map(|want| ("input", &want.spec));
        let outputs = self.outputs.iter().map(|spec| ("output", spec));
        match inputs.chain(outputs).find(|(_, spec)| is_binary(spec.dtype)) {
            None => Ok(()),
            Some((role, TensorSpec { name, dtype, .. })) => Err(anyhow!(
                "`encoding`: {role} `{name}` of model `{}` is {dtype}, which JSON cannot represent; write \
                 `encoding = \"binary\"` at the top of the plan, or `protocol = \"grpc\"`",
                self.model
            )),
        }
    }

    /// Returns the maximum number of different requests.
    fn distinct(&self, demand: &Demand<'_>) -> usize {
        let rows = demand.rows as usize;
        let windows = |count: usize| (count / gcd(count, rows)).max(1);
        let recorded = self.recorded.as_deref().map(|typed| {
            let is_whole = typed.iter().any(|typed| typed.whole.is_some());
            if is_whole { typed.len() } else { windows(typed.len()) }
        });
        let files = self.wanted.iter().filter_map(|want| match &want.source {
            Source::Generated {
                values: Values::File(records),
                ..
            } => Some(windows(records.count())),
            _ => None,
        });
        let is_random = self.wanted.iter().any(|want| match &want.source {
            Source::Recorded => false,
            Source::Generated { dims, values, .. } => {
                let constant = matches!(values, Values::Zeros | Values::File(_));
                let fixed = dims.iter().flatten().all(Dim::is_constant);
                !constant || !fixed
            }
        });
        let generated = match (is_random, self.is_planned) {
            (false, _) => 1,
            (true, true) => GENERATED_BODIES,
            (true, false) => DEFAULT_BODIES,
        };
        let count = files.chain(recorded).fold(generated, usize::max);
        let count = demand.entities.map_or(count, |_| demand.requests.max(1));
        match self.order {
            Order::Sequential => count.min(demand.requests.max(1)),
            // A random order may use any of them.
            Order::Shuffled | Order::Zipf { .. } => count,
        }
    }

    fn build_body(
        &self,
        demand: &Demand<'_>,
        index: usize,
        rng: &mut ChaCha8Rng,
        expected_by_rows: &mut BTreeMap<Option<u32>, Arc<Expected>>,
    ) -> Result<(Body, Fact)> {
        let typed = self.recorded.as_deref().map(|typed| &typed[index % typed.len()]);
        if let Some((typed, whole)) = typed.and_then(|typed| Some((typed, typed.whole.as_ref()?))) {
            return self.reuse(whole, &typed.expected, demand);
        }
        let slot = Slot {
            index,
            rows: demand.rows,
        };
        let mut tensors = self.draw(slot, rng)?;
        let (rows, reply_rows) = if let Some(Entities { population, ids }) = demand.entities {
            let begin = index * demand.rows as usize;
            let ids = ids.get(begin..begin + demand.rows as usize).unwrap_or_default();
            tensors.insert(0, population.tensor(ids));
            (demand.rows, Some(demand.rows))
        } else {
            let rows = self.rows_of(&tensors, demand.rows);
            (rows, self.reply_rows(&tensors, rows))
        };
        let fact = Fact::of(rows, &tensors);
        if demand.form == Form::Http(Encoding::Json)
            && let Some(tensor) = tensors.iter().find(|tensor| !tensor.has_json_form())
        {
            bail!(
                "`encoding`: input `{}` holds bytes that are not UTF-8, which JSON cannot represent; write \
                 `encoding = \"binary\"`, or `protocol = \"grpc\"`",
                tensor.name
            );
        }
        let request = InferRequest {
            inputs: tensors,
            binary_output: demand.form == Form::Http(Encoding::Binary),
            ..InferRequest::default()
        };
        let mut body = Body::encode(request, demand.form);
        let structure = expected_by_rows.entry(reply_rows);
        let structure = structure.or_insert_with(|| Arc::new(self.expected_rows(reply_rows)));
        body.wanted = self.wanted(Arc::clone(structure), self.values(index, demand.rows), demand.seed);
        Ok((body, fact))
    }

    /// Builds a request from a whole recorded one: unchanged, or in another form.
    fn reuse(&self, body: &bytes::Bytes, values: &[OutputValues], demand: &Demand<'_>) -> Result<(Body, Fact)> {
        let mut request = InferRequest::decode(&body.clone().into(), None)?;
        let rows = self.rows_of(&request.inputs, demand.rows);
        let names: Vec<String> = request.outputs.iter().map(|output| output.name.clone()).collect();
        let reply_rows = self.reply_rows(&request.inputs, rows);
        let structure = Arc::new(self.expected_rows(reply_rows).only(&names));
        let fact = Fact::of(rows, &request.inputs);
        request.binary_output = true;
        let mut body = match demand.form {
            Form::Http(Encoding::Json) => Body::new(body.clone()),
            form => Body::encode(request, form),
        };
        body.wanted = self.wanted(structure, values.to_vec(), demand.seed);
        Ok((body, fact))
    }

    fn wanted(&self, structure: Arc<Expected>, values: Vec<OutputValues>, seed: u64) -> Option<Arc<WantedReply>> {
        let valued = self.check.as_ref().filter(|_| !values.is_empty()).map(|check| {
            let values = ReplyValues {
                outputs: values,
                tolerance: check.tolerance,
            };
            (Arc::new(structure.as_ref().clone().with_values(values)), check.share)
        });
        Some(Arc::new(WantedReply::new(structure, valued, seed)))
    }

    /// Returns the expected output values of a request; empty if unknown.
    fn values(&self, index: usize, rows: u32) -> Vec<OutputValues> {
        let Some(check) = &self.check else { return Vec::new() };
        let rows = rows as usize;
        let arrays = check.arrays.iter().map(|(spec, records)| {
            // Records of rows, or of whole outputs.
            let is_whole = records.get(0).0.len() == spec.shape.len();
            let (first, count) = if is_whole { (index, 1) } else { (index * rows, rows) };
            OutputValues {
                name: spec.name.clone(),
                dtype: spec.dtype,
                data: records.bytes(first..first + count),
            }
        });
        let mut values: Vec<OutputValues> = arrays.collect();
        if let Some(typed) = self.recorded.as_deref().filter(|_| values.is_empty()) {
            for row in 0..rows {
                for output in typed[(index * rows + row) % typed.len()].expected.iter() {
                    match values.iter_mut().find(|existing| existing.name == output.name) {
                        Some(existing) => existing.data.extend_from_slice(&output.data),
                        None => values.push(output.clone()),
                    }
                }
            }
        }
        values
    }

    fn rows_of(&self, tensors: &[Tensor], of_load: u32) -> u32 {
        let first = tensors.iter().find_map(|tensor| tensor.shape.first());
        match self.rows_by {
            RowsBy::Unknown => 1,
            RowsBy::Plan if self.recorded.is_none() => of_load,
            _ => first.and_then(|rows| u32::try_from(*rows).ok()).unwrap_or(of_load),
        }
    }

    /// Returns the rows of the reply to a request: its own rows, or the size shared by the free first dimensions of its
    /// inputs.
    fn reply_rows(&self, tensors: &[Tensor], rows: u32) -> Option<u32> {
        if matches!(self.rows_by, RowsBy::Server | RowsBy::Plan) {
            return Some(rows);
        }
        let is_free = |name: &str| {
            let mut specs = self.wanted.iter().map(|want| &want.spec);
            specs.any(|spec| spec.name == name && spec.shape.first().is_some_and(|dim| *dim < 0))
        };
        let free = tensors.iter().filter(|tensor| is_free(&tensor.name));
        let mut firsts = free.filter_map(|tensor| tensor.shape.first());
        let first = firsts.next()?;
        let is_shared = firsts.all(|other| other == first);
        u32::try_from(*first).ok().filter(|_| is_shared)
    }

    /// Returns the bodies in the order of sending; a body is shared, not copied.
    fn ordered(&self, bodies: Vec<Body>, demand: &Demand<'_>) -> Vec<Body> {
        let mut rng = ChaCha8Rng::seed_from_u64(demand.seed);
        rng.set_stream(ORDER_STREAM);
        let requests = demand.requests.max(1);
        match self.order {
            Order::Sequential => bodies,
            Order::Shuffled => {
                let mut order = Vec::with_capacity(requests + bodies.len());
                while order.len() < requests {
                    let mut round: Vec<usize> = (0..bodies.len()).collect();
                    round.shuffle(&mut rng);
                    order.extend(round);
                }
                order.iter().map(|index| bodies[*index].clone()).collect()
            }
            Order::Zipf { exponent } => {
                let ranks = zipf_ranks(bodies.len() as u64, exponent, &mut rng);
                ranks.take(requests).map(|rank| bodies[rank as usize].clone()).collect()
            }
        }
    }
}

const fn gcd(a: usize, b: usize) -> usize {
    let (mut a, mut b) = (a, b);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    if a == 0 { 1 } else { a }
}

//! Checks every part of the replies to a few requests, before a target is measured.

use super::requests::route;
use super::target::{Content, Target, until_accepted};
use crate::error::RunError;
use crate::plan::Plan;
use crate::server::control;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tierlab_load::custom::Custom;
use tierlab_load::driver::Route;
use tierlab_load::inputs::{Demand, Entities, Inputs, RowsBy};
use tierlab_load::keys::Population;
use tierlab_load::payload::{Body, Protocol};
use tierlab_load::reply::{Expected, Limit, ShapeFit};
use tierlab_protocol::infer::InferReply;
use tierlab_protocol::tensor::TensorSpec;

/// Number of different single-row requests sent if the server does not declare the rows' dimension.
const PROBED_REQUESTS: usize = 3;
/// Rows of one more request, if a request can have several.
const PROBED_ROWS: u32 = 2;
/// Maximum replies to one request. One reply of the expected shape is enough: a server that answers half of its
/// requests wrongly is taken for one with outputs of another shape once in 2^8 runs.
const MAX_REPLIES: u32 = 8;
/// Time after which a request is not repeated.
const REPEAT_LIMIT: Duration = Duration::from_secs(5);

/// Sends requests and checks every part of the replies, for which steps have no time, including the values if they are
/// known. Returns notes on outputs whose shapes differ from the model's declaration. If the server does not declare the
/// rows' dimension, further requests show which outputs have a row for each; steps leave the first dimension of the
/// others free.
///
/// # Errors
/// No server, an error reply, requests that cannot be built, or outputs without a row for the requested row.
pub async fn check_reply(plan: &Plan, target: &Target, model: &str) -> Result<Vec<String>, RunError> {
    let check = Check { plan, target, model };
    match target.content_of(model) {
        Content::Joined(population) => {
            check.check_ids(population)?;
            let form = plan.form(model, target.control.model_version());
            let body = population.body(&[population.by_rank(0)], form);
            // Its rows are checked below, with an error that names the expected ones.
            let expected = Expected::new(model, check.declared(), None);
            let reply = until_accepted(|| check.request(&body, &expected)).await?;
            check.check_one_row(&reply)?;
            Ok(Vec::new())
        }
        Content::Custom { custom, ids } => {
            until_accepted(|| check.custom(custom, ids.as_ref())).await?;
            Ok(Vec::new())
        }
        Content::Inline(inputs) if inputs.is_empty() => Err(RunError::Usage(format!(
            "{}: the server does not report the inputs of `{model}`, so no request can be built; send the plan's own \
             bodies: `[target] kind = \"http\"` with `path` = \"/v2/models/{model}/infer\" and `body`",
            target.control.base
        ))),
        Content::Inline(inputs) => check.inline(inputs, None).await,
        Content::Mixed(population, inputs) => {
            check.check_ids(population)?;
            check.inline(inputs, Some(population)).await
        }
    }
}

/// Outputs by name that never had the expected shape, with the nearest shape received.
type Unmet = BTreeMap<String, (ShapeFit, Vec<i64>)>;

/// Check of one model of a target.
#[derive(Clone, Copy)]
struct Check<'a> {
    plan: &'a Plan,
    target: &'a Target,
    model: &'a str,
}

impl Check<'_> {
    /// Declared outputs of the model.
    fn declared(&self) -> &[TensorSpec] {
        self.target.outputs.get(self.model).map_or(&[], Vec::as_slice)
    }

    fn check_ids(&self, population: &Population) -> Result<(), RunError> {
        let Self { plan, model, .. } = self;
        let problem = match (population.unusable_reason(), population.unknown_id()) {
            (None, None) => return Ok(()),
            (Some(problem), _) => format!("the table of `{model}`: {problem}"),
            (None, Some(id)) => format!("`keys.file` has entity {id}, which is missing in the table of `{model}`"),
        };
        Err(RunError::about(&plan.file, problem))
    }

    async fn inline(&self, inputs: &Inputs, population: Option<&Population>) -> Result<Vec<String>, RunError> {
        let plan = self.plan;
        let is_declared = inputs.rows_by == RowsBy::Server;
        let requests = if is_declared { 1 } else { PROBED_REQUESTS };
        let mut probes = self.bodies(inputs, population, (1, requests))?;
        // Otherwise the first step of such a load would end the run.
        let largest = plan.loads.iter().map(|load| load.batch_size).max().unwrap_or(1);
        if self.model == plan.model && largest > 1 {
            self.bodies(inputs, population, (largest, 1))?;
        }
        if !is_declared && inputs.accepts_rows() {
            // Requests that cannot be combined are measured one by one.
            probes.extend(self.bodies(inputs, population, (PROBED_ROWS, 1)).unwrap_or_default());
        }
        let mut loosened = Unmet::new();
        let mut first_unmet = None;
        for body in &probes {
            let (expected, is_first) = (expected_of(body, inputs), first_unmet.is_none());
            let (reply, unmet) = match self.probe(body, &expected, is_first).await {
                Ok(probed) => probed,
                Err(error) if is_first => return Err(error),
                // Some models take one row at a time. The steps find and count any other fault.
                Err(_) => continue,
            };
            if is_declared && inputs.accepts_rows() {
                self.check_one_row(&reply)?;
            } else if is_declared && let Some((name, _)) = unmet.iter().find(|(_, (fit, _))| *fit == ShapeFit::Declared)
            {
                let problem = format!("output `{name}` has another number of rows than the request");
                return Err(self.refusal(&problem));
            }
            first_unmet.get_or_insert_with(|| unmet.clone());
            for (name, found) in unmet {
                let worst = loosened.entry(name).or_insert_with(|| found.clone());
                if found.0 > worst.0 {
                    *worst = found;
                }
            }
        }
        if let (Some(first), Some(unmet), false) = (probes.first(), first_unmet, loosened.is_empty()) {
            let expected = expected_of(first, inputs);
            let second = self.request(first, &expected.clone().with_any_shape(|_| true)).await;
            // A server that answers one request in two ways is wrong in one of them: its steps must match the declaration.
            let contradicted = second.into_iter().flat_map(|reply| reply.outputs).filter(|output| {
                !unmet.contains_key(&output.name) && expected.fit(&output.name, &output.shape) != ShapeFit::Rows
            });
            for output in contradicted {
                loosened.remove(&output.name);
            }
        }
        let others = loosened.iter().filter(|(_, (fit, _))| *fit == ShapeFit::Other);
        let notes = others.map(|(name, (_, shape))| {
            let declared = self.declared().iter().find(|spec| spec.name == *name);
            format!(
                "output `{name}` of model `{}` has shape {shape:?}, but the model declares {:?}: replies are not checked against it",
                self.model,
                declared.map_or(&[][..], |spec| &spec.shape)
            )
        });
        let notes = notes.collect();
        inputs.set_shape_fits(loosened.into_iter().map(|(name, (fit, _))| (name, fit)).collect());
        Ok(notes)
    }

    /// Sends one request until each output has had the expected shape, up to the maximum. Returns the last reply. The first request of a
    /// check waits until the server accepts requests.
    async fn probe(&self, body: &Body, expected: &Expected, is_first: bool) -> Result<(InferReply, Unmet), RunError> {
        let any_shape = expected.clone().with_any_shape(|_| true);
        let start = Instant::now();
        let mut fits = Unmet::new();
        let mut sent = 0;
        loop {
            let reply = match is_first {
                true => until_accepted(|| self.request(body, &any_shape)).await?,
                false => self.request(body, &any_shape).await?,
            };
            sent += 1;
            for output in &reply.outputs {
                let found = (expected.fit(&output.name, &output.shape), output.shape.clone());
                let best = fits.entry(output.name.clone()).or_insert_with(|| found.clone());
                if found.0 < best.0 {
                    *best = found;
                }
            }
            let all_fit = fits.values().all(|(fit, _)| *fit == ShapeFit::Rows);
            if all_fit || sent == MAX_REPLIES || start.elapsed() > REPEAT_LIMIT {
                fits.retain(|_, (fit, _)| *fit != ShapeFit::Rows);
                return Ok((reply, fits));
            }
        }
    }

    /// Builds requests of the plan's kind, given the rows of each and their number.
    fn bodies(
        &self,
        inputs: &Inputs,
        population: Option<&Population>,
        (rows, requests): (u32, usize),
    ) -> Result<Vec<Body>, RunError> {
        let Self { plan, target, model } = *self;
        let count = rows as usize * requests;
        let ids: Vec<i64> = population.map_or_else(Vec::new, |population| vec![population.by_rank(0); count]);
        let wish = Demand {
            form: plan.form(model, target.control.model_version()),
            rows,
            requests,
            seed: plan.seed,
            entities: population.map(|population| Entities { population, ids: &ids }),
        };
        let prepared = inputs.prepare(&wish);
        let mut prepared = prepared.map_err(|problem| RunError::Usage(plan.inputs_error(model, &problem)))?;
        prepared.bodies.truncate(requests);
        Ok(prepared.bodies)
    }

    async fn request(&self, body: &Body, expected: &Expected) -> Result<InferReply, RunError> {
        let Self { plan, target, model } = *self;
        let limit = Limit::of_replies(plan.reply_limit_bytes, expected.elements());
        let reply = match route(plan, &target.control, model)? {
            Route::Http(_) => target.control.infer(model, body, expected, &limit).await?,
            Route::Grpc(connections) => {
                control::infer_over_grpc(&connections, body.bytes.clone(), expected, &limit).await?
            }
        };
        if reply.outputs.is_empty() {
            return Err(self.refusal("the reply to a checked request has no outputs"));
        }
        Ok(reply)
    }

    fn check_one_row(&self, reply: &InferReply) -> Result<(), RunError> {
        if let Some(output) = reply.outputs.iter().find(|output| output.shape.first() != Some(&1)) {
            let (name, shape) = (&output.name, &output.shape);
            return Err(self.refusal(&format!("in the reply to one row, output `{name}` has shape {shape:?}")));
        }
        Ok(())
    }

    fn refusal(&self, problem: &str) -> RunError {
        let control = &self.target.control;
        let url = match &control.grpc {
            Some(endpoint) if self.plan.protocol == Protocol::Grpc => endpoint.address.url(),
            _ => match control.route(self.model) {
                Ok(route) => route.shown(),
                Err(error) => return error.into(),
            },
        };
        control::refusal(&url, problem).into()
    }

    /// Sends one request of the plan, and checks the reply by the plan's rule.
    async fn custom(&self, custom: &Custom, ids: Option<&Population>) -> Result<(), RunError> {
        let ids: Vec<String> = ids.iter().map(|ids| ids.shown(ids.by_rank(0))).collect();
        let bodies = custom.bodies(1, &ids, 1, self.plan.seed);
        let body = bodies.map_err(RunError::usage)?.swap_remove(0);
        let limit = Limit::of_replies(self.plan.reply_limit_bytes, None);
        let asking = self.target.control.try_custom(custom, &body, &limit, self.plan.timeout);
        Ok(asking.await?)
    }
}

fn expected_of(body: &Body, inputs: &Inputs) -> Expected {
    let wanted = body.wanted.as_ref().map(|wanted| wanted.at(0).as_ref().clone());
    wanted.unwrap_or_else(|| inputs.expected(1))
}

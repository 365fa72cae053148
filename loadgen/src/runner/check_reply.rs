//! One request whose reply is looked at in every part, before a target is measured.

use super::send::route;
use super::target::{Content, Target};
use crate::error::RunError;
use crate::plan::Plan;
use crate::server::control::{self, ControlError};
use std::collections::BTreeSet;
use tierlab_load::custom::Custom;
use tierlab_load::driver::Route;
use tierlab_load::grpc;
use tierlab_load::inputs::{Entities, Inputs, RowsBy, Wish};
use tierlab_load::keys::Population;
use tierlab_load::payload::Body;
use tierlab_load::reply::{Expected, Limit};
use tierlab_load::wire::Protocol;
use tierlab_protocol::infer::InferReply;

/// Rows of the second request, where nobody says which dimension they are.
const ROWS_TO_TELL: u32 = 2;

/// Sends one request and looks at every part of the reply, which steps have no time for: at its values too, where it is known
/// what they should be. Where nobody says which dimension the rows are, a second one with two rows tells which outputs have a row
/// for each; of the others the steps leave the first dimension alone.
///
/// # Errors
/// No server, an error reply, requests that cannot be made, or outputs without a row for the row asked for.
pub async fn check_reply(plan: &Plan, target: &Target, model: &str) -> Result<(), RunError> {
    match target.content_of(model) {
        Content::Joined(population) => {
            known_ids(plan, population, model)?;
            let body = population.body(&[population.by_rank(0)], plan.form(model));
            // Its rows are checked below, where the error says what they should be.
            let expected = Expected::new(model, target.outputs.get(model).map_or(&[], Vec::as_slice), None);
            let reply = ask(plan, target, model, &body, &expected).await?;
            one_row(plan, target, model, &reply)
        }
        Content::Custom { custom, ids } => check_custom(target, custom, ids.as_ref(), plan).await,
        Content::Inline(inputs) if inputs.is_empty() => Err(RunError::Usage(format!(
            "{}: the server does not say which inputs `{model}` takes, so that no request can be made of it; ask it by the plan's own \
             bodies: `[target] kind = \"http\"` with `path` = \"/v2/models/{model}/infer\" and `body`",
            target.control.base()
        ))),
        Content::Inline(inputs) => check_inline(plan, target, model, inputs, None).await,
        Content::Mixed(population, inputs) => {
            known_ids(plan, population, model)?;
            check_inline(plan, target, model, inputs, Some(population)).await
        }
    }
}

fn known_ids(plan: &Plan, population: &Population, model: &str) -> Result<(), RunError> {
    if let Some(what) = population.unsuited() {
        return Err(RunError::Usage(format!(
            "{}: the table of `{model}`: {what}",
            plan.file.display()
        )));
    }
    let Some(id) = population.unknown_id() else {
        return Ok(());
    };
    Err(RunError::Usage(format!(
        "{}: `keys.file` asks for entity {id}, which the table of `{}` does not have",
        plan.file.display(),
        plan.model
    )))
}

async fn check_inline(
    plan: &Plan,
    target: &Target,
    model: &str,
    inputs: &Inputs,
    population: Option<&Population>,
) -> Result<(), RunError> {
    let body = body(plan, model, inputs, population, 1)?;
    let expected = expected_of(&body, inputs, 1);
    let reply = ask(plan, target, model, &body, &expected).await?;
    // Else the first step of such a load would end the run.
    let most = plan.loads.iter().map(|load| load.batch_size).max().unwrap_or(1);
    if model == plan.model && most > 1 {
        self::body(plan, model, inputs, population, most)?;
    }
    match inputs.rows_by() {
        RowsBy::Nothing => Ok(()),
        // Recorded requests bring their own; the structure has been looked at.
        RowsBy::Server if !inputs.takes_rows() => Ok(()),
        RowsBy::Server => one_row(plan, target, model, &reply),
        RowsBy::Plan | RowsBy::Assumed => {
            let mut loose = without_rows(&reply, 1);
            if inputs.takes_rows() {
                let body = self::body(plan, model, inputs, population, ROWS_TO_TELL)?;
                match ask(plan, target, model, &body, &inputs.expected(ROWS_TO_TELL)).await {
                    Ok(reply) => loose.extend(without_rows(&reply, ROWS_TO_TELL)),
                    // It takes one at a time.
                    Err(RunError::Control(error)) if error.is_refused => {
                        loose.extend(reply.outputs.iter().map(|output| output.name.clone()));
                    }
                    // A reply that is wrong, too large or none says nothing of rows: the steps find and count it.
                    Err(_) => {}
                }
            }
            inputs.loosen(loose);
            Ok(())
        }
    }
}

/// A request of the plan's own kind.
fn body(
    plan: &Plan,
    model: &str,
    inputs: &Inputs,
    population: Option<&Population>,
    rows: u32,
) -> Result<Body, RunError> {
    let ids: Vec<i64> = population.map_or_else(Vec::new, |population| vec![population.by_rank(0); rows as usize]);
    let wish = Wish {
        form: plan.form(model),
        rows,
        requests: 1,
        seed: plan.seed,
        entities: population.map(|population| Entities { population, ids: &ids }),
    };
    let prepared = inputs.prepare(&wish);
    let mut prepared = prepared.map_err(|what| RunError::Usage(plan.wrong_inputs(model, &what)))?;
    Ok(prepared.bodies.swap_remove(0))
}

fn expected_of(body: &Body, inputs: &Inputs, rows: u32) -> Expected {
    let wanted = body.wanted.as_ref().map(|wanted| wanted.at(0).as_ref().clone());
    wanted.unwrap_or_else(|| inputs.expected(rows))
}

/// Outputs whose first dimension is not the rows that were asked for.
fn without_rows(reply: &InferReply, rows: u32) -> BTreeSet<String> {
    let others = reply
        .outputs
        .iter()
        .filter(|output| output.shape.first() != Some(&i64::from(rows)));
    others.map(|output| output.name.clone()).collect()
}

async fn ask(
    plan: &Plan,
    target: &Target,
    model: &str,
    body: &Body,
    expected: &Expected,
) -> Result<InferReply, RunError> {
    let limit = Limit::of_replies(plan.reply_limit_bytes, expected);
    let reply = match route(plan, target, model)? {
        Route::Http(_) => target.control.infer(model, body, expected, &limit).await?,
        Route::Grpc(connections) => {
            let message = match target.control.model_version() {
                Some(version) => grpc::with_model_version(&body.bytes, version),
                None => body.bytes.clone(),
            };
            control::infer_over_grpc(&connections, message, expected, &limit).await?
        }
    };
    if reply.outputs.is_empty() {
        return Err(refusal(
            plan,
            target,
            model,
            "the reply to a checked request has no outputs".into(),
        ));
    }
    Ok(reply)
}

fn one_row(plan: &Plan, target: &Target, model: &str, reply: &InferReply) -> Result<(), RunError> {
    match reply.outputs.iter().find(|output| output.shape.first() != Some(&1)) {
        None => Ok(()),
        Some(output) => Err(refusal(
            plan,
            target,
            model,
            format!(
                "asked for one row, output `{}` came with shape {:?}",
                output.name, output.shape
            ),
        )),
    }
}

fn refusal(plan: &Plan, target: &Target, model: &str, what: String) -> RunError {
    let url = match target.control.grpc() {
        Some(endpoint) if plan.protocol == Protocol::Grpc => endpoint.address().url(),
        _ => match target.control.route(model) {
            Ok(route) => route.shown(),
            Err(error) => return error.into(),
        },
    };
    ControlError {
        url,
        what,
        is_refused: false,
    }
    .into()
}

/// One request of the plan's own, held against the plan's rule.
async fn check_custom(target: &Target, custom: &Custom, ids: Option<&Population>, plan: &Plan) -> Result<(), RunError> {
    let ids: Vec<String> = ids.iter().map(|ids| ids.shown(ids.by_rank(0))).collect();
    let body = custom.bodies(1, &ids, 1).map_err(RunError::Usage)?.swap_remove(0);
    let limit = Limit::of_replies(plan.reply_limit_bytes, &Expected::default());
    Ok(target.control.ask_custom(custom, &body, &limit).await?)
}

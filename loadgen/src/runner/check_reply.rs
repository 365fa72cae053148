//! One request whose reply is looked at in every part, before a target is measured.

use super::send::route;
use super::target::{Content, Target};
use crate::error::RunError;
use crate::plan::Plan;
use crate::server::control::{self, ControlError};
use tierlab_load::driver::Route;
use tierlab_load::payload;
use tierlab_load::reply::{Expected, Limit};
use tierlab_load::wire::Protocol;

/// Sends one request and looks at every part of the reply, which steps have no time for.
///
/// # Errors
/// No server, an error reply, or outputs without a row for the row asked for.
pub async fn check_reply(plan: &Plan, target: &Target, model: &str) -> Result<(), RunError> {
    let body = match target.content_of(model) {
        Content::Joined(population) if population.unsuited().is_some() => {
            return Err(RunError::Usage(format!(
                "{}: the table of `{model}`: {}",
                plan.file.display(),
                population.unsuited().unwrap_or_default()
            )));
        }
        Content::Joined(population) if population.unknown_id().is_some() => {
            return Err(RunError::Usage(format!(
                "{}: `keys.file` asks for entity {}, which the table of `{}` does not have",
                plan.file.display(),
                population.unknown_id().unwrap_or_default(),
                plan.model
            )));
        }
        Content::Joined(population) => population.body(&[population.by_rank(0)], plan.form(model)),
        Content::Inline(specs) => payload::inline(specs, 1, plan.form(model), plan.seed)
            .map_err(RunError::Usage)?
            .swap_remove(0),
    };
    // Its rows are checked below, where the error says what they should be.
    let expected = Expected::new(model, target.outputs.get(model).map_or(&[], Vec::as_slice), None);
    let limit = Limit::of_replies(plan.reply_limit_bytes, &target.expected(model, 1));
    let reply = match route(plan, target, model)? {
        Route::Http(_) => target.control.infer(model, &body, &expected, &limit).await?,
        Route::Grpc(connections) => control::infer_over_grpc(&connections, body, &expected, &limit).await?,
    };
    let refuse = |what: String| {
        let url = match &target.grpc {
            Some(url) if plan.protocol == Protocol::Grpc => url.to_string(),
            _ => target.control.infer_url(model).to_string(),
        };
        Err(ControlError { url, what }.into())
    };
    if reply.outputs.is_empty() {
        return refuse("the reply to a checked request has no outputs".into());
    }
    match reply.outputs.iter().find(|output| output.shape.first() != Some(&1)) {
        Some(output) => refuse(format!(
            "asked for one row, output `{}` came with shape {:?}",
            output.name, output.shape
        )),
        None => Ok(()),
    }
}

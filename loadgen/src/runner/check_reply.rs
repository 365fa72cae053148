//! One request whose reply is looked at in every part, before a target is measured.

use super::send::route;
use super::target::{Content, Target};
use crate::error::RunError;
use crate::plan::Plan;
use crate::server::control::{self, ControlError};
use tierlab_load::custom::Custom;
use tierlab_load::driver::Route;
use tierlab_load::grpc;
use tierlab_load::keys::Population;
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
        Content::Custom { custom, ids } => return check_custom(target, custom, ids.as_ref(), plan).await,
        Content::Inline(specs) if specs.is_empty() => {
            return Err(RunError::Usage(format!(
                "{}: the server does not say which inputs `{model}` takes, so that no request can be made of it; ask it by the plan's own \
                 bodies: `[target] kind = \"http\"` with `path` = \"/v2/models/{model}/infer\" and `body`",
                target.control.base()
            )));
        }
        Content::Inline(specs) => payload::inline(specs, 1, plan.form(model), plan.seed)
            .map_err(RunError::Usage)?
            .swap_remove(0),
    };
    // Its rows are checked below, where the error says what they should be.
    let expected = Expected::new(model, target.outputs.get(model).map_or(&[], Vec::as_slice), None);
    let limit = Limit::of_replies(plan.reply_limit_bytes, &target.expected(model, 1));
    let reply = match route(plan, target, model)? {
        Route::Http(_) => target.control.infer(model, &body, &expected, &limit).await?,
        Route::Grpc(connections) => {
            let message = match target.control.model_version() {
                Some(version) => grpc::with_model_version(&body.bytes, version),
                None => body.bytes,
            };
            control::infer_over_grpc(&connections, message, &expected, &limit).await?
        }
    };
    let refuse = |what: String| {
        let url = match target.control.grpc() {
            Some(endpoint) if plan.protocol == Protocol::Grpc => endpoint.address().url(),
            _ => target.control.route(model)?.shown(),
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

/// One request of the plan's own, held against the plan's rule.
async fn check_custom(target: &Target, custom: &Custom, ids: Option<&Population>, plan: &Plan) -> Result<(), RunError> {
    let ids: Vec<i64> = ids.iter().map(|ids| ids.by_rank(0)).collect();
    let body = custom.bodies(1, &ids, 1).map_err(RunError::Usage)?.swap_remove(0);
    let limit = Limit::of_replies(plan.reply_limit_bytes, &Expected::default());
    Ok(target.control.ask_custom(custom, &body, &limit).await?)
}

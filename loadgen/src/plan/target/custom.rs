//! `kind = "http"` of a `[target]`: what any HTTP endpoint is asked. In: the raw keys. Out: a [`CustomSpec`], whose files were read once to
//! see that they can be.

use super::raw::{Place, RawSuccess, RawTarget};
use crate::plan::check::within;
use std::path::PathBuf;
use tierlab_analysis::record::Mode;
use tierlab_load::custom::{BodySource, Custom, CustomSpec, Entities, Success};
use tierlab_load::keys::KeyDistribution;
use tierlab_load::load::Load;
use tierlab_load::wire::Protocol;

/// Keys of `kind = "http"` in a target that is none.
pub(super) fn refuse_keys(raw: &RawTarget, place: &Place<'_>) -> Result<(), String> {
    let given = [
        ("method", raw.method.is_some()),
        ("path", raw.path.is_some()),
        ("content_type", raw.content_type.is_some()),
        ("body", raw.body.is_some()),
        ("body_file", raw.body_file.is_some()),
        ("bodies", raw.bodies.is_some()),
        ("rows_file", raw.rows_file.is_some()),
        ("rows_per_request", raw.rows_per_request.is_some()),
        ("entities", raw.entities.is_some()),
        ("first_id", raw.first_id.is_some()),
        ("success", raw.success.is_some()),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((key, _)) => Err(format!(
            "`{}.{key}` belongs to `kind = \"http\"`: requests of the Open Inference Protocol follow from the model",
            place.at
        )),
    }
}

pub(super) fn validate(raw: &RawTarget, place: &Place<'_>) -> Result<CustomSpec, String> {
    let at = |key: &str| format!("{}.{key}", place.at);
    if place.protocol == Protocol::Grpc || raw.grpc_url.is_some() {
        return Err(format!(
            "`{}` = \"http\" and gRPC do not go together: over gRPC the Open Inference Protocol is measured",
            at("kind")
        ));
    }
    if raw.model_version.is_some() {
        return Err(format!(
            "`{}` belongs to the Open Inference Protocol; write the version into `{}`",
            at("model_version"),
            at("path")
        ));
    }
    let Some(path) = raw.path.clone() else {
        return Err(format!(
            "`{}` is missing: \"/v1/models/m:predict\", for example",
            at("path")
        ));
    };
    if !path.starts_with('/') || path.contains(['#', ' ']) {
        return Err(format!(
            "`{}` = `{path}` is no path of a URL, which begins with `/`",
            at("path")
        ));
    }
    let rows_per_request = raw.rows_per_request.unwrap_or(1);
    within(&at("rows_per_request"), f64::from(rows_per_request), 1.0, 1e6)?;
    let spec = CustomSpec {
        method: raw.method.clone().unwrap_or_else(|| "POST".into()).to_ascii_uppercase(),
        path,
        content_type: raw.content_type.clone().unwrap_or_else(|| "application/json".into()),
        body: body(raw, place)?,
        rows_per_request,
        entities: entities(raw, place)?,
        success: success(raw.success.as_ref(), place)?,
    };
    let read = Custom::open(&spec).map_err(|error| error.replace("`target.", &format!("`{}.", place.at)))?;
    if (read.wants_an_id() || read.wants_ids()) && spec.entities.is_none() {
        return Err(format!(
            "`{}` is missing: which ids stand for {{entity_id}}? `entities = 100000` takes 0 to 99999 (`first_id` begins elsewhere), \
             drawn by `[keys]`",
            at("entities")
        ));
    }
    if read.wants_ids() && raw.rows_per_request.is_some() {
        return Err(format!(
            "`{}`: a request has as many rows as it has {{entity_ids}}, which the load says",
            at("rows_per_request")
        ));
    }
    Ok(spec)
}

fn body(raw: &RawTarget, place: &Place<'_>) -> Result<BodySource, String> {
    let file = |path: &PathBuf| place.base.path(path);
    let at = |key: &str| format!("`{}.{key}`", place.at);
    match (&raw.body, &raw.body_file, &raw.bodies, &raw.rows_file) {
        (None, None, None, None) => Ok(BodySource::Empty),
        (Some(text), None, None, None) => Ok(BodySource::Text(text.clone())),
        (None, Some(path), None, None) => Ok(BodySource::File(file(path))),
        (None, None, Some(path), None) => Ok(BodySource::Recorded(file(path))),
        (Some(text), None, None, Some(rows)) => Ok(BodySource::Rows {
            template: text.clone(),
            rows: file(rows),
        }),
        (None, Some(path), None, Some(rows)) => {
            let path = file(path);
            let template = std::fs::read_to_string(&path)
                .map_err(|error| format!("{}: {}: {error}", at("body_file"), path.display()))?;
            Ok(BodySource::Rows {
                template,
                rows: file(rows),
            })
        }
        (None, None, None, Some(_)) => Err(format!(
            "{} has no template whose places its columns fill; give {}",
            at("rows_file"),
            at("body")
        )),
        _ => Err(format!(
            "{}, {} and {}: one of them; {} goes with the first two",
            at("body"),
            at("body_file"),
            at("bodies"),
            at("rows_file")
        )),
    }
}

fn entities(raw: &RawTarget, place: &Place<'_>) -> Result<Option<Entities>, String> {
    let first_id = raw.first_id.unwrap_or(0);
    // Those of a file are its own.
    let of_file = matches!(place.keys, KeyDistribution::File { .. }).then_some(1);
    let Some(count) = raw.entities.or(of_file) else {
        return Ok(None);
    };
    within(&format!("{}.entities", place.at), count as f64, 1.0, 1e15)?;
    if first_id.checked_add_unsigned(count).is_none() {
        return Err(format!("`{}.first_id`: the last id would be beyond 64 bits", place.at));
    }
    Ok(Some(Entities { first_id, count }))
}

fn success(raw: Option<&RawSuccess>, place: &Place<'_>) -> Result<Success, String> {
    let Some(raw) = raw else { return Ok(Success::default()) };
    let at = |key: &str| format!("`{}.success.{key}`", place.at);
    let status = raw.status.clone().unwrap_or_else(|| Success::default().status);
    if status.is_empty() {
        return Err(format!("{} is empty: no reply would be a success", at("status")));
    }
    if let Some(bad) = status.iter().find(|status| !(100..=599).contains(*status)) {
        return Err(format!("{}: {bad} is no status of HTTP", at("status")));
    }
    if let Some(pointer) = &raw.pointer
        && !(pointer.is_empty() || pointer.starts_with('/'))
    {
        return Err(format!(
            "{} = `{pointer}` is no JSON pointer, which begins with `/`: \"/predictions/0\"",
            at("pointer")
        ));
    }
    let equals = raw
        .equals
        .as_ref()
        .map(|value| serde_json::to_value(value).map_err(|error| format!("{}: {error}", at("equals"))));
    if equals.is_some() && raw.pointer.is_none() {
        return Err(format!("{} says what, and {} not where", at("equals"), at("pointer")));
    }
    Ok(Success {
        status,
        pointer: raw.pointer.clone(),
        equals: equals.transpose()?,
        last_event: raw.last_event.clone(),
    })
}

/// The loads of a plan with the rows that its requests carry, where these are said and not asked for.
pub(in crate::plan) fn loads_of(spec: &CustomSpec, loads: &mut [Load]) -> Result<(), String> {
    let read = Custom::open(spec)?;
    if read.wants_ids() {
        return Ok(());
    }
    for load in loads {
        match load.mode {
            Mode::Realtime => load.batch_size = spec.rows_per_request,
            Mode::Batch if load.batch_size == spec.rows_per_request => {}
            Mode::Batch => {
                return Err(format!(
                    "`batch_sizes`: a request of {} rows is asked for, and `target.rows_per_request` says that each carries {}; \
                     {{entity_ids}} in the body takes as many as the load says",
                    load.batch_size, spec.rows_per_request
                ));
            }
        }
    }
    Ok(())
}

/// Whether the requests of a server carry as many rows as every load asks for.
pub(in crate::plan) fn carries(spec: &CustomSpec, batch_sizes: &[u32]) -> Result<(), String> {
    if Custom::open(spec)?.wants_ids() {
        return Ok(());
    }
    match batch_sizes.iter().find(|rows| **rows != spec.rows_per_request) {
        None => Ok(()),
        Some(rows) => Err(format!(
            "every request is to have {rows} rows, and `rows_per_request` says that each carries {}; {{entity_ids}} in the body takes as \
             many as the load says",
            spec.rows_per_request
        )),
    }
}

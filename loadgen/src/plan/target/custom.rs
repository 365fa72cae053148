//! `kind = "http"` of a `[target]`: requests to any HTTP endpoint. In: the raw keys. Out: a [`CustomSpec`], whose files
//! were read once to check them.

use super::{RawTarget, Scope};
use crate::plan::fault::{Fault, check_opens, conflict, empty, fault, misplaced, missing, only_with, refuse};
use crate::plan::inputs::drawn_length;
use crate::plan::value::part;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tierlab_analysis::record::Mode;
use tierlab_load::custom::{BodySource, Custom, CustomSpec, Drawn, EntityRange, StreamKind, StreamSpec, Success};
use tierlab_load::keys::KeyDistribution;
use tierlab_load::payload::Protocol;
use tierlab_load::schedule::Load;

/// Refuses keys of `kind = "http"` in any other target.
pub(super) fn refuse_keys(raw: &RawTarget, scope: &Scope<'_>) -> Result<(), Fault> {
    let flags = [
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
        ("values", !raw.values.is_empty()),
        ("reply", raw.reply.is_some()),
        ("tokens", raw.tokens.is_some()),
        ("success", raw.success.is_some()),
    ];
    let owner = "`kind = \"http\"`: requests of the Open Inference Protocol follow from the model";
    only_with(scope.at, owner, &flags)
}

pub(super) fn validate(raw: &RawTarget, scope: &Scope<'_>) -> Result<CustomSpec, Fault> {
    let at = |key: &str| format!("{}.{key}", scope.at);
    if scope.protocol == Protocol::Grpc || raw.grpc_url.is_some() {
        refuse!(
            at("kind"),
            "\"http\" excludes gRPC, over which the Open Inference Protocol is measured"
        );
    }
    if raw.model_version.is_some() {
        return misplaced(
            at("model_version"),
            format!("the Open Inference Protocol; write the version into `{}`", at("path")),
        );
    }
    let Some(path) = raw.path.clone().or_else(|| scope.replay.map(|_| "/".to_owned())) else {
        return missing(at("path"), "such as \"/v1/models/m:predict\"");
    };
    if !path.starts_with('/') || path.contains(['#', ' ', '{']) {
        let advice = "it must begin with `/`; {entity_id} in a path is for a `[[journey.step]]`";
        refuse!(at("path"), "invalid URL path `{path}`: {advice}");
    }
    let spec = CustomSpec {
        method: raw.method.clone().unwrap_or_else(|| "POST".into()).to_ascii_uppercase(),
        path,
        content_type: raw.content_type.clone().unwrap_or_else(|| "application/json".into()),
        body: body(raw, scope)?,
        rows_per_request: raw.rows_per_request.unwrap_or(1),
        entities: entities(raw, scope)?,
        values: values(raw, scope)?,
        success: success(raw.success.as_ref(), scope)?,
        stream: stream(raw, scope)?,
    };
    let read = open(&spec, scope.at)?;
    let needs_entities = read.needs_id() || read.needs_ids();
    if !needs_entities && raw.entities.is_some() {
        refuse!(at("entities"), "unused: {{entity_id}} is missing in `{}`", at("body"));
    }
    if needs_entities && spec.entities.is_none() {
        return missing(
            at("entities"),
            "ids for {entity_id}; `entities = 100000` takes 0 to 99999 (`first_id` sets another start), drawn by `[keys]`",
        );
    }
    if read.needs_ids() && raw.rows_per_request.is_some() {
        refuse!(
            at("rows_per_request"),
            "a request has as many rows as {{entity_ids}}, which the load sets; leave it out"
        );
    }
    Ok(spec)
}

fn body(raw: &RawTarget, scope: &Scope<'_>) -> Result<BodySource, Fault> {
    let at = |key: &str| format!("{}.{key}", scope.at);
    let file = |key: &str, path: &PathBuf| {
        let path = scope.base.request_file(path);
        check_opens(&at(key), &path).map(|()| path)
    };
    let text_of = |path: &PathBuf| {
        let path = file("body_file", path)?;
        std::fs::read_to_string(&path).map_err(|error| fault!(at("body_file"), "{}: {error}", path.display()))
    };
    let template = || match (&raw.body, &raw.body_file) {
        (text, None) => Ok(text.clone()),
        (None, Some(path)) => text_of(path).map(Some),
        (Some(_), Some(_)) => conflict(at("body"), at("body_file"), "leave one of them out"),
    };
    if let Some(recorded) = scope.replay {
        let flags = [("bodies", raw.bodies.is_some()), ("rows_file", raw.rows_file.is_some())];
        let owner = "other arrivals than \"replay\", whose recording has them";
        only_with(scope.at, owner, &flags)?;
        return Ok(BodySource::Replay {
            recording: recorded.clone(),
            template: template()?,
        });
    }
    match (&raw.body, &raw.body_file, &raw.bodies, &raw.rows_file) {
        (None, None, None, None) => Ok(BodySource::Empty),
        (Some(text), None, None, None) => Ok(BodySource::Text(text.clone())),
        (None, Some(path), None, None) => Ok(BodySource::File(file("body_file", path)?)),
        (None, None, Some(path), None) => Ok(BodySource::Recorded(file("bodies", path)?)),
        (_, _, None, Some(rows)) => match template()? {
            Some(template) => Ok(BodySource::Rows {
                template,
                rows: file("rows_file", rows)?,
            }),
            None => missing(
                at("body"),
                format!("a template for the columns of `{}`", at("rows_file")),
            ),
        },
        _ => Err(fault!(
            at("body"),
            "set one of `body`, `body_file` and `bodies`; `rows_file` goes with the first two"
        )),
    }
}

fn entities(raw: &RawTarget, scope: &Scope<'_>) -> Result<Option<EntityRange>, Fault> {
    let first_id = raw.first_id.unwrap_or(0);
    // Ids of a file are the file's own.
    let of_file = matches!(scope.keys, KeyDistribution::File { .. }).then_some(1);
    let Some(count) = raw.entities.or(of_file) else {
        return Ok(None);
    };
    if first_id.checked_add_unsigned(count).is_none() {
        let key = format!("{}.first_id", scope.at);
        refuse!(key, "the last id would need more than 64 bits");
    }
    Ok(Some(EntityRange { first_id, count }))
}

/// Text of random words: a number of them, or the name of a recorded number.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWords {
    words: toml::Value,
    blocks: Option<String>,
}

/// Values drawn for places of the body.
fn values(raw: &RawTarget, scope: &Scope<'_>) -> Result<BTreeMap<String, Drawn>, Fault> {
    let drawn = raw.values.iter().map(|(name, value)| {
        let at = format!("{}.values.{name}", scope.at);
        if value.get("words").is_none() {
            let number = drawn_length(&at, value.clone(), scope.base)?;
            return Ok((name.clone(), Drawn::Number(number)));
        }
        let read = part(value.clone()).map_err(|error: toml::de::Error| Fault::new(&at, error.message()));
        let words: RawWords = read?;
        let drawn = match words {
            RawWords {
                words: toml::Value::String(words),
                blocks,
            } => Drawn::Recorded { words, blocks },
            RawWords { words, blocks: None } => Drawn::Words(drawn_length(&at, words, scope.base)?),
            RawWords { .. } => return misplaced(format!("{at}.blocks"), "`words` of a recording, by their name there"),
        };
        Ok((name.clone(), drawn))
    });
    drawn.collect()
}

fn stream(raw: &RawTarget, scope: &Scope<'_>) -> Result<Option<StreamSpec>, Fault> {
    if let Some(tokens) = &raw.tokens {
        let at = format!("{}.tokens", scope.at);
        if raw.reply != Some(StreamKind::Sse) {
            return misplaced(at, "`reply = \"sse\"`");
        }
        json_pointer(at, tokens, "/usage/completion_tokens")?;
    }
    let tokens = raw.tokens.clone();
    Ok(raw.reply.map(|kind| StreamSpec { kind, tokens }))
}

fn json_pointer(at: String, pointer: &str, example: &str) -> Result<(), Fault> {
    if !pointer.is_empty() && !pointer.starts_with('/') {
        refuse!(
            at,
            "invalid JSON pointer `{pointer}`; it begins with `/`, such as \"{example}\""
        );
    }
    Ok(())
}

fn success(rule: Option<&Success>, scope: &Scope<'_>) -> Result<Success, Fault> {
    let Some(success) = rule else {
        return Ok(Success::default());
    };
    let at = |key: &str| format!("{}.success.{key}", scope.at);
    if success.status.is_empty() {
        return empty(at("status"));
    }
    if let Some(invalid) = success.status.iter().find(|status| !(100..=599).contains(*status)) {
        refuse!(at("status"), "{invalid} is not an HTTP status");
    }
    match &success.pointer {
        Some(pointer) => json_pointer(at("pointer"), pointer, "/predictions/0").map(|()| success.clone()),
        None if success.equals.is_some() => {
            missing(at("pointer"), format!("the position of `{}` in the body", at("equals")))
        }
        _ => Ok(success.clone()),
    }
}

/// Sets the rows per request of loads on a custom target with a fixed number of rows.
pub(in crate::plan) fn set_rows(spec: &CustomSpec, loads: &mut [Load]) -> Result<(), Fault> {
    if open(spec, "target")?.needs_ids() {
        return Ok(());
    }
    for load in loads {
        match load.mode {
            Mode::Realtime => load.batch_size = spec.rows_per_request,
            Mode::Batch if load.batch_size == spec.rows_per_request => {}
            Mode::Batch => return Err(rows_mismatch("target", load.batch_size, spec)),
        }
    }
    Ok(())
}

/// Refuses a server whose requests carry other numbers of rows than the loads.
pub(in crate::plan) fn check_rows(spec: &CustomSpec, batch_sizes: &[u32], at: &str) -> Result<(), Fault> {
    if open(spec, at)?.needs_ids() {
        return Ok(());
    }
    let other = batch_sizes.iter().find(|rows| **rows != spec.rows_per_request);
    other.map_or(Ok(()), |rows| Err(rows_mismatch(at, *rows, spec)))
}

fn rows_mismatch(at: &str, rows: u32, spec: &CustomSpec) -> Fault {
    let problem = format!(
        "a load has {rows} rows a request, and each request carries {}; {{entity_ids}} in the body takes as many as the load has",
        spec.rows_per_request
    );
    Fault::new(format!("{at}.rows_per_request"), problem)
}

/// Reads the files of a target. Its errors begin with keys of `target`.
fn open(spec: &CustomSpec, at: &str) -> Result<Custom, Fault> {
    Custom::open(spec).map_err(|error| Fault::new(at, error.to_string().replace("`target.", &format!("`{at}."))))
}

//! Comparison of layouts: one table in several layouts on several tiers, looked up and scanned. In: a plan. Out: a folder of results.
//! Every layout is measured once in each round.

mod measure;
mod page;
mod plan;
mod statements;

pub(crate) use plan::Options;

use super::places::{LaidOut, Place, lay_out_all, places};
use super::rows_file::RowsFile;
use crate::plan::Common;
use crate::report::{csv, finish};
use crate::rounds::{Rounds, order};
use crate::station::Stations;
use crate::stop::Stop;
use crate::tiers::{on_tiers, results_folder};
use anyhow::Result;
use measure::{Repeat, measure};
use plan::Plan;
use serde::Serialize;
use statements::{Statement, statements};
use std::collections::BTreeMap;
use std::time::Duration;
use tierlab_models::tables::TableKind;

/// Time of a step on emulated cloud storage, where most of the time goes.
const EXPECTED: Duration = Duration::from_secs(5);

/// Runs a plan.
///
/// # Errors
/// The plan is wrong, a tier fails, a row differs from the one laid out, or an interrupt.
pub(crate) fn run(options: &Options) -> Result<()> {
    let (common, plan) = Plan::read(options)?;
    let stop = Stop::on_signal()?;
    let folder = results_folder(options.flags.out.as_deref(), &common.name)?;
    let table = RowsFile::generate(TableKind::Ctr, plan.rows, common.seed)?;
    let (measured, ran) = on_tiers(&common, &stop, 0, |stations| {
        rounds(&common, &plan, &table, stations, &stop)
    })?;
    let statements = statements(&measured.laid_out, &measured.repeats);
    let page = page::page(&ran, &plan, table.header.stride.into(), &statements);
    let table = ("layouts.csv", csv(&statements)?);
    finish(
        &folder,
        &page,
        (
            &plan,
            &Figures {
                statements: &statements,
            },
        ),
        table,
        "",
    )
}

/// Figures of `run.json`.
#[derive(Serialize)]
struct Figures<'a> {
    statements: &'a [Statement],
}

struct Measured {
    laid_out: BTreeMap<Place, LaidOut>,
    repeats: BTreeMap<Place, Vec<Repeat>>,
}

fn rounds(common: &Common, plan: &Plan, table: &RowsFile, stations: &Stations, stop: &Stop) -> Result<Measured> {
    let places = places(stations, &plan.layouts, &[String::new()]);
    let order = order(common.seed, common.repeats, &places);
    let mut rounds = Rounds::new(common.repeats, stop, places.len() + order.len(), EXPECTED);
    let file = |_: &str| table.bytes.clone();
    let laid_out = lay_out_all(&mut rounds, stations, &places, plan.shard_bytes.0, file)?;
    let mut repeats: BTreeMap<Place, Vec<Repeat>> = BTreeMap::new();
    rounds.measure(&order, |round, place| {
        let one = measure(&stations[&place.tier], &laid_out[place], (common, plan), table, round)?;
        repeats.entry(place.clone()).or_default().push(one);
        Ok(())
    })?;
    Ok(Measured { laid_out, repeats })
}

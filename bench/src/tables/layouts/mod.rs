//! Comparison of layouts: one table in several layouts on several tiers, looked up and scanned. In: a plan. Out: a folder of results.
//! Every layout is measured once in each round.

mod measure;
mod page;
mod plan;
mod statements;

pub(crate) use plan::LayoutsOptions;

use super::places::{LaidOut, Place, measure_places};
use super::rows_file::RowsFile;
use crate::plan::Common;
use crate::report::{csv, finish};
use crate::station::Stations;
use crate::stop::Stop;
use crate::tiers::{on_tiers, results_folder};
use anyhow::Result;
use measure::{LayoutRepeat, measure};
use plan::LayoutsPlan;
use statements::statements;
use std::collections::BTreeMap;
use std::time::Duration;
use tierlab_models::tables::TableKind;

/// Time of a step on emulated cloud storage, where most of the time goes.
const EXPECTED: Duration = Duration::from_secs(5);

type Measured = (BTreeMap<Place, LaidOut>, BTreeMap<Place, Vec<LayoutRepeat>>);

/// Runs a plan.
///
/// # Errors
/// The plan is wrong, a tier fails, a row differs from the one laid out, or an interrupt.
pub(crate) fn run(options: &LayoutsOptions) -> Result<()> {
    let (common, plan) = LayoutsPlan::read(options)?;
    let stop = Stop::on_signal()?;
    let folder = results_folder(options.flags.out.as_deref(), &common.name)?;
    let table = RowsFile::generate(&*TableKind::Ctr.source(common.seed)?, plan.rows, common.seed)?;
    let ((laid_out, repeats), ran) = on_tiers(&common, &stop, 0, |stations| {
        rounds(&common, &plan, &table, stations, &stop)
    })?;
    let statements = statements(&laid_out, &repeats);
    let page = page::page(&ran, &plan, table.header.stride.into(), &statements);
    let table = ("layouts.csv", csv(&statements)?);
    finish(
        &folder,
        &page,
        (&plan, &BTreeMap::from([("statements", &statements)])),
        table,
        "",
    )
}

fn rounds(common: &Common, plan: &LayoutsPlan, table: &RowsFile, stations: &Stations, stop: &Stop) -> Result<Measured> {
    let files = BTreeMap::from([(String::new(), table.bytes.clone())]);
    let mut repeats: BTreeMap<Place, Vec<LayoutRepeat>> = BTreeMap::new();
    let layouts = (plan.layouts.as_slice(), plan.shard_bytes.0);
    let laid_out = measure_places(
        common,
        stations,
        layouts,
        &files,
        (EXPECTED, stop),
        |round, place, laid_out| {
            let one = measure(&stations[&place.tier], laid_out, (common, plan), table, round)?;
            repeats.entry(place.clone()).or_default().push(one);
            Ok(())
        },
    )?;
    Ok((laid_out, repeats))
}

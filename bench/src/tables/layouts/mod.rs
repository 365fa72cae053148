//! Comparison of layouts: one table in several layouts on several tiers, looked up and scanned. In: a plan. Out: a folder of results.
//! Each round measures every layout once.

mod measure;
mod page;
mod plan;
mod statements;

pub(crate) use plan::LayoutsOptions;

use super::places::{LaidOut, Place, RowsFile, measure_places};
use crate::report::{csv, finish, results_folder};
use crate::station::on_tiers;
use crate::stop::Stop;
use anyhow::Result;
use measure::{LayoutRepeat, measure};
use plan::LayoutsPlan;
use statements::statements;
use std::collections::BTreeMap;
use std::time::Duration;
use tierlab_models::tables::TableKind;

/// Time of a step on emulated cloud storage, which takes most of the time.
const EXPECTED: Duration = Duration::from_secs(5);

/// Runs a plan.
///
/// # Errors
/// The plan is invalid, a tier fails, a row differs from the one laid out, or an interrupt.
pub(crate) fn run(options: &LayoutsOptions) -> Result<()> {
    let (common, plan) = LayoutsPlan::read(options)?;
    let stop = Stop::on_signal()?;
    let folder = results_folder(options.flags.out.as_deref(), &common.name)?;
    let table = RowsFile::generate(&*TableKind::Ctr.source(common.seed)?, plan.rows, common.seed)?;
    let files = BTreeMap::from([(String::new(), table.bytes.clone())]);
    let layouts = (plan.layouts.as_slice(), plan.shard_bytes.0);
    let mut repeats: BTreeMap<Place, Vec<LayoutRepeat>> = BTreeMap::new();
    let (laid_out, ran) = on_tiers(&common, &stop, 0, |stations| {
        let measure = |round, place: &Place, laid_out: &LaidOut| {
            let one = measure(&stations[&place.tier], laid_out, (&common, &plan), &table, round)?;
            repeats.entry(place.clone()).or_default().push(one);
            Ok(())
        };
        measure_places(&common, stations, layouts, &files, (EXPECTED, &stop), measure)
    })?;
    let statements = statements(&laid_out, &repeats);
    let page = page::page(&ran, &plan, table.header.stride.into(), &statements);
    let table = ("layouts.csv", csv(&statements)?);
    let figures = BTreeMap::from([("statements", &statements)]);
    finish(&folder, &page, (&plan, &figures), table, "")
}

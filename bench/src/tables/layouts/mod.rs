//! Comparison of layouts: one table in several layouts on several tiers, looked up and scanned. In: a plan. Out: a folder of results.
//! Every layout is measured once in each round.

mod made;
mod measure;
mod page;
mod plan;
mod statements;

pub(crate) use plan::Options;

use super::sitting::{LaidOut, Place, Sitting, Sittings, lay_out_all, places};
use crate::plan::Common;
use crate::report::{csv, finish};
use crate::rounds::{Rounds, order};
use crate::stop::Stop;
use crate::tiers::{on_tiers, results_folder};
use anyhow::Result;
use bytes::Bytes;
use measure::{Repeat, measure};
use page::Kept;
use plan::Plan;
use statements::statements;
use std::collections::BTreeMap;
use std::time::Duration;

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
    let open = |name: &str, config: &_| Sitting::open(name, config, common.scratch.as_deref(), None);
    let (measured, ran) = on_tiers(&common, &stop, open, |sittings| rounds(&common, &plan, sittings, &stop))?;
    let kept = Kept {
        ran,
        rows: plan.rows,
        row_bytes: made::row_bytes(),
        batch_rows: plan.batch_rows,
        scan_depth: plan.scan_depth,
        statements: statements(&measured.laid_out, &measured.repeats),
    };
    finish(
        &folder,
        &kept,
        ("layouts.csv", csv(page::csv(&kept))?),
        &page::page(&kept),
        "",
    )
}

struct Measured {
    laid_out: BTreeMap<Place, LaidOut>,
    repeats: BTreeMap<Place, Vec<Repeat>>,
}

fn rounds(common: &Common, plan: &Plan, sittings: &Sittings, stop: &Stop) -> Result<Measured> {
    let places = places(sittings, &plan.layouts, &[String::new()]);
    let order = order(common.seed, common.repeats, &places);
    let mut rounds = Rounds::new(common.repeats, stop, places.len() + order.len(), EXPECTED);
    let source = made::Source::new(plan.rows, common.seed)?;
    let file = Bytes::from(source.file());
    let laid_out = lay_out_all(&mut rounds, sittings, &places, plan.shard_bytes.0, |_| file.clone())?;
    let mut repeats: BTreeMap<Place, Vec<Repeat>> = BTreeMap::new();
    rounds.measure(&order, |round, place| {
        let one = measure(&sittings[&place.tier], &laid_out[place], (common, plan), &source, round)?;
        repeats.entry(place.clone()).or_default().push(one);
        Ok(())
    })?;
    Ok(Measured { laid_out, repeats })
}

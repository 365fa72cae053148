//! What a layout does to reads: one table laid out in several ways on several tiers, looked up and scanned. In: a plan. Out: a
//! folder of results. Every layout is measured once in each round, in an order of its own.

mod asked;
mod csv;
mod kept;
mod made;
mod measure;
mod options;
mod page;
mod statements;

pub(crate) use options::Options;

use crate::chance::Random;
use crate::runner::Progress;
use crate::stop::Stop;
use crate::tables::run::{Sittings, finish, on_tiers, results_folder};
use crate::tables::sitting::LaidOut;
use anyhow::{Context, Result};
use asked::Asked;
use bytes::Bytes;
use kept::Kept;
use measure::{Place, Repeat, measure};
use statements::statements;
use std::collections::BTreeMap;
use std::time::Duration;

/// What one of them takes, before any has ended: on emulated cloud storage, where most of the time goes.
const EXPECTED: Duration = Duration::from_secs(5);

/// Runs a plan.
///
/// # Errors
/// A plan that makes no sense, a tier that fails, rows that are not those that were laid out, an interrupt.
pub(crate) fn run(options: &Options) -> Result<()> {
    let asked = Asked::read(options)?;
    let stop = Stop::on_signal()?;
    let folder = results_folder(options.out.as_deref(), &asked.common)?;
    let (measured, ran) = on_tiers(&asked.common, None, &stop, |sittings| rounds(&asked, sittings, &stop))?;
    let kept = Kept {
        ran,
        rows: asked.rows,
        row_bytes: made::row_bytes(),
        batch_rows: asked.batch_rows,
        scan_depth: asked.scan_depth,
        statements: statements(&measured.laid_out, &measured.repeats),
    };
    finish(&folder, &kept, ("layouts.csv", csv::csv(&kept)?), &page::page(&kept))
}

/// What was laid out, and what each repeat of it took.
struct Measured {
    laid_out: BTreeMap<Place, LaidOut>,
    repeats: BTreeMap<Place, Vec<Repeat>>,
}

fn rounds(asked: &Asked, sittings: &Sittings, stop: &Stop) -> Result<Measured> {
    let places: Vec<Place> = asked
        .common
        .tiers
        .keys()
        .flat_map(|tier| asked.layouts.iter().map(|layout| (tier.clone(), *layout)))
        .collect();
    let todo = places.len() as u64 * u64::from(asked.common.repeats + 1);
    let mut progress = Progress::new(todo, EXPECTED);
    let source = made::Source::new(asked.rows, asked.common.seed)?;
    let file = Bytes::from(source.file());
    let mut laid_out = BTreeMap::new();
    for (tier, layout) in &places {
        if stop.is_asked() {
            break;
        }
        progress.begin(&format!("laying out {layout} on {tier}"));
        let table = sittings[tier].lay_out(layout.as_str(), file.clone(), *layout, asked.shard_bytes);
        let table = table.with_context(|| format!("cannot lay the table out as {layout} on {tier}"))?;
        laid_out.insert((tier.clone(), *layout), table);
        progress.end();
    }
    let mut repeats: BTreeMap<Place, Vec<Repeat>> = BTreeMap::new();
    for round in 0..asked.common.repeats {
        let mut order = places.clone();
        Random::new(asked.common.seed, u64::from(round)).shuffle(&mut order);
        for place in order {
            let Some(table) = laid_out.get(&place).filter(|_| !stop.is_asked()) else {
                continue;
            };
            progress.begin(&format!(
                "round {} of {}, {} on {}",
                round + 1,
                asked.common.repeats,
                place.1,
                place.0
            ));
            let one = measure(&sittings[&place.0], table, asked, &source, round);
            let one = one.with_context(|| format!("{} on {}", place.1, place.0))?;
            repeats.entry(place).or_default().push(one);
            progress.end();
        }
    }
    progress.clear();
    Ok(Measured { laid_out, repeats })
}

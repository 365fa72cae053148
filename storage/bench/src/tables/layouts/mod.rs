//! What a layout does to reads: one table laid out in several ways on several tiers, looked up and scanned. In: a plan. Out: a
//! folder of results. Every layout is measured once in each round, in an order of its own.

mod asked;
mod kept;
mod made;
mod measure;
mod options;
mod page;
mod statements;

pub(crate) use options::Options;

use crate::chance::Random;
use crate::machine::Environment;
use crate::runner::Progress;
use crate::stop::Stop;
use crate::tables::sitting::{LaidOut, Sitting};
use anyhow::{Context, Result, bail};
use asked::Asked;
use bytes::Bytes;
use kept::Kept;
use measure::{Place, Repeat, measure};
use statements::statements;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
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
    let folder = options
        .out
        .clone()
        .unwrap_or_else(|| crate::runner::results_folder(&asked.name));
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut sittings = BTreeMap::new();
    for (name, config) in &asked.tiers {
        let sitting = Sitting::open(name, config, asked.scratch.as_deref(), "layouts", None)?;
        sittings.insert(name.clone(), sitting);
    }
    let measured = rounds(&asked, &sittings, &stop);
    let roots: Vec<PathBuf> = sittings
        .values()
        .filter_map(|sitting| sitting.root().map(Path::to_owned))
        .collect();
    let environment = Environment::here(&roots);
    let tiers = sittings
        .iter()
        .map(|(name, sitting)| (name.clone(), sitting.notes()))
        .collect();
    // Whatever came of it, nothing of ours stays on the tiers.
    let removed: Vec<Result<()>> = sittings.into_values().map(Sitting::remove).collect();
    let measured = measured?;
    removed.into_iter().collect::<Result<()>>()?;
    let kept = Kept {
        schema_version: 1,
        name: asked.name.clone(),
        interrupted: stop.is_asked(),
        environment,
        tiers,
        rows: asked.rows,
        row_bytes: made::row_bytes(),
        batch_rows: asked.batch_rows,
        scan_depth: asked.scan_depth,
        repeats: asked.repeats,
        statements: statements(&measured.laid_out, &measured.repeats),
        plan: asked.text.clone(),
    };
    write(&kept, &folder)?;
    println!(
        "\nresults in {}: report.html, report.md, layouts.csv, run.json",
        folder.display()
    );
    if stop.is_asked() {
        bail!("interrupted: what was measured until then is in the report");
    }
    Ok(())
}

/// What was laid out, and what each repeat of it took.
struct Measured {
    laid_out: BTreeMap<Place, LaidOut>,
    repeats: BTreeMap<Place, Vec<Repeat>>,
}

fn rounds(asked: &Asked, sittings: &BTreeMap<String, Sitting>, stop: &Stop) -> Result<Measured> {
    let places: Vec<Place> = asked
        .tiers
        .keys()
        .flat_map(|tier| asked.layouts.iter().map(|layout| (tier.clone(), *layout)))
        .collect();
    let todo = places.len() as u64 * u64::from(asked.repeats + 1);
    let mut progress = Progress::new(todo, EXPECTED);
    let source = made::Source::new(asked.rows, asked.seed)?;
    let file = Bytes::from(source.file());
    let mut laid_out = BTreeMap::new();
    for (tier, layout) in &places {
        if stop.is_asked() {
            break;
        }
        progress.begin(&format!("laying out {layout} on {tier}"));
        let options = tierlab_layouts::Options {
            layout: *layout,
            shard_bytes: asked.shard_bytes,
        };
        let table = sittings[tier].lay_out(layout.as_str(), file.clone(), options);
        let table = table.with_context(|| format!("cannot lay the table out as {layout} on {tier}"))?;
        laid_out.insert((tier.clone(), *layout), table);
        progress.end();
    }
    let mut repeats: BTreeMap<Place, Vec<Repeat>> = BTreeMap::new();
    for round in 0..asked.repeats {
        let mut order = places.clone();
        Random::new(asked.seed, u64::from(round)).shuffle(&mut order);
        for place in order {
            let Some(table) = laid_out.get(&place).filter(|_| !stop.is_asked()) else {
                continue;
            };
            progress.begin(&format!(
                "round {} of {}, {} on {}",
                round + 1,
                asked.repeats,
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

fn write(kept: &Kept, folder: &Path) -> Result<()> {
    let json = serde_json::to_string_pretty(kept)? + "\n";
    for (name, text) in [
        ("run.json", json),
        ("layouts.csv", page::csv(kept)?),
        ("report.md", page::markdown(kept)),
        ("report.html", page::html(kept)),
    ] {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    print!("{}", page::text(kept));
    Ok(())
}

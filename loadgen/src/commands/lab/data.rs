//! Models and tables of a lab. In: the plan's data. Out: a repository and a table on disk, and on every tier. Existing
//! data are used again; a stamp beside them records their source.

use super::context::{LabContext, PreparedData};
use super::locations::{Location, Locations};
use crate::children;
use crate::error::RunError;
use crate::plan::Data;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::process::Command;
use tierlab_formats::model::{CONFIG_FILE, MANIFEST_FILE, ModelConfig};
use tierlab_formats::table::{EXTENSION, MAGIC};

/// Generates missing data.
pub(super) fn prepare(context: &LabContext<'_>) -> Result<PreparedData, RunError> {
    let LabContext { plan, lab, .. } = context;
    fs::create_dir_all(&lab.work).map_err(RunError::io(&lab.work))?;
    let (repository, features, stamp) = match &lab.data {
        Data::None => return Ok(PreparedData::default()),
        Data::Existing { repository, features } => {
            let folder = repository.join(&plan.model);
            if !folder.is_dir() {
                let problem = format!("no model `{}`: {} does not exist", plan.model, folder.display());
                return Err(plan.refuse("lab.data.repository", problem).into());
            }
            let found = [files_below(&folder), files_below(features)].concat();
            let mut files: Vec<_> = found.iter().map(|(_, of)| (of.len(), of.modified().ok())).collect();
            files.sort_unstable();
            let stamp = format!("given {} {} {files:?}", repository.display(), features.display());
            (repository.clone(), features.clone(), stamp)
        }
        Data::Generated { rows, model_size } => generate(context, *rows, model_size)?,
    };
    let folder = repository.join(&plan.model);
    let of_model = files_below(&folder).into_iter().map(|(file, _)| file);
    // The manifest names the program that wrote it and the files' checksums.
    let mut files: Vec<PathBuf> = of_model.filter(|file| !file.ends_with(MANIFEST_FILE)).collect();
    let mut table_bytes = 0;
    if let Some(table) = joined_table(&repository, &plan.model)? {
        let file = features.join(format!("{table}.{EXTENSION}"));
        plan.check_opens("lab.data.features", &file)?;
        table_bytes = fs::metadata(&file).map_err(RunError::io(&file))?.len();
        files.push(file);
    }
    Ok(PreparedData {
        files,
        repository,
        features,
        table_bytes,
        laid_out_bytes: BTreeMap::new(),
        stamp,
    })
}

/// Returns every file below a folder, links included; unreadable ones, and links to a folder above, are left out.
pub(super) fn files_below(folder: &Path) -> Vec<(PathBuf, Metadata)> {
    let above = fs::canonicalize(folder).unwrap_or_default();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.flat_map(|entry| match (entry.path(), fs::metadata(entry.path())) {
        (path, Ok(found)) if found.is_file() => vec![(path, found)],
        (path, Ok(_)) if fs::canonicalize(&path).is_ok_and(|path| !above.starts_with(path)) => files_below(&path),
        _ => Vec::new(),
    });
    files.collect()
}

/// Writes repository and tables to every tier that does not hold them yet, tables in each layout that a variant reads.
pub(super) fn publish(context: &mut LabContext<'_>, locations: &Locations) -> Result<(), RunError> {
    let lab = context.lab;
    for tier in lab.tiers.iter().filter(|tier| tier.publish) {
        let location = &locations.by_tier[&tier.name];
        let stamp = format!("{}\n{}\n", context.prepared.stamp, location.identity);
        let stamp_file = lab.work.join(format!("published-{}", tier.name));
        if fs::read_to_string(&stamp_file).is_ok_and(|found| found == stamp) {
            continue;
        }
        eprintln!("publishing models and features to {}", tier.name);
        let mut command = tier_command(context, location, (&tier.name, &["publish"]));
        command.arg("--repository").arg(&context.prepared.repository);
        children::run_to_end(&format!("publishing to {}", tier.name), command, context.interrupt)?;
        fs::write(&stamp_file, stamp).map_err(RunError::io(&stamp_file))?;
    }
    lay_out(context, locations)
}

/// Output of `tierlab-models lay-out --json`.
#[derive(Debug, Deserialize)]
struct LayoutOutput {
    table: String,
    bytes: u64,
}

fn lay_out(context: &mut LabContext<'_>, locations: &Locations) -> Result<(), RunError> {
    let lab = context.lab;
    let required = lab.variants.iter().filter(|variant| variant.tier.publish);
    let required = required.filter_map(|variant| Some((variant.tier.name.as_str(), variant.laid_out()?)));
    let required: BTreeSet<(&str, &str)> = required.collect();
    for (tier, layout) in required {
        let location = &locations.by_tier[tier];
        let stamp = format!("{}\n{}\n", context.prepared.stamp, location.identity);
        let stamp_file = lab.work.join(format!("laid-out-{tier}-{layout}"));
        let stamped = fs::read_to_string(&stamp_file).unwrap_or_default();
        let printed = match stamped.strip_prefix(&stamp) {
            Some(printed) => printed.to_owned(),
            None => {
                let printed = lay_out_on(context, location, (tier, layout))?;
                fs::write(&stamp_file, format!("{stamp}{printed}")).map_err(RunError::io(&stamp_file))?;
                printed
            }
        };
        let table = joined_table(&context.prepared.repository, &context.plan.model)?;
        for line in printed.lines() {
            let unknown = |error| RunError::Failed(format!("`tierlab-models lay-out` printed `{line}`: {error}"));
            let found: LayoutOutput = serde_json::from_str(line).map_err(unknown)?;
            if Some(found.table) == table {
                let key = (tier.to_owned(), layout.to_owned());
                context.prepared.laid_out_bytes.insert(key, found.bytes);
            }
        }
    }
    Ok(())
}

/// Lays the tables out on one tier, and returns what was printed.
fn lay_out_on(context: &LabContext<'_>, location: &Location, (tier, layout): (&str, &str)) -> Result<String, RunError> {
    eprintln!("laying the feature tables out on {tier}: {layout}");
    let arguments = ["lay-out", "--json", "--layout", layout];
    let command = tier_command(context, location, (tier, &arguments));
    let label = format!("laying tables out on {tier} as {layout}");
    children::output_of(&label, command, context.interrupt)
}

/// Command of `tierlab-models` that writes to a tier.
fn tier_command(context: &LabContext<'_>, location: &Location, (tier, arguments): (&str, &[&str])) -> Command {
    let mut command = Command::new(&context.programs.models);
    command.args(arguments);
    command.arg("--features").arg(&context.prepared.features);
    command.arg("--to").arg(context.lab.tier_file(tier));
    location.add_to(&mut command, "");
    command
}

/// Generates the model and its table, unless they are there; returns the repository, the folder of tables, and their source.
fn generate(context: &LabContext<'_>, rows: u64, size: &str) -> Result<(PathBuf, PathBuf, String), RunError> {
    let (model, seed) = (&context.plan.model, context.plan.seed.to_string());
    // Data of a build with another table format are generated again.
    let (version, format) = (env!("CARGO_PKG_VERSION"), String::from_utf8_lossy(&MAGIC));
    let stamp = format!("model {model} {size}, {rows} rows, seed {seed}, version {version}, {format}");
    let folder = context.lab.work.join("generated");
    let (repository, features, stamp_file) = (folder.join("repository"), folder.join("features"), folder.join("stamp"));
    if fs::read_to_string(&stamp_file).is_ok_and(|found| found == stamp) {
        return Ok((repository, features, stamp));
    }
    // This folder is the lab's own: its data belong to another plan or are incomplete.
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(RunError::io(&folder))?;
    }
    for folder in [&repository, &features] {
        fs::create_dir_all(folder).map_err(RunError::io(folder))?;
    }
    eprintln!("generating {stamp}");
    let mut command = Command::new(&context.programs.models);
    command.args(["generate", "--model", model, "--size", size, "--seed", &seed]);
    command.arg("--repository").arg(&repository);
    children::run_to_end("generating the model", command, context.interrupt)?;
    if let Some(table) = joined_table(&repository, model)? {
        let mut command = Command::new(&context.programs.models);
        let rows = rows.to_string();
        command.args(["features", "--table", &table, "--rows", &rows, "--seed", &seed]);
        command.arg("--out").arg(&features);
        children::run_to_end("generating the feature table", command, context.interrupt)?;
    }
    fs::write(&stamp_file, &stamp).map_err(RunError::io(&stamp_file))?;
    Ok((repository, features, stamp))
}

/// Returns the table that a model's config joins; `None` without a config or without joined inputs.
fn joined_table(repository: &Path, model: &str) -> Result<Option<String>, RunError> {
    let file = repository.join(model).join(CONFIG_FILE);
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(RunError::io(&file)(error)),
    };
    let config = ModelConfig::parse(&text).map_err(|error| RunError::about(&file, error))?;
    Ok(config.joined.into_values().next().map(|joined| joined.table))
}

#[cfg(test)]
mod tests {
    use super::super::context::Programs;
    use super::*;
    use crate::plan::Plan;
    use tierlab_load::interrupt::Interrupt;

    #[test]
    fn a_users_changed_files_are_other_data() {
        let place = tempfile::tempdir().unwrap();
        for folder in ["repository/m", "features", "work"] {
            fs::create_dir_all(place.path().join(folder)).unwrap();
        }
        fs::write(place.path().join("repository/m/model.onnx"), "old").unwrap();
        let text = "name = \"t\"\nmodel = \"m\"\nseed = 1\nwarmup_s = 0.5\nstep_s = 2.0\ndrain_s = 1.0\n\
                    [[load]]\nmode = \"realtime\"\nrates = [50]\n[lab]\ntiers = [\"nvme\"]\nwork = \"work\"\n\
                    server_config = \"server.toml\"\n[[lab.cache]]\nname = \"cold\"\nshare = 0.0\n\
                    [lab.data]\nrepository = \"repository\"\nfeatures = \"features\"\n";
        let plan = Plan::parse(&place.path().join("t.toml"), text).unwrap();
        let context = LabContext {
            plan: &plan,
            lab: plan.lab.as_ref().unwrap(),
            programs: Programs::default(),
            prepared: PreparedData::default(),
            interrupt: &Interrupt::never(),
            verbose: false,
        };
        let stamp = || prepare(&context).unwrap().stamp;
        let before = stamp();
        assert_eq!(stamp(), before);
        fs::write(place.path().join("repository/m/model.onnx"), "newer").unwrap();
        let newer = stamp();
        assert_ne!(newer, before);
        // Linked files are published, and so are those of linked folders.
        fs::create_dir(place.path().join("own")).unwrap();
        fs::write(place.path().join("own/t.rows"), "old").unwrap();
        std::os::unix::fs::symlink("../own/t.rows", place.path().join("features/t.rows")).unwrap();
        std::os::unix::fs::symlink("../../own", place.path().join("repository/m/1")).unwrap();
        std::os::unix::fs::symlink("..", place.path().join("repository/m/loop")).unwrap();
        let linked = stamp();
        assert_ne!(linked, newer);
        fs::write(place.path().join("own/t.rows"), "newest").unwrap();
        assert_ne!(stamp(), linked);
        assert_eq!(files_below(&place.path().join("repository/m")).len(), 2);
    }

    #[test]
    fn the_joined_table_is_read_from_the_models_config() {
        let repository = tempfile::tempdir().unwrap();
        let folder = repository.path().join("m");
        fs::create_dir(&folder).unwrap();
        assert_eq!(joined_table(repository.path(), "m").unwrap(), None);
        fs::write(folder.join(CONFIG_FILE), "[joined.dense]\ntable = \"ctr\"\n").unwrap();
        assert_eq!(joined_table(repository.path(), "m").unwrap().as_deref(), Some("ctr"));
        fs::write(folder.join(CONFIG_FILE), "nonsense = 1\n").unwrap();
        assert!(
            joined_table(repository.path(), "m")
                .unwrap_err()
                .to_string()
                .contains("nonsense")
        );
    }
}

//! Puts models, feature tables and the results of runs on a tier. A plan compares checksums and headers with the
//! tier's; then objects are put in an order in which no reader sees a manifest of missing files.

mod plan;
mod target;

use crate::error::ModelsError;
use crate::progress::Progress;
use crate::repository::{self, entries};
use crate::stop::Stop;
use clap::Args;
use plan::{PublishPlan, Step};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use target::TierSink;
use tierlab_formats::model::is_plain_name;
use tierlab_formats::table::EXTENSION;
use tierlab_storage::{ErrorKind, Tier, TierConfig};

/// Selection to publish: everything in both folders, unless names are given.
#[derive(Debug, Clone, Default, Args)]
pub struct Selection {
    /// Repository folder [default: models/repository, if it exists]
    #[arg(long, value_name = "DIR")]
    pub repository: Option<PathBuf>,
    /// Folder of feature tables [default: models/features, if it exists]
    #[arg(long, value_name = "DIR")]
    pub features: Option<PathBuf>,
    /// Put this model; may be repeated
    #[arg(long = "model", value_name = "NAME")]
    pub models: Vec<String>,
    /// Put this table; may be repeated
    #[arg(long = "table", value_name = "NAME")]
    pub tables: Vec<String>,
    /// Put the results of this run, a folder written by tierlab-loadgen; may be repeated
    #[arg(long = "run", value_name = "DIR")]
    pub runs: Vec<PathBuf>,
}

impl Selection {
    /// True if nothing is named, which selects everything in both folders.
    fn is_everything(&self) -> bool {
        self.models.is_empty() && self.tables.is_empty() && self.runs.is_empty()
    }

    /// Returns the paths of the wanted names in a folder, which must exist, or of all. `missing` is the error if names are
    /// wanted without a folder.
    fn pick(
        &self,
        (what, missing): (&str, &str),
        wanted: &[String],
        folder: Option<&PathBuf>,
        list: fn(&Path) -> Result<Vec<String>, ModelsError>,
    ) -> Result<Vec<PathBuf>, ModelsError> {
        let Some(folder) = folder else {
            return match wanted {
                [] => Ok(Vec::new()),
                _ => Err(ModelsError::Usage(missing.to_owned())),
            };
        };
        let mut available = list(folder)?;
        if let Some(missing) = wanted.iter().find(|name| !available.contains(name)) {
            let names = available.join(", ");
            let names = if available.is_empty() { "nothing" } else { &names };
            let what = format!("no {what} `{missing}` in {}; available: {names}", folder.display());
            return Err(ModelsError::Usage(what));
        }
        available.retain(|name| self.is_everything() || wanted.contains(name));
        Ok(available.iter().map(|name| folder.join(name)).collect())
    }
}

/// Result of publishing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    /// Objects put.
    pub put: usize,
    /// Their bytes.
    pub put_bytes: u64,
    /// Identical objects that the tier had already.
    pub unchanged: usize,
    /// Objects removed because the local model no longer has them.
    pub removed: usize,
    /// Duration in seconds.
    pub seconds: f64,
}

/// Opens the tier of a TOML file, with keys overridden.
///
/// # Errors
/// A file that cannot be read, an unknown key or value, or a tier that cannot be reached.
pub async fn open_tier(path: &Path, set: &[String]) -> Result<Arc<dyn Tier>, ModelsError> {
    let text = fs::read_to_string(path)
        .map_err(|e| ModelsError::Usage(format!("{}: cannot read the tier's config: {e}", path.display())))?;
    let file = path.display().to_string();
    let config = TierConfig::parse_with(&file, &text, set).map_err(|e| ModelsError::Usage(e.to_string()))?;
    tierlab_storage::open(&config).await.map_err(|e| {
        let what = format!("{file}: cannot open the {} tier: {e}", config.kind());
        match e.kind() {
            ErrorKind::Invalid | ErrorKind::Unsupported => ModelsError::Usage(what),
            _ => {
                let advice = "check that it runs and is at the config's address; --set overrides a key";
                ModelsError::bad(&what, &advice)
            }
        }
    })
}

/// Returns the entries of both folders that are neither model nor table, in words, with advice. Empty if names are
/// given, because the rest is left out on purpose.
///
/// # Errors
/// A folder that cannot be listed.
pub fn skipped_entries(selection: &Selection) -> Result<Vec<String>, ModelsError> {
    let mut skipped = Vec::new();
    if !selection.is_everything() {
        return Ok(skipped);
    }
    // A missing folder is refused by name when it is published.
    if let Some(features) = selection.features.as_ref().filter(|folder| folder.is_dir()) {
        let tables = table_names(features)?;
        for path in entries(features)? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let is_table = tables.iter().any(|table| format!("{table}.{EXTENSION}") == name);
            if !is_table && !name.starts_with('.') && !name.ends_with(".bad.jsonl") {
                skipped.push(format!("{}: {}", path.display(), table_hint(&path)));
            }
        }
    }
    if let Some(repository) = selection.repository.as_ref().filter(|folder| folder.is_dir()) {
        let models = repository::model_names(repository)?;
        for path in entries(repository)? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if !models.iter().any(|model| model == name) && !name.starts_with('.') {
                let hint = match path.extension().and_then(|extension| extension.to_str()) {
                    Some("onnx") => "not a model's folder: import the file with `tierlab-models import`",
                    _ => "not a model: missing 1/model.onnx",
                };
                skipped.push(format!("{}: {hint}", path.display()));
            }
        }
    }
    Ok(skipped)
}

fn table_hint(path: &Path) -> String {
    const ROWS: [&str; 8] = ["parquet", "parq", "csv", "tsv", "arrow", "arrows", "feather", "ipc"];
    let suffix = path.extension().and_then(|suffix| suffix.to_str()).unwrap_or_default();
    if path.is_dir() || ROWS.contains(&suffix) {
        let path = path.display();
        return format!(
            "not a feature table: import it with `tierlab-models import-table {path} --key COLUMN --name NAME`"
        );
    }
    format!("not a feature table: its name must be NAME.{EXTENSION}, with letters, digits, `.`, `_` and `-` in NAME")
}

/// Puts the selection on the tier.
///
/// # Errors
/// A selection of nothing or of an unknown name; a local file that is damaged; a tier that refuses, with the object and
/// the tier named; a stop. Objects already put stay.
pub async fn publish(tier: &dyn Tier, selection: &Selection, stop: &Stop) -> Result<Summary, ModelsError> {
    let target = TierSink { tier, stop };
    let (models, tables) = select(selection)?;
    let mut plan = PublishPlan::default();
    // Tables first: a server that polls the tier refuses a model whose table is missing.
    for table in &tables {
        plan::add_table(&target, table, &mut plan).await?;
    }
    for folder in &models {
        plan::add_model(&target, folder, &mut plan).await?;
    }
    for run in &selection.runs {
        plan::add_run(run, &mut plan)?;
    }
    execute(&target, plan).await
}

async fn execute(target: &TierSink<'_>, plan: PublishPlan) -> Result<Summary, ModelsError> {
    let mut summary = Summary {
        unchanged: plan.unchanged,
        ..Summary::default()
    };
    let mut progress = Progress::bytes("publishing", plan.bytes());
    for Step { object, put } in plan.steps {
        match put {
            Some((body, bytes)) => {
                progress.show(&format!("putting {object} ({})", crate::progress::human_bytes(bytes)));
                target.put(&object, body, bytes).await?;
                progress.advance(bytes);
                summary.put += 1;
                summary.put_bytes += bytes;
            }
            None => {
                progress.show(&format!("removing {object}: missing in the local model"));
                target.remove(&object).await?;
                summary.removed += 1;
            }
        }
    }
    summary.seconds = progress.seconds();
    Ok(summary)
}

/// Returns the selected model folders and table files.
fn select(selection: &Selection) -> Result<(Vec<PathBuf>, Vec<PathBuf>), ModelsError> {
    for folder in selection.repository.iter().chain(&selection.features) {
        if !folder.is_dir() {
            return Err(ModelsError::Usage(format!("{}: no such folder", folder.display())));
        }
    }
    let (repository, features) = (selection.repository.as_ref(), selection.features.as_ref());
    let model = ("model", "--model needs a repository: name one with --repository");
    let table = ("table", "--table needs a folder of tables: name one with --features");
    let folders = selection.pick(model, &selection.models, repository, repository::model_names)?;
    let mut files = selection.pick(table, &selection.tables, features, table_names)?;
    files.iter_mut().for_each(|file| _ = file.add_extension(EXTENSION));
    if folders.is_empty() && files.is_empty() && selection.runs.is_empty() {
        let what = "nothing to publish: create models and tables with `tierlab-models generate` and `tierlab-models features`, or name \
                    folders with --repository and --features";
        return Err(ModelsError::Usage(what.to_owned()));
    }
    Ok((folders, files))
}

/// Returns the files of the named tables, or of all in a folder.
///
/// # Errors
/// A missing folder or table.
pub fn table_files(features: &Path, tables: &[String]) -> Result<Vec<PathBuf>, ModelsError> {
    let selection = Selection {
        features: Some(features.to_owned()),
        tables: tables.to_vec(),
        ..Selection::default()
    };
    Ok(select(&selection)?.1)
}

fn table_names(features: &Path) -> Result<Vec<String>, ModelsError> {
    let is_table = |path: &PathBuf| path.is_file() && path.extension().is_some_and(|extension| extension == EXTENSION);
    let tables = entries(features)?.into_iter().filter(is_table);
    let names = tables.filter_map(|path| path.file_stem()?.to_str().map(str::to_owned));
    Ok(names.filter(|name| is_plain_name(name)).collect())
}

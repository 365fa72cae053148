//! Layout of a folder's feature tables on a tier: `features/TABLE.LAYOUT/`, as the server reads them with
//! `features.layout`.

use crate::error::ModelsError;
use crate::progress::Progress;
use crate::publish;
use crate::stop::Stop;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tierlab_formats::model::FEATURES_PREFIX;
use tierlab_formats::table::EXTENSION;
use tierlab_layouts::laid_out::folder_of;
use tierlab_layouts::{Layout, Manifest, Options};
use tierlab_storage::{ObjectPath, StorageError, Tier, TierConfig};

/// Result for one table.
#[derive(Debug)]
pub struct LaidOutTable {
    /// Name of the table.
    pub table: String,
    /// Folder on the tier.
    pub folder: ObjectPath,
    /// Manifest of the folder.
    pub manifest: Manifest,
    /// Duration in seconds.
    pub seconds: f64,
}

/// Lays out tables: all of a folder if none is named. The file of each is read once, and every row is checked.
///
/// # Errors
/// A missing folder or table; a table that is damaged, or that the layout cannot hold; a tier that refuses; a stop. The
/// existing version stays until the new one is complete.
pub async fn lay_out(
    (features, tables): (&Path, &[String]),
    to: &dyn Tier,
    options: Options,
    stop: &Stop,
) -> Result<Vec<LaidOutTable>, ModelsError> {
    if options.layout == Layout::Rows {
        let what = "`rows` is the layout that `tierlab-models publish` writes: name another layout";
        return Err(ModelsError::Usage(what.to_owned()));
    }
    let files = publish::table_files(features, tables)?;
    let from = local(features).await?;
    let mut done = Vec::new();
    for file in files {
        let named = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let table = named.strip_suffix(&format!(".{EXTENSION}")).unwrap_or(named);
        let bytes = std::fs::metadata(&file)
            .map_err(ModelsError::io("look at", &file))?
            .len();
        let mut progress = Progress::bytes(&format!("{table} as {}", options.layout), bytes);
        let began = Instant::now();
        let work = async {
            let source = ObjectPath::new(named)?;
            let folder = folder_of(&format!("{FEATURES_PREFIX}/{table}"), options.layout)?;
            let on_bytes = &mut |bytes| progress.advance(bytes);
            let manifest = tierlab_layouts::lay_out((&*from, &source), (to, &folder), options, on_bytes).await?;
            Ok((folder, manifest))
        };
        let failed = |e: StorageError| ModelsError::bad(&file.display(), &format!("not laid out: {e}"));
        let (folder, manifest) = stop.or(async { work.await.map_err(failed) }).await?;
        done.push(LaidOutTable {
            table: table.to_owned(),
            folder,
            manifest,
            seconds: began.elapsed().as_secs_f64(),
        });
    }
    Ok(done)
}

/// Opens the folder as a tier that is read through the page cache, because each byte is read once.
async fn local(folder: &Path) -> Result<std::sync::Arc<dyn Tier>, ModelsError> {
    let opened = |e: &dyn std::fmt::Display| ModelsError::bad(&folder.display(), &format!("cannot be opened: {e}"));
    let folder: PathBuf = std::path::absolute(folder).map_err(|e| opened(&e))?;
    let root = toml::Value::String(folder.display().to_string());
    let text = format!("kind = \"nvme\"\nroot = {root}\ndirect = false\n");
    let config = TierConfig::parse("the folder of tables", &text).map_err(|e| opened(&e))?;
    tierlab_storage::open(&config).await.map_err(|e| opened(&e))
}

//! Describes repositories, models, tables and ONNX files, and checks them on request.

use crate::error::ModelsError;
use crate::onnx::Interface;
use crate::progress::{Progress, human_bytes};
use crate::repository;
use crate::stop::Stop;
use crate::tables::check;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use tierlab_formats::model::{MANIFEST_FILE, Manifest, ManifestFile};
use tierlab_formats::onnx::decode;
use tierlab_formats::table::{EXTENSION, TableHeader};
use tierlab_protocol::tensor::TensorSpec;

/// Describes every path through `print`; with `verify`, reads all data and verifies every checksum. Continues after damage.
///
/// # Errors
/// A path of an unknown kind; or, at the end, the damaged paths.
pub fn inspect(paths: &[PathBuf], verify: bool, stop: &Stop, print: &mut dyn FnMut(&str)) -> Result<(), ModelsError> {
    let mut damaged = Vec::new();
    for path in paths {
        for (artifact, describe) in artifacts_at(path)? {
            stop.check()?;
            match describe(&artifact, verify, stop) {
                Ok(text) => print(&text),
                Err(ModelsError::Interrupted) => return Err(ModelsError::Interrupted),
                Err(e) => {
                    print(&format!("DAMAGED {e}\n"));
                    damaged.push(artifact.display().to_string());
                }
            }
        }
    }
    if damaged.is_empty() {
        return Ok(());
    }
    let what = "damaged or unreadable, see above; generate, import or copy it again";
    Err(ModelsError::bad(&damaged.join(", "), &what))
}

/// Model folder, table or graph, with the description of its kind.
type Artifact = (PathBuf, Describe);
type Describe = fn(&Path, bool, &Stop) -> Result<String, ModelsError>;

fn artifacts_at(path: &Path) -> Result<Vec<Artifact>, ModelsError> {
    let is_table = |path: &Path| path.extension().is_some_and(|extension| extension == EXTENSION);
    if path.is_file() {
        let describe: Describe = match is_table(path) {
            true => describe_table,
            false => |file, _, _| describe_graph(file),
        };
        return Ok(vec![(path.to_owned(), describe)]);
    }
    let files = repository::entries(path)?;
    let is_model = |folder: &Path| -> Result<bool, ModelsError> {
        Ok(folder.join(MANIFEST_FILE).is_file() || !repository::versions(folder)?.is_empty())
    };
    if is_model(path)? {
        return Ok(vec![(path.to_owned(), describe_model as Describe)]);
    }
    let mut artifacts: Vec<Artifact> = Vec::new();
    for file in files.into_iter().filter(|file| !repository::is_hidden(file)) {
        if file.is_file() && is_table(&file) {
            artifacts.push((file, describe_table));
        } else if file.is_dir() && is_model(&file)? {
            artifacts.push((file, describe_model));
        }
    }
    if artifacts.is_empty() {
        let what = "no models or feature tables here; create them with `tierlab-models generate` and `features`";
        return Err(ModelsError::bad(&path.display(), &what));
    }
    Ok(artifacts)
}

fn describe_model(folder: &Path, verify: bool, stop: &Stop) -> Result<String, ModelsError> {
    let config = repository::read_config(folder)?.unwrap_or_default();
    let mut text = format!("model {}\n", folder.display());
    if let Some(manifest) = repository::read_manifest(folder)? {
        text.push_str(&describe_manifest(&manifest));
        if verify {
            repository::check_files(folder, &manifest, stop)?;
            text.push_str("  every file matches its SHA-256\n");
        }
    } else {
        for version in repository::versions(folder)? {
            text.push_str(&describe_graph(&folder.join(format!("{version}/model.onnx")))?);
        }
        text.push_str("  no manifest: nothing to check it against\n");
    }
    let batches = match config.max_batch_size {
        0 => "unbatched: each request is a separate run".to_owned(),
        rows => format!("in batches up to {rows} rows"),
    };
    let sessions = match &config.instances {
        Some(fixed) => format!("{} session(s) of {} thread(s)", fixed.count, fixed.intra_op_threads),
        None => "sessions and threads fitted to the server's cores".to_owned(),
    };
    let _ = writeln!(text, "  served {batches}, {sessions}");
    for (input, joined) in &config.joined {
        let column = joined.column.as_ref().unwrap_or(input);
        let _ = writeln!(text, "  input {input} joined from {}.{column}", joined.table);
    }
    Ok(text)
}

/// Formats a manifest as indented lines.
pub fn describe_manifest(manifest: &Manifest) -> String {
    let mut text = format!("  by {}\n", manifest.generator);
    describe_interface(&mut text, &manifest.inputs, &manifest.outputs);
    for ManifestFile { path, bytes, sha256 } in &manifest.files {
        let bytes = human_bytes(*bytes);
        let _ = writeln!(text, "  file {path} {bytes} sha256 {sha256}");
    }
    text
}

fn describe_interface(text: &mut String, inputs: &[TensorSpec], outputs: &[TensorSpec]) {
    for (role, specs) in [("input", inputs), ("output", outputs)] {
        for spec in specs {
            let _ = writeln!(text, "  {role} {} {} {:?}", spec.name, spec.dtype, spec.shape);
        }
    }
}

fn describe_graph(file: &Path) -> Result<String, ModelsError> {
    let bad = |e| ModelsError::bad(&file.display(), &e);
    let bytes = fs::read(file).map_err(ModelsError::io("read", file))?;
    let mut text = format!("  graph {} {}\n", file.display(), human_bytes(bytes.len() as u64));
    let interface = Interface::from_model(&decode(bytes.into()).map_err(bad)?).map_err(bad)?;
    describe_interface(&mut text, &interface.inputs, &interface.outputs);
    Ok(text)
}

fn describe_table(file: &Path, verify: bool, stop: &Stop) -> Result<String, ModelsError> {
    let header = check::read_header(file)?;
    let mut text = format!("table {}\n{}", file.display(), describe_columns(&header));
    if verify {
        let mut progress = Progress::bytes(&format!("checking {}", file.display()), header.file_len());
        check::verify(file, &mut progress, stop)?;
        text.push_str("  every row and block matches its checksum\n");
    }
    Ok(text)
}

/// Formats a table's keys and columns as indented lines.
pub fn describe_columns(header: &TableHeader) -> String {
    let ids = header.ids();
    let entities = match &header.schema.key {
        None => format!("ids {}..{}, seed {}", ids.start, ids.end, header.seed),
        Some(key) => format!("{} keys of `{}`", key.kind.as_str(), key.name),
    };
    let (bytes, rows, stride) = (human_bytes(header.file_len()), header.rows, header.stride);
    let (blocks, each) = (header.block_crcs.len(), header.rows_per_block);
    let mut text = format!("  {bytes} {rows} rows of {stride} bytes, {entities}, {blocks} blocks of {each} rows\n");
    if let Some(key) = &header.schema.key {
        // Opening the index adds bit counts beside its words: 4 bytes for each 64.
        let memory = human_bytes(header.index_bytes + header.index_bytes / 16);
        let (index, longest) = (human_bytes(header.index_bytes), key.longest());
        let _ = writeln!(
            text,
            "  index of keys {index}, {memory} in memory; keys of at most {longest} bytes"
        );
    }
    for column in &header.schema.columns {
        let (name, dtype, shape) = (&column.name, column.dtype, &column.shape);
        let _ = writeln!(text, "  column {name} {dtype} {shape:?} at {}", column.offset);
    }
    text
}

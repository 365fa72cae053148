//! Model repository on disk: writes generated models, reads manifests, checks files against them.
//!
//! `NAME/1/model.onnx`, `NAME/config.toml` and `NAME/manifest.json` each appear atomically, the manifest last. The
//! manifest lists the graph's files but not the config, which the user may edit.

use crate::error::ModelsError;
use crate::generators::{REVISION, Request};
use crate::onnx::{Interface, write_model};
use crate::staged::{StagedFile, write_atomically};
use crate::stop::Stop;
use anyhow::anyhow;
use sha2::{Digest as _, Sha256};
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _, Write};
use std::path::{Path, PathBuf};
use tierlab_formats::model::{
    CONFIG_FILE, MANIFEST_FILE, MODEL_FILE, Manifest, ManifestFile, ModelConfig, TRITON_CONFIG_FILE, is_plain_name,
};
use tierlab_formats::pbtxt::model::model_config;
use tierlab_storage::ObjectPath;

/// Version folder of generated and imported models.
pub const VERSION: &str = "1";

/// Outcome of a request to write something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
pub enum Outcome {
    /// New files were written.
    #[strum(to_string = "written")]
    Written,
    /// Identical, undamaged files existed already.
    #[strum(to_string = "already there and undamaged")]
    UpToDate,
}

/// Result of [`write_generated`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// Outcome of the request.
    pub outcome: Outcome,
    /// True if an edited config was found and kept.
    pub config_preserved: bool,
    /// Files of the model.
    pub manifest: Manifest,
}

/// Writes one generated model below `repository`, unless the same undamaged model exists.
///
/// # Errors
/// A folder or file that cannot be written, or a stop.
pub fn write_generated(repository: &Path, request: &Request, stop: &Stop) -> Result<Generated, ModelsError> {
    stop.check()?;
    let folder = repository.join(request.kind.to_string());
    let generator = generator_line(format_args!("{request}, recipe {REVISION}"));
    if let Ok(Some(manifest)) = read_manifest(&folder)
        && manifest.generator == generator
        && check_files(&folder, &manifest, stop).is_ok()
    {
        return Ok(Generated {
            outcome: Outcome::UpToDate,
            config_preserved: write_config(&folder, request)?,
            manifest,
        });
    }
    let model = request.build();
    stop.check()?;
    let interface = Interface::from_model(&model).map_err(|e| ModelsError::bad(&request, &e))?;
    let path = format!("{VERSION}/{MODEL_FILE}");
    let target = folder.join(&path);
    let staged = StagedFile::create(&target)?;
    let mut out = HashingWriter::new(BufWriter::with_capacity(1 << 20, &staged.file));
    let written = write_model(&model, &mut out).and_then(|()| out.flush());
    written.map_err(ModelsError::io("write", &staged.partial))?;
    let (bytes, sha256) = out.finish();
    stop.check()?;
    staged.commit()?;
    let config_preserved = write_config(&folder, request)?;
    let manifest = Manifest {
        schema_version: Manifest::SCHEMA_VERSION,
        name: request.kind.to_string(),
        generator,
        seed: Some(request.seed),
        inputs: interface.inputs,
        outputs: interface.outputs,
        files: vec![ManifestFile { path, bytes, sha256 }],
    };
    write_manifest(&folder, &manifest)?;
    Ok(Generated {
        outcome: Outcome::Written,
        config_preserved,
        manifest,
    })
}

/// Returns the line of a manifest that names this program and the command that wrote the model.
pub(crate) fn generator_line(command: impl Display) -> String {
    let (name, version) = (env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
    format!("{name} {version} {command}")
}

/// Writes the default config unless the user has edited it; true if an edited config was kept.
fn write_config(folder: &Path, request: &Request) -> Result<bool, ModelsError> {
    let path = folder.join(CONFIG_FILE);
    let body = toml::to_string(&request.config()).map_err(|e| ModelsError::bad(&CONFIG_FILE, &e))?;
    let comment = "Written by `tierlab-models generate`. Edit it freely: an edited file is kept.";
    let expected = format!("# {comment}\n{body}");
    match fs::read_to_string(&path) {
        Ok(existing) => Ok(existing != expected),
        Err(e) if e.kind() == io::ErrorKind::NotFound => write_atomically(&path, expected.as_bytes()).map(|()| false),
        Err(e) => Err(ModelsError::io("read", &path)(e)),
    }
}

/// Writes a model's manifest.
pub(crate) fn write_manifest(folder: &Path, manifest: &Manifest) -> Result<(), ModelsError> {
    let path = folder.join(MANIFEST_FILE);
    let mut text = serde_json::to_vec_pretty(manifest).map_err(|e| ModelsError::bad(&path.display(), &e))?;
    text.push(b'\n');
    write_atomically(&path, &text)
}

/// Reads the manifest of the model in `folder`; `None` if there is none.
///
/// # Errors
/// A manifest that cannot be read, is malformed, or names files outside the model's folder.
pub fn read_manifest(folder: &Path) -> Result<Option<Manifest>, ModelsError> {
    let path = folder.join(MANIFEST_FILE);
    let Some(text) = read_if_exists(&path)? else {
        return Ok(None);
    };
    let manifest = Manifest::parse(&text).map_err(|e| ModelsError::bad(&path.display(), &e))?;
    for file in &manifest.files {
        let what = format!("path outside the model's folder: `{}`", file.path);
        ObjectPath::new(&file.path).map_err(|_| ModelsError::bad(&path.display(), &what))?;
    }
    Ok(Some(manifest))
}

/// Reads and checks the config of the model in `folder`, `config.toml` or Triton's `config.pbtxt`; `None` if there is
/// none.
///
/// # Errors
/// A config that cannot be read or is invalid, or two configs.
pub fn read_config(folder: &Path) -> Result<Option<ModelConfig>, ModelsError> {
    let (own, triton) = (folder.join(CONFIG_FILE), folder.join(TRITON_CONFIG_FILE));
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let utf8 = |text| String::from_utf8(text).map_err(|e| anyhow!("not UTF-8: {e}"));
    let (path, config) = match (read_if_exists(&own)?, read_if_exists(&triton)?) {
        (None, None) => return Ok(None),
        (Some(text), None) => (own, utf8(text).and_then(|text| ModelConfig::parse(&text))),
        (None, Some(text)) => (triton, utf8(text).and_then(|text| model_config(&text, name))),
        (Some(_), Some(_)) => {
            let what = format!("{CONFIG_FILE} is beside it, but the server accepts only one of them: remove one");
            return Err(ModelsError::bad(&triton.display(), &what));
        }
    };
    config.map(Some).map_err(|e| ModelsError::bad(&path.display(), &e))
}

/// Reads a file; `None` if there is none.
pub(crate) fn read_if_exists(path: &Path) -> Result<Option<Vec<u8>>, ModelsError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(ModelsError::io("read", path)(e)),
    }
}

/// Checks every file of a manifest: length and SHA-256.
///
/// # Errors
/// The first file that is missing or damaged; a stop.
pub fn check_files(folder: &Path, manifest: &Manifest, stop: &Stop) -> Result<(), ModelsError> {
    let mut files = manifest.files.iter();
    files.try_for_each(|file| check_file(folder, file, stop))
}

/// Checks one file against its manifest entry.
///
/// # Errors
/// A file that is missing or damaged; a stop.
pub fn check_file(folder: &Path, expected: &ManifestFile, stop: &Stop) -> Result<(), ModelsError> {
    let path = folder.join(&expected.path);
    let (bytes, sha256) = copy_hashed(&path, (io::sink(), &path), stop)?;
    let what = match (bytes == expected.bytes, sha256 == expected.sha256) {
        (true, true) => return Ok(()),
        (false, _) => format!("{bytes} bytes, its manifest says {}", expected.bytes),
        _ => format!("SHA-256 {sha256}, its manifest says {}", expected.sha256),
    };
    let what = format!("{what}: generate or import it again");
    Err(ModelsError::bad(&path.display(), &what))
}

/// Copies a file into a writer, whose path is for errors; returns the length and the SHA-256.
pub(crate) fn copy_hashed(
    from: &Path,
    (to, to_path): (impl Write, &Path),
    stop: &Stop,
) -> Result<(u64, String), ModelsError> {
    let mut file = File::open(from).map_err(ModelsError::io("open", from))?;
    let mut out = HashingWriter::new(to);
    let mut buffer = vec![0; 1 << 20];
    loop {
        stop.check()?;
        let count = file.read(&mut buffer).map_err(ModelsError::io("read", from))?;
        if count == 0 {
            return Ok(out.finish());
        }
        let written = out.write_all(&buffer[..count]);
        written.map_err(ModelsError::io("write", to_path))?;
    }
}

/// Returns the names of the models below `repository`, sorted. Entries without a valid name or a version are skipped.
///
/// # Errors
/// A folder that cannot be listed.
pub fn model_names(repository: &Path) -> Result<Vec<String>, ModelsError> {
    let mut names = Vec::new();
    for name in folder_names(repository)? {
        if !versions(&repository.join(&name))?.is_empty() {
            names.push(name);
        }
    }
    Ok(names)
}

/// Returns the versions in a model's folder that hold a graph, sorted by number. As in the server, no version begins
/// with a zero.
///
/// # Errors
/// A folder that cannot be listed.
pub fn versions(folder: &Path) -> Result<Vec<u64>, ModelsError> {
    let mut names = folder_names(folder)?;
    names.retain(|name| !name.starts_with('0') && folder.join(name).join(MODEL_FILE).is_file());
    let mut versions: Vec<u64> = names.iter().filter_map(|name| name.parse().ok()).collect();
    versions.sort_unstable();
    Ok(versions)
}

fn folder_names(folder: &Path) -> Result<Vec<String>, ModelsError> {
    let folders = entries(folder)?.into_iter().filter(|path| path.is_dir());
    let names = folders.filter_map(|path| path.file_name()?.to_str().map(str::to_owned));
    Ok(names.filter(|name| is_plain_name(name)).collect())
}

/// Returns the paths of the entries in a folder, sorted.
pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>, ModelsError> {
    let listed =
        fs::read_dir(folder).and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect());
    let mut paths: Vec<PathBuf> = listed.map_err(ModelsError::io("list", folder))?;
    paths.sort();
    Ok(paths)
}

/// True if a file's or folder's name begins with a dot.
pub(crate) fn is_hidden(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

/// Returns every file in a model's folder except hidden ones, relative to it, sorted: the files to publish of a model
/// without a manifest.
///
/// # Errors
/// A folder that cannot be listed; a link that leaves the repository or contains itself; a pipe, socket or device; a
/// name that is not UTF-8.
pub(crate) fn all_files(folder: &Path) -> Result<Vec<String>, ModelsError> {
    let mut files = Vec::new();
    let mut pending: Vec<PathBuf> = vec![folder.to_owned()];
    while let Some(current) = pending.pop() {
        for path in entries(&current)? {
            if is_hidden(&path) {
                continue;
            }
            let canonical = check_inside(folder, &path)?;
            if canonical.is_dir() {
                let canonical_folder = fs::canonicalize(&current).map_err(ModelsError::io("read", &current))?;
                if canonical_folder.starts_with(&canonical) {
                    let what = "a link to a folder that contains it: remove it";
                    return Err(ModelsError::bad(&path.display(), &what));
                }
                pending.push(path);
            } else {
                files.push(name_below(folder, &path)?.to_owned());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the path of a file relative to a folder.
///
/// # Errors
/// A name that is not UTF-8: no object has such a name.
pub(crate) fn name_below<'a>(folder: &Path, path: &'a Path) -> Result<&'a str, ModelsError> {
    let name = path.strip_prefix(folder).unwrap_or(path).to_str();
    name.ok_or_else(|| ModelsError::bad(&path.display(), &"file name is not UTF-8: rename it"))
}

/// Checks that a path of a model is a file or folder of its repository, and returns it without links.
///
/// # Errors
/// A link that leads elsewhere; a pipe, socket or device.
pub(crate) fn check_inside(folder: &Path, path: &Path) -> Result<PathBuf, ModelsError> {
    let canonical = |path: &Path| fs::canonicalize(path).map_err(ModelsError::io("read", path));
    let repository = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    let (root, found) = (canonical(repository.unwrap_or(Path::new(".")))?, canonical(path)?);
    if !found.starts_with(&root) {
        let (target, root) = (found.display(), root.display());
        let what = format!("a link to {target}, which is not in {root}: copy the file");
        return Err(ModelsError::bad(&path.display(), &what));
    }
    if found.is_file() || found.is_dir() {
        return Ok(found);
    }
    let what = "neither a file nor a folder: remove it";
    Err(ModelsError::bad(&path.display(), &what))
}

/// Writer that counts bytes and computes their checksum.
struct HashingWriter<W> {
    inner: W,
    hasher: Sha256,
    bytes: u64,
}

impl<W> HashingWriter<W> {
    fn new(inner: W) -> Self {
        let (hasher, bytes) = (Sha256::new(), 0);
        Self { inner, hasher, bytes }
    }

    /// Returns the length, and the SHA-256 as 64 lower-case hex digits.
    fn finish(self) -> (u64, String) {
        (self.bytes, hex::encode(self.hasher.finalize()))
    }
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

//! Files to read: files, folders of parts as Spark, Delta and Iceberg write them, and URLs of object stores. In:
//! arguments of the command line. Out: files in order with their origins, and omitted files with reasons. Reads no
//! rows.

use super::lakes::columns::FileColumns;
use super::lakes::{ChosenFiles, Listing, delta, iceberg, with_columns};
use super::plan::InputFile;
use super::remote::Remote;
use super::request::CsvOptions;
use super::spill::MAX_INPUTS;
use crate::error::ModelsError;
use crate::repository::entries;
use crate::stop::Stop;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum depth of nested folders.
const MAX_DEPTH: usize = 32;
/// Endings of files with rows.
const ENDINGS: [&str; 11] = [
    "parquet", "parq", "csv", "tsv", "arrow", "arrows", "feather", "ipc", "tar", "tfrecord", "tfrec",
];
/// Endings of packed files.
const PACKED: [&str; 4] = [".gz", ".bz2", ".xz", ".zst"];

/// Inputs of an import.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    pub(super) files: Vec<Input>,
    /// Omitted files with reasons, in words.
    pub(super) skipped: Vec<String>,
}

/// One file.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) file: InputFile,
    pub(super) origin: Origin,
    /// Columns of the file, if it does not define its own.
    pub(super) columns: Option<FileColumns>,
}

/// Origin of a file.
#[derive(Debug)]
pub(super) enum Origin {
    Disk(PathBuf),
    Store { store: Arc<Remote>, key: String },
}

impl Inputs {
    /// Finds the files of all inputs.
    ///
    /// # Errors
    /// An input that is missing or has no file of rows; a store that cannot be reached.
    pub(super) fn find(names: &[String], csv: &CsvOptions, stop: &Stop) -> Result<Self, ModelsError> {
        let mut inputs = Self::default();
        for name in names {
            match name.split_once("://") {
                Some(("file", _)) => inputs.add_path(&file_url(name)?, csv)?,
                Some(_) => inputs.add_url(name, csv, stop)?,
                None => inputs.add_path(Path::new(name), csv)?,
            }
        }
        if inputs.files.len() > MAX_INPUTS {
            let count = inputs.files.len();
            return Err(ModelsError::Usage(format!(
                "{count} files, at most {MAX_INPUTS} are read"
            )));
        }
        Ok(inputs)
    }

    fn add_path(&mut self, path: &Path, csv: &CsvOptions) -> Result<(), ModelsError> {
        let found = fs::metadata(path).map_err(ModelsError::io("read", path))?;
        if found.is_file() {
            return self.add_file(path, None);
        }
        if !found.is_dir() {
            let what = "it is a pipe or a device, and rows are read twice: write them to a file first";
            return Err(ModelsError::bad(&path.display(), &what));
        }
        let (name, mut files) = (path.display().to_string(), BTreeMap::new());
        list_files(path, path, 0, &mut files)?;
        let listing = Listing { name, files };
        let read = |name: &str| fs::read(path.join(name)).map_err(ModelsError::io("read", &path.join(name)));
        let chosen = choose(&listing, csv, &read)?;
        self.skipped.extend(chosen.skipped);
        for (name, columns) in chosen.files {
            self.add_file(&path.join(&name), columns)?;
        }
        Ok(())
    }

    fn add_file(&mut self, path: &Path, columns: Option<FileColumns>) -> Result<(), ModelsError> {
        let found = fs::metadata(path).map_err(ModelsError::io("read", path))?;
        let (name, version) = (path.display().to_string(), version_of(&found));
        self.push(name, (found.len(), version), columns, Origin::Disk(path.to_owned()));
        Ok(())
    }

    fn add_url(&mut self, url: &str, csv: &CsvOptions, stop: &Stop) -> Result<(), ModelsError> {
        let store = Arc::new(Remote::open(url, stop)?);
        let mut objects = store.list()?;
        let files = objects.iter().map(|(name, (bytes, _))| (name.clone(), *bytes));
        let files = files.collect();
        let name = url.to_owned();
        let mut chosen = ChosenFiles::default();
        if objects.contains_key("") && objects.len() == 1 {
            chosen.files.insert(String::new(), None);
        } else {
            chosen = choose(&Listing { name, files }, csv, &|name| store.read(name))?;
        }
        self.skipped.extend(chosen.skipped);
        for (key, columns) in chosen.files {
            let object = objects.remove(&key).unwrap_or_default();
            let (name, store) = (store.display_name(&key), Arc::clone(&store));
            self.push(name, object, columns, Origin::Store { store, key });
        }
        Ok(())
    }

    fn push(&mut self, name: String, (bytes, version): (u64, String), columns: Option<FileColumns>, origin: Origin) {
        let file = InputFile {
            name,
            bytes,
            version,
            columns: columns.as_ref().map(FileColumns::digest),
        };
        self.files.push(Input { file, origin, columns });
    }
}

impl Input {
    /// Checks that the file has not changed since it was found, because it could mix rows of two versions.
    ///
    /// # Errors
    /// A file that was written since.
    pub(super) fn is_unchanged(&self) -> Result<(), ModelsError> {
        let Origin::Disk(path) = &self.origin else {
            return Ok(());
        };
        let found = fs::metadata(path).map_err(ModelsError::io("read", path))?;
        if (found.len(), version_of(&found)) == (self.file.bytes, self.file.version.clone()) {
            return Ok(());
        }
        let what = "the file changed while it was read: start over with --restart once it is complete";
        Err(ModelsError::bad(&self.file.name, &what))
    }
}

fn version_of(found: &fs::Metadata) -> String {
    format!("{}.{:09}", found.mtime(), found.mtime_nsec())
}

fn file_url(url: &str) -> Result<PathBuf, ModelsError> {
    let path = url.strip_prefix("file://").filter(|path| path.starts_with('/'));
    let path = path.ok_or_else(|| ModelsError::Usage(format!("{url}: write it as file:///absolute/path")))?;
    Ok(PathBuf::from(path))
}

fn list_files(root: &Path, folder: &Path, depth: usize, files: &mut BTreeMap<String, u64>) -> Result<(), ModelsError> {
    if depth > MAX_DEPTH {
        let what = format!("more than {MAX_DEPTH} folders inside each other");
        return Err(ModelsError::bad(&folder.display(), &what));
    }
    for path in entries(folder)? {
        if path.is_dir() {
            list_files(root, &path, depth + 1, files)?;
            continue;
        }
        let relative = path.strip_prefix(root).unwrap_or(&path).to_str();
        let relative = relative.ok_or_else(|| ModelsError::bad(&path.display(), &"its name is not UTF-8"))?;
        // A dangling link has no bytes; reading it is an error later.
        let bytes = fs::metadata(&path).map_or(0, |found| found.len());
        files.insert(relative.to_owned(), bytes);
    }
    Ok(())
}

/// Chooses the files of a folder.
///
/// # Errors
/// A log of Delta or metadata of Iceberg that cannot be followed; a folder without rows.
pub(super) fn choose(
    folder: &Listing,
    csv: &CsvOptions,
    read: &dyn Fn(&str) -> Result<Vec<u8>, ModelsError>,
) -> Result<ChosenFiles, ModelsError> {
    refuse_inner_tables(folder)?;
    let chosen = if delta::is_table(folder) {
        delta::choose(folder, read)?
    } else if iceberg::is_table(folder) {
        iceberg::choose(folder, read)?
    } else {
        choose_by_name(folder, csv)
    };
    if chosen.files.is_empty() {
        let what = format!("no file of rows in here (.{})", ENDINGS.join(", ."));
        return Err(ModelsError::bad(&folder.name, &what));
    }
    Ok(chosen)
}

/// Refuses tables below the folder, and tables of a kind whose log is not supported: their files also hold replaced or
/// deleted rows.
fn refuse_inner_tables(folder: &Listing) -> Result<(), ModelsError> {
    for name in folder.files.keys() {
        let what = if let Some((inner, _)) = name.split_once("/_delta_log/") {
            format!("{inner} is a table of Delta: name that folder, so that its log is followed")
        } else if let Some((inner, file)) = name.split_once("/metadata/")
            && file.ends_with(".metadata.json")
        {
            format!("{inner} is a table of Iceberg: name that folder, so that its snapshots are looked at")
        } else if name.starts_with(".hoodie/") || name.contains("/.hoodie/") {
            "Hudi tables are not supported: rewrite the rows as Parquet, or name the files one by one".to_owned()
        } else {
            continue;
        };
        return Err(ModelsError::bad(&folder.name, &what));
    }
    Ok(())
}

/// Chooses files of rows by their names, and lists the omitted ones.
fn choose_by_name(folder: &Listing, csv: &CsvOptions) -> ChosenFiles {
    let mut chosen = Vec::new();
    let mut omitted: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
    for name in folder.files.keys() {
        match skip_reason(name) {
            None => chosen.push(name.clone()),
            Some(reason) => omitted.entry(reason).or_default().push(name),
        }
    }
    let skipped = omitted.into_iter().map(|(reason, names)| {
        let (folder, first) = (&folder.name, names[0]);
        match names.len() - 1 {
            0 => format!("{folder}: {first}: {reason}"),
            more => format!("{folder}: {first} and {more} more: {reason}"),
        }
    });
    ChosenFiles {
        skipped: skipped.collect(),
        files: with_columns(chosen, csv),
    }
}

fn skip_reason(name: &str) -> Option<&'static str> {
    if name.split('/').any(|step| step.starts_with(['_', '.'])) {
        return Some("a name that begins with _ or . holds no rows, as Spark has it");
    }
    let name = name.to_ascii_lowercase();
    // Packed rows are refused when they are read, and not left out.
    let unpacked = PACKED.iter().find_map(|packed| name.strip_suffix(*packed));
    let unpacked = unpacked.unwrap_or(&name);
    let (_, ending) = unpacked.rsplit_once('.').unwrap_or_default();
    // TensorFlow names the files of a set x.tfrecord-00001-of-00010.
    let is_row_file = ENDINGS.contains(&ending) || ending.starts_with("tfrecord");
    (!is_row_file).then_some("no file of rows by its name")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose_of(names: &[&str]) -> Result<ChosenFiles, ModelsError> {
        let files = names.iter().map(|&name| (name.to_owned(), 0)).collect();
        let read = |_: &str| unreachable!();
        let name = "f".into();
        choose(&Listing { name, files }, &CsvOptions::default(), &read)
    }

    #[test]
    fn what_spark_writes_is_read_and_the_rest_is_named() {
        let chosen = choose_of(&[
            "_SUCCESS",
            ".part-0.crc",
            "a=1/part-0.snappy.parquet",
            "part-1.parquet",
            "x.txt",
        ])
        .unwrap();
        assert!(chosen.files.keys().eq(["a=1/part-0.snappy.parquet", "part-1.parquet"]));
        let skipped = chosen.skipped.join("\n");
        for word in [".part-0.crc and 1 more", "x.txt"] {
            assert!(skipped.contains(word), "{skipped}");
        }
        let packed = choose_of(&["a.CSV", "b.csv.gz", "b.csv.gz.bak"]).unwrap();
        assert!(packed.files.keys().eq(["a.CSV", "b.csv.gz"]));
        assert!(choose_of(&["_SUCCESS"]).unwrap_err().to_string().contains(".parquet"));
    }

    #[test]
    fn tables_with_a_log_of_their_own_are_not_read_as_folders_of_parts() {
        for (name, word) in [
            (
                "users/_delta_log/00000000000000000000.json",
                "users is a table of Delta",
            ),
            (
                "lake/users/metadata/v1.metadata.json",
                "lake/users is a table of Iceberg",
            ),
            (".hoodie/hoodie.properties", "Hudi"),
            ("users/.hoodie/hoodie.properties", "Hudi"),
        ] {
            let error = choose_of(&["a.parquet", name]).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}

//! Files of rows as batches: Parquet, Arrow IPC (files and streams), CSV, CIFAR's records. In: a local file and what of it is wanted. Out: its schema, its
//! parts, and batches with the numbers of their rows. Knows nothing of keys or tables.

use super::batch::{Batch, Numbers};
use super::cifar::CifarFile;
use super::csv_file::CsvFile;
use super::request::{CsvOptions, FileForm};
use arrow_array::RecordBatch;
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_schema::{Schema, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use std::fs::File;
use std::io::{BufReader, Read as _, Seek as _};
use std::path::Path;
use std::sync::Arc;

/// Rows of a batch of Parquet.
const BATCH_ROWS: usize = 8192;
/// Rows of one unit of work at least, where a file can be cut.
const UNIT_ROWS: u64 = 200_000;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Parquet,
    IpcFile,
    IpcStream,
    Csv,
    /// With these labels.
    Cifar(&'static [&'static str]),
}

/// A stretch of a file that is read at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stretch {
    /// Row groups, of Parquet; of other files there is one stretch.
    pub(super) groups: (usize, usize),
    /// The number of its first row in the file.
    pub(super) first_row: u64,
    /// Rows, where the file tells.
    pub(super) rows: Option<u64>,
    /// Bytes of the file.
    pub(super) bytes: u64,
}

/// A file that was looked at.
pub(super) struct Opened {
    format: Format,
    schema: SchemaRef,
    parquet: Option<ArrowReaderMetadata>,
    csv: Option<CsvFile>,
    cifar: Option<CifarFile>,
}

/// Looks at a file. Where a schema is given, CSV is read as it says.
///
/// # Errors
/// A file that is none of these, or is damaged.
pub(super) fn open(path: &Path, csv: &CsvOptions, known: Option<&Schema>) -> Result<Opened, String> {
    let mut file = File::open(path).map_err(|e| format!("cannot open it: {e}"))?;
    let format = match csv.form {
        FileForm::ByContent => format_of(&mut file, path)?,
        FileForm::Text => Format::Csv,
        FileForm::Cifar10 => Format::Cifar(&["label"]),
        FileForm::Cifar100 => Format::Cifar(&["coarse_label", "fine_label"]),
    };
    let broken = |e: arrow_schema::ArrowError| format!("it cannot be read: {e}");
    Ok(match format {
        Format::Parquet => {
            let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new())
                .map_err(|e| format!("it cannot be read: {e}"))?;
            Opened {
                format,
                schema: Arc::clone(metadata.schema()),
                parquet: Some(metadata),
                csv: None,
                cifar: None,
            }
        }
        Format::IpcFile => Opened {
            format,
            schema: FileReader::try_new(BufReader::new(file), None)
                .map_err(broken)?
                .schema(),
            parquet: None,
            csv: None,
            cifar: None,
        },
        Format::IpcStream => Opened {
            format,
            schema: StreamReader::try_new(BufReader::new(file), None)
                .map_err(broken)?
                .schema(),
            parquet: None,
            csv: None,
            cifar: None,
        },
        Format::Cifar(labels) => Opened::cifar(format, CifarFile::open(path, labels)?),
        Format::Csv => {
            let csv = CsvFile::open(path, csv, known)?;
            Opened {
                format,
                schema: csv.schema(),
                parquet: None,
                csv: Some(csv),
                cifar: None,
            }
        }
    })
}

fn format_of(file: &mut File, path: &Path) -> Result<Format, String> {
    let mut magic = Vec::new();
    let read = file.by_ref().take(6).read_to_end(&mut magic);
    read.and_then(|_| file.rewind())
        .map_err(|e| format!("cannot read it: {e}"))?;
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    match &magic[..] {
        [b'P', b'A', b'R', b'1', ..] => Ok(Format::Parquet),
        b"ARROW1" => Ok(Format::IpcFile),
        [0xff, 0xff, 0xff, 0xff, ..] => Ok(Format::IpcStream),
        [0x1f, 0x8b, ..] => Err("it is gzip: unpack it first".to_owned()),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Err("it is Zstandard: unpack it first".to_owned()),
        _ if ["csv", "tsv", "txt"].contains(&ending) => Ok(Format::Csv),
        [] => Err("it is empty".to_owned()),
        _ if magic == b"versio" => {
            Err("it is a pointer of Git LFS, not the file: fetch it with `git lfs pull`".to_owned())
        }
        _ => Err("it is no Parquet, Arrow IPC, or text named .csv, .tsv or .txt".to_owned()),
    }
}

impl Opened {
    fn cifar(format: Format, file: CifarFile) -> Self {
        Self {
            format,
            schema: file.schema(),
            parquet: None,
            csv: None,
            cifar: Some(file),
        }
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The parts that can be read apart.
    pub(super) fn stretches(&self, file_bytes: u64) -> Vec<Stretch> {
        let Some(parquet) = &self.parquet else {
            return vec![Stretch {
                groups: (0, 0),
                first_row: 0,
                rows: self.cifar.as_ref().map(CifarFile::rows),
                bytes: file_bytes,
            }];
        };
        let mut stretches: Vec<Stretch> = Vec::new();
        let mut first_row = 0;
        for (at, group) in parquet.metadata().row_groups().iter().enumerate() {
            let rows = u64::try_from(group.num_rows()).unwrap_or(0);
            let bytes = u64::try_from(group.compressed_size()).unwrap_or(0);
            match stretches.last_mut() {
                Some(last) if last.rows.is_some_and(|rows| rows < UNIT_ROWS) => {
                    last.groups.1 = at + 1;
                    last.rows = last.rows.map(|before| before + rows);
                    last.bytes += bytes;
                }
                _ => stretches.push(Stretch {
                    groups: (at, at + 1),
                    first_row,
                    rows: Some(rows),
                    bytes,
                }),
            }
            first_row += rows;
        }
        stretches
    }

    /// Reads a stretch: hands its batches, with the columns wanted, to `each`.
    ///
    /// # Errors
    /// Damage, or what `each` answers.
    pub(super) fn read<E: From<String>>(
        &self,
        path: &Path,
        stretch: Stretch,
        columns: &[&str],
        each: &mut dyn FnMut(Batch) -> Result<(), E>,
    ) -> Result<(), E> {
        let wanted: Vec<usize> = self
            .schema
            .fields()
            .iter()
            .enumerate()
            .filter(|(_, field)| columns.contains(&field.name().as_str()))
            .map(|(at, _)| at)
            .collect();
        if let Some(csv) = &self.csv {
            return csv.read(path, columns, each);
        }
        if let Some(cifar) = &self.cifar {
            return cifar.read(path, columns, each);
        }
        let file = File::open(path).map_err(|e| format!("cannot open it: {e}"))?;
        let broken = |e: &dyn std::fmt::Display| format!("it cannot be read: {e}");
        match self.format {
            Format::Parquet => {
                let Some(metadata) = self.parquet.clone() else {
                    return Ok(());
                };
                let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata);
                let mask = ProjectionMask::roots(builder.parquet_schema(), wanted);
                let reader = builder
                    .with_row_groups((stretch.groups.0..stretch.groups.1).collect())
                    .with_projection(mask)
                    .with_batch_size(BATCH_ROWS)
                    .build()
                    .map_err(|e| broken(&e))?;
                let per_row = stretch.bytes as f64 / stretch.rows.unwrap_or(1).max(1) as f64;
                numbered(
                    reader.map(|batch| batch.map_err(|e| broken(&e))),
                    stretch.first_row,
                    per_row,
                    each,
                )
            }
            Format::IpcFile => {
                let reader = FileReader::try_new(BufReader::new(file), Some(wanted)).map_err(|e| broken(&e))?;
                let per_batch = stretch.bytes / (reader.num_batches() as u64).max(1);
                per_batch_numbered(reader.map(|batch| batch.map_err(|e| broken(&e))), per_batch, each)
            }
            Format::IpcStream | Format::Csv | Format::Cifar(_) => {
                let reader = StreamReader::try_new(BufReader::new(file), Some(wanted)).map_err(|e| broken(&e))?;
                per_batch_numbered(reader.map(|batch| batch.map_err(|e| broken(&e))), 0, each)
            }
        }
    }
}

fn numbered<E: From<String>>(
    batches: impl Iterator<Item = Result<RecordBatch, String>>,
    mut row: u64,
    bytes_per_row: f64,
    each: &mut dyn FnMut(Batch) -> Result<(), E>,
) -> Result<(), E> {
    for batch in batches {
        let rows = batch?;
        let count = rows.num_rows();
        each(Batch {
            rows,
            numbers: Numbers::From(row),
            bad: Vec::new(),
            bytes: (bytes_per_row * count as f64) as u64,
        })?;
        row += count as u64;
    }
    Ok(())
}

fn per_batch_numbered<E: From<String>>(
    batches: impl Iterator<Item = Result<RecordBatch, String>>,
    bytes: u64,
    each: &mut dyn FnMut(Batch) -> Result<(), E>,
) -> Result<(), E> {
    let mut row = 0;
    for batch in batches {
        let rows = batch?;
        let count = rows.num_rows() as u64;
        each(Batch {
            rows,
            numbers: Numbers::From(row),
            bad: Vec::new(),
            bytes,
        })?;
        row += count;
    }
    Ok(())
}

//! Columns of Parquet and Arrow IPC files. In: a path and a column. Out: records, one per row: numbers, texts, or lists
//! of them. Nulls are refused with their row, because no model takes them.

use super::{InputError, MAX_BYTES, err, short};
use anyhow::{anyhow, bail};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::ToByteSlice;
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_schema::{ArrowError, DataType as Arrow, Schema};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use tierlab_formats::arrow;
use tierlab_formats::arrow::MAGIC;
use tierlab_load::element;
use tierlab_load::inputs::{Records, Shapes};
use tierlab_protocol::tensor::DataType;

/// Maximum number of rows.
const MAX_ROWS: usize = 16_000_000;

/// Reads a column of a Parquet file.
///
/// # Errors
/// No such file or column, a type that the protocol does not have, a null, damage.
pub fn parquet(path: &Path, column: &str) -> Result<Records, InputError> {
    read(path, || {
        let file = File::open(path).map_err(err(path))?;
        let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(err(path))?;
        let Ok(index) = builder.schema().index_of(column) else {
            return Err(err(path)(missing(column, builder.schema())));
        };
        let mask = ProjectionMask::roots(builder.parquet_schema(), [index]);
        let reader = builder.with_projection(mask).build().map_err(err(path))?;
        collected(path, column, reader)
    })
}

/// Reads a column of an Arrow IPC file or stream.
///
/// # Errors
/// Those of [`parquet()`].
pub fn arrow(path: &Path, column: &str) -> Result<Records, InputError> {
    read(path, || {
        let mut file = BufReader::new(File::open(path).map_err(err(path))?);
        arrow::check(&mut file, arrow::MAX_BATCH_BYTES).map_err(err(path))?;
        file.rewind().map_err(err(path))?;
        let mut magic = [0; MAGIC.len()];
        let is_file = file.read_exact(&mut magic).is_ok() && magic == *MAGIC;
        file.rewind().map_err(err(path))?;
        match is_file {
            true => collected(path, column, FileReader::try_new(file, None).map_err(err(path))?),
            false => collected(path, column, StreamReader::try_new(file, None).map_err(err(path))?),
        }
    })
}

/// Reads a file through a library that may panic on damage; errors name the file.
fn read(path: &Path, parse: impl FnOnce() -> Result<Records, InputError>) -> Result<Records, InputError> {
    let read = catch_unwind(AssertUnwindSafe(parse));
    read.unwrap_or_else(|_| Err(err(path)("the file is damaged")))
}

fn missing(column: &str, schema: &Schema) -> String {
    let columns: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    format!("no column `{column}`; found {}", columns.join(", "))
}

/// Values read from a column so far.
#[derive(Default)]
struct Column {
    dtype: Option<DataType>,
    data: Vec<u8>,
    rows: usize,
    /// Number of elements in each row of lists; empty for numbers and texts.
    lengths: Vec<u64>,
}

fn collected(
    path: &Path,
    column: &str,
    batches: impl Iterator<Item = Result<RecordBatch, ArrowError>>,
) -> Result<Records, InputError> {
    let column_error = |problem: anyhow::Error| err(path)(format!("column `{column}`: {problem}"));
    let mut all = Column::default();
    for batch in batches {
        let batch = batch.map_err(|error| column_error(error.into()))?;
        let Some(array) = batch.column_by_name(column) else {
            return Err(err(path)(missing(column, &batch.schema())));
        };
        all.add(array).map_err(column_error)?;
        if all.rows > MAX_ROWS || all.data.len() > MAX_BYTES {
            let mebibytes = MAX_BYTES >> 20;
            return Err(column_error(anyhow!(
                "more than {MAX_ROWS} rows or {mebibytes} MiB; shorten the file"
            )));
        }
    }
    let shapes = match all.lengths.first() {
        None => Shapes::Same(Vec::new()),
        Some(first) if all.lengths.iter().all(|length| length == first) => Shapes::Same(vec![*first]),
        Some(_) => Shapes::Lengths(all.lengths),
    };
    let source = format!("{}, column `{column}`", short(path));
    Records::new(source, all.dtype.unwrap_or(DataType::Fp32), shapes, all.rows, all.data).map_err(column_error)
}

impl Column {
    fn add(&mut self, array: &ArrayRef) -> anyhow::Result<()> {
        let rows = array.len();
        if let Some(row) = (0..rows).find(|row| array.is_null(*row)) {
            bail!("row {} is null; fill it or remove it", self.rows + row);
        }
        let lists: Option<Vec<ArrayRef>> = match array.data_type() {
            Arrow::List(_) => Some((0..rows).map(|row| array.as_list::<i32>().value(row)).collect()),
            Arrow::LargeList(_) => Some((0..rows).map(|row| array.as_list::<i64>().value(row)).collect()),
            Arrow::FixedSizeList(..) => Some((0..rows).map(|row| array.as_fixed_size_list().value(row)).collect()),
            _ => None,
        };
        match lists {
            None => self.elements(array)?,
            Some(lists) => {
                for (row, list) in lists.iter().enumerate() {
                    if list.null_count() > 0 {
                        let row = self.rows + row;
                        bail!("row {row} has a null in its list; fill it or remove it");
                    }
                    self.elements(list)?;
                    self.lengths.push(list.len() as u64);
                }
            }
        }
        self.rows += rows;
        Ok(())
    }

    fn elements(&mut self, array: &ArrayRef) -> anyhow::Result<()> {
        let dtype = match array.data_type() {
            Arrow::Boolean => {
                self.data.extend(array.as_boolean().values().iter().map(u8::from));
                DataType::Bool
            }
            Arrow::UInt8 => self.numbers::<UInt8Type>(array, DataType::Uint8),
            Arrow::UInt16 => self.numbers::<UInt16Type>(array, DataType::Uint16),
            Arrow::UInt32 => self.numbers::<UInt32Type>(array, DataType::Uint32),
            Arrow::UInt64 => self.numbers::<UInt64Type>(array, DataType::Uint64),
            Arrow::Int8 => self.numbers::<Int8Type>(array, DataType::Int8),
            Arrow::Int16 => self.numbers::<Int16Type>(array, DataType::Int16),
            Arrow::Int32 => self.numbers::<Int32Type>(array, DataType::Int32),
            Arrow::Int64 => self.numbers::<Int64Type>(array, DataType::Int64),
            Arrow::Float16 => self.numbers::<Float16Type>(array, DataType::Fp16),
            Arrow::Float32 => self.numbers::<Float32Type>(array, DataType::Fp32),
            Arrow::Float64 => self.numbers::<Float64Type>(array, DataType::Fp64),
            Arrow::Utf8 => self.texts(array.as_string::<i32>().iter().flatten().map(str::as_bytes)),
            Arrow::LargeUtf8 => self.texts(array.as_string::<i64>().iter().flatten().map(str::as_bytes)),
            Arrow::Utf8View => self.texts(array.as_string_view().iter().flatten().map(str::as_bytes)),
            Arrow::Binary => self.texts(array.as_binary::<i32>().iter().flatten()),
            Arrow::LargeBinary => self.texts(array.as_binary::<i64>().iter().flatten()),
            Arrow::BinaryView => self.texts(array.as_binary_view().iter().flatten()),
            other => bail!("type {other} is not supported by the protocol; cast it in the file"),
        };
        // All batches of one column have one type.
        self.dtype = Some(dtype);
        Ok(())
    }

    fn numbers<T: ArrowPrimitiveType>(&mut self, array: &ArrayRef, dtype: DataType) -> DataType
    where
        [T::Native]: ToByteSlice,
    {
        // Assumes a little-endian machine, like all supported ones.
        self.data
            .extend_from_slice(array.as_primitive::<T>().values().as_ref().to_byte_slice());
        dtype
    }

    fn texts<'a>(&mut self, texts: impl Iterator<Item = &'a [u8]>) -> DataType {
        for text in texts {
            element::push_bytes(text, &mut self.data);
        }
        DataType::Bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{FixedSizeListArray, Float32Array, Int64Array, ListArray, StringArray};
    use arrow_ipc::CompressionType;
    use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
    use parquet::arrow::ArrowWriter;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn batch() -> RecordBatch {
        let lists = [Some(vec![Some(1), Some(2)]), Some(vec![]), Some(vec![Some(3)])];
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(lists);
        let vectors = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]].map(|row| Some(row.map(Some)));
        let vectors = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(vectors, 2);
        RecordBatch::try_from_iter([
            ("id", Arc::new(Int64Array::from(vec![7, 8, 9])) as ArrayRef),
            ("text", Arc::new(StringArray::from(vec!["a", "", "ü"]))),
            ("hole", Arc::new(Float32Array::from(vec![Some(1.0), None, Some(2.0)]))),
            ("tokens", Arc::new(lists)),
            ("vector", Arc::new(vectors)),
        ])
        .unwrap()
    }

    #[test]
    fn columns_of_every_file_are_the_same() {
        let place = tempfile::tempdir().unwrap();
        let [p, f, s] = ["x.parquet", "x.arrow", "x.arrows"].map(|name| place.path().join(name));
        let batch = batch();
        let mut writer = ArrowWriter::try_new(File::create(&p).unwrap(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let mut writer = FileWriter::try_new(File::create(&f).unwrap(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        let mut writer = StreamWriter::try_new(File::create(&s).unwrap(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        type Reader = fn(&Path, &str) -> Result<Records, InputError>;
        for (path, reader) in [(&p, parquet as Reader), (&f, arrow), (&s, arrow)] {
            let id = reader(path, "id").unwrap();
            assert_eq!((id.count(), id.get(1)), (3, (vec![], &8_i64.to_le_bytes()[..])));
            assert_eq!(reader(path, "text").unwrap().get(2).1, "\x02\0\0\0ü".as_bytes());
            assert_eq!(reader(path, "vector").unwrap().get(2).0, [2]);
            let tokens = reader(path, "tokens").unwrap();
            assert_eq!(
                (tokens.get(0).0, tokens.get(1).0, tokens.get(2).0),
                (vec![2], vec![0], vec![1])
            );
            let hole = reader(path, "hole").unwrap_err().problem;
            assert!(hole.contains("column `hole`: row 1 is null"), "{hole}");
            let missing = reader(path, "ids").unwrap_err().problem;
            assert!(missing.contains("no column `ids`; found id, text"), "{missing}");
        }
    }

    #[test]
    fn streams_that_were_cut_or_joined_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x.arrows");
        let batch = batch();
        let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        let cut = writer.get_ref().clone();
        writer.write(&batch).unwrap();
        let whole = writer.into_inner().unwrap();
        for (bytes, problem) in [
            (cut[..cut.len() - 8].to_vec(), "are left: it was cut off"),
            (cut, "without an end marker"),
            ([&whole[..], &whole].concat(), "bytes follow"),
        ] {
            std::fs::write(&path, bytes).unwrap();
            let refused = arrow(&path, "id").unwrap_err().to_string();
            assert!(refused.contains("x.arrows") && refused.contains(problem), "{refused}");
        }
        std::fs::write(&path, whole).unwrap();
        assert_eq!(arrow(&path, "id").unwrap().count(), 6);
    }

    #[test]
    fn what_claims_more_than_any_memory_is_refused_by_its_offset() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x.arrow");
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![7; 5000]));
        let batch = RecordBatch::try_from_iter([("id", numbers)]).unwrap();
        let options = IpcWriteOptions::default();
        let options = options.try_with_compression(Some(CompressionType::LZ4_FRAME)).unwrap();
        let mut writer = FileWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
        writer.write(&batch).unwrap();
        let mut bytes = writer.into_inner().unwrap();
        let at = bytes
            .windows(8)
            .position(|window| window == 40_000_i64.to_le_bytes())
            .unwrap();
        bytes[at..at + 8].copy_from_slice(&(1_i64 << 45).to_le_bytes());
        std::fs::write(&path, bytes).unwrap();
        let refused = arrow(&path, "id").unwrap_err().to_string();
        assert!(
            refused.contains("x.arrow: offset") && refused.contains("claims 35184372088832"),
            "{refused}"
        );
    }

    #[test]
    fn compressed_files_are_read() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x.arrow");
        for codec in [CompressionType::LZ4_FRAME, CompressionType::ZSTD] {
            let options = IpcWriteOptions::default().try_with_compression(Some(codec)).unwrap();
            let file = File::create(&path).unwrap();
            let numbers: ArrayRef = Arc::new(Int64Array::from(vec![7; 5000]));
            let batch = RecordBatch::try_from_iter([("id", numbers)]).unwrap();
            let mut writer = FileWriter::try_new_with_options(file, &batch.schema(), options).unwrap();
            writer.write(&batch).unwrap();
            writer.finish().unwrap();
            assert!(std::fs::metadata(&path).unwrap().len() < 5000);
            let read = arrow(&path, "id").unwrap();
            assert_eq!((read.count(), read.get(4999).1), (5000, &7_i64.to_le_bytes()[..]));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_file_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), magic: bool) {
            let file = tempfile::NamedTempFile::new().unwrap();
            for head in [&b"PAR1"[..], MAGIC] {
                let head = if magic { head } else { b"" };
                std::fs::write(file.path(), [head, &bytes[..], head].concat()).unwrap();
                prop_assert!(parquet(file.path(), "x").is_err());
                let _ = arrow(file.path(), "x");
            }
        }
    }
}

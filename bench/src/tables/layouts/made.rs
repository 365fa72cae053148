//! Table to lay out: rows of a recommender, generated from a seed. In: the number of rows. Out: a table in the rows
//! format, in memory, with access to each row. Values are as uneven as real features, so that compression is neither
//! useless nor free.

use crate::chance::Random;
use anyhow::Result;
use tierlab_formats::table::{TableHeader, TableSchema};
use tierlab_protocol::tensor::DataType;

/// Dense columns, as in the model `ctr`.
const DENSE: i64 = 13;
const CATEGORICAL: i64 = 26;
/// Categories of a column; half of all values are below the square root of this.
const CATEGORIES: f64 = 1e6;

/// Table in the rows format.
pub(super) struct Source {
    pub(super) header: TableHeader,
    rows: Vec<u8>,
}

impl Source {
    pub(super) fn new(rows: u64, seed: u64) -> Result<Self> {
        let schema = schema()?;
        let mut header = TableHeader::new(schema, rows, 0, seed)?;
        let stride = header.stride as usize;
        let mut bytes = vec![0_u8; stride * usize::try_from(rows)?];
        let columns = header.schema.columns.clone();
        for (id, row) in (0_i64..).zip(bytes.chunks_exact_mut(stride)) {
            let mut random = Random::new(seed, id.cast_unsigned());
            for column in &columns {
                let Some(to) = column.of_row_mut(row) else { continue };
                match column.dtype {
                    DataType::Fp32 => {
                        for slot in to.as_chunks_mut::<4>().0 {
                            // Counts on a log scale with two digits, as such features are stored.
                            let value = (random.share() * 800.0).floor() / 100.0;
                            *slot = (value as f32).to_le_bytes();
                        }
                    }
                    _ => {
                        for slot in to.as_chunks_mut::<8>().0 {
                            let category = CATEGORIES.powf(random.share()) as i64;
                            *slot = category.to_le_bytes();
                        }
                    }
                }
            }
            header.seal_row(id, row);
        }
        let block = stride * header.rows_per_block as usize;
        header.block_crcs = bytes.chunks(block).map(crc32c::crc32c).collect();
        Ok(Self { header, rows: bytes })
    }

    /// Returns the file of the rows format.
    pub(super) fn file(&self) -> Vec<u8> {
        let mut file = self.header.encode();
        file.extend_from_slice(&self.rows);
        file
    }

    /// Returns the row of an entity.
    pub(super) fn row(&self, id: i64) -> &[u8] {
        let stride = self.header.stride as usize;
        let at = id.cast_unsigned() as usize * stride;
        &self.rows[at..at + stride]
    }
}

fn schema() -> Result<TableSchema> {
    let columns: [(&str, DataType, &[i64]); 2] = [
        ("dense", DataType::Fp32, &[DENSE]),
        ("categorical", DataType::Int64, &[CATEGORICAL]),
    ];
    Ok(TableSchema::lay_out("layouts", &columns)?)
}

/// Returns the bytes of a row's values, without checksum and padding.
pub(super) const fn row_bytes() -> u64 {
    (DENSE * 4 + CATEGORICAL * 8).cast_unsigned()
}

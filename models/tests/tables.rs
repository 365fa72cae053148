//! Feature tables written to disk, read back through the protocol, damaged, stopped.

use proptest::prelude::*;
use std::fs;
use std::path::Path;
use tierlab_formats::table::{TableHeader, TableSchema};
use tierlab_models::ModelsError;
use tierlab_models::progress::Progress;
use tierlab_models::repository::Outcome;
use tierlab_models::stop::Stop;
use tierlab_models::tables::{RowSource, TableKind, check, ctr, generate, vision, write};
use tierlab_protocol::tensor::DataType;

fn column<'a>(header: &TableHeader, row: &'a [u8], name: &str) -> &'a [u8] {
    let column = header.schema.column(name).unwrap();
    &row[column.offset as usize..][..column.byte_len().unwrap()]
}

fn row<'a>(header: &TableHeader, file: &'a [u8], id: i64) -> &'a [u8] {
    let range = header.row_range(id).unwrap();
    &file[range.start as usize..range.end as usize]
}

fn decode(file: &[u8]) -> TableHeader {
    TableHeader::decode(file, file.len() as u64).unwrap()
}

#[test]
fn ctr_rows_read_back_as_their_values() {
    let out = tempfile::tempdir().unwrap();
    // More than one block, and a last block that is not full.
    let table = generate(TableKind::Ctr, 300, 9, out.path(), &Stop::never()).unwrap();
    let file = fs::read(out.path().join("ctr.rows")).unwrap();
    let header = decode(&file);
    assert_eq!(header, table.header);
    assert_eq!(
        (header.rows, header.stride, header.seed, header.ids()),
        (300, 512, 9, 0..300)
    );
    for id in header.ids() {
        let row = row(&header, &file, id);
        header.check_row(id, row).unwrap();
        let values = ctr::row_values(9, id);
        let dense: Vec<u8> = values.dense.iter().flat_map(|v| v.to_le_bytes()).collect();
        let categorical: Vec<u8> = values.categorical.iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(column(&header, row, "dense"), dense);
        assert_eq!(column(&header, row, "categorical"), categorical);
    }
    assert_eq!(header.block_crcs.len(), 3);
    for block in 0..3 {
        let (range, crc) = header.block(block).unwrap();
        assert_eq!(crc32c::crc32c(&file[range.start as usize..range.end as usize]), crc);
    }
}

#[test]
fn the_same_seed_gives_the_same_rows_everywhere() {
    let sum = |kind: TableKind, stride: usize| {
        let source = kind.source(1).unwrap();
        let mut row = vec![0; stride];
        (0..50).fold(0, |sum, id| {
            source.fill(id, &mut row);
            crc32c::crc32c_append(sum, &row)
        })
    };
    assert_eq!(format!("{:08x}", sum(TableKind::Ctr, 512)), "91575438");
    assert_eq!(format!("{:08x}", sum(TableKind::Vision, 151_552)), "7a0db7b3");
}

#[test]
fn vision_rows_read_back_as_their_values() {
    let out = tempfile::tempdir().unwrap();
    // More images than one chunk holds.
    let table = generate(TableKind::Vision, 30, 9, out.path(), &Stop::never()).unwrap();
    let file = fs::read(&table.path).unwrap();
    let header = decode(&file);
    for id in [0, 1, 26, 27, 28, 29] {
        let row = row(&header, &file, id);
        header.check_row(id, row).unwrap();
        assert!(column(&header, row, "image") == vision::row_values(9, id), "image {id}");
    }
}

#[test]
fn the_same_table_is_left_alone_and_any_other_is_written() {
    let out = tempfile::tempdir().unwrap();
    let outcome = |rows, seed| {
        generate(TableKind::Ctr, rows, seed, out.path(), &Stop::never())
            .unwrap()
            .outcome
    };
    let path = out.path().join("ctr.rows");
    assert_eq!(outcome(200, 1), Outcome::Written);
    let first = fs::read(&path).unwrap();
    assert_eq!(outcome(200, 1), Outcome::UpToDate);
    assert_eq!(outcome(200, 2), Outcome::Written);
    assert_eq!(outcome(201, 2), Outcome::Written);
    assert_eq!(outcome(200, 1), Outcome::Written);
    assert!(
        fs::read(&path).unwrap() == first,
        "the same arguments give the same bytes"
    );
    let mut damaged = first.clone();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(&path, damaged).unwrap();
    assert_eq!(outcome(200, 1), Outcome::Written);
    assert!(fs::read(&path).unwrap() == first);
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 1);
}

/// Requests a stop in the middle of the work.
struct StoppingRows {
    rows: Box<dyn RowSource>,
    stop: Stop,
}

impl RowSource for StoppingRows {
    fn schema(&self) -> &TableSchema {
        self.rows.schema()
    }

    fn fill(&self, id: i64, row: &mut [u8]) {
        if id == 100 {
            self.stop.stop();
        }
        self.rows.fill(id, row);
    }
}

#[test]
fn a_stopped_writer_leaves_what_was_there() {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("ctr.rows");
    fs::write(&path, b"before").unwrap();
    let stop = Stop::default();
    let source = StoppingRows {
        rows: TableKind::Ctr.source(1).unwrap(),
        stop: stop.clone(),
    };
    // Chunks are 8,192 rows: several per core remain when the stop is requested.
    let header = TableHeader::new(source.schema().clone(), 300_000, 0, 1).unwrap();
    let result = write(&path, &source, header, &mut Progress::bytes("test", 1), &stop);
    assert!(matches!(result, Err(ModelsError::Interrupted)));
    assert_eq!(fs::read(&path).unwrap(), b"before");
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 1);
}

/// Rows of one column whose bytes follow from the id.
struct PlainRows(TableSchema);

impl RowSource for PlainRows {
    fn schema(&self) -> &TableSchema {
        &self.0
    }

    fn fill(&self, id: i64, row: &mut [u8]) {
        let len = self.0.columns[0].byte_len().unwrap();
        for (at, byte) in row[..len].iter_mut().enumerate() {
            *byte = (id as u8).wrapping_mul(31).wrapping_add(at as u8);
        }
    }
}

fn verify(path: &Path) -> Result<TableHeader, ModelsError> {
    check::verify(path, &mut Progress::bytes("test", 1), &Stop::never())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_table_reads_back_and_any_damage_is_seen(
        rows in 0_u64..400,
        first_id in -1_000_i64..1_000,
        width in 1_i64..6_000,
        at in any::<prop::sample::Index>(),
        flip in 1_u8..=255,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.rows");
        let source = PlainRows(TableSchema::lay_out("t", &[("x", DataType::Uint8, &[width])]).unwrap());
        let header = TableHeader::new(source.0.clone(), rows, first_id, 0).unwrap();
        let header = write(&path, &source, header, &mut Progress::bytes("test", 1), &Stop::never()).unwrap();
        prop_assert_eq!(&verify(&path).unwrap(), &header);
        check::verify_sample(&path, &header, &source, 7).unwrap();

        let mut file = fs::read(&path).unwrap();
        prop_assert_eq!(&decode(&file), &header);
        for id in header.ids() {
            let row = row(&header, &file, id);
            prop_assert!(header.check_row(id, row).is_ok());
            let mut wanted = vec![0; width as usize];
            source.fill(id, &mut wanted);
            prop_assert_eq!(column(&header, row, "x"), wanted);
        }
        let at = at.index(file.len());
        file[at] ^= flip;
        fs::write(&path, &file).unwrap();
        prop_assert!(verify(&path).is_err(), "a flipped byte at {at} of {} was not seen", file.len());
        file[at] ^= flip;
        file.pop();
        fs::write(&path, &file).unwrap();
        prop_assert!(verify(&path).is_err());
    }
}

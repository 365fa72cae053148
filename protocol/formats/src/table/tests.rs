use super::*;
use proptest::prelude::*;
use tierlab_protocol::tensor::DataType;

fn ctr(rows: u64, first_id: i64) -> TableHeader {
    let schema = TableSchema::lay_out(
        "ctr",
        &[
            ("dense", DataType::Fp32, &[13]),
            ("categorical", DataType::Int64, &[26]),
        ],
    )
    .unwrap();
    TableHeader::new(schema, rows, first_id, 7).unwrap()
}

#[test]
fn ctr_rows_are_512_bytes_and_never_straddle_a_block() {
    let header = ctr(1_000, 1);
    assert_eq!(header.stride, 512);
    assert_eq!(header.schema.column("categorical").unwrap().offset, 56);
    assert_eq!(header.row_range(1).unwrap().start % ALIGN, 0);
    assert_eq!(header.row_range(0), None);
    assert_eq!(header.row_range(1_001), None);
    assert_eq!(header.row_range(1_000).unwrap().end, header.file_len());
    assert_eq!(header.block(7).unwrap().0.end, header.file_len());
    assert!(header.block(8).is_none());
}

#[test]
fn the_checksum_of_a_block_depends_on_its_rows() {
    let header = ctr(2, 0);
    let crc = |value: u8| {
        let mut rows = vec![value; 1024];
        for (id, row) in (0..).zip(rows.chunks_exact_mut(512)) {
            header.seal_row(id, row);
        }
        crc32c::crc32c(&rows)
    };
    assert_ne!(crc(1), crc(2));
}

#[test]
fn more_rows_than_a_header_holds_are_refused() {
    let schema = ctr(1, 0).schema;
    for rows in [u64::MAX, 1 << 62, 128 << 24] {
        assert!(TableHeader::new(schema.clone(), rows, 0, 1).is_err(), "{rows}");
    }
}

#[test]
fn large_rows_are_page_multiples() {
    let schema = TableSchema::lay_out("vision", &[("image", DataType::Uint8, &[3, 224, 224])]).unwrap();
    assert_eq!(schema.stride().unwrap(), 151_552);
}

#[test]
fn misuse_of_a_schema_is_refused() {
    assert!(TableSchema::lay_out("t", &[]).is_err());
    assert!(TableSchema::lay_out("../t", &[("a", DataType::Fp32, &[1])]).is_err());
    assert!(TableSchema::lay_out("t", &[("a", DataType::Bytes, &[1])]).is_err());
    assert!(TableSchema::lay_out("t", &[("a", DataType::Fp32, &[-1])]).is_err());
    assert!(TableSchema::lay_out("t", &[("a", DataType::Int8, &[1]), ("a", DataType::Int8, &[1])]).is_err());
}

proptest! {
    #[test]
    fn headers_read_back(rows in 0_u64..5_000, first_id in -1_000_i64..1_000, crc in any::<u32>()) {
        let mut header = ctr(rows, first_id);
        header.block_crcs.fill(crc);
        let bytes = header.encode();
        prop_assert_eq!(bytes.len() as u64, header.header_len());
        prop_assert_eq!(TableHeader::decode(&bytes, header.file_len()).unwrap(), header);
    }

    #[test]
    fn headers_without_blocks_read_back(rows in 0_u64..1 << 40, first_id in -1_000_i64..1_000) {
        let header = TableHeader::without_blocks(ctr(1, 0).schema, rows, first_id).unwrap();
        let bytes = header.encode();
        prop_assert!(header.block(0).is_none());
        prop_assert_eq!(TableHeader::decode(&bytes, header.file_len()).unwrap(), header);
    }

    #[test]
    fn any_damage_to_a_header_is_seen(rows in 1_u64..5_000, at in any::<prop::sample::Index>(), flip in 1_u8..=255) {
        let header = ctr(rows, 0);
        let mut bytes = header.encode();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        prop_assert!(TableHeader::decode(&bytes, header.file_len()).is_err());
    }

    #[test]
    fn truncated_files_are_seen(rows in 1_u64..5_000, cut in 1_u64..10_000) {
        let header = ctr(rows, 0);
        let bytes = header.encode();
        let short = header.file_len().saturating_sub(cut);
        let length = usize::try_from(short).unwrap().min(bytes.len());
        prop_assert!(TableHeader::decode(&bytes[..length], short).is_err());
    }

    #[test]
    fn arbitrary_bytes_are_no_table(mut bytes in prop::collection::vec(any::<u8>(), 0..9_000), magic in any::<bool>()) {
        if magic && bytes.len() >= 8 {
            bytes[..8].copy_from_slice(&MAGIC);
        }
        prop_assert!(TableHeader::decode(&bytes, bytes.len() as u64).is_err());
    }

    #[test]
    fn a_row_proves_content_and_identity(id in 0_i64..100, other in 0_i64..100, at in 0_usize..512, flip in 1_u8..=255) {
        let header = ctr(100, 0);
        let mut row = vec![3_u8; 512];
        header.seal_row(id, &mut row);
        prop_assert!(header.check_row(id, &row).is_ok());
        prop_assert_eq!(header.check_row(other, &row).is_ok(), id == other);
        prop_assert!(header.check_row(id, &row[..511]).is_err());
        row[at] ^= flip;
        prop_assert!(header.check_row(id, &row).is_err());
    }
}

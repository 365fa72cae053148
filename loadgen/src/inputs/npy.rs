//! `.npy`: one array in NumPy's format. In: bytes. Out: records, the slices along the first dimension.

use tierlab_formats::npy;
use tierlab_load::inputs::{Records, Shapes};

/// Reads an array; `source` names it in errors and results.
///
/// # Errors
/// Bytes that are not an array, a type that the protocol does not have, or a length that differs from the header's.
pub fn read(source: &str, bytes: &[u8]) -> Result<Records, String> {
    array(source, bytes).map_err(|what| format!("{source}: {what}"))
}

fn array(source: &str, bytes: &[u8]) -> Result<Records, String> {
    let array = npy::read(bytes)?;
    let (records, dims) = match array.shape.split_first() {
        None => (1, Vec::new()),
        Some((first, rest)) => (*first, rest.iter().map(|dim| *dim as u64).collect()),
    };
    Records::new(source.to_owned(), array.dtype, Shapes::Same(dims), records, array.data).map_err(|what| {
        what.strip_prefix(source)
            .map_or_else(|| what.clone(), |rest| rest.trim_start_matches(": ").to_owned())
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierlab_protocol::tensor::DataType;

    const MAGIC: &[u8] = b"\x93NUMPY";

    pub(crate) fn file(descr: &str, fortran: bool, shape: &[usize], data: &[u8]) -> Vec<u8> {
        let dims: String = shape.iter().map(|dim| format!("{dim}, ")).collect();
        let order = if fortran { "True" } else { "False" };
        let mut header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({dims}), }}");
        while (10 + header.len() + 1) % 64 != 0 {
            header.push(' ');
        }
        header.push('\n');
        let len = (header.len() as u16).to_le_bytes();
        [MAGIC, &[1, 0], &len, header.as_bytes(), data].concat()
    }

    #[test]
    fn arrays_are_records_along_their_first_dimension() {
        let data: Vec<u8> = (1..=6_u16).flat_map(u16::to_be_bytes).collect();
        let records = read("x.npy", &file(">u2", false, &[3, 2], &data)).unwrap();
        assert_eq!((records.len(), records.dtype()), (3, DataType::Uint16));
        assert_eq!(records.get(1), (vec![2], &[3, 0, 4, 0][..]));
        let scalar = read("x.npy", &file("<f4", false, &[], &1.5_f32.to_le_bytes())).unwrap();
        assert_eq!(scalar.get(0), (vec![], &1.5_f32.to_le_bytes()[..]));
        let columns = read("x.npy", &file("|i1", true, &[2, 3], &[1, 4, 2, 5, 3, 6])).unwrap();
        assert_eq!(columns.get(1).1, [4, 5, 6]);
        let texts = read("x.npy", &file("|S3", false, &[2], b"ab\0\0\0\0")).unwrap();
        assert_eq!(
            (texts.get(0).1, texts.get(1).1),
            (&b"\x02\0\0\0ab"[..], &b"\0\0\0\0"[..])
        );
        let wide: Vec<u8> = ['ü' as u32, 0].iter().flat_map(|code| code.to_le_bytes()).collect();
        let wide = read("x.npy", &file("<U2", false, &[1], &wide)).unwrap();
        assert_eq!(wide.get(0).1, "\x02\0\0\0ü".as_bytes());
    }

    #[test]
    fn what_is_no_array_is_told_apart() {
        let good = file("<f4", false, &[2], &[0; 8]);
        for (bytes, what) in [
            (b"PK".to_vec(), "does not begin"),
            (good[..20].to_vec(), "cut off"),
            (good[..good.len() - 1].to_vec(), "takes 8 bytes, there are 7"),
            (file("|O", false, &[1], &[0; 8]), "Python objects"),
            (file("<c8", false, &[1], &[0; 8]), "`<c8`"),
            (file("<f4", false, &[usize::MAX, 9], &[]), "too large"),
            (file("<f4", false, &[1; 20], &[0; 4]), "more than 16 dimensions"),
            (file("|b1", false, &[1], &[2]), "neither 0 nor 1"),
            (file("<f4", false, &[0, 4], &[]), "no records"),
        ] {
            let refused = read("x.npy", &bytes).unwrap_err();
            assert!(refused.starts_with("x.npy: ") && refused.contains(what), "{refused}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read("x", &bytes);
            let _ = read("x", &[MAGIC, &[1, 0], &bytes].concat());
        }

        #[test]
        fn damaged_files_are_read_or_refused(at in 0_usize..200, byte: u8, cut: bool) {
            let mut bytes = file("<i4", true, &[2, 3], &[7; 24]);
            let at = at % bytes.len();
            if cut { bytes.truncate(at) } else { bytes[at] = byte }
            prop_assert!(read("x", &bytes).is_err() || !cut);
        }

        #[test]
        fn every_order_has_the_same_elements(rows in 1_usize..5, columns in 1_usize..5) {
            let by_rows: Vec<u8> = (0..rows * columns).map(|i| i as u8).collect();
            let by_columns: Vec<u8> = (0..columns).flat_map(|c| (0..rows).map(move |r| (r * columns + c) as u8)).collect();
            let a = read("x", &file("|u1", false, &[rows, columns], &by_rows)).unwrap();
            let b = read("x", &file("|u1", true, &[rows, columns], &by_columns)).unwrap();
            prop_assert_eq!(a, b);
        }
    }
}

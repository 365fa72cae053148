//! Arrays in NumPy's formats. In: bytes of a `.npy` file, or of a `.npz` archive of several, compressed or not. Out: records, the
//! slices along the first dimension. Format of archives: PKWARE's APPNOTE, its central directory; encryption, several disks and
//! archives beyond 4 GiB are refused.

use super::{InputError, MAX_BYTES, err, read, short};
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use flate2::Crc;
use flate2::read::DeflateDecoder;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use tierlab_formats::npy as formats;
use tierlab_load::inputs::{Records, Shapes};

const EOCD: &[u8] = b"PK\x05\x06";
const ENTRY_MAGIC: &[u8] = b"PK\x01\x02";
const LOCAL_MAGIC: &[u8] = b"PK\x03\x04";
/// Maximum size of the end record with the longest comment.
const END_BYTES: usize = 22 + 65_535;
/// Maximum number of arrays.
const MAX_ARRAYS: usize = 1_000;

/// Entry of the central directory.
struct Entry {
    name: String,
    method: u16,
    crc: u32,
    compressed: usize,
    plain: usize,
    local: usize,
}

/// Reads the array of a `.npy` file.
///
/// # Errors
/// A file that is not an array, a type that the protocol does not have, or a length that differs from the header's.
pub fn npy(path: &Path) -> Result<Records, InputError> {
    array(short(path), &read(path)?).map_err(err(path))
}

fn array(source: String, bytes: &[u8]) -> Result<Records> {
    let array = formats::read(bytes)?;
    // A scalar is one record.
    let (records, dims) = match array.shape.split_first() {
        None => (1, Vec::new()),
        Some((first, rest)) => (*first, rest.iter().map(|dim| *dim as u64).collect()),
    };
    Records::new(source, array.dtype, Shapes::Same(dims), records, array.data)
}

/// Reads every array of a `.npz` archive, by name.
///
/// # Errors
/// A file in another format, or an array that cannot be read, by its name.
pub fn npz(path: &Path) -> Result<BTreeMap<String, Records>, InputError> {
    arrays(&short(path), &read(path)?).map_err(err(path))
}

fn arrays(source: &str, bytes: &[u8]) -> Result<BTreeMap<String, Records>> {
    let mut arrays = BTreeMap::new();
    let mut remaining = MAX_BYTES;
    for entry in entries(bytes)? {
        let Some(name) = entry.name.strip_suffix(".npy") else {
            bail!("`{}` in it is not an array", entry.name);
        };
        let fault = |problem: anyhow::Error| anyhow!("`{name}`: {problem}");
        remaining = remaining
            .checked_sub(entry.plain)
            .with_context(|| format!("`{name}`: more than {} MiB with the arrays before it", MAX_BYTES >> 20))?;
        let plain = unpacked(bytes, &entry).map_err(fault)?;
        let records = array(format!("{source}, `{name}`"), &plain).map_err(fault)?;
        arrays.insert(name.to_owned(), records);
    }
    Ok(arrays)
}

/// Reads one array of a `.npz` archive: the named one, or the only one.
///
/// # Errors
/// Those of [`npz`], and an unknown name, with the names in the archive.
pub fn npz_array(path: &Path, name: Option<&str>) -> Result<Records, InputError> {
    chosen(npz(path)?, name).map_err(err(path))
}

fn chosen(mut arrays: BTreeMap<String, Records>, name: Option<&str>) -> Result<Records> {
    let names: Vec<String> = arrays.keys().cloned().collect();
    let found = match name {
        Some(name) => arrays.remove(name),
        None if arrays.len() == 1 => arrays.into_values().next(),
        None => None,
    };
    found.with_context(|| {
        let missing = name.map_or_else(|| "no `name`".to_owned(), |name| format!("no array `{name}`"));
        format!("{missing}; found {}", names.join(", "))
    })
}

fn entries(bytes: &[u8]) -> Result<Vec<Entry>> {
    let tail = bytes.len().saturating_sub(END_BYTES);
    let end = bytes[tail..].windows(EOCD.len()).rposition(|window| window == EOCD);
    let end = tail + end.context("not an .npz file: not a ZIP archive, or cut off")?;
    let comment = usize::from(u16_at(bytes, end + 20)?);
    ensure!(bytes.len() - end >= 22 + comment, "it is cut off");
    let count = usize::from(u16_at(bytes, end + 10)?);
    ensure!(count <= MAX_ARRAYS, "more than {MAX_ARRAYS} arrays");
    let mut at = u32_at(bytes, end + 16)? as usize;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        if bytes.get(at..at.saturating_add(4)) != Some(ENTRY_MAGIC) {
            bail!("its directory is damaged, or that of an archive beyond 4 GiB");
        }
        ensure!(u16_at(bytes, at + 8)? & 1 == 0, "it is encrypted");
        let name_len = usize::from(u16_at(bytes, at + 28)?);
        let name = bytes.get(at + 46..at + 46 + name_len);
        let name = name.context("its directory is cut off")?;
        entries.push(Entry {
            name: String::from_utf8_lossy(name).into_owned(),
            method: u16_at(bytes, at + 10)?,
            crc: u32_at(bytes, at + 16)?,
            compressed: u32_at(bytes, at + 20)? as usize,
            plain: u32_at(bytes, at + 24)? as usize,
            local: u32_at(bytes, at + 42)? as usize,
        });
        at += 46 + name_len + usize::from(u16_at(bytes, at + 30)?) + usize::from(u16_at(bytes, at + 32)?);
    }
    Ok(entries)
}

fn unpacked<'a>(bytes: &'a [u8], entry: &Entry) -> Result<Cow<'a, [u8]>> {
    let at = entry.local;
    if bytes.get(at..at.saturating_add(4)) != Some(LOCAL_MAGIC) {
        bail!("it is not at its position in the directory");
    }
    let begin = at + 30 + usize::from(u16_at(bytes, at + 26)?) + usize::from(u16_at(bytes, at + 28)?);
    let end = begin.checked_add(entry.compressed);
    let packed = end.and_then(|end| bytes.get(begin..end)).context("it is cut off")?;
    let plain: Cow<'a, [u8]> = match entry.method {
        0 => packed.into(),
        8 => {
            let mut plain = Vec::new();
            // One byte more than in the directory, to detect a longer entry.
            let limit = entry.plain as u64 + 1;
            let reading = DeflateDecoder::new(packed).take(limit).read_to_end(&mut plain);
            reading.map_err(|error| anyhow!("it cannot be unpacked: {error}"))?;
            plain.into()
        }
        other => {
            let advice = "save it by np.savez or np.savez_compressed";
            bail!("unsupported compression method {other}; {advice}");
        }
    };
    let mut crc = Crc::new();
    crc.update(&plain);
    if plain.len() != entry.plain || crc.sum() != entry.crc {
        bail!("it is damaged: its checksum differs");
    }
    Ok(plain)
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16> {
    chunk(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32> {
    chunk(bytes, at).map(u32::from_le_bytes)
}

fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N]> {
    let found = bytes.get(at..).and_then(<[u8]>::first_chunk::<N>);
    found.copied().context("its directory is cut off")
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::DeflateEncoder;
    use proptest::prelude::*;
    use std::io::Write;
    use tierlab_protocol::tensor::DataType;

    const MAGIC: &[u8] = b"\x93NUMPY";

    fn file(descr: &str, fortran: bool, shape: &[usize], data: &[u8]) -> Vec<u8> {
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
        let records = array("x.npy".into(), &file(">u2", false, &[3, 2], &data)).unwrap();
        assert_eq!((records.count(), records.dtype), (3, DataType::Uint16));
        assert_eq!(records.get(1), (vec![2], &[3, 0, 4, 0][..]));
        let scalar = array("x.npy".into(), &file("<f4", false, &[], &1.5_f32.to_le_bytes())).unwrap();
        assert_eq!(scalar.get(0), (vec![], &1.5_f32.to_le_bytes()[..]));
        let columns = array("x.npy".into(), &file("|i1", true, &[2, 3], &[1, 4, 2, 5, 3, 6])).unwrap();
        assert_eq!(columns.get(1).1, [4, 5, 6]);
        let texts = array("x.npy".into(), &file("|S3", false, &[2], b"ab\0\0\0\0")).unwrap();
        assert_eq!(
            (texts.get(0).1, texts.get(1).1),
            (&b"\x02\0\0\0ab"[..], &b"\0\0\0\0"[..])
        );
        let wide: Vec<u8> = ['ü' as u32, 0].iter().flat_map(|code| code.to_le_bytes()).collect();
        let wide = array("x.npy".into(), &file("<U2", false, &[1], &wide)).unwrap();
        assert_eq!(wide.get(0).1, "\x02\0\0\0ü".as_bytes());
    }

    #[test]
    fn what_is_no_array_is_told_apart() {
        let good = file("<f4", false, &[2], &[0; 8]);
        for (bytes, problem) in [
            (b"PK".to_vec(), "wrong first bytes"),
            (good[..20].to_vec(), "cut off"),
            (good[..good.len() - 1].to_vec(), "requires 8 bytes, found 7"),
            (file("|O", false, &[1], &[0; 8]), "Python objects"),
            (file("<c8", false, &[1], &[0; 8]), "`<c8`"),
            (file("<f4", false, &[usize::MAX, 9], &[]), "too large"),
            (file("<f4", false, &[1; 20], &[0; 4]), "more than 16 dimensions"),
            (file("|b1", false, &[1], &[2]), "neither 0 nor 1"),
            (file("<f4", false, &[0, 4], &[]), "no records"),
        ] {
            let refused = array("x.npy".into(), &bytes).unwrap_err();
            assert!(refused.to_string().contains(problem), "{refused}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = array("x".into(), &bytes);
            let _ = array("x".into(), &[MAGIC, &[1, 0], &bytes].concat());
        }

        #[test]
        fn damaged_files_are_read_or_refused(at in 0_usize..200, byte: u8, cut: bool) {
            let mut bytes = file("<i4", true, &[2, 3], &[7; 24]);
            let at = at % bytes.len();
            if cut { bytes.truncate(at) } else { bytes[at] = byte }
            prop_assert!(array("x".into(), &bytes).is_err() || !cut);
        }

        #[test]
        fn every_order_has_the_same_elements(rows in 1_usize..5, columns in 1_usize..5) {
            let by_rows: Vec<u8> = (0..rows * columns).map(|i| i as u8).collect();
            let by_columns: Vec<u8> = (0..columns).flat_map(|c| (0..rows).map(move |r| (r * columns + c) as u8)).collect();
            let a = array("x".into(), &file("|u1", false, &[rows, columns], &by_rows)).unwrap();
            let b = array("x".into(), &file("|u1", true, &[rows, columns], &by_columns)).unwrap();
            prop_assert_eq!(a, b);
        }
    }

    fn archive(arrays: &[(&str, Vec<u8>)], compressed: bool) -> Vec<u8> {
        let (mut out, mut directory) = (Vec::new(), Vec::new());
        for (name, plain) in arrays {
            let name = format!("{name}.npy");
            let packed = if compressed {
                let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(plain).unwrap();
                encoder.finish().unwrap()
            } else {
                plain.clone()
            };
            let mut crc = Crc::new();
            crc.update(plain);
            let method: u16 = if compressed { 8 } else { 0 };
            let sizes = [crc.sum(), packed.len() as u32, plain.len() as u32]
                .map(u32::to_le_bytes)
                .concat();
            let names = [name.len() as u16, 0].map(u16::to_le_bytes).concat();
            let at = out.len() as u32;
            out.extend(
                [
                    LOCAL_MAGIC,
                    &[20, 0, 0, 0],
                    &method.to_le_bytes(),
                    &[0; 4],
                    &sizes,
                    &names,
                    name.as_bytes(),
                    &packed,
                ]
                .concat(),
            );
            let head = [
                ENTRY_MAGIC,
                &[20, 0, 20, 0, 0, 0],
                &method.to_le_bytes(),
                &[0; 4],
                &sizes,
                &names,
            ]
            .concat();
            directory.extend([&head[..], &[0; 10], &at.to_le_bytes(), name.as_bytes()].concat());
        }
        let count = (arrays.len() as u16).to_le_bytes();
        let at = (out.len() as u32).to_le_bytes();
        let len = (directory.len() as u32).to_le_bytes();
        [&out[..], &directory, EOCD, &[0; 4], &count, &count, &len, &at, &[0, 0]].concat()
    }

    fn two(compressed: bool) -> Vec<u8> {
        let a = file("|u1", false, &[2, 2], &[1, 2, 3, 4]);
        let b = file("<i2", false, &[1], &[5, 0]);
        archive(&[("a", a), ("b", b)], compressed)
    }

    #[test]
    fn arrays_are_found_by_name() {
        for compressed in [false, true] {
            let both = arrays("x.npz", &two(compressed)).unwrap();
            assert_eq!(both["a"].get(1).1, [3, 4]);
            assert_eq!(both["b"].get(0).1, [5, 0]);
            let missing = chosen(arrays("x.npz", &two(compressed)).unwrap(), Some("c")).unwrap_err();
            assert!(missing.to_string().contains("no array `c`; found a, b"), "{missing}");
            assert!(chosen(both, None).is_err());
        }
    }

    #[test]
    fn damage_is_told() {
        let mut bytes = two(false);
        let at = bytes.windows(4).position(|window| window == [1, 2, 3, 4]).unwrap();
        bytes[at] = 9;
        let refused = arrays("x.npz", &bytes).unwrap_err();
        assert!(refused.to_string().contains("`a`: it is damaged"), "{refused}");
        let whole = two(true);
        for left_out in [1, 2] {
            let refused = arrays("x.npz", &whole[..whole.len() - left_out]).unwrap_err();
            assert!(refused.to_string().contains("cut off"), "{refused}");
        }
        let refused = arrays("x.npz", b"\x93NUMPY").unwrap_err();
        assert!(refused.to_string().contains("not a ZIP archive"));
    }

    proptest! {
        #[test]
        fn any_archive_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = arrays("x", &bytes);
            let _ = arrays("x", &[&bytes[..], EOCD, &bytes[..]].concat());
        }

        #[test]
        fn damaged_archives_are_read_or_refused(at in 0_usize..2_000, byte: u8, cut: bool, compressed: bool) {
            let mut bytes = two(compressed);
            let at = at % bytes.len();
            if cut { bytes.truncate(at) } else { bytes[at] = byte }
            prop_assert!(arrays("x", &bytes).is_err() || !cut);
        }
    }
}

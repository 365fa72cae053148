//! `.npz`: several arrays in a ZIP archive in NumPy's format, compressed or not. In: bytes. Out: the arrays by name.
//! Format: PKWARE's APPNOTE, its central directory; encryption, several disks and archives beyond 4 GiB are refused.

use super::{FILE_BYTES, npy};
use flate2::Crc;
use flate2::read::DeflateDecoder;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read;
use tierlab_load::inputs::Records;

const END: &[u8] = b"PK\x05\x06";
const ENTRY: &[u8] = b"PK\x01\x02";
const LOCAL: &[u8] = b"PK\x03\x04";
/// Maximum size of the end record with the longest comment.
const END_BYTES: usize = 22 + 65_535;
/// Maximum number of arrays.
const ENTRIES: usize = 1_000;

/// Entry of the central directory.
struct Entry {
    name: String,
    method: u16,
    crc: u32,
    compressed: usize,
    plain: usize,
    local: usize,
}

/// Reads every array, by its name.
///
/// # Errors
/// Bytes in another format, or an array that cannot be read, by its name.
pub fn read(source: &str, bytes: &[u8]) -> Result<BTreeMap<String, Records>, String> {
    let entries = entries(bytes).map_err(|what| format!("{source}: {what}"))?;
    let mut arrays = BTreeMap::new();
    let mut left = FILE_BYTES;
    for entry in entries {
        let Some(name) = entry.name.strip_suffix(".npy") else {
            return Err(format!("{source}: `{}` in it is no array", entry.name));
        };
        let says = |what: String| format!("{source}: `{name}`: {what}");
        left = left
            .checked_sub(entry.plain)
            .ok_or_else(|| says(format!("more than {} MiB with the arrays before it", FILE_BYTES >> 20)))?;
        let plain = unpacked(bytes, &entry).map_err(says)?;
        arrays.insert(name.to_owned(), npy::read(&format!("{source}, `{name}`"), &plain)?);
    }
    Ok(arrays)
}

/// Reads one array of an archive.
///
/// # Errors
/// Those of [`read`], and an unknown name, with the names in the archive.
pub fn array(source: &str, bytes: &[u8], name: Option<&str>) -> Result<Records, String> {
    let mut arrays = read(source, bytes)?;
    let known: Vec<String> = arrays.keys().cloned().collect();
    let found = match name {
        Some(name) => arrays.remove(name),
        None if arrays.len() == 1 => arrays.into_values().next(),
        None => None,
    };
    found.ok_or_else(|| {
        let wanted = name.map_or_else(|| "no `name`".to_owned(), |name| format!("no array `{name}`"));
        format!("{source}: {wanted}; there are {}", known.join(", "))
    })
}

fn entries(bytes: &[u8]) -> Result<Vec<Entry>, String> {
    let tail = bytes.len().saturating_sub(END_BYTES);
    let end = bytes[tail..].windows(END.len()).rposition(|window| window == END);
    let end = end
        .map(|at| tail + at)
        .ok_or("no .npz file: it is no ZIP archive, or cut off")?;
    let comment = usize::from(u16_at(bytes, end + 20)?);
    if bytes.len() - end < 22 + comment {
        return Err("it is cut off".into());
    }
    let count = usize::from(u16_at(bytes, end + 10)?);
    if count > ENTRIES {
        return Err(format!("more than {ENTRIES} arrays"));
    }
    let mut at = u32_at(bytes, end + 16)? as usize;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        if bytes.get(at..at.saturating_add(4)) != Some(ENTRY) {
            return Err("its directory is damaged, or that of an archive beyond 4 GiB".into());
        }
        if u16_at(bytes, at + 8)? & 1 != 0 {
            return Err("it is encrypted".into());
        }
        let name_len = usize::from(u16_at(bytes, at + 28)?);
        let name = bytes
            .get(at + 46..at + 46 + name_len)
            .ok_or("its directory is cut off")?;
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

fn unpacked<'a>(bytes: &'a [u8], entry: &Entry) -> Result<Cow<'a, [u8]>, String> {
    let at = entry.local;
    if bytes.get(at..at.saturating_add(4)) != Some(LOCAL) {
        return Err("it is not where the directory says".into());
    }
    let begin = at + 30 + usize::from(u16_at(bytes, at + 26)?) + usize::from(u16_at(bytes, at + 28)?);
    let packed = begin
        .checked_add(entry.compressed)
        .and_then(|end| bytes.get(begin..end));
    let packed = packed.ok_or("it is cut off")?;
    let plain: Cow<'a, [u8]> = match entry.method {
        0 => packed.into(),
        8 => {
            let mut plain = Vec::new();
            // One byte more than the directory says, to detect a longer entry.
            let limit = entry.plain as u64 + 1;
            let reading = DeflateDecoder::new(packed).take(limit).read_to_end(&mut plain);
            reading.map_err(|error| format!("it cannot be unpacked: {error}"))?;
            plain.into()
        }
        other => {
            return Err(format!(
                "it is packed by method {other}; save it by np.savez or np.savez_compressed"
            ));
        }
    };
    let mut crc = Crc::new();
    crc.update(&plain);
    if plain.len() != entry.plain || crc.sum() != entry.crc {
        return Err("it is damaged: its checksum is another".into());
    }
    Ok(plain)
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, String> {
    let found = bytes.get(at..).and_then(<[u8]>::first_chunk::<2>);
    found
        .map(|bytes| u16::from_le_bytes(*bytes))
        .ok_or_else(|| "its directory is cut off".to_owned())
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, String> {
    let found = bytes.get(at..).and_then(<[u8]>::first_chunk::<4>);
    found
        .map(|bytes| u32::from_le_bytes(*bytes))
        .ok_or_else(|| "its directory is cut off".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::DeflateEncoder;
    use proptest::prelude::*;
    use std::io::Write;

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
                    LOCAL,
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
                ENTRY,
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
        [&out[..], &directory, END, &[0; 4], &count, &count, &len, &at, &[0, 0]].concat()
    }

    fn two(compressed: bool) -> Vec<u8> {
        let a = npy::tests::file("|u1", false, &[2, 2], &[1, 2, 3, 4]);
        let b = npy::tests::file("<i2", false, &[1], &[5, 0]);
        archive(&[("a", a), ("b", b)], compressed)
    }

    #[test]
    fn arrays_are_found_by_name() {
        for compressed in [false, true] {
            let arrays = read("x.npz", &two(compressed)).unwrap();
            assert_eq!(arrays["a"].get(1).1, [3, 4]);
            assert_eq!(arrays["b"].get(0).1, [5, 0]);
            let missing = array("x.npz", &two(compressed), Some("c")).unwrap_err();
            assert!(missing.contains("no array `c`; there are a, b"), "{missing}");
            assert!(array("x.npz", &two(compressed), None).is_err());
        }
    }

    #[test]
    fn damage_is_told() {
        let mut bytes = two(false);
        let at = bytes.windows(4).position(|window| window == [1, 2, 3, 4]).unwrap();
        bytes[at] = 9;
        let refused = read("x.npz", &bytes).unwrap_err();
        assert!(refused.contains("`a`: it is damaged"), "{refused}");
        let whole = two(true);
        for left_out in [1, 2] {
            let refused = read("x.npz", &whole[..whole.len() - left_out]).unwrap_err();
            assert!(refused.contains("cut off"), "{refused}");
        }
        assert!(read("x.npz", b"\x93NUMPY").unwrap_err().contains("no ZIP archive"));
        let bomb = two(true);
        assert!(bomb.len() < 2_000);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read("x", &bytes);
            let _ = read("x", &[&bytes[..], END, &bytes[..]].concat());
        }

        #[test]
        fn damaged_archives_are_read_or_refused(at in 0_usize..2_000, byte: u8, cut: bool, compressed: bool) {
            let mut bytes = two(compressed);
            let at = at % bytes.len();
            if cut { bytes.truncate(at) } else { bytes[at] = byte }
            prop_assert!(read("x", &bytes).is_err() || !cut);
        }
    }
}

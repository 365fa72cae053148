//! External weights of a graph: their files and lengths, and placeholders of files that were not fetched.
//!
//! In: a graph's messages, and the first bytes of files. Out: the required files, or the placeholder found instead.
//! Does no I/O; the caller decides if a path may be followed.

use super::messages::{DATA_EXTERNAL, TensorProto};
use anyhow::{Result, bail, ensure};
use std::collections::BTreeMap;
use std::fmt;

/// First bytes of a git-lfs pointer, left in place of a file that was not fetched.
const LFS_POINTER: &[u8] = b"version https://git-lfs";
/// Maximum length of a pointer, by its specification.
const LFS_POINTER_BYTES: usize = 1024;

/// Data that a graph stores in other files.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct External {
    /// Files with their required contents, by location as written in the graph.
    pub files: BTreeMap<String, ExternalFile>,
    /// Bytes of the largest external tensor.
    pub largest_tensor: u64,
}

/// Requirements on a file of weights.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ExternalFile {
    /// Path relative to the graph's folder: the location without `.` steps.
    pub path: String,
    /// Minimum length in bytes.
    pub bytes: u64,
    /// Tensor that ends there.
    pub tensor: String,
}

impl ExternalFile {
    /// Checks the length of the file.
    ///
    /// # Errors
    /// The file is too short: the tensor, both lengths, and advice.
    pub fn check(&self, file: &str, found: u64) -> Result<()> {
        let Self { bytes, tensor, .. } = self;
        ensure!(
            found >= *bytes,
            "the weights `{file}` have {found} bytes, but tensor `{tensor}` ends at byte {bytes}: the file is truncated, or not \
             of this graph; copy or download it again"
        );
        Ok(())
    }
}

/// Returns the external data of a graph's tensors; `is_path` is true for paths inside the graph's folder.
///
/// # Errors
/// A tensor without a location, or with one that leaves the folder, by name.
pub fn external<'a>(
    tensors: impl IntoIterator<Item = &'a TensorProto>,
    is_path: impl Fn(&str) -> bool,
) -> Result<External> {
    let mut found = External::default();
    for tensor in tensors {
        let name = &tensor.name;
        let Some(location) = entry(tensor, "location") else {
            match tensor.data_location {
                DATA_EXTERNAL => bail!("external tensor `{name}` does not have a location"),
                _ => continue,
            }
        };
        // Exporters write `./w.bin` too.
        let steps: Vec<&str> = location.split('/').filter(|&step| step != ".").collect();
        let path = steps.join("/");
        ensure!(
            is_path(&path),
            "the weights of `{name}` are outside the version's folder: {location:?}"
        );
        let end = number(tensor, "offset").saturating_add(min_bytes(tensor));
        let file = found.files.entry(location.to_owned()).or_default();
        file.path = path;
        if end > file.bytes {
            file.bytes = end;
            file.tensor.clone_from(name);
        }
        found.largest_tensor = found.largest_tensor.max(max_bytes(tensor));
    }
    Ok(found)
}

fn entry<'a>(tensor: &'a TensorProto, key: &str) -> Option<&'a str> {
    let entry = tensor.external_data.iter().find(|entry| entry.key == key);
    entry.map(|entry| entry.value.as_str())
}

/// Bits of an element by its `TensorProto.DataType`; `None` for later types.
fn element_bits(data_type: i32) -> Option<u64> {
    Some(match data_type {
        2 | 3 | 9 | 17..=20 | 24 => 8,
        4 | 5 | 10 | 16 => 16,
        1 | 6 | 12 => 32,
        7 | 11 | 13 | 14 => 64,
        15 => 128,
        21..=23 => 4,
        25 | 26 => 2,
        _ => return None,
    })
}

fn elements(tensor: &TensorProto) -> u64 {
    let dims = tensor.dims.iter().map(|&dim| u64::try_from(dim).unwrap_or(0));
    dims.fold(1, u64::saturating_mul)
}

fn number(tensor: &TensorProto, key: &str) -> u64 {
    entry(tensor, key).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Minimum bytes of a tensor in its file: by its shape, or by its record if its type is unknown.
fn min_bytes(tensor: &TensorProto) -> u64 {
    match element_bits(tensor.data_type) {
        Some(bits) => elements(tensor).saturating_mul(bits).div_ceil(8),
        None => number(tensor, "length"),
    }
}

/// Maximum bytes of a tensor's elements: by its record or its shape, whichever is larger. Later types count as the
/// largest, parts of bytes as whole bytes.
fn max_bytes(tensor: &TensorProto) -> u64 {
    let bytes = element_bits(tensor.data_type).map_or(16, |bits| bits.div_ceil(8));
    elements(tensor).saturating_mul(bytes).max(number(tensor, "length"))
}

/// Placeholder stored in place of a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placeholder {
    /// Pointer of git-lfs, with the bytes of the file if the pointer has them.
    LfsPointer(Option<u64>),
    /// Web page, downloaded instead of the file.
    WebPage,
}

impl Placeholder {
    /// Detects a placeholder from the first bytes of a file; 1 KiB of it is enough.
    pub fn of(first_bytes: &[u8]) -> Option<Self> {
        if first_bytes.starts_with(LFS_POINTER) {
            let text = String::from_utf8_lossy(&first_bytes[..first_bytes.len().min(LFS_POINTER_BYTES)]);
            let size = text.lines().find_map(|line| line.strip_prefix("size "));
            return Some(Self::LfsPointer(size.and_then(|size| size.trim().parse().ok())));
        }
        let text = first_bytes.trim_ascii_start();
        let is_page = |tag: &[u8]| text.get(..tag.len()).is_some_and(|head| head.eq_ignore_ascii_case(tag));
        (is_page(b"<!doctype html") || is_page(b"<html")).then_some(Self::WebPage)
    }
}

impl fmt::Display for Placeholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LfsPointer(bytes) => {
                let file = bytes.map_or_else(String::new, |bytes| format!(" to a file of {bytes} bytes"));
                write!(
                    f,
                    "a git-lfs pointer{file}, not the file: run `git lfs pull` in the clone"
                )
            }
            Self::WebPage => f.write_str("a web page, not the file: download the file itself"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::messages::StringStringEntryProto;
    use super::*;
    use proptest::prelude::*;

    const FLOAT: i32 = 1;
    const INT8: i32 = 3;

    fn tensor(name: &str, entries: &[(&str, &str)]) -> TensorProto {
        let entry = |&(key, value): &(&str, &str)| StringStringEntryProto {
            key: key.into(),
            value: value.into(),
        };
        TensorProto {
            name: name.into(),
            data_location: DATA_EXTERNAL,
            external_data: entries.iter().map(entry).collect(),
            ..TensorProto::default()
        }
    }

    fn of(data_type: i32, dims: &[i64], entries: &[(&str, &str)]) -> TensorProto {
        TensorProto {
            data_type,
            dims: dims.to_vec(),
            ..tensor("w", &[&[("location", "w.bin")], entries].concat())
        }
    }

    fn read(tensors: &[TensorProto]) -> Result<External> {
        external(tensors, |path| !path.is_empty() && !path.starts_with(['/', '.']))
    }

    #[test]
    fn files_are_told_once_and_in_order() {
        let b = tensor("b", &[("location", "inner/b.bin")]);
        let a = tensor("a", &[("offset", "../0"), ("location", "a.bin")]);
        let found = read(&[b.clone(), a, TensorProto::default(), b]).unwrap();
        let files: Vec<&str> = found.files.keys().map(String::as_str).collect();
        assert_eq!(files, ["a.bin", "inner/b.bin"]);
    }

    #[test]
    fn a_location_that_leaves_the_folder_or_is_missing_is_refused() {
        let error = read(&[tensor("w", &[("location", "../w.bin")])])
            .unwrap_err()
            .to_string();
        assert!(error.contains("outside the version's folder: \"../w.bin\""), "{error}");
        let error = read(&[tensor("w", &[])]).unwrap_err().to_string();
        assert!(error.contains("`w` does not have a location"), "{error}");
    }

    #[test]
    fn steps_that_stay_in_their_folder_are_left_out_of_a_path() {
        let found = read(&[tensor("w", &[("location", "./a/./w.bin")])]).unwrap();
        assert_eq!(found.files["./a/./w.bin"].path, "a/w.bin");
        for bad in ["./../w.bin", ".", "./", "/./w.bin"] {
            assert!(read(&[tensor("w", &[("location", bad)])]).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_must_reach_to_the_end_of_its_last_tensor() {
        let second = TensorProto {
            name: "second".into(),
            ..of(FLOAT, &[3, 5], &[("offset", "4096"), ("length", "60")])
        };
        let found = read(&[of(FLOAT, &[3, 5], &[]), second, of(INT8, &[2], &[])]).unwrap();
        let file = &found.files["w.bin"];
        assert_eq!((file.bytes, file.tensor.as_str()), (4156, "second"));
        file.check("w.bin", 4156).unwrap();
        let error = file.check("w.bin", 4000).unwrap_err().to_string();
        for expected in ["`w.bin` have 4000 bytes", "`second` ends at byte 4156", "again"] {
            assert!(error.contains(expected), "{error}");
        }
        // Four bits, of which two share a byte.
        assert_eq!(read(&[of(22, &[3], &[])]).unwrap().files["w.bin"].bytes, 2);
    }

    #[test]
    fn the_largest_tensor_is_told_by_its_record_or_its_shape() {
        let largest = |tensors: Vec<TensorProto>| read(&tensors).unwrap().largest_tensor;
        assert_eq!(largest(vec![of(FLOAT, &[3, 5], &[])]), 60);
        let int8 = of(INT8, &[7, 11], &[("length", "77")]);
        assert_eq!(largest(vec![of(FLOAT, &[3, 5], &[]), int8]), 77);
        assert_eq!(
            largest(vec![of(INT8, &[2], &[("length", "5000000000")])]),
            5_000_000_000
        );
        let huge = of(FLOAT, &[i64::MAX, i64::MAX], &[("length", "none")]);
        assert_eq!(largest(vec![huge]), u64::MAX);
        // Only what lies in files counts.
        let inside = TensorProto {
            external_data: vec![],
            data_location: 0,
            ..of(FLOAT, &[1 << 40], &[])
        };
        assert_eq!(largest(vec![inside]), 0);
    }

    #[test]
    fn what_stands_in_the_place_of_a_file_is_told() {
        let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
        assert_eq!(Placeholder::of(pointer), Some(Placeholder::LfsPointer(Some(12345))));
        assert!(Placeholder::of(pointer).unwrap().to_string().contains("12345 bytes"));
        assert_eq!(Placeholder::of(&pointer[..30]), Some(Placeholder::LfsPointer(None)));
        assert_eq!(Placeholder::of(b"\n<!DOCTYPE html><html>"), Some(Placeholder::WebPage));
        assert_eq!(Placeholder::of(b"\x08\x08\x12\x04"), None);
    }

    proptest! {
        #[test]
        fn any_beginning_is_told_or_passed(bytes in prop::collection::vec(any::<u8>(), 0..100), tail in ".{0,60}") {
            let _ = Placeholder::of(&bytes);
            let pointer = [LFS_POINTER, tail.as_bytes(), &bytes].concat();
            prop_assert!(matches!(Placeholder::of(&pointer), Some(Placeholder::LfsPointer(_))));
        }
    }
}

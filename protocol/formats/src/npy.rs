//! `.npy`: one array as NumPy saves it. In: bytes. Out: element type, shape, and row-major little-endian elements, as
//! in the protocol. Format: NumPy's `numpy.lib.format`, versions 1 to 3. Arrays of Python objects are refused: they
//! contain code.

use anyhow::{Context as _, Result, bail, ensure};
use tierlab_protocol::infer::push_bytes;
use tierlab_protocol::tensor::DataType;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Maximum bytes of a header.
const MAX_HEADER_BYTES: usize = 64 << 10;
/// Maximum dimensions.
const MAX_RANK: usize = 16;

/// Numbers by NumPy's names, without byte order.
const NUMERIC: [(&str, DataType); 12] = [
    ("b1", DataType::Bool),
    ("i1", DataType::Int8),
    ("i2", DataType::Int16),
    ("i4", DataType::Int32),
    ("i8", DataType::Int64),
    ("u1", DataType::Uint8),
    ("u2", DataType::Uint16),
    ("u4", DataType::Uint32),
    ("u8", DataType::Uint64),
    ("f2", DataType::Fp16),
    ("f4", DataType::Fp32),
    ("f8", DataType::Fp64),
];

/// Element type as NumPy writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number(DataType),
    /// Bytes, padded with zeros.
    Bytes,
    /// Characters of four bytes each, padded with zeros.
    Text,
}

/// An array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    /// Type of the elements.
    pub dtype: DataType,
    /// Dimensions; empty for a scalar.
    pub shape: Vec<usize>,
    /// Row-major little-endian elements; `BYTES` with their lengths.
    pub data: Vec<u8>,
}

/// Returns the header that makes a file of little-endian elements; `None` for a type that NumPy does not have.
pub fn header(dtype: DataType, shape: &[i64]) -> Option<Vec<u8>> {
    let (name, _) = NUMERIC.iter().find(|(_, number)| *number == dtype)?;
    let dims: String = shape.iter().map(|dim| format!("{dim}, ")).collect();
    let mut text = format!("{{'descr': '<{name}', 'fortran_order': False, 'shape': ({dims}), }}");
    // The data begins at a multiple of 64, as NumPy writes it.
    let start = MAGIC.len() + 4;
    let len = (start + text.len() + 1).next_multiple_of(64) - start;
    text += &" ".repeat(len - text.len() - 1);
    text.push('\n');
    let size = u16::try_from(len).ok()?.to_le_bytes();
    Some([MAGIC, &[1, 0], &size, text.as_bytes()].concat())
}

/// Returns the elements of a file, in the file's order.
///
/// # Errors
/// Bytes that do not begin with a complete header.
pub fn elements(bytes: &[u8]) -> Result<&[u8]> {
    split(bytes).map(|(_, data)| data)
}

/// Reads an array.
///
/// # Errors
/// Bytes that are not an array, a type that the protocol does not have, or a length that differs from the header's.
pub fn read(bytes: &[u8]) -> Result<Array> {
    let (header, data) = split(bytes)?;
    let (descr, is_fortran, shape) = parse(header)?;
    let (kind, size) = kind(descr)?;
    let count = shape.iter().try_fold(1_usize, |all, dim| all.checked_mul(*dim));
    let wanted = count.and_then(|count| count.checked_mul(size));
    let wanted = wanted.with_context(|| format!("shape {shape:?} is too large"))?;
    let found = data.len();
    ensure!(
        wanted == found,
        "shape {shape:?} of {descr} requires {wanted} bytes, found {found}"
    );
    let data = match is_fortran {
        true => to_row_major(data, &shape, size),
        false => data.to_vec(),
    };
    let (dtype, data) = to_protocol(kind, size, descr.starts_with('>'), data)?;
    Ok(Array { dtype, shape, data })
}

/// Splits a file into the header's text and the data.
fn split(bytes: &[u8]) -> Result<(&str, &[u8])> {
    let rest = bytes
        .strip_prefix(MAGIC)
        .context("not an .npy file: wrong first bytes")?;
    let truncated = "cut off in the header";
    let (version, rest) = rest.split_first_chunk::<2>().context(truncated)?;
    let bytes = match version[0] {
        1 => 2,
        2 | 3 => 4,
        other => bail!("unsupported format version: {other}"),
    };
    let (len, rest) = rest.split_at_checked(bytes).context(truncated)?;
    let len = len
        .iter()
        .rev()
        .fold(0_usize, |len, &byte| len << 8 | usize::from(byte));
    if len > MAX_HEADER_BYTES {
        bail!("header of {len} bytes; the limit is {MAX_HEADER_BYTES}");
    }
    let (header, data) = rest.split_at_checked(len).context(truncated)?;
    let header = std::str::from_utf8(header).ok().context("the header is not text")?;
    Ok((header, data))
}

/// Parses a header, a Python dictionary of three keys: the element type, true for columns first, and the shape.
fn parse(text: &str) -> Result<(&str, bool, Vec<usize>)> {
    let value = |key: &str| {
        let mut quoted = [format!("'{key}'"), format!("\"{key}\"")].into_iter();
        let found = quoted.find_map(|quoted| text.split_once(&quoted));
        let value = found.and_then(|(_, rest)| rest.trim_start().strip_prefix(':'));
        let value = value.map(str::trim_start);
        value.with_context(|| format!("the header has no `{key}`"))
    };
    let descr = value("descr")?;
    let quote = descr.chars().next().filter(|c| matches!(c, '\'' | '"'));
    let descr = quote.and_then(|quote| descr[1..].split_once(quote));
    let (descr, _) = descr.context("records with fields are not supported: save one field at a time")?;
    let order = value("fortran_order")?;
    let is_fortran = order.starts_with("True");
    if !is_fortran && !order.starts_with("False") {
        bail!("invalid `fortran_order` in the header");
    }
    let shape = value("shape")?.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    let (shape, _) = shape.context("invalid `shape` in the header")?;
    let dims = shape.split(',').map(str::trim).filter(|dim| !dim.is_empty());
    let parsed = |dim: &str| dim.trim_end_matches('L').parse::<usize>().ok();
    let dims = dims.map(|dim| parsed(dim).with_context(|| format!("invalid dimension: `{dim}`")));
    let shape: Vec<usize> = dims.take(MAX_RANK + 1).collect::<Result<_>>()?;
    if shape.len() > MAX_RANK {
        bail!("more than {MAX_RANK} dimensions");
    }
    Ok((descr, is_fortran, shape))
}

/// Returns the type of elements, and their bytes in the file.
fn kind(descr: &str) -> Result<(Kind, usize)> {
    let rest = descr.strip_prefix(['<', '>', '|', '=']).unwrap_or(descr);
    let number = NUMERIC.iter().find(|(name, _)| *name == rest).map(|(_, dtype)| *dtype);
    if let Some(dtype) = number.or((rest == "?").then_some(DataType::Bool)) {
        return Ok((Kind::Number(dtype), dtype.size().unwrap_or(1)));
    }
    let sized = |kind: char| rest.strip_prefix(kind)?.parse::<usize>().ok();
    let bounded = |size: &usize| (1..=1 << 20).contains(size);
    match (sized('S').filter(bounded), sized('U').filter(bounded)) {
        (Some(size), _) => Ok((Kind::Bytes, size)),
        (_, Some(size)) => Ok((Kind::Text, size * 4)),
        _ if rest.starts_with('O') => {
            bail!("Python objects are not supported: convert the array to a type before saving it")
        }
        _ => bail!("unsupported element type: `{descr}`"),
    }
}

/// Converts elements of `size` bytes to those of the protocol.
fn to_protocol(kind: Kind, size: usize, is_big_endian: bool, mut data: Vec<u8>) -> Result<(DataType, Vec<u8>)> {
    let unit = if kind == Kind::Text { 4 } else { size };
    if is_big_endian && kind != Kind::Bytes {
        data.chunks_exact_mut(unit).for_each(<[u8]>::reverse);
    }
    if let Kind::Number(dtype) = kind {
        if dtype == DataType::Bool && data.iter().any(|byte| *byte > 1) {
            bail!("invalid boolean: neither 0 nor 1");
        }
        return Ok((dtype, data));
    }
    let mut out = Vec::with_capacity(data.len());
    for element in data.chunks_exact(size) {
        if kind == Kind::Bytes {
            let end = element.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            push_bytes(&element[..end], &mut out);
            continue;
        }
        let codes = element.as_chunks().0.iter().map(|code| u32::from_le_bytes(*code));
        let text: Option<String> = codes.map(char::from_u32).collect();
        let text = text.context("a text is not Unicode")?;
        push_bytes(text.trim_end_matches('\0').as_bytes(), &mut out);
    }
    Ok((DataType::Bytes, out))
}

/// Converts elements from column-major to row-major order.
fn to_row_major(data: &[u8], shape: &[usize], size: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len());
    let mut position = vec![0_usize; shape.len()];
    for _ in 0..data.len() / size.max(1) {
        let (mut at, mut step) = (0, 1);
        for (index, dim) in position.iter().zip(shape) {
            at += index * step;
            step *= dim;
        }
        out.extend_from_slice(&data[at * size..(at + 1) * size]);
        for (index, dim) in position.iter_mut().zip(shape).rev() {
            *index += 1;
            if *index < *dim {
                break;
            }
            *index = 0;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(descr: &str, fortran: bool, shape: &[usize], data: &[u8]) -> Vec<u8> {
        let dims: String = shape.iter().map(|dim| format!("{dim}, ")).collect();
        let order = if fortran { "True" } else { "False" };
        let header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({dims}), }}\n");
        let len = (header.len() as u16).to_le_bytes();
        [MAGIC, &[1, 0], &len, header.as_bytes(), data].concat()
    }

    #[test]
    fn elements_stand_in_rows_whatever_the_order() {
        let array = read(&file("|i1", true, &[2, 3], &[1, 4, 2, 5, 3, 6])).unwrap();
        assert_eq!((array.dtype, array.shape), (DataType::Int8, vec![2, 3]));
        assert_eq!(array.data, [1, 2, 3, 4, 5, 6]);
        let scalar = read(&file(">f4", false, &[], &1.5_f32.to_be_bytes())).unwrap();
        assert_eq!((scalar.shape, scalar.data), (vec![], 1.5_f32.to_le_bytes().to_vec()));
    }

    #[test]
    fn what_is_written_reads_back() {
        for (_, dtype) in NUMERIC {
            for shape in [vec![], vec![1], vec![2, 3]] {
                let count: i64 = shape.iter().product();
                let data = vec![1; count as usize * dtype.size().unwrap()];
                let file = [header(dtype, &shape).unwrap(), data.clone()].concat();
                assert_eq!((file.len() - data.len()) % 64, 0);
                assert_eq!(elements(&file).unwrap(), data);
                let array = read(&file).unwrap();
                let shape: Vec<usize> = shape.iter().map(|dim| *dim as usize).collect();
                assert_eq!((array.dtype, array.shape, array.data), (dtype, shape, data));
            }
        }
        assert_eq!(header(DataType::Bytes, &[1]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
            let _ = read(&[MAGIC, &[1, 0], &bytes].concat());
        }
    }
}

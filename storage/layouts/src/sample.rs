//! Conversion of a row to the bytes of a layout, and back.

use crate::layout::Framing;
use crate::manifest::key;
use tierlab_formats::npy;
use tierlab_formats::shards::{ShardError, example, key_and_extension, tar, tfrecord};
use tierlab_formats::table::TableHeader;

/// Appends the sample of a row.
pub(crate) fn push(
    framing: Framing,
    header: &TableHeader,
    id: i64,
    row: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), ShardError> {
    let key = key(id);
    match framing {
        Framing::Tar => {
            for column in &header.schema.columns {
                let data = column.of_row(row).unwrap_or_default();
                match npy::header(column.dtype, &column.shape) {
                    Some(header) => push_file(&key, &column.name, ".npy", &[&header, data].concat(), out)?,
                    None => push_file(&key, &column.name, "", data, out)?,
                }
            }
            if let Some(column) = &header.schema.key {
                let text = column.kind.to_text(column.get(row).unwrap_or_default());
                push_file(&key, &column.name, "", text.as_bytes(), out)?;
            }
        }
        Framing::Tfrecord => tfrecord::push(&example::of_row(&header.schema, &key, row), out),
    }
    Ok(())
}

/// Appends the file of a column to a tar shard.
fn push_file(key: &str, column: &str, ending: &str, body: &[u8], out: &mut Vec<u8>) -> Result<(), ShardError> {
    let name = format!("{key}.{column}{ending}");
    if key_and_extension(&name).is_some_and(|(found, _)| found == key) {
        return tar::push(&name, body, out);
    }
    let what = format!("`{name}` would not be a file of the sample `{key}`: rename the column `{column}`");
    let (format, offset) = ("tar", out.len() as u64);
    Err(ShardError { format, offset, what })
}

/// Converts the sample of an entity, at `offset` of its object, to a row of the rows format, checksum included.
pub(crate) fn row(
    framing: Framing,
    header: &TableHeader,
    (id, key): (i64, &str),
    bytes: &[u8],
    offset: u64,
) -> Result<Vec<u8>, ShardError> {
    let mut row = vec![0; header.stride as usize];
    match framing {
        Framing::Tfrecord => {
            let (record, _) = tfrecord::record(bytes, offset)?;
            example::into_row(&header.schema, key, record, offset, &mut row)?;
        }
        Framing::Tar => match from_expected(header, key, bytes, &mut row) {
            Some(()) => {}
            None => from_tar(header, key, bytes, offset, &mut row)?,
        },
    }
    header.seal_row(id, &mut row);
    Ok(row)
}

/// Reads a sample as [`push`] writes it. `None` for any other sample: its members may be in another order, or under
/// other headers.
fn from_expected(header: &TableHeader, key: &str, mut bytes: &[u8], row: &mut [u8]) -> Option<()> {
    for column in &header.schema.columns {
        let file = tar::split_expected(bytes, key, &column.name)?;
        let data = match file.is_npy {
            true => npy::elements(file.body).ok()?,
            false => file.body,
        };
        let to = column.of_row_mut(row).filter(|to| to.len() == data.len())?;
        to.copy_from_slice(data);
        bytes = file.rest;
    }
    let Some(column) = &header.schema.key else {
        return Some(());
    };
    let file = tar::split_expected(bytes, key, &column.name)?;
    column.put_text(row, file.body).then_some(())
}

/// Reads any sample that holds a member for each column.
fn from_tar(header: &TableHeader, key: &str, bytes: &[u8], offset: u64, row: &mut [u8]) -> Result<(), ShardError> {
    let members = tar::members(bytes, offset)?;
    let body = |name: &str| {
        let wanted = Some((key, name));
        let member = members
            .iter()
            .find(|member| key_and_extension(&member.name) == wanted)?;
        bytes.get((member.body.start - offset) as usize..(member.body.end - offset) as usize)
    };
    let missing = |name: &str, detail: String| {
        let what = format!("missing member `{key}.{name}` with {detail}");
        let format = "tar";
        Err(ShardError { format, offset, what })
    };
    for column in &header.schema.columns {
        let array = body(&format!("{}.npy", column.name)).and_then(|bytes| npy::read(bytes).ok());
        let array = array
            .filter(|array| array.dtype == column.dtype)
            .map(|array| array.data);
        let data = array.as_deref().or_else(|| body(&column.name));
        match data.zip(column.of_row_mut(row)) {
            Some((data, to)) if data.len() == to.len() => to.copy_from_slice(data),
            _ => {
                let detail = format!("a {} of shape {:?}", column.dtype.as_str(), column.shape);
                return missing(&column.name, detail);
            }
        }
    }
    match &header.schema.key {
        Some(column) if !body(&column.name).is_some_and(|text| column.put_text(row, text)) => {
            missing(&column.name, format!("a key of kind {}", column.kind.as_str()))
        }
        _ => Ok(()),
    }
}

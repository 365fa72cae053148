//! One row in the bytes of a layout, and back.

use crate::layout::Framing;
use crate::manifest::key;
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
                let name = format!("{key}.{}", column.name);
                tar::push(&name, column.of_row(row).unwrap_or_default(), out)?;
            }
        }
        Framing::Tfrecord => tfrecord::push(&example::of_row(&header.schema, &key, row), out),
    }
    Ok(())
}

/// The row of a sample, which lies at `offset` of its object: as the rows format has it, checksum included.
pub(crate) fn row(
    framing: Framing,
    header: &TableHeader,
    id: i64,
    bytes: &[u8],
    offset: u64,
) -> Result<Vec<u8>, ShardError> {
    let mut row = vec![0; header.stride as usize];
    match framing {
        Framing::Tfrecord => {
            let (record, _) = tfrecord::record(bytes, offset)?;
            example::into_row(&header.schema, &key(id), record, offset, &mut row)?;
        }
        Framing::Tar => from_tar(header, &key(id), bytes, offset, &mut row)?,
    }
    header.seal_row(id, &mut row);
    Ok(row)
}

fn from_tar(header: &TableHeader, key: &str, bytes: &[u8], offset: u64, row: &mut [u8]) -> Result<(), ShardError> {
    let members = tar::members(bytes, offset)?;
    for column in &header.schema.columns {
        let wanted = Some((key, column.name.as_str()));
        let member = members.iter().find(|member| key_and_extension(&member.name) == wanted);
        let body = member.map(|m| (m.body.start - offset) as usize..(m.body.end - offset) as usize);
        let body = body.and_then(|body| bytes.get(body));
        let to = column.of_row_mut(row);
        match body.zip(to) {
            Some((body, to)) if body.len() == to.len() => to.copy_from_slice(body),
            _ => {
                let (dtype, shape, name) = (column.dtype.as_str(), &column.shape, &column.name);
                return Err(ShardError {
                    format: "tar",
                    offset,
                    what: format!("no member `{key}.{name}` that holds a {dtype} of shape {shape:?}"),
                });
            }
        }
    }
    Ok(())
}

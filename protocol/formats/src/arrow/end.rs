//! End of an Arrow IPC stream. In: the source, and the position where its reader stopped. Out: true if that is the end.
//!
//! A stream ends at its end marker or at the end of its file (arrow.apache.org/docs/format/Columnar.html, IPC streaming
//! format). A stream cut off between two batches, or followed by another one, therefore looks complete to a reader.

use std::io::{Read, Seek, SeekFrom};

/// The end of a stream, as its writers mark it.
const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// Holds the end of a file against the place where the reader of its stream stopped.
///
/// # Errors
/// Bytes that follow; no mark of an end; a file that cannot be read. The offset is named.
pub(super) fn ends_at(file: &mut (impl Read + Seek), at: u64) -> Result<(), String> {
    let broken = |e: std::io::Error| format!("it cannot be read: {e}");
    let len = file.seek(SeekFrom::End(0)).map_err(broken)?;
    if at < len {
        return Err(format!(
            "its stream ends at offset {at}, and {} bytes follow: write streams to files of their own",
            len - at
        ));
    }
    let mut end = Vec::new();
    let tail = len.saturating_sub(END.len() as u64);
    file.seek(SeekFrom::Start(tail))
        .and_then(|_| file.take(END.len() as u64).read_to_end(&mut end))
        .map_err(broken)?;
    if end == END {
        return Ok(());
    }
    Err(format!(
        "its stream ends at offset {at} without the mark of an end: its writer was cut off, or did not finish it"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn only_the_mark_at_the_end_is_an_end() {
        let whole = [&b"batches"[..], &END].concat();
        let at = whole.len() as u64;
        assert_eq!(ends_at(&mut Cursor::new(&whole), at), Ok(()));
        let cut = ends_at(&mut Cursor::new(&whole[..7]), 7).unwrap_err();
        assert!(cut.contains("ends at offset 7 without the mark"), "{cut}");
        let joined = ends_at(&mut Cursor::new([&whole[..], b"more"].concat()), at).unwrap_err();
        assert!(joined.contains("ends at offset 15, and 4 bytes follow"), "{joined}");
        assert!(ends_at(&mut Cursor::new([]), 0).is_err());
    }
}

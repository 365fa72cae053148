//! The headers of a tar archive.
//!
//! A header is a block of 512 bytes; the member's bytes follow, filled up to whole blocks; two blocks of zeros end the archive.
//! Reads ustar, pax and GNU's long names; writes ustar. Source: POSIX.1-2017, `pax`, "Extended Description"; GNU's
//! numbers in base 256 and long names: <https://www.gnu.org/software/tar/manual/html_node/Standard.html>.

use super::{MAX_SAMPLE_BYTES, ShardError, key_and_extension};
use anyhow::ensure;
use std::ops::Range;

/// Bytes of a block.
pub const BLOCK: usize = 512;
/// Maximum size of an extended header or long name, in bytes.
pub const MAX_EXTENDED_BYTES: u64 = 64 << 10;
/// Maximum length of a written name: a ustar header without a prefix.
pub const MAX_NAME_BYTES: usize = 100;
/// Bytes of the checksum in a header.
const CHECKSUM: Range<usize> = 148..156;

/// A file of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Path in the archive.
    pub name: String,
    /// Offset of its first header.
    pub start: u64,
    /// Byte range of the contents in the archive.
    pub body: Range<u64>,
}

/// Walks an archive from header to header. Requests the bytes that it needs; the bodies of files are not among them.
#[derive(Debug, Default)]
pub struct Walk {
    len: u64,
    at: u64,
    /// Offset of the first header of the current member.
    start: Option<u64>,
    name: Option<String>,
    size: Option<u64>,
    /// True if an extended header announced a sparse map in front of the member's bytes.
    is_sparse: bool,
    /// True after the zero blocks that end an archive. Another archive may follow in the same file.
    has_ended: bool,
}

impl Walk {
    /// Creates a walk over an archive of `len` bytes.
    pub fn new(len: u64) -> Self {
        Self { len, ..Self::default() }
    }

    /// True after the zero blocks that end a whole archive. An archive cut off between two members does not have them.
    pub const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns the next file; `None` at the end. `read` appends the bytes of a range of at most [`MAX_EXTENDED_BYTES`];
    /// fewer than [`BLOCK`] mean the end of the file.
    ///
    /// # Errors
    /// A block that is not a header, a size beyond the file's end or the limits, a name that is not UTF-8, a damaged
    /// extended header; an error of `read`.
    pub fn next<E: From<ShardError>>(
        &mut self,
        mut read: impl FnMut(Range<u64>, &mut Vec<u8>) -> Result<(), E>,
    ) -> Result<Option<Member>, E> {
        let mut bytes = Vec::with_capacity(BLOCK);
        // An archive that ends between two members without zero blocks is complete, as for other readers.
        while self.at < self.len || self.start.is_some() {
            let offset = self.at;
            bytes.clear();
            read(offset..offset + BLOCK as u64, &mut bytes)?;
            let is_zero = bytes.iter().all(|&byte| byte == 0);
            if is_zero && self.has_ended && bytes.len() < BLOCK {
                return Ok(None);
            }
            let Some(&block) = bytes.first_chunk::<BLOCK>() else {
                let what = format!("the file ends {} bytes into a header: it was cut off", bytes.len());
                return Err(self.fail(what).into());
            };
            if is_zero && self.start.is_some() {
                let what = "an extended header without its member: the file is damaged";
                return Err(self.fail(what).into());
            }
            if is_zero {
                // Concatenated archives count as one, and a hole in the middle hides no members.
                self.has_ended = true;
                self.at += BLOCK as u64;
                continue;
            }
            let (kind, body) = self.header(&block)?;
            // A global header does not name or size a file here.
            if kind != b'g' {
                self.start.get_or_insert(offset);
            }
            match kind {
                b'g' | b'K' => self.at = body.end.next_multiple_of(BLOCK as u64),
                b'x' | b'L' => {
                    let count = body.end - body.start;
                    if count > MAX_EXTENDED_BYTES {
                        let what = format!("an extended header of {count} bytes; the limit is {MAX_EXTENDED_BYTES}");
                        return Err(self.fail(what).into());
                    }
                    bytes.clear();
                    read(body.clone(), &mut bytes)?;
                    self.extended(kind, &bytes)?;
                    self.at = body.end.next_multiple_of(BLOCK as u64);
                }
                _ => {
                    if let Some(member) = self.member(&block, body)? {
                        return Ok(Some(member));
                    }
                }
            }
        }
        Ok(None)
    }

    fn fail(&self, what: impl Into<String>) -> ShardError {
        ShardError::new("tar", self.at, what)
    }

    /// Returns the kind of a header and the range of the bytes after it.
    fn header(&mut self, block: &[u8; BLOCK]) -> Result<(u8, Range<u64>), ShardError> {
        verify_checksum(block).map_err(|what| match self.has_ended {
            true => self.fail(format!("after the end of an archive: {what}")),
            false => self.fail(what.to_string()),
        })?;
        let header_size = number(&block[124..136]).ok_or_else(|| self.fail("invalid size"))?;
        let kind = block[156];
        let size = match kind {
            b'x' | b'g' | b'L' | b'K' => header_size,
            // A pax size is the member's, not that of another extended header before it. Links, devices and folders do
            // not have bytes, whatever their size says.
            _ => match (self.size.take(), kind) {
                (_, b'1'..=b'6') => 0,
                (size, _) => size.unwrap_or(header_size),
            },
        };
        if size > MAX_SAMPLE_BYTES {
            return Err(self.fail(format!("a member of {size} bytes; the limit is {MAX_SAMPLE_BYTES}")));
        }
        let start = self.at + BLOCK as u64;
        let (end, len) = (start + size, self.len);
        if end > len {
            return Err(self.fail(format!("a member ends at {end}, but the file at {len}: it was cut off")));
        }
        Ok((kind, start..end))
    }

    /// Reads the header of a member, after its extended headers. `None` for folders and the like, which do not have
    /// bytes.
    fn member(&mut self, block: &[u8; BLOCK], body: Range<u64>) -> Result<Option<Member>, ShardError> {
        let offset = self.at;
        let fail = |what: String| Err(ShardError::new("tar", offset, what));
        let kind = block[156];
        let name = self.name.take().or_else(|| header_name(block));
        let name = name.ok_or_else(|| self.fail("a name is not UTF-8"))?;
        let start = self.start.take().unwrap_or(offset);
        let is_sparse = std::mem::take(&mut self.is_sparse) || kind == b'S';
        let is_sample = key_and_extension(&name).is_some();
        match kind {
            b'M' => {
                return fail(format!(
                    "`{name}` continues from another volume: join the volumes first"
                ));
            }
            _ if is_sparse => {
                return fail(format!(
                    "`{name}` is a sparse file, with holes: pack it without --sparse"
                ));
            }
            b'1' | b'2' if is_sample => {
                let link = if kind == b'1' { "hard" } else { "symbolic" };
                return fail(format!(
                    "`{name}` is a {link} link without its bytes: pack it with --dereference --hard-dereference"
                ));
            }
            _ => {}
        }
        self.at = body.end.next_multiple_of(BLOCK as u64);
        let is_file = matches!(kind, 0 | b'0' | b'7') && !name.ends_with('/');
        Ok(is_file.then_some(Member { name, start, body }))
    }

    /// Reads the bytes of an extended header or of a long name.
    fn extended(&mut self, kind: u8, bytes: &[u8]) -> Result<(), ShardError> {
        if kind == b'x' {
            let read = self.pax(bytes);
            return read.ok_or_else(|| self.fail("an extended header is damaged"));
        }
        let name = std::str::from_utf8(until_zero(bytes)).map_err(|_| self.fail("a long name is not UTF-8"))?;
        self.name = Some(name.to_owned());
        Ok(())
    }

    /// Reads records as `LENGTH KEYWORD=VALUE\n`, the length of the whole record in decimal digits.
    fn pax(&mut self, mut bytes: &[u8]) -> Option<()> {
        while !bytes.is_empty() {
            let space = bytes.iter().take(20).position(|&byte| byte == b' ')?;
            let len: usize = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
            let (record, rest) = bytes.split_at_checked(len)?;
            let text = record.get(space + 1..)?.strip_suffix(b"\n")?;
            let equals = text.iter().position(|&byte| byte == b'=')?;
            let (keyword, value) = (&text[..equals], std::str::from_utf8(&text[equals + 1..]));
            match keyword {
                b"path" => self.name = Some(value.ok()?.to_owned()),
                b"size" => self.size = Some(value.ok()?.parse().ok()?),
                sparse if sparse.starts_with(b"GNU.sparse.") => self.is_sparse = true,
                _ => {}
            }
            bytes = rest;
        }
        Some(())
    }
}

/// Returns the files of an archive, or of a piece of one that starts with a header at offset `base` of its file.
///
/// # Errors
/// Same as [`Walk::next`]; offsets are those in the whole file.
pub fn members(bytes: &[u8], base: u64) -> Result<Vec<Member>, ShardError> {
    let rebased = |e: ShardError| ShardError {
        offset: e.offset + base,
        ..e
    };
    let mut read = |range: Range<u64>, out: &mut Vec<u8>| {
        let end = range.end.min(bytes.len() as u64) as usize;
        out.extend_from_slice(&bytes[(range.start as usize).min(end)..end]);
        Ok(())
    };
    let mut walk = Walk::new(bytes.len() as u64);
    let mut found = Vec::new();
    while let Some(member) = walk.next(&mut read).map_err(rebased)? {
        found.push(Member {
            start: member.start + base,
            body: member.body.start + base..member.body.end + base,
            name: member.name,
        });
    }
    Ok(found)
}

/// File at the start of an archive.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// Bytes of the file.
    pub body: &'a [u8],
    /// True if its name ends in a further `.npy`, as NumPy's arrays.
    pub is_npy: bool,
    /// Bytes of the archive after the file.
    pub rest: &'a [u8],
}

/// Splits the file `key.extension` or `key.extension.npy` off the start of an archive if its header is as [`push`]
/// writes it. `None` for another header; [`members`] then reads it or returns its fault.
///
/// Does not allocate, for readers that know the files and their order.
pub fn split_expected<'a>(bytes: &'a [u8], key: &str, extension: &str) -> Option<Expected<'a>> {
    let (block, rest) = bytes.split_first_chunk::<BLOCK>()?;
    let after_key = block[..MAX_NAME_BYTES].strip_prefix(key.as_bytes())?;
    let suffix = after_key.strip_prefix(b".")?.strip_prefix(extension.as_bytes())?;
    let npy = suffix.strip_prefix(b".npy");
    let suffix = npy.unwrap_or(suffix);
    let ends_name = suffix.first().is_none_or(|&byte| byte == 0);
    let is_regular = block[156] == b'0' && block[345] == 0;
    if !ends_name || !is_regular || verify_checksum(block).is_err() {
        return None;
    }
    let size = number(&block[124..136]).filter(|&size| size <= MAX_SAMPLE_BYTES)?;
    let size = usize::try_from(size).ok()?;
    Some(Expected {
        body: rest.get(..size)?,
        is_npy: npy.is_some(),
        // The last file of a piece may end without padding.
        rest: rest.get(size.next_multiple_of(BLOCK)..).unwrap_or_default(),
    })
}

/// Appends a file: header, bytes, and zeros up to a whole block. Time, owner and group are zero, so that equal tables make equal
/// archives.
///
/// # Errors
/// A name longer than [`MAX_NAME_BYTES`], or empty.
pub fn push(name: &str, body: &[u8], out: &mut Vec<u8>) -> Result<(), ShardError> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        let what = format!("the name `{name}` has {} bytes; use 1 to {MAX_NAME_BYTES}", name.len());
        return Err(ShardError::new("tar", out.len() as u64, what));
    }
    let mut block = [0_u8; BLOCK];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..108].copy_from_slice(b"0000644\0");
    block[108..116].copy_from_slice(b"0000000\0");
    block[116..124].copy_from_slice(b"0000000\0");
    block[124..136].copy_from_slice(format!("{:011o}\0", body.len()).as_bytes());
    block[136..148].copy_from_slice(b"00000000000\0");
    block[156] = b'0';
    block[257..265].copy_from_slice(b"ustar\x0000");
    block[CHECKSUM].copy_from_slice(b"        ");
    let sum: u32 = block.iter().copied().map(u32::from).sum();
    block[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    out.extend_from_slice(&block);
    out.extend_from_slice(body);
    out.resize(out.len().next_multiple_of(BLOCK), 0);
    Ok(())
}

/// Ends an archive.
pub fn finish(out: &mut Vec<u8>) {
    out.resize(out.len() + 2 * BLOCK, 0);
}

fn verify_checksum(block: &[u8; BLOCK]) -> anyhow::Result<()> {
    let wanted = number(&block[CHECKSUM]);
    // Sums in 32 bits, which are added many at a time.
    let add = |bytes: &[u8]| bytes.iter().map(|&byte| u32::from(byte)).sum::<u32>();
    let sum = u64::from(add(block) - add(&block[CHECKSUM]) + 8 * u32::from(b' '));
    ensure!(
        wanted == Some(sum),
        "not a header of a tar archive: its checksum is not {sum}; compressed, damaged, or another kind of file"
    );
    Ok(())
}

/// Parses octal digits, or base 256 if the top bit of the first byte is set.
fn number(field: &[u8]) -> Option<u64> {
    if let [first, rest @ ..] = field
        && first & 0x80 != 0
    {
        let head = u64::from(first & 0x7f);
        return rest.iter().try_fold(head, |sum, &byte| {
            (sum >> 56 == 0).then_some(sum << 8 | u64::from(byte))
        });
    }
    match std::str::from_utf8(until_zero(field)).ok()?.trim_matches(' ') {
        "" => Some(0),
        text => u64::from_str_radix(text, 8).ok(),
    }
}

fn header_name(block: &[u8; BLOCK]) -> Option<String> {
    let name = std::str::from_utf8(until_zero(&block[..100])).ok()?;
    match std::str::from_utf8(until_zero(&block[345..500])) {
        _ if !block[257..].starts_with(b"ustar\0") => Some(name.to_owned()),
        Ok("") => Some(name.to_owned()),
        prefix => Some(format!("{}/{name}", prefix.ok()?)),
    }
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    &bytes[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_expected_is_cut_off_and_anything_else_is_left_to_the_walk() {
        let mut bytes = Vec::new();
        push("7.a", b"first", &mut bytes).unwrap();
        push("7.b.c", &[1; 512], &mut bytes).unwrap();
        push("7.d.npy", b"array", &mut bytes).unwrap();
        let first = split_expected(&bytes, "7", "a").unwrap();
        let second = split_expected(first.rest, "7", "b.c").unwrap();
        let array = split_expected(second.rest, "7", "d").unwrap();
        assert_eq!((first.body, second.body), (&b"first"[..], &[1; 512][..]));
        assert_eq!((array.body, array.rest), (&b"array"[..], &[][..]));
        assert_eq!((first.is_npy, array.is_npy), (false, true));
        for (key, extension) in [("7", "b"), ("", "a"), ("7.", "a"), ("77", "a"), ("7", ""), ("7", "a.b")] {
            assert!(split_expected(&bytes, key, extension).is_none(), "{key} {extension}");
        }
        // Another kind of member, a prefix, a sum that does not fit, a body that is cut off.
        for at in [156, 345, 0, 124, 148] {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(split_expected(&other, "7", "a").is_none(), "{at}");
        }
        assert!(split_expected(&bytes[..BLOCK + 4], "7", "a").is_none());
    }

    fn archive() -> Vec<u8> {
        let mut bytes = Vec::new();
        push("1.a", b"abc", &mut bytes).unwrap();
        push("1.b", &[7; 512], &mut bytes).unwrap();
        push("2.a", b"", &mut bytes).unwrap();
        finish(&mut bytes);
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let found = members(&archive(), 1000).unwrap();
        let names: Vec<_> = found.iter().map(|member| member.name.as_str()).collect();
        assert_eq!(names, ["1.a", "1.b", "2.a"]);
        assert_eq!((found[0].start, found[0].body.clone()), (1000, 1512..1515));
        assert_eq!((found[1].start, found[1].body.clone()), (2024, 2536..3048));
    }

    #[test]
    fn cut_and_foreign_files_are_refused_with_their_offset() {
        let bytes = archive();
        let error = members(&bytes[..1100], 0).unwrap_err();
        assert_eq!(error.offset, 1024);
        assert!(error.what.contains("cut off"), "{error}");
        let error = members(&bytes[..1900], 0).unwrap_err();
        assert!(error.what.contains("cut off"), "{error}");
        let error = members(&[0x1f; 600], 0).unwrap_err();
        assert!(error.what.contains("not a header"), "{error}");
        assert!(push(&"n".repeat(101), b"", &mut Vec::new()).is_err());
    }

    /// An archive whose second header has another kind.
    fn with_kind(kind: u8) -> Vec<u8> {
        let mut bytes = archive();
        bytes[1024 + 156] = kind;
        seal(&mut bytes[1024..1024 + BLOCK]);
        bytes
    }

    fn seal(block: &mut [u8]) {
        block[CHECKSUM].copy_from_slice(b"        ");
        let sum: u32 = block.iter().copied().map(u32::from).sum();
        block[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }

    #[test]
    fn bytes_that_are_elsewhere_or_have_holes_are_refused_by_name() {
        for (kind, word) in [
            (b'1', "hard link"),
            (b'2', "symbolic link"),
            (b'S', "sparse"),
            (b'M', "another volume"),
        ] {
            let error = members(&with_kind(kind), 0).unwrap_err();
            assert!(error.offset == 1024 && error.what.contains(word), "{error}");
            assert!(error.what.contains("`1.b`"), "{error}");
        }
        let mut sparse = archive();
        let record = b"29 GNU.sparse.realsize=99999\n";
        assert_eq!(record.len(), 29);
        let mut pax = Vec::new();
        push("pax", record, &mut pax).unwrap();
        pax[156] = b'x';
        seal(&mut pax[..BLOCK]);
        sparse.splice(0..0, pax);
        assert!(members(&sparse, 0).unwrap_err().what.contains("sparse"));
    }

    #[test]
    fn folders_have_no_bytes_whatever_their_size_says() {
        let mut bytes = Vec::new();
        push("d/", b"", &mut bytes).unwrap();
        bytes[156] = b'5';
        bytes[124..136].copy_from_slice(b"00000010000\0");
        seal(&mut bytes[..BLOCK]);
        bytes.extend(archive());
        assert_eq!(members(&bytes, 0).unwrap().len(), 3);
    }

    #[test]
    fn archives_behind_each_other_are_read_whole_and_other_bytes_are_refused() {
        let mut bytes = archive();
        let second = bytes.len() as u64;
        bytes.extend(archive());
        bytes.extend([0; 700]);
        let found = members(&bytes, 0).unwrap();
        assert_eq!(found.len(), 6);
        assert_eq!(found[3].start, second);
        bytes.extend([7; 600]);
        let error = members(&bytes, 0).unwrap_err();
        assert!(error.what.contains("after the end"), "{error}");
    }

    #[test]
    fn sizes_in_base_256_are_read_and_not_believed() {
        assert_eq!(number(&[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]), Some(258));
        assert_eq!(number(&[0xff; 12]), None);
        let mut bytes = archive();
        bytes[124..136].copy_from_slice(b"77777777777\0");
        bytes[CHECKSUM].copy_from_slice(b"        ");
        let sum: u32 = bytes[..BLOCK].iter().copied().map(u32::from).sum();
        bytes[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        assert!(members(&bytes, 0).unwrap_err().what.contains("the limit is"));
    }

    proptest! {
        #[test]
        fn any_damage_is_an_error_or_members_inside_the_file(
            at in any::<prop::sample::Index>(), value in any::<u8>(), cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = archive();
            let at = at.index(bytes.len());
            bytes[at] = value;
            bytes.truncate(cut.index(bytes.len()) + 1);
            if let Ok(found) = members(&bytes, 0) {
                prop_assert!(found.iter().all(|member| member.body.end <= bytes.len() as u64));
            }
        }
    }
}

//! A page of Parquet before its reader sees it. In: its bytes, and what its rows take at most. Out: nothing, or what is wrong with its header.
//!
//! A page says how many bytes it grows to, and readers set them aside and fill them with zeros before they unpack any: two GiB of a page that
//! lies, and as much again of each that is read beside it. Source: the Parquet format, `PageHeader`, in the compact protocol of Thrift.

/// A field of 32 bits whose number is one above that of the field before: its number's step, and its type.
const NEXT_I32: u8 = 0x15;
/// Bytes of a varint of 32 bits at most.
const VARINT_BYTES: usize = 5;

/// Looks at the header that a page begins with: its type, its size unpacked, and its size in the file.
///
/// # Errors
/// A header that is none, or that claims more than `most` bytes or than are there.
pub(crate) fn check(page: &[u8], most: u64) -> Result<(), String> {
    let mut rest = page;
    let [_, unpacked, packed] = [field(&mut rest)?, field(&mut rest)?, field(&mut rest)?];
    if u64::try_from(unpacked).is_ok_and(|bytes| bytes > most) || unpacked < 0 {
        return Err(format!(
            "it claims to hold {unpacked} bytes, and its rows take {most} at most: it is damaged"
        ));
    }
    if usize::try_from(packed).map_or(true, |bytes| bytes > rest.len()) {
        return Err(format!(
            "it claims to be {packed} bytes long, and there are {}: it is damaged",
            rest.len()
        ));
    }
    Ok(())
}

/// The next field, which has 32 bits.
fn field(rest: &mut &[u8]) -> Result<i32, String> {
    let number = rest.strip_prefix(&[NEXT_I32]).and_then(|bytes| {
        let len = bytes.iter().take(VARINT_BYTES).position(|byte| byte & 0x80 == 0)? + 1;
        let (varint, left) = bytes.split_at(len);
        *rest = left;
        Some(
            varint
                .iter()
                .rev()
                .fold(0_u64, |number, byte| number << 7 | u64::from(byte & 0x7f)),
        )
    });
    // Numbers alternate between those from 0 up and those from -1 down.
    let zigzag = number.and_then(|number| u32::try_from(number).ok());
    let zigzag = zigzag.ok_or("it does not begin as a page does: it is damaged")?;
    Ok((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header of a data page, and as many bytes behind it as it says.
    fn page(unpacked: i32, packed: i32, bytes: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [0, unpacked, packed] {
            out.push(NEXT_I32);
            let mut zigzag = ((number << 1) ^ (number >> 31)).cast_unsigned();
            while zigzag > 0x7f {
                out.push((zigzag & 0x7f) as u8 | 0x80);
                zigzag >>= 7;
            }
            out.push(zigzag as u8);
        }
        out.resize(out.len() + bytes, 0);
        out
    }

    #[test]
    fn only_what_the_rows_can_take_is_unpacked() {
        for bytes in [0, 1, 63, 64, 8191, 8192, 70_000] {
            assert_eq!(check(&page(bytes, 5, 5), 70_000), Ok(()), "{bytes}");
        }
        for (bytes, what) in [
            (
                page(70_001, 5, 5),
                "claims to hold 70001 bytes, and its rows take 70000",
            ),
            (page(i32::MAX, 5, 5), "claims to hold 2147483647"),
            (page(-1, 5, 5), "claims to hold -1"),
            (page(9, 6, 5), "claims to be 6 bytes long, and there are 5"),
            (page(9, -6, 5), "claims to be -6"),
            (vec![], "does not begin as a page does"),
            (vec![NEXT_I32; 2], "does not begin as a page does"),
            (
                vec![NEXT_I32, 0xff, 0xff, 0xff, 0xff, 0x7f],
                "does not begin as a page does",
            ),
            (b"PAR1PAR1".to_vec(), "does not begin as a page does"),
        ] {
            let refused = check(&bytes, 70_000).unwrap_err();
            assert!(refused.contains(what), "{refused}");
        }
    }
}

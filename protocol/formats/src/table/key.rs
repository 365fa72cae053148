//! Keys other than dense ids: their kinds, their bytes in a row, and their text form. No I/O.

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use uuid::Uuid;

/// Maximum length of a text key, in bytes.
pub const MAX_KEY_BYTES: usize = 4096;
/// Bytes of a text key's length in a row.
const LENGTH_BYTES: usize = 2;
/// Maximum characters of a key in a message.
const QUOTED_CHARS: usize = 64;

/// Type of a table's keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyKind {
    /// 64-bit integers, in any order.
    Int64,
    /// UTF-8 text.
    String,
    /// UUIDs: 16 bytes in the file, text outside of it.
    Uuid,
}

/// Position and type of the key in a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyColumn {
    /// Column that the keys are from.
    pub name: String,
    /// Type of the keys.
    pub kind: KeyKind,
    /// Byte offset in the row, after all columns.
    pub offset: u32,
    /// Bytes of the key: 8, 16, or two bytes of length (u16 LE) and the longest text.
    pub width: u32,
}

impl KeyKind {
    /// Returns the name in files and documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Int64 => "int64",
            Self::String => "string",
            Self::Uuid => "uuid",
        }
    }

    /// Returns the bytes of a key in a row, for texts of at most `longest` bytes.
    pub const fn width(self, longest: usize) -> usize {
        match self {
            Self::Int64 => 8,
            Self::Uuid => 16,
            Self::String => LENGTH_BYTES + longest,
        }
    }

    /// Converts a key from text to its bytes.
    ///
    /// # Errors
    /// The reason, with the text.
    pub fn of_text(self, text: &str) -> Result<Cow<'_, [u8]>> {
        let len = text.len();
        match self {
            Self::String if len > MAX_KEY_BYTES => bail!("{len} bytes long; the limit of a key is {MAX_KEY_BYTES}"),
            Self::String => Ok(Cow::Borrowed(text.as_bytes())),
            Self::Int64 => match text.parse::<i64>() {
                Ok(id) => Ok(Cow::Owned(id.to_le_bytes().to_vec())),
                Err(_) => bail!("{} is not a 64-bit integer", quoted(text)),
            },
            Self::Uuid => {
                let what = "is not a UUID such as 6f1c0d3e-2b4a-4c5d-8e6f-708192a3b4c5";
                // 32 hexadecimal digits, with or without hyphens; braces and URNs are not accepted.
                let uuid = Uuid::try_parse(text).ok().filter(|_| matches!(len, 32 | 36));
                let uuid = uuid.with_context(|| format!("{} {what}", quoted(text)))?;
                Ok(Cow::Owned(uuid.into_bytes().to_vec()))
            }
        }
    }

    /// Returns a key as text, in full.
    pub fn to_text(self, key: &[u8]) -> String {
        match self {
            Self::Int64 => match key.try_into() {
                Ok(bytes) => i64::from_le_bytes(bytes).to_string(),
                Err(_) => "?".to_owned(),
            },
            Self::String => String::from_utf8_lossy(key).into_owned(),
            Self::Uuid => Uuid::from_slice(key).map_or_else(|_| "?".to_owned(), |uuid| uuid.to_string()),
        }
    }

    /// Returns a key for a message: quoted, escaped, and no longer than a line.
    pub fn for_message(self, key: &[u8]) -> String {
        match self {
            Self::String => quoted(&String::from_utf8_lossy(&key[..key.len().min(4 * QUOTED_CHARS)])),
            _ => self.to_text(key),
        }
    }
}

impl KeyColumn {
    /// Writes a key into a row whose key bytes are zero; false if it does not fit.
    pub fn put(&self, row: &mut [u8], key: &[u8]) -> bool {
        let at = self.offset as usize;
        let Some(slot) = row.get_mut(at..at + self.width as usize) else {
            return false;
        };
        match self.kind {
            KeyKind::String => {
                let text = slot.get_mut(LENGTH_BYTES..LENGTH_BYTES + key.len());
                let (Ok(len), Some(text)) = (u16::try_from(key.len()), text) else {
                    return false;
                };
                text.copy_from_slice(key);
                slot[..LENGTH_BYTES].copy_from_slice(&len.to_le_bytes());
            }
            KeyKind::Int64 | KeyKind::Uuid if slot.len() == key.len() => slot.copy_from_slice(key),
            _ => return false,
        }
        true
    }

    /// Same as [`KeyColumn::put`], for a key in UTF-8 text.
    pub fn put_text(&self, row: &mut [u8], text: &[u8]) -> bool {
        let key = std::str::from_utf8(text).ok().map(|text| self.kind.of_text(text));
        key.is_some_and(|key| key.is_ok_and(|key| self.put(row, &key)))
    }

    /// Returns the key of a row; `None` if the row's bytes are not a key.
    pub fn get<'a>(&self, row: &'a [u8]) -> Option<&'a [u8]> {
        let at = self.offset as usize;
        let slot = row.get(at..at + self.width as usize)?;
        match self.kind {
            KeyKind::Int64 | KeyKind::Uuid => Some(slot),
            KeyKind::String => {
                let (len, text) = slot.split_at_checked(LENGTH_BYTES)?;
                text.get(..usize::from(u16::from_le_bytes(len.try_into().ok()?)))
            }
        }
    }

    /// Returns the maximum bytes of a text that fits; for other kinds, their size.
    pub fn longest(&self) -> usize {
        match self.kind {
            KeyKind::String => (self.width as usize).saturating_sub(LENGTH_BYTES),
            _ => self.width as usize,
        }
    }

    /// True if the width is valid for the kind.
    pub(super) fn is_valid(&self) -> bool {
        let longest = self.longest();
        longest <= MAX_KEY_BYTES && self.width as usize == self.kind.width(longest)
    }
}

/// Returns an external text for a message: quoted, escaped, shortened.
pub fn quoted(text: &str) -> String {
    let mut chars = text.chars();
    let head: String = chars.by_ref().take(QUOTED_CHARS).flat_map(char::escape_debug).collect();
    match chars.next() {
        None => format!("\"{head}\""),
        Some(_) => format!("\"{head}...\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn uuids_are_read_in_both_forms_and_nothing_else_is_one() {
        let text = "6f1c0d3e-2b4a-4c5d-8e6f-708192a3b4c5";
        let bytes = KeyKind::Uuid.of_text(text).unwrap().into_owned();
        assert_eq!(KeyKind::Uuid.to_text(&bytes), text);
        for other in [text.to_uppercase(), text.replace('-', "")] {
            assert_eq!(*KeyKind::Uuid.of_text(&other).unwrap(), *bytes);
        }
        for bad in [
            "",
            "6f1c",
            &text.replace('-', "_"),
            &text.replace('f', "g"),
            &"é".repeat(18),
        ] {
            assert!(KeyKind::Uuid.of_text(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn keys_in_messages_are_bounded_and_escaped() {
        let text = KeyKind::String.for_message("a\n\"b\u{7f}".repeat(1000).as_bytes());
        assert!(text.len() < 600 && !text.contains('\n'), "{text}");
        assert!(text.starts_with("\"a\\n\\\"b"), "{text}");
    }

    proptest! {
        #[test]
        fn keys_in_rows_read_back(key in "\\PC{0,40}", spare in 0_u32..20, offset in 0_u32..30) {
            let width = u32::try_from(KeyKind::String.width(key.len())).unwrap() + spare;
            let column = KeyColumn { name: "k".into(), kind: KeyKind::String, offset, width };
            let mut row = vec![0; (offset + width) as usize];
            prop_assert!(column.put(&mut row, key.as_bytes()));
            prop_assert_eq!(column.get(&row), Some(key.as_bytes()));
            prop_assert!(!column.put(&mut row, "x".repeat(key.len() + spare as usize + 1).as_bytes()));
        }

        #[test]
        fn arbitrary_rows_have_a_key_or_none(row in prop::collection::vec(any::<u8>(), 0..64), offset in 0_u32..64, width in 0_u32..64) {
            for kind in [KeyKind::Int64, KeyKind::String, KeyKind::Uuid] {
                let column = KeyColumn { name: "k".into(), kind, offset, width };
                if let Some(key) = column.get(&row) {
                    prop_assert!(key.len() <= width as usize);
                    let _ = kind.for_message(key);
                }
            }
        }

        #[test]
        fn uuids_read_back(bytes: [u8; 16]) {
            let text = KeyKind::Uuid.to_text(&bytes);
            prop_assert_eq!(&*KeyKind::Uuid.of_text(&text).unwrap(), &bytes[..]);
        }
    }
}

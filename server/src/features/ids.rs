//! Entities of a request, as named by the client. In: the tensor `entity_id`. Out: ids, or keys in the table's form; or
//! an error that says what the table requires. Independent of any table.

use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use std::borrow::Cow;
use tierlab_formats::table::{KeyKind, quoted};
use tierlab_protocol::infer::Tensor;
use tierlab_protocol::tensor::{DataType, element_count};

/// Size of the length before a text element.
const LENGTH_BYTES: usize = 4;
/// Heap bytes of a UUID written as text.
const UUID_BYTES: usize = 32;

/// Kind of entity id in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdKind {
    /// Consecutive ids.
    Dense,
    Keyed(KeyKind),
}

/// Entities of a request, one per row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EntityIds {
    Int64(Vec<i64>),
    /// Texts; for UUIDs their 16 bytes.
    Bytes(Vec<Bytes>),
}

impl IdKind {
    /// Type of the tensor.
    pub(crate) fn dtype(self) -> DataType {
        match self {
            Self::Dense | Self::Keyed(KeyKind::Int64) => DataType::Int64,
            Self::Keyed(KeyKind::String | KeyKind::Uuid) => DataType::Bytes,
        }
    }

    /// Required tensor in messages.
    fn wanted(self) -> &'static str {
        match self {
            Self::Dense => "ids are INT64 [n] or [n, 1]",
            Self::Keyed(KeyKind::Int64) => "the table's keys are integers: INT64 [n] or [n, 1]",
            Self::Keyed(KeyKind::String) => "the table's keys are texts: BYTES [n] or [n, 1]",
            Self::Keyed(KeyKind::Uuid) => "the table's keys are UUIDs, as text: BYTES [n] or [n, 1]",
        }
    }
}

impl EntityIds {
    /// Extracts the ids from a tensor.
    pub(crate) fn of(tensor: &Tensor, id_kind: IdKind) -> Result<Self> {
        let shape_ok = matches!(tensor.shape.as_slice(), [_] | [_, 1]);
        if tensor.dtype != id_kind.dtype() || !shape_ok {
            bail!("{} {:?}, but {}", tensor.dtype, tensor.shape, id_kind.wanted());
        }
        let IdKind::Keyed(kind @ (KeyKind::String | KeyKind::Uuid)) = id_kind else {
            let data = tensor.data.whole();
            let (ids, _) = data.as_chunks();
            return Ok(Self::Int64(ids.iter().map(|id| i64::from_le_bytes(*id)).collect()));
        };
        let data = tensor.data.clone().into_whole();
        let mut keys = Vec::with_capacity(element_count(&tensor.shape).unwrap_or(0).min(data.len() / LENGTH_BYTES));
        let mut rest = &data[..];
        while let Some((len, tail)) = rest.split_first_chunk::<LENGTH_BYTES>() {
            let len = usize::try_from(u32::from_le_bytes(*len)).unwrap_or(usize::MAX);
            let (key, tail) = tail.split_at_checked(len).context("its last element is truncated")?;
            keys.push(key_of(kind, data.slice_ref(key))?);
            rest = tail;
        }
        Ok(Self::Bytes(keys))
    }

    /// Bytes that [`EntityIds::of`] will use for a tensor.
    pub(crate) fn bytes_of(tensor: &Tensor) -> usize {
        let element_bytes = match tensor.dtype {
            DataType::Bytes => size_of::<Bytes>() + UUID_BYTES,
            _ => size_of::<i64>(),
        };
        let gathered = if tensor.data.is_whole() { 0 } else { tensor.data.len() };
        let count = element_count(&tensor.shape).unwrap_or(usize::MAX);
        count.saturating_mul(element_bytes).saturating_add(gathered)
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Int64(ids) => ids.len(),
            Self::Bytes(keys) => keys.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Key of the entity at index `at`.
    pub(super) fn key(&self, at: usize) -> Cow<'_, [u8]> {
        match self {
            Self::Int64(ids) => Cow::Owned(ids[at].to_le_bytes().to_vec()),
            Self::Bytes(keys) => Cow::Borrowed(&keys[at]),
        }
    }
}

fn key_of(kind: KeyKind, key: Bytes) -> Result<Bytes> {
    if kind == KeyKind::String {
        return Ok(key);
    }
    let text =
        std::str::from_utf8(&key).map_err(|_| anyhow!("invalid UUID: {}", quoted(&String::from_utf8_lossy(&key))))?;
    Ok(Bytes::from(kind.of_text(text)?.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tensor(dtype: DataType, shape: &[i64], data: Vec<u8>) -> Tensor {
        Tensor {
            name: "entity_id".into(),
            dtype,
            shape: shape.to_vec(),
            data: data.into(),
        }
    }

    fn texts(texts: &[&str]) -> Tensor {
        let data = texts.iter().flat_map(|text| {
            let len = (text.len() as u32).to_le_bytes();
            len.into_iter().chain(text.bytes()).collect::<Vec<u8>>()
        });
        tensor(DataType::Bytes, &[texts.len() as i64], data.collect())
    }

    #[test]
    fn each_table_says_what_it_wants() {
        let text = IdKind::Keyed(KeyKind::String);
        let uuid = IdKind::Keyed(KeyKind::Uuid);
        let integer = tensor(DataType::Int64, &[1], vec![0; 8]);
        let refused = |tensor: &Tensor, id_kind| EntityIds::of(tensor, id_kind).unwrap_err().to_string();
        assert!(refused(&integer, text).contains("keys are texts: BYTES"));
        assert!(refused(&texts(&["a"]), IdKind::Dense).contains("ids are INT64"));
        assert!(refused(&texts(&["a"]), uuid).contains("\"a\" is not a UUID"));
        let ids = EntityIds::of(&texts(&["6f1c0d3e-2b4a-4c5d-8e6f-708192a3b4c5"]), uuid).unwrap();
        assert_eq!(ids.key(0).len(), 16);
        assert_eq!(EntityIds::of(&texts(&["", "b"]), text).unwrap().len(), 2);
    }

    #[test]
    fn what_keys_take_is_told_before_and_texts_are_not_copied() {
        let sent = texts(&["a"; 1000]);
        let EntityIds::Bytes(keys) = EntityIds::of(&sent, IdKind::Keyed(KeyKind::String)).unwrap() else {
            panic!("texts are keys of bytes");
        };
        assert!(keys.capacity() * size_of::<Bytes>() <= EntityIds::bytes_of(&sent));
        let data = sent.data.whole();
        assert!(keys.iter().all(|key| data.as_ptr_range().contains(&key.as_ptr())));
        assert_eq!(EntityIds::bytes_of(&tensor(DataType::Int64, &[3], vec![0; 24])), 24);
    }

    proptest! {
        #[test]
        fn arbitrary_elements_are_keys_or_refused(data in prop::collection::vec(any::<u8>(), 0..60)) {
            for kind in [KeyKind::String, KeyKind::Uuid] {
                let _ = EntityIds::of(&tensor(DataType::Bytes, &[3], data.clone()), IdKind::Keyed(kind));
            }
        }
    }
}

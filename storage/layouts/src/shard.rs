//! Shards that were looked up, with the positions of their rows, which are read once and cached within a bound.

use crate::arrow;
use crate::layout::Framing;
use crate::parquet;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use tierlab_formats::shards::index::ShardIndex;
use tierlab_storage::Object;

/// Bytes of indexes and footers that a table holds; the least recently used go first, and are read again when they are wanted.
const MAX_HELD_BYTES: usize = 512 << 20;
/// Overhead of a sample's key, in bytes.
const KEY_BYTES: usize = 16;

/// A shard as it was looked up.
pub(crate) struct Shard {
    pub(crate) object: Object,
    /// Index object, if the shard has one beside it.
    pub(crate) beside: Option<Object>,
    pub(crate) places: Places,
}

/// Source of the positions of a shard's rows.
pub(crate) enum Places {
    /// Their numbers.
    Stride,
    Index(Framing, ShardIndex),
    /// The footer of a Parquet file, with its page index.
    Pages(parquet::Footer),
    /// The footer of an Arrow IPC file.
    Batches(arrow::Footer),
}

impl Places {
    fn memory_bytes(&self) -> usize {
        match self {
            Self::Stride => 0,
            Self::Index(_, index) => {
                let samples = index.samples();
                size_of_val(samples) + samples.len() * KEY_BYTES
            }
            Self::Pages(footer) => footer.memory_bytes(),
            Self::Batches(footer) => footer.memory_bytes(),
        }
    }
}

/// Shards by their numbers.
#[derive(Default)]
pub(crate) struct Held {
    shards: HashMap<u64, (Arc<Shard>, u64)>,
    bytes: usize,
    /// Counts uses.
    now: u64,
}

impl Held {
    pub(crate) fn find(&mut self, number: u64) -> Option<Arc<Shard>> {
        self.now += 1;
        let (shard, used) = self.shards.get_mut(&number)?;
        *used = self.now;
        Some(Arc::clone(shard))
    }

    pub(crate) fn hold(&mut self, number: u64, shard: &Arc<Shard>) {
        self.now += 1;
        self.bytes += cost(shard);
        if let Some((before, _)) = self.shards.insert(number, (Arc::clone(shard), self.now)) {
            self.bytes -= cost(&before);
        }
        while self.bytes > MAX_HELD_BYTES && self.shards.len() > 1 {
            let oldest = self.shards.iter().min_by_key(|(_, (_, used))| *used);
            let Some(oldest) = oldest.map(|(number, _)| *number) else {
                break;
            };
            self.remove(oldest);
        }
    }

    /// Takes these out.
    pub(crate) fn take(&mut self, numbers: &BTreeSet<u64>) -> Vec<Arc<Shard>> {
        numbers.iter().filter_map(|&number| self.remove(number)).collect()
    }

    fn remove(&mut self, number: u64) -> Option<Arc<Shard>> {
        let (shard, _) = self.shards.remove(&number)?;
        self.bytes -= cost(&shard);
        Some(shard)
    }
}

fn cost(shard: &Shard) -> usize {
    size_of::<Shard>() + shard.object.path.as_str().len() + shard.object.version.len() + shard.places.memory_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierlab_formats::shards::index::Sample;
    use tierlab_storage::ObjectPath;

    fn shard(samples: usize) -> Arc<Shard> {
        let sample = |at: usize| Sample {
            key: at.to_string(),
            range: at as u64..at as u64 + 1,
            crc: 0,
        };
        let index = ShardIndex::new(1 << 40, (0..samples).map(sample).collect()).unwrap();
        Arc::new(Shard {
            object: Object {
                path: ObjectPath::new("x").unwrap(),
                size: 1,
                version: String::new(),
            },
            beside: None,
            places: Places::Index(Framing::Tar, index),
        })
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first_and_memory_stays_bounded() {
        let large = shard(1_000_000);
        let each = cost(&large);
        let room = MAX_HELD_BYTES / each;
        let mut held = Held::default();
        for number in 0..room as u64 {
            held.hold(number, &large);
        }
        assert!(held.find(0).is_some());
        held.hold(room as u64, &large);
        assert!(held.find(1).is_none() && held.find(0).is_some());
        assert!(held.bytes <= MAX_HELD_BYTES && held.shards.len() == room);
        held.hold(0, &shard(1));
        assert!(held.bytes < MAX_HELD_BYTES - each / 2);
        assert_eq!(held.take(&BTreeSet::from([0, 1, 2])).len(), 2);
    }
}

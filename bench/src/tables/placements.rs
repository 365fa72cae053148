//! Tables in memory, and laid out on the tiers of a run. In: a kind and a seed, or a path; layouts. Out: tables in the rows format, and
//! opened tables.

use crate::machine::check_memory;
use crate::plan::Common;
use crate::prepared_tier::{OpenTier, PreparedTiers};
use crate::rounds::{Rounds, shuffled_rounds};
use crate::stop::Stop;
use anyhow::{Context, Error, Result};
use bytes::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierlab_formats::table::{TableHeader, header_len};
use tierlab_layouts::{Layout, Options, Table, lay_out, manifest};
use tierlab_models::tables::RowSource;
use tierlab_storage::{Body, ObjectPath, TierConfig};

/// A table in one layout on one tier.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Placement {
    pub(super) tier: String,
    pub(super) layout: Layout,
    /// Name of the table; empty if a run has only one.
    #[serde(rename = "workload", skip_serializing_if = "String::is_empty")]
    pub(super) table: String,
}

impl fmt::Display for Placement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tier, layout, table } = self;
        match table.as_str() {
            "" => write!(out, "{layout} on {tier}"),
            table => write!(out, "{table} as {layout} on {tier}"),
        }
    }
}

/// Lays every table out in every layout, in shards of about `shard_bytes` bytes, on every tier; then measures each combination once a
/// round. `files` are the tables in the rows format, by name; `expected` is the expected time of a measurement. Returns the tables, and the
/// error of `measure` that ended the rounds.
///
/// # Errors
/// A table cannot be laid out.
pub(super) fn measure_placements(
    common: &Common,
    tiers: &PreparedTiers,
    (layouts, shard_bytes): (&[Layout], u64),
    files: &BTreeMap<String, Bytes>,
    (expected, stop): (Duration, &Stop),
    mut measure: impl FnMut(u32, &Placement, &LaidOut) -> Result<()>,
) -> Result<(BTreeMap<Placement, LaidOut>, Option<Error>)> {
    let placements = placements(tiers, layouts, files);
    let order = shuffled_rounds(common.seed, common.repeats, &placements);
    let mut rounds = Rounds::new(common.repeats, stop, placements.len() + order.len(), expected);
    let mut laid_out = BTreeMap::new();
    rounds.prepare(&placements, |placement| {
        let options = Options {
            layout: placement.layout,
            shard_bytes,
        };
        let (tier, file) = (&tiers[&placement.tier], files[&placement.table].clone());
        let name = format!("{}/{}", placement.table, placement.layout);
        let folder = format!("{}/{}", tier.folder, name.trim_start_matches('/'));
        let table = lay_out_one(tier.opened(), &folder, file, options, stop)?;
        laid_out.insert(placement.clone(), table);
        Ok(())
    })?;
    let ended = rounds.measure(&order, |round, one| measure(round, one, &laid_out[one]));
    Ok((laid_out, ended.err()))
}

/// Returns every table in every layout on every tier.
fn placements(tiers: &PreparedTiers, layouts: &[Layout], files: &BTreeMap<String, Bytes>) -> Vec<Placement> {
    let mut placements = Vec::new();
    for tier in tiers.keys() {
        for &layout in layouts {
            placements.extend(files.keys().map(|table| Placement {
                tier: tier.clone(),
                layout,
                table: table.clone(),
            }));
        }
    }
    placements
}

/// Laid-out table.
pub(super) struct LaidOut {
    pub(super) table: Arc<Table>,
    pub(super) stored: Stored,
}

/// Size of a laid-out table, and cost of opening it and reading every index or footer.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Stored {
    pub(super) objects: u64,
    pub(super) stored_bytes: u64,
    laid_out_s: f64,
    pub(super) open_ms: f64,
    open_requests: u64,
    open_bytes: u64,
}

/// Lays a file of the rows format out in a folder.
fn lay_out_one(opened: &OpenTier, folder: &str, file: Bytes, options: Options, stop: &Stop) -> Result<LaidOut> {
    let OpenTier { tier, runtime } = opened;
    runtime.block_on(async {
        let memory = tierlab_storage::open(&TierConfig::Memory { root: None }).await?;
        let from = ObjectPath::new("t.rows")?;
        memory.put(&from, Body::Bytes(file)).await?;
        let folder = ObjectPath::new(folder)?;
        let started = Instant::now();
        let on_bytes = &mut |_: u64| ();
        let written = lay_out((&*memory, &from), (&**tier, &folder), options, on_bytes);
        let written = stop.gives_up(written).await?;
        let laid_out_s = started.elapsed().as_secs_f64();
        // Without a listing, for which a bucket may lack the permission.
        let manifest = tier.stat(&folder.join(manifest::NAME)?).await?;
        let started = Instant::now();
        let table = Table::open(Arc::clone(tier), folder).await?;
        let (mut open_requests, mut open_bytes) = (0, 0);
        for id in table.first_ids() {
            let rows = table.look_up(&[id]).await?;
            open_requests += u64::from(rows.cost.read.requests);
            open_bytes += rows.cost.read.wire_bytes;
        }
        let stored = Stored {
            objects: written.objects(),
            stored_bytes: written.bytes + manifest.size,
            laid_out_s,
            open_ms: started.elapsed().as_secs_f64() * 1e3,
            open_requests,
            open_bytes,
        };
        Ok(LaidOut {
            table: Arc::new(table),
            stored,
        })
    })
}

/// File in the rows format.
pub(super) struct RowsFile {
    pub(super) header: TableHeader,
    pub(super) bytes: Bytes,
}

impl RowsFile {
    /// Generates a table from a seed.
    ///
    /// # Errors
    /// More rows than the format or this machine's memory holds.
    pub(super) fn generate(source: &dyn RowSource, rows: u64, seed: u64) -> Result<Self> {
        let mut header = TableHeader::new(source.schema().clone(), rows, 0, seed)?;
        check_memory("the table", header.file_len())?;
        let (stride, start) = (header.stride as usize, usize::try_from(header.header_len())?);
        let mut bytes = vec![0_u8; usize::try_from(header.file_len())?];
        for (id, row) in (0_i64..).zip(bytes[start..].chunks_exact_mut(stride)) {
            source.fill(id, row);
            header.seal_row(id, row);
        }
        let block = stride * header.rows_per_block as usize;
        header.block_crcs = bytes[start..].chunks(block).map(crc32c::crc32c).collect();
        bytes[..start].copy_from_slice(&header.encode());
        Ok(Self {
            header,
            bytes: bytes.into(),
        })
    }

    /// Reads a table.
    ///
    /// # Errors
    /// The file cannot be read, or its header is damaged.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let read = || -> Result<Self> {
            let file = std::fs::read(path)?;
            let length = usize::try_from(header_len(&file)?)?;
            let head = file.get(..length).context("the table is truncated in its header")?;
            Ok(Self {
                header: TableHeader::decode(head, file.len() as u64)?,
                bytes: file.into(),
            })
        };
        read().with_context(|| format!("cannot read {}", path.display()))
    }

    /// Rows in the order of the file.
    pub(super) fn rows(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let rows = self.bytes.get(self.header.header_len() as usize..).unwrap_or_default();
        rows.chunks_exact(self.header.stride as usize)
            .take(self.header.rows as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prepared_tier::{PreparedTier, runtime};
    use anyhow::ensure;
    use async_trait::async_trait;
    use std::ops::Range;
    use tierlab_models::tables::TableKind;
    use tierlab_storage::tiers::memory::MemoryTier;
    use tierlab_storage::{ErrorKind, Object, ReadMany, StorageError, Tier, TierInfo};

    /// Tier without permission to list, whose writes never end if `hangs`.
    struct Unlisted {
        tier: Arc<dyn Tier>,
        hangs: bool,
    }

    #[async_trait]
    impl Tier for Unlisted {
        fn info(&self) -> TierInfo {
            self.tier.info()
        }

        async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
            self.tier.stat(path).await
        }

        async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
            self.tier.read_many(object, ranges).await
        }

        async fn list(&self, _: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
            Err(ErrorKind::Denied.error("the bucket", "no permission to list"))
        }

        fn inner(&self) -> Option<&dyn Tier> {
            Some(&*self.tier)
        }

        async fn put(&self, path: &ObjectPath, body: Body) -> Result<Object, StorageError> {
            match self.hangs {
                true => std::future::pending().await,
                false => self.tier.put(path, body).await,
            }
        }
    }

    /// A tier in memory, itself and as an unlisted tier.
    fn unlisted(hangs: bool) -> (Arc<dyn Tier>, OpenTier) {
        let tier: Arc<dyn Tier> = Arc::new(MemoryTier::default());
        let unlisted = Unlisted {
            tier: Arc::clone(&tier),
            hangs,
        };
        let opened = OpenTier {
            tier: Arc::new(unlisted),
            runtime: runtime(1).unwrap(),
        };
        (tier, opened)
    }

    #[test]
    fn an_interrupt_ends_the_lay_out_of_a_table() {
        let (_, opened) = unlisted(true);
        let table = RowsFile::generate(&*TableKind::Ctr.source(1).unwrap(), 50, 1).unwrap();
        let options = Options {
            layout: Layout::Files,
            shard_bytes: 8192,
        };
        let stop = Stop::default();
        stop.request();
        let laid_out = lay_out_one(&opened, "bench/x", table.bytes, options, &stop);
        let error = laid_out.err().unwrap();
        assert!(error.to_string().contains("interrupted"), "{error}");
    }

    #[test]
    fn a_table_is_laid_out_and_measured_without_permission_to_list() {
        let (inner, opened) = unlisted(false);
        let table = RowsFile::generate(&*TableKind::Ctr.source(1).unwrap(), 50, 1).unwrap();
        for layout in Layout::all() {
            let (folder, file) = (format!("bench/{layout}"), table.bytes.clone());
            let options = Options {
                layout,
                shard_bytes: 8192,
            };
            let laid_out = lay_out_one(&opened, &folder, file, options, &Stop::default()).unwrap();
            let stored = laid_out.stored;
            let folder = ObjectPath::new(&folder).unwrap();
            let listed = opened.runtime.block_on(inner.list(Some(&folder))).unwrap();
            let bytes = listed.iter().map(|object| object.size).sum::<u64>();
            let found = (stored.objects, stored.stored_bytes);
            assert_eq!(found, (listed.len() as u64, bytes), "{layout}");
        }
    }

    #[test]
    fn an_error_of_a_measurement_ends_the_rounds_and_loses_nothing() {
        let memory = PreparedTier::new("memory", &TierConfig::Memory { root: None }, None, 1).unwrap();
        let tiers = PreparedTiers::from([("memory".to_owned(), memory)]);
        let common = Common {
            name: "short".to_owned(),
            text: String::new(),
            seed: 1,
            repeats: 3,
            scratch: None,
            tiers: BTreeMap::new(),
        };
        let table = RowsFile::generate(&*TableKind::Ctr.source(1).unwrap(), 10, 1).unwrap();
        let files = BTreeMap::from([(String::new(), table.bytes)]);
        let (layouts, expected, stop) = ([Layout::Rows], Duration::ZERO, Stop::default());
        let mut rounds = Vec::new();
        let measure = |round, _: &Placement, _: &LaidOut| {
            rounds.push(round);
            ensure!(round == 0, "the tier does not answer");
            Ok(())
        };
        let measured = measure_placements(
            &common,
            &tiers,
            (&layouts[..], 1 << 20),
            &files,
            (expected, &stop),
            measure,
        );
        let (laid_out, failed) = measured.unwrap();
        assert_eq!((laid_out.len(), rounds), (1, vec![0, 1]));
        assert!(format!("{:#}", failed.unwrap()).contains("the tier does not answer"));
    }
}

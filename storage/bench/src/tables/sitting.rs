//! A tier with tables laid out on it, which are removed in the end. In: a tier's config, tables in the rows format. Out: the tables in their
//! layouts, opened.

use anyhow::{Context, Result};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tierlab_layouts::{Layout, Options, Table, lay_out};
use tierlab_storage::{Body, ErrorKind, Object, ObjectPath, Tier, TierConfig};
use tokio::runtime::Runtime;

/// Objects that are removed at the same time.
const REMOVED_AT_ONCE: usize = 64;

/// A tier on a runtime of its own.
pub(super) struct Sitting {
    pub(super) runtime: Runtime,
    pub(super) tier: Arc<dyn Tier>,
    /// Of a local tier, removed when this is dropped.
    root: Option<tempfile::TempDir>,
    /// On the tier; all that is written lies in it.
    pub(super) folder: String,
}

/// A table in one layout.
pub(super) struct LaidOut {
    pub(super) table: Arc<Table>,
    pub(super) objects: u64,
    pub(super) stored_bytes: u64,
    pub(super) laid_out_s: f64,
    pub(super) opening: Opening,
}

/// What it took to open a table and to read every index or footer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Opening {
    pub(super) elapsed_s: f64,
    pub(super) requests: u64,
    pub(super) wire_bytes: u64,
}

impl Sitting {
    /// Opens a tier, and writes nothing yet. So many threads read.
    pub(super) fn open(
        name: &str,
        config: &TierConfig,
        scratch: Option<&Path>,
        threads: Option<usize>,
    ) -> Result<Self> {
        let mut config = config.clone();
        let root = crate::runner::local_root(name, &mut config, scratch)?;
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        if let Some(threads) = threads {
            builder.worker_threads(threads);
        }
        let runtime = builder.enable_all().build().context("cannot start a runtime")?;
        let tier = runtime.block_on(tierlab_storage::open(&config));
        Ok(Self {
            tier: tier.with_context(|| format!("tier `{name}`"))?,
            runtime,
            root,
            folder: format!("tierlab-storage-bench-{}", crate::content::name_of_run()),
        })
    }

    pub(super) fn root(&self) -> Option<&Path> {
        self.root.as_ref().map(tempfile::TempDir::path)
    }

    /// What the tier says of itself.
    pub(super) fn notes(&self) -> Vec<String> {
        crate::runner::notes_of(&self.tier.info())
    }

    /// Lays a file of the rows format out, below a name of its own, in shards of about so many bytes.
    pub(super) fn lay_out(&self, name: &str, file: Bytes, layout: Layout, shard_bytes: u64) -> Result<LaidOut> {
        let options = Options { layout, shard_bytes };
        self.runtime.block_on(async {
            let memory = TierConfig::parse("memory", "kind = \"memory\"\n")?;
            let memory = tierlab_storage::open(&memory).await?;
            let from = ObjectPath::new("t.rows")?;
            memory.put(&from, Body::Bytes(file)).await?;
            let folder = ObjectPath::new(&format!("{}/{name}", self.folder))?;
            let began = Instant::now();
            lay_out((&*memory, &from), (&*self.tier, &folder), options, &mut |_| ()).await?;
            let laid_out_s = began.elapsed().as_secs_f64();
            let objects = self.tier.list(Some(&folder)).await?;
            let began = Instant::now();
            let table = Table::open(Arc::clone(&self.tier), folder).await?;
            let mut opening = Opening::default();
            for id in table.first_ids() {
                let rows = table.look_up(&[id]).await?;
                opening.requests += u64::from(rows.cost.read.requests);
                opening.wire_bytes += rows.cost.read.wire_bytes;
            }
            opening.elapsed_s = began.elapsed().as_secs_f64();
            Ok(LaidOut {
                table: Arc::new(table),
                objects: objects.len() as u64,
                stored_bytes: objects.iter().map(|object| object.size).sum(),
                laid_out_s,
                opening,
            })
        })
    }

    /// Removes all that was written.
    pub(super) fn remove(self) -> Result<()> {
        let folder = ObjectPath::new(&self.folder)?;
        self.runtime.block_on(async {
            let objects = match self.tier.list(Some(&folder)).await {
                // Nothing was written.
                Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
                listed => listed.context("cannot list what was written, to remove it")?,
            };
            let tier = &self.tier;
            let delete = |object: Object| async move { tier.delete(&object.path).await };
            let deleted = stream::iter(objects)
                .map(Ok)
                .try_for_each_concurrent(REMOVED_AT_ONCE, delete);
            deleted.await.context("cannot remove what was written")
        })
    }
}

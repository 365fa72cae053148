//! The tables that are in use, each shared by all models that read it, and the check of each for a newer version.
//!
//! In: paths, a tier, a period. Out: the version of each table that requests read. A table that was replaced is opened
//! once, by the first request that meets the new version or by the check every period, whichever comes first; from then
//! on nobody begins a read of the old one. Knows nothing of requests.

use super::ids::Naming;
use super::table::OpenTable;
use super::tier::FeatureTier;
use crate::error::LoadError;
use crate::request::{Reason, Refusal};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tierlab_formats::table::Column;
use tierlab_storage::ObjectPath;
use tokio::task::JoinHandle;

/// The longest wait for the tier's word on one table; a tier that is down is asked again at the next look.
const CHECK_LIMIT: Duration = Duration::from_secs(10);
/// The header of a table whose rows are damaged is read again at most this often, in case it is of an old version.
const REREAD_INTERVAL: Duration = Duration::from_millis(250);

/// A table, as everyone who reads it has it now.
pub(super) struct LiveTable {
    tier: FeatureTier,
    path: ObjectPath,
    open: RwLock<Arc<OpenTable>>,
    /// Columns that models use. A version without them is not taken over.
    wanted: Mutex<Vec<Column>>,
    /// Kind of entity id. A version with another kind is not taken over.
    naming: Naming,
    /// One task opens a replaced table again; requests wait for it, and it goes on where none does any more.
    reopening: tokio::sync::Mutex<Option<JoinHandle<Result<OpenTable, LoadError>>>>,
    /// When it was last opened because rows were damaged.
    reread_header: Mutex<Option<Instant>>,
    /// Why the version there is now cannot be used.
    refused: Mutex<Option<String>>,
    /// The last attempt to open it that failed, and when.
    failed: Mutex<Option<(Instant, Refusal)>>,
}

impl LiveTable {
    fn new(tier: FeatureTier, path: ObjectPath, open: OpenTable) -> Self {
        Self {
            tier,
            path,
            naming: open.naming(),
            open: RwLock::new(Arc::new(open)),
            wanted: Mutex::default(),
            reopening: tokio::sync::Mutex::default(),
            reread_header: Mutex::default(),
            refused: Mutex::default(),
            failed: Mutex::default(),
        }
    }

    /// The version to read.
    pub(super) fn current(&self) -> Arc<OpenTable> {
        Arc::clone(&self.open.read())
    }

    /// True if `open` is the current version.
    pub(super) fn is_current(&self, open: &Arc<OpenTable>) -> bool {
        Arc::ptr_eq(&self.open.read(), open)
    }

    /// Notes what a model takes of the table.
    fn want(&self, columns: impl Iterator<Item = Column>) {
        let mut wanted = self.wanted.lock();
        for column in columns {
            if !wanted.contains(&column) {
                wanted.push(column);
            }
        }
    }

    /// The first column that the models take and a table lacks; or its key, where that is of another kind.
    fn lacks(&self, open: &OpenTable) -> Option<String> {
        if open.naming() != self.naming {
            return Some("its key is of another kind".to_owned());
        }
        let (wanted, header) = (self.wanted.lock(), &open.header);
        let lacking = wanted
            .iter()
            .find(|column| header.schema.column(&column.name) != Some(column))?;
        Some(format!("its column `{}` is another", lacking.name))
    }

    fn set(&self, fresh: OpenTable) -> Arc<OpenTable> {
        let fresh = Arc::new(fresh);
        *self.open.write() = Arc::clone(&fresh);
        fresh
    }

    /// Opens the table again after the tier said that it has changed. One that cannot be used is refused, and the version
    /// before it stays.
    pub(super) async fn reopen(&self, stale: &Arc<OpenTable>) -> Result<Arc<OpenTable>, Refusal> {
        let asked = Instant::now();
        let mut reopening = self.reopening.lock().await;
        let current = self.current();
        if !Arc::ptr_eq(&current, stale) {
            return Ok(current);
        }
        // Those who waited while an attempt failed do not each make another.
        let failed = self.failed.lock().clone();
        if let Some((_, refusal)) = failed.filter(|(at, _)| *at >= asked) {
            return Err(refusal);
        }
        let task = reopening.get_or_insert_with(|| {
            let (tier, path) = (self.tier.clone(), self.path.clone());
            tokio::spawn(async move { tier.open_table(&path, true).await })
        });
        let opened = task.await;
        *reopening = None;
        let opened = opened.unwrap_or_else(|_| Err(LoadError::new("opening it panicked")));
        let opened = opened.and_then(|fresh| match self.lacks(&fresh) {
            None => Ok(fresh),
            Some(what) => Err(LoadError::at(&self.path, what)),
        });
        let fresh = opened.map_err(|e| {
            let refusal = self.refuse(&e);
            *self.failed.lock() = Some((Instant::now(), refusal.clone()));
            refusal
        })?;
        *self.refused.lock() = None;
        if fresh.same_as(&current) {
            return Ok(current);
        }
        tracing::info!(object = %self.path, rows = fresh.header.rows, "the table was replaced and is read anew");
        Ok(self.set(fresh))
    }

    /// The refusal of a version that cannot be used; the log says it once.
    fn refuse(&self, error: &LoadError) -> Refusal {
        let detailed = error.for_operator();
        let mut refused = self.refused.lock();
        if refused.as_deref() != Some(detailed) {
            tracing::error!(object = %self.path, error = detailed, "the table was replaced, and the new one cannot be used");
            *refused = Some(detailed.to_owned());
        }
        let reason = if error.passing { Reason::Tier } else { Reason::Corrupt };
        Refusal::new(reason, format!("the table was replaced: {error}"))
    }

    /// Reads the header again where rows did not fit it: a rewrite in place may have been seen half done. `None` where it is
    /// the same, or was read shortly before.
    pub(super) async fn reread_header(&self, stale: &Arc<OpenTable>) -> Option<Arc<OpenTable>> {
        {
            let mut last = self.reread_header.lock();
            if last.is_none_or(|last| last.elapsed() >= REREAD_INTERVAL) {
                *last = Some(Instant::now());
            } else if self.is_current(stale) {
                return None;
            }
        }
        let head = 0..stale.first_row;
        self.tier
            .uncached
            .forget(&stale.object, std::slice::from_ref(&head))
            .await;
        self.reopen(stale).await.ok().filter(|open| !Arc::ptr_eq(open, stale))
    }

    /// Asks the tier for the version there is, and opens it where it is another.
    async fn look(&self, version: &str) -> Result<(), Refusal> {
        let current = self.current();
        if current.object.version == version {
            return Ok(());
        }
        self.reopen(&current).await.map(drop)
    }
}

/// All tables that are read now.
#[derive(Default)]
pub(crate) struct LiveTables {
    /// Tables in use by models. Unused ones are dropped at the next check or opening.
    tables: Mutex<Vec<Weak<LiveTable>>>,
    looking: Mutex<Option<JoinHandle<()>>>,
}

impl LiveTables {
    /// The tables of a tier, each looked at once a period; without a period only reads notice a replaced table.
    pub(crate) fn new(period: Option<Duration>) -> Arc<Self> {
        let tables = Arc::new(Self::default());
        if let Some(period) = period {
            let of_task = Arc::downgrade(&tables);
            *tables.looking.lock() = Some(tokio::spawn(async move {
                let mut failing = FailedChecks::default();
                loop {
                    tokio::time::sleep(period).await;
                    let Some(tables) = of_task.upgrade().map(|tables| tables.live()) else {
                        return;
                    };
                    check_versions(tables, &mut failing).await;
                }
            }));
        }
        tables
    }

    fn live(&self) -> Vec<Arc<LiveTable>> {
        let mut tables = self.tables.lock();
        tables.retain(|table| table.strong_count() > 0);
        tables.iter().filter_map(Weak::upgrade).collect()
    }

    /// The table of a path for a model that takes these columns of it: the one that others read, where the version just
    /// opened suits them all.
    pub(super) fn share(&self, tier: &FeatureTier, open: OpenTable, columns: &[Column]) -> Arc<LiveTable> {
        let path = open.object.path.clone();
        for table in self.live().into_iter().filter(|table| table.path == path) {
            if table.lacks(&open).is_some() {
                continue;
            }
            if !table.current().same_as(&open) {
                table.set(open);
            }
            table.want(columns.iter().cloned());
            return table;
        }
        let table = Arc::new(LiveTable::new(tier.clone(), path, open));
        table.want(columns.iter().cloned());
        self.tables.lock().push(Arc::downgrade(&table));
        table
    }
}

impl Drop for LiveTables {
    fn drop(&mut self) {
        if let Some(task) = self.looking.lock().take() {
            task.abort();
        }
    }
}

/// Tables that could not be looked at: so that the log says it once, and once that it is over.
#[derive(Default)]
struct FailedChecks(BTreeSet<ObjectPath>);

impl FailedChecks {
    fn note(&mut self, path: &ObjectPath, failure: Option<String>) {
        let Some(error) = failure else {
            if self.0.remove(path) {
                tracing::info!(object = %path, "the table's version can be looked up again");
            }
            return;
        };
        if self.0.insert(path.clone()) {
            tracing::warn!(object = %path, error, "the table's version cannot be looked up; what is there is served, and it \
                is tried again at every `features.revalidate_s`");
        }
    }
}

/// One look at each path, however many models read it.
async fn check_versions(tables: Vec<Arc<LiveTable>>, failing: &mut FailedChecks) {
    let mut by_path: BTreeMap<ObjectPath, Vec<Arc<LiveTable>>> = BTreeMap::new();
    for table in tables {
        by_path.entry(table.path.clone()).or_default().push(table);
    }
    failing.0.retain(|path| by_path.contains_key(path));
    for (path, tables) in by_path {
        let Some(first) = tables.first() else { continue };
        let failure = match tokio::time::timeout(CHECK_LIMIT, first.tier.uncached.stat(&path)).await {
            Err(_) => Some(format!("no answer within {} s", CHECK_LIMIT.as_secs())),
            Ok(Err(error)) => Some(error.to_string()),
            Ok(Ok(object)) => {
                let mut refused = None;
                for table in &tables {
                    refused = table.look(&object.version).await.err().or(refused);
                }
                refused.map(|refusal| refusal.message)
            }
        };
        failing.note(&path, failure);
    }
}

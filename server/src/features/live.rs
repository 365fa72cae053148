//! Tables in use, each shared by all models that read it, and the check of each for a newer version.
//!
//! In: paths, a tier, a period. Out: the version of each table that requests read. A replaced table is opened once, by
//! the first request that meets the new version or by the periodic check, whichever is first. From then on no read of
//! the old version starts. Knows nothing of requests.

use super::ids::IdKind;
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

/// Time limit of a tier's answer for a table; a tier that is down is asked again at the next check.
const CHECK_LIMIT: Duration = Duration::from_secs(10);
/// Minimum interval between two reads of the header of a table with damaged rows, in case the header is outdated.
const REREAD_INTERVAL: Duration = Duration::from_millis(250);

/// Table in its current version, shared by all its readers.
pub(super) struct LiveTable {
    tier: FeatureTier,
    path: ObjectPath,
    open: RwLock<Arc<OpenTable>>,
    /// Columns that models use. A version without them is rejected.
    required: Mutex<Vec<Column>>,
    /// Kind of entity id. A version with another kind is rejected.
    id_kind: IdKind,
    /// Task that opens a replaced table. Requests wait for it, and it continues if none waits any more.
    reopening: tokio::sync::Mutex<Option<JoinHandle<Result<OpenTable, LoadError>>>>,
    /// Time of the last opening because of damaged rows.
    reread_header: Mutex<Option<Instant>>,
    /// Last failed attempt to open it: its time, refusal and message for the log; `None` after a success.
    failed: Mutex<Option<(Instant, Refusal, String)>>,
}

impl LiveTable {
    /// Version to read.
    pub(super) fn current(&self) -> Arc<OpenTable> {
        Arc::clone(&self.open.read())
    }

    /// True if `open` is the current version.
    pub(super) fn is_current(&self, open: &Arc<OpenTable>) -> bool {
        Arc::ptr_eq(&self.open.read(), open)
    }

    /// Records columns that a model uses.
    fn require_columns(&self, columns: &[Column]) {
        let mut required = self.required.lock();
        for column in columns {
            if !required.contains(column) {
                required.push(column.clone());
            }
        }
    }

    /// Description of the first required column that a table lacks, or of a different kind of key.
    fn mismatch(&self, open: &OpenTable) -> Option<String> {
        if open.id_kind() != self.id_kind {
            return Some("its key has another kind".to_owned());
        }
        let (required, header) = (self.required.lock(), &open.header);
        let mismatched = required
            .iter()
            .find(|column| header.schema.column(&column.name) != Some(column))?;
        Some(format!("its column `{}` differs", mismatched.name))
    }

    fn replace(&self, fresh: OpenTable) -> Arc<OpenTable> {
        let fresh = Arc::new(fresh);
        *self.open.write() = Arc::clone(&fresh);
        fresh
    }

    /// Opens the table again after the tier reported a change. An unusable version is refused, and the previous version
    /// stays.
    pub(super) async fn reopen(&self, stale: &Arc<OpenTable>) -> Result<Arc<OpenTable>, Refusal> {
        let requested_at = Instant::now();
        let mut reopening = self.reopening.lock().await;
        let current = self.current();
        if !Arc::ptr_eq(&current, stale) {
            return Ok(current);
        }
        // Callers that waited during a failed attempt do not each retry.
        let failed = self.failed.lock().clone();
        if let Some((_, refusal, _)) = failed.filter(|(at, ..)| *at >= requested_at) {
            return Err(refusal);
        }
        let task = reopening.get_or_insert_with(|| {
            let (tier, path) = (self.tier.clone(), self.path.clone());
            tokio::spawn(async move { tier.open_table(&path, true).await })
        });
        let opened = task.await;
        *reopening = None;
        let opened = opened.unwrap_or_else(|_| Err(LoadError::new("panicked while opening it")));
        let opened = opened.and_then(|fresh| match self.mismatch(&fresh) {
            None => Ok(fresh),
            Some(reason) => Err(LoadError::at(&self.path, reason)),
        });
        let fresh = opened.map_err(|e| self.refuse(&e))?;
        *self.failed.lock() = None;
        if fresh.same_as(&current) {
            return Ok(current);
        }
        tracing::info!(object = %self.path, rows = fresh.header.rows, "table was replaced; using the new version");
        Ok(self.replace(fresh))
    }

    /// Refuses a version that cannot be used; logs it once.
    fn refuse(&self, error: &LoadError) -> Refusal {
        let reason = if error.transient { Reason::Tier } else { Reason::Corrupt };
        let kind = self.tier.kind;
        let refusal = Refusal::new(reason, format!("tier `{kind}`: table was replaced: {error}"));
        // Clients see only the kind of failure, so the operator's message tells whether it is the same one.
        let error = error.for_operator();
        let failed = (Instant::now(), refusal.clone(), error.to_owned());
        let before = self.failed.lock().replace(failed);
        if before.is_none_or(|(.., before)| before != error) {
            tracing::error!(object = %self.path, error, "table was replaced, but the new version cannot be used");
        }
        refusal
    }

    /// Reads the header again after rows did not match it: it may have been read during a rewrite in place. `None` if
    /// it is unchanged, or was read shortly before.
    pub(super) async fn reread_header(&self, stale: &Arc<OpenTable>) -> Option<Arc<OpenTable>> {
        {
            let mut last = self.reread_header.lock();
            if last.is_none_or(|last| last.elapsed() >= REREAD_INTERVAL) {
                *last = Some(Instant::now());
            } else if self.is_current(stale) {
                return None;
            }
        }
        let (tier, head) = (&self.tier.uncached, 0..stale.first_row);
        tier.forget(&stale.object, std::slice::from_ref(&head)).await;
        self.reopen(stale).await.ok().filter(|open| !Arc::ptr_eq(open, stale))
    }
}

/// All tables in use.
#[derive(Default)]
pub(crate) struct LiveTables {
    /// Tables in use by models. Unused ones are dropped at the next check or opening.
    tables: Mutex<Vec<Weak<LiveTable>>>,
}

impl LiveTables {
    /// Creates the tables of a tier, each checked once per period. Without a period, only reads detect a replaced
    /// table.
    pub(crate) fn new(period: Option<Duration>) -> Arc<Self> {
        let tables = Arc::new(Self::default());
        if let Some(period) = period {
            let weak_tables = Arc::downgrade(&tables);
            tokio::spawn(async move {
                let mut failing = BTreeSet::new();
                loop {
                    tokio::time::sleep(period).await;
                    let Some(tables) = weak_tables.upgrade().map(|tables| tables.in_use()) else {
                        return;
                    };
                    check_versions(tables, &mut failing).await;
                }
            });
        }
        tables
    }

    fn in_use(&self) -> Vec<Arc<LiveTable>> {
        let mut tables = self.tables.lock();
        tables.retain(|table| table.strong_count() > 0);
        tables.iter().filter_map(Weak::upgrade).collect()
    }

    /// Table of a path for a model that uses these columns. Returns the table that others use, if the version just
    /// opened suits them all.
    pub(super) fn share(&self, tier: &FeatureTier, open: OpenTable, columns: &[Column]) -> Arc<LiveTable> {
        let path = open.object.path.clone();
        for table in self.in_use().into_iter().filter(|table| table.path == path) {
            if table.mismatch(&open).is_some() {
                continue;
            }
            if !table.current().same_as(&open) {
                table.replace(open);
            }
            table.require_columns(columns);
            return table;
        }
        let table = Arc::new(LiveTable {
            tier: tier.clone(),
            path,
            id_kind: open.id_kind(),
            open: RwLock::new(Arc::new(open)),
            required: Mutex::new(columns.to_vec()),
            reopening: tokio::sync::Mutex::default(),
            reread_header: Mutex::default(),
            failed: Mutex::default(),
        });
        self.tables.lock().push(Arc::downgrade(&table));
        table
    }
}

/// Checks each path once, regardless of the number of models that read it. `failing` holds the tables whose check
/// failed, so that the log reports a failure once, and its end once.
async fn check_versions(tables: Vec<Arc<LiveTable>>, failing: &mut BTreeSet<ObjectPath>) {
    let mut by_path: BTreeMap<ObjectPath, Vec<Arc<LiveTable>>> = BTreeMap::new();
    for table in tables {
        by_path.entry(table.path.clone()).or_default().push(table);
    }
    failing.retain(|path| by_path.contains_key(path));
    for (path, tables) in by_path {
        let Some(first) = tables.first() else { continue };
        let failure = match tokio::time::timeout(CHECK_LIMIT, first.tier.uncached.stat(&path)).await {
            Err(_) => Some(format!("no answer within {} s", CHECK_LIMIT.as_secs())),
            Ok(Err(error)) => Some(error.to_string()),
            Ok(Ok(object)) => {
                let mut refused = None;
                for table in &tables {
                    let current = table.current();
                    if current.object.version != object.version {
                        refused = table.reopen(&current).await.err().or(refused);
                    }
                }
                refused.map(|refusal| refusal.message)
            }
        };
        match failure {
            None if failing.remove(&path) => tracing::info!(object = %path, "table's version can be looked up again"),
            Some(error) if failing.insert(path.clone()) => {
                tracing::warn!(object = %path, error, "cannot look up the table's version; serving the current one and \
                    retrying every `features.revalidate_s`");
            }
            _ => {}
        }
    }
}

//! Tables below a root folder. In: tickets. Out: tables with their headers, and reads of one version of them. The nvme
//! tier reads, through the page cache; this module adds the tables.

use arrow_schema::SchemaRef;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use tierlab_formats::model::FEATURES_PREFIX;
use tierlab_formats::table::{ALIGN, EXTENSION, TableHeader, header_len};
use tierlab_storage::tiers::flight::message::{TableTicket, table_path};
use tierlab_storage::tiers::flight::schema;
use tierlab_storage::tiers::nvme::{LocalOptions, NvmeTier};
use tierlab_storage::{ErrorKind, Object, ObjectPath, StorageError, Tier};

/// Maximum reads in flight.
const QUEUE_DEPTH: u32 = 128;
/// Maximum tables whose headers are cached.
const MAX_OPEN: usize = 64;

/// A version of a feature table.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) object: Object,
    pub(super) header: TableHeader,
    /// [`TableHeader::header_len`], stored because it serialises the schema.
    pub(super) first_row: u64,
    /// Schema of the rows as typed columns.
    pub(super) schema: SchemaRef,
}

/// A root folder.
#[derive(Debug)]
pub(super) struct TableFolder {
    pub(super) tier: Arc<NvmeTier>,
    open: Mutex<HashMap<ObjectPath, Arc<Table>>>,
}

fn corrupt(object: &Object, what: &impl ToString) -> StorageError {
    ErrorKind::Corrupt.error(&object.path, what.to_string())
}

impl TableFolder {
    pub(super) async fn open(root: &Path) -> Result<Self, StorageError> {
        let failed = |e: &std::io::Error| StorageError::from_io(root.display(), e);
        tokio::fs::create_dir_all(root).await.map_err(|e| failed(&e))?;
        let options = LocalOptions::on_thread(root, QUEUE_DEPTH, false);
        Ok(Self {
            tier: Arc::new(NvmeTier::open_with(options).await?),
            open: Mutex::default(),
        })
    }

    /// Opens a ticket's table, which must be of the ticket's version.
    pub(super) async fn table(&self, ticket: &TableTicket) -> Result<Arc<Table>, StorageError> {
        let path = table_path(&ticket.table).map_err(|what| ErrorKind::Invalid.error("ticket", what))?;
        let object = self.tier.stat(&path).await?;
        match &ticket.version {
            Some(version) if *version != object.version => {
                let detail = format!("the current version is {}, not {version}", object.version);
                Err(ErrorKind::Changed.error(path, detail))
            }
            _ => self.table_of(object).await,
        }
    }

    /// Returns the table of an object.
    async fn table_of(&self, object: Object) -> Result<Arc<Table>, StorageError> {
        let known = self.open.lock().get(&object.path).cloned();
        if let Some(table) = known.filter(|table| table.object == object) {
            return Ok(table);
        }
        let first = self.tier.read(&object, 0..object.size.min(ALIGN)).await?;
        let len = header_len(&first.bytes).map_err(|e| corrupt(&object, &e))?;
        let head = if len > first.bytes.len() as u64 && len <= object.size {
            self.tier.read(&object, 0..len).await?
        } else {
            first
        };
        let header = TableHeader::decode(&head.bytes, object.size).map_err(|e| corrupt(&object, &e))?;
        let schema = schema::of_table(&header, &object.version).map_err(|e| corrupt(&object, &e))?;
        let table = Arc::new(Table {
            first_row: header.header_len(),
            schema: Arc::new(schema),
            header,
            object,
        });
        let mut open = self.open.lock();
        if open.len() >= MAX_OPEN {
            open.clear();
        }
        open.insert(table.object.path.clone(), Arc::clone(&table));
        Ok(table)
    }

    /// Lists every feature table; damaged tables and other names are left out with a warning.
    pub(super) async fn tables(&self) -> Result<Vec<Arc<Table>>, StorageError> {
        let features = ObjectPath::new(FEATURES_PREFIX)?;
        let mut tables = Vec::new();
        for object in self.tier.list(Some(&features)).await? {
            let path = object.path.clone();
            match self.table_of(object).await {
                Ok(table) if table_path(&table.header.schema.name).as_ref() == Ok(&path) => tables.push(table),
                Ok(table) => {
                    let name = &table.header.schema.name;
                    tracing::warn!(%path, "not listed: its name must be {name}.{EXTENSION}");
                }
                Err(e) => tracing::warn!("not listed: {e}"),
            }
        }
        Ok(tables)
    }
}

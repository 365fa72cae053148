//! A Flight server as a tier. In: object paths and ranges. Out: bytes, by the way that the server offers.

use super::config::{Dialect, FlightConfig};
use super::get::Link;
use super::objects::{self, Bounds};
use super::tables::Tables;
use super::{status, ticket};
use crate::error::{ErrorKind, StorageError};
use crate::limits::check_ranges;
use crate::path::ObjectPath;
use crate::tier::{Body, Object, ReadCost, ReadMany, Tier, TierInfo};
use arrow_flight::Empty;
use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tierlab_protocol::via::{Via, ViaSet};

/// Maximum actions of a server that are read.
const MAX_ACTIONS: u32 = 1000;

/// A Flight server.
#[derive(Debug)]
pub struct FlightTier {
    link: Arc<Link>,
    bounds: Bounds,
    way: ServerKind,
}

#[derive(Debug)]
enum ServerKind {
    Objects,
    Tables(Box<Tables>),
}

impl FlightTier {
    /// Asks the server for its dialect, so that a wrong address fails now.
    ///
    /// # Errors
    /// Fails if the config contradicts itself, if the server does not answer, or if the config requires objects and the
    /// server has none.
    pub async fn connect(config: &FlightConfig) -> Result<Self, StorageError> {
        let link = Arc::new(Link::new(config)?);
        let bounds = Bounds {
            part_bytes: config.part_bytes,
            ranges: usize::try_from(config.ranges_per_request).unwrap_or(usize::MAX),
        };
        let has_objects = has_objects(&link).await?;
        let tables = || ServerKind::Tables(Box::new(Tables::new(Arc::clone(&link), &config.id_column, bounds)));
        let way = match (config.dialect, has_objects) {
            (Dialect::Auto | Dialect::Objects, true) => ServerKind::Objects,
            (Dialect::Auto, false) | (Dialect::Tables, _) => tables(),
            (Dialect::Objects, false) => {
                let detail =
                    "the server has no objects, only Flight's own calls: set `dialect` to \"auto\" or \"tables\"";
                return Err(StorageError::new(ErrorKind::Invalid, link.url(), detail));
            }
        };
        Ok(Self { link, bounds, way })
    }

    fn writable(&self, path: &ObjectPath) -> Result<(), StorageError> {
        match self.way {
            ServerKind::Objects => Ok(()),
            ServerKind::Tables(_) => Err(StorageError::new(
                ErrorKind::Unsupported,
                self.link.name(path.as_str()),
                "tables of another Flight server are read only: write them where it keeps them",
            )),
        }
    }
}

/// Returns true if the server stores objects, which it shows by offering the action that removes an object.
async fn has_objects(link: &Link) -> Result<bool, StorageError> {
    let mut call = link.begin("", Duration::ZERO);
    loop {
        let mut lease = call.lease();
        let told = async {
            let failed = |status| status::from_status(link.url(), &status);
            let actions = call.attempt(lease.client.list_actions(Empty {})).await?;
            let mut actions = actions.map_err(failed)?.into_inner();
            for _ in 0..MAX_ACTIONS {
                match call.attempt(actions.message()).await?.map_err(failed)? {
                    Some(action) if action.r#type == ticket::DELETE_ACTION => return Ok(true),
                    Some(_) => {}
                    None => break,
                }
            }
            Ok::<_, StorageError>(false)
        };
        match told.await {
            Ok(has) => return Ok(has),
            Err(e) if e.kind() == ErrorKind::Unsupported => return Ok(false),
            Err(failure) => call.retry(failure, &lease).await?,
        }
    }
}

#[async_trait]
impl Tier for FlightTier {
    fn info(&self) -> TierInfo {
        let note = match self.way {
            ServerKind::Objects => "Flight: ranges of objects, as they lie on the server",
            ServerKind::Tables(_) => {
                "Flight: typed columns, read only; rows are laid out and sealed here, so their checksums do not reach \
                 back to the server, and a table replaced under an unchanged description is not noticed"
            }
        };
        TierInfo {
            kind: "flight",
            location: self.link.url().to_owned(),
            wrappers: Vec::new(),
            notes: vec![note.to_owned()],
        }
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        match &self.way {
            ServerKind::Objects => objects::stat(&self.link, path).await,
            ServerKind::Tables(tables) => tables.stat(path).await,
        }
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        check_ranges(object, ranges)?;
        if ranges.iter().all(Range::is_empty) {
            // Nothing to ask for.
            let via = ViaSet::of(Via::Memory);
            let parts = vec![Bytes::new(); ranges.len()];
            let cost = ReadCost {
                via,
                ..ReadCost::default()
            };
            return Ok(ReadMany { parts, cost });
        }
        match &self.way {
            ServerKind::Objects => objects::read_many(&self.link, self.bounds, object, ranges).await,
            ServerKind::Tables(tables) => tables.read_many(object, ranges).await,
        }
    }

    async fn list(&self, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        match &self.way {
            ServerKind::Objects => objects::list(&self.link, prefix).await,
            ServerKind::Tables(tables) => tables.list(prefix).await,
        }
    }

    async fn put(&self, path: &ObjectPath, body: Body) -> Result<Object, StorageError> {
        self.writable(path)?;
        objects::put(&self.link, path, body).await
    }

    async fn delete(&self, path: &ObjectPath) -> Result<(), StorageError> {
        self.writable(path)?;
        objects::delete(&self.link, path).await
    }
}

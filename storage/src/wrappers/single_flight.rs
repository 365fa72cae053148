//! Single flight: concurrent callers share one fetch. In: keys. Out: for every caller, tickets of the fetches of its
//! keys; for one caller, the duty to make a fetch that has not started. Knows nothing of tiers, nor of the use of the
//! fetched bytes.

use super::sync::{Mutex, MutexGuard};
use crate::{ErrorKind, Object, ObjectPath, ReadCost, StorageError};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Version of an object, with its hash, computed once for all extents of a call.
#[derive(Debug)]
pub(super) struct VersionKey {
    path: ObjectPath,
    version: String,
    hash: u64,
}

impl VersionKey {
    pub(super) fn of(object: &Object) -> Arc<Self> {
        let mut hasher = DefaultHasher::new();
        (&object.path, &object.version).hash(&mut hasher);
        Arc::new(Self {
            path: object.path.clone(),
            version: object.version.clone(),
            hash: hasher.finish(),
        })
    }

    pub(super) fn extent(self: &Arc<Self>, extent: &Range<u64>) -> ExtentKey {
        ExtentKey {
            of: self.clone(),
            extent: extent.clone(),
        }
    }
}

/// Key of an extent of a version, for caches and fetches.
#[derive(Debug, Clone)]
pub(super) struct ExtentKey {
    of: Arc<VersionKey>,
    pub(super) extent: Range<u64>,
}

impl PartialEq for ExtentKey {
    fn eq(&self, other: &Self) -> bool {
        let same = |a: &VersionKey, b: &VersionKey| a.hash == b.hash && a.version == b.version && a.path == b.path;
        self.extent == other.extent && (Arc::ptr_eq(&self.of, &other.of) || same(&self.of, &other.of))
    }
}

impl Eq for ExtentKey {}

impl Hash for ExtentKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.of.hash);
        self.extent.hash(state);
    }
}

/// Cost of a caller that waited for `waited`. Requests and bytes count only for the caller that started the fetch.
pub(super) fn share_of(cost: &ReadCost, led: bool, waited: Duration) -> ReadCost {
    if led {
        return *cost;
    }
    ReadCost {
        via: cost.via,
        device: waited,
        ..ReadCost::default()
    }
}

type Outcome<V> = Option<Result<Arc<V>, StorageError>>;

/// A caller's view of a fetch in flight.
#[derive(Debug)]
pub(super) struct FetchTicket<V> {
    outcome: watch::Receiver<Outcome<V>>,
    /// True if this call started the fetch.
    pub(super) led: bool,
}

impl<V> FetchTicket<V> {
    /// True if the fetch has already ended.
    pub(super) fn has_ended(&self) -> bool {
        self.outcome.borrow().is_some()
    }

    /// Waits for the fetch.
    pub(super) async fn result(&self, object: &Object) -> Result<Arc<V>, StorageError> {
        let mut outcome = self.outcome.clone();
        let arrived = outcome.wait_for(Option::is_some).await.ok();
        arrived.and_then(|outcome| outcome.clone()).unwrap_or_else(|| {
            let detail = "fetch ended without a result: the tier panicked, or the process is ending";
            Err(ErrorKind::Unavailable.error(&object.path, detail))
        })
    }
}

/// Fetches that cover all keys of a call.
pub(super) struct SharedFetches<V> {
    pub(super) tickets: Vec<FetchTicket<V>>,
    /// Number of keys whose fetch was already in flight.
    pub(super) joined: u64,
    /// Fetch that this call has to start, if any.
    pub(super) lead: Option<Lead<V>>,
}

/// All fetches in flight.
#[derive(Debug, Default)]
pub(super) struct SingleFlight<V> {
    in_flight: Mutex<HashMap<ExtentKey, watch::Receiver<Outcome<V>>>>,
}

impl<V> SingleFlight<V> {
    fn in_flight(&self) -> MutexGuard<'_, HashMap<ExtentKey, watch::Receiver<Outcome<V>>>> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a key, so that later callers do not join its fetch.
    pub(super) fn forget(&self, key: &ExtentKey) {
        self.in_flight().remove(key);
    }

    /// Joins the fetches in flight, and registers a single fetch for all other keys.
    pub(super) fn join(self: &Arc<Self>, missing: Vec<ExtentKey>) -> SharedFetches<V> {
        let (sender, receiver) = watch::channel(None);
        let mut tickets: Vec<FetchTicket<V>> = Vec::new();
        let mut keys = Vec::new();
        let mut joined = 0;
        let mut in_flight = self.in_flight();
        for key in missing {
            let Some(outcome) = in_flight.get(&key) else {
                keys.push(key);
                continue;
            };
            joined += 1;
            if !tickets.iter().any(|ticket| ticket.outcome.same_channel(outcome)) {
                tickets.push(FetchTicket {
                    outcome: outcome.clone(),
                    led: false,
                });
            }
        }
        in_flight.extend(keys.iter().map(|key| (key.clone(), receiver.clone())));
        drop(in_flight);
        let lead = (!keys.is_empty()).then(|| {
            tickets.push(FetchTicket {
                outcome: receiver,
                led: true,
            });
            Lead {
                flight: self.clone(),
                keys,
                sender,
            }
        });
        SharedFetches { tickets, joined, lead }
    }
}

/// Duty to make a fetch. If it is dropped without an answer, the waiting callers get an error.
#[derive(Debug)]
pub(super) struct Lead<V> {
    flight: Arc<SingleFlight<V>>,
    /// Keys in the order of registration.
    pub(super) keys: Vec<ExtentKey>,
    sender: watch::Sender<Outcome<V>>,
}

impl<V> Lead<V> {
    /// Function that answers all waiting callers, and all callers that join before [`Lead::leave`].
    pub(super) fn answer(&self) -> impl FnOnce(Result<Arc<V>, StorageError>) + use<V> {
        let sender = self.sender.clone();
        move |outcome| {
            sender.send_replace(Some(outcome));
        }
    }

    /// Closes the fetch to further callers. Later calls do nothing. Other fetches are unaffected: the same keys may be
    /// in flight again.
    pub(super) fn leave(&mut self) {
        let keys = std::mem::take(&mut self.keys);
        let this = self.sender.subscribe();
        let mut in_flight = self.flight.in_flight();
        for key in &keys {
            if in_flight.get(key).is_some_and(|outcome| outcome.same_channel(&this)) {
                in_flight.remove(key);
            }
        }
    }
}

impl<V> Drop for Lead<V> {
    fn drop(&mut self) {
        self.leave();
    }
}

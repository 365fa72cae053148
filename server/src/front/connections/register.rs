//! Open connections of a listener, and the choice of connections to close when there are too many.
//!
//! In: new connections, each with its client's address. Out: admission or refusal. At the maximum number of
//! connections, at the maximum of one address, or when files or memory run out, the connection that has been idle
//! longest is closed; one that waits for its client counts as idle. A few additional connections are accepted for
//! health requests.

use super::activity::{Activity, CloseReason};
use super::listen::{Bounds, MAX_CLOSING};
use crate::request::Admission;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Client of a connection: an IPv4 address, or the /64 network of an IPv6 address, because one client has 2^64 of them.
type Client = IpAddr;

fn client(address: IpAddr) -> Client {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
        address => address,
    }
}

/// Register of all open connections.
#[derive(Debug)]
pub(super) struct Register {
    bounds: Bounds,
    admission: Arc<Admission>,
    connections: Mutex<OpenConnections>,
    /// Notified when a connection is gone.
    removed: Notify,
}

#[derive(Debug, Default)]
struct OpenConnections {
    next: u64,
    open: BTreeMap<u64, OpenConnection>,
    /// Excludes connections that are accepted for health requests only.
    by_client: HashMap<Client, usize>,
    for_health: usize,
    /// Connections that are closing.
    closing: usize,
}

#[derive(Debug)]
struct OpenConnection {
    activity: Arc<Activity>,
    client: Client,
}

impl Register {
    pub(super) fn new(bounds: Bounds, admission: Arc<Admission>) -> Arc<Self> {
        Arc::new(Self {
            bounds,
            admission,
            connections: Mutex::default(),
            removed: Notify::new(),
        })
    }

    /// Counts a connection until the entry is dropped; `None` if the maximum is reached and all connections are busy.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Entry> {
        let client = client(address);
        let mut connections = self.connections.lock();
        let client_count = connections.by_client.get(&client).copied().unwrap_or(0);
        let full = client_count >= self.bounds.per_address();
        let may_evict =
            |connection: &OpenConnection| !connection.activity.for_health && (!full || connection.client == client);
        let no_room = full || connections.open.len() - connections.for_health >= self.bounds.max;
        let for_health = no_room && !connections.evict_longest_idle(may_evict);
        if for_health
            && connections.for_health >= self.bounds.health_places
            && !connections.evict_longest_idle(|connection| connection.activity.for_health)
        {
            return None;
        }
        let activity = Activity::new(Arc::clone(&self.admission), for_health);
        let id = connections.add(OpenConnection {
            activity: Arc::clone(&activity),
            client,
        });
        Some(Entry {
            id,
            activity,
            register: Arc::clone(self),
        })
    }

    /// Asks every connection to finish its requests and end.
    pub(super) fn finish_all(&self) {
        for connection in self.connections.lock().open.values() {
            connection.activity.request_close(CloseReason::Graceful);
        }
    }

    /// Closes the connection that has been idle longest; returns false if all are busy.
    pub(super) fn evict_longest_idle(&self) -> bool {
        self.connections.lock().evict_longest_idle(|_| true)
    }

    /// Closes the connection with the most reply bytes unread for at least `timeout`; returns false if there is none.
    pub(super) fn evict_most_unread(&self, timeout: Duration) -> bool {
        let mut connections = self.connections.lock();
        let now = Instant::now();
        let waits = |connection: &OpenConnection| {
            let activity = &connection.activity;
            activity.waits_for_client() && now.saturating_duration_since(activity.last_io()) >= timeout
        };
        let waiting = connections.open.iter().filter(|(_, connection)| waits(connection));
        let held = waiting.map(|(id, connection)| (connection.activity.held_bytes.load(Relaxed), *id));
        held.max().is_some_and(|(bytes, id)| bytes > 0 && connections.evict(id))
    }

    /// Completes when a connection is gone, or after `time`.
    pub(super) async fn wait_for_removal(&self, time: Duration) {
        let _ = tokio::time::timeout(time, self.removed.notified()).await;
    }

    /// True if [`MAX_CLOSING`] connections are closing, so that the next one has to wait.
    pub(super) fn too_many_closing(&self) -> bool {
        self.connections.lock().closing >= MAX_CLOSING
    }

    /// Completes when the last connection is gone.
    pub(super) async fn wait_until_empty(&self) {
        loop {
            let removed = self.removed.notified();
            if self.connections.lock().is_empty() {
                return;
            }
            removed.await;
        }
    }
}

impl OpenConnections {
    /// Evicts the connection that has been idle longest among those for which `may_evict` returns true.
    fn evict_longest_idle(&mut self, may_evict: impl Fn(&OpenConnection) -> bool) -> bool {
        let idle = self.open.iter().filter(|(_, connection)| may_evict(connection));
        let idle = idle.filter_map(|(id, connection)| Some((connection.activity.idle_since()?, *id)));
        idle.min().is_some_and(|(_, id)| self.evict(id))
    }

    fn evict(&mut self, id: u64) -> bool {
        let Some(connection) = self.remove(id) else {
            return false;
        };
        connection.activity.request_close(CloseReason::Evicted);
        self.closing += 1;
        true
    }

    fn is_empty(&self) -> bool {
        self.open.is_empty() && self.closing == 0
    }

    fn add(&mut self, connection: OpenConnection) -> u64 {
        if connection.activity.for_health {
            self.for_health += 1;
        } else {
            *self.by_client.entry(connection.client).or_default() += 1;
        }
        self.next += 1;
        self.open.insert(self.next, connection);
        self.next
    }

    fn remove(&mut self, id: u64) -> Option<OpenConnection> {
        let connection = self.open.remove(&id)?;
        if connection.activity.for_health {
            self.for_health -= 1;
        } else if let Some(count) = self.by_client.get_mut(&connection.client) {
            *count -= 1;
            if *count == 0 {
                self.by_client.remove(&connection.client);
            }
        }
        Some(connection)
    }
}

/// A counted connection.
#[derive(Debug)]
pub(super) struct Entry {
    id: u64,
    pub(super) activity: Arc<Activity>,
    register: Arc<Register>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut connections = self.register.connections.lock();
        // An evicted connection is no longer counted.
        if connections.remove(self.id).is_none() {
            connections.closing -= 1;
        }
        drop(connections);
        // Two tasks may wait for this: the accept loop and the end of the drain.
        self.register.removed.notify_waiters();
        self.register.removed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Limits;
    use futures::FutureExt;
    use prometheus::IntGauge;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn register(max: usize, max_per_address: usize, health_places: usize) -> Arc<Register> {
        let limits = Limits {
            max_in_flight: 1,
            max_body_bytes: 1,
            max_buffered_bytes: 1,
            timeout: Duration::from_secs(1),
        };
        let bounds = Bounds {
            max,
            max_per_address: Some(max_per_address),
            health_places,
            ..Bounds::default()
        };
        Register::new(bounds, Admission::new(limits, IntGauge::new("a", "a").unwrap()))
    }

    fn is_evicted(entry: &Entry) -> bool {
        entry.activity.close_requested().now_or_never() == Some(CloseReason::Evicted)
    }

    fn other(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    /// Later than whatever came before, on the clock of milliseconds that activities keep.
    fn advance_clock(entry: &Entry) {
        let before = Instant::now();
        while before.elapsed() < Duration::from_millis(2) {
            std::thread::yield_now();
        }
        entry.activity.record_io();
    }

    #[tokio::test]
    async fn the_stillest_makes_place_and_who_works_stays() {
        let register = register(4, 4, 0);
        let [busy, idle, stuck, probe] = [(); 4].map(|()| register.enter(HERE).unwrap());
        let _request = busy.activity.open(false);
        let _stuck = stuck.activity.open(false).wait_for_capacity();
        let _watch = probe.activity.open(true);
        for entry in [&probe, &stuck, &idle] {
            advance_clock(entry);
        }
        for expected in [&probe, &stuck, &idle] {
            let next = register.enter(HERE).unwrap();
            assert!(is_evicted(expected) && !next.activity.for_health);
            // The new one works, so that it is not the next to go.
            std::mem::forget(next.activity.open(false));
            std::mem::forget(next);
        }
        assert!(register.enter(HERE).is_none(), "everybody works");
        assert!(!is_evicted(&busy));
        drop((busy, idle, stuck, probe));
        let counts = |connections: &OpenConnections| (connections.open.len(), connections.closing);
        assert_eq!(counts(&register.connections.lock()), (3, 0));
        assert!(register.enter(HERE).is_some());
    }

    #[tokio::test]
    async fn an_address_that_has_its_share_makes_place_for_itself() {
        let register = register(10, 2, 1);
        let elsewhere = register.enter(other(1)).unwrap();
        let [first, second] = [(); 2].map(|()| register.enter(other(2)).unwrap());
        advance_clock(&second);
        let third = register.enter(other(2)).unwrap();
        assert!(is_evicted(&first) && !is_evicted(&elsewhere) && !is_evicted(&second));
        let _working = [second.activity.open(false), third.activity.open(false)];
        // Nobody to evict: what is kept for health may be used.
        assert!(register.enter(other(2)).unwrap().activity.for_health);
        assert!(!register.enter(other(3)).unwrap().activity.for_health);
    }

    #[tokio::test]
    async fn places_for_health_come_after_all_others_and_have_an_end() {
        let register = register(1, 1, 1);
        let full = register.enter(HERE).unwrap();
        let _request = full.activity.open(false);
        let health = register.enter(other(1)).unwrap();
        assert!(health.activity.for_health);
        let _question = health.activity.open(true);
        let next = register.enter(other(2)).unwrap();
        assert!(is_evicted(&health), "a question for health never keeps a place");
        assert!(next.activity.for_health);
        drop(full);
        assert!(!register.enter(other(3)).unwrap().activity.for_health);
    }

    #[test]
    fn networks_and_mapped_addresses_are_one_client() {
        let of = |text: &str| client(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }

    #[test]
    fn under_pressure_the_one_that_keeps_most_waiting_ends() {
        let register = register(4, 4, 0);
        let [works, little, much] = [(); 3].map(|()| register.enter(HERE).unwrap());
        let _held = [
            works.activity.hold(900),
            little.activity.hold(100),
            much.activity.hold(200),
        ];
        let _waiting = [&little, &much].map(|entry| entry.activity.open(false).wait_for_capacity());
        assert!(
            !register.evict_most_unread(Duration::from_secs(600)),
            "nobody has waited for long"
        );
        assert!(register.evict_most_unread(Duration::ZERO));
        assert!(is_evicted(&much) && !is_evicted(&little) && !is_evicted(&works));
    }
}

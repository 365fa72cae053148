//! Single flight under a scheduler that tries thread orders, at random and with few thread switches. A caller without
//! an answer shows as a deadlock.

// Same source as the shipped code, with other primitives.
#[allow(clippy::duplicate_mod, dead_code, unreachable_pub)]
#[path = "../single_flight.rs"]
mod flight;

use crate::{ErrorKind, Object, ObjectPath};
use flight::{SharedFetches, SingleFlight, VersionKey};
use shuttle::future::block_on;
use shuttle::thread::{self, JoinHandle};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

mod sync {
    pub(super) use shuttle::sync::{Mutex, MutexGuard};
}

const ORDERS: usize = 2_000;
/// Extents requested by each caller; each extent is requested by two callers.
const REQUESTED: [&[u64]; 3] = [&[0, 1], &[1, 2], &[2, 0]];

fn explore(test: fn()) {
    shuttle::check_random(test, ORDERS);
    shuttle::check_pct(test, ORDERS, 3);
}

fn object() -> Object {
    Object {
        path: ObjectPath::new("o").unwrap(),
        size: 100,
        version: "1".to_owned(),
    }
}

const fn extent(block: u64) -> Range<u64> {
    block * 10..(block + 1) * 10
}

/// Extents that are being fetched.
#[derive(Default)]
struct Origin {
    under_way: sync::Mutex<HashSet<u64>>,
}

impl Origin {
    fn fetch(&self, blocks: &[u64]) {
        let begin = |block: &u64| {
            assert!(
                self.under_way.lock().unwrap().insert(*block),
                "{block} is fetched twice at once"
            );
        };
        blocks.iter().for_each(begin);
        thread::yield_now();
        let mut under_way = self.under_way.lock().unwrap();
        blocks.iter().for_each(|block| assert!(under_way.remove(block)));
    }
}

/// Makes a call: joins or begins fetches, and waits for all extents. `Err` if a fetch ended without an answer.
fn caller(
    flight: &Arc<SingleFlight<Vec<u64>>>,
    origin: &Arc<Origin>,
    requested: &'static [u64],
    answers: bool,
) -> JoinHandle<Result<HashSet<u64>, ErrorKind>> {
    let (flight, origin) = (Arc::clone(flight), Arc::clone(origin));
    thread::spawn(move || {
        let object = object();
        let version = VersionKey::of(&object);
        let keys = requested.iter().map(|&block| version.extent(&extent(block))).collect();
        let SharedFetches { tickets, lead, .. } = flight.join(keys);
        if let Some(mut lead) = lead {
            let blocks: Vec<u64> = lead.keys.iter().map(|key| key.extent.start / 10).collect();
            origin.fetch(&blocks);
            if answers {
                let answer = lead.answer();
                lead.leave();
                answer(Ok(Arc::new(blocks)));
            }
        }
        let mut fetched = HashSet::new();
        for ticket in &tickets {
            let blocks = block_on(ticket.result(&object)).map_err(|error| error.kind())?;
            fetched.extend(blocks.iter().copied());
        }
        Ok(fetched)
    })
}

#[test]
fn whoever_asks_gets_all_and_nothing_is_fetched_twice_at_once() {
    explore(|| {
        let (flight, origin) = (Arc::default(), Arc::default());
        let callers = REQUESTED.map(|requested| (requested, caller(&flight, &origin, requested, true)));
        for (requested, caller) in callers {
            let fetched = caller.join().unwrap().unwrap();
            assert!(requested.iter().all(|block| fetched.contains(block)), "{fetched:?}");
        }
    });
}

#[test]
fn a_fetch_that_ends_without_an_answer_leaves_nobody_waiting() {
    explore(|| {
        let (flight, origin) = (Arc::default(), Arc::default());
        let [first, second, third] = REQUESTED;
        let gives_up = caller(&flight, &origin, first, false);
        let [one, other] = [second, third].map(|requested| caller(&flight, &origin, requested, true));
        for caller in [gives_up, one, other] {
            let ended = caller.join().unwrap();
            assert!(ended.is_ok() || ended == Err(ErrorKind::Unavailable), "{ended:?}");
        }
        // Later callers do not see the failure of the abandoned fetch.
        let fetched = caller(&flight, &origin, first, true).join().unwrap();
        assert_eq!(fetched, Ok(HashSet::from([0, 1])));
    });
}

//! Service in virtual time: connections, rates and stalls. In: a time, and the requests of a call. Out: the time of the
//! call's answer, and its queueing time. Draws nothing and waits for nothing.
//!
//! Requests are served in order of arrival. A request begins when a connection is free and the request rate allows. Its
//! first byte follows after its latency. Its last byte follows when three rates allow: its bytes at the connection's
//! rate, all bytes of the client so far at the total rate, and all bytes of the service at the service's rate.
//! Latencies of requests on different connections overlap. Other processes may share the rates of the whole service.

use super::config::{EmulatedConfig, Stall};
use super::shared::SharedService;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Request to schedule.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    /// Latency from its start to its first byte.
    pub(super) latency: Duration,
    /// Size of the reply in bytes.
    pub(super) bytes: u64,
}

/// Time until a call is answered, counted from its arrival.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Schedule {
    /// Wait before the start of the request that is answered last.
    pub(super) queue: Duration,
    /// Service time of that request.
    pub(super) device: Duration,
}

/// Commitments of the service so far. Times count from when it was opened.
#[derive(Default)]
pub(super) struct Model {
    /// Times at which the connections in use become free, earliest first.
    connections: BinaryHeap<Reverse<Duration>>,
    /// Time at which all bytes so far have passed at the total rate.
    bytes_passed: Duration,
    /// Earliest start of the next request, and time at which the service has passed all bytes so far. Unused if `shared`
    /// is set, which then grants both.
    next_begin: Duration,
    service_bytes_passed: Duration,
    shared: Option<SharedService>,
}

/// Time that `count` units take at the given rate.
fn time_of(count: f64, per_second: Option<u64>) -> Duration {
    per_second.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(count / rate as f64))
}

impl Model {
    /// Creates a model; `shared` is set if other processes use the same service.
    pub(super) fn of(shared: Option<SharedService>) -> Self {
        Self {
            shared,
            ..Self::default()
        }
    }

    /// Schedules the requests of a call. A cancelled call keeps its slot, because the service would not notice either.
    pub(super) fn admit(&mut self, service: &EmulatedConfig, now: Duration, requests: &[Request]) -> Schedule {
        let (mut last, mut queued) = (now, Duration::ZERO);
        for request in requests {
            let begin = self.begin(service, now, request.bytes);
            let bytes = request.bytes as f64;
            self.bytes_passed = self.bytes_passed.max(now) + time_of(bytes, service.total_bytes_per_s);
            let done = begin + request.latency + time_of(bytes, service.connection_bytes_per_s);
            let done = done.max(self.bytes_passed).max(self.of_service(service, now, bytes));
            let done = after_stall(service, done);
            if service.connections.is_some() {
                self.connections.push(Reverse(done));
            }
            if done >= last {
                (last, queued) = (done, begin - now);
            }
        }
        Schedule {
            queue: queued,
            device: last - now - queued,
        }
    }

    /// Start time of a request that arrives now.
    fn begin(&mut self, service: &EmulatedConfig, now: Duration, bytes: u64) -> Duration {
        let mut begin = now;
        if let Some(max) = service.connections {
            while self.connections.peek().is_some_and(|free| free.0 <= now) {
                self.connections.pop();
            }
            if self.connections.len() >= max as usize
                && let Some(Reverse(free)) = self.connections.pop()
            {
                begin = free;
            }
        }
        if service.requests_per_s.is_some() {
            let counted = service.request_bytes.map_or(1, |max| bytes.div_ceil(max).max(1));
            let cost = time_of(counted as f64, service.requests_per_s.map(u64::from));
            if let Some(shared) = &self.shared {
                // Counted from its arrival: a request that waits for a connection in this process must not delay other
                // clients.
                begin = begin.max(shared.request(now, cost));
            } else {
                begin = begin.max(self.next_begin);
                self.next_begin = begin + cost;
            }
        }
        begin
    }

    /// Time at which the service has passed the bytes of a request that arrives now.
    fn of_service(&mut self, service: &EmulatedConfig, now: Duration, bytes: f64) -> Duration {
        if service.service_bytes_per_s.is_none() {
            return now;
        }
        let cost = time_of(bytes, service.service_bytes_per_s);
        match &self.shared {
            Some(shared) => shared.bytes(now, cost) + cost,
            None => {
                self.service_bytes_passed = self.service_bytes_passed.max(now) + cost;
                self.service_bytes_passed
            }
        }
    }
}

/// Returns `at`, or the end of the stall that contains it.
fn after_stall(service: &EmulatedConfig, at: Duration) -> Duration {
    let Some(Stall { every_ms, for_ms }) = service.stall else {
        return at;
    };
    let [period, silent] = [every_ms, for_ms].map(|ms| Duration::from_millis(ms).as_nanos());
    let into = at.as_nanos() % period;
    if into < period - silent {
        return at;
    }
    at + Duration::from_nanos(u64::try_from(period - into).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::EmulatedConfig;
    use super::*;
    use proptest::prelude::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn service(text: &str) -> EmulatedConfig {
        toml::from_str::<EmulatedConfig>(text).unwrap().resolve().unwrap().table
    }

    fn request(latency_ms: u64, bytes: u64) -> Request {
        Request {
            latency: ms(latency_ms),
            bytes,
        }
    }

    fn plan(queue: u64, device: u64) -> Schedule {
        Schedule {
            queue: ms(queue),
            device: ms(device),
        }
    }

    #[test]
    fn latencies_overlap_and_bytes_follow_at_the_connections_rate() {
        let service = service("connection_bytes_per_s = 1000000");
        let mut model = Model::default();
        let requests = [request(30, 20_000), request(10, 50_000), request(5, 0)];
        assert_eq!(model.admit(&service, ms(100), &requests), plan(0, 60));
        // Another call at the same moment is not held up.
        assert_eq!(model.admit(&service, ms(100), &[request(30, 0)]), plan(0, 30));
        assert_eq!(model.admit(&service, ms(100), &[]), plan(0, 0));
    }

    #[test]
    fn connections_are_taken_in_order_and_waiting_counts_as_queue() {
        let service = service("connections = 2");
        let mut model = Model::default();
        assert_eq!(model.admit(&service, ms(0), &[request(10, 0)]), plan(0, 10));
        assert_eq!(model.admit(&service, ms(0), &[request(30, 0)]), plan(0, 30));
        assert_eq!(model.admit(&service, ms(5), &[request(10, 0)]), plan(5, 10));
        assert_eq!(model.admit(&service, ms(5), &[request(10, 0)]), plan(15, 10));
        assert_eq!(model.admit(&service, ms(100), &[request(10, 0)]), plan(0, 10));
    }

    #[test]
    fn the_total_rate_holds_over_many_connections() {
        let service = service("total_bytes_per_s = 1000000");
        let mut model = Model::default();
        let calls: Vec<Schedule> = (0..10)
            .map(|_| model.admit(&service, ms(0), &[request(5, 10_000)]))
            .collect();
        assert_eq!((calls[0], calls[9]), (plan(0, 10), plan(0, 100)));
        // A slow first byte of one request delays no other request.
        let mut model = Model::default();
        assert_eq!(model.admit(&service, ms(0), &[request(500, 1000)]), plan(0, 500));
        assert_eq!(model.admit(&service, ms(0), &[request(5, 1000)]), plan(0, 5));
    }

    #[test]
    fn the_services_rates_hold_over_its_clients() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("service");
        let service = service("requests_per_s = 100\nservice_bytes_per_s = 1000000");
        let client = || Model::of(Some(SharedService::open(&file).unwrap()));
        let (mut one, mut other) = (client(), client());
        let mut last = Duration::ZERO;
        for turn in 0..20 {
            let model = if turn % 2 == 0 { &mut one } else { &mut other };
            let plan = model.admit(&service, ms(0), &[request(1, 20_000)]);
            last = plan.queue + plan.device;
        }
        // Twenty times 20 ms of bytes, and less than that of requests; the second client's zero is some microseconds later.
        assert!(last <= ms(400) && last > ms(390), "{last:?}");
        let mut alone = Model::default();
        let plans: Vec<Schedule> = (0..3)
            .map(|_| alone.admit(&service, ms(0), &[request(1, 20_000)]))
            .collect();
        assert_eq!(plans[2].queue + plans[2].device, ms(60));
    }

    #[test]
    fn long_requests_count_as_several() {
        let service = service("requests_per_s = 1000\nrequest_bytes = 1000");
        let mut model = Model::default();
        assert_eq!(model.admit(&service, ms(0), &[request(1, 3001)]), plan(0, 1));
        assert_eq!(model.admit(&service, ms(0), &[request(1, 1)]), plan(4, 1));
        assert_eq!(model.admit(&service, ms(0), &[request(1, 0)]), plan(5, 1));
        assert_eq!(model.admit(&service, ms(50), &[request(1, 0)]), plan(0, 1));
    }

    #[test]
    fn nothing_is_answered_in_a_stall() {
        let service = service("stall = { every_ms = 1000, for_ms = 200 }");
        let mut model = Model::default();
        for (now, latency, want) in [
            (0, 799, 799),
            (0, 800, 1000),
            (700, 200, 300),
            (950, 60, 60),
            (999, 0, 1),
        ] {
            assert_eq!(model.admit(&service, ms(now), &[request(latency, 0)]), plan(0, want));
        }
    }

    proptest! {
        #[test]
        fn rates_are_never_exceeded(
            calls in proptest::collection::vec((0u64..40, proptest::collection::vec((0u64..20, 0u64..5000), 1..5)), 1..40),
            connections in 1u32..6,
        ) {
            let text = format!("connections = {connections}\ntotal_bytes_per_s = 100000\nrequests_per_s = 200");
            let service = service(&text);
            let mut model = Model::default();
            let (mut now, mut bytes, mut requests) = (0, 0, 0);
            for (gap, parts) in calls {
                now += gap;
                let parts: Vec<Request> = parts.into_iter().map(|(latency, bytes)| request(latency, bytes)).collect();
                bytes += parts.iter().map(|part| part.bytes).sum::<u64>();
                requests += parts.len() as u64;
                let slowest = parts.iter().map(|part| part.latency).max().unwrap_or_default();
                let plan = model.admit(&service, ms(now), &parts);
                let done = ms(now) + plan.queue + plan.device;
                prop_assert!(done >= ms(now) + slowest);
                prop_assert!(model.connections.len() <= connections as usize);
                // From the start on, bytes and begun requests stay within their rates.
                prop_assert!(model.bytes_passed.as_secs_f64() * 100_000.0 >= bytes as f64 - 1.0);
                prop_assert!(model.next_begin.as_secs_f64() * 200.0 >= requests as f64 - 0.001);
            }
        }
    }
}

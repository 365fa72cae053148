"""MLCommons LoadGen in its server scenario against an HTTP server, for scripts/bench/loadgen.

  python mlperf_loadgen_peer.py --port P --rate R --seconds S [--warmup S]

LoadGen makes the schedule, issues queries and times them. It drives one thread with an epoll loop over non-blocking
sockets and prepared requests, so that little time passes between its call and the send. Prints as JSON the latencies of
its summary, and the time between schedule and issue of its trace.
"""
import argparse
import collections
import json
import pathlib
import re
import select
import socket
import sys
import tempfile
import threading

import mlperf_loadgen as lg

BODY = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,1],"data":[0.5]}]}'
SAMPLES = 1024
DRAIN_S = 20


class Client(threading.Thread):
    """Sends a request for each query that is put, opening a connection where none is free."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port = port
        self.request = (b"POST /v2/models/m/infer HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
                        b"Content-Length: %d\r\n\r\n" % (port, len(BODY))) + BODY
        self.queue = collections.deque()
        self.wake_out, self.wake_in = socket.socketpair()
        self.wake_in.setblocking(False)
        self.failed = 0
        self.free, self.busy = [], {}

    def put(self, queries):
        self.queue.extend(query.id for query in queries)
        self.wake_out.send(b"x")

    def connect(self, poll):
        connection = socket.create_connection(("127.0.0.1", self.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        poll.register(connection, select.EPOLLIN)
        return connection

    def run(self):
        poll = select.epoll()
        poll.register(self.wake_in, select.EPOLLIN)
        while True:
            for number, _ in poll.poll():
                if number == self.wake_in.fileno():
                    self.wake_in.recv(4096)
                else:
                    self.receive(number, poll)
            while self.queue:
                connection = self.free.pop() if self.free else self.connect(poll)
                self.busy[connection.fileno()] = [connection, self.queue.popleft(), b""]
                connection.send(self.request)

    def receive(self, number, poll):
        if number not in self.busy:
            poll.unregister(number)  # closed while idle
            self.free = [connection for connection in self.free if connection.fileno() != number]
            return
        call = self.busy[number]
        data = call[0].recv(65536)
        call[2] += data
        head, end, body = call[2].partition(b"\r\n\r\n")
        length = re.search(rb"content-length: *(\d+)", head, re.I) if end else None
        if data and not (length and len(body) >= int(length[1])):
            return
        del self.busy[number]
        if data and head.startswith(b"HTTP/1.1 200"):
            self.free.append(call[0])
        else:
            self.failed += 1
            poll.unregister(number)
            call[0].close()
        lg.QuerySamplesComplete([lg.QuerySampleResponse(call[1], 0, 0)])


def settings(rate, seconds):
    test = lg.TestSettings()
    test.scenario, test.mode = lg.TestScenario.Server, lg.TestMode.PerformanceOnly
    test.server_target_qps = rate
    test.server_target_latency_ns = 10**10
    test.server_target_latency_percentile = 0.99
    test.min_duration_ms = test.max_duration_ms = int(seconds * 1000)
    test.min_query_count = test.max_query_count = int(rate * seconds)
    # The seeds that MLPerf published for a round; any do here.
    test.qsl_rng_seed, test.sample_index_rng_seed, test.schedule_rng_seed = 6023615788873153749, 15036839855038426416, 9933818062894767841
    return test


def run(port, rate, seconds, warmup_s):
    # LoadGen's thread must not wait 5 ms for ours at every call.
    sys.setswitchinterval(1e-5)
    client = Client(port)
    client.start()
    sut = lg.ConstructSUT(client.put, lambda: None)
    samples = lg.ConstructQSL(SAMPLES, SAMPLES, lambda _: None, lambda _: None)
    with tempfile.TemporaryDirectory(prefix="loadgen-") as folder:
        output, log = lg.LogOutputSettings(), lg.LogSettings()
        output.outdir = folder
        log.log_output, log.enable_trace = output, True
        lg.StartTestWithLogSettings(sut, samples, settings(rate, seconds), log)
        lg.DestroyQSL(samples)
        lg.DestroySUT(sut)
        folder = pathlib.Path(folder)
        return report(client, (folder / "mlperf_log_summary.txt").read_text(), (folder / "mlperf_log_trace.json").read_text(),
                      warmup_s)


def report(client, summary, trace, warmup_s):
    def latency(percent):
        return int(re.search(rf"^{percent:.2f} percentile latency \(ns\)\s*: (\d+)", summary, re.M)[1]) / 1e3

    # `ts` of a sample's trace is its scheduled time in microseconds.
    samples = sorted((float(us), int(ns) / 1e3) for us, ns in re.findall(r'"ts":([\d.]+),"args":\{[^{}]*"issue_start_ns": ?(\d+)', trace))
    lags = sorted(lag for due, lag in samples if due >= samples[0][0] + warmup_s * 1e6)
    if not lags:
        raise SystemExit("LoadGen's trace has no samples after the warm-up")
    return {"requests": len(samples), "failed": client.failed,
            "p50_us": latency(50), "p95_us": latency(95), "p99_us": latency(99),
            "lag_p50_us": lags[len(lags) // 2], "lag_p99_us": lags[int(len(lags) * 0.99)],
            "summary": summary.splitlines()[:20]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--warmup", type=float, default=0.0, help="seconds whose send lag is not counted")
    given = parser.parse_args()
    print(json.dumps(run(given.port, given.rate, given.seconds, given.warmup)))

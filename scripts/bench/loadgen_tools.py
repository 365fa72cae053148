"""Load generators of scripts/bench/loadgen: the commands that run them, and the paths of the peers.

In: a server, its script, a rate and a time. Out: the tool's latencies and, if it reports them, its send lag and CPU time.
Knows nothing of rounds and targets.
"""
import json
import pathlib
import re
import resource
import subprocess
import time

PROJECT = pathlib.Path(__file__).resolve().parents[2]
RELEASE = PROJECT / "target/release"
RUNTIME = PROJECT / ".runtime"
LOAD_CORE, SERVER_CORE = 0, 1
INFER = "/v2/models/m/infer"
BODY = '{"inputs":[{"name":"x","datatype":"FP32","shape":[1,1],"data":[0.5]}]}'
OURS = ("tierlab", "tierlab-tls")
PERCENTILES = ("p50_us", "p95_us", "p99_us")
# Of which no send lag counts; ours has it in its plan.
WARMUP_S = 0.5
PLAN = """
name = "bench"
model = "m"
seed = 1
repeats = 1
warmup_s = {warmup}
step_s = {seconds}
drain_s = 2.0
max_in_flight = {users}
timeout_ms = 5000
arrivals = "constant"
[[load]]
mode = "realtime"
rates = [{rate}]
"""
WRK_DONE = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '%s'
function done(summary, latency)
  io.write(string.format('{"requests":%%d,"failed":%%d,"p50_us":%%d,"p95_us":%%d,"p99_us":%%d}\\n', summary.requests,
    summary.errors.status + summary.errors.read + summary.errors.write + summary.errors.timeout + summary.errors.connect,
    latency:percentile(50), latency:percentile(95), latency:percentile(99)))
end
""" % BODY


class Failed(Exception):
    """A tool that gave no figures."""


def run(command, limit_s, folder=None):
    """Runs a tool on the load's core; returns what it said and the CPU seconds that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = ["taskset", "-c", str(LOAD_CORE), *map(str, command)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False, cwd=folder)
    except subprocess.TimeoutExpired:
        raise Failed(f"not at its end after {limit_s:.0f} s") from None
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())
        raise Failed(f"exit code {done.returncode}: {said if len(said) < 300 else said[:150] + ' … ' + said[-150:]}")
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def ours(given, server, script, rate, seconds, folder):
    return measured(given, server.url, [], script, rate, seconds, folder)


def ours_over_tls(given, server, script, rate, seconds, folder):
    return measured(given, server.secure_url, ["--ca", server.ca], script, rate, seconds, folder)


def measured(given, url, more, script, rate, seconds, folder):
    # Enough users for all that a stall holds, and its queue.
    users = max(256, int(rate * 1.0) if script == "stall" else int(rate * 0.2))
    (folder / "plan.toml").write_text(PLAN.format(warmup=WARMUP_S, seconds=seconds, users=users, rate=rate))
    name = f"run-{time.monotonic_ns()}"
    _, cpu_s = run([given.binaries / "tierlab-loadgen", "sweep", folder / "plan.toml", "--url", url, *more, "--out", folder,
                    "--name", name], seconds + 40)
    point = json.loads((folder / name / "run.json").read_text())["points"][0]
    summary, repeat = point["summary"], point["repeats"][0]
    pooled = subprocess.run([given.binaries / "examples/scripted", "percentiles", folder / name], capture_output=True, text=True,
                            check=True)
    # What it prints: `null` where it takes the samples for too few, given how much they depend on each other.
    printed = {f"printed_{name}": (summary[name] or {}).get("value") for name in PERCENTILES}
    return {**json.loads(pooled.stdout), **printed, "requests": repeat["scheduled"], "failed": sum(repeat["errors"].values()),
            "cpu_s": cpu_s, "sent": repeat["scheduled"] + int(rate * WARMUP_S),
            "in_flight_limit_hit": repeat["in_flight_limit_hit"]}


def wrk(_, server, script, rate, seconds, folder):
    (folder / "done.lua").write_text(WRK_DONE)
    mean_s = 0.020 * (1.133 if script == "lognormal" else 1)
    said, _ = run([RUNTIME / "wrk/wrk", "-t1", f"-c{max(1, round(rate * mean_s))}", f"-d{round(seconds)}s", "-s",
                   folder / "done.lua", server.url + INFER], seconds + 20)
    return json.loads(said.strip().splitlines()[-1])


def oha(*flags):
    def measure(_, server, __, rate, seconds, ___):
        said, _ = run([RUNTIME / "oha/bin/oha", "--no-tui", "--output-format", "json", "-q", rate, *flags, "-z", f"{seconds}s",
                       "-m", "POST", "-T", "application/json", "-d", BODY, "--wait-ongoing-requests-after-deadline",
                       server.url + INFER], seconds + 20)
        found = json.loads(said)
        codes = found["statusCodeDistribution"]
        values = {f"{p}_us": found["latencyPercentiles"][p] * 1e6 for p in ("p50", "p95", "p99")}
        return {**values, "requests": sum(codes.values()), "failed": sum(codes.values()) - codes.get("200", 0)}
    return measure


def hey(_, server, __, rate, seconds, ___):
    said, _ = run([RUNTIME / "hey/usr/bin/hey", "-z", f"{seconds}s", "-c", 50, "-q", rate / 50, "-m", "POST", "-T",
                   "application/json", "-d", BODY, server.url + INFER], seconds + 20)
    values = {f"p{p}_us": float(s) * 1e6 for p, s in re.findall(r"^\s*(50|95|99)%+ in ([\d.]+) secs", said, re.M)}
    codes = {code: int(count) for code, count in re.findall(r"^\s*\[(\d+)\]\s+(\d+) responses", said, re.M)}
    if len(values) != 3:
        raise Failed(f"no percentiles in: {said[-300:]}")
    return {**values, "requests": sum(codes.values()), "failed": sum(codes.values()) - codes.get("200", 0)}


def goose(given, server, __, rate, seconds, ___):
    said, cpu_s = run([given.binaries / "examples/scripted", "goose", "--url", server.url, "--rate", rate, "--seconds",
                       max(1, round(seconds)), "--users", 50 if rate <= 1000 else 100], seconds + 40)
    found = json.loads(said.strip().splitlines()[-1])
    return {**found["raw"], "requests": found["requests"], "failed": found["failed"], "cpu_s": cpu_s, "sent": found["requests"]}


def mlperf(_, server, __, rate, seconds, ___):
    said, _ = run([RUNTIME / "mlperf-loadgen/bin/python", PROJECT / "scripts/bench/mlperf_loadgen_peer.py", "--port", server.port,
                   "--rate", rate, "--seconds", seconds, "--warmup", WARMUP_S], seconds + 40)
    found = json.loads(said.strip().splitlines()[-1])
    found.pop("summary")
    return found


def perf_analyzer(_, server, __, rate, seconds, folder):
    export = folder / "perf_analyzer.json"
    # It refuses a file that is there already.
    export.unlink(missing_ok=True)
    run([RUNTIME / "perf_analyzer/perf_analyzer", "-m", "m", "-u", f"127.0.0.1:{server.port}", "-i", "http",
         "--input-tensor-format", "json", "--request-rate-range", rate, "--request-distribution", "constant", "-a",
         "--request-count", int(rate * seconds), "--shape", "x:1", "-f", folder / "perf_analyzer.csv",
         "--profile-export-file", export], seconds + 60)
    head, row = (line.split(",") for line in (folder / "perf_analyzer.csv").read_text().strip().splitlines()[:2])
    table = dict(zip(head, row))
    requests = json.loads(export.read_text())["experiments"][0]["requests"]
    sent = sorted(request["timestamp"] for request in requests)[int(rate * WARMUP_S):]
    off = [at / 1e3 - i * 1e6 / rate for i, at in enumerate(sent)]
    lags = sorted(us - min(off) for us in off)
    return {**{f"{p}_us": float(table[f"{p} latency"]) for p in ("p50", "p95", "p99")}, "requests": len(requests), "failed": 0,
            "lag_p50_us": lags[len(lags) // 2], "lag_p99_us": lags[int(len(lags) * 0.99)]}


# name: how it is run, where it is, how it is got
TOOLS = {
    "tierlab": (ours, None, None),
    "tierlab-tls": (ours_over_tls, None, None),
    "wrk": (wrk, RUNTIME / "wrk/wrk", "wrk"),
    "oha": (oha(), RUNTIME / "oha/bin/oha", "oha"),
    "oha-corrected": (oha("--latency-correction"), RUNTIME / "oha/bin/oha", "oha"),
    "hey": (hey, RUNTIME / "hey/usr/bin/hey", "hey"),
    "goose": (goose, None, None),
    "mlperf-loadgen": (mlperf, RUNTIME / "mlperf-loadgen/bin/python", "mlperf-loadgen"),
    "perf_analyzer": (perf_analyzer, RUNTIME / "perf_analyzer/perf_analyzer", "perf_analyzer"),
}


def missing_peers(names):
    found = {}
    for name in names:
        _, path, part = TOOLS[name]
        if path is not None and not path.exists():
            reason = RUNTIME / f"{part}.missing"
            why = reason.read_text().strip() if reason.exists() else "not installed"
            found[name] = f"{why}; run `scripts/setup {part}`"
    return found

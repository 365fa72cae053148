"""Runs a server on one core and the load on another, and measures their costs. Shared by scripts/bench/server and
scripts/bench/versions."""
import contextlib
import datetime
import http.client
import json
import os
import pathlib
import platform
import re
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

from server_report import FORMS, MANY_ROWS

PROJECT = pathlib.Path(__file__).resolve().parents[2]
RELEASE = PROJECT / "target/release"
RUNTIME = PROJECT / ".runtime"
WRK = RUNTIME / "wrk/wrk"
# Connections of the load at a fixed rate; a request waits when all of them are busy, and the wait counts.
RATE_CONNECTIONS = 32
WINDOW_S, WINDOWS_PER_S = 0.5, 2
START_S = 60
LOAD_CORE, SERVER_CORE = 0, 1
INFER = "/v2/models/mlp/infer"
ROW = [round((i % 17) / 17 - 0.5, 6) for i in range(64)]
WRK_SCRIPT = """
wrk.method = "POST"
local file = io.open("%s", "rb")
wrk.body = file:read("*a")
file:close()
%s
"""


def fail(message):
    sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {message}")


def json_body(rows=1):
    data = {"name": "input", "datatype": "FP32", "shape": [rows, 64], "data": ROW * rows}
    return json.dumps({"inputs": [data]}).encode(), {"Content-Type": "application/json"}


def binary_body(rows=1):
    head = json.dumps({"inputs": [{"name": "input", "datatype": "FP32", "shape": [rows, 64],
                                   "parameters": {"binary_data_size": 256 * rows}}],
                       "parameters": {"binary_data_output": True}}).encode()
    headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))}
    return head + struct.pack(f"<{64 * rows}f", *ROW * rows), headers


def bodies(every_form):
    """What is sent, by its form; peers are sent one row in JSON."""
    put = {form: (binary_body if form.startswith("binary") else json_body)(MANY_ROWS if form.endswith(f"x{MANY_ROWS}") else 1)
           for form in FORMS}
    return put if every_form else {"json": put["json"]}


class Server:
    """A process on the server's core, ended with the block."""

    def __init__(self, name, command, environment=None, cwd=PROJECT):
        self.name = name
        self.log = tempfile.TemporaryFile("w+")
        env = {**os.environ, "RUST_LOG": "warn", **(environment or {})}
        self.process = subprocess.Popen(
            ["taskset", "-c", str(SERVER_CORE), *map(str, command)], stdout=subprocess.PIPE, stderr=self.log, text=True,
            env=env, cwd=cwd, start_new_session=True)

    def first_line(self):
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            fail(f"{self.name} did not start:\n{self.log.read()[-2000:]}")
        return line.strip()

    def answers(self, port):
        """Waits until the server takes an infer request."""
        body, headers = json_body()
        began = time.monotonic()
        while time.monotonic() - began < START_S:
            if self.process.poll() is not None:
                break
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                connection.request("POST", INFER, body, headers)
                if connection.getresponse().status == 200:
                    return
            time.sleep(0.2)
        self.log.seek(0)
        fail(f"{self.name} does not answer:\n{self.log.read()[-2000:]}")

    def cpu_s(self):
        """CPU time so far of the process and all it started."""
        ticks = 0
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = stat.read_text().rsplit(")", 1)[1].split()
                if int(fields[3]) == self.process.pid:  # its session
                    ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def library():
    found = sorted(RUNTIME.glob("onnxruntime/libonnxruntime.so.*"))
    return found[-1] if found else fail("no ONNX Runtime: run `scripts/setup onnxruntime`")


def port_of(address):
    return int(address.rsplit(":", 1)[1])


def start_ours(data, binaries):
    """The project's server over `data`, from a folder of binaries: the process and its port."""
    # The keys are those of the checkout that the build is of.
    own = binaries.resolve().parents[1] / "configs/server.toml"
    config = own if own.exists() else PROJECT / "configs/server.toml"
    server = Server("tierlab", [binaries / "tierlab-server", "--config", config, "--tier", "memory", "--set",
                                f"tiers.memory.root={data}", "--listen", "127.0.0.1:0"])
    return server, port_of(json.loads(server.first_line())["listen"])


def model_of(data):
    return data / "models/mlp/1/model.onnx"


def generate_model(binaries, data):
    subprocess.run([binaries / "tierlab-models", "generate", "--model", "mlp", "--repository", data / "models"],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def demand(needs):
    """Ends with a message where a tool is missing or the machine has one core; `needs` has each with how to get it."""
    for tool, how in needs:
        if not tool.exists():
            fail(f"{tool} is missing: run `{how}`")
    if len(os.sched_getaffinity(0)) < 2:
        fail("two cores are needed: one for the server and one for the load")


def load(port, body, headers, concurrency, seconds, folder):
    body_file, script = folder / "body", folder / "load.lua"
    body_file.write_bytes(body)
    script.write_text(WRK_SCRIPT % (body_file, "\n".join(f'wrk.headers["{k}"] = "{v}"' for k, v in headers.items())))
    command = ["taskset", "-c", str(LOAD_CORE), WRK, "-t1", f"-c{concurrency}", f"-d{seconds}s", "--latency", "-s", script,
               f"http://127.0.0.1:{port}{INFER}"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=seconds + 60, check=False)
    requests = re.search(r"(\d+) requests in", done.stdout)
    if done.returncode != 0 or not requests:
        fail(f"wrk: {done.stdout}{done.stderr}")
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", done.stdout)
    if bad or "Socket errors" in done.stdout:
        fail(f"the server refused or dropped requests:\n{done.stdout}")
    latency = {p: to_us(v) for p, v in re.findall(r"^\s+(50|99)%\s+(\S+)$", done.stdout, re.M)}
    return int(requests[1]), latency["50"], latency["99"]


def to_us(text):
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s)", text).groups()
    return float(number) * {"us": 1, "ms": 1e3, "s": 1e6}[unit]


def at_rate(port, given, folder):
    """Latency in open loop at the fixed rate; every request has to be answered."""
    body_file = folder / "body.json"
    body_file.write_bytes(json_body()[0])
    command = ["taskset", "-c", LOAD_CORE, given.binaries / "examples/open_loop", f"127.0.0.1:{port}", "mlp", f"@{body_file}",
               RATE_CONNECTIONS, f"{given.rate}:1"] + [f"{given.rate}:{WINDOW_S}"] * (given.seconds * WINDOWS_PER_S)
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=given.seconds + 90, check=False)
    if done.returncode != 0:
        fail(f"open_loop: {done.stderr}")
    windows = [json.loads(line) for line in done.stdout.splitlines()[1:]]
    if any(window["refused"]["count"] or window["failed"]["count"] for window in windows):
        fail(f"the server refused or dropped requests at {given.rate}/s: {windows}")
    return {f"{p}_us": statistics.median(window["answered"][f"{p}_ms"] for window in windows) * 1e3 for p in ("p50", "p99")}


def server_times(port):
    """The server's own time for each of some requests, one after the other."""
    body, headers = json_body()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    times = []
    for _ in range(2000):
        connection.request("POST", INFER, body, headers)
        reply = connection.getresponse()
        reply.read()
        times.append(float(re.search(r"total;dur=([\d.]+)", reply.headers["server-timing"])[1]) * 1e3)
    return times[500:]


def first_line(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout.strip().split("\n")[0]
    except OSError:
        return ""


def environment():
    cpu = [line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
           if line.startswith("model name")]
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "git_commit": first_line("git", "-C", str(PROJECT), "rev-parse", "HEAD"),
        "git_dirty": bool(first_line("git", "-C", str(PROJECT), "status", "--porcelain", "--untracked-files=no")),
        "cpu": cpu[0] if cpu else platform.machine(), "cores": os.cpu_count(), "kernel": platform.release(),
        "onnxruntime": library().name.split(".so.")[1], "load_average_at_start": os.getloadavg(),
    }

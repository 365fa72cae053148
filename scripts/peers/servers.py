"""Third-party servers and the processes of a check. Shared by scripts/check-peers and scripts/bench/perf-analyzer."""
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

PROJECT = pathlib.Path(__file__).resolve().parents[2]
RUNTIME = PROJECT / ".runtime"
PEERS = PROJECT / "scripts/peers"
TRITON = RUNTIME / "triton"
START_S = 90
TOKEN = "peers-token-8c1f"
INFER = "/v2/models/mlp/infer"
ROW = [round((i % 17) / 17 - 0.5, 6) for i in range(64)]
V2_BODY = json.dumps({"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 64], "data": ROW}]})
TRITON_CONFIG = """
name: "mlp"
backend: "python"
max_batch_size: 256
input [{ name: "input" data_type: TYPE_FP32 dims: [ 64 ] }]
output [{ name: "output" data_type: TYPE_FP32 dims: [ 1 ] }]
instance_group [{ count: 1 kind: KIND_CPU }]
parameters: { key: "model" value: { string_value: "%s" } }
parameters: { key: "runs" value: { string_value: "%d" } }
"""


class Failed(Exception):
    pass


def free_ports(count):
    """Ports that were free a moment ago, all different."""
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in taken:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in taken]


class Process:
    """A process of the check's own, ended with it."""

    def __init__(self, name, command, folder, environment=None, cwd=None):
        self.name, self.log = name, folder / f"{name}.log"
        with open(self.log, "w") as log:
            self.child = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=log, text=True,
                                          env={**os.environ, **(environment or {})}, cwd=cwd, start_new_session=True)

    def fail(self, what):
        raise Failed(f"{self.name} {what}:\n{self.log.read_text()[-3000:]}")

    def first_line(self):
        line = self.child.stdout.readline()
        return line.strip() if line else self.fail("did not start")

    def answers(self, port, path=INFER, body=V2_BODY):
        began = time.monotonic()
        while time.monotonic() - began < START_S:
            if self.child.poll() is not None:
                self.fail(f"ended with {self.child.returncode}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                connection.request("POST", path, body, {"Content-Type": "application/json"})
                if connection.getresponse().status == 200:
                    return
            time.sleep(0.2)
        self.fail(f"does not answer in {START_S} s")

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGTERM)
        try:
            self.child.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()


class Check:
    """What checks have in common: binaries, a folder with a model, and processes to end."""

    def __init__(self, binaries, folder):
        self.binaries, self.folder, self.processes = binaries, folder, []
        self.model = folder / "ours/models/mlp/1/model.onnx"
        self.call([binaries / "tierlab-models", "generate", "--model", "mlp", "--repository", folder / "ours/models"])

    def call(self, command, **more):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=False, **more)
        if done.returncode != 0:
            raise Failed(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done

    def start(self, name, command, environment=None, cwd=None):
        process = Process(name, command, self.folder, environment, cwd)
        self.processes.append(process)
        return process

    def end_all(self):
        while self.processes:
            self.processes.pop().end()

    def ours(self, name="tierlab", *more):
        process = self.start(name, [self.binaries / "tierlab-server", "--config", PROJECT / "configs/server.toml", "--tier", "memory",
                                    "--set", f"tiers.memory.root={self.folder / 'ours'}", "--listen", "127.0.0.1:0",
                                    "--grpc-listen", "127.0.0.1:0", *more], {"RUST_LOG": "warn"})
        told = json.loads(process.first_line())
        return [int(told[key].rsplit(":", 1)[1]) for key in ("listen", "grpc_listen")]


def start_triton(check, runs=1):
    """tritonserver with the model in its Python backend, run so often for each batch: its ports for HTTP, gRPC and metrics."""
    repository = check.folder / "triton/mlp"
    (repository / "1").mkdir(parents=True)
    shutil.copy(PROJECT / "scripts/bench/triton_model.py", repository / "1/model.py")
    (repository / "config.pbtxt").write_text(TRITON_CONFIG % (check.model, runs))
    http_port, grpc_port, metrics_port = free_ports(3)
    home = TRITON / "pytriton/tritonserver"
    libraries = [(TRITON / ".python-libraries").read_text().strip(), str(TRITON / "nvidia_pytriton.libs")]
    server = check.start("triton", [
        home / "bin/tritonserver", "--model-repository", repository.parent, "--backend-directory", home / "backends",
        "--http-address", "127.0.0.1", "--http-port", http_port, "--grpc-address", "127.0.0.1", "--grpc-port", grpc_port,
        "--metrics-address", "127.0.0.1", "--metrics-port", metrics_port],
        {"PEER_PACKAGES": str(TRITON), "LD_LIBRARY_PATH": ":".join(libraries)})
    server.answers(http_port)
    return http_port, grpc_port, metrics_port

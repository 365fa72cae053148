"""Asks a running server through tritonclient, and compares with what Python's onnxruntime computes.

usage: clients.py ADDRESS DATA
DATA holds models/NAME/1/model.onnx and features/TABLE.rows. The rows are read here by a reader of their own, written from
the description of the format, so that both sides of the join are checked.
"""

import json
import struct
import sys

import numpy as np
import onnxruntime
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

DTYPES = {"FP32": np.float32, "INT64": np.int64, "UINT8": np.uint8}
TOLERANCE = 1e-5
checks = 0


def check(condition, what):
    global checks
    checks += 1
    if not condition:
        sys.exit(f"failed: {what}")


def close(found, expected, what):
    check(found.shape == expected.shape, f"{what}: shape {found.shape}, expected {expected.shape}")
    worst = float(np.max(np.abs(found - expected)))
    check(worst <= TOLERANCE, f"{what}: off by {worst}")


class Table:
    """A feature table, read whole."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.bytes = file.read()
        if self.bytes[:8] != b"TLROWS01":
            sys.exit(f"{path} is no table")
        fields = struct.unpack_from("<IIQQqIIQQ", self.bytes, 8)
        _, self.stride, self.start, self.rows, self.first_id, _, schema_len, _, _ = fields
        self.columns = json.loads(self.bytes[64 : 64 + schema_len])["columns"]

    def batch(self, ids):
        """The columns of the rows of ids, as arrays with the batch first."""
        arrays = {}
        for column in self.columns:
            dtype, shape = DTYPES[column["dtype"]], column["shape"]
            count = int(np.prod(shape))
            at = [self.start + (i - self.first_id) * self.stride + column["offset"] for i in ids]
            rows = [np.frombuffer(self.bytes, dtype, count, offset).reshape(shape) for offset in at]
            arrays[column["name"]] = np.stack(rows)
        return arrays


def tensor(name, array, binary):
    kinds = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
    tensor = triton.InferInput(name, list(array.shape), kinds[array.dtype])
    tensor.set_data_from_numpy(array, binary_data=binary)
    return tensor


def infer(client, model, arrays, binary, output, **options):
    inputs = [tensor(name, array, binary) for name, array in arrays.items()]
    outputs = [triton.InferRequestedOutput(output, binary_data=binary)]
    return client.infer(model, inputs, outputs=outputs, **options).as_numpy(output)


def health_and_metadata(client):
    check(client.is_server_live(), "live")
    check(client.is_server_ready(), "ready")
    check(client.get_server_metadata()["name"] == "tierlab", "server metadata")
    for model in ("mlp", "ctr", "vision"):
        check(client.is_model_ready(model), f"{model} ready")
        check(client.is_model_ready(model, "1"), f"{model} version 1 ready")
        metadata = client.get_model_metadata(model)
        check(metadata["platform"] == "onnxruntime_onnx", f"{model} platform")
        check(client.get_model_config(model)["max_batch_size"] >= 32, f"{model} config")
    check(not client.is_model_ready("none"), "unknown model ready")
    check(not client.is_model_ready("mlp", "7"), "unknown version ready")
    names = {entry["name"] for entry in client.get_model_repository_index()}
    check(names == {"mlp", "ctr", "vision"}, f"index {names}")


def answers(client, data):
    rng = np.random.default_rng(7)
    tables = {name: Table(f"{data}/features/{name}.rows") for name in ("ctr", "vision")}
    for model in ("mlp", "ctr", "vision"):
        session = onnxruntime.InferenceSession(f"{data}/models/{model}/1/model.onnx", providers=["CPUExecutionProvider"])
        output = session.get_outputs()[0].name
        for batch in (1, 32):
            if model == "mlp":
                ids, arrays = None, {"input": rng.standard_normal((batch, 64), dtype=np.float32)}
            else:
                ids = rng.integers(0, tables[model].rows, batch)
                arrays = tables[model].batch(ids)
            expected = session.run([output], arrays)[0]
            for binary in (True, False):
                if model == "vision" and not binary and batch > 1:
                    continue  # 5 million numbers as text: batch 1 shows the same
                what = f"{model}, batch {batch}, {'binary' if binary else 'JSON'}"
                close(infer(client, model, arrays, binary, output), expected, what + ", inline")
                if ids is None:
                    continue
                for shape in ([batch], [batch, 1]):
                    by_id = {"entity_id": ids.astype(np.int64).reshape(shape)}
                    close(infer(client, model, by_id, binary, output), expected, f"{what}, by id {shape}")
            for algorithm in ("gzip", "deflate"):
                found = infer(
                    client, model, arrays, True, output,
                    request_compression_algorithm=algorithm, response_compression_algorithm=algorithm,
                )
                close(found, expected, f"{model}, batch {batch}, {algorithm}")


def options(client):
    array = np.zeros((2, 64), np.float32)
    inputs = [tensor("input", array, True)]
    reply = client.infer("mlp", inputs, request_id="r-1", model_version="1", timeout=5_000_000)
    check(reply.get_response()["id"] == "r-1", "the id comes back")
    check(reply.get_response()["model_version"] == "1", "the version comes back")
    check(reply.as_numpy("output").shape == (2, 1), "outputs that were not listed come as binary")
    pending = [client.async_infer("mlp", inputs) for _ in range(8)]
    check(all(request.get_result().as_numpy("output").shape == (2, 1) for request in pending), "async")
    stats = client.get_inference_statistics("mlp")["model_stats"][0]
    check(stats["inference_stats"]["success"]["count"] >= 9, "statistics")


def errors(client):
    cases = {
        "no model `none`": ("none", {"input": np.zeros((1, 64), np.float32)}),
        "input `input`": ("mlp", {"input": np.zeros((1, 63), np.float32)}),
        "no such input": ("mlp", {"other": np.zeros((1, 64), np.float32)}),
        "no entity 64": ("ctr", {"entity_id": np.array([64], np.int64)}),
    }
    for message, (model, arrays) in cases.items():
        try:
            client.infer(model, [tensor(name, array, True) for name, array in arrays.items()])
            check(False, f"{message}: was answered")
        except InferenceServerException as error:
            check(message in str(error), f"{message}: {error}")


def main():
    address, data = sys.argv[1:]
    client = triton.InferenceServerClient(address, concurrency=8)
    health_and_metadata(client)
    answers(client, data)
    options(client)
    errors(client)
    client.close()
    print(f"{checks} checks passed")


main()

"""What the checks of the clients share: counting them, feature tables read by a reader of their own, ONNX Runtime's answers.

The rows are read here from the description of the format, so that both sides of the join are checked.
"""

import json
import struct
import sys

import numpy as np
import onnxruntime

DTYPES = {"FP32": np.float32, "INT64": np.int64, "UINT8": np.uint8}
TOLERANCE = 1e-5
MODELS = ("mlp", "ctr", "vision")
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


def ranked(found, case, count):
    """The classes of each row: greatest first, with the labels of `vision`, which its config names."""
    rows = case.expected.reshape(case.batch, -1)
    check(found.shape == (case.batch, min(count, rows.shape[1])), f"{case.model}: classes {found.shape}")
    for texts, row in zip(found, rows):
        values = []
        for text in texts:
            # As JSON they are texts, else bytes.
            text = text.decode() if isinstance(text, bytes) else text
            value, index, *label = text.split(":")
            check(label == ([f"label {index}"] if case.model == "vision" else []), f"{case.model}: {text}")
            check(abs(float(value) - row[int(index)]) <= TOLERANCE, f"{case.model}: {text}, expected {row[int(index)]}")
            values.append(row[int(index)])
        close(np.array(values), np.sort(row)[::-1][: len(values)], f"{case.model}: classes")


def refused(call, error, message):
    """The call must be refused by an error whose text has the message in it."""
    try:
        call()
    except error as raised:
        check(message in str(raised), f"{message}: {raised}")
    else:
        check(False, f"{message}: was answered")


def done():
    print(f"{checks} checks passed")


class Table:
    """A feature table, read whole."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.bytes = file.read()
        if self.bytes[:8] != b"TLROWS02":
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


class Case:
    """Inputs of one model, by value and by id, with what ONNX Runtime makes of them."""

    def __init__(self, model, batch, output, ids, arrays, expected):
        self.model, self.batch, self.output, self.ids = model, batch, output, ids
        self.arrays, self.expected = arrays, expected

    def by_id(self):
        """The ids in both shapes that they may have."""
        if self.ids is None:
            return []
        shapes = ([self.batch], [self.batch, 1])
        return [{"entity_id": self.ids.astype(np.int64).reshape(shape)} for shape in shapes]


def cases(data):
    """Batches of 1 and 32 for every model in the folder data."""
    rng = np.random.default_rng(7)
    for model in MODELS:
        graph = f"{data}/models/{model}/1/model.onnx"
        session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
        output = session.get_outputs()[0].name
        table = None if model == "mlp" else Table(f"{data}/features/{model}.rows")
        for batch in (1, 32):
            if table is None:
                ids, arrays = None, {"input": rng.standard_normal((batch, 64), dtype=np.float32)}
            else:
                ids = rng.integers(0, table.rows, batch)
                arrays = table.batch(ids)
            yield Case(model, batch, output, ids, arrays, session.run([output], arrays)[0])

"""A plain pyarrow.flight server of typed columns, as somebody would write it who knows nothing of row files. Says its
port, then serves until killed. The action `be` sets how it behaves: a mode of `MODES`."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

ROWS, FIRST = 5000, 10
MODES = ("good", "replaced", "reshaped", "missing-row", "null", "shuffled", "too-many", "away", "huge")


def columns(ids, seed, width=6):
    ids = np.asarray(ids, dtype=np.int64)
    dense = ids[:, None] * 3 + np.arange(width) + seed
    tensor = (ids[:, None] + np.arange(12)) % 7
    of = pa.fixed_shape_tensor(pa.int16(), [3, 4])
    tensor = pa.ExtensionArray.from_storage(
        of, pa.FixedSizeListArray.from_arrays(pa.array(tensor.astype(np.int16).ravel()), 12)
    )
    return pa.table(
        {
            "score": pa.array(ids.astype(np.float64) / 4),
            "entity_id": pa.array(ids),
            "dense": pa.FixedSizeListArray.from_arrays(pa.array(dense.astype(np.float32).ravel()), width),
            "tensor": tensor,
            "good": pa.array((ids % 3 == 0).tolist()),
        }
    )


class Server(fl.FlightServerBase):
    def __init__(self):
        super().__init__("grpc://127.0.0.1:0")
        self.mode = "good"

    def table(self, ids):
        seed = 1000 if self.mode == "replaced" else 0
        table = columns(ids, seed, 7 if self.mode == "reshaped" else 6)
        return table.replace_schema_metadata({"first_id": str(FIRST), "version": self.version()})

    def version(self):
        return "2" if self.mode == "replaced" else "1"

    def info(self):
        descriptor = fl.FlightDescriptor.for_path("typed")
        endpoint = fl.FlightEndpoint(json.dumps({"table": "typed"}), [])
        return fl.FlightInfo(self.table([FIRST]).schema, descriptor, [endpoint], ROWS, -1)

    def list_flights(self, context, criteria):
        text = fl.FlightInfo(pa.schema([("entity_id", pa.int64()), ("text", pa.string())]), fl.FlightDescriptor.for_path("text"), [], 1, 1)
        return iter([text, self.info()])

    def get_flight_info(self, context, descriptor):
        if descriptor.path != [b"typed"]:
            raise KeyError(f"no table {descriptor.path}")
        return self.info()

    def do_get(self, context, ticket):
        asked = json.loads(ticket.ticket)
        if self.mode == "away":
            raise fl.FlightUnavailableError("not now")
        ids = list(asked["ids"])
        if any(not FIRST <= entity < FIRST + ROWS for entity in ids):
            raise KeyError("no such entity")
        if self.mode == "missing-row":
            ids = ids[:-1]
        if self.mode == "shuffled":
            ids = ids[::-1]
        if self.mode == "too-many":
            ids = ids + [FIRST]
        if self.mode == "huge":
            ids = ids * 200_000
        table = self.table(ids)
        if self.mode == "null":
            score = pa.array([None] * len(ids), pa.float64())
            table = table.set_column(0, "score", score)
        return fl.RecordBatchStream(table)

    def do_action(self, context, action):
        self.mode = action.body.to_pybytes().decode()
        assert self.mode in MODES, self.mode
        return iter([])


server = Server()
print(server.port, flush=True)
server.serve()

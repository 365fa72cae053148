"""pyarrow's client against the Flight origin: URL is the argument. Ends with a traceback where something is not as it was
written. The table is the tests' `ctr`: 3,000 rows from id -50, its values made of seed 5."""

import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

ROWS, FIRST, SEED = 3000, -50, 5


def values(entity, count):
    return [(SEED * 31 + entity * 7 + i) % 100 for i in range(count)]


def check_columns(table, ids):
    assert table.schema.names == ["entity_id", "dense", "ids", "label", "half", "flags", "image"], table.schema
    assert table.schema.field("entity_id").type == pa.int64()
    assert table.schema.field("dense").type == pa.list_(pa.field("item", pa.float32(), False), 13)
    assert table.schema.field("ids").type.value_type == pa.int64()
    assert table.schema.field("label").type == pa.uint8()
    assert table.schema.field("half").type.value_type == pa.float16()
    assert table.schema.field("flags").type.value_type == pa.bool_()
    assert table.schema.field("image").type == pa.fixed_shape_tensor(pa.uint8(), [2, 3, 4])
    assert table.column("entity_id").to_pylist() == ids
    for name, count in (("dense", 13), ("ids", 26)):
        assert table.column(name).to_pylist() == [values(entity, count) for entity in ids], name
    assert table.column("label").to_pylist() == [values(entity, 1)[0] for entity in ids]
    half = [[float(np.uint16(0x3C00 + v).view(np.float16)) for v in values(entity, 4)] for entity in ids]
    assert [[float(x) for x in row] for row in table.column("half").to_pylist()] == half
    assert table.column("flags").to_pylist() == [[v % 2 == 1 for v in values(entity, 3)] for entity in ids]
    images = table.column("image").combine_chunks()
    if isinstance(images, pa.ChunkedArray):
        images = images.chunk(0)
    want = np.array([values(entity, 24) for entity in ids], dtype=np.uint8).reshape(-1, 2, 3, 4)
    assert (images.to_numpy_ndarray() == want).all()


def refused(error, call, word):
    try:
        call()
    except error as e:
        assert word in str(e), f"{word!r} is not in: {e}"
        return
    raise AssertionError(f"{error.__name__} should have been raised")


def main(url):
    client = fl.connect(url)
    flights = list(client.list_flights())
    assert [flight.descriptor.path for flight in flights] == [[b"ctr"]], flights
    info = client.get_flight_info(fl.FlightDescriptor.for_path("ctr"))
    assert info.total_records == ROWS
    metadata = info.schema.metadata
    assert (metadata[b"table"], metadata[b"first_id"], metadata[b"rows"]) == (b"ctr", b"-50", b"3000")
    assert client.get_schema(fl.FlightDescriptor.for_path("ctr")).schema == info.schema

    everything = list(range(FIRST, FIRST + ROWS))
    check_columns(client.do_get(info.endpoints[0].ticket).read_all(), everything)
    some = [7, -50, 2949, 7, 0]
    check_columns(client.do_get(fl.Ticket(json.dumps({"table": "ctr", "ids": some}))).read_all(), some)
    check_columns(client.do_get(fl.Ticket(json.dumps({"table": "ctr", "ids": []}))).read_all().slice(0, 0), [])

    def put():
        writer, _ = client.do_put(fl.FlightDescriptor.for_path("ctr"), pa.schema([("x", pa.int64())]))
        writer.close()

    get = lambda ticket: lambda: client.do_get(fl.Ticket(json.dumps(ticket))).read_all()
    refused(KeyError, get({"table": "none"}), "features/none.rows")
    refused(KeyError, get({"table": "ctr", "ids": [-51]}), "entity -51")
    refused(pa.ArrowInvalid, get({"tables": "ctr"}), "ticket")
    refused(pa.ArrowException, get({"table": "ctr", "version": "old"}), "version")
    refused(NotImplementedError, lambda: list(client.list_flights(b"{}")), "criteria")
    refused(NotImplementedError, put, "DoPut")
    refused(NotImplementedError, lambda: list(client.do_action(fl.Action("format-disk", b""))), "format-disk")
    print("ok")


main(sys.argv[1])

"""read_shards.py tar|tfrecord FIRST_ID SHARD ROWS_FILE: reads a shard with nothing of Tierlab, and compares every column of every
sample with the same table in the rows format."""
import ast
import json
import struct
import sys
import tarfile


def crc32c_table():
    """Remainders of all bytes, for the Castagnoli polynomial, its bits reversed."""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = crc32c_table()


def masked(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """The fields of a message whose values all have a length."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        assert tag & 7 == 2, tag
        size, at = varint(data, at)
        yield tag >> 3, data[at : at + size]
        at += size


def elements(feature):
    """The bytes of a feature's elements."""
    ((kind, values),) = fields(feature)
    if kind == 1:
        return b"".join(value for _, value in fields(values))
    ((_, packed),) = fields(values)
    if kind == 2:
        return packed
    at, out = 0, b""
    while at < len(packed):
        value, at = varint(packed, at)
        out += struct.pack("<Q", value)
    return out


def tfrecord(path):
    """Each record as its features, by name."""
    with open(path, "rb") as file:
        while head := file.read(12):
            size, crc = struct.unpack("<QI", head)
            assert masked(head[:8]) == crc
            record = file.read(size)
            assert struct.unpack("<I", file.read(4)) == (masked(record),)
            ((_, features),) = fields(record)
            entries = [dict(fields(entry)) for _, entry in fields(features)]
            sample = {entry[1].decode(): elements(entry[2]) for entry in entries}
            yield sample.pop("__key__").decode(), sample


def array(name, body):
    """The elements of an array as NumPy saves it, of the type and shape of its column."""
    assert body[:8] == b"\x93NUMPY\x01\x00", name
    (size,) = struct.unpack_from("<H", body, 8)
    assert (10 + size) % 64 == 0, size
    header = ast.literal_eval(body[10 : 10 + size].decode())
    (column,) = (column for column in columns if f"{column['name']}.npy" == name)
    wanted = {"descr": NUMPY[column["dtype"]], "fortran_order": False, "shape": tuple(column["shape"])}
    assert header == wanted, header
    return body[10 + size :]


def tar(path):
    """Members that follow each other with one key are a sample, as WebDataset groups them."""
    key, sample = None, {}
    with tarfile.open(path) as archive:
        for member in archive:
            name, _, extension = member.name.partition(".")
            if key not in (None, name):
                yield key, sample
                sample = {}
            key = name
            body = archive.extractfile(member).read()
            if extension.endswith(".npy"):
                extension, body = extension[: -len(".npy")], array(extension, body)
            sample[extension] = body
    yield key, sample


SIZES = {"FP32": 4, "INT64": 8, "FP16": 2, "BOOL": 1}
NUMPY = {"FP32": "<f4", "INT64": "<i8", "FP16": "<f2", "BOOL": "<b1"}
kind, first, shard, rows_file = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
with open(rows_file, "rb") as file:
    data = file.read()
(stride, header_len) = struct.unpack_from("<IQ", data, 12)
(schema_len,) = struct.unpack_from("<I", data, 44)
columns = json.loads(data[64 : 64 + schema_len])["columns"]
count = 0
for key, sample in {"tar": tar, "tfrecord": tfrecord}[kind](shard):
    assert int(key) == first + count, key
    row = data[header_len + count * stride :][:stride]
    assert set(sample) == {column["name"] for column in columns}
    for column in columns:
        size = SIZES[column["dtype"]]
        for extent in column["shape"]:
            size *= extent
        assert sample[column["name"]] == row[column["offset"] :][:size], (key, column)
    count += 1
print(count, "samples")

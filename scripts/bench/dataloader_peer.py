#!/usr/bin/env python3
"""Peer of scripts/bench/offline: measures PyTorch's DataLoader with webdataset on tar shards, or pyarrow on Parquet and Arrow files, with
ONNX Runtime: the loader alone, the model alone, and both.

  dataloader_peer.py JOB.json      one line of JSON for each number of workers

The job holds: `layout`, `shards` (paths), `columns` (name, dtype, shape and the model's input of each), `model`, `batch_rows`, `shuffle_rows`,
`workers` (numbers of worker processes, of pyarrow threads; 0 is this one), `prefetch` (batches ahead of each worker), `seconds`, `warmup_seconds`.
"""
import collections
import concurrent.futures
import json
import random
import sys
import time

import numpy
import onnxruntime

# Rows per read of record batches; a Parquet row group has as many.
PIECE_ROWS = 16_384


def pieces(job):
    """Functions that each read some rows as a table."""
    import pyarrow
    from pyarrow import ipc, parquet

    names, made = [column["name"] for column in job["columns"]], []
    for shard in job["shards"]:
        if job["layout"] == "parquet":
            groups = range(parquet.ParquetFile(shard).num_row_groups)
            made += [lambda shard=shard, at=at: parquet.ParquetFile(shard).read_row_group(at, names, use_threads=False) for at in groups]
        else:
            file = ipc.open_file(pyarrow.memory_map(shard))
            step = max(1, PIECE_ROWS // file.get_batch(0).num_rows)
            starts = range(0, file.num_record_batches, step)
            made += [lambda file=file, at=at: pyarrow.Table.from_batches(
                [file.get_batch(batch) for batch in range(at, min(at + step, file.num_record_batches))]).select(names) for at in starts]
    return made


def ahead(job, workers):
    """Endless tables, in another order each time, read by `workers` threads."""
    made, waiting = pieces(job), collections.deque()
    with concurrent.futures.ThreadPoolExecutor(max(1, workers)) as pool:
        while True:
            random.shuffle(made)
            for piece in made:
                if not workers:
                    yield piece()
                    continue
                waiting.append(pool.submit(piece))
                if len(waiting) >= job["prefetch"]:
                    yield waiting.popleft().result()


def columnar(job, workers):
    """Batches of rows drawn among `shuffle_rows`, as arrays: whole columns at a time, never a row."""
    def arrays(table):
        return [table[column["name"]].combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(-1, *column["shape"])
                for column in job["columns"]]

    held, size = None, job["batch_rows"]
    for table in ahead(job, workers):
        held = [numpy.concatenate(pair) for pair in zip(held, arrays(table))] if held else arrays(table)
        rows = len(held[0])
        order = numpy.random.permutation(rows)
        full = max(0, rows - job["shuffle_rows"]) // size * size
        for start in range(0, full, size):
            yield [column[order[start:start + size]] for column in held]
        held = [column[order[full:]] for column in held]


def tar(job, workers):
    import torch
    import webdataset

    torch.set_num_threads(1)
    columns = job["columns"]

    def values(member, column):
        # A member is a .npy file of version 1, whose header's length stands at byte 8: several times as fast as numpy.load.
        offset = 10 + int.from_bytes(member[8:10], "little")
        return torch.frombuffer(bytearray(member), dtype=getattr(torch, column["dtype"]), offset=offset).view(column["shape"])

    def decode(sample):
        return tuple(values(sample[f"{column['name']}.npy"], column) for column in columns)

    def together(samples):
        return tuple(torch.stack(values) for values in zip(*samples))

    dataset = webdataset.WebDataset(job["shards"], shardshuffle=len(job["shards"]), empty_check=False)
    if job["shuffle_rows"]:
        dataset = dataset.shuffle(job["shuffle_rows"], initial=job["shuffle_rows"])
    dataset = dataset.map(decode).batched(job["batch_rows"], collation_fn=together, partial=False).repeat()
    ahead = {"prefetch_factor": max(1, job["prefetch"] // workers), "persistent_workers": True} if workers else {}
    return torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers, **ahead)


def session(job):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(job["model"], options, providers=["CPUExecutionProvider"])


def rate(job, batches, consume):
    """Rows per second between the end of the first batch after the warm-up and the end of the last batch."""
    warm = time.perf_counter() + job["warmup_seconds"]
    began, rows, last = None, 0, None
    for batch in batches:
        consume(batch)
        now = time.perf_counter()
        if began is None:
            began = now if now >= warm else None
            continue
        rows, last = rows + len(batch[0]), now
        if now - began >= job["seconds"]:
            return rows / (last - began)


def endless(batches):
    while True:
        yield from batches


def main():
    job = json.load(open(sys.argv[1], encoding="utf-8"))
    loader = tar if job["layout"] == "tar" else columnar
    model = session(job)
    names = [column["input"] for column in job["columns"]]

    def infer(batch):
        model.run(None, dict(zip(names, map(numpy.asarray, batch))))

    for workers in job["workers"]:
        nothing = lambda _: None
        alone = rate(job, loader(job, workers), nothing)
        # From memory, and more than the processor's caches hold if the loader is fast enough.
        made, held, until = [], 0, time.perf_counter() + job["seconds"]
        for batch in loader(job, 0):
            made.append(batch)
            held += sum(numpy.asarray(values).nbytes for values in batch)
            if held >= 128 << 20 or time.perf_counter() >= until:
                break
        inference = rate(job, endless(made), infer)
        del made
        both = rate(job, loader(job, workers), infer)
        print(json.dumps({"workers": workers, "loader_per_s": alone, "inference_per_s": inference, "both_per_s": both}), flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Tar shards through PyTorch's DataLoader with webdataset, and ONNX Runtime: the loader alone, the model alone, both.

  dataloader_peer.py JOB.json      one line of JSON for each number of workers

The job holds: `shards` (paths), `columns` (name, dtype, shape and the model's input of each), `model`, `batch_rows`, `shuffle_rows`,
`workers` (numbers of worker processes; 0 is this process), `prefetch` (batches ahead of each worker), `seconds`, `warmup_seconds`.
"""
import json
import sys
import time

import numpy
import onnxruntime
import torch
import webdataset


def loader(job, workers):
    columns = job["columns"]

    def decode(sample):
        return tuple(torch.frombuffer(bytearray(sample[column["name"]]), dtype=getattr(torch, column["dtype"])).view(column["shape"])
                     for column in columns)

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
    """Rows a second of what ends between the end of the first batch after the warm-up and that of the last."""
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
    torch.set_num_threads(1)
    model = session(job)
    names = [column["input"] for column in job["columns"]]

    def infer(batch):
        model.run(None, dict(zip(names, (values.numpy() for values in batch))))

    for workers in job["workers"]:
        nothing = lambda _: None
        alone = rate(job, loader(job, workers), nothing)
        # From memory, and more than the processor's caches hold.
        made, held = [], 0
        for batch in loader(job, 0):
            made.append(batch)
            held += sum(values.numel() * values.element_size() for values in batch)
            if held >= 128 << 20:
                break
        inference = rate(job, endless(made), infer)
        del made
        both = rate(job, loader(job, workers), infer)
        print(json.dumps({"workers": workers, "loader_per_s": alone, "inference_per_s": inference, "both_per_s": both}), flush=True)


if __name__ == "__main__":
    main()

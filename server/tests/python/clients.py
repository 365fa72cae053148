"""Asks a running server through tritonclient's HTTP client, and compares with what Python's onnxruntime computes.

usage: clients.py ADDRESS DATA
DATA holds models/NAME/1/model.onnx and features/TABLE.rows.
"""

import sys

import numpy as np
import tritonclient.http as triton
from reference import DTYPES, MODELS, cases, check, close, done, ranked, refused
from tritonclient.utils import InferenceServerException


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
    for model in MODELS:
        check(client.is_model_ready(model), f"{model} ready")
        check(client.is_model_ready(model, "1"), f"{model} version 1 ready")
        metadata = client.get_model_metadata(model)
        check(metadata["platform"] == "onnxruntime_onnx", f"{model} platform")
        check(client.get_model_config(model)["max_batch_size"] >= 32, f"{model} config")
    check(not client.is_model_ready("none"), "unknown model ready")
    check(not client.is_model_ready("mlp", "7"), "unknown version ready")
    names = {entry["name"] for entry in client.get_model_repository_index()}
    check(names == set(MODELS), f"index {names}")


def settings(client):
    """Every other management call: what is not offered says so."""
    check(client.get_trace_settings()["trace_level"] == ["OFF"], "trace settings")
    check(client.get_trace_settings("mlp")["trace_level"] == ["OFF"], "trace settings of a model")
    check(client.update_trace_settings(settings={"trace_level": ["OFF"]})["trace_level"] == ["OFF"], "no change")
    change = {"trace_level": ["TIMESTAMPS"]}
    refused(lambda: client.update_trace_settings(settings=change), InferenceServerException, "trace_level")
    check(client.get_log_settings()["log_error"], "log settings")
    change = {"log_verbose_level": 3}
    refused(lambda: client.update_log_settings(change), InferenceServerException, "log_verbose_level")
    check(client.get_system_shared_memory_status() == [], "system shared memory")
    check(client.get_cuda_shared_memory_status("a") == [], "CUDA shared memory")
    for register in (
        lambda: client.register_system_shared_memory("a", "/a", 64),
        lambda: client.register_cuda_shared_memory("a", b"YQ==", 0, 64),
    ):
        refused(register, InferenceServerException, "shared memory is not supported")
    client.unregister_system_shared_memory()
    client.unregister_cuda_shared_memory("a")


def answers(client, data):
    for case in cases(data):
        if case.model != "vision" or case.batch == 1:
            classes(client, case)
        for binary in (True, False):
            if case.model == "vision" and not binary and case.batch > 1:
                continue  # 5 million numbers as text: batch 1 shows the same
            what = f"{case.model}, batch {case.batch}, {'binary' if binary else 'JSON'}"
            found = infer(client, case.model, case.arrays, binary, case.output)
            close(found, case.expected, what + ", inline")
            for arrays in case.by_id():
                close(infer(client, case.model, arrays, binary, case.output), case.expected, what + ", by id")
        for coding in ("gzip", "deflate"):
            found = infer(
                client, case.model, case.arrays, True, case.output,
                request_compression_algorithm=coding, response_compression_algorithm=coding,
            )
            close(found, case.expected, f"{case.model}, batch {case.batch}, {coding}")


def classes(client, case):
    for binary in (True, False):
        top = [triton.InferRequestedOutput(case.output, binary_data=binary, class_count=5)]
        inputs = [tensor(name, array, True) for name, array in case.arrays.items()]
        found = client.infer(case.model, inputs, outputs=top).as_numpy(case.output)
        ranked(found, case, 5)


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
    check(len(client.get_inference_statistics()["model_stats"]) == len(MODELS), "statistics of all models")


def errors(client):
    cases = {
        "unknown model `none`": ("none", {"input": np.zeros((1, 64), np.float32)}),
        "input `input`": ("mlp", {"input": np.zeros((1, 63), np.float32)}),
        "no such input": ("mlp", {"other": np.zeros((1, 64), np.float32)}),
        "has no rows": ("mlp", {"input": np.zeros((0, 64), np.float32)}),
        "unknown entity 64": ("ctr", {"entity_id": np.array([64], np.int64)}),
    }
    for message, (model, arrays) in cases.items():
        inputs = [tensor(name, array, True) for name, array in arrays.items()]
        refused(lambda: client.infer(model, inputs), InferenceServerException, message)
    shared = triton.InferInput("input", [1, 64], "FP32")
    shared.set_shared_memory("region", 256)
    refused(lambda: client.infer("mlp", [shared]), InferenceServerException, "shared_memory_region")


def load_and_unload(client):
    client.unload_model("mlp")
    check(not client.is_model_ready("mlp"), "unloaded")
    client.load_model("mlp")
    check(client.is_model_ready("mlp"), "loaded again")
    refused(lambda: client.load_model("none"), InferenceServerException, "none")


def main():
    address, data = sys.argv[1:]
    client = triton.InferenceServerClient(address, concurrency=8)
    health_and_metadata(client)
    settings(client)
    answers(client, data)
    options(client)
    errors(client)
    load_and_unload(client)
    client.close()
    done()


main()

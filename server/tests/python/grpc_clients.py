"""Asks a running server through tritonclient's gRPC client, and compares with what Python's onnxruntime computes.

usage: grpc_clients.py ADDRESS DATA
DATA holds models/NAME/1/model.onnx and features/TABLE.rows.
"""

import queue
import sys

import grpc
import numpy as np
import tritonclient.grpc as triton
from reference import DTYPES, MODELS, cases, check, close, done, ranked, refused
from tritonclient.utils import InferenceServerException

PATIENCE_S = 60


def tensor(name, array):
    kinds = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
    tensor = triton.InferInput(name, list(array.shape), kinds[array.dtype])
    tensor.set_data_from_numpy(array)
    return tensor


def tensors(arrays):
    return [tensor(name, array) for name, array in arrays.items()]


def health_and_metadata(client):
    check(client.is_server_live(), "live")
    check(client.is_server_ready(), "ready")
    metadata = client.get_server_metadata()
    check(metadata.name == "tierlab" and "statistics" in metadata.extensions, "server metadata")
    for model in MODELS:
        check(client.is_model_ready(model), f"{model} ready")
        check(client.is_model_ready(model, "1"), f"{model} version 1 ready")
        check(client.get_model_metadata(model).platform == "onnxruntime_onnx", f"{model} platform")
        config = client.get_model_config(model).config
        check(config.name == model and config.max_batch_size >= 32, f"{model} config")
        check(config.backend == "onnxruntime" and config.dynamic_batching.preferred_batch_size, f"{model} batching")
    metadata = client.get_model_metadata("mlp", "1", as_json=True)
    check(metadata["inputs"] == [{"name": "input", "datatype": "FP32", "shape": ["-1", "64"]}], f"inputs {metadata}")
    config = client.get_model_config("mlp").config
    check(list(config.input[0].dims) == [64], "dims without the batch")
    check(config.input[0].data_type == 11, "TYPE_FP32")
    check(config.default_model_filename == "model.onnx", "default_model_filename")
    check(config.parameters["intra_op_thread_count"].string_value.isdigit(), "parameters")
    warmup = config.model_warmup[0]
    check((warmup.name, warmup.batch_size, warmup.count) == ("eight", 8, 2), f"warm-up {warmup}")
    given = warmup.inputs["input"]
    check((given.data_type, list(given.dims), given.random_data) == (11, [64], True), f"warm-up input {given}")
    check(not client.is_model_ready("none"), "unknown model ready")
    check(not client.is_model_ready("mlp", "7"), "unknown version ready")
    names = {model.name for model in client.get_model_repository_index().models}
    check(names == set(MODELS), f"index {names}")


def settings(client):
    """Every other management call: what is not offered says so."""
    check(list(client.get_trace_settings().settings["trace_level"].value) == ["OFF"], "trace settings")
    check(client.update_trace_settings(settings={"trace_level": ["OFF"]}) is not None, "a change to what is")
    change = {"trace_level": ["TIMESTAMPS"]}
    refused(lambda: client.update_trace_settings(settings=change), InferenceServerException, "trace_level")
    check(client.get_log_settings().settings["log_error"].bool_param, "log settings")
    change = {"log_verbose_level": 3}
    refused(lambda: client.update_log_settings(change), InferenceServerException, "log_verbose_level")
    check(not client.get_system_shared_memory_status().regions, "system shared memory")
    check(not client.get_cuda_shared_memory_status().regions, "CUDA shared memory")
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
        what = f"{case.model}, batch {case.batch}"
        outputs = [triton.InferRequestedOutput(case.output)]
        found = client.infer(case.model, tensors(case.arrays), outputs=outputs).as_numpy(case.output)
        close(found, case.expected, what + ", inline")
        for arrays in case.by_id():
            found = client.infer(case.model, tensors(arrays)).as_numpy(case.output)
            close(found, case.expected, what + ", by id")
        for compression in ("gzip", "deflate"):
            found = client.infer(case.model, tensors(case.arrays), compression_algorithm=compression)
            close(found.as_numpy(case.output), case.expected, f"{what}, {compression}")


def classes(client, case):
    top = [triton.InferRequestedOutput(case.output, class_count=5)]
    found = client.infer(case.model, tensors(case.arrays), outputs=top).as_numpy(case.output)
    ranked(found, case, 5)


def options(client):
    array = np.zeros((2, 64), np.float32)
    inputs = [tensor("input", array)]
    reply = client.infer("mlp", inputs, request_id="r-1", model_version="1", timeout=5_000_000, client_timeout=30)
    check(reply.get_response().id == "r-1", "the id comes back")
    check(reply.get_response().model_version == "1", "the version comes back")
    replies = queue.Queue()
    for _ in range(8):
        client.async_infer("mlp", inputs, lambda result, error: replies.put((result, error)))
    for _ in range(8):
        result, error = replies.get(timeout=PATIENCE_S)
        check(error is None and result.as_numpy("output").shape == (2, 1), f"async: {error}")
    stats = client.get_inference_statistics("mlp").model_stats[0]
    check(stats.inference_stats.success.count >= 9, "statistics")
    check(len(client.get_inference_statistics().model_stats) == len(MODELS), "statistics of all models")


def stream(client):
    replies = queue.Queue()
    client.start_stream(lambda result, error: replies.put((result, error)))
    good = [tensor("input", np.ones((1, 64), np.float32))]
    bad = [tensor("input", np.ones((1, 63), np.float32))]
    for turn in range(6):
        client.async_stream_infer("mlp", bad if turn == 3 else good, request_id=str(turn))
    for turn in range(6):
        result, error = replies.get(timeout=PATIENCE_S)
        if turn == 3:
            check("input `input`" in str(error), f"a bad request in a stream: {error}")
        else:
            check(error is None, f"stream: {error}")
            check(result.get_response().id == str(turn), "a stream's replies keep their order")
    client.stop_stream()


def errors(client):
    cases = {
        "unknown model `none`": ("none", {"input": np.zeros((1, 64), np.float32)}, "NOT_FOUND"),
        "input `input`": ("mlp", {"input": np.zeros((1, 63), np.float32)}, "INVALID_ARGUMENT"),
        "no such input": ("mlp", {"other": np.zeros((1, 64), np.float32)}, "INVALID_ARGUMENT"),
        "has no rows": ("mlp", {"input": np.zeros((0, 64), np.float32)}, "INVALID_ARGUMENT"),
        "unknown entity 64": ("ctr", {"entity_id": np.array([64], np.int64)}, "NOT_FOUND"),
    }
    for message, (model, arrays, code) in cases.items():
        try:
            client.infer(model, tensors(arrays))
            check(False, f"{message}: was answered")
        except InferenceServerException as error:
            check(message in str(error), f"{message}: {error}")
            check(error.status() == f"StatusCode.{code}", f"{message}: {error.status()}")
    shared = triton.InferInput("input", [1, 64], "FP32")
    shared.set_shared_memory("region", 256)
    refused(lambda: client.infer("mlp", [shared]), InferenceServerException, "shared_memory_region")


def health_service(address):
    """grpc.health.v1 by its bytes: field 1 is the service's name, and the status."""
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary("/grpc.health.v1.Health/Check")
        check(call(b"", timeout=PATIENCE_S) == b"\x08\x01", "the server is serving")
        name = b"inference.GRPCInferenceService"
        check(call(b"\x0a" + bytes([len(name)]) + name, timeout=PATIENCE_S) == b"\x08\x01", "the service is serving")
        refused(lambda: call(b"\x0a\x01x", timeout=PATIENCE_S), grpc.RpcError, "unknown service")
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
        check(next(watch) == b"\x08\x01", "watching begins with what is")
        watch.cancel()
        unknown = channel.unary_unary("/inference.GRPCInferenceService/Dance")
        refused(lambda: unknown(b"", timeout=PATIENCE_S), grpc.RpcError, "UNIMPLEMENTED")


def load_and_unload(client):
    client.unload_model("mlp")
    check(not client.is_model_ready("mlp"), "unloaded")
    client.load_model("mlp")
    check(client.is_model_ready("mlp"), "loaded again")
    refused(lambda: client.load_model("none"), InferenceServerException, "none")


def main():
    address, data = sys.argv[1:]
    client = triton.InferenceServerClient(address)
    health_and_metadata(client)
    settings(client)
    answers(client, data)
    options(client)
    stream(client)
    errors(client)
    load_and_unload(client)
    client.close()
    health_service(address)
    done()


main()

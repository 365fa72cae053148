"""Asks a running server through the kserve client, over HTTP and gRPC, and compares with Python's onnxruntime.

usage: kserve_client.py HTTP_ADDRESS GRPC_ADDRESS DATA
DATA holds models/NAME/1/model.onnx and features/TABLE.rows.
"""

import asyncio
import sys

import grpc
import httpx
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig
from reference import DTYPES, MODELS, cases, check, close, done

KINDS = {dtype: name for name, dtype in DTYPES.items()}


def request(model, arrays, binary):
    inputs = []
    for name, array in arrays.items():
        inputs.append(InferInput(name, list(array.shape), KINDS[array.dtype.type]))
        inputs[-1].set_data_from_numpy(array, binary_data=binary)
    return InferRequest(model_name=model, infer_inputs=inputs, request_id="r-1")


async def refused(call, error, message):
    try:
        await call
    except error as raised:
        check(message in str(raised), f"{message}: {raised}")
    else:
        check(False, f"{message}: was answered")


async def over_http(address, data):
    url = f"http://{address}"
    async with InferenceRESTClient(RESTConfig(protocol="v2", timeout=60)) as client:
        check(await client.is_server_live(url) is True, "live")
        check(await client.is_server_ready(url) is True, "ready")
        for model in MODELS:
            check(await client.is_model_ready(url, model) is True, f"{model} ready")
        check(not await client.is_model_ready(url, "none"), "unknown model ready")
        for case in cases(data):
            for arrays in [case.arrays, *case.by_id()]:
                for binary in (True, False):
                    reply = await client.infer(url, request(case.model, arrays, binary), model_name=case.model)
                    what = f"HTTP, {case.model}, batch {case.batch}, binary {binary}"
                    check((reply.id, reply.model_name) == ("r-1", case.model), what)
                    close(reply.outputs[0].as_numpy(), case.expected, what)
        short = {"input": case_input(data)[:, :63]}
        await refused(client.infer(url, request("mlp", short, False), model_name="mlp"), httpx.HTTPStatusError, "400")


async def over_grpc(address, data):
    async with InferenceGRPCClient(address, timeout=60) as client:
        check(await client.is_server_live() is True, "live")
        check(await client.is_server_ready() is True, "ready")
        for model in MODELS:
            check(await client.is_model_ready(model) is True, f"{model} ready")
        for case in cases(data):
            for arrays in [case.arrays, *case.by_id()]:
                for binary in (True, False):
                    reply = await client.infer(request(case.model, arrays, binary))
                    what = f"gRPC, {case.model}, batch {case.batch}, binary {binary}"
                    check((reply.id, reply.model_name) == ("r-1", case.model), what)
                    close(reply.outputs[0].as_numpy(), case.expected, what)
        short = {"input": case_input(data)[:, :63]}
        await refused(client.infer(request("mlp", short, True)), grpc.RpcError, "INVALID_ARGUMENT")


def case_input(data):
    return next(case for case in cases(data) if case.model == "mlp").arrays["input"]


async def main():
    http_address, grpc_address, data = sys.argv[1:]
    await over_http(http_address, data)
    await over_grpc(grpc_address, data)
    done()


asyncio.run(main())

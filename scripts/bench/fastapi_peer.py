"""Peer with FastAPI, uvicorn and onnxruntime, as most people would write it first. Prints its port and serves until it
is ended.

usage: fastapi_peer.py MODEL
"""

import socket
import sys

import numpy as np
import onnxruntime
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel


class Tensor(BaseModel):
    name: str
    datatype: str
    shape: list[int]
    data: list[float]


class Request(BaseModel):
    inputs: list[Tensor]


options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
name = session.get_inputs()[0].name
app = FastAPI()


@app.post("/v2/models/mlp/infer")
async def infer(request: Request):
    tensor = request.inputs[0]
    array = np.asarray(tensor.data, np.float32).reshape(tensor.shape)
    output = session.run(None, {name: array})[0]
    outputs = [{"name": "output", "datatype": "FP32", "shape": output.shape, "data": output.ravel().tolist()}]
    return {"model_name": "mlp", "model_version": "1", "outputs": outputs}


listener = socket.socket()
listener.bind(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
server.run(sockets=[listener])

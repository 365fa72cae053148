"""The model that MLServer serves in scripts/check-peers: onnxruntime on one thread, behind its own server."""

import os

import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Mlp(MLModel):
    async def load(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.environ["PEER_MODEL"], options, providers=["CPUExecutionProvider"])
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        rows = NumpyCodec.decode_input(payload.inputs[0])
        output = self.session.run(None, {"input": rows.astype("float32")})[0]
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("output", output)])

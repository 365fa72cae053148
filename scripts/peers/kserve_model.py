"""The model that KServe's model server serves in scripts/check-peers: onnxruntime on one thread.

usage: kserve_model.py MODEL HTTP_PORT GRPC_PORT
"""

import sys

import onnxruntime
from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer


class Mlp(Model):
    def __init__(self, graph):
        super().__init__("mlp")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        self.ready = True

    async def get_input_types(self):
        return [{"name": "input", "datatype": "FP32", "shape": [-1, 64]}]

    async def get_output_types(self):
        return [{"name": "output", "datatype": "FP32", "shape": [-1, 1]}]

    def predict(self, payload, headers=None, response_headers=None):
        if isinstance(payload, dict):
            import numpy as np

            rows = np.asarray(payload["instances"], np.float32)
            return {"predictions": self.session.run(None, {"input": rows})[0].tolist()}
        rows = payload.inputs[0].as_numpy()
        output = self.session.run(None, {"input": rows})[0]
        tensor = InferOutput("output", list(output.shape), "FP32")
        tensor.set_data_from_numpy(output, binary_data=payload.from_grpc)
        return InferResponse(response_id=payload.id or "", model_name="mlp", infer_outputs=[tensor])


graph, http_port, grpc_port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ModelServer(http_port=http_port, grpc_port=grpc_port, workers=1, enable_docs_url=False).start([Mlp(graph)])

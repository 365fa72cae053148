"""The model that Triton's Python backend serves as the peer: onnxruntime on one thread, the requests of a batch in one run.

Copied as model.py beside config.pbtxt, whose parameter `model` names the graph. PEER_PACKAGES is the folder of the Python
packages: the interpreter inside the backend ignores PYTHONPATH.
"""

import json
import os
import sys

sys.path.append(os.environ["PEER_PACKAGES"])

import numpy as np
import onnxruntime
import triton_python_backend_utils as triton


class TritonPythonModel:
    def initialize(self, args):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        graph = json.loads(args["model_config"])["parameters"]["model"]["string_value"]
        self.session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def execute(self, requests):
        inputs = [triton.get_input_tensor_by_name(request, "input").as_numpy() for request in requests]
        rows = self.session.run(None, {"input": inputs[0] if len(inputs) == 1 else np.concatenate(inputs)})[0]
        replies, start = [], 0
        for part in inputs:
            output = triton.Tensor("output", rows[start : start + len(part)])
            start += len(part)
            replies.append(triton.InferenceResponse(output_tensors=[output]))
        return replies

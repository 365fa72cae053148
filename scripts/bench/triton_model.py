"""The model that Triton's Python backend serves as the peer: onnxruntime on one thread, the requests of a batch in one run.

Copied as model.py beside config.pbtxt, whose parameter `model` names the graph, and `runs` how often it is run for each batch (1 where it
is left out): a model that takes milliseconds. PEER_PACKAGES is the folder of the Python
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
        parameters = json.loads(args["model_config"])["parameters"]
        graph = parameters["model"]["string_value"]
        self.runs = int(parameters.get("runs", {"string_value": "1"})["string_value"])
        self.session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def execute(self, requests):
        inputs = [triton.get_input_tensor_by_name(request, "input").as_numpy() for request in requests]
        batch = inputs[0] if len(inputs) == 1 else np.concatenate(inputs)
        for _ in range(self.runs):
            rows = self.session.run(None, {"input": batch})[0]
        replies, start = [], 0
        for part in inputs:
            output = triton.Tensor("output", rows[start : start + len(part)])
            start += len(part)
            replies.append(triton.InferenceResponse(output_tensors=[output]))
        return replies

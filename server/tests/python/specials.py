"""Sends NaN and infinities as JSON and as binary data, by Python's own json and by tritonclient, and looks at every bit.

usage: specials.py ADDRESS
"""

import json
import sys
import urllib.error
import urllib.request

import numpy as np
import tritonclient.http as triton
from reference import check, done

VALUES = [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.5, 1e-30]
MODELS = {"singles": ("FP32", np.float32), "doubles": ("FP64", np.float64)}


def same(one, other):
    return one.dtype == other.dtype and one.tobytes() == other.tobytes()


def by_json(address, model, dtype, array):
    """The reply's text, and its numbers."""
    inputs = [{"name": "x", "shape": [1, len(VALUES)], "datatype": dtype, "data": [array.tolist()]}]
    body = json.dumps({"inputs": inputs}).encode()
    check(b"-Infinity" in body and b"NaN" in body, "json writes the words")
    url = f"http://{address}/v2/models/{model}/infer"
    with urllib.request.urlopen(urllib.request.Request(url, body)) as reply:
        text = reply.read().decode()
    return text, np.array(json.loads(text)["outputs"][0]["data"], array.dtype)


def by_triton(client, model, dtype, array, binary):
    tensor = triton.InferInput("x", [1, len(VALUES)], dtype)
    tensor.set_data_from_numpy(array.reshape(1, -1), binary_data=binary)
    outputs = [triton.InferRequestedOutput("y", binary_data=binary)]
    return client.infer(model, [tensor], outputs=outputs).as_numpy("y").reshape(-1)


def refusal(address, data):
    body = '{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[%s]}]}' % data
    url = f"http://{address}/v2/models/singles/infer"
    try:
        urllib.request.urlopen(urllib.request.Request(url, body.encode()))
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    return 200, ""


def main(address):
    client = triton.InferenceServerClient(address)
    for model, (dtype, kind) in MODELS.items():
        array = np.array(VALUES, kind)
        text, numbers = by_json(address, model, dtype, array)
        check("[NaN,Infinity,-Infinity," in text, f"{model}: {text}")
        check(same(numbers, array), f"{model} by json: {numbers}")
        for binary in (False, True):
            numbers = by_triton(client, model, dtype, array, binary)
            check(same(numbers, array), f"{model} by tritonclient, binary {binary}: {numbers}")
    code, said = refusal(address, "null")
    check(code == 400 and "binary" in said and "NaN" in said, f"null: {code} {said}")
    done()


main(*sys.argv[1:])

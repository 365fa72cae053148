"""AWS CRT client for scripts/bench/s3: reads one object into memory for each line of standard input.

    awscrt_get.py HOST:PORT PATH FILE PART_BYTES CONCURRENCY

Prints the seconds of each read as a line of JSON. FILE has the object's expected bytes, which are compared after the
time is taken.
"""

import json
import sys
import time

from awscrt import http, io, s3


def main():
    host, path, file, part_bytes, concurrency = sys.argv[1:]
    with open(file, "rb") as source:
        want = source.read()
    bootstrap = io.ClientBootstrap(io.EventLoopGroup(), io.DefaultHostResolver(io.EventLoopGroup()))
    client = s3.S3Client(
        bootstrap=bootstrap, region="us-east-1", tls_mode=s3.S3RequestTlsMode.DISABLED, part_size=int(part_bytes),
        multipart_upload_threshold=int(part_bytes), throughput_target_gbps=100.0,
        max_active_connections_override=int(concurrency),
    )
    for _ in sys.stdin:
        began = time.perf_counter()
        # Zero pages of the system, touched first by the copies: what the other readers' fresh buffers are.
        into = bytearray(len(want))
        view = memoryview(into)

        def on_body(chunk, offset, **_):
            view[offset:offset + len(chunk)] = chunk

        request = http.HttpRequest("GET", path, http.HttpHeaders([("Host", host), ("Content-Length", "0")]))
        client.make_request(type=s3.S3RequestType.GET_OBJECT, request=request, on_body=on_body).finished_future.result(60)
        seconds = time.perf_counter() - began
        if into != want:
            sys.exit("awscrt read wrong bytes")
        print(json.dumps({"seconds": seconds}), flush=True)


main()

"""Pictures a second and milliseconds of an answer of `serve`, beside the bare forward pass and ONNX
Runtime's of the same network, exported.

    python3 benchmarks/serving.py RUN --clients 1 8 32

Clients in threads of this process send PNG pictures of digits one after another.
"""

from __future__ import annotations

import argparse
import http.client
import io
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import dnnstack
import numpy as np
import onnxruntime
from PIL import Image
from processes import TOOL


def asked(port: int, picture: bytes, seconds: float) -> list[float]:
    """The seconds of each answer to one client, which keeps its connection."""
    call, found, end = http.client.HTTPConnection("127.0.0.1", port), [], time.time() + seconds
    while time.time() < end:
        begun = time.perf_counter()
        call.request("POST", "/predict?raw=1", picture, {"Content-Type": "image/png"})
        assert call.getresponse().read().startswith(b'{"path"')
        found.append(time.perf_counter() - begun)
    return found


def rate_of(compute: Callable[[np.ndarray], object], batch: np.ndarray) -> float:
    """Pictures a second, by the median of 100 calls."""
    times = []
    for _ in range(100):
        begun = time.perf_counter()
        compute(batch)
        times.append(time.perf_counter() - begun)
    return len(batch) / median(times)


def onnx_session(model: dnnstack.Classifier, threads: int) -> onnxruntime.InferenceSession:
    """The network in ONNX Runtime, on as many threads."""
    how = onnxruntime.SessionOptions()
    how.intra_op_num_threads = threads
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/net.onnx"
        model.export(path, check=False, raw=True)
        return onnxruntime.InferenceSession(path, how, providers=["CPUExecutionProvider"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    model, file = dnnstack.load(options.run, threads=options.threads), io.BytesIO()
    channels, height, width = model.input_shape
    Image.effect_noise((width, height), 80).save(file, "PNG")
    session = onnx_session(model, options.threads)
    for count in (1, 16, 256):
        batch = np.zeros((count, channels, height, width), np.uint8)
        own = rate_of(model.predict_proba, batch)
        theirs = rate_of(lambda x: session.run(None, {"images": x}), batch.astype(np.float32))
        print(f"bare forward of {count:3}: {own:,.0f} pictures/s, ONNX Runtime {theirs:,.0f}")
    words = ["serve", options.run, "--port", "0", "--quiet", "--threads", str(options.threads)]
    with subprocess.Popen([*TOOL, *words], stdout=subprocess.PIPE, text=True) as server:
        port = int(server.stdout.readline().rpartition(":")[2])
        for clients in options.clients:
            with ThreadPoolExecutor(clients) as pool:
                how = (asked, port, file.getvalue(), options.seconds)
                each = [pool.submit(*how) for _ in range(clients)]
            found = sorted(t for one in each for t in one.result())
            rate, half = len(found) / options.seconds, 1000 * median(found)
            print(f"{clients:2} clients: {rate:9,.0f} pictures/s, {half:.1f} ms each")
        server.terminate()


if __name__ == "__main__":
    main()

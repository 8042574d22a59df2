"""cuDNN's functions that its frontend lacks, by ctypes: pooling, activation, softmax,
local response normalisation.

One handle serves these and the frontend's graphs.
"""

from __future__ import annotations

import ctypes as C
from ctypes import byref, c_char_p, c_double, c_float, c_int, c_size_t, c_uint, c_void_p
from typing import Any

from ....common.errors import BackendUnavailableError, CudnnError
from ....common.native import Owned
from ....graph.graph import Shape
from .runtime import cudnn_library, device, frontend

FLOAT = 0
POOLING = {"max": 3, "avg": 2}  # max deterministic; average without padding
ACTIVATION = {"sigmoid": 0, "relu": 1, "tanh": 2, "silu": 6}
# NaN stays NaN, as everywhere else.
PROPAGATE_NAN = 1
SOFTMAX_ACCURATE, SOFTMAX_LOG, MODE_CHANNEL = 1, 2, 1
# cudnnLRNMode_t and cudnnDivNormMode_t: the only ones there are.
ACROSS_CHANNELS, PRECOMPUTED_MEANS = 0, 0


def _check_cuda(cudnn: int, cupy: int) -> None:
    """Raise BackendUnavailableError if cuDNN and CuPy are made for different CUDA versions.

    The packages of cuDNN for both overwrite each other's files.
    """
    if cudnn == cupy:
        return
    raise BackendUnavailableError(
        f"device 'cuda': cuDNN is made for CUDA {cudnn}, CuPy for CUDA {cupy}; keep one: "
        "pip uninstall nvidia-cudnn-cu12 nvidia-cudnn-cu13, then pip install --force-reinstall "
        f"'dnnstack[cuda{cupy}]', or use --device cpu"
    )


class Cudnn:
    """A cuDNN handle on a stream, and the library's plain functions."""

    def __init__(self, stream: Any) -> None:
        self._frontend = frontend()
        self._dll = C.CDLL(cudnn_library())
        self._dll.cudnnGetErrorString.restype = c_char_p
        self._dll.cudnnGetVersion.restype = c_size_t
        self._dll.cudnnGetCudartVersion.restype = c_size_t
        _check_cuda(int(self._dll.cudnnGetCudartVersion()) // 1000, device().cuda_version // 1000)
        handle = int(self._frontend.create_handle())
        self._owned = Owned(handle, self._frontend.destroy_handle)
        self.handle = handle
        self.stream = stream
        self._frontend.set_stream(handle=handle, stream=stream.ptr)
        self.one, self.zero = byref(c_float(1.0)), byref(c_float(0.0))

    @property
    def version(self) -> str:
        number = int(self._dll.cudnnGetVersion())
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def call(self, name: str, *arguments: Any, **shown: object) -> None:
        """Call a function; a status other than success raises CudnnError with ``shown``."""
        status = getattr(self._dll, name)(*arguments)
        if status:
            word = self._dll.cudnnGetErrorString(status).decode()
            buffer = C.create_string_buffer(1000)
            self._dll.cudnnGetLastErrorString(buffer, c_size_t(1000))
            detail = buffer.value.decode(errors="replace").strip()
            raise CudnnError("cuDNN", name, f"{word} {detail}".strip(), shown)

    def descriptor(self, kind: str) -> Owned:
        """A new, empty descriptor: Tensor, Pooling, Activation, LRN."""
        handle = c_void_p()
        self.call(f"cudnnCreate{kind}Descriptor", byref(handle))
        assert handle.value is not None
        destroy = getattr(self._dll, f"cudnnDestroy{kind}Descriptor")
        return Owned(handle.value, lambda h: destroy(c_void_p(h)))

    def tensor(self, shape: Shape, strides: Shape) -> Owned:
        """A descriptor of a float tensor of four dimensions, (N, C, H, W) with its strides."""
        owned = self.descriptor("Tensor")
        numbers = [c_int(value) for value in (*shape, *strides)]
        self.call(
            "cudnnSetTensor4dDescriptorEx",
            *(c_void_p(owned.handle), c_int(FLOAT), *numbers),
            shape=shape,
            strides=strides,
        )
        return owned

    def pooling(self, kind: str, kernel: Shape, padding: Shape, stride: Shape) -> Owned:
        """A pooling descriptor; windows (h, w)."""
        owned = self.descriptor("Pooling")
        numbers = [c_int(value) for value in (*kernel, *padding, *stride)]
        self.call(
            "cudnnSetPooling2dDescriptor",
            *(c_void_p(owned.handle), c_int(POOLING[kind]), c_int(PROPAGATE_NAN), *numbers),
            kernel=kernel,
            padding=padding,
            stride=stride,
        )
        return owned

    def activation(self, kind: str, alpha: float) -> Owned:
        """An activation descriptor; for SiLU (swish) beta is 1."""
        owned = self.descriptor("Activation")
        self.call(
            "cudnnSetActivationDescriptor",
            c_void_p(owned.handle),
            c_int(ACTIVATION[kind]),
            c_int(PROPAGATE_NAN),
            c_double(alpha),
            kind=kind,
        )
        if kind == "silu":
            self.call(
                "cudnnSetActivationDescriptorSwishBeta", c_void_p(owned.handle), c_double(1.0)
            )
        return owned

    def lrn(self, size: int, alpha: float, beta: float, k: float) -> Owned:
        """The descriptor of local response normalisation, across channels or around a pixel."""
        owned = self.descriptor("LRN")
        self.call(
            "cudnnSetLRNDescriptor",
            *(c_void_p(owned.handle), c_uint(size), c_double(alpha), c_double(beta), c_double(k)),
            size=size,
            alpha=alpha,
            beta=beta,
            k=k,
        )
        return owned

    def close(self) -> None:
        self._owned.close()

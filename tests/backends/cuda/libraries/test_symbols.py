"""Every function and constant that is bound by hand, against the libraries' files and headers.

Needs the files, no GPU: those of the installed packages, or of the folder that the environment's
DNNSTACK_CUDA_FILES names, such as unpacked wheels of another CUDA version.
"""

from __future__ import annotations

import ast
import ctypes
import os
import re
import struct
import sysconfig
from functools import cache
from mmap import ACCESS_READ, mmap
from pathlib import Path

import pytest
from dnnstack.backends.cuda.libraries import cublas, cublas_lt, cudnn_library, driver, overlap

ROOT = Path(os.environ.get("DNNSTACK_CUDA_FILES") or sysconfig.get_path("purelib"))
FOLDER = ROOT if "DNNSTACK_CUDA_FILES" in os.environ else ROOT / "nvidia"
DESCRIPTORS = ("Tensor", "Pooling", "Activation", "LRN")

ENUMS = {
    "CUBLAS_OP_N": 0,
    "CUBLAS_OP_T": 1,
    "CUBLAS_DEFAULT_MATH": cublas.MATH_DEFAULT,
    "CUBLAS_TF32_TENSOR_OP_MATH": cublas.MATH_TF32,
    "CUBLAS_POINTER_MODE_HOST": cublas.POINTER_HOST,
    "CUBLAS_POINTER_MODE_DEVICE": cublas.POINTER_DEVICE,
    "CUBLAS_COMPUTE_32F": cublas.COMPUTE_FLOAT,
    "CUBLAS_GEMM_DEFAULT": cublas.DEFAULT_ALGORITHM,
    "CUBLAS_COMPUTE_32F_FAST_TF32": cublas_lt.COMPUTE_TF32,
    "CUBLASLT_MATMUL_DESC_TRANSA": cublas_lt.TRANSPOSE_A,
    "CUBLASLT_MATMUL_DESC_TRANSB": cublas_lt.TRANSPOSE_B,
    "CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES": cublas_lt.MOST_WORKSPACE,
    **{
        f"CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_{side}_BYTES": number
        for side, number in zip("ABCD", cublas_lt.ALIGNMENTS, strict=True)
    },
    "CUDA_R_32F": cublas.DATA_TYPE["float32"],
    "CUDA_R_16BF": cublas.DATA_TYPE["bfloat16"],
    **{
        f"CUBLAS_STATUS_{word.upper().replace(' ', '_').replace('ARCHITECTURE', 'ARCH')}": number
        for number, word in cublas.STATUS.items()
        if word != "allocation failed"
    },
    "CUBLAS_STATUS_ALLOC_FAILED": 3,
    "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES": driver.MOST_SHARED,
    "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION": overlap.ATTRIBUTE,
    "CUDNN_DATA_FLOAT": cudnn_library.FLOAT,
    "CUDNN_POOLING_MAX_DETERMINISTIC": cudnn_library.POOLING["max"],
    "CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING": cudnn_library.POOLING["avg"],
    "CUDNN_ACTIVATION_SIGMOID": cudnn_library.ACTIVATION["sigmoid"],
    "CUDNN_ACTIVATION_RELU": cudnn_library.ACTIVATION["relu"],
    "CUDNN_ACTIVATION_TANH": cudnn_library.ACTIVATION["tanh"],
    "CUDNN_ACTIVATION_SWISH": cudnn_library.ACTIVATION["silu"],
    "CUDNN_PROPAGATE_NAN": cudnn_library.PROPAGATE_NAN,
    "CUDNN_SOFTMAX_ACCURATE": cudnn_library.SOFTMAX_ACCURATE,
    "CUDNN_SOFTMAX_LOG": cudnn_library.SOFTMAX_LOG,
    "CUDNN_SOFTMAX_MODE_CHANNEL": cudnn_library.MODE_CHANNEL,
}


def cudnn_functions():
    """The names of cuDNN's functions in the sources: called by name or as an attribute."""
    found = {
        f"cudnn{verb}{kind}Descriptor" for verb in ("Create", "Destroy") for kind in DESCRIPTORS
    }
    for path in Path(cudnn_library.__file__).parents[1].rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            name = getattr(node, "attr", None) or getattr(node, "value", None)
            if isinstance(name, str) and re.fullmatch(r"cudnn[A-Z]\w+", name):
                found.add(name)
    return sorted(found)


def cublas_lt_functions():
    """The names in the source, those put together from the kind of a descriptor included."""
    source = Path(cublas_lt.__file__).read_text("utf-8")
    found = set(re.findall(r'"(cublasLt[A-Z]\w+)"', source))
    for kind in re.findall(r'\bnew\(\s*"(\w+)"', source):
        found |= {f"cublasLt{kind}Create", f"cublasLt{kind}Destroy"}
    found |= {f"cublasLt{kind}SetAttribute" for kind in re.findall(r'\bset\(\s*"(\w+)"', source)}
    return sorted(found)


def files(pattern):
    found = sorted(FOLDER.rglob(pattern)) if FOLDER.is_dir() else []
    if not found:
        pytest.skip(f"{FOLDER}: no {pattern}; install the extra [cuda12] or [cuda13]")
    return found


@cache
def headers():
    """All headers that declare what is bound, without comments."""
    own = [*files("cublas_api.h"), *files("cublasLt.h"), *files("cudnn_*.h")]
    paths = [*own, *FOLDER.rglob("library_types.h"), *FOLDER.rglob("cuda.h")]
    text = "\n".join(path.read_text("utf-8", "replace") for path in dict.fromkeys(paths))
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)


@cache
def exported(pattern):
    """The names in the dynamic symbol tables of the shared libraries, defined ones alone."""
    names = set()
    for path in files(pattern):
        with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            names.update(symbols(data))
    return names


def symbols(data):
    """System V ABI, chapter 4: 64-bit little-endian ELF, section type 11 is the dynamic table."""
    assert data[:6] == b"\x7fELF\x02\x01"
    start = struct.unpack_from("<Q", data, 0x28)[0]
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * size) for i in range(count)]
    for _, kind, _, _, offset, length, link, _, _, entry in sections:
        if kind != 11:
            continue
        names = sections[link][4]
        for at in range(offset, offset + length, entry):
            name, _, _, section = struct.unpack_from("<IBBH", data, at)
            if section:
                yield data[names + name : data.find(b"\0", names + name)].decode()


def parameters(name):
    """How many parameters a function has by its declaration."""
    found = re.search(rf"\b{name}\s*\(([^;]*?)\)\s*;", headers(), re.S)
    assert found, f"{name} is declared nowhere"
    return 0 if found[1].strip() == "void" else found[1].count(",") + 1


@pytest.mark.parametrize("name", cublas._SIGNATURES)
def test_cublas_functions(name):
    assert name in exported("libcublas.so.1*")
    assert parameters(name) == len(cublas._SIGNATURES[name])


@pytest.mark.parametrize("name", driver._SIGNATURES)
def test_functions_of_the_driver(name):
    """The library itself comes with the driver, and its header with the runtime's package."""
    files("cuda.h")
    assert parameters(name) == len(driver._SIGNATURES[name])


@pytest.mark.parametrize("name", cublas_lt_functions())
def test_cublas_lt_functions(name):
    assert name in exported("libcublasLt.so.1*")
    assert parameters(name) > 0


def test_the_result_of_cublas_lt_s_heuristic_is_laid_out_as_declared():
    found = re.search(r"typedef struct \{([^}]*)\}\s*cublasLtMatmulHeuristicResult_t", headers())
    members = [re.sub(r"\s+", " ", member).strip() for member in found[1].split(";")]
    assert members[:5] == [
        "cublasLtMatmulAlgo_t algo",
        "size_t workspaceSize",
        "cublasStatus_t state",
        "float wavesCount",
        "int reserved[4]",
    ]
    opaque = re.search(
        r"typedef struct \{\s*uint64_t data\[8\];\s*\}\s*cublasLtMatmulAlgo_t", headers()
    )
    assert opaque
    assert ctypes.sizeof(cublas_lt._Algorithm) == 8 * 8 + 8 + 4 + 4 + 4 * 4


@pytest.mark.parametrize("name", cudnn_functions())
def test_cudnn_functions(name):
    assert name in exported("libcudnn*.so.9")
    assert parameters(name) >= 0


@pytest.mark.parametrize("name", ENUMS)
def test_constants(name):
    """By its number in the header, or by its place where it has none."""
    for prefix, file in (("CUDA_R", "library_types.h"), ("CU_", "cuda.h")):
        if name.startswith(prefix) and not list(FOLDER.rglob(file)):
            pytest.skip(f"{FOLDER}: no {file}, which the runtime's package brings")
    body = next(b for b in re.findall(r"enum\s*\w*\s*\{(.*?)\}", headers(), re.S) if name in b)
    value = -1
    for line in body.split(","):
        word, _, number = (part.strip() for part in line.partition("="))
        value = int(number, 0) if number else value + 1
        # A word of deprecation may stand between.
        if word.split()[:1] == [name]:
            assert value == ENUMS[name]
            return
    pytest.fail(f"{name} is no constant of its enumeration")

"""Our kernels compile as they are used, for the GPUs that we mean; needs NVRTC, no GPU.

NVRTC is that of the installed packages, or of the folder that DNNSTACK_CUDA_FILES names.
"""

from __future__ import annotations

import ctypes
import os
import re
import sysconfig
import zlib
from ctypes import byref, c_char_p, c_size_t, c_void_p
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
from dnnstack.backends.cuda.fused import direct_conv
from dnnstack.backends.cuda.fused.conv_tilings import tilings
from dnnstack.backends.cuda.fused.filter_tilings import filter_tilings
from dnnstack.backends.cuda.fused.tensor_conv import ALONE
from dnnstack.backends.cuda.fused.tilings import Geometry
from dnnstack.backends.cuda.fused.warpgroup_tilings import (
    warpgroup_filter_tilings,
    warpgroup_tilings,
)
from dnnstack.backends.cuda.libraries import kernels, peers
from dnnstack.backends.cuda.libraries.layout import BFLOAT, FLOAT, Layout
from dnnstack.backends.cuda.libraries.runtime import H200
from dnnstack.backends.cuda.operations import ranks_end
from dnnstack.backends.cuda.operations.peers import FILE
from dnnstack.backends.cuda.operations.pool import _apart
from dnnstack.graph.geometry import Window
from dnnstack.graph.graph import Tensor
from dnnstack.graph.ops import ACTIVATIONS, Conv2d, Pool2d

from ....support.formulas import VARIANTS
from ....support.tensor_convs import draw
from ....support.tensor_products import draw_product
from ....support.update_formulas import FORMULAS
from ....support.weight_updates import draw as draw_update
from ....support.weight_updates import promising
from ..conftest import FakeToolchain

ROOT = Path(os.environ.get("DNNSTACK_CUDA_FILES") or sysconfig.get_path("purelib"))
FOLDER = ROOT if "DNNSTACK_CUDA_FILES" in os.environ else ROOT / "nvidia"
CHOICES = {"layout": "nhwc", "pad": "8", "streams": "2"}
ARCHITECTURES = ("sm_90", "sm_80")
EVERYTHING = os.environ.get("DNNSTACK_KERNELS") == "all"
# Bytes that a kernel may keep in memory for want of registers.
MOST_SPILLED, ANY = 64, float("inf")


def installed():
    return sorted(FOLDER.rglob("libnvrtc.so.1*")) if FOLDER.is_dir() else []


def libraries():
    """The NVRTC of a test: by its name one of those installed; DNNSTACK_KERNELS=all: all."""
    found = installed()
    if not found:
        pytest.skip(f"{FOLDER}: no libnvrtc; install the extra [cuda12] or [cuda13]")
    if len(found) < 2 or EVERYTHING:
        return found
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
    return [found[zlib.crc32(test.encode()) % len(found)]]


@pytest.fixture(params=ARCHITECTURES if EVERYTHING else ["one of both"])
def architecture(request):
    """Likewise one of the two, or both."""
    if request.param in ARCHITECTURES:
        return request.param
    return ARCHITECTURES[zlib.crc32(request.node.name.encode()) % 2]


def compile_source(library, code, options):
    """NVRTC's log, "" where there is nothing to say; raises AssertionError with it on failure."""
    nvrtc = ctypes.CDLL(str(library))
    program = c_void_p()
    assert nvrtc.nvrtcCreateProgram(byref(program), code.encode(), b"kernels", 0, None, None) == 0
    words = (c_char_p * len(options))(*(option.encode() for option in options))
    status = nvrtc.nvrtcCompileProgram(program, len(options), words)
    size = c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(byref(program))
    assert status == 0, log.value.decode()
    return log.value.decode()


def logs(code, numbers, architecture, most=MOST_SPILLED):
    """What every NVRTC that there is says of code with these numbers, which must compile, and keep
    all but ``most`` bytes in registers."""
    options = [f"-D{name}={value}" for name, value in numbers.items()]
    options += ["-std=c++17", f"--gpu-architecture={architecture}", "--ptxas-options=-v"]
    found = []
    for library in libraries():
        found.append(compile_source(library, code, options))
        spilled = [int(size) for size in re.findall(r"(\d+) bytes spill", found[-1])]
        assert max(spilled, default=0) <= most, f"{library.name} {options}\n{found[-1]}"
    return found


def test_continuous_integration_has_both_versions():
    if "DNNSTACK_EXPECT_NVRTC" not in os.environ:
        pytest.skip("only where DNNSTACK_EXPECT_NVRTC is set")
    assert {path.name for path in installed()} == {"libnvrtc.so.12", "libnvrtc.so.13"}


@pytest.mark.parametrize(
    ("precision", "architecture"), [("tf32", "sm_90"), ("bf16", "sm_90"), ("bf16", "sm_80")]
)
def test_kernels_compile_and_keep_to_their_registers(
    bound, sections, monkeypatch, precision, architecture
):
    made, submit = {}, FakeToolchain.submit
    weights = "train/dense_1/filter/gemm"

    def remember(self, source, options):
        others = (option for option in options if not option.startswith("-arch="))
        made[(source, tuple(others))] = None
        return submit(self, source, options)

    monkeypatch.setattr(FakeToolchain, "submit", remember)
    for name, fusion in (("lenet", True), ("lenet", False), ("cifar", True), ("deep", True)):
        graphs = sections(name, fusion=fusion)
        further = [{"ending": "tail,batch"}]
        if name == "lenet":
            further.append({weights: "e2-2-2-2", "ending": "tail,batch"})
        for more in ({}, *(further if fusion else ())):
            executable, _ = bound(graphs, precision, CHOICES | more)
            executable.close()
    assert len(made) > 5
    wanted = (f"--gpu-architecture={architecture}", "--ptxas-options=-v")
    said = 0
    for library in libraries():
        for code, options in made:
            log = compile_source(library, code, (*options, *wanted))
            spilled = [int(size) for size in re.findall(r"(\d+) bytes spill", log)]
            # NVRTC 13 says nothing of what it finds in its own cache.
            said += len(spilled)
            assert max(spilled, default=0) <= MOST_SPILLED, f"{library.name} {options}\n{log}"
    assert said


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("augment.cu", None),
        ("mix.cu", None),
        ("least_sure.cu", None),
        ("optimizers.cu", None),
        ("norm.cu", "gelu"),
        ("statistics.cu", None),
        ("collectives.cu", None),
        ("sharing.cu", None),
        ("whiten.cu", None),
        ("classic.cu", None),
        ("im2col.cu", None),
        ("lrn.cu", None),
        ("lecture.cu", None),
    ],
)
@pytest.mark.parametrize("bfloat", [0, 1])
def test_kernels_that_those_nets_do_not_use(file, kind, bfloat):
    numbers = {"BFLOAT": bfloat}
    if kind is not None:
        numbers |= {"KIND": ACTIVATIONS.index(kind), "EACH": 8 if bfloat else 4}
    logs(kernels.source_of(file), numbers, "sm_90")


@pytest.mark.parametrize(("bfloat", "each"), [(0, 4), (1, 4), (1, 8)])
@pytest.mark.parametrize("kind", [None, "relu", "tanh"])
def test_batch_norm_at_the_end_of_a_residual_block(kind, bfloat, each, architecture):
    fixed = {"BFLOAT": bfloat, "EACH": each, "TERMS": 2, "WRITES": 1, "KEEPS_NAN": 1, "ADDS": 1}
    if kind is not None:
        fixed["KIND"] = ACTIVATIONS.index(kind)
    logs(kernels.source_of("norm.cu"), fixed, architecture)


@pytest.mark.parametrize("dtype", [FLOAT, BFLOAT])
@pytest.mark.parametrize(
    ("kernel", "stride", "size"),
    [(1, 2, 32), (2, 2, 15), (3, 4, 32), (4, 4, 8), (7, 7, 7), (8, 8, 8), (56, 1, 56)],
)
def test_pooling_where_windows_lie_apart(kernel, stride, size, dtype, architecture):
    window = Window((kernel, kernel), (stride, stride))
    shapes = [(8, 24, size, size), (8, 24, *window.output(size, size))]
    x, y = (Tensor("x", shape, FLOAT, "activation") for shape in shapes)
    layouts = (Layout(shape, shape, True, dtype=dtype) for shape in shapes)
    binder = SimpleNamespace(arithmetic=SimpleNamespace(fusion=True))
    fixed = _apart(binder, Pool2d(x=x, y=y, window=window, kind="avg"), *layouts)
    numbers = {**dict(fixed), "BFLOAT": int(dtype == BFLOAT)}
    logs(kernels.source_of("disjoint_pool.cu"), numbers, architecture, 0)


@pytest.mark.parametrize(
    ("file", "more"),
    [
        (FILE, {"WORKERS": peers.BLOCKS, "BFLOAT": 0}),
        (FILE, {"WORKERS": peers.BESIDE_BLOCKS, "BFLOAT": 0}),
        *(
            (
                f"{ranks_end.FUNCTION}.cu",
                {"WORKERS": peers.BLOCKS, "SAMPLES": n, "BFLOAT": bfloat, "LINES": lines},
            )
            for n, bfloat, lines in ((1, 0, 0), (4, 0, 1), (4, 1, 1))
        ),
    ],
)
@pytest.mark.parametrize("ranks", [2, 3, peers.MOST_RANKS])
def test_sums_over_ranks(ranks, file, more):
    numbers = {"RANKS": ranks, "BLOCKS": peers.BLOCKS, "SIZE": peers.MOST, **more}
    logs(kernels.source_of(file), numbers, "sm_90")


@pytest.mark.parametrize("name", [*VARIANTS, *FORMULAS])
def test_formulas(name):
    file, formula = "elementwise_update.cu", FORMULAS.get(name)
    numbers = {"BFLOAT": 0}
    if formula is None:
        file, formula = "row_loss.cu", VARIANTS[name].formula
        numbers["WIDE"] = 0 if VARIANTS[name].target == "class" else 5
    numbers["STATES"] = len(getattr(formula, "families", ()))
    logs(kernels.source_of(file, formula), numbers, "sm_90", ANY)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("filters", "kernel"), [(24, (2, 2)), (64, (3, 3)), (128, (4, 4))])
def test_direct_convolutions(filters, kernel, dtype, architecture):
    """Every shape of the loops."""
    window = Window(kernel)
    shape = (64, filters, *window.output(32, 32))
    shapes = {"x": (64, 3, 32, 32), "w": (filters, 3, *kernel), "y": shape}
    ends = {name: Tensor(name, size, "float32", "activation") for name, size in shapes.items()}
    op = Conv2d(**ends, window=window, activation="gelu")
    y = Layout(shape, (64, 128, *shape[2:]), True, dtype=dtype)
    fixed = direct_conv.geometry_of(op, y) | {"BFLOAT": int(dtype == "bfloat16")}
    for numbers in direct_conv.shapes_of(op, y):
        tensor = "OCTETS" in numbers
        code = kernels.source_of(direct_conv.TENSOR_FILE if tensor else direct_conv.FILE)
        # NVRTC 12 keeps more of what adds up the slices of 64 filters there than 13 does.
        logs(code, fixed | numbers, architecture, 2 * MOST_SPILLED)


@pytest.mark.parametrize("kind", ["forward", "data", "filter"])
@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_convolutions_on_tensor_cores(seed, pooled, kind, architecture):
    """Of any geometry and tiling; those of a common one keep to their registers."""
    drawn = draw(seed, kind, pooled)
    file = "tensor_filter.cu" if kind == "filter" else "tensor_conv.cu"
    numbers = drawn.geometry.numbers() | drawn.tiling.numbers | {"BFLOAT": int(drawn.bf16)}
    numbers |= {"BIAS": 1, "DATA": int(kind == "data"), "ACTIVATION": seed - 1}
    channels = drawn.geometry.x[0] if kind == "data" else drawn.geometry.y[0]
    numbers |= with_max_pool(kind, channels - seed) if pooled else ALONE
    numbers["SUMS"] = int(kind == "forward" and not pooled and seed % 2 == 0)
    if kind == "filter" and not pooled:
        numbers["SLOPE"] = seed - 1
    logs(kernels.source_of(file), numbers, architecture, ANY)


@pytest.mark.parametrize("kind", ["forward", "data", "filter", "both"])
@pytest.mark.parametrize("seed", range(8))
def test_products_on_tensor_cores(seed, kind, architecture):
    """Of any sizes and tiling, with any activation."""
    drawn = draw_product(seed, kind, 600, 900)
    numbers = {"BFLOAT": int(drawn.bf16), "ACTIVATION": seed - 1}
    numbers |= drawn.geometry.numbers() | drawn.tiling.numbers
    logs(kernels.source_of("tensor_dense.cu"), numbers, architecture)


@pytest.mark.parametrize("which", [*range(6), "LeNet", "MLP"])
@pytest.mark.parametrize("dtype", [FLOAT, BFLOAT])
def test_updates_of_dense_weights(which, dtype, architecture):
    """Of any sizes and tiling, and the promising ones of common layers."""
    found = [draw_update(which, dtype=dtype)] if isinstance(which, int) else promising(which, dtype)
    for drawn in found:
        logs(kernels.source_of("dense_update.cu"), drawn.numbers(), architecture)


@pytest.mark.parametrize("dtype", [FLOAT, BFLOAT])
@pytest.mark.parametrize("kind", ["data", "filter"])
def test_gradients_of_stride_2_on_tensor_cores(kind, dtype, architecture):
    """The promising tilings of ResNet's keep to their registers."""
    x, y = (16, 32, 32), (32, 32, 32)
    ends = (y, x) if kind == "data" else (x, y)
    geometry = Geometry(*ends, Window((3, 3), padding=(1,) * 4), kind == "data", dtype)
    fixed = geometry.numbers() | {"BIAS": 1, "DATA": int(kind == "data"), "ACTIVATION": -1}
    fixed |= ALONE | {"FROM_POOL": 1, "STRIDED": 1, "POOLED": y[0], "BFLOAT": int(dtype == BFLOAT)}
    file, find = "tensor_conv.cu", tilings
    if kind == "filter":
        file, find = "tensor_filter.cu", filter_tilings
    for tiling in find(geometry, 128, 4, H200):
        logs(kernels.source_of(file), fixed | tiling.numbers, architecture)


def with_max_pool(kind, stored):
    return ALONE | {"POOL" if kind == "forward" else "FROM_POOL": 1, "POOLED": stored}


@pytest.mark.parametrize("dtype", [FLOAT, BFLOAT])
@pytest.mark.parametrize(
    ("kind", "pooled"), [("sums", False), *product(("forward", "data", "filter"), (False, True))]
)
def test_the_promising_tilings_keep_to_their_registers(kind, dtype, pooled):
    x, y = (24, 12, 12), (56, 8, 8)
    ends = (y, x) if kind == "data" else (x, y)
    geometry = Geometry(*ends, Window((5, 5)), kind == "data", dtype)
    file = "tensor_filter.cu" if kind == "filter" else "tensor_conv.cu"
    fixed = geometry.numbers() | {"BIAS": 1, "DATA": int(kind == "data"), "ACTIVATION": -1}
    fixed |= with_max_pool(kind, 50) if pooled else ALONE
    fixed["SUMS"] = int(kind == "sums")
    find = filter_tilings if kind == "filter" else tilings
    found = find(geometry, 64, 40, H200)
    if pooled and kind == "forward":
        found = [each for each in found if each.pools]
    assert len(found) >= 8
    for tiling in found[: 8 : 1 if EVERYTHING else 2]:
        numbers = fixed | tiling.numbers | {"BFLOAT": int(dtype == BFLOAT)}
        logs(kernels.source_of(file), numbers, "sm_90")


def by_warpgroups(kind):
    return "warpgroup_filter.cu" if kind == "filter" else "warpgroup_conv.cu"


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("kind", ["forward", "data", "filter"])
@pytest.mark.parametrize(
    "sizes", [((24, 12, 12), (56, 8, 8), 5, 0), ((24, 31, 31), (64, 31, 31), 3, 1)]
)
def test_products_of_warpgroups_keep_to_their_registers(sizes, kind, pooled):
    """And none waits for another where it need not, of which ptxas would tell."""
    x, y, size, padding = sizes
    window = Window((size, size), padding=(padding,) * 4)
    geometry = Geometry(*((y, x) if kind == "data" else (x, y)), window, kind == "data", BFLOAT)
    fixed = geometry.numbers() | {"DATA": int(kind == "data"), "ACTIVATION": -1, "BFLOAT": 1}
    fixed["BIAS"] = 0 if kind == "data" else padding
    fixed |= with_max_pool(kind, y[0] - 6) if pooled else ALONE
    find = warpgroup_filter_tilings if kind == "filter" else warpgroup_tilings
    found = find(geometry, 512, 2, H200)
    assert len(found) == 2
    for tiling in found:
        numbers = fixed | tiling.numbers
        for log in logs(kernels.source_of(by_warpgroups(kind)), numbers, "sm_90a"):
            assert "GMMA" not in log.upper(), log


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("kind", ["forward", "data", "filter"])
@pytest.mark.parametrize("seed", range(2))
def test_products_of_warpgroups(seed, kind, pooled):
    """Of any geometry."""
    drawn = draw(seed, kind, pooled, warpgroups=True)
    numbers = drawn.geometry.numbers() | drawn.tiling.numbers | {"BFLOAT": 1}
    numbers |= {"DATA": int(kind == "data"), "ACTIVATION": seed - 1, "BIAS": seed % 2}
    channels = drawn.geometry.x[0] if kind == "data" else drawn.geometry.y[0]
    numbers |= with_max_pool(kind, channels - seed) if pooled else ALONE
    for log in logs(kernels.source_of(by_warpgroups(kind)), numbers, "sm_90a", ANY):
        assert "GMMA" not in log.upper(), log

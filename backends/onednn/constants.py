"""Numbers of oneDNN 3's C API (dnnl_types.h and dnnl_common_types.h of 3.2)."""

from __future__ import annotations

STATUS = (
    "success",
    "out_of_memory",
    "invalid_arguments",
    "unimplemented",
    "last_impl_reached",
    "runtime_error",
    "not_required",
    "invalid_graph",
    "invalid_graph_op",
    "invalid_shape",
    "invalid_data_type",
)
MAX_NDIMS = 12
ENGINE_CPU = 1
STREAM_IN_ORDER = 1

DATA_TYPES = {"bfloat16": 2, "float32": 3, "int32": 4, "int8": 5, "uint8": 6}
DATA_TYPE_NAMES = {2: "bf16", 3: "f32", 4: "s32", 5: "s8", 6: "u8"}

PLAIN_TAGS = {1: 2, 2: 3, 3: 4, 4: 5, 5: 6}  # a, ab, abc, abcd, abcde by number of dimensions
LAYOUT_TAGS = {"any": 1, "ba": 14, "acb": 15, "nchw": 5, "nhwc": 22, "nChw16c": 78, "nChw8c": 102}

FORWARD_TRAINING, FORWARD_INFERENCE, BACKWARD = 64, 96, 128
CONVOLUTION_DIRECT, CONVOLUTION_WINOGRAD = 1, 2
POOLING = {"max": 511, "avg": 1023}  # avg: exclude padding
AVERAGE_WITH_PADDING = 767
BINARY = {"add": 131056, "mul": 131057, "div": 131060, "sub": 131061}
SOFTMAX_ACCURATE = 196608
LRN_ACROSS_CHANNELS, LRN_WITHIN_CHANNEL = 2815, 3071
ELTWISE_ABS, ELTWISE_SQRT, ELTWISE_LINEAR = 36, 37, 38
ELTWISE = {
    "relu": 32,
    "leaky_relu": 32,
    "sigmoid": 41,
    "tanh": 33,
    "elu": 34,
    "softplus": 39,
    "silu": 44,
    "gelu": 49,
    "gelu_tanh": 43,
    "relu6": 47,
    "hardsigmoid": 40,
    "hardswish": 52,
    "mish": 51,
}
ELTWISE_FROM_OUTPUT = {"relu": 256, "tanh": 257, "elu": 258, "sigmoid": 260, "relu6": 262}
ELTWISE_FROM_OUTPUT["leaky_relu"] = ELTWISE_FROM_OUTPUT["relu"]
# Kinds whose alpha and beta are fixed parts of our formula.
ELTWISE_NUMBERS = {
    "softplus": (1.0, 0.0),
    "silu": (1.0, 0.0),
    "relu6": (0.0, 6.0),
    "hardsigmoid": (1 / 6, 0.5),
    "hardswish": (1 / 6, 0.5),
}
# 1.7159 tanh(2 x / 3) has no algorithm of its own, so three run in a row, each with alpha and beta.
SCALED_TANH = (
    (ELTWISE_LINEAR, 2.0 / 3.0, 0.0),
    (ELTWISE["tanh"], 0.0, 0.0),
    (ELTWISE_LINEAR, 1.7159, 0.0),
)

QUERY_IMPL_INFO = 8
QUERY_EXEC_ARG_MD = 255
# What can be asked of a layout: numbers, and arrays of them.
ASK_NUMBER = {"ndims": 256, "data_type": 258, "inner_nblks": 263}
ASK_ARRAY = {"strides": 14, "dims": 257, "inner_blks": 264, "inner_idxs": 265}

SCRATCHPAD_USER = 1

# The arguments of primitives by name. Post-operations, and the sources of sums and concatenations,
# are numbered.
ARGUMENTS = {
    "src": 1,
    "src_1": 2,
    "dst": 17,
    "weights": 33,
    "bias": 41,
    "workspace": 64,
    "scratchpad": 80,
    "diff_src": 129,
    "diff_dst": 145,
    "diff_weights": 161,
    "diff_bias": 169,
    "mean": 49,
    "variance": 50,
    "scale": 51,
    "shift": 52,
    "diff_scale": 255,
    "diff_shift": 256,
    "scale_src": 4096 | 1,
    "scale_dst": 4096 | 17,
    "scale_weights": 4096 | 33,
    "scale_src_1": 4096 | 2,
    **{f"post_op_{at}_src_1": 32768 * (at + 1) | 2 for at in range(32)},
    **{f"multiple_src_{at}": 1024 + at for at in range(1024)},
}

ISA_NAMES = {
    1: "sse41",
    3: "avx",
    7: "avx2",
    15: "avx2_vnni",
    31: "avx2_vnni_2",
    39: "avx512_core",
    103: "avx512_core_vnni",
    231: "avx512_core_bf16",
    495: "avx512_core_fp16",
    4079: "avx512_core_amx",
    8175: "avx512_core_amx_fp16",
}
AVX2_BIT, AVX2_VNNI_BIT, AVX512_BIT, AVX512_VNNI_BIT, AVX512_BF16_BIT = 4, 8, 32, 64, 128

"""Products of 8-bit integers: exact in 32 bits, scaled and activated by the same primitive.

Weights are quantized, and scales worked out, when a section is entered. Activations of integers lie
in a byte each, pictures as NHWC, for which oneDNN has its kernels.
"""

from __future__ import annotations

from ...graph.ops import Quantization, Quantize, QuantizedConv2d, QuantizedMatMul
from ..base import BoundCall
from ..reference.quantized import quantized_weights, scales_and_sums
from .bind import Binder, binds
from .constants import CONVOLUTION_DIRECT, ELTWISE, FORWARD_INFERENCE
from .library import Dims, library
from .memory import Descriptor, Memory
from .primitive import Attributes, NoFastKernel, PrimitiveDesc, Step, first_fast, reorder_desc

_Product = QuantizedConv2d | QuantizedMatMul


def _dtype(of: Quantization | None) -> str:
    if of is None:
        return "float32"
    return "int8" if of.signed else "uint8"


def _layout(shape: tuple[int, ...], of: Quantization | None) -> Descriptor:
    return Descriptor.of(shape, "nhwc" if len(shape) == 4 else "plain", _dtype(of))


@binds(Quantize)
def quantize(b: Binder, op: Quantize) -> None:
    """A copy to another type, which is divided by a scale on the way."""
    source, target = b.home(op.x), b.output(op.q, _layout(op.q.shape, op.to))
    desc = reorder_desc(source.descriptor, target.descriptor, Attributes(("dst",)))
    scale = b.constant(Descriptor.of((1,)), op.to.scale)
    b.primitive(op, desc, {"src": source, "dst": target, "scale_dst": scale})


@binds(QuantizedConv2d)
def quantized_conv2d(b: Binder, op: QuantizedConv2d) -> None:
    top, bottom, left, right = op.window.padding
    holes = [each - 1 for each in op.window.dilation]
    slide = (Dims(*op.window.stride), Dims(*holes), Dims(top, left), Dims(bottom, right))
    filters, inner, *kernel = op.w.shape
    shape = op.w.shape
    if op.groups > 1:
        shape = (op.groups, filters // op.groups, inner, *kernel)
    arguments = (FORWARD_INFERENCE, CONVOLUTION_DIRECT, *_operands(op, shape), *slide)
    _product(b, op, "convolution_forward", arguments, shape)


@binds(QuantizedMatMul)
def quantized_matmul(b: Binder, op: QuantizedMatMul) -> None:
    arguments = (FORWARD_INFERENCE, *_operands(op, op.w.shape))
    _product(b, op, "inner_product_forward", arguments, op.w.shape)


def _operands(op: _Product, shape: tuple[int, ...]) -> tuple[Descriptor, ...]:
    return (
        _layout(op.x.shape, op.given),
        Descriptor.of(shape, "any", "int8"),
        Descriptor.of((op.w.shape[0],)),
        _layout(op.y.shape, op.to),
    )


def _product(
    b: Binder, op: _Product, kind: str, arguments: tuple[object, ...], shape: tuple[int, ...]
) -> None:
    """``shape``: of the weights as the library sees them, by groups."""
    if not library().has_int8():
        raise NoFastKernel
    # One scale for each output: for the first axis, or the first two.
    masks = {"src": 0, "weights": 3 if len(shape) == 5 else 1}
    if op.to is not None:
        masks["dst"] = 0
    attributes = Attributes(masks, ((ELTWISE["relu"], 0.0, 0.0),) if op.relu else ())
    details = {"post_op": "relu"} if op.relu else {}
    desc = first_fast(kind, [(*arguments, attributes)], details)
    one = Descriptor.of((1,))
    memories = {
        "src": b.want(op.x, desc.descriptor("src")),
        "dst": b.output(op.y, desc.descriptor("dst")),
        "scale_src": b.constant(one, op.given.scale),
        **_prepared(b, op, desc, shape),
    }
    if op.to is not None:
        memories["scale_dst"] = b.constant(one, op.to.scale)
    b.primitive(op, desc, memories, details)


def _prepared(
    b: Binder, op: _Product, desc: PrimitiveDesc, shape: tuple[int, ...]
) -> dict[str, Memory]:
    """Weights, their scales and the sums behind them, as they are when the section is entered."""
    given = [None if t is None else b.plain(t).array(t.shape) for t in op.parameters]
    outputs = Descriptor.of((op.w.shape[0],))
    plain = b.entered(Descriptor.of(shape, "plain", "int8"))
    arranged = b.entered(desc.descriptor("weights"))
    scales, bias = b.entered(outputs), b.entered(outputs)
    integers = plain.array(op.w.shape, "int8")

    def run() -> None:
        w, *others = given
        assert w is not None
        integers[...], of_weights = quantized_weights(w)
        scales.array()[...], bias.array()[...] = scales_and_sums(op, of_weights, *others)

    b.prologue.append(Step(run, (), BoundCall(op, "numpy", "rint")))
    order = reorder_desc(plain.descriptor, arranged.descriptor)
    b.primitive(op, order, {"src": plain, "dst": arranged}, steps=b.prologue)
    return {"weights": arranged, "scale_weights": scales, "bias": bias}

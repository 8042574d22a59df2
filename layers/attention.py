"""Patches of a picture as a sequence of tokens, and attention between the tokens of a sequence."""

from __future__ import annotations

from math import prod
from typing import Annotated, Any

from ..common.errors import ShapeError
from ..common.options import Count, NotNegative, Size
from ..graph import ops
from ..graph.graph import Graph, Tensor
from .composite import Composite, backward_all, forward_all
from .conv import Conv2dLayer
from .initializers import Initializer
from .layer import UseBias
from .sequences import Conv1dLayer


class PatchEmbedding(Composite):
    """Cuts a picture into patches and makes a token of each: a product with its pixels, and a
    trained vector for its place.

    y[n,:,t] = W patch[n,t] + b + position[:,t], patches row by row. x: (N, C, H, W), W
    (``patches``): (units, C, ph, pw), position: (units, T), y: a sequence (N, units, 1, T). Raises
    ShapeError for a picture that the patches do not cover. Source: Dosovitskiy et al. 2021, eq. 1,
    without the class token: ``global_avg_pool1d`` makes one vector of all tokens.
    """

    kind = "patch_embedding"
    units: Annotated[Count, "Length of each token."]
    patch_size: Annotated[Size, "Size of the patches: number or [height, width]."]
    position_std: Annotated[
        NotNegative, "Standard deviation of the initial values of what is added at each place."
    ] = 0.02

    def build(self) -> None:
        name, size = f"{self.name}.patches", self.patch_size
        shape, units = self.input_shape, self.units
        patches = Conv2dLayer(name, shape, filters=units, kernel_size=size, stride=size)
        tokens = prod(patches.output_shape[1:])
        if tokens * patches.window.area != prod(shape[1:]):
            raise ShapeError(
                f"patches of {patches.window.kernel} do not cover a picture of {shape[1:]}; give "
                "patch_size numbers that divide its height and width"
            )
        self.take((patches,))
        self.output_shape = (units, 1, tokens)
        normal = Initializer("normal", self.position_std)
        self.position = self.parameter("position", (units, tokens), "bias", normal)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        embedded, size = forward_all(self.children, graph, x), self.position.size
        # All tokens of a picture in one row.
        rows = self.reshaped(graph, embedded, "rows", (x.shape[0], size))
        added = self.reshaped(graph, self.position, "added", (size,))
        placed = graph.add(ops.BiasAdd(x=rows, b=added, y=self.tensor(graph, "placed", rows.shape)))
        return graph.add(ops.Reshape(x=placed, y=self.output(graph, x)))

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        (patches,), size = self.children, self.position.size
        rows = self.reshaped(graph, dy, "drows", (dy.shape[0], size))
        dadded = graph.add(ops.BiasGrad(dy=rows, db=self.tensor(graph, "dadded", (size,))))
        graph.add(ops.Reshape(x=dadded, y=graph.gradient(self.position)))
        shape = dy.shape[0], *patches.output_shape
        return backward_all([patches], graph, self.reshaped(graph, rows, "dembedded", shape))


class MultiHeadAttention(Composite):
    """Replaces each token of a sequence by a mean of what all tokens say, weighted by how well they
    answer what it asks.

    Of each head: y = v softmax(k^T q / sqrt(D)) over the tokens j of k, with q, k, v a D-th part of
    the units of Wq x + bq and so on; then Wo y + bo of all heads, one after the other. x, y: (N,
    units, 1, T); Wq, Wk, Wv below each other (``qkv``): (3 units, units, 1, 1), Wo (``out``):
    (units, units, 1, 1). Raises ShapeError unless the heads divide the units. Source: Vaswani et
    al. 2017, section 3.2.
    """

    kind = "multi_head_attention"
    heads: Annotated[Count, "Number of heads, which divides the units of a token."]
    use_bias: UseBias = True

    def build(self) -> None:
        shape = self.input_shape
        if len(shape) != 3 or shape[1] != 1:
            raise ShapeError(
                f"expects a sequence of tokens (units, 1, tokens), got {shape}; 'patch_embedding' "
                "makes one of a picture"
            )
        units = shape[0]
        if units % self.heads:
            raise ShapeError(f"heads must divide units: {self.heads} does not divide {units}")
        self.factor = (units // self.heads) ** -0.5
        how: dict[str, Any] = {"kernel_size": 1, "use_bias": self.use_bias}
        qkv = Conv1dLayer(f"{self.name}.qkv", shape, filters=3 * units, **how)
        self.take((qkv, Conv1dLayer(f"{self.name}.out", shape, filters=units, **how)))

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        qkv, out = self.children
        given = forward_all([qkv], graph, x)
        q, k, v = (self._head(graph, given, at, name) for at, name in enumerate("qkv"))
        scores = self._product(graph, "scores", q, k, "a", self.factor)
        # Over the last axis, as over the channels of pictures of one pixel.
        pixels = self.reshaped(
            graph, scores, "pixels", (scores.size // scores.shape[2], scores.shape[2], 1, 1)
        )
        shares = self.tensor(graph, "shares", pixels.shape)
        graph.add(ops.Softmax(x=pixels, y=shares))
        p = self.reshaped(graph, shares, "p", scores.shape)
        graph.keep(self.name, q=q, k=k, v=v, p=p, shares=shares)
        mixed = self._product(graph, "mixed", v, p, "b")
        return forward_all([out], graph, self.reshaped(graph, mixed, "joined", x.shape))

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        (qkv, out), (q, k, v, p, shares) = self.children, graph.kept(self.name).values()
        djoined = backward_all([out], graph, dy)
        dmixed = self.reshaped(graph, djoined, "dmixed", q.shape)
        dv = self._product(graph, "dv", dmixed, p)
        dp = self._product(graph, "dp", dmixed, v, "a")
        dshares = self.reshaped(graph, dp, "dshares", shares.shape)
        dpixels = self.tensor(graph, "dpixels", shares.shape)
        graph.add(ops.SoftmaxBackward(y=shares, dy=dshares, dx=dpixels))
        dscores = self.reshaped(graph, dpixels, "dscores", p.shape)
        dq = self._product(graph, "dq", k, dscores, "b", self.factor)
        dk = self._product(graph, "dk", q, dscores, "", self.factor)
        parts = zip("qkv", (dq, dk, dv), strict=True)
        joined = tuple(self.reshaped(graph, part, f"d{n}.all", dy.shape) for n, part in parts)
        dqkv = self.tensor(graph, "dqkv", (dy.shape[0], 3 * dy.shape[1], *dy.shape[2:]))
        return backward_all([qkv], graph, graph.add(ops.Concat(parts=joined, y=dqkv)))

    def _head(self, graph: Graph, given: Tensor, at: int, name: str) -> Tensor:
        """q, k or v of all heads: (N heads, D, T)."""
        samples, units, tokens = given.shape[0], given.shape[1] // 3, given.shape[3]
        part = self.tensor(graph, f"{name}.all", (samples, units, 1, tokens))
        graph.add(ops.Slice(x=given, y=part, begin=at * units))
        return self.reshaped(graph, part, name, (samples * self.heads, units // self.heads, tokens))

    def _product(
        self, graph: Graph, name: str, a: Tensor, b: Tensor, turned: str = "", factor: float = 1.0
    ) -> Tensor:
        """factor a b of every head; ``turned``: which of the two is transposed, if any."""
        how: dict[str, Any] = {"transpose_a": turned == "a", "transpose_b": turned == "b"}
        shape = a.shape[0], a.shape[2 if turned == "a" else 1], b.shape[1 if turned == "b" else 2]
        c = self.tensor(graph, name, shape)
        return graph.add(ops.BatchMatMul(a=a, b=b, c=c, **how, factor=factor))

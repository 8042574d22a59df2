"""Our operations in PyTorch's float32: what each is compared with. Needs torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from dnnstack.graph import ops
from dnnstack.graph.graph import Op, Tensor
from dnnstack.layers.losses.hinge import MultiMargin
from dnnstack.layers.losses.mean_squared_error import MeanSquaredError
from torch.nn import functional as F

from ..update_formulas import AdagradUpdate

aten = torch.ops.aten
Value = torch.Tensor
Values = dict[Tensor, Value]
FUNCTIONS: dict[type[Op], Callable[..., Any]] = {}


def means(kind: type[Op]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        FUNCTIONS[kind] = function
        return function

    return enter


def run(draft: Any) -> dict[Tensor, Any]:
    """Every floating-point tensor that the draft computes, after its steps."""
    values: Values = {t: torch.from_numpy(v.copy()) for t, v in draft.values.items()}
    for _ in range(draft.steps):
        for op in draft.graph.ops:
            FUNCTIONS[type(op)](op, values)
    return {t: v.numpy() for t, v in values.items()}


# ---------------------------------------------------------------- elementwise

FORWARD: dict[str, Callable[[Value, float], Value]] = {
    "relu": lambda x, a: F.relu(x),
    "leaky_relu": lambda x, a: F.leaky_relu(x, a),
    "sigmoid": lambda x, a: torch.sigmoid(x),
    "tanh": lambda x, a: torch.tanh(x),
    "elu": lambda x, a: F.elu(x, a),
    "softplus": lambda x, a: F.softplus(x),
    "silu": lambda x, a: F.silu(x),
    "gelu": lambda x, a: F.gelu(x),
    "gelu_tanh": lambda x, a: F.gelu(x, approximate="tanh"),
    "relu6": lambda x, a: F.relu6(x),
    "hardsigmoid": lambda x, a: F.hardsigmoid(x),
    "hardswish": lambda x, a: F.hardswish(x),
    "mish": lambda x, a: F.mish(x),
    "scaled_tanh": lambda x, a: 1.7159 * torch.tanh(x * (2.0 / 3.0)),
}
BACKWARD: dict[str, Callable[[Value, Value, float], Value]] = {
    "relu": lambda g, y, a: aten.threshold_backward(g, y, 0.0),
    "leaky_relu": lambda g, y, a: aten.leaky_relu_backward(g, y, a, True),
    "sigmoid": lambda g, y, a: aten.sigmoid_backward(g, y),
    "tanh": lambda g, y, a: aten.tanh_backward(g, y),
    "elu": lambda g, y, a: aten.elu_backward(g, a, 1.0, 1.0, True, y),
    "softplus": lambda g, x, a: aten.softplus_backward(g, x, 1.0, 20.0),
    "silu": lambda g, x, a: aten.silu_backward(g, x),
    "gelu": lambda g, x, a: aten.gelu_backward(g, x),
    "gelu_tanh": lambda g, x, a: aten.gelu_backward(g, x, approximate="tanh"),
    "relu6": lambda g, y, a: aten.hardtanh_backward(g, y, 0.0, 6.0),
    "hardsigmoid": lambda g, x, a: aten.hardsigmoid_backward(g, x),
    "hardswish": lambda g, x, a: aten.hardswish_backward(g, x),
    "mish": lambda g, x, a: aten.mish_backward(g, x),
    # As autograd has it: the tanh is what is kept.
    "scaled_tanh": lambda g, y, a: aten.tanh_backward(1.7159 * g, y / 1.7159) * (2.0 / 3.0),
}


@means(ops.Activation)
def activation(op: ops.Activation, v: Values) -> None:
    v[op.y] = FORWARD[op.kind](v[op.x], op.alpha)


@means(ops.ActivationBackward)
def activation_backward(op: ops.ActivationBackward, v: Values) -> None:
    v[op.dx] = BACKWARD[op.kind](v[op.dy], v[op.value], op.alpha)


@means(ops.Scale)
def scale(op: ops.Scale, v: Values) -> None:
    v[op.y] = v[op.x] * op.factor


@means(ops.Add)
def add(op: ops.Add, v: Values) -> None:
    v[op.y] = sum((v[t] for t in op.terms[1:]), v[op.terms[0]])


@means(ops.ChannelScale)
def channel_scale(op: ops.ChannelScale, v: Values) -> None:
    v[op.y] = op.factor * v[op.x] * v[op.s][:, None, None]


@means(ops.ChannelScaleBackward)
def channel_scale_backward(op: ops.ChannelScaleBackward, v: Values) -> None:
    s = v[op.s].requires_grad_()
    x = v[op.x].clone().requires_grad_()
    (op.factor * x * s[:, None, None]).backward(v[op.dy])
    v[op.dx], v[op.ds] = x.grad, s.grad
    v[op.s] = s.detach()


# ---------------------------------------------------------------- products, windows


@means(ops.MatMul)
def matmul(op: ops.MatMul, v: Values) -> None:
    a = v[op.a].T if op.transpose_a else v[op.a]
    b = v[op.b].T if op.transpose_b else v[op.b]
    v[op.c] = a @ b if op.bias is None else torch.addmm(v[op.bias], a, b)
    if op.bias_grad is not None:
        v[op.bias_grad] = v[op.a].sum(0)


@means(ops.BatchMatMul)
def batch_matmul(op: ops.BatchMatMul, v: Values) -> None:
    a = v[op.a].mT if op.transpose_a else v[op.a]
    b = v[op.b].mT if op.transpose_b else v[op.b]
    v[op.c] = torch.bmm(a, b) * op.factor


@means(ops.BiasGrad)
def bias_grad(op: ops.BiasGrad, v: Values) -> None:
    dy = v[op.dy]
    v[op.db] = dy.sum((0, *range(2, dy.ndim)))


@means(ops.Conv2d)
def conv2d(op: ops.Conv2d, v: Values) -> None:
    v[op.y] = F.conv2d(v[op.x], v[op.w], v.get(op.bias), padding=op.window.padding[::2])


def convolution_backward(op: Any, x: Value, w: Value, v: Values, which: list[bool]) -> Any:
    pad = list(op.window.padding[::2])
    sizes = [w.shape[0]] if which[2] else None
    return aten.convolution_backward(
        v[op.dy], x, w, sizes, [1, 1], pad, [1, 1], False, [0, 0], op.groups, which
    )


@means(ops.Conv2dBackwardData)
def conv2d_backward_data(op: ops.Conv2dBackwardData, v: Values) -> None:
    x = torch.empty(op.dx.shape)
    v[op.dx] = convolution_backward(op, x, v[op.w], v, [True, False, False])[0]


@means(ops.Conv2dBackwardFilter)
def conv2d_backward_filter(op: ops.Conv2dBackwardFilter, v: Values) -> None:
    w = torch.empty(op.dw.shape)
    _, v[op.dw], db = convolution_backward(op, v[op.x], w, v, [False, True, True])
    if op.bias_grad is not None:
        v[op.bias_grad] = db


def _average(op: Any, x: Value) -> Value:
    return F.avg_pool2d(x, op.window.kernel, op.window.stride)


@means(ops.Pool2d)
def pool2d(op: ops.Pool2d, v: Values) -> None:
    v[op.y] = _average(op, v[op.x])


@means(ops.Pool2dBackward)
def pool2d_backward(op: ops.Pool2dBackward, v: Values) -> None:
    x = torch.zeros(op.dx.shape, requires_grad=True)
    _average(op, x).backward(v[op.dy])
    v[op.dx] = x.grad


# ---------------------------------------------------------------- normalisation


@means(ops.BatchNorm)
def batch_norm(op: ops.BatchNorm, v: Values) -> None:
    y, v[op.mean], v[op.inverse_std] = aten.native_batch_norm(
        v[op.x],
        v.get(op.weight),
        v.get(op.bias),
        v[op.running_mean],
        v[op.running_var],
        True,
        op.momentum,
        op.eps,
    )
    v[op.y] = F.relu(y) if op.activation else y


@means(ops.BatchNormInference)
def batch_norm_inference(op: ops.BatchNormInference, v: Values) -> None:
    rest = (v.get(op.weight), v.get(op.bias), False, 0.0, op.eps)
    v[op.y] = F.batch_norm(v[op.x], v[op.running_mean], v[op.running_var], *rest)


@means(ops.BatchNormInferenceBackward)
def batch_norm_inference_backward(op: ops.BatchNormInferenceBackward, v: Values) -> None:
    dy, var = v[op.dy], v[op.running_var]
    known = (torch.zeros_like(var), var, None, None, False, op.eps, [True, False, False])
    x = torch.zeros_like(dy)
    v[op.dx] = aten.native_batch_norm_backward(dy, x, v.get(op.weight), *known)[0]


@means(ops.BatchNormBackward)
def batch_norm_backward(op: ops.BatchNormBackward, v: Values) -> None:
    g = v[op.dy]
    if op.activation:
        g = aten.threshold_backward(g, v[op.y], 0.0)
    kept = (None, None, v[op.mean], v[op.inverse_std], True, op.eps, [True] * 3)
    dx, dw, db = aten.native_batch_norm_backward(g, v[op.x], v.get(op.weight), *kept)
    v[op.dx] = dx
    v.update({op.dw: dw} if op.dw is not None else {})
    v.update({op.db: db} if op.db is not None else {})


def _local(op: Any, x: Value) -> Value:
    if isinstance(op, ops.Lrn | ops.LrnBackward):
        return F.local_response_norm(x, op.size, op.alpha, op.beta, op.k)
    near = F.avg_pool2d(x * x, op.size, 1, op.size // 2, count_include_pad=True)
    return x / (op.k + op.alpha * near) ** op.beta


def local(op: Any, v: Values) -> None:
    v[op.y] = _local(op, v[op.x])


def local_backward(op: Any, v: Values) -> None:
    x = v[op.x].clone().requires_grad_()
    _local(op, x).backward(v[op.dy])
    v[op.dx] = x.grad


for kind in (ops.Lrn, ops.DivisiveNorm):
    FUNCTIONS[kind] = local
for kind in (ops.LrnBackward, ops.DivisiveNormBackward):
    FUNCTIONS[kind] = local_backward


# ---------------------------------------------------------------- softmax and losses


@means(ops.Softmax)
def softmax(op: ops.Softmax, v: Values) -> None:
    v[op.y] = (torch.log_softmax if op.log else torch.softmax)(v[op.x], 1)


@means(ops.SoftmaxBackward)
def softmax_backward(op: ops.SoftmaxBackward, v: Values) -> None:
    back = aten._log_softmax_backward_data if op.log else aten._softmax_backward_data
    v[op.dx] = back(v[op.dy], v[op.y], 1, torch.float32)


def _reduced(op: Any) -> str:
    return str(op.reduction)


def _wanted(op: Any, classes: int, v: Values) -> Value:
    return F.one_hot(v[op.target].long(), classes).float()


@means(ops.SoftmaxCrossEntropy)
def softmax_cross_entropy(op: ops.SoftmaxCrossEntropy, v: Values) -> None:
    rest = {"reduction": _reduced(op), "label_smoothing": op.label_smoothing}
    v[op.log_p] = torch.log_softmax(v[op.x], 1)
    v[op.loss] = F.cross_entropy(v[op.x], v[op.target].long(), **rest).reshape(1)


@means(ops.SoftmaxCrossEntropyBackward)
def softmax_cross_entropy_backward(op: ops.SoftmaxCrossEntropyBackward, v: Values) -> None:
    log_p = v[op.log_p]
    v[op.dx] = aten._log_softmax_backward_data(
        _slopes(op, op.label_smoothing, log_p.shape, v), log_p, 1, torch.float32
    )


def _slopes(op: Any, smoothing: float, shape: tuple[int, ...], v: Values) -> Value:
    """What autograd makes of nll_loss and of the mean over the classes: (N, K)."""
    n, k = shape
    weight = 1.0 / n if op.reduction == "mean" else 1.0
    g = torch.full((n, k), -smoothing / k * weight)
    g[torch.arange(n), v[op.target].long()] -= (1.0 - smoothing) * weight
    return g


def _row_loss(op: Any, x: Value, v: Values) -> Value:
    formula, target, rest = op.formula, v[op.target].long(), {"reduction": _reduced(op)}
    if isinstance(formula, MultiMargin):
        return F.multi_margin_loss(x, target, p=formula.power, margin=formula.margin, **rest)
    if isinstance(formula, ops.CrossEntropy):
        s = formula.label_smoothing
        return (1.0 - s) * F.nll_loss(x, target, **rest) - s * x.mean(1).mean()
    assert isinstance(formula, MeanSquaredError)
    loss = F.mse_loss(x, _wanted(op, x.shape[1], v), **rest)
    # Ours is a mean over the classes in any case.
    return loss if op.reduction == "mean" else loss / x.shape[1]


@means(ops.RowLoss)
def row_loss(op: ops.RowLoss, v: Values) -> None:
    v[op.loss] = _row_loss(op, v[op.x], v).reshape(1)


@means(ops.RowLossBackward)
def row_loss_backward(op: ops.RowLossBackward, v: Values) -> None:
    if isinstance(op.formula, ops.CrossEntropy):
        v[op.dx] = _slopes(op, op.formula.label_smoothing, op.dx.shape, v)
        return
    x = v[op.x].clone().requires_grad_()
    _row_loss(op, x, v).backward()
    v[op.dx] = x.grad


# ---------------------------------------------------------------- updates


@means(ops.Advance)
def advance(op: ops.Advance, v: Values) -> None:
    v[op.step] = v[op.step] + 1


def _rate(op: Any, v: Values, i: int) -> float:
    return float(v[op.rates][int(v[op.step])]) * op.factor(i)


@means(ops.SgdUpdate)
def sgd(op: ops.SgdUpdate, v: Values) -> None:
    for i, (name, gradient) in enumerate(zip(op.parameters, op.gradients, strict=True)):
        p = torch.nn.Parameter(v[name])
        p.grad = v[gradient]
        rest = {
            "momentum": op.momentum,
            "nesterov": op.nesterov,
            "weight_decay": op.weight_decay[i],
        }
        rule = torch.optim.SGD([p], _rate(op, v, i), **rest)
        if op.momentum:
            rule.state[p]["momentum_buffer"] = v[op.buffers[i]]
        rule.step()
        v[name] = p.detach()
        if op.momentum:
            v[op.buffers[i]] = rule.state[p]["momentum_buffer"]


@means(ops.AdamUpdate)
def adam(op: ops.AdamUpdate, v: Values) -> None:
    for i, (name, gradient) in enumerate(zip(op.parameters, op.gradients, strict=True)):
        p = torch.nn.Parameter(v[name])
        p.grad = v[gradient]
        kind = torch.optim.AdamW if op.decoupled else torch.optim.Adam
        rule = kind(
            [p],
            _rate(op, v, i),
            betas=(op.beta1, op.beta2),
            eps=op.eps,
            weight_decay=op.weight_decay[i],
        )
        done = int(v[op.step]) - op.start[i]
        rule.state[p] = {
            "step": torch.tensor(float(done)),
            "exp_avg": v[op.means[i]],
            "exp_avg_sq": v[op.squares[i]],
        }
        rule.step()
        v[name] = p.detach()


@means(ops.ElementwiseUpdate)
def adagrad(op: ops.ElementwiseUpdate, v: Values) -> None:
    assert isinstance(op.formula, AdagradUpdate)
    for i, (name, gradient) in enumerate(zip(op.parameters, op.gradients, strict=True)):
        p = torch.nn.Parameter(v[name])
        p.grad = v[gradient]
        rest = {"weight_decay": op.weight_decay[i], **vars(op.formula)}
        rule = torch.optim.Adagrad([p], _rate(op, v, i), **rest)
        done = int(v[op.step]) - op.start[i]
        if done:
            rule.state[p] = {"step": torch.tensor(float(done)), "sum": v[op.states[i]]}
        rule.step()
        v[name], v[op.states[i]] = p.detach(), rule.state[p]["sum"]


@means(ops.Average)
def average(op: ops.Average, v: Values) -> None:
    decay = float(v[op.decays][int(v[op.step])])
    if decay >= 0:
        for mean, value in zip(op.averages, op.values, strict=True):
            v[mean] = torch.lerp(v[value], v[mean], decay)


@means(ops.GlobalNorm)
def global_norm(op: ops.GlobalNorm, v: Values) -> None:
    each = torch.stack([torch.linalg.vector_norm(v[g]) for g in op.gradients])
    v[op.norm] = torch.linalg.vector_norm(each).reshape(1)


@means(ops.ClipByNorm)
def clip(op: ops.ClipByNorm, v: Values) -> None:
    factor = torch.clamp(op.max_norm / v[op.norm], max=1.0)
    for g in op.gradients:
        v[g] = v[g] * factor

"""JAX's training step for gpu_peers.py: all steps of a timing in one jitted fori_loop.

Matrix products of float32 use TF32, as JAX does by itself on GPUs that have it; bf16 casts
parameters and pictures, and keeps parameters, momentum and the loss in float32.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

# Else JAX takes most of the memory from the peers beside it.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np
from gpu_worker import DECAY, GAMMA, MOMENTUM, POWER, RATE, Built, Net, data, order
from jax import lax

Tree = list[dict[str, Any]]
# Steps of one loop; timings are over multiples of it.
CHUNK = 100


def build(peer: str, net: Net, variant: str, device: str) -> Built:
    """``variant``: precision/layout."""
    precision, _, layout = variant.partition("/")
    nhwc = layout == "nhwc"
    kind = jnp.bfloat16 if precision == "bf16" else jnp.float32
    images, labels = data(net)
    values = (images if not nhwc else images.transpose(0, 2, 3, 1)).astype(np.float32) / 255
    pictures, targets = jnp.asarray(values, kind), jnp.asarray(labels)
    batches = jnp.asarray(order(net))
    forward = partial(_forward, net, nhwc)

    def loss_of(parameters: Tree, x: Any, y: Any) -> Any:
        cast = jax.tree.map(lambda p: p.astype(kind), parameters)
        scores = jax.nn.log_softmax(forward(cast, x).astype(jnp.float32))
        return -jnp.mean(jnp.take_along_axis(scores, y[:, None], 1))

    def update(step: Any, state: tuple[Tree, Tree, Any]) -> tuple[Tree, Tree, Any]:
        parameters, momenta, _ = state
        index = batches[step % len(batches)]
        loss, gradients = jax.value_and_grad(loss_of)(parameters, pictures[index], targets[index])
        rate = RATE * (1 + GAMMA * step) ** -POWER
        momenta = jax.tree.map(
            lambda v, g, p: MOMENTUM * v + (g + DECAY * p), momenta, gradients, parameters
        )
        return jax.tree.map(lambda p, v: p - rate * v, parameters, momenta), momenta, loss

    @partial(jax.jit, donate_argnums=(0,))
    def loop(state: tuple[Tree, Tree, Any], first: Any) -> Any:
        # A number of turns that is known beforehand spares the host a look at each.
        return lax.fori_loop(0, CHUNK, lambda at, held: update(first + at, held), state)

    parameters = _initial(net, nhwc)
    state = (parameters, jax.tree.map(jnp.zeros_like, parameters), jnp.zeros(()))
    done = 0

    def run(steps: int) -> int:
        nonlocal state, done
        before = done
        while done < before + steps:
            state = loop(state, done)
            done += CHUNK
        jax.block_until_ready(state)
        return done - before

    versions = f"JAX {jax.__version__}, {jax.devices()[0].device_kind}"
    return Built(run, lambda: float(state[2]), versions)


def _initial(net: Net, nhwc: bool) -> Tree:
    draw = np.random.default_rng(1)
    channels, height = net.shape[0], net.shape[1]
    features = 0
    found: Tree = []
    for kind, options in net.layers:
        if kind == "conv2d":
            filters, kernel = options["filters"], options["kernel_size"]
            shape = (kernel, kernel, channels, filters)
            shape = shape if nhwc else (filters, channels, kernel, kernel)
            found.append(_uniform(draw, shape, channels * kernel * kernel, filters))
            height -= 0 if options.get("padding") == "same" else kernel - 1
            channels = filters
        elif kind == "max_pool2d":
            height //= 2
        elif kind == "flatten":
            features = channels * height * height
        elif kind == "dense":
            units = options["units"]
            found.append(_uniform(draw, (features, units), features, units))
            features = units
    return found


def _uniform(draw: Any, shape: tuple[int, ...], fan_in: int, units: int) -> dict[str, Any]:
    bound = (3 / fan_in) ** 0.5
    weight = draw.uniform(-bound, bound, shape).astype(np.float32)
    return {"weight": jnp.asarray(weight), "bias": jnp.zeros(units)}


def _forward(net: Net, nhwc: bool, parameters: Tree, x: Any) -> Any:
    names = ("NHWC", "HWIO", "NHWC") if nhwc else ("NCHW", "OIHW", "NCHW")
    window = (1, 2, 2, 1) if nhwc else (1, 1, 2, 2)
    left = iter(parameters)
    for kind, options in net.layers:
        if kind == "conv2d":
            p = next(left)
            padding = "SAME" if options.get("padding") == "same" else "VALID"
            x = lax.conv_general_dilated(x, p["weight"], (1, 1), padding, dimension_numbers=names)
            x = x + (p["bias"] if nhwc else p["bias"][:, None, None])
        elif kind == "max_pool2d":
            x = lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")
        elif kind == "flatten":
            x = x.reshape(x.shape[0], -1)
        elif kind == "dense":
            p = next(left)
            x = x @ p["weight"] + p["bias"]
        elif kind == "relu":
            x = jax.nn.relu(x)
    return x

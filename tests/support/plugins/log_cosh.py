"""The logarithm of the hyperbolic cosine, as a loss."""

import numpy as np
from dnnstack.plugins import Loss, RowFormula, one_hot


class LogCosh(RowFormula):
    """sum over k of log(cosh(p[k] - q[k])), q the one-hot target."""

    of = "p"

    def value(self, x, target):
        return np.log(np.cosh(x - one_hot(target, x))).sum(1)

    def gradient(self, x, target):
        return np.tanh(x - one_hot(target, x))


class LogCoshLoss(Loss):
    """sum over k of log(cosh(p[k] - q[k])), q the one-hot target."""

    kind = "log_cosh"
    softmax = True
    rule = LogCosh

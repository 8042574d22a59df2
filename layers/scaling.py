"""Scale: a fixed factor."""

from __future__ import annotations

from typing import Annotated

from ..graph.ops import Scale
from .layer import SingleLayer


class ScaleLayer(SingleLayer):
    """factor * x."""

    kind = "scale"
    by_pixel = True
    op = Scale
    factor: Annotated[float, "The factor."]

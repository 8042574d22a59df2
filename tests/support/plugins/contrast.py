"""A random contrast, as an augmentation."""

from typing import Annotated

from dnnstack.plugins import OwnAugmentation, Share


class Contrast(OwnAugmentation):
    """Pulls the pixels of a picture towards their mean, or away from it, by a random factor.

    It is 1 + (2 u0 - 1) strength.
    """

    kind = "contrast"
    strength: Annotated[Share, "Largest change of the factor."] = 0.5

    def apply(self, pixels, words):
        factor = 1 + (2 * self.uniform(words[:, 0]) - 1) * self.strength
        mean = pixels.mean((1, 2, 3), keepdims=True)
        return (mean + factor * (pixels - mean)).clip(0, 255)

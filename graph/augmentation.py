"""What all augmentations are, of single pictures and of pairs."""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import dataclass_transform

from ..common.records import record


@dataclass_transform(frozen_default=True)
class Augmentation:
    """One entry of the list, a frozen dataclass whose fields are its options.

    ``misfit`` says why pictures of a size do not allow it, or "".
    """

    kind: ClassVar[str]
    interpolates: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        record(cls, frozen=True)

    def misfit(self, height: int, width: int) -> str:
        return ""

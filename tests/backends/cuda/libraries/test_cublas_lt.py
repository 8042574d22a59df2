"""What cublasLt is asked, without the library."""

from __future__ import annotations

from typing import Any

import pytest
from dnnstack.backends.cuda.libraries import cublas_lt
from dnnstack.backends.cuda.libraries.cublas_lt import CublasLt
from dnnstack.common.errors import CublasError


class Silent(CublasLt):
    """Notes the calls; the heuristics fail if that is wanted."""

    def __init__(self, fails: bool) -> None:
        self.called: list[str] = []
        self.sizes: list[tuple[int, ...]] = []
        self.computing: list[Any] = []
        self.handle = self._fails = fails  # type: ignore[assignment]

    def call(self, name: str, *arguments: Any, **shown: object) -> None:
        self.called.append(name)
        if self._fails and name.endswith("GetHeuristic"):
            raise CublasError("cublasLt", name, "not supported", shown)

    def create(self, create: str, destroy: str, *arguments: Any) -> Any:
        if create == "cublasLtMatrixLayoutCreate":
            self.sizes.append(tuple(each.value for each in arguments[1:3]))
        if create == "cublasLtMatmulDescCreate":
            self.computing.append(arguments[0])
        return 0


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("tf32", [False, True])
def test_warm_asks_for_aligned_and_for_odd_sizes(fails, tf32):
    library = Silent(fails)
    library.warm(tf32)
    assert library.called.count("cublasLtMatmulAlgoGetHeuristic") == 2
    columns = [library.sizes[at][0] for at in (0, 3)]
    assert [each % 8 == 0 for each in columns] == [True, False]
    expected = cublas_lt.COMPUTE_TF32 if tf32 else cublas_lt.COMPUTE_FLOAT
    assert library.computing == [expected] * 2

"""Plans of cuDNN in the cache folder, so that the next process needs no heuristics and no trial.

To ask the heuristics for a convolution's plans, build one and verify it takes tenths of a second;
cuDNN makes a plan from its bytes in a millisecond. A file is for one convolution, the plan that was
asked for (by its number, or the first that keeps its promises), and the versions of everything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from ....common.records import dataclass
from ....common.typed_json import from_json
from . import kept
from .conv_plans import WORKSPACE_LIMIT, ConvPlans, ConvSpec, PlanFacts
from .runtime import frontend

FOLDER = "plans"
# Counts how often the trial of a plan became stricter: what passed the one before is tried again.
_TRIAL = 2


class RestoredPlan:
    """A plan made from its bytes, for one handle; it has neither pointers nor a workspace.

    ``forget``: called where it does not run, so that the next process makes the plan anew. Raises
    what the frontend raises for bytes that it does not take.
    """

    def __init__(
        self,
        handle: int,
        spec: ConvSpec,
        facts: PlanFacts,
        content: bytes,
        forget: Callable[[], None],
    ) -> None:
        self._handle, self._spec, self.facts, self._forget = handle, spec, facts, forget
        self._graph: Any = frontend().pygraph(handle=handle)
        self._graph.deserialize(handle, list(content))

    def execute(self, pointers: Mapping[int, int], workspace: int) -> None:
        """Launch it. pointers: of the device, by the facts' ids. Raises CudnnError."""
        run = self._graph._execute_plan_at_index
        try:
            # It is the only one of its graph.
            run(pointers, workspace, 0, self._handle, None, None, None)
        except Exception as error:
            self._forget()
            raise self._spec.refusal(error) from None


@dataclass(frozen=True)
class PlanFiles:
    """The files of plans for these versions; ``wanted``: the number asked for, None the first."""

    versions: tuple[str, ...]

    def _key(self, spec: ConvSpec, wanted: int | None) -> bytes:
        return kept.key_of(_TRIAL, self.versions, spec, wanted)

    def restored(self, handle: int, spec: ConvSpec, wanted: int | None) -> RestoredPlan | None:
        """The plan of a file; None if there is none that can be had."""
        key = self._key(spec, wanted)
        found = kept.read(FOLDER, key)
        if found is None:
            return None
        head, _, content = found.partition(b"\n")
        with suppress(Exception):  # the frontend raises a type of its own for each reason
            facts = from_json(head, PlanFacts)
            if facts.workspace <= WORKSPACE_LIMIT:
                forget = partial(kept.forget, FOLDER, key)
                return RestoredPlan(handle, spec, facts, content, forget)
        return None

    def keep(self, plans: ConvPlans, wanted: int | None, plan: int, verified: bool) -> None:
        """Store a plan that was built last."""
        content = plans.serialized(plan)
        if content is not None:
            facts = replace(plans.facts(plan), verified=verified)
            head = json.dumps(asdict(facts)).encode()
            kept.write(FOLDER, self._key(plans.spec, wanted), head + b"\n" + content)

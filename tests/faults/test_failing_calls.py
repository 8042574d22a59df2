"""The n-th call on a file fails, is cut short, or is the last of the process, for every n.

A sample; ``DNNSTACK_FAULTS=all`` is every call. See ``scenes.py`` for what
is checked after each.
"""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .calls import FAILURES, KILLS, Fault
from .compressing import SOME, check_compression, check_report
from .conftest import Ended
from .grouping import check_group
from .scenes import (
    SCENES,
    Scene,
    Stage,
    check_import,
    check_reading,
    check_strangers,
    check_text,
    check_training,
)

EVERYTHING = os.environ.get("DNNSTACK_FAULTS", "") == "all"
FAULTS = (*FAILURES, *KILLS)
# How many tests share the calls of a scene, so that processes can run them side by side.
PARTS = 4 if EVERYTHING else 1
pytestmark = pytest.mark.timeout(0 if EVERYTHING else 600)

Note = Callable[[str, object], None]


@pytest.fixture(scope="module")
def stages(play, quick_folder):
    made = {}
    for device in ("numpy", "cpu"):
        (quick_folder / device).mkdir()
        made[device] = Stage(play, quick_folder / device, device)
    return made


def _cases() -> Iterator[tuple[Scene, str, Fault, int]]:
    for scene in SCENES.values():
        for device in scene.devices:
            for fault in FAULTS:
                few = scene.is_group or scene.name in ("compress", "filters", "integers")
                if few and not EVERYTHING and fault.name not in SOME:
                    continue
                for part in range(PARTS):
                    yield scene, device, fault, part


def _chosen(stage: Stage, scene: Scene, fault: Fault, part: int) -> list[int]:
    """The numbers of the calls to fail: all, or one that is drawn."""
    counted = stage.undisturbed(scene).ended.calls
    known = [call for call in counted if call.number and call.kind in fault.ops]
    if EVERYTHING:
        return list(range(1 + part, len(known) + 1, PARTS))
    drawn = random.Random(zlib.crc32(f"{scene.name} {fault.name}".encode()))
    ops = sorted({call.kind for call in known})
    if not ops:
        return []
    op = drawn.choice(ops)
    return [drawn.choice([at for at, call in enumerate(known, 1) if call.kind == op])]


@pytest.mark.parametrize(
    ("scene", "device", "fault", "part"),
    [pytest.param(*c, id=f"{c[0].name}-{c[1]}-{c[2].name}-{c[3]}") for c in _cases()],
)
def test_nothing_is_lost(stages, record_property, scene, device, fault, part):
    stage = stages[device]
    faults: list[str] = []
    counts = {"cases": 0, "resumed": 0}
    for number in _chosen(stage, scene, fault, part):
        root = stage.fresh(scene)
        ended = stage.run(scene, root, fault=fault.job(number))
        hit = next((call for call in ended.calls if call.number == number), None)
        counts["cases"] += 1
        try:
            check(stage, scene, root, fault, ended, counts)
        except Exception as error:
            what = f"{hit.op} {hit.path or hit.other}" if hit else "not reached"
            faults.append(f"call {number} ({what}): {type(error).__name__}: {error}")
    record_property("failing calls", counts["cases"])
    record_property("failing calls: resumed", counts["resumed"])
    assert not faults, "\n".join([f"{len(faults)} of {counts['cases']}", *faults[:20]])


def check(
    stage: Stage, scene: Scene, root: Path, fault: Fault, ended: Ended, counts: dict[str, int]
) -> None:
    if fault in KILLS:
        assert ended.status in (0, -9), ended.err
    else:
        assert ended.status in (0, 1), ended.err
        check_text(ended, scene.name)

    def note(what: str) -> None:
        counts[what] += 1

    if scene.trains:
        check_training(stage, scene, root, ended, note)
    elif scene.name in ("compress", "filters", "integers"):
        check_strangers(stage, scene, root)
        check_compression(stage, scene, root, ended, stage.end(scene), note)
    elif scene.is_group:
        check_strangers(stage, scene, root)
        check_group(stage, scene, root, ended, stage.end(scene), note)
    elif scene.name == "report":
        check_strangers(stage, scene, root)
        check_report(ended, root, stage.end(scene), stage.undisturbed(scene).ended)
    elif scene.name == "import":
        check_import(stage, scene, root, ended)
    else:
        check_reading(stage, scene, root, ended)

"""Commands that faults are tried on, the folders they start from, and what may come of them."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from dnnstack.common.files import sha256_bytes
from dnnstack.training.records.formats.run_log import CSV, LOG, cut_log
from dnnstack.training.records.formats.state import State
from dnnstack.training.records.formats.store import checkpoint_steps, newest_checkpoint
from safetensors.numpy import save_file

from . import compressing, consent, grouping
from .calls import KILLS, WRITING, committed, reported
from .conftest import Ended, Play, make_root
from .content import Content, checkpoint_content, checkpoints, folder_content, records

TRAIN = ("train", "--config", "net.yaml", "--threads", "1", "-v")
KEEP = ("--set", "checkpoint.keep=99")
# The folder in which commands are called, and what four of them write.
WORK, SHEET, NEW, LABELS = "work", "sheet.png", "new.yaml", "labels.csv"
EXPORTED = "net.py"
# A network of another program; the run has its name.
ONNX = "net.onnx"
_OF_PYTORCH = Path(__file__).parents[1] / "imports" / "onnx" / "resnet.onnx"
# Where a training begins.
WEIGHTS = "w.safetensors"
RUN = Path(WORK, "runs/net")
PAGE = RUN / "report.html"
_STEP = "runs/net/checkpoints/step-{}.safetensors"
_TEMPORARY = re.compile(r"\.(.+)\.\d+\.[0-9a-f]{8}\.tmp")
_ON_DEVICES = ("train", "eval", "predict", "compress", "export", "sweep", "suspects")
_REPORTED = re.compile(r"dnnstack: error: \S.*")


@dataclass(frozen=True)
class Scene:
    """A command line and the folder in which it starts; ``again``: how a user goes on after it."""

    name: str
    start: str
    argv: tuple[str, ...]
    again: tuple[str, ...] = ()
    out: str = ""
    answer: str = ""
    devices: tuple[str, ...] = ("numpy",)

    @property
    def trains(self) -> bool:
        return self.argv[0] == "train" and not self.is_group

    @property
    def is_group(self) -> bool:
        return self.name in grouping.COMMANDS


_EARLIER = (*TRAIN, *KEEP, "--set", "optimizer.lr=0.05")
SCENES = {
    scene.name: scene
    for scene in (
        Scene("cold", "bare", TRAIN, (*TRAIN, "--resume")),
        Scene("train", "warm", TRAIN, (*TRAIN, "--resume"), devices=("numpy", "cpu")),
        Scene("init", "weights", (*TRAIN, "--init-from", WEIGHTS), (*TRAIN, "--resume")),
        # Killed, too, while pictures are decoded into the cache, and while rows are read.
        *(
            Scene(
                name, "bare", (*own, "--threads", "1", "-v"), (*own, "--threads", "1", "--resume")
            )
            for name in ("photos", "rows")
            for own in [("train", "--config", f"{name}.yaml")]
        ),
        Scene("resume", "begun", (*TRAIN, "--resume"), (*TRAIN, "--resume")),
        Scene("auto", "warm", (*TRAIN, "--resume", "auto"), (*TRAIN, "--resume", "auto")),
        Scene("earlier", "kept", (*_EARLIER, "--resume", _STEP.format(3)), (*_EARLIER, "--resume")),
        Scene("eval", "kept", ("eval", "--threads", "1")),
        Scene("calibrate", "kept", ("eval", "--calibrate", "--no-plots", "--threads", "1")),
        Scene(
            "predict",
            "kept",
            ("predict", "a.png", "b.png", "--csv", "--save-input", "seen", "--threads", "1"),
            out="work/answers.csv",
        ),
        Scene("data", "warm", ("data", "--config", "net.yaml", "--save", SHEET)),
        Scene("runs", "kept", ("runs", "--json")),
        Scene("new", "warm", ("new", "photos", "--output", NEW)),
        Scene("weights", "kept", ("weights", "runs/net", "--save", WEIGHTS)),
        Scene("suspects", "kept", ("suspects", "net", "--apply", LABELS, "--threads", "1")),
        Scene("page", "kept", ("report", "net")),
        Scene("import", "onnx", ("import", ONNX)),
        Scene("export", "kept", ("export", "net", "--format", "numpy", "-o", EXPORTED)),
        Scene(
            "compress",
            "staged",
            compressing.COMPRESS,
            (*compressing.COMPRESS, "--resume", compressing.PLACE),
        ),
        Scene(
            "integers",
            "staged",
            compressing.QUANTIZE,
            (*compressing.QUANTIZE, "--resume", compressing.PLACE),
            devices=("cpu",),
        ),
        Scene(
            "filters",
            "staged",
            compressing.LEAVE_OUT,
            (*compressing.LEAVE_OUT, "--resume", compressing.PLACE),
        ),
        Scene("report", "small", compressing.REPORT),
        *(
            Scene(name, "many", command, (*command, "--resume"))
            for name, command in grouping.COMMANDS.items()
        ),
        Scene("consent", "asked", ("config", "--config", consent.CONFIG), answer="yes\n"),
    )
}


def cut_records(run: Path, state: State) -> list[Any]:
    """What a resume from a checkpoint of this state keeps of the records."""
    with tempfile.TemporaryDirectory(dir=run.parent) as folder:
        for name in (LOG, CSV):
            shutil.copy(run / name, folder)
        cut_log(Path(folder), state.step, state.window_start, state.rollbacks)
        return records(Path(folder))


@dataclass(frozen=True)
class Undisturbed:
    """What a scene comes to by itself: its output, files, checkpoints by step, and records."""

    ended: Ended
    files: Content
    steps: dict[int, str]
    records: list[Any]


class Stage:
    """Scenes of one device, their starting folders and undisturbed ends, each made once."""

    def __init__(self, play: Play, folder: Path, device: str) -> None:
        self._play = play
        self._folder = folder
        self._device = ("--device", device)
        self._ends: dict[str, Undisturbed] = {}
        self._case = 0

    def run(self, scene: Scene, root: Path, again: bool = False, **options: Any) -> Ended:
        argv = scene.again if again else scene.argv
        out = root / scene.out if scene.out else None
        given = self._device if scene.argv[0] in _ON_DEVICES else ()
        return self._play(root, *argv, *given, out=out, answer=scene.answer, **options)

    def fresh(self, scene: Scene) -> Path:
        """A new copy of a scene's starting folder; that of the last case is deleted."""
        shutil.rmtree(self._folder / f"case-{self._case}", ignore_errors=True)
        self._case += 1
        return self._copy(self._start(scene.start), f"case-{self._case}")

    def empty(self) -> Path:
        """A path for a folder, which does not exist; that of the last case is deleted."""
        shutil.rmtree(self._folder / f"case-{self._case}", ignore_errors=True)
        self._case += 1
        root = self._folder / f"case-{self._case}"
        root.mkdir()
        return root

    def started(self, scene: Scene) -> dict[int, str]:
        """The checkpoints that a scene starts with."""
        return checkpoints(self._start(scene.start) / RUN)

    def whole(self, scene: Scene) -> Path:
        """The run of a scene that nothing disturbed."""
        return self.end(scene) / RUN

    def end(self, scene: Scene) -> Path:
        """The folder of a scene that nothing disturbed."""
        self.undisturbed(scene)
        return self._folder / f"whole-{scene.name}"

    def undisturbed(self, scene: Scene) -> Undisturbed:
        if scene.name not in self._ends:
            root = self._copy(self._start(scene.start), f"whole-{scene.name}")
            ended = self.run(scene, root)
            assert ended.status == 0, ended.err
            steps: dict[int, str] = {}
            if scene.trains:
                kept = self._copy(self._start(scene.start), f"kept-{scene.name}")
                every = self._play(kept, *scene.argv, *KEEP, *self._device)
                assert every.status == 0, every.err
                steps = checkpoints(kept / RUN)
            noted = records(root / RUN) if scene.trains else []
            self._ends[scene.name] = Undisturbed(ended, folder_content(root), steps, noted)
        return self._ends[scene.name]

    def _copy(self, start: Path, name: str) -> Path:
        return Path(shutil.copytree(start, self._folder / name, symlinks=True))

    def _start(self, name: str) -> Path:
        root = self._folder / f"start-{name}"
        if root.exists():
            return root
        if name == "bare":
            make_root(root)
        elif name == "asked":
            consent.prepare(self._copy(self._start("bare"), root.name), root / WORK)
        elif name == "many":
            grouping.prepare(self._copy(self._start("warm"), root.name) / WORK)
        elif name == "begun":
            self._begin(root)
        elif name == "onnx":
            shutil.copy(_OF_PYTORCH, self._copy(self._start("warm"), root.name) / WORK / ONNX)
        elif name == "weights":
            self._copy(self._start("warm"), root.name)
            save_file({"dense_1.bias": np.full(10, 0.5, np.float32)}, root / WORK / WEIGHTS)
        else:
            self._copy(self._start("bare"), root.name)
            done = self._play(root, *TRAIN, *KEEP, *self._device)
            assert done.status == 0, done.err
            if name == "warm":
                shutil.rmtree(root / RUN.parent)
            if name in ("staged", "small"):
                (root / WORK / compressing.STAGES).write_text(compressing.TEXT, encoding="utf-8")
                (root / WORK / compressing.FEW).write_text(compressing.FEW_TEXT, encoding="utf-8")
            if name == "small":
                for argv in (compressing.MEASURE, compressing.COMPRESS, compressing.REPORT):
                    given = () if argv == compressing.REPORT else self._device
                    done = self._play(root, *argv, *given)
                    assert done.status == 0, done.err
        return root

    def _begin(self, root: Path) -> None:
        """A run that was killed after its checkpoint of step 4 and before that of step 6."""
        counted = self.undisturbed(SCENES["train"]).ended.calls
        writing = [call for call in counted if call.number and call.kind in WRITING]
        names = [call.other.rpartition("/")[2] for call in writing]
        manifest = 1 + names.index("step-4.json")
        for number in range(manifest + 2, manifest + 20):
            self._copy(self._start("warm"), root.name)
            self._play(root, *TRAIN, *self._device, fault=KILLS[1].job(number))
            if checkpoint_steps(root / RUN / "checkpoints")[:1] == [4]:
                break
            shutil.rmtree(root)
        (root / RUN / ".config.yaml.4711.0a1b2c3d.tmp").write_text("left by a killed process")
        (root / RUN / "checkpoints" / "notes.txt").write_text("not ours\n")


def check_text(ended: Ended, name: str) -> None:
    """Every error is one line that names a file that failed, and there is one if it ends so."""
    assert "Traceback" not in ended.err, ended.err
    # What is typed after the question ends its line.
    lines = ended.err.replace(consent.QUESTION, "").splitlines()
    assert all(line.startswith(("dnnstack: ", "  ")) for line in lines), ended.err
    errors = [line for line in lines if _REPORTED.fullmatch(line)]
    assert bool(errors) == (ended.status != 0), ended.err
    if errors:
        places = {"standard output"} if name == "predict" else set()
        for call in ended.calls:
            if call.number and call.error:
                for path in map(Path, filter(None, (call.path, call.other))):
                    temporary = _TEMPORARY.fullmatch(path.name)
                    places |= {temporary[1] if temporary else path.name, path.parent.name}
                # A folder may be called by what is, or was to be, made in it.
                places |= {Path(c.path).name for c in ended.calls if c.op == "mkdir"} | {"runs"}
                # The picture stands for the folder that it is written to.
                if Path(call.path).name == WORK:
                    places |= {SHEET, NEW}
        assert any(place in line for line in errors for place in places), (places, ended.err)


def check_training(
    stage: Stage, scene: Scene, root: Path, ended: Ended, note: Callable[[str], None]
) -> None:
    """After a fault: the committed checkpoints are whole, and it can be brought to its end."""
    want = stage.undisturbed(scene)
    run = root / RUN
    if ended.status == 0 and run.with_name("net-2").exists():
        # A folder that could not be locked was left to whoever may have it.
        run = run.with_name("net-2")
    there = checkpoints(run)
    started = stage.started(scene)
    allowed = [want.steps] if scene.name != "earlier" else [want.steps, started]
    for step, content in there.items():
        assert content in [each.get(step) for each in allowed], f"step {step} differs"
    if scene.name == "earlier":
        least = reported(ended.calls)
    else:
        least = max([committed(ended.calls), *started])
    if least >= 0:
        found = newest_checkpoint(run / "checkpoints")
        assert found.state.step >= least
        if scene.name != "earlier" or reported(ended.calls) >= 0:
            assert there[found.state.step] == want.steps[found.state.step]
    check_strangers(stage, scene, root)
    if ended.status != 0:
        note("resumed")
        check_resumed(stage, scene, root, reported(ended.calls) >= 0)
    else:
        check_whole(want, run)


def check_resumed(stage: Stage, scene: Scene, root: Path, saved: bool) -> None:
    """It can be brought to its end, without leftovers; ``saved``: this command said it saved."""
    begun = (root / RUN / "config.yaml").exists()
    second = stage.run(scene, root, again=begun if scene.name != "earlier" else saved)
    assert second.status == 0, second.err
    run = root / RUN
    if (root / RUN.parent / "net-2").exists():
        # It ended before the folder had a config: a folder that is no run yet.
        assert not begun
        run = root / RUN.parent / "net-2"
    assert [path for path in folder_content(run) if path.endswith(".tmp")] == []
    check_whole(stage.undisturbed(scene), run)


def check_whole(want: Undisturbed, run: Path) -> None:
    last = max(want.steps)
    # An earlier one may be half deleted, if a power loss brought its manifest back.
    newest = newest_checkpoint(run / "checkpoints")
    assert newest.state.step == last
    assert checkpoint_content(newest.path) == want.steps[last]
    assert records(run) == want.records


def check_strangers(stage: Stage, scene: Scene, root: Path) -> None:
    """Files of others are as they were."""
    before, after = folder_content(stage._start(scene.start)), folder_content(root)
    for name in before:
        if Path(name).suffix in (".txt", ".png", ".yaml") and "runs/net/c" not in name:
            assert after.get(name) == before[name], name


def check_import(stage: Stage, scene: Scene, root: Path, ended: Ended) -> None:
    """After a fault: a checkpoint that is there is whole, and a second import gives all of it."""
    want = stage.end(scene) / RUN
    check_strangers(stage, scene, root)
    found = [run for run in (root / RUN, root / RUN.with_name("net-2")) if run.exists()]
    assert all(checkpoints(run).items() <= checkpoints(want).items() for run in found)
    if ended.status:
        second = stage.run(scene, root)
        assert second.status == 0, second.err
    (named,) = re.findall(r"runs/[^:]+", ended.out if not ended.status else second.out)
    assert checkpoints(root / WORK / named) == checkpoints(want)
    assert records(root / WORK / named) == records(want)
    assert (root / WORK / named / "config.yaml").read_bytes() == (want / "config.yaml").read_bytes()


def check_reading(stage: Stage, scene: Scene, root: Path, ended: Ended) -> None:
    """After a fault: the run is untouched, every file written is whole or absent."""
    want = stage.undisturbed(scene)
    before, after = folder_content(stage._start(scene.start)), folder_content(root)
    if scene.name == "consent":
        # The record has the path of this folder.
        consent.check_consent(root, root / WORK, ended.status, ended.err)
        after[str(consent.RECORD)] = before[str(consent.RECORD)]
        want.files[str(consent.RECORD)] = before[str(consent.RECORD)]
    if scene.name == "new" and "\nunreadable " in ended.out:
        # The config is for the pictures that could be read, and says what becomes of the others.
        assert "on_error: skip" in (root / WORK / NEW).read_text(encoding="utf-8")
        before |= {f"{WORK}/{NEW}": after[f"{WORK}/{NEW}"]}
        want = replace(want, ended=replace(want.ended, out=ended.out))
    for name, content in before.items():
        if not name.startswith("cache/"):
            assert after.get(name) == content, name
    if scene.name == "page" and str(PAGE) in after:
        # It says which part could not be read.
        page = (root / PAGE).read_text(encoding="utf-8")
        assert page.endswith("</html>\n")
        if after[str(PAGE)] != want.files[str(PAGE)]:
            assert "cannot be read: " in page
            files = want.files | {str(PAGE): after[str(PAGE)]}
            want = replace(want, ended=replace(want.ended, out=ended.out), files=files)
    new = {name for name in after if name not in before and name != scene.out}
    for name in new:
        whole = want.files.get(name)
        if whole is None and name.startswith("cache/decoded/index/"):
            # Named by where the pictures are, which is another place in each case.
            digest, _, said = (root / name).read_bytes().partition(b"\n")
            whole = after[name] if sha256_bytes(said).encode() == digest else None
        assert _TEMPORARY.fullmatch(Path(name).name) or after[name] == whole, name
    if ended.status == 0 and "the plots were not drawn: runs/net/" not in ended.err:
        assert ended.out == want.ended.out, (ended.out, want.ended.out)
        missing = {name for name in want.files if not name.startswith("cache/")} - set(after)
        assert not missing, missing

"""Students: what they learn from a teacher, whose weights stay as they are, and its mistakes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dnnstack.common.errors import CheckpointError, ConfigError
from dnnstack.training.assemble import build_network, describe_data
from dnnstack.training.records.formats.checkpoint import read_checkpoint
from dnnstack.training.records.formats.store import newest_checkpoint
from dnnstack.training.records.resume import as_begun, open_resume
from dnnstack.training.weights.teacher import teach

from ..support.resuming import go
from ..support.trainings import session_of

NET = "[{conv2d: {filters: 4, kernel_size: 5, stride: 2}}, batch_norm, relu, flatten, "
NET += "{dense: {units: 10}}, softmax]"
OF = "run.tune=false", "train.max_steps=12", "data.validation=0"


@pytest.fixture
def teacher(tiny, reference):
    done = go(tiny(*OF, f"layers={NET}", "name=teacher", "seed=5"), reference)
    return newest_checkpoint(done.run / "checkpoints")


def student(tiny, teacher, *more):
    return tiny(
        *OF, f"loss={{type: distill, teacher: {teacher.path.parents[1]}, weight: 0.9}}", *more
    )


def arrays(run):
    return {n: a.tobytes() for n, a in newest_checkpoint(run / "checkpoints").arrays.items()}


@pytest.mark.parametrize("more", [(), ("train.accumulate=4", "loss.class_weights=balanced")])
def test_a_resume_changes_no_bit(tiny, backend, teacher, more):
    config, before = student(tiny, teacher, *more), teacher.path.read_bytes()
    whole, half = go(config, backend), go(config, backend, stop_at=5)
    done = go(config, backend, half.run)
    assert half.state == "interrupted"
    assert arrays(whole.run) == arrays(done.run)
    assert arrays(whole.run).keys() == {
        f"{layer}.{name}" for layer in ("conv2d_1", "dense_1") for name in ("weight", "bias")
    }
    assert arrays(whole.run) != arrays(go(tiny(*OF, *more), backend).run)
    origin = newest_checkpoint(done.run / "checkpoints").provenance.taught_by
    assert (origin.path, origin.file_sha256) == (str(teacher.path), teacher.sha256)
    assert teacher.path.read_bytes() == before


def test_another_teacher_is_not_read_at_a_resume(tiny, backend, teacher, monkeypatch):
    config, texts = student(tiny, teacher), []
    half, folder = go(config, backend, stop_at=5), teacher.path.parents[1]
    resume = open_resume(half.run, texts.append)
    monkeypatch.chdir(folder.parent)
    given = str(folder), folder.name, f"{folder.name}/checkpoints/{teacher.path.name}", "else"
    for name in given:
        loss = config.loss.model_copy(update={"teacher": name})
        begun = as_begun(resume, config.model_copy(update={"loss": loss}), texts.append)
        assert begun.loss.teacher == str(teacher.path)
    assert texts == [
        "loss.teacher: else is not read, because a resumed run goes on with its own teacher, "
        f"{teacher.path}"
    ]


def test_a_student_that_is_its_teacher_learns_nothing(tiny, backend, teacher):
    """Which answers as outside training: the student's frozen normalisation does so too."""
    same = (f"layers={NET}", f"init_from={teacher.path}", "loss.weight=1", "optimizer.lr=1e-3")
    done = go(student(tiny, teacher, *same, "freeze=[conv2d_1, batch_norm_1]"), backend)
    for name, array in newest_checkpoint(done.run / "checkpoints").arrays.items():
        np.testing.assert_allclose(array, teacher.arrays[name], rtol=0, atol=1e-7, err_msg=name)


def test_parts_of_a_batch_teach_as_the_whole(tiny, backend, teacher):
    ends = []
    for parts in (1, 4):
        session = session_of(student(tiny, teacher, f"train.accumulate={parts}"), backend)
        session.run(3)
        assert "teacher:dense_1.weight" in {t.name for t in session.graph("train").tensors()}
        ends.append(session.arrays())
        session.close()
    for name, array in ends[0].items():
        np.testing.assert_allclose(array, ends[1][name], rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("loss.teacher=runs/gone",), r"^loss\.teacher: runs/gone: no such file or run"),
        (("loss.teacher=org/model",), r"^loss\.teacher: org/model: no such file or run; runs"),
        (("loss={type: distill}",), r"loss\.teacher: is missing"),
        (
            ("data.normalize={mean: 0.5, std: 0.5}",),
            r"pixels of another scale; set data\.normalize",
        ),
    ],
)
def test_a_teacher_that_does_not_fit_is_an_error(tiny, reference, teacher, changes, message):
    with pytest.raises((CheckpointError, ConfigError), match=message):
        go(student(tiny, teacher, *changes), reference)


def test_a_teacher_of_other_samples_or_classes_is_an_error(tiny, teacher):
    config = student(tiny, teacher)
    info = describe_data(config)
    names = ("one", *info.classes[1:])
    with pytest.raises(ConfigError, match=r"other classes, .*: 0, 1, 2, .*the data has one, 1"):
        teach(config, build_network(config, info), names)
    larger = build_network(config, replace(info, shape=(1, 40, 30)))
    with pytest.raises(ConfigError, match="is for samples of 1x28x28, the data has 1x40x30"):
        teach(config, larger, info.classes)


def test_a_resume_wants_the_same_teacher(tiny, reference, teacher):
    half = go(student(tiny, teacher), reference, stop_at=5)
    teacher.path.with_suffix(".json").unlink()
    other = go(tiny(*OF, "name=other", f"layers={NET}"), reference)
    (file,) = (other.run / "checkpoints").glob("*.safetensors")
    teacher.path.write_bytes(file.read_bytes())
    assert read_checkpoint(teacher.path).sha256 != teacher.sha256
    with pytest.raises(CheckpointError, match="is another teacher than that with which the run"):
        go(student(tiny, teacher), reference, half.run)

"""Ranks that learn from a teacher, which each of them reads."""

from __future__ import annotations

from ...support.ranks import NET, SGD, bits, needs_launcher, trained, trained_alone

pytestmark = needs_launcher


def test_a_teacher_teaches_ranks_as_one_process(tmp_path):
    (tmp_path / "net.yaml").write_text(NET + SGD)
    trained_alone(tmp_path, "--config", "net.yaml", "--set", "name=teacher")
    taught = ("--set", "loss={type: distill, teacher: runs/teacher}", "--set", "seed=8")
    given = ("--config", "net.yaml", *taught, "--set")
    trained_alone(tmp_path, *given, "name=by-1")
    done = trained(tmp_path, 2, *given, "name=by-2")
    assert done.returncode == 0, done.stderr
    runs = tmp_path / "runs"
    assert bits(runs / "by-1", 14) == bits(runs / "by-2", 14) != bits(runs / "teacher", 14)

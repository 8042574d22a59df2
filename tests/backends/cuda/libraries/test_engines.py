"""The engines of cuDNN for one convolution: one plan each, with the notes that let it pass."""

from __future__ import annotations

from dnnstack.backends.cuda import engines as engines_module

from ....support.algorithms import THREE, convolution


def test_plans_of_cudnn_have_the_notes_that_let_them_pass(library, frontend, monkeypatch):
    """The first plan of each engine that can be built; one that a note bars has it not."""
    frontend.plans, frontend.unbuildable = 5, {0}
    frontend.names = ["eng1_a", "eng1_b", "eng2_a", "eng2_b", "eng3"]
    frontend.noted = {"FFT": {1}, "NONDETERMINISTIC": {1, 2}, "WINOGRAD": {4}}
    monkeypatch.setattr(engines_module, "frontend", lambda: frontend)
    monkeypatch.setattr(engines_module, "captured_seconds", lambda launch, stream, count: 0.5)
    op, x, w = convolution((2, 3, 7, 6), THREE, 4)
    found = list(engines_module.engines(library, op, x.astype("f"), w.astype("f")))
    assert [each.name for each in found[:3]] == ["eng1 nchw", "eng2 nchw", "eng3 nchw"]
    assert [each.name for each in found[3:]] == ["eng1 nhwc", "eng2 nhwc", "eng3 nhwc"]
    notes = [("FFT", "NONDETERMINISTIC"), ("NONDETERMINISTIC",), ("WINOGRAD",)]
    assert [each.notes for each in found] == notes * 2
    assert [each.flops for each in found] == [None, op.flops(), None] * 2
    assert [each.workspace for each in found] == [200, 300, 500] * 2
    assert found[1].run().shape == op.y.shape
    pointers, _, plan = frontend.launched[-1]
    assert (len(set(pointers.values())), plan, found[0].seconds()) == (3, 2, 0.5)

"""Networks and training steps as graphs, and how they are drawn."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import dnnstack
import pytest
from dnnstack.backends.base import Limits
from dnnstack.backends.select import open_backend
from dnnstack.cli.main import main
from dnnstack.common.text import shape_text
from dnnstack.configs import load_config
from dnnstack.configs.find import packaged_configs
from dnnstack.reports.explain import explain
from dnnstack.reports.glance import glance, trace
from dnnstack.reports.network_drawing import Box, network_drawing
from dnnstack.reports.network_graph import NetworkGraph, layer_graph, operation_graph
from dnnstack.reports.roofline import roofline
from dnnstack.reports.summary import summarize
from dnnstack.reports.svg import written
from dnnstack.reports.units import quantity

SVG = "{http://www.w3.org/2000/svg}"
Frame = tuple[float, float, float, float]


def _drawn(found: NetworkGraph) -> tuple[list[Frame], list[list[float]], list[str]]:
    """The frames of the boxes, the first and last point of each edge, and the labels."""
    root = ElementTree.fromstring(found.as_svg())
    frames = []
    for group in root.iter(f"{SVG}g"):
        if group.get("class") == "box":
            x, y = map(float, re.findall(r"[\d.]+", group.attrib["transform"]))
            rect = group[0]
            frames.append((x, y, float(rect.attrib["width"]), float(rect.attrib["height"])))
    lines, said = root.findall(f"{SVG}g")[:2]
    ends = [[float(n) for n in re.findall(r"-?[\d.]+", line.attrib["d"])] for line in lines]
    return frames, [[*each[:2], *each[-2:]] for each in ends], [text.text or "" for text in said]


def _check(found: NetworkGraph) -> None:
    """No two boxes overlap, and each edge goes from the one to the other end of its boxes."""
    frames, ends, labels = _drawn(found)
    assert len(frames) == len(found.boxes)
    assert labels == [shape for *_, shape in found.edges]
    for at, (x, y, wide, high) in enumerate(frames):
        assert min(x, y) >= 0
        assert wide > 6 * max(map(len, (found.boxes[at].title, *found.boxes[at].lines)))
        for u, v, width, height in frames[:at]:
            assert x + wide <= u or u + width <= x or y + high <= v or v + height <= y
    # Each edge begins at one end of its box, and ends at the other end of the next.
    for (start, end, _), (x, y, u, v) in zip(found.edges, ends, strict=True):
        up = found.boxes[start].rises and found.boxes[end].rises
        for (left, top, wide, high), across, down, below in (
            (frames[start], x, y, not up), (frames[end], u, v, up),
        ):  # fmt: skip
            assert across == pytest.approx(left + wide / 2, abs=0.2)
            # A row is as high as its highest box, which all of its boxes are.
            assert down == pytest.approx(top + high * below, abs=0.2)
        assert (v < y) == up


@pytest.mark.parametrize("name", packaged_configs())
def test_every_packaged_config_is_drawn(name):
    loaded = load_config(name)
    found = layer_graph(loaded.config, loaded.path, loaded.title, None)
    _check(found)
    rows = summarize(loaded.config, loaded.path).rows
    known = {box.title: box.lines for box in found.boxes}
    for row in rows:
        if row.type != "sequential":
            kind, costs = known.pop(row.name)
            assert kind == f"{row.type} {shape_text(row.output_shape)}".strip()
            flops = quantity(row.forward_flops, "FLOP")
            assert costs == f"{row.parameters:,} parameters, {flops}"
    assert not known
    # All but the input is reached, and all but the loss leads somewhere.
    count = len(found.boxes)
    assert {end for _, end, _ in found.edges} == {*range(1, count)}
    assert {start for start, *_ in found.edges} == {*range(count - 1)}


def test_branches_join_in_the_box_of_their_block():
    loaded = load_config("cifar10-resnet20.yaml")
    found = layer_graph(loaded.config, loaded.path, "resnet", None)
    names = [box.title for box in found.boxes]
    into = [(names[a], shape) for a, b, shape in found.edges if names[b] == "residual_1"]
    assert into == [("residual_1.batch_norm_3", "16x32x32"), ("relu_1", "16x32x32")]
    assert found.as_text().startswith("resnet: cifar10\n\ninput\n  3x32x32; 0 parameters, 0 FLOP\n")
    assert "\nconv2d_1\n  conv2d 16x32x32; 432 parameters, 885 kFLOP\n  <- input: 3x32x32\n" in str(
        found
    )
    assert found._repr_svg_() == found.as_svg()


@pytest.mark.parametrize("name", ["lenet.yaml", "mlp.yaml"])
@pytest.mark.parametrize("fusion", [True, False])
def test_operations_are_those_that_run(name, fusion):
    loaded = load_config(name, (f"run.fusion={str(fusion).lower()}",))
    backend = open_backend("numpy", 1)
    found = operation_graph(loaded.config, loaded.path, loaded.title, backend)
    _check(found)
    told = explain(loaded.config, loaded.path, backend, False, lambda text: None)
    shown = [each for each in told.operations if each.origin.phase != "update"]
    assert [box.title for box in found.boxes] == [each.title for each in shown]
    for box, each in zip(found.boxes, shown, strict=True):
        assert box.lines[-1] == quantity(each.op.flops(), "FLOP")
        assert len(box.lines) == 2 + (len(each.replaced) if len(each.replaced) > 1 else 0)
        assert box.rises == (each.origin.phase == "backward")
    assert any(len(box.lines) > 2 for box in found.boxes) == fusion
    made = {(start, shape) for start, _, shape in found.edges}
    for start, shape in made:
        assert shape in [shape_text(t.shape) for t in shown[start].op.writes()]


def test_boxes_have_bars_and_names_of_files_stay_text():
    boxes = [Box("<script>", ("a\x07b", "c"), 0.25), Box("wide" * 9), Box("end", share=7.0)]
    drawn = network_drawing(boxes, [(0, 1), (1, 2, "8"), (0, 2)], "t")
    text = written(drawn)
    assert "<script>" not in text
    assert r"a\x07b" in text
    groups = [each for each in drawn.iter("g") if each.get("class") == "box"]
    bars = [[float(r.attrib["width"]) for r in each.iter("rect")] for each in groups]
    assert bars[0][1] == pytest.approx(bars[0][0] / 4, abs=0.01)
    assert len(bars[1]) == 1
    assert bars[2][0] == bars[2][1]
    assert [line.text for line in groups[0].iter("text")] == ["<script>", r"a\x07b", "c"]
    # What passes a rank has a lane of its own: two corners more.
    paths = [line.attrib["d"] for line in drawn.iter("path") if line.get("marker-end")]
    assert [path.count("C") for path in paths] == [1, 1, 3]
    lane, passed = (float(re.findall(r"[\d.]+", paths[n])[k]) for n, k in ((2, 6), (0, 6)))
    assert lane > passed + bars[1][0] / 2
    ring = network_drawing([Box("a"), Box("b")], [(0, 1), (1, 0)], "ring")
    assert written(ring).count("<rect") == 2


def test_a_roofline_has_a_point_for_each_operation():
    points = [("slow $x^2$", 4e9, 1e9, 2.0), ("quick", 1e9, 1e7, 0.5), ("none", 0, 5, 1.0)]
    points += [(f"n{k}", 1e6, 1e6, 1e-3) for k in range(40)]
    drawn = roofline(points, Limits(10.0, 5.0), "title")
    assert drawn.tag == "svg"
    texts = [each.text for each in drawn.iter("text")]
    assert "1  slow $x^2$: 2000.00 ms, 2.00 GFLOP/s" in texts
    assert "2  quick: 500.00 ms, 2.00 GFLOP/s" in texts
    assert "limits: 10 GFLOP/s, 5.0 GB/s" in texts
    assert {"title", "FLOP per byte", "GFLOP/s", "30"} <= {*texts}
    assert not {"31", "3  none: 1000.00 ms, 0 FLOP/s"} & {*texts}
    again = roofline(points, Limits(10.0, 5.0), "title")
    assert written(again) == written(drawn)


def _call(seconds: float, library: str = "oneDNN", function: str = "f", kind: str = "jit") -> Any:
    bound = SimpleNamespace(library=library, function=function, implementation=kind)
    return SimpleNamespace(bound=bound, seconds=seconds)


@pytest.mark.parametrize(
    ("call", "flops", "help"),
    [
        (_call(1.0, library="numpy"), 800, "--device cpu, or layers that the library knows"),
        (_call(1.0, kind="ref:any"), 800, "other strides or padding"),
        (_call(1.0, kind="gemm:jit"), 800, "other strides or padding"),
        (_call(1.9e-5), 800, "larger batches"),
        (_call(2.1e-5, function="dnnl_reorder"), 800, "channels in multiples of 16"),
        (_call(1.0), 799, "run.fusion, and layers in the usual order"),
        (
            _call(1.0), 800,
            "fewer floating-point operations, or channels in multiples of 16",
        ),
    ],
)  # fmt: skip
def test_what_would_help_follows_from_what_takes_most(call, flops, help):
    op = SimpleNamespace(flops=lambda: flops)
    one = SimpleNamespace(calls=[call], op=op, bytes=100, title="this")
    rest = [
        SimpleNamespace(calls=[_call(call.seconds / 10 / k)], op=op, bytes=10, title=f"n{k}")
        for k in (2, 1, 3)
    ]
    whole = SimpleNamespace(seconds=2.0)
    told: Any = SimpleNamespace(
        operations=[*rest, one],
        whole=whole,
        totals=lambda: {"step": SimpleNamespace(flops=5)},
        foreseen=None,
    )
    found = glance(told)
    assert found["help"] == help
    assert [each["operation"] for each in found["most"]] == ["this", "n1", "n2"]
    total = 1 + 0.1 + 0.1 / 2 + 0.1 / 3
    assert found["most"][0]["share"] == pytest.approx(1 / total)
    assert found["text"].startswith(
        f"at a glance: the step takes 2000.00 ms; {help} would help calls of "
    )
    assert "most is in this (85%), n1 (8%), n2 (4%)" in found["text"]
    told.whole = None
    assert glance(told)["help"] is None
    assert (
        "the step computes 5 FLOP; --measure says what helps (dnnstack help "
        in glance(told)["text"]
    )


def test_the_command_draws_and_prints(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert (
        main(["graph", "--config", "mlp.yaml", "--operations", "--device", "numpy", "-o", "x.svg"])
        == 0
    )
    assert capsys.readouterr().out == ""
    assert Path("x.svg").read_text("utf-8").startswith("<svg ")
    assert main(["graph", "--config", "mlp.yaml", "--json", "-o", "y.svg"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["title"] == "mlp.yaml: mnist"
    assert told["edges"][0] == [0, 1, "1x28x28"]
    assert told["boxes"][0]["title"] == "input"
    assert Path("y.svg").exists()
    assert main(["graph", "--config", "mlp.yaml", "-o", "no/x.svg"]) == 1
    assert "no/x.svg: cannot be written: No such file or directory" in capsys.readouterr().err
    assert main(["graph", "--config", "mlp.yaml", "--checkpoint", "x"]) == 2
    assert "--checkpoint has a config: leave out --config and --set" in capsys.readouterr().err
    assert main(["explain", "--config", "mlp.yaml", "--roofline", "x.svg"]) == 2
    assert "--roofline needs --measure" in capsys.readouterr().err


def test_a_trace_has_every_call_in_the_row_of_its_stream(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    asked = ["explain", "--config", "mlp.yaml", "--device", "numpy", "--json"]
    assert main([*asked, "--measure", "--trace", "t.json"]) == 0
    told = json.loads(capsys.readouterr().out)
    found = json.loads(Path("t.json").read_text("utf-8"))
    calls = [each for each in found["traceEvents"] if each["ph"] == "X"]
    spent = told["whole_step"]["calls_seconds"]
    assert sum(each["dur"] for each in calls) == pytest.approx(1e6 * spent)
    assert "microseconds" in found["otherData"]["times"]
    assert calls[1]["ts"] == pytest.approx(calls[0]["dur"])
    assert calls[0]["args"]["for"] == "GatherBatch of data, data"
    bound = [SimpleNamespace(function=f"f{n}", arguments={"stream": str(n % 2)}) for n in range(4)]
    each = [
        SimpleNamespace(bound=one, seconds=n + 1.0, to_json=dict) for n, one in enumerate(bound)
    ]
    rows = SimpleNamespace(
        operations=[SimpleNamespace(calls=each, title="t")], config="c", backend="b"
    )
    events = json.loads(trace(cast(Any, rows)))["traceEvents"]
    assert [(e["tid"], e["ts"]) for e in events[:4]] == [(0, 0), (1, 0), (0, 1e6), (1, 2e6)]
    assert [e["args"]["name"] for e in events[4:]] == ["stream 0", "stream 1"]
    assert main([*asked, "--trace", "t.json"]) == 2
    assert "--trace needs --measure" in capsys.readouterr().err


def test_graphviz_and_python_get_the_same_graph(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["graph", "--config", "mlp.yaml", "-o", "x.dot"]) == 0
    found = dnnstack.network_graph("mlp.yaml")
    assert Path("x.dot").read_text("utf-8") == found.as_dot()
    assert f"{found}\n" == f"{found.as_text()}\n"
    for number, box in enumerate(found.boxes):
        label = json.dumps("\n".join((box.title, *box.lines)))
        assert f"\nn{number} [shape=box label={label}]\n" in found.as_dot()
    for start, end, shape in found.edges:
        assert f'\nn{start} -> n{end} [label="{shape}"]\n' in found.as_dot()
    step = dnnstack.network_graph(
        "mlp.yaml", {"run.fusion": False}, operations=True, device="numpy"
    )
    assert step.title == "mlp.yaml: a training step, numpy"
    assert main(["graph", "--config", "mlp.yaml", "-o", "x.png"]) == 2
    assert "x.png: choose a name that ends in .svg" in capsys.readouterr().err

"""Tables that ship: for the same card and libraries, checked, and left for a search otherwise."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.cuda import backend as backend_module
from dnnstack.backends.cuda import tuned
from dnnstack.backends.cuda.backend import CudaBackend
from dnnstack.backends.cuda.tuned import Card, Shipped, file_name, portable, shipped
from dnnstack.backends.tuning import Tuning

_PATH = Path(__file__).parents[3] / "release" / "tuned.py"
_SPEC = importlib.util.spec_from_file_location("tuned_tool", _PATH)
tool = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(tool)

VERSIONS = {
    "GPU": "NVIDIA H200",
    "CUDA": "13020",
    "driver": "13000",
    "cuDNN": "9.19.0",
    "cuBLAS": "13.1.0",
    "CuPy": "14.2.0",
    "cudnn-frontend": "1.26.0",
}
ENVIRONMENT = {**VERSIONS, "precision": "tf32", "dnnstack": "0123456789ab"}
WANTED = Tuning("cuda", ENVIRONMENT, "a mark")
TABLE = Shipped("lenet.yaml", "tf32", "a mark", {"layout": "nhwc", "a/b/forward": "3"})


def ship(folder, *tables, **environment):
    here = portable(ENVIRONMENT | environment)
    path = folder / file_name(here)
    path.write_text(json.dumps(asdict(Card(here, tables or (TABLE,)))))
    return path


def test_the_file_is_named_after_card_and_libraries():
    name = "nvidia-h200_cudnn-9.19_cublas-13.1_cudnn-frontend-1.26.json"
    assert file_name(portable(ENVIRONMENT)) == name


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, True),
        ({"dnnstack": "another"}, True),
        ({"CuPy": "14.3.0"}, True),
        ({"cuDNN": "9.19.7"}, True),
        ({"cuDNN": "9.20.0"}, False),
        ({"cuDNN": "9.1"}, False),
        ({"cuBLAS": "13.2.0"}, False),
        ({"cudnn-frontend": "1.25.0"}, False),
        ({"GPU": "NVIDIA H100"}, False),
        ({"driver": "13010"}, True),
        ({"driver": "12080"}, False),
        ({"precision": "bf16"}, False),
    ],
)
def test_it_is_for_the_same_card_and_libraries(tmp_path, changed, found):
    ship(tmp_path)
    wanted = replace(WANTED, environment=ENVIRONMENT | changed)
    assert shipped(wanted, tmp_path) == (TABLE if found else None)


def test_it_is_for_one_network(tmp_path):
    ship(tmp_path, TABLE, replace(TABLE, graph="another", choices={"pad": "8"}))
    assert shipped(replace(WANTED, graph="another"), tmp_path).choices == {"pad": "8"}
    assert shipped(replace(WANTED, graph="a third"), tmp_path) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"environment": {}, "tables": [{}]}', "\xff"])
def test_a_damaged_file_is_none(tmp_path, text):
    ship(tmp_path).write_bytes(text.encode("latin-1"))
    assert shipped(WANTED, tmp_path) is None


def test_every_file_of_the_package_can_be_read():
    folder = Path(tuned.__file__).parent
    for path in folder.glob("*.json"):
        card = tuned.from_json(path.read_bytes(), Card)
        assert path.name == file_name(card.environment)
        assert card.tables


class Plan:
    """A convolution's plan, by name; ``right``: whether it passes its trial."""

    shown, plan = {"kind": "forward"}, 3

    def __init__(self, name, right=True):
        self.plan_name, self.right = name, right

    def keeps_promises(self):
        return self.right


@pytest.fixture
def start(stand_in, monkeypatch, sections):
    """Starts a training; gives its choices, its notices, and how many searches there were."""
    monkeypatch.setattr(CudaBackend, "versions", lambda self: VERSIONS)
    state = SimpleNamespace(plan=Plan("engine 3"), searches=0, closed=0, sought=[], table=TABLE)

    def bound(graphs, tuning, streams, arithmetic, notices, *_):
        def close():
            state.closed += 1

        binder = SimpleNamespace(convolutions={"a/b/forward": state.plan})
        return SimpleNamespace(
            tuning=tuning, notices=notices, binders=lambda: [binder], close=close
        )

    def search(*_):
        state.searches += 1
        return {"layout": "nchw"}, True

    def ships(wanted):
        state.sought.append(wanted)
        return state.table

    monkeypatch.setattr(backend_module.CudaBackend, "executable", staticmethod(bound))
    monkeypatch.setattr(backend_module, "search", search)
    monkeypatch.setattr(backend_module, "shipped", ships)

    def run(**how):
        state.made = made = CudaBackend().compile(sections("lenet"), Options("tf32", **how))
        return dict(made.tuning.choices), made.notices, state.searches

    run.state = state
    return run


def test_a_first_start_takes_it_without_a_search(start, cache, caplog):
    caplog.set_level("INFO")
    for _ in range(2):
        assert start() == (TABLE.choices, (), 0)
    assert "tuning: 2 choices, which ship with dnnstack for this device" in caplog.text
    assert not (cache / "tuning").exists()
    assert [each.environment["precision"] for each in start.state.sought] == ["tf32"] * 2


def test_a_search_that_was_made_comes_first(start):
    start.state.table = None
    start()
    start.state.table = TABLE
    assert start() == ({"layout": "nchw"}, (), 1)


def test_who_asks_for_a_search_gets_one(start):
    assert start(tune_seconds=float("inf")) == ({"layout": "nchw"}, (), 1)
    assert start(tune=False)[0] not in (TABLE.choices, {"layout": "nchw"})


def test_a_resume_uses_its_checkpoint_s_table(start):
    """What ships is not even looked for."""
    start.state.table = None
    start()
    given = start.state.made.tuning
    start.state.table, before = TABLE, len(start.state.sought)
    assert start(tuning=given) == ({"layout": "nchw"}, (), 1)
    assert len(start.state.sought) == before


@pytest.mark.parametrize("plan", [Plan("engine 4"), Plan("engine 3", right=False)])
def test_a_plan_that_is_another_or_wrong_is_left_for_a_search(start, plan, caplog):
    """Silently but for the log: nothing was computed before. The next start has the search's."""
    caplog.set_level("INFO")
    start.state.table = replace(TABLE, plans={"a/b/forward": "engine 3"})
    assert start() == (TABLE.choices, (), 0)
    start.state.plan = plan
    assert start() == ({"layout": "nchw"}, (), 1)
    assert start.state.closed == 1
    assert "what ships does not do here" in caplog.text
    assert start() == ({"layout": "nchw"}, (), 1)


# ---------------------------------------------------------------- the tool that writes them


def test_the_tool_keeps_what_it_does_not_replace(tmp_path):
    other = replace(TABLE, config="mlp.yaml", graph="of mlp")
    old = replace(TABLE, graph="before a change of the config")
    path = ship(tmp_path, old, other)
    new = replace(TABLE, plans={"a/b/forward": "engine 3"})
    assert tool.written([(new, WANTED)], tmp_path) == path
    assert tuned.from_json(path.read_bytes(), Card).tables == (new, other)
    assert shipped(WANTED, tmp_path) == new


def test_the_tool_passes_over_what_is_there(tmp_path):
    path = ship(tmp_path)
    assert tool.present(VERSIONS, tmp_path) == (TABLE,)
    path.unlink()
    assert tool.present(VERSIONS, tmp_path) == ()
    configs, precisions = ["lenet.yaml", "mlp.yaml"], ["tf32", "bf16"]
    expected = [("mlp.yaml", "tf32"), ("lenet.yaml", "bf16"), ("mlp.yaml", "bf16")]
    assert tool.wanted(configs, precisions, [TABLE]) == expected


def test_the_tool_stops_in_time_and_goes_on(tmp_path, monkeypatch, capsys):
    """With the file as it is after each table."""
    clock, made = iter(range(0, 1000, 10)), []

    def table_of(reference, precision, backend, thorough):
        made.append((reference, precision))
        return replace(TABLE, config=reference, precision=precision, graph=str(made)), WANTED

    monkeypatch.setattr(tool, "CudaBackend", lambda: SimpleNamespace(versions=lambda: VERSIONS))
    monkeypatch.setattr(tool, "table_of", table_of)
    monkeypatch.setattr(tool, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    words = ["tuned.py", "--folder", str(tmp_path), "--config", "lenet.yaml"]
    words += ["--config", "mlp.yaml", "--missing", "--seconds", "25"]
    monkeypatch.setattr("sys.argv", words)
    tool.main()
    assert made == [("lenet.yaml", "tf32"), ("mlp.yaml", "tf32")]
    assert capsys.readouterr().out.count("left for another call") == 2
    tool.main()
    assert made[2:] == [("lenet.yaml", "bf16"), ("mlp.yaml", "bf16")]
    assert len(tool.present(VERSIONS, tmp_path)) == 4


def test_the_tool_notes_choices_of_a_search_and_never_those_that_ship(
    start, sections, monkeypatch, cache
):
    start.state.plan = Plan("engine 7")
    monkeypatch.setattr(backend_module, "search", lambda *_: ({"a/b/forward": "7"}, True))

    def explained(config, file, backend, measured, notice):
        assert (config.run.precision, measured) == ("tf32", False)
        backend.compile(sections("lenet"), Options("tf32"))

    monkeypatch.setattr(tool, "explain", explained)
    # The second time from the cache.
    for _ in range(2):
        table, wanted = tool.table_of("lenet.yaml", "tf32", CudaBackend(), False)
        assert (table.config, table.precision) == ("lenet.yaml", "tf32")
        assert (table.choices, table.plans) == ({"a/b/forward": "7"}, {"a/b/forward": "engine 7"})
    (path,) = (cache / "tuning").glob("*.json")
    assert json.loads(path.read_text())["graph"] == table.graph == wanted.graph
    assert start.state.sought == []
    # A training of the same network looks for what the table is for.
    path.unlink()
    start()
    assert start.state.sought[0].graph == table.graph

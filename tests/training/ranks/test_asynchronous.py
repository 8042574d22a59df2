"""Asynchronous training: servers with pieces of the parameters, workers that come and go."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.cli.main import main
from dnnstack.common.errors import ConfigError
from dnnstack.configs import parse_config
from dnnstack.training.assemble import build_network, describe_data, load_data
from dnnstack.training.normalization import preprocessing
from dnnstack.training.plan import make_plan
from dnnstack.training.ranks.servers import check_config, servers_of
from dnnstack.training.ranks.shard import Shard, check, pieces, trained
from dnnstack.training.records.formats.checkpoint import read_checkpoint
from dnnstack.training.session import Session
from dnnstack.training.setup import Setup

from ...support.ranks import LIMIT, NET, SGD, command, environment, events, needs_launcher, ranks_in
from ...support.ranks import trained as run
from ...support.stored import cases
from ...support.trainings import NOWHERE

ASYNC = "parallel: {mode: async}\n"
SLOW = SGD.replace("momentum: 0.9", "momentum: 0.5").replace("clip_norm: 0.5,", "")
WHOLE = NET.replace(", accumulate: 4", "")


def set_up(text: str, *overrides: str) -> Setup:
    config = parse_config(text, "net.yaml", overrides)
    info, data = describe_data(config), load_data(config, "train", NOWHERE)
    network, plan = build_network(config, info), make_plan(config, len(data))
    return Setup(config, network, preprocessing(config, info), plan, data)


@pytest.mark.parametrize("servers", [1, 2, 3, 7])
def test_every_number_is_held_by_one_server(servers: int) -> None:
    parameters = trained(set_up(WHOLE + SLOW + ASYNC))
    shares = [pieces(parameters, server, servers) for server in range(servers)]
    sizes = [sum(piece.end - piece.begin for piece in share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    held = [(p.parameter.tensor.name, i) for s in shares for p in s for i in range(p.begin, p.end)]
    every = [(p.tensor.name, i) for p in parameters for i in range(p.tensor.size)]
    assert held == every


@pytest.mark.parametrize("more", [(), ("optimizer.groups=[{parameters: conv2d_1.*, lr: 1}]",)])
@pytest.mark.parametrize("servers", [1, 3])
def test_servers_update_as_a_session_does(servers: int, more: tuple[str, ...]) -> None:
    """Three updates with the gradients of a session, running statistics and averages included.

    Some servers hold nothing of the group.
    """
    setup = set_up(WHOLE + SLOW + ASYNC, *more)
    session = Session(setup, ReferenceBackend(1))
    session.begin(None)
    shards = [Shard(setup, ReferenceBackend(1), number, servers) for number in range(servers)]
    for shard in shards:
        shard.put(session.arrays(), 0)
    for _ in range(3):
        session.run(1)
        read = session.executable.read
        named = {t.name: t for t in session.executable.graphs["update"].tensors()}
        kept = read(named["kept_statistics"]).reshape(-1)
        for shard in shards:
            sums = [
                p.of(read(named[f"accumulated/{p.parameter.tensor.name}"])) for p in shard.pieces
            ]
            shard.update(np.concatenate(sums), kept)
    found = {name: np.zeros(shape, np.float32) for name, shape in session.shapes().items()}
    for shard in shards:
        for name, value in shard.values().items():
            piece = shard.layout[name]
            if piece is None:
                found[name][:] = value
            else:
                piece.of(found[name])[:] = value.reshape(-1)
    for name, value in session.arrays().items():
        np.testing.assert_array_equal(found[name], value, name)


@pytest.mark.parametrize(
    ("overrides", "said"), cases(__file__, "what_cannot_be_asynchronous_is_refused")
)
def test_what_cannot_be_asynchronous_is_refused(overrides: tuple[str, ...], said: str) -> None:
    setup = set_up(WHOLE + SLOW + ASYNC, *overrides)

    def checked() -> None:
        check_config(setup.config, 4)
        check(setup, servers_of(setup.config))

    with pytest.raises(ConfigError, match=said):
        checked()
    forced = set_up(WHOLE + SLOW + ASYNC, "optimizer.momentum=0.9", "parallel.any_momentum=true")
    check_config(forced.config, 4)


def test_it_must_be_started_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.yaml"
    path.write_text(WHOLE + SLOW + ASYNC)
    assert main(["train", "--config", str(path)]) == 1
    said = capsys.readouterr().err
    assert f"{path}:" in said
    assert "parallel.mode: async needs several processes" in said
    assert main(["train", "--config", str(path), "--async"]) == 2
    assert "--async needs several processes: --ranks 5, say" in capsys.readouterr().err


@needs_launcher
def test_one_worker_trains_as_a_process_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else changes the parameters, so no gradient is stale."""
    (tmp_path / "net.yaml").write_text(WHOLE.replace("  - batch_norm\n", "") + SLOW)
    given = ("--config", "net.yaml", "--set", "train.max_steps=7")
    done = run(tmp_path, 2, *given, "--async")
    assert (done.returncode, done.stderr) == (0, "")
    monkeypatch.chdir(tmp_path)
    assert main(["train", *given, "--set", "name=alone", "--quiet"]) == 0
    found, wanted = (
        read_checkpoint(tmp_path / "runs" / name / "checkpoints" / "step-7.safetensors").arrays
        for name in ("net", "alone")
    )
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=1e-6, err_msg=name)
    lines = events(tmp_path / "runs" / "net", "train")
    assert [line["staleness"] for line in lines] == [{"0": 3}, {"0": 3}, {"0": 1}]
    assert (tmp_path / "runs" / "net" / "staleness.png").exists()


@needs_launcher
def test_a_worker_that_dies_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two servers and two workers, of which one is killed; then one process goes on alone."""
    (tmp_path / "net.yaml").write_text(WHOLE + SLOW + "schedule: fixed\n")
    steps = ("--set", "train.max_steps=160", "--set", "parallel.servers=2")
    words = command(4, "--config", "net.yaml", "--async", *steps)
    record = tmp_path / "runs" / "net"
    with (tmp_path / "out.txt").open("w+") as out:
        training = subprocess.Popen(
            words,
            cwd=tmp_path,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        end = time.monotonic() + LIMIT
        while not any(record.glob("checkpoints/step-*.json")):
            assert training.poll() is None
            assert time.monotonic() < end
            time.sleep(0.05)
        os.kill(ranks_in(tmp_path)[3], signal.SIGKILL)
        assert training.wait(LIMIT) == 0
        out.seek(0)
        said = out.read()
    assert "dnnstack: rank 3 on " in said
    assert "training goes on with 1 of 2 workers" in said
    lines = events(record, "train")
    assert lines[-1]["lost"] == [3]
    assert sum(sum(line["updates"].values()) for line in lines) == 160
    assert sum(sum(line["staleness"].values()) for line in lines) == 160
    assert json.loads((record / "log.jsonl").read_text().splitlines()[0])["ranks"] == 4
    assert "MPICH" not in said
    while ranks_in(tmp_path):
        assert time.monotonic() < end, "a rank goes on"
        time.sleep(0.05)
    monkeypatch.chdir(tmp_path)
    more = ("--set", "train.max_steps=165", "--resume", "--quiet")
    assert main(["train", "--config", "net.yaml", *more]) == 0
    assert events(record, "end")[-1]["step"] == 165

"""What `dnnstack runs` says of compressed networks, from the records of their folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from dnnstack.cli.main import main
from dnnstack.training.compressed.place import Measured, Record, StageResult
from dnnstack.training.records.runs import create_run

SHA = "a" * 64
SOURCE = "net/checkpoints/step-3.safetensors"
VALIDATED, TESTED = Measured("validation", 0.75, 1.0, 40), Measured("test", 0.5, 1.0, 40)


def run_named(name: str, sha256: str = SHA) -> Path:
    with create_run(Path("runs"), name, f"name: {name}\n", print) as run:
        line = {"event": "start", "step": 0, "time": 1.0, "total_steps": 3}
        (run.path / "log.jsonl").write_text(json.dumps(line) + "\n")
        run.checkpoints.mkdir()
        manifest = {"bytes": 5, "sha256": sha256}
        (run.checkpoints / "step-3.json").write_text(json.dumps(manifest))
        return run.path


def compressed(name: str, source: Path, file: str = "net.dnnz", sha256: str = SHA) -> Path:
    folder = Path("runs", name)
    folder.mkdir()
    stage = StageResult(
        "1-prune", f"{name}/1-prune/checkpoints/step-1.safetensors", 0.5, (VALIDATED,)
    )
    after = (VALIDATED, TESTED) if file else ()
    said = Record(str(source.absolute()), sha256, "{}", (), (stage,), after, file, 4000)
    (folder / "compress.json").write_bytes(said.to_json())
    if file:
        (folder / file).write_bytes(b"x" * 1000)
    return folder


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_named("net")
    compressed("net-compressed", Path("runs", SOURCE))


def shown(capsys: pytest.CaptureFixture[str], *options: str, status: int = 0) -> str:
    assert main(["runs", *options]) == status
    return capsys.readouterr().out


LINE = (
    "  compressed  runs/net-compressed/net.dnnz, 1,000 bytes, 4.0 times smaller, 75.00% on "
    "validation, 50.00% on test"
)


def test_below_its_run_and_in_json(capsys):
    run_named("other")
    lines = shown(capsys).splitlines()
    assert [line.split()[0] for line in lines] == ["run", "net", "compressed", "other"]
    assert lines[2] == LINE
    first, second = json.loads(shown(capsys, "--json"))
    assert first["compressed"] == [
        {
            "path": "runs/net-compressed",
            "file": "runs/net-compressed/net.dnnz",
            "bytes": 1000,
            "times": 4.0,
            "accuracy": {"validation": 0.75, "test": 0.5},
        }
    ]
    assert second["compressed"] == []


def test_unfinished_and_gone(capsys):
    compressed("net-compressed-2", Path("runs", SOURCE), file="")
    Path("runs/net-compressed/net.dnnz").unlink()
    _, _, gone, unfinished = shown(capsys).splitlines()
    assert gone.startswith("  compressed  runs/net-compressed/net.dnnz, which is gone, 75.00% on v")
    assert unfinished == (
        "  compressed  runs/net-compressed-2, not finished, 1 stage is done, 75.00% on validation"
    )


def test_copies_have_their_own(capsys, monkeypatch):
    shutil.copytree("runs", "copy/runs", symlinks=True)
    monkeypatch.chdir("copy")
    assert shown(capsys).splitlines()[2] == LINE
    # Another run has taken its name.
    shutil.rmtree("runs/net")
    run_named("net", "b" * 64)
    head, net, blank, other = shown(capsys).splitlines()
    assert (net.split()[0], blank, other) == ("net", "", LINE.strip())


def test_of_a_run_that_is_gone(capsys):
    shutil.rmtree("runs/net")
    assert shown(capsys) == f"{LINE.strip()}\n"
    assert json.loads(shown(capsys, "--json")) == []


def test_a_record_leads_nowhere_else_and_a_damaged_one_is_told(capsys):
    Path("secret.dnnz").write_bytes(b"12")
    record = compressed("out", Path("runs", SOURCE)) / "compress.json"
    for text in (record.read_text().replace("net.dnnz", "../../secret.dnnz"), "[]"):
        record.write_text(text)
        assert main(["runs"]) == 1
        out, err = capsys.readouterr()
        assert LINE in out.splitlines()
        assert "runs/out/compress.json: is damaged" in err
        assert "secret.dnnz" not in out

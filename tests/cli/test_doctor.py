from __future__ import annotations

import subprocess
from collections.abc import Callable

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_a_machine_that_is_ready(run, tmp_path):
    before = sorted(tmp_path.iterdir())
    done = run("doctor", "--data-dir", "data")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("\nready to train\n")
    for section in ("Python", "machine", "oneDNN", "GPU", "data", "folders"):
        assert section in done.stdout.splitlines()
    assert "data (--data-dir)" in done.stdout
    assert sorted(tmp_path.iterdir()) == before


def test_a_reader_who_has_seen_enough_changes_no_status(command, environment, tmp_path):
    with subprocess.Popen(
        [*command, "doctor"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
    assert process.returncode == 0

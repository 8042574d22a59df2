from __future__ import annotations

import json
import re
import sys

from ..support.ran import ran


def test_a_table_and_json_say_the_same(run):
    done = run("summary", "--config", "tiny.yaml", "--batch-size", "7")
    assert (done.returncode, done.stderr) == (0, "")
    assert "memory of a training step, batch 7" in done.stdout
    shown = json.loads(
        run("summary", "--config", "tiny.yaml", "--batch-size", "7", "--json").stdout
    )
    assert shown["batch_size"] == 7
    for layer in shown["layers"]:
        assert f"\n{layer['name']} " in done.stdout
    assert f"{shown['parameters']:,}" in done.stdout
    assert shown["config"] == "tiny.yaml"


def test_a_batch_of_nothing_is_wrong_usage(run):
    done = run("summary", "--config", "tiny.yaml", "--batch-size", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'--batch-size': expected at least 1 (got 0)" in done.stderr


def test_a_packaged_config_is_named_without_its_folder(run):
    for command in ("summary", "explain"):
        first = run(command, "--config", "lenet.yaml").stdout.splitlines()[0]
        assert "lenet.yaml" in first
        assert "/" not in first


def test_the_config_decides_the_batch_and_set_changes_it(run):
    done = run("summary", "--config", "tiny.yaml", "--set", "data.batch_size=3", "--json")
    assert json.loads(done.stdout)["batch_size"] == 3


def test_a_lecture_s_calls_are_summed_up_as_they_are_made(run):
    """Without fusion; and on a GPU as they lie there, unpadded, in fp32."""

    def of(change):
        found = run("summary", "--config", "tiny.yaml", "--set", change, "--json", status=0)
        return json.loads(found.stdout)

    lecture, plain, usual = map(of, ("run.calls=lecture", "run.fusion=false", "run.calls=best"))
    for part in ("training_step_bytes", "evaluation_bytes"):
        assert lecture[part] == plain[part] != usual[part]
    assert lecture["gpu_training_bytes"]["total"] < plain["gpu_training_bytes"]["total"]


def test_neither_data_nor_a_backend_is_touched(tmp_path):
    program = (
        "import sys; from dnnstack.cli.main import main;"
        "main(['summary', '--config', 'lenet.yaml']);"
        "print([m for m in sys.modules if m in ('cupy', 'cudnn', 'onednn')"
        " or m.startswith('dnnstack.backends.onednn')])"
    )
    done = ran([sys.executable, "-c", program], cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_named_as_for_eval(run, run_in, trained):
    wanted = run_in(trained, "summary", "--checkpoint", "runs/tiny", "--json", status=0)
    assert "using runs/tiny: step-" in wanted.stderr
    for name in ("tiny", "latest"):
        assert run_in(trained, "summary", "--checkpoint", name, "--json").stdout == wanted.stdout
    named = run_in(trained, "eval", "--checkpoint", "tiny", "--json", "--device", "numpy", status=0)
    assert json.loads(named.stdout)["checkpoint"] == json.loads(wanted.stdout)["config"]
    wrong = run_in(trained, "summary", "--checkpoint", "tinny", status=1)
    assert "tinny: no such file or run; did you mean 'tiny'? Runs in runs: tiny" in wrong.stderr
    wrong = run_in(trained, "summary", "--checkpoint", "runs")
    assert "runs: is a folder, but not that of a run" in wrong.stderr


def test_a_card_has_the_calls_of_each_layer(run):
    """With the batch that is asked for; --device cuda alone means the usual one."""
    given = ("summary", "--config", "lenet.yaml")
    text = run(*given, "--card", "t4", status=0).stdout
    assert text.startswith("Not measured, no GPU was used: ")
    assert "Tesla T4\nlimits by its maker: 8.1 TFLOP/s in fp32, 320 GB/s" in text
    assert re.search(r"\nconv2d_2  +[\d.]+ us  cudnnBackendExecute\n", text)
    assert re.search(r"\nflatten_1  +no call of its own\n", text)
    assert text.endswith(run(*given, status=0).stdout)
    small, large = (
        json.loads(run(*given, "--device", "cuda", "--batch-size", n, "--json", status=0).stdout)
        for n in ("64", "6400")
    )
    assert small["explained"]["foreseen"]["card"] == "NVIDIA H100 80GB HBM3"
    steps = [each["explained"]["totals"]["step"] for each in (small, large)]
    assert 90 * steps[0]["flops"] < steps[1]["flops"] < 110 * steps[0]["flops"]
    assert 20 * steps[0]["limit_seconds"] < steps[1]["limit_seconds"]
    assert "explained" not in json.loads(run(*given, "--json", status=0).stdout)

r"""What an ensemble of networks that differ in their seeds gains over one of them.

    python3 benchmarks/ensembles.py --folder ensembles --data-dir ~/data
    python3 benchmarks/ensembles.py --config cifar10-resnet9.yaml --device cuda --folder ensembles \
        --set data.validation=5000 --set run.precision=bf16 --seconds 240

Each repetition trains a group of ``--members`` networks with seeds of its own (``train --seeds``),
and evaluates it on the test set (``eval --ensemble``). Of every network the checkpoint that is best
on validation counts. The chosen member is the one that is best there; the best member is chosen on
the test set, so its accuracy is too high. A repetition whose figures are in
``FOLDER/repetitions.jsonl`` is not made again, and one that was interrupted goes on where it was:
after ``--seconds`` no further one is begun. ``--earlier`` names another such file, or rows of a
table that was printed before, whose repetitions count as made. Prints a table: a row for each
repetition, then mean and deviation over them. Options after ``--`` go to ``dnnstack train``.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Any

TOOL = (sys.executable, "-m", "dnnstack.cli")
COLUMNS = (
    *("repetition", "seeds", "a member, mean", "its deviation", "chosen member", "best member"),
    "ensemble",
    *("over the mean", "over the best"),
)
GAINS = ("gain_over_mean", "gain_over_best")
NUMBER = re.compile(r"[+-]\d+\.\d+")
HEAD = f"| {' | '.join(COLUMNS)} |\n{'| --- ' * len(COLUMNS)}|"


def call(*words: str) -> str:
    """The standard output of a command of the tool; ends the benchmark with its message."""
    done = subprocess.run([*TOOL, *words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"dnnstack {' '.join(words)}\n{done.stderr}")
    return done.stdout


def repeat(options: argparse.Namespace, number: int) -> dict[str, Any]:
    """Train a group, or go on with it, and evaluate the ensemble on the test set."""
    runs = options.folder / f"repetition-{number}"
    seed = 1 + (number - 1) * options.members
    where = ["--runs-dir", str(runs), "--device", options.device, "--quiet"]
    where += [] if options.threads is None else ["--threads", str(options.threads)]
    where += [] if options.data_dir is None else ["--data-dir", str(options.data_dir)]
    chosen = [word for each in options.overrides for word in ("--set", each)]
    chosen += ["--set", f"seed={seed}", "--set", "name=member"]
    group = "member-seeds"
    more = ["--resume"] if (runs / group / "group.json").exists() else []
    words = ["--config", options.config, "--seeds", str(options.members), *more]
    call("train", *words, *chosen, *where, *options.rest)
    combine = ["--combine", options.combine]
    found = call("eval", "--ensemble", group, *combine, "--json", "--no-plots", *where)
    result = json.loads(found)
    ensemble = result["ensemble"]
    listed = json.loads(call("runs", "--group", group, "--json", "--runs-dir", str(runs)))["runs"]
    known = [each["best_accuracy"] or 0.0 for each in listed]
    chosen_one = max(range(len(known)), key=known.__getitem__)
    return {
        "repetition": number,
        "seeds": [seed, seed + options.members - 1],
        "count": result["count"],
        "members": [member["correct"] for member in ensemble["members"]],
        "validation": known,
        "chosen": ensemble["members"][chosen_one]["correct"],
        "ensemble": result["correct"],
        "gain_over_mean": ensemble["gain_over_mean"],
        "gain_over_best": ensemble["gain_over_best"],
    }


def figures(found: dict[str, Any]) -> dict[str, Any]:
    """What a row shows of a repetition, in percent."""
    count, (first, last) = found["count"], found["seeds"]
    members = [100 * each / count for each in found["members"]]
    gains = {
        key: tuple(100 * each for each in (found[key]["difference"], *found[key]["interval"]))
        for key in GAINS
    }
    return {
        "repetition": found["repetition"],
        "seeds": f"{first} to {last}",
        "mean": mean(members),
        "deviation": stdev(members),
        "chosen": 100 * found["chosen"] / count,
        "best": max(members),
        "ensemble": 100 * found["ensemble"] / count,
        **gains,
    }


def row(shown: dict[str, Any]) -> str:
    gains = ["{:+.3f} ({:+.3f} to {:+.3f})".format(*shown[key]) for key in GAINS]
    cells = [str(shown["repetition"]), shown["seeds"], f"{shown['mean']:.3f}%"]
    cells += [f"{shown['deviation']:.3f}", f"{shown['chosen']:.2f}%", f"{shown['best']:.2f}%"]
    cells += [f"{shown['ensemble']:.2f}%", *gains]
    return f"| {' | '.join(cells)} |"


def earlier(file: Path) -> list[dict[str, Any]]:
    """The figures of the repetitions in a file: a ``repetitions.jsonl``, or rows of a table."""
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip(" %") for cell in line.strip("| ").split(" | ")]
        if line.startswith("{"):
            found.append(figures(json.loads(line)))
        elif len(cells) == len(COLUMNS) and cells[0].isdigit():
            numbers = [float(cell) for cell in cells[2:7]]
            gains = [[float(each) for each in NUMBER.findall(cell)] for cell in cells[7:]]
            names = ("repetition", "seeds", "mean", "deviation", "chosen", "best", "ensemble")
            values = (int(cells[0]), cells[1], *numbers, *gains)
            found.append(dict(zip((*names, *GAINS), values, strict=True)))
    return found


def summary(every: list[dict[str, Any]]) -> str:
    """Mean and deviation over the repetitions."""

    def spread(values: list[float], sign: str = "") -> str:
        deviation = f" +- {stdev(values):.3f}" if len(values) > 1 else ""
        return f"{mean(values):{sign}.3f}{'' if sign else '%'}{deviation}"

    kinds = ("mean", "chosen", "best", "ensemble")
    cells = [spread([each[kind] for each in every]) for kind in kinds]
    cells.insert(1, "")
    cells += [spread([each[key][0] for each in every], "+") for key in GAINS]
    return f"| mean of {len(every)} | | {' | '.join(cells)} |".replace("|  |", "| |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="lenet.yaml")
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--repetitions", type=int, default=5, help="the last one's number")
    parser.add_argument("--first", type=int, default=1, help="the first one's number")
    parser.add_argument("--earlier", type=Path, help="further figures: .jsonl, or printed rows")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for everything")
    parser.add_argument("--combine", default="probabilities")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--folder", type=Path, required=True, help="for the runs and the figures")
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:split])
    options.rest = words[split + 1 :]
    options.folder.mkdir(parents=True, exist_ok=True)
    record = options.folder / "repetitions.jsonl"
    files = [file for file in (options.earlier, record) if file is not None and file.exists()]
    known = {each["repetition"]: each for file in files for each in earlier(file)}
    every = [known[number] for number in sorted(known)]
    print(HEAD, flush=True)
    for each in every:
        print(row(each), flush=True)
    begin, longest = time.monotonic(), 0.0
    for number in range(options.first, options.repetitions + 1):
        if number not in known:
            began = time.monotonic()
            if began + longest > begin + options.seconds:
                print(f"the time is up before repetition {number}", file=sys.stderr)
                break
            found = repeat(options, number)
            longest = time.monotonic() - began
            with record.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
            every.append(figures(found))
            print(row(every[-1]), flush=True)
    if every:
        print(summary(every))


if __name__ == "__main__":
    main()

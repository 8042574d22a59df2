"""Coverage-guided fuzzing of one reader: ``python guided.py TARGET FOLDER [option of libFuzzer]``.

The folder keeps the inputs that reached new code, and any input that broke the reader.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path

import atheris


def main(name: str, folder: Path, options: list[str]) -> None:
    # So that the targets' relative imports work; tests/ is no package that is installed.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    with atheris.instrument_imports(include=["dnnstack"]):
        module = importlib.import_module("tests.fuzz.targets")
    from tests.fuzz.harness import examine

    target = module.TARGETS[name]
    warnings.simplefilter("error")
    corpus, work = folder / "corpus", folder / "work"
    for place in (corpus, work):
        place.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)

    def one(data: bytes) -> None:
        examine(target, data, work)

    longest = 4 * max(len(seed) for seed in target.seeds())
    words = (f"-artifact_prefix={folder}/", f"-max_len={longest}", "-rss_limit_mb=0", "-timeout=60")
    atheris.Setup([sys.argv[0], *words, *options, str(corpus)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).resolve(), sys.argv[3:])

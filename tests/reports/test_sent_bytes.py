"""The table of docs/parallel.md that says what ranks send, computed anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from dnnstack.configs import load_config
from dnnstack.reports.summary import summarize

PAGE = Path(__file__).resolve().parents[2] / "docs" / "parallel.md"
NETS = {
    "LeNet, 64": ("lenet.yaml", ("dense_1",)),
    "AlexNet, 128": ("alexnet.yaml", ("fc6", "fc7", "fc8")),
    "VGG-16, 256": ("vgg16.yaml", ("fc6", "fc7", "fc8")),
}


def rows(split: str = "dense layers") -> list[tuple[str, list[str]]]:
    """The rows of a table, each with the name of its network."""
    head = f"| network, batch | ranks | sent, nothing split | sent, {split} split"
    _, _, text = PAGE.read_text("utf-8").partition(head)
    lines = text.partition("\n\n")[0].splitlines()[2:]
    found, name = [], ""
    for line in lines:
        first, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        name = first.partition(" (")[0] or name
        found.append((name, cells))
    return found


@pytest.mark.parametrize("name", NETS)
def test_the_table_of_bytes_is_what_the_summary_counts(name):
    config, layers = NETS[name]
    split = [f"layers.{layer}.parallel={{split: units}}" for layer in layers]
    told = [cells for each, cells in rows() if each == name]
    assert told
    # The last row has the most ranks.
    for cells in (told[0], told[-1]):
        ranks, digits = int(cells[0]), 2 if name.startswith("LeNet") else 1
        plain, shared = (
            summarize(loaded.config, loaded.path, ranks=ranks)
            for loaded in (load_config(config), load_config(config, split))
        )
        by_phase = [shared.sent_by_phase[phase] for phase in ("forward", "backward", "update")]
        sent = [plain.sent_bytes, shared.sent_bytes, *by_phase]
        assert cells[1:6] == [f"{n / 1e6:.{digits}f}" for n in sent]


def test_so_is_the_table_of_rows_that_are_split():
    for _, cells in rows("rows"):
        plain, banded = (
            summarize(load_config(name).config, Path(name), ranks=int(cells[0]))
            for name in ("lenet.yaml", "lenet-space.yaml")
        )
        by_phase = [banded.sent_by_phase[phase] for phase in ("forward", "backward", "update")]
        sent = [plain.sent_bytes, banded.sent_bytes, *by_phase]
        assert cells[1:6] == [f"{n / 1e6:.2f}" for n in sent]

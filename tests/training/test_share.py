"""How many ranks go with how many parts of a batch, and what does not depend on their number."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from dnnstack.backends.tuning import fingerprint, training_sections
from dnnstack.common.errors import ConfigError
from dnnstack.configs import RunConfig
from dnnstack.graph.graph import Graph
from dnnstack.graph.ops import AllGather, AllReduce
from dnnstack.training.assemble import build_network, describe_data, load_data
from dnnstack.training.normalization import preprocessing
from dnnstack.training.plan import make_plan
from dnnstack.training.setup import Setup
from dnnstack.training.share import RankShare, allowed_ranks, check_ranks, shared_out

from ..support.stored import cases
from ..support.trainings import NOWHERE

Make = Callable[..., RunConfig]


@pytest.mark.parametrize(
    ("parts", "allowed"), cases(__file__, "every_rank_has_a_branch_of_the_tree")
)
def test_every_rank_has_a_branch_of_the_tree(parts, allowed):
    assert allowed_ranks(parts) == (*allowed,)
    for ranks in range(1, parts + 3):
        if ranks in allowed:
            check_ranks(parts, ranks)
        else:
            with pytest.raises(ConfigError, match=rf"{parts} parts .* over {ranks} ranks"):
                check_ranks(parts, ranks)


def test_ranks_make_parts_where_the_config_has_one(tiny):
    config, parts = shared_out(tiny(), 4, None)
    assert (config.train.accumulate, parts) == (4, 4)
    config, parts = shared_out(tiny("train.accumulate=8"), 4, None)
    assert (config.train.accumulate, parts) == (8, 0)
    config, parts = shared_out(tiny(), 1, None)
    assert (config.train.accumulate, parts) == (1, 0)
    with pytest.raises(ConfigError, match=r"3 parts of equal size; .* that fit it: 2, 4, 8, 16$"):
        shared_out(tiny(), 3, None)


def sections(config: RunConfig, share: RankShare, pieces: int = 1) -> dict[str, Graph]:
    info = describe_data(config)
    data = load_data(config, "train", NOWHERE)
    network, plan = build_network(config, info), make_plan(config, len(data))
    setup = Setup(config, network, preprocessing(config, info), plan, data, share=share)
    return setup.sections(pieces).graphs()


def test_the_fastest_calls_are_the_same_for_all_ranks(tiny):
    """And timing them makes nobody wait for another."""
    config = tiny("layers.1=batch_norm", "train.accumulate=8", "optimizer.clip_norm=1")
    marks = set()
    for ranks in (1, 2, 4, 8):
        for rank in range(ranks):
            graphs = sections(config, RankShare(rank, ranks))
            together = (AllReduce, AllGather)
            found = [op for op in graphs["update"].ops if isinstance(op, together)]
            assert len(found) == (0 if ranks == 1 else 3)
            timed = training_sections(graphs)
            assert not any(isinstance(op, together) for g in timed.values() for op in g.ops)
            marks.add(fingerprint(timed))
    assert len(marks) == 1
    other = sections(tiny("layers.1=batch_norm", "train.accumulate=4"), RankShare())
    assert fingerprint(training_sections(other)) not in marks


def test_the_device_says_how_many_pieces_unless_the_config_does(tiny):
    def found(pieces: int, *more: str) -> int:
        """How many sums there are, of which the section of a part has all but the last."""
        graphs = sections(tiny("train.accumulate=2", *more), RankShare(0, 2), pieces)
        sums = [[op for op in g.ops if isinstance(op, AllReduce)] for g in graphs.values()]
        assert len(sums[1]) == 1
        return len(sums[0]) + 1

    assert (found(2), found(1)) == (2, 1)
    for pieces in (1, 2):
        assert found(pieces, "parallel.buckets=1") == 1
        assert found(pieces, "parallel.buckets=3") == 3


def test_counters_begin_with_the_own_parts(tiny):
    config = tiny("train.accumulate=8")
    written: list[tuple[str, int]] = []

    class Counters:
        def write(self, tensor, array) -> None:  # type: ignore[no-untyped-def]
            written.append((tensor.name, int(array[0])))

    info = describe_data(config)
    data = load_data(config, "train", NOWHERE)
    network, plan = build_network(config, info), make_plan(config, len(data))
    setup = Setup(config, network, preprocessing(config, info), plan, data, share=RankShare(3, 4))
    stretch = setup.sections().stretches[0]
    assert stretch.own == 2
    assert [graph.name for graph in stretch.runs()] == ["train", "train", "update"]
    stretch.go_to(Counters(), 5)  # type: ignore[arg-type]
    assert written == [("step", 5 * 8 + 3 * 2), ("update.step", 5)]

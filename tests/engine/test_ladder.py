"""Lanes and partners: who exchanges with whom, and when."""

import numpy as np
import pytest

from tabi.draws import LegSpec
from tabi.engine import Ladder
from tabi.paths import Base, FullPosterior, GeometricPath, Restricted, TimesF

POSTERIOR = GeometricPath()
PLUS, MINUS = (GeometricPath(Restricted(s), TimesF(s)) for s in (1, -1))


def rungs(count: int) -> np.ndarray:
    return np.linspace(0, 1, count)


LADDERS = {
    "one leg": Ladder.build([LegSpec(POSTERIOR)], [rungs(5)]),
    "two rungs": Ladder.build([LegSpec(POSTERIOR)], [rungs(2)]),
    "three components": Ladder.build(
        [LegSpec(POSTERIOR, c) for c in range(3)], [rungs(4), rungs(5), rungs(2)]
    ),
    "the paper's": Ladder.build(
        [LegSpec(PLUS), LegSpec(MINUS), LegSpec(POSTERIOR)], [rungs(4), rungs(3), np.zeros(1)]
    ),
    "from the prior": Ladder.build(
        [LegSpec(GeometricPath(Base(), FullPosterior())), LegSpec(POSTERIOR)], [rungs(3), rungs(3)]
    ),
}


@pytest.fixture(params=LADDERS.values(), ids=LADDERS.keys())
def ladder(request):
    return request.param


def edges(ladder: Ladder) -> set[tuple[int, int]]:
    """Neighbours of every leg."""
    return {
        (int(a), int(b)) for lanes in ladder.lanes for a, b in zip(lanes, lanes[1:], strict=False)
    }


def used(row: np.ndarray) -> set[tuple[int, int]]:
    return {(i, int(p)) for i, p in enumerate(row) if i < p}


def test_every_lane_is_a_rung_of_a_leg(ladder):
    assert sorted(set(np.concatenate(ladder.lanes))) == list(range(ladder.size))
    for leg, lanes, betas in zip(ladder.legs, ladder.lanes, ladder.betas, strict=True):
        np.testing.assert_array_equal(ladder.beta[lanes], betas)
        assert np.all(ladder.component[lanes[1:]] == leg.component)
        index = ladder.path_index([POSTERIOR, PLUS, MINUS, GeometricPath(Base(), FullPosterior())])
        assert len(set(index[lanes[1:]])) <= 1


def test_partners_are_mutual_neighbours_of_one_leg(ladder):
    for row in ladder.partners:
        np.testing.assert_array_equal(row[row], np.arange(ladder.size))
        assert used(row) <= edges(ladder)


def test_every_edge_gets_its_turn_and_turns_alternate(ladder):
    seen = [used(row) for row in ladder.partners]
    assert set().union(*seen) == edges(ladder)
    for now, after in zip(seen, seen[1:], strict=False):
        assert not now & after, "no edge exchanges twice in a row"


def test_a_shared_root_takes_its_legs_in_rotation():
    ladder = LADDERS["three components"]
    assert [lanes[0] for lanes in ladder.lanes] == [0, 0, 0] and ladder.size == 4 + 4 + 1
    partners = [int(row[0]) for row in ladder.partners]
    firsts = [int(lanes[1]) for lanes in ladder.lanes]
    assert partners == [firsts[0], 0, firsts[1], 0, firsts[2], 0]
    # A leg that has to wait for the root still exchanges its other rungs.
    lanes = ladder.lanes[1]
    assert ladder.partners[0][lanes[2]] == lanes[3]


def test_only_starts_that_do_not_depend_on_f_are_shared():
    restricted = Ladder.build([LegSpec(PLUS, 0), LegSpec(PLUS, 1)], [rungs(3), rungs(3)])
    assert restricted.size == 6
    base = GeometricPath(Base(), TimesF())
    assert Ladder.build([LegSpec(base, 0), LegSpec(base, 1)], [rungs(3), rungs(3)]).size == 5
    # Prior and posterior are two starts, a leg that begins above 0 shares none.
    assert LADDERS["from the prior"].size == 6
    above = Ladder.build([LegSpec(POSTERIOR, c) for c in (0, 1)], [rungs(3), rungs(3) + 0.1])
    assert above.size == 6


def test_without_exchange_everybody_stays():
    ladder = Ladder.build([LegSpec(POSTERIOR, c) for c in (0, 1)], [rungs(4)] * 2, exchange=False)
    for row in ladder.partners:
        np.testing.assert_array_equal(row, np.arange(ladder.size))


def test_parallel_lanes_are_particles_and_never_exchange():
    ladder = Ladder.parallel([LegSpec(POSTERIOR, 0), LegSpec(PLUS, 1)], [0.0, 0.7], copies=3)
    assert ladder.size == 6
    np.testing.assert_array_equal(ladder.beta, [0, 0, 0, 0.7, 0.7, 0.7])
    np.testing.assert_array_equal(ladder.component, [0, 0, 0, 1, 1, 1])
    assert np.all(ladder.partners == np.arange(6))

"""Lanes and who exchanges with whom."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tabi.draws import LegSpec
from tabi.paths import AbstractPath, Base, FullPosterior


@dataclass(frozen=True, eq=False)
class Ladder:
    """The rungs of all legs laid out as lanes.

    Attributes
    ----------
    legs
        What each leg samples.
    betas
        Where its rungs stand.
    lanes
        Which lanes they occupy. Legs that start at the same density, independent of f, share
        that lane: components of f share the posterior draws.
    exchange
        Whether neighbours exchange states.
    """

    legs: tuple[LegSpec, ...]
    betas: tuple[np.ndarray, ...]
    lanes: tuple[np.ndarray, ...]
    exchange: bool

    @classmethod
    def build(
        cls, legs: Sequence[LegSpec], betas: Sequence[np.ndarray], *, exchange: bool = True
    ) -> "Ladder":
        """Rungs in order, shared starts once."""
        shared: dict[object, int] = {}
        lanes, used = [], 0
        for leg, rungs in zip(legs, betas, strict=True):
            start = getattr(leg.path, "start", None)
            places = np.arange(used, used + len(rungs))
            if rungs[0] == 0 and isinstance(start, FullPosterior | Base):
                root = shared.setdefault(start, used)
                if root != used:
                    places = np.concatenate([[root], np.arange(used, used + len(rungs) - 1)])
            lanes.append(places)
            used = max(used, places[-1] + 1)
        return cls(tuple(legs), tuple(np.asarray(b, float) for b in betas), tuple(lanes), exchange)

    @classmethod
    def parallel(cls, legs: Sequence[LegSpec], betas: Sequence[float], copies: int) -> "Ladder":
        """`copies` lanes of every leg at one beta each: particles, not rungs."""
        lanes = [np.arange(i * copies, (i + 1) * copies) for i in range(len(legs))]
        rungs = [np.full(copies, beta) for beta in betas]
        return cls(tuple(legs), tuple(rungs), tuple(lanes), False)

    @property
    def size(self) -> int:
        """Number of lanes."""
        return int(max(lanes[-1] for lanes in self.lanes)) + 1

    @cached_property
    def leg_of_lane(self) -> np.ndarray:
        """The first leg of each lane, [lane]."""
        owner = np.zeros(self.size, int)
        for i in reversed(range(len(self.legs))):
            owner[self.lanes[i]] = i
        return owner

    @cached_property
    def beta(self) -> np.ndarray:
        """beta of each lane, [lane]."""
        values = np.zeros(self.size)
        for lanes, betas in zip(self.lanes, self.betas, strict=True):
            values[lanes] = betas
        return values

    @cached_property
    def component(self) -> np.ndarray:
        """Component of f that each lane reads, [lane]."""
        return np.asarray([self.legs[i].component for i in self.leg_of_lane], np.int32)

    def path_index(self, paths: Sequence[AbstractPath]) -> np.ndarray:
        """Which of these paths each lane follows, [lane]."""
        return np.asarray([paths.index(self.legs[i].path) for i in self.leg_of_lane], np.int32)

    @cached_property
    def partners(self) -> np.ndarray:
        """Who exchanges with whom, [turn, lane]; one's own lane means nobody.

        Non-reversible (even/odd) exchange: rungs (0, 1), (2, 3), ... in even turns, (1, 2),
        (3, 4), ... in odd ones. A shared lane takes its legs in rotation.
        """
        if not self.exchange:
            return np.arange(self.size)[None].repeat(2, 0)
        sharing = max(np.bincount([lanes[0] for lanes in self.lanes]))
        table = np.arange(self.size)[None].repeat(2 * sharing, 0)
        turns: dict[int, int] = {}
        for lanes in self.lanes:
            rank = turns[lanes[0]] = turns.get(lanes[0], -1) + 1
            for turn in range(2 * sharing):
                lower = lanes[turn % 2 : -1 : 2]
                upper = lanes[turn % 2 + 1 :: 2]
                # In even turns only one leg at a time may use the shared first lane.
                skip = 1 if turn % 2 == 0 and turn // 2 != rank and sharing > 1 else 0
                table[turn, lower[skip:]], table[turn, upper[skip:]] = upper[skip:], lower[skip:]
        return table

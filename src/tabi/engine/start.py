"""Where the ladders begin, and what is wrong with a start that cannot be one."""

from collections.abc import Callable

import jax
import numpy as np

from tabi.engine.sampler import Engine, InvalidModel
from tabi.state import ChainState

# A start drawn outside the support is drawn again so many times.
ATTEMPTS = 16


def start_states(
    engine: Engine,
    positions: np.ndarray,
    redraw: Callable[[int, int], np.ndarray] | None,
    *,
    each: bool = False,
    budget: int | None = None,
) -> ChainState:
    """States at the start positions [ladder, coordinate], drawn again where the density is 0.

    Without `redraw` all ladders begin at one position, which is evaluated once; with `each` once
    for every ladder, as chains that know nothing of each other would. Drawing again stops before
    more than `budget` evaluations are spent.

    Raises
    ------
    InvalidModel
        If the density or f is NaN at a start.
    ValueError
        If the density is zero there.
    """
    if redraw is None:
        state = engine.start(positions if each else positions[:1])
        _check_numbers(engine, state)
        if np.isneginf(state.scalars.log_pi[0]):
            raise ValueError(
                f"log_density is -inf at the start {engine.describe(positions[0])}; give an init "
                f"inside the support{_hint(engine)}"
            )
        return jax.tree.map(lambda a: np.repeat(a[:1], len(positions), 0), state)
    if budget is not None and budget < len(positions):
        raise ValueError(
            f"max_evaluations={budget:,} does not pay for the starts of {len(positions)} ladders"
        )
    states = engine.start(positions)
    for attempt in range(1, ATTEMPTS + 1):
        _check_numbers(engine, states)
        outside = np.flatnonzero(np.isneginf(states.scalars.log_pi))
        if not outside.size:
            return states
        # All are evaluated again, so that one compiled program serves every attempt.
        positions = positions.copy()
        for ladder in outside:
            positions[ladder] = redraw(int(ladder), attempt)
        if budget is not None and engine.tally.evaluations + len(positions) > budget:
            break
        states = engine.start(positions)
    raise ValueError(
        f"log_density was -inf at {attempt} starts in a row that init drew, last at "
        f"{engine.describe(positions[outside[0]])}; is the density zero everywhere? Give an init "
        "inside the support"
    )


def _hint(engine: Engine) -> str:
    single = engine.specification.target.dtype == np.float32
    return ', or use Posterior(..., dtype="float64") if it is finite there' if single else ""


def _check_numbers(engine: Engine, states: ChainState) -> None:
    scalars = states.scalars
    inside = ~np.isneginf(scalars.log_pi)
    wrong = {
        "log_density is NaN or +inf": np.isnan(scalars.log_pi) | np.isposinf(scalars.log_pi),
        "f is NaN or infinite": inside & np.isnan(scalars.log_abs_f).any(-1),
    }
    if scalars.level is not None:
        wrong["the level is NaN"] = inside & np.isnan(scalars.level).any(-1)
    for what, where in wrong.items():
        if where.any():
            position = engine.describe(states.position[np.argmax(where)])
            raise InvalidModel(f"{what} at the start {position}; give an init where it is finite")

"""The engine: the one sampling loop, its rounds, and how a ladder is warmed up."""

from tabi.engine.effort import Effort, choose_effort
from tabi.engine.ladder import Ladder
from tabi.engine.program import Specification
from tabi.engine.sampler import Engine, InvalidModel, Round, Tally, Unit
from tabi.engine.start import start_states
from tabi.engine.warmup import OutOfBudget, Warm, WarmUp

__all__ = [
    "Effort",
    "Engine",
    "InvalidModel",
    "Ladder",
    "OutOfBudget",
    "Round",
    "Specification",
    "Tally",
    "Unit",
    "Warm",
    "WarmUp",
    "choose_effort",
    "start_states",
]

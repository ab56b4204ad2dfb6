"""Bridge sampling between pi and |f| pi: two rungs and nothing between (the paper's appendix A).

The optimal bridge's iterations

    I <- [mean_{x ~ pi} f(x) / (N2 f(x) + N1 I)] / [mean_{z ~ |f| pi} 1 / (N2 f(z) + N1 I)]

converge to the root that `tabi.estimators.BAR` solves for.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from tabi.engine import Effort, Engine, InvalidModel
from tabi.estimators import BAR, Estimate, EstimationError, fraction, product
from tabi.estimators.bar import edge_influence, edge_root
from tabi.kernels import HMC, AbstractKernel, RandomWalk
from tabi.methods.answers import Answers, ladder_answers, nothing_seen
from tabi.methods.base import AbstractMethod, Question
from tabi.methods.checks import check
from tabi.methods.fixed_run import FixedPlan, run_fixed
from tabi.methods.independent import BATCH, open_engine
from tabi.methods.ladder_run import Plan, component_legs, run_ladder
from tabi.methods.outcome import Outcome
from tabi.paths import GeometricPath
from tabi.result import Result
from tabi.runtime.precision import precision
from tabi.schedules import Adaptive, Uniform
from tabi.state import Scalars
from tabi.target import Target, as_floats

TO_F = GeometricPath()


class BridgeSampling(AbstractMethod):
    """The optimal bridge between draws of pi and draws of |f| pi.

    Parameters
    ----------
    draws
        Pair (draws of pi, draws of |f| pi) that the user already has: arrays or pytrees with
        leading axes (draw) or (chain, draw), in the user's space. f is then one number. None: the
        method draws its own.
    kernel, effort
        As in `tabi.GTI`.
    """

    draws: tuple[Any, Any] | None = None
    kernel: AbstractKernel = HMC()
    effort: Effort | None = None

    def __check_init__(self) -> None:
        if self.draws is not None and len(self.draws) != 2:
            raise ValueError(
                f"draws must be a pair (of the posterior, of |f| times it), got {len(self.draws)}"
            )

    @classmethod
    def as_published(cls, covariance: Any) -> "PublishedBridge":
        """One random-walk chain at each end, E/2 draws each.

        Parameters
        ----------
        covariance
            Of the proposal: a number, a vector of variances or a matrix.
        """
        return PublishedBridge(covariance)

    def run(self, question: Question) -> Result:
        if self.draws is not None:
            return _run_given(self.draws, question, self.describe())
        plan = Plan(
            legs=component_legs(question, (TO_F,)),
            alone=(),
            schedule=Adaptive(count=2),
            kernel=self.kernel,
            exchange=False,
            effort=self.effort,
            answer=partial(ladder_answers, estimator=BAR()),
        )
        return run_ladder(plan, question, self.describe())

    def describe(self) -> str:
        source = "given draws" if self.draws is not None else type(self.kernel).__name__
        return f"BridgeSampling({source})"


class PublishedBridge(AbstractMethod):
    """Bridge sampling with the paper's settings; made by `BridgeSampling.as_published`."""

    covariance: Any

    def run(self, question: Question) -> Result:
        plan = FixedPlan(
            legs=component_legs(question, (TO_F,)),
            alone=(),
            schedule=Uniform(2),
            kernel=RandomWalk(covariance=self.covariance, moves=1),
            posterior_draws=None,
            answer=partial(ladder_answers, estimator=BAR()),
        )
        return run_fixed(plan, question, self.describe())

    def describe(self) -> str:
        return "BridgeSampling as published (RandomWalk)"


def _run_given(draws: tuple[Any, Any], question: Question, method: str) -> Result:
    target = question.target
    if target.components != 1:
        raise ValueError(
            f"given draws of |f| times the posterior belong to one f, got f of shape "
            f"{target.f_shape}; ask for one component at a time"
        )
    with precision(target.dtype):
        lower, upper = (_flat(target, part) for part in draws)
    count = sum(part.shape[0] * part.shape[1] for part in (lower, upper))
    if count > question.max_evaluations:
        raise ValueError(
            f"evaluating {count:,} given draws needs more than max_evaluations="
            f"{question.max_evaluations:,}; give fewer draws or a larger budget"
        )
    with open_engine(question, ()) as engine:
        ends = [_scalars(engine, part) for part in (lower, upper)]
        found = _bridge(*ends)
        findings = check(found, (), False, engine.tally.invalid / engine.tally.evaluations)
        return Outcome(found, findings).result(question, engine, method)


def _flat(target: Target, part: Any) -> np.ndarray:
    """Given draws in the sampling space, [chain, draw, coordinate]."""
    position = target.position(jnp.zeros(target.size))
    wanted, given = jax.tree.structure(position), jax.tree.structure(part)
    if wanted != given:
        raise ValueError(f"given draws have the structure {given}; a position has {wanted}")
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(position)]
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(part)]
    leading = leaves[0].ndim - len(shapes[0]) if len(leaves) == len(shapes) else 0
    fits = all(
        leaf.shape[leading:] == shape and leaf.shape[:leading] == leaves[0].shape[:leading]
        for leaf, shape in zip(leaves, shapes, strict=False)
    )
    if leading not in (1, 2) or not fits:
        raise ValueError(
            f"given draws have shapes {[leaf.shape for leaf in leaves]}; a position has "
            f"{shapes}: put one axis (draw) or two (chain, draw) before it"
        )
    lead = leaves[0].shape[:leading] if leading == 2 else (1, *leaves[0].shape[:1])
    rows = [leaf.reshape(-1, *shape) for leaf, shape in zip(leaves, shapes, strict=True)]
    tree = jax.tree.unflatten(jax.tree.structure(part), rows)
    flat = np.asarray(jax.vmap(lambda x: ravel_pytree(x)[0])(as_floats(tree, target.dtype)))
    flat = np.asarray(flat, np.float64)
    if not np.all(np.isfinite(flat)) or np.any(target.transform.outside(flat)):
        raise ValueError("given draws must be finite and strictly inside the bounds")
    return target.transform.inverse(flat).reshape(*lead, target.size)


def _scalars(engine: Engine, part: np.ndarray) -> Scalars:
    """One-component scalars of given draws, [chain, draw]."""
    positions = part.reshape(-1, part.shape[-1])
    found = engine.evaluate("given draws", positions, BATCH)
    if engine.tally.invalid:
        where = engine.describe(engine.tally.first_invalid)
        raise InvalidModel(
            f"the log density or f is NaN (or f infinite) at the given draw {where}; give draws "
            "where both are finite"
        )
    return jax.tree.map(lambda a: a.reshape(*part.shape[:2], *a.shape[1:]), found).component(0)


def _bridge(lower: Scalars, upper: Scalars) -> Answers:
    """The bridge with any numbers of draws at its two ends, which are independent streams."""
    outside = np.isneginf(upper.log_pi) | (upper.sign_f == 0)
    if np.any(np.isneginf(lower.log_pi)) or np.any(outside):
        raise ValueError(
            "a given draw lies outside the support of its density: of the posterior in the first "
            "set, or of |f| times it (f = 0) in the second"
        )
    ratios = lower.log_abs_f, upper.log_abs_f
    ones = np.ones_like(ratios[0]), np.ones_like(ratios[1])
    try:
        root = edge_root(*ratios, *ones)
        below, above = edge_influence(*ratios, *ones, root)
    except EstimationError as refusal:
        return nothing_seen(1, str(refusal))
    # d log I = d C, by both streams: a factor of exp(0) carries the second one's influence.
    factors = [Estimate(root, below[None], stream="posterior")]
    factors.append(Estimate(0.0, above[None], stream="target"))
    terms = []
    for sign in (1, -1):
        share = fraction(upper.sign_f == sign, stream="target")
        terms.append(product(sign, *factors, share))
    return Answers.of_terms([t for t in terms if t.log_value > -np.inf])

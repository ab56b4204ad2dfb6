"""Target-aware nested sampling (TANS): Z, c+ and c- each by a run of live points from the prior.

The live point of the lowest likelihood L (l for Z, f+ l for c+) is replaced by a move constrained
to larger ones (see `tabi.engine.nest`). The prior mass above L shrinks by exp(-1/n) on average,

    c = sum_t L_t (X_{t-1} - X_t) + X_T mean L(live),    X_t = exp(-t / n),

times the prior mass where the target is positive. What is random are the shrinkages, each an
exponential of mean 1/n in log X, whence (with the posterior weights p_t of the points)

    Var log c = sum_t (sum_{s >= t} p_s)^2 / n^2.

That holds if the moves forget where they began: the ranks of the new points among the others are
then uniform and uncorrelated with those of the points they began at. Moves that hardly move leave
uniform ranks, for they repeat those of their beginnings, so both are tested; a run that fails is
not converged.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import scipy

from tabi.engine import Engine
from tabi.engine.nest import Nest
from tabi.kernels import AbstractKernel, RandomWalk
from tabi.methods.answers import Answers, nothing_seen
from tabi.methods.base import AbstractMethod, BudgetTooSmall, Question
from tabi.methods.checks import Findings, check
from tabi.methods.fresh_rounds import fresh_rounds
from tabi.methods.independent import open_engine
from tabi.methods.outcome import Outcome, unfinished
from tabi.methods.prior_runs import PATHS, Constant, open_constants, require_prior
from tabi.references import Prior
from tabi.result import Result
from tabi.state import ChainState

# Runs of one task.
TOGETHER = 4
# Live points of a pilot run.
PILOT = 32
# The most of the budget that may go into prior draws to begin with.
STARTING = 0.25
# A run ends when its live points can add so little to log c.
REMAINDER = 1e-3
# Ranks so far from uniform are no chance.
LEAST_P_VALUE = 1e-4
# Of the ranks with those of the points that moves began at: a share rho of copies among the new
# points makes families of (1 + rho) / (1 - rho) points, and errors larger by the root of that.
MOST_CORRELATION = 0.3
# Share of c that the live points may hold where the budget ends.
MOST_LEFT = 0.1
# Iterations of a published run that one task carries out.
SEGMENT = 1000
REMEDY = "use a kernel with more moves, or tabi.GTI()"


class NestedSampling(AbstractMethod):
    """Nested sampling from the prior, apart for numerator and denominator.

    A run for every ladder; the spread between them checks the error bar. Scales of the moves
    follow the live points.

    Parameters
    ----------
    kernel
        How a new point is found: it needs no gradient. None takes a random walk with more moves
        in more dimensions.
    """

    kernel: AbstractKernel | None = None

    def __check_init__(self) -> None:
        if self.kernel is not None and self.kernel.gradient_based:
            raise ValueError(
                "NestedSampling moves on plateaus with hard walls, where a gradient says nothing; "
                "give RandomWalk(moves=...) or Slice()"
            )

    @classmethod
    def as_published(
        cls, covariance: Any, *, shrinkages: int = 250, moves: int = 20
    ) -> "PublishedNestedSampling":
        """TANS: E / (1 + lambda moves) live points, half for each side, lambda iterations a point.

        Parameters
        ----------
        covariance
            Of the Gaussian random-walk proposal: a number, a vector of variances or a matrix.
        shrinkages
            lambda.
        moves
            Metropolis steps for a new point.
        """
        return PublishedNestedSampling(covariance, shrinkages, moves)

    def run(self, question: Question) -> Result:
        require_prior(question, "NestedSampling")
        moves = int(np.clip(5 * question.target.size, 25, 200))
        kernel = self.kernel or RandomWalk(moves=moves)
        sides = question.target.components + (not question.evidence)
        with open_engine(question, (Prior(),), kernel, PATHS) as engine:
            if STARTING * question.max_evaluations < sides * question.ladders * PILOT:
                return unfinished(question).result(question, engine, self.describe())
            pilot = _Survey.of(engine, question, PILOT)
            spent = engine.tally.evaluations
            if not pilot.complete:
                return pilot.outcome(engine).result(question, engine, self.describe())

            def measure(spend: int) -> Outcome:
                points = max(PILOT, int(0.97 * PILOT * spend / spent))
                return _Survey.of(engine, question, points).outcome(engine)

            outcome = fresh_rounds(engine, question, (spent, pilot.answers()), measure)
            return outcome.result(question, engine, self.describe())

    def describe(self) -> str:
        return f"NestedSampling({type(self.kernel or RandomWalk()).__name__})"


class PublishedNestedSampling(AbstractMethod):
    """TANS with the paper's settings; made by `NestedSampling.as_published`."""

    covariance: Any
    shrinkages: int
    moves: int

    def run(self, question: Question) -> Result:
        require_prior(question, "NestedSampling")
        budget, charge = question.max_evaluations, 1 + self.shrinkages * self.moves
        points, least = budget // charge, 2 * question.target.components
        if points < least:
            raise BudgetTooSmall(
                f"max_evaluations={budget:,} pays for {points} live points of {charge:,} "
                f"evaluations each; a run for each constant needs at least {least * charge:,}"
            )
        kernel = RandomWalk(covariance=self.covariance, moves=self.moves)
        with open_engine(question, (Prior(),), kernel, PATHS) as engine:
            half = points // 2
            counts = (0, points) if question.evidence else (half, half)
            constants = open_constants(engine, question, *counts, budget // 10)
            nests = [_Nest.of(engine, constant, 1) for constant in constants]
            # Prior draws outside the supports are paid for with iterations.
            left = (budget - engine.tally.evaluations) // self.moves
            wanted = [self.shrinkages * nest.points for nest in nests]
            share = min(1.0, left / max(1, sum(wanted)))
            for nest, iterations in zip(nests, wanted, strict=True):
                nest.iterate(engine, int(share * iterations), SEGMENT)
            survey = _Survey(question.target.components, question.evidence, nests)
            return survey.outcome(engine).result(question, engine, self.describe())

    def describe(self) -> str:
        return f"NestedSampling as published (RandomWalk, {self.moves} moves)"


@dataclass
class _Nest:
    """The runs for one constant.

    Attributes
    ----------
    constant
        What they are for.
    keys, live, params
        As in `tabi.engine.nest`, [run, ...].
    dead
        log likelihoods taken away so far, blocks of [iteration, run].
    log_likelihood
        Of the live points, [run, point].
    ranks, parents
        Of the new points and of those that their moves began at, blocks of [iteration, run].
    accept
        Mean acceptance probability of the latest moves.
    """

    constant: Constant
    keys: np.ndarray
    live: ChainState
    params: Any
    dead: list[np.ndarray] = field(default_factory=list)
    log_likelihood: np.ndarray | None = None
    ranks: list[np.ndarray] = field(default_factory=list)
    parents: list[np.ndarray] = field(default_factory=list)
    accept: float = 1.0

    @classmethod
    def of(cls, engine: Engine, constant: Constant, runs: int) -> "_Nest":
        """Runs that share the starts out among them."""
        points = max(1, len(constant.starts.position) // runs)
        runs = min(runs, len(constant.starts.position))
        live = jax.tree.map(
            lambda a: a[: runs * points].reshape(runs, points, *a.shape[1:]), constant.starts
        )
        keys = engine.next_random().integers(0, 2**32, (runs, 2), dtype=np.uint32)
        params = engine.specification.kernel.init(live.position.shape[-1], runs)
        return cls(constant, keys, live, params)

    @property
    def points(self) -> int:
        """Live points of a run."""
        return self.live.position.shape[1]

    @property
    def iterations(self) -> int:
        """Iterations done."""
        return sum(len(block) for block in self.dead)

    def iterate(self, engine: Engine, iterations: int, segment: int) -> None:
        """Go on for so many iterations."""
        specification = engine.specification
        kernel, dtype = specification.kernel, specification.target.dtype
        runs = len(self.keys)
        pieces = np.split(np.arange(runs), range(TOGETHER, runs, TOGETHER))
        end = self.iterations + iterations
        while self.iterations < end:
            count = min(segment, end - self.iterations)
            tasks = [
                Nest(
                    self.keys[piece],
                    jax.tree.map(lambda a, p=piece: a[p], self.live),
                    jax.tree.map(lambda a, p=piece: np.asarray(a[p], dtype), self.params),
                    np.int32(self.iterations),
                    np.int32(count),
                    np.zeros(segment, bool),
                    np.int32(specification.paths.index(self.constant.leg.path)),
                    np.int32(self.constant.leg.component),
                    np.int32(kernel.evaluations(self.params)),
                    engine.bases,
                )
                for piece in pieces
            ]
            parts = engine.each(f"nest {self.constant.name}", tasks)
            for task, part in zip(tasks, parts, strict=True):
                engine.judge_moves(part.invalid, part.where, task.cost)
            self.live = jax.tree.map(lambda *a: np.concatenate(a), *(part.live for part in parts))
            self.log_likelihood = np.concatenate([part.log_likelihood for part in parts])
            self.dead.append(np.concatenate([part.dead for part in parts], 1))
            self.ranks.append(np.concatenate([part.ranks for part in parts], 1))
            self.parents.append(np.concatenate([part.parents for part in parts], 1))
            self.accept = float(np.mean(np.concatenate([part.accept for part in parts])))

    def tune(self, kernel: AbstractKernel, accept: float) -> None:
        """Scales of the moves from all live points."""
        positions = self.live.position.reshape(-1, self.live.position.shape[-1])
        if len(np.unique(positions, axis=0)) < positions.shape[-1] + 2:
            return
        runs = len(self.keys)
        centred = [positions - positions.mean(0)] * runs
        self.params = kernel.tune(self.params, np.full(runs, accept), np.zeros(runs), centred)

    def explore(self, engine: Engine, most: int) -> bool:
        """Iterate, with scales that follow, until little is left or the budget ends.

        Returns whether enough was seen for an answer.
        """
        kernel = engine.specification.kernel
        # The start knows the prior's scales but no acceptance: leave the step size alone.
        self.tune(kernel, 0.3)
        cost = len(self.keys) * self.points * kernel.evaluations(self.params)
        while self.log_likelihood is None or self.remainder() > REMAINDER:
            if engine.tally.evaluations + cost > most:
                return self.log_likelihood is not None and self.remainder() < MOST_LEFT
            self.iterate(engine, self.points, self.points)
            self.tune(kernel, self.accept)
        return True

    def _log_terms(self) -> tuple[np.ndarray, np.ndarray]:
        assert self.log_likelihood is not None
        return contributions(np.concatenate(self.dead), self.log_likelihood.T)

    def remainder(self) -> float:
        """The largest share of c, over runs, that the live points might still add."""
        dead, _ = self._log_terms()
        assert self.log_likelihood is not None
        most = self.log_likelihood.max(1) - len(dead) / self.points
        return float(np.max(np.exp(np.minimum(most - np.logaddexp(most, _log_sum(dead)), 0))))

    def log_ratio(self) -> tuple[np.ndarray, np.ndarray]:
        """log c over the prior mass and its variance, [run]."""
        dead, live = self._log_terms()
        log_c = np.logaddexp(_log_sum(dead), _log_sum(live))
        share = np.exp(dead - log_c)
        beyond = np.exp(_log_sum(live) - log_c) + np.cumsum(share[::-1], 0)[::-1]
        return log_c, (beyond**2).sum(0) / self.points**2

    def _matters(self) -> np.ndarray:
        """Iterations before live points that sit at the maximum say nothing, [iteration, run]."""
        dead, live = self._log_terms()
        total = np.logaddexp(_log_sum(dead), _log_sum(live))
        return np.logaddexp.accumulate(dead, 0) < total + np.log1p(-REMAINDER)

    def correlation(self) -> float:
        """Of the ranks of new points with those of the points that their moves began at."""
        matters = self._matters()
        new, parents = (np.concatenate(a)[matters] for a in (self.ranks, self.parents))
        if new.size < 2 or np.ptp(new) == 0 or np.ptp(parents) == 0:
            return 0.0
        return float(np.corrcoef(new, parents)[0, 1])

    def p_value(self) -> float:
        """Chance of ranks as uneven as these, if moves forget their starts (Kolmogorov)."""
        ranks = np.concatenate(self.ranks)[self._matters()]
        counts = np.bincount(ranks, minlength=self.points)
        if counts.size < 2 or counts.sum() == 0:
            return 1.0
        uneven = np.abs(
            np.cumsum(counts) / counts.sum() - np.arange(1, counts.size + 1) / counts.size
        )
        return float(scipy.special.kolmogorov(np.sqrt(counts.sum()) * uneven.max()))


@dataclass
class _Survey:
    """All constants of a question."""

    components: int
    evidence: bool
    nests: list[_Nest]
    complete: bool = True

    @classmethod
    def of(cls, engine: Engine, question: Question, points: int) -> "_Survey":
        """Runs with so many live points on each side, for every ladder."""
        runs, components = question.ladders, question.target.components
        counts = (0 if question.evidence else runs * points, components * runs * points)
        spent = engine.tally.evaluations
        most = spent + int(STARTING * (question.max_evaluations - spent))
        constants = open_constants(engine, question, *counts, most)
        nests = [_Nest.of(engine, constant, runs) for constant in constants]
        complete = all([nest.explore(engine, question.max_evaluations) for nest in nests])
        return cls(components, question.evidence, nests, complete)

    def answers(self) -> Answers:
        """The signed sums of the parts of each component over Z."""
        begun = [nest for nest in self.nests if nest.log_likelihood is not None]
        below = [nest for nest in begun if nest.constant.sign == 0]
        if not below and not self.evidence:
            return nothing_seen(self.components)
        parts = []
        for component in range(self.components):
            own = [n for n in begun if n.constant.sign and n.constant.leg.component == component]
            parts.append(_ratio(own, below) if own else nothing_seen(1))
        return Answers.stack(parts)

    def outcome(self, engine: Engine) -> Outcome:
        """The answers with what the runs say against them."""
        answers = self.answers()
        findings = check(answers, (), False, engine.tally.invalid / engine.tally.evaluations)
        for nest in self.nests:
            place = nest.constant.leg.component if nest.constant.sign else slice(None)
            _check_nest(nest, place, findings)
        if not self.complete:
            findings.distrust(
                slice(None),
                "the budget ended before the live points had shrunk to where the targets are; "
                "give more evaluations, or use tabi.GTI()",
            )
        return Outcome(answers, findings)


def _check_nest(nest: _Nest, place: Any, findings: Findings) -> None:
    name = nest.constant.name
    if nest.log_likelihood is None:
        return
    p_value, correlation = nest.p_value(), nest.correlation()
    if p_value < LEAST_P_VALUE or correlation > MOST_CORRELATION or nest.points < 2:
        findings.distrust(
            place,
            f"new points of {name} are not spread evenly among the live ones (p = {p_value:.0e}, "
            f"correlation with where they began {correlation:.2f}, {nest.points} live points, "
            f"acceptance {nest.accept:.2f}): the moves do not forget where they began; {REMEDY}",
        )
    remainder = nest.remainder()
    if remainder > MOST_LEFT:
        findings.distrust(
            place,
            f"the live points of {name} may still hold {remainder:.0%} of it; {REMEDY}",
        )


def _ratio(parts: Sequence[_Nest], below: Sequence[_Nest]) -> Answers:
    """One component: sum of sign c over Z, the errors of the constants being independent."""
    logs, variances, spreads = zip(*(_pooled(nest) for nest in (*parts, *below)), strict=True)
    signs = np.asarray([nest.constant.sign for nest in parts])
    log_z, var_z = (logs[-1], variances[-1]) if below else (0.0, 0.0)
    log_parts, var_parts = np.asarray(logs[: len(parts)]), np.asarray(variances[: len(parts)])
    scale = log_parts.max()
    total = float((signs * np.exp(log_parts - scale)).sum())
    with np.errstate(divide="ignore"):
        log_sum, sign = scale + np.log(abs(total)), np.sign(total)
    shares = np.exp(log_parts - log_sum)
    variance = (shares**2 * var_parts).sum() + var_z
    ones: np.ndarray = np.ones(1)
    return Answers(
        sign=sign * ones,
        log_abs=(log_sum - log_z) * ones,
        log_stderr=np.sqrt(variance) * ones,
        dof=np.inf * ones,
        condition=shares.sum() * ones,
        autocorrelation_time=ones,
        ladder_ratio=max(spreads) * ones,
        reliable=ones > 0,
        one_signed=np.asarray([len(parts) == 1]),
        ess=np.inf * ones,
        refusal=np.asarray([""]),
    )


def _pooled(nest: _Nest) -> tuple[float, float, float]:
    """log c over all runs, its variance, and the spread of the runs over what that implies."""
    log_c, variance = nest.log_ratio()
    runs = len(log_c)
    expected = variance.mean() / runs
    spread = np.sqrt(log_c.var(ddof=1) / runs / expected) if runs > 1 else np.nan
    mass = nest.constant.mass
    return log_c.mean() + mass.log_ratio, expected + _variance(mass.influence), float(spread)


def contributions(dead: np.ndarray, live: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log of what each point adds to c, from log likelihoods.

    Parameters
    ----------
    dead
        Of the points taken away, in order, [iteration, ...].
    live
        Of the live points left, [point, ...].

    Returns
    -------
    tuple
        log L_t (X_{t-1} - X_t) of the dead and log L X_T / n of the live points.
    """
    points = len(live)
    log_x = -np.arange(len(dead) + 1) / points
    widths = log_x[:-1] + np.log(-np.expm1(-1 / points))
    widths = widths.reshape(-1, *[1] * (dead.ndim - 1))
    return dead + widths, np.asarray(live, np.float64) + log_x[-1] - np.log(points)


def _log_sum(log_values: np.ndarray) -> np.ndarray:
    """log of the sum over the first axis."""
    return np.logaddexp.reduce(log_values, axis=0)


def _variance(influence: np.ndarray) -> float:
    """Of a mean of independent draws, by its influence."""
    return float((influence**2).sum())

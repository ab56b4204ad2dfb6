"""What a reader of the answer must know, in plain words, and what withdraws `converged`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tabi.diagnostics import LegDiagnostics, agreement
from tabi.draws import Draws
from tabi.methods.answers import Answers

# The spread between ladders over what stderr implies.
MOST_LADDER_RATIO = 1.8
# Estimators that use the same draws differ far less than their errors.
MOST_DISAGREEMENT = 4.0
# Share of proposals after warm-up at which the model may be NaN.
MOST_INVALID = 1e-3
# Effective draws that a number is made of.
LEAST_ESS = 400
# Cancellation of a signed f beyond which few digits are left.
MOST_CONDITION = 100.0


@dataclass
class Findings:
    """Warnings for the reader and which components are trusted, [component]."""

    trusted: np.ndarray
    warnings: list[str] = field(default_factory=list)

    def distrust(self, components: Any, message: str) -> None:
        """Withdraw trust from some components, saying why."""
        self.trusted[components] = False
        self.warnings.append(message)


# A method's own reading of the draws of its last round.
Inspect = Callable[[Draws, Findings], None]


def check(
    found: Answers, legs: tuple[LegDiagnostics, ...], exchange: bool, invalid_share: float
) -> Findings:
    """Everything that the draws say against the answer."""
    findings = Findings(np.ones(found.sign.shape, bool))
    _check_components(found, findings)
    for leg in legs:
        _check_leg(leg, exchange, findings)
    if invalid_share > MOST_INVALID:
        findings.distrust(
            slice(None),
            f"the model was NaN (or f infinite) at {invalid_share:.2%} of the proposals; make it "
            "return -inf where the density is zero and a finite f where it is positive",
        )
    return findings


def _check_components(found: Answers, findings: Findings) -> None:
    # With many components one of them passes a fixed limit by chance.
    count = found.sign.size
    ladder_limit = MOST_LADDER_RATIO * (1 + 0.15 * np.log10(count))
    spread = found.ladder_ratio > ladder_limit
    if np.any(spread):
        findings.distrust(
            spread,
            f"the ladders disagree by {np.nanmax(found.ladder_ratio):.1f} times the standard error"
            f"{_which(spread)}: they may sit in different modes; give more evaluations or more "
            "ladders, or a start that reaches all modes",
        )
    short = ~(found.reliable & (found.ess >= LEAST_ESS)) & (found.sign != 0)
    if np.any(short):
        findings.distrust(
            short,
            f"too few independent draws ({np.min(found.ess[short]):.0f}) to know the standard "
            f"error{_which(short)}; give more evaluations",
        )
    for place, refusal in enumerate(found.refusal):
        if refusal:
            findings.distrust(place, f"no estimate{_which(_only(place, count))}: {refusal}")
    cancelled = found.condition > MOST_CONDITION
    if np.any(cancelled):
        findings.warnings.append(
            f"positive and negative parts of f nearly cancel{_which(cancelled)}: together they are "
            f"{found.condition.max():.3g} times their difference, so relative errors grow as much; "
            "set abs_tol to what matters"
        )


def _check_leg(leg: LegDiagnostics, exchange: bool, findings: Findings) -> None:
    name = f" (component {leg.component})" if findings.trusted.size > 1 else ""
    disagreement = agreement(leg.estimates)
    if disagreement > MOST_DISAGREEMENT:
        findings.distrust(
            leg.component,
            f"the estimators disagree at |z| = {disagreement:.1f}{name}; give more evaluations or "
            "more rungs, schedule=tabi.schedules.Adaptive(density=3)",
        )
    if exchange and len(leg.betas) > 2 and leg.round_trips == 0:
        findings.distrust(
            leg.component,
            f"no state travelled from the posterior to |f| times it and back{name}; give more "
            "evaluations",
        )
    rhat = np.nanmax(leg.rhat) if np.any(np.isfinite(leg.rhat)) else 1.0
    if rhat > 1.1:
        findings.distrust(
            leg.component,
            f"chains have not mixed on every rung (R-hat {rhat:.2f}){name}; give more evaluations",
        )


def _only(place: int, count: int) -> np.ndarray:
    return np.arange(count) == place


def _which(mask: np.ndarray) -> str:
    if mask.size == 1:
        return ""
    places = np.flatnonzero(mask)
    shown = ", ".join(map(str, places[:5])) + (", ..." if len(places) > 5 else "")
    return f" in component{'s' if len(places) > 1 else ''} {shown}"

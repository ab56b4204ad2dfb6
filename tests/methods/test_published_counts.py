"""The evaluations of GTI as published, form by form of the paper's table, against real calls."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models import EDGE_30, Counter, hinge, hinge_truth, mild, normal

import tabi
from tabi.methods.base import BudgetTooSmall
from tabi.paths import GeometricPath, Restricted, TimesF

calls = Counter()
counted = calls.tick()


def density(x):
    return counted(normal(x))


def zeros(x):
    return hinge(x, EDGE_30)


def two_signed(x):
    return jnp.exp(x[0]) - 1.0


TWO_SIGNED = float(np.exp(0.5) - 1.0)
# Both signs are within reach of a start where f is not 0.
POSTERIOR = tabi.Posterior(density, np.array([0.7, 0.0]))
FULL = GeometricPath()
SIGNS = (GeometricPath(Restricted(1), TimesF(1)), GeometricPath(Restricted(-1), TimesF(-1)))
NONZERO = GeometricPath(Restricted(0), TimesF(0))
N, M, K = 10, 600, 1000

# f, its answer, the path, its legs, and whether posterior draws for R are paid for besides.
FORMS = {
    "f > 0: NM": (mild, np.exp(0.125), FULL, 1, False),
    "zeros: NM + K": (zeros, hinge_truth(EDGE_30), NONZERO, 1, True),
    "accelerated: NM + K": (two_signed, TWO_SIGNED, NONZERO, 1, True),
    "generic: 2NM + K": (two_signed, TWO_SIGNED, SIGNS, 2, True),
    "accelerated, rejected: NM": (two_signed, TWO_SIGNED, FULL, 1, False),
}
FORM = pytest.mark.parametrize(
    ("f", "truth", "path", "legs", "apart"), FORMS.values(), ids=FORMS.keys()
)


def ask(f, path, budget, draws=None, rungs=N) -> tabi.Result:
    method = tabi.GTI.as_published(3.0, rungs=rungs, path=path, posterior_draws=draws)
    calls.calls = 0
    result = tabi.expect(
        f, POSTERIOR, method=method, max_evaluations=budget, rel_tol=None, progress=False, key=4
    )
    jax.effects_barrier()
    assert calls.calls == result.evaluations, "a call of the model was not counted"
    return result


def lengths(result):
    """Sweeps of each round."""
    return {record.phase: record.sweeps for record in result.diagnostics.rounds}


@FORM
def test_each_form_costs_what_the_paper_says(f, truth, path, legs, apart):
    result = ask(f, path, legs * N * M + (M if apart else 0))
    assert result.evaluations == legs * N * M + (M if apart else 0)
    assert result.gradients == 0
    # Chains of a form with posterior draws begin at one of them; others at the user's start.
    assert lengths(result) == ({"posterior": M - 1, "measure": M} if apart else {"measure": M - 1})
    assert abs(result.value - truth) < 4 * result.stderr < 2 * truth
    assert result.diagnostics is not None
    assert [len(leg.betas) for leg in result.diagnostics.legs] == [N] * legs


@FORM
def test_the_posterior_draws_may_be_given(f, truth, path, legs, apart):
    """K has no meaning where no posterior draws are apart."""
    result = ask(f, path, legs * N * M + K, K)
    if apart:
        assert result.evaluations == legs * N * M + K
        assert lengths(result) == {"posterior": K - 1, "measure": M}
    else:
        assert result.evaluations == N * (M + K // N)


@FORM
def test_what_is_left_over_is_less_than_a_sweep(f, truth, path, legs, apart):
    cost = legs * N + apart
    assert ask(f, path, cost * M + legs * N - 1).evaluations == cost * M


@FORM
def test_a_budget_too_small_is_refused_with_what_is_needed(f, truth, path, legs, apart):
    least = 8 * (legs * N + apart)
    with pytest.raises(BudgetTooSmall, match=f"max_evaluations={least - 1} .*at least {least}$"):
        ask(f, path, least - 1)
    if f is not zeros:  # of which eight posterior draws may see nothing else
        assert ask(f, path, least).evaluations == least
    if apart:
        least = K + 8 * legs * N
        with pytest.raises(BudgetTooSmall, match=f"at least {least:,}$"):
            ask(f, path, least - 1, K)
        assert ask(f, path, least, K).evaluations == least


@pytest.mark.parametrize(("path", "least"), [(FULL, 1600), (NONZERO, 1608), (SIGNS, 3208)])
def test_the_papers_two_hundred_rungs_are_the_default(path, least):
    with pytest.raises(BudgetTooSmall, match=f"need at least {least:,}$"):
        tabi.expect(
            two_signed,
            POSTERIOR,
            method=tabi.GTI.as_published(3.0, path=path),
            max_evaluations=1000,
            progress=False,
        )


def test_restricted_chains_with_nowhere_to_begin_say_so():
    with pytest.raises(BudgetTooSmall, match=r"f was 0 at .* nowhere to begin"):
        ask(rare, NONZERO, 2000)


def rare(x):
    return hinge(x, 20.0)

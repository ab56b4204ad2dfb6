"""Whether an average of heavy-tailed numbers can be believed."""

import numpy as np

from tabi.methods.checks import Findings

# Pareto k-hat from which on the variance of an average is infinite (Vehtari et al. 2024).
INFINITE_VARIANCE = 0.5
# The largest share of a sum that one draw may have.
LARGEST_SHARE = 0.05
# Below so many draws a tail cannot be fitted.
LEAST_DRAWS = 25


def tail_index(log_values: np.ndarray) -> float:
    """Pareto k-hat of positive numbers, by their logarithms; -inf where their tail is flat."""
    # Imported here: it brings in half of SciPy, which `import tabi` should not wait for.
    from arviz_stats.base.array import array_stats

    finite = log_values[np.isfinite(log_values)]
    if finite.size < LEAST_DRAWS:
        return -np.inf
    values = np.exp(finite - finite.max())
    # The tail that is fitted (Vehtari et al. 2024); where it is flat there is nothing to fit.
    length = int(min(0.2 * values.size, 3 * values.size**0.5))
    cutoff = np.partition(values, -length)[-length]
    if values.max() - cutoff < 1e-6:
        return -np.inf
    # On the numbers themselves: arviz-stats 0.8 has a `log_weights` that it does not pass on.
    found = array_stats.pareto_khat(values[None], r_eff=1, tail="right")
    return np.asarray(found, np.float64).item()


def largest_share(log_values: np.ndarray) -> float:
    """The largest of positive numbers over their sum."""
    finite = log_values[np.isfinite(log_values)]
    if not finite.size:
        return 1.0
    relative = np.exp(finite - finite.max())
    return float(1.0 / relative.sum())


def distrust_heavy(
    findings: Findings, component: int, log_values: np.ndarray, what: str, remedy: str
) -> None:
    """Withdraw trust where an average of `exp(log_values)` has no variance, or one draw rules it.

    Parameters
    ----------
    findings
        What is known of the run.
    component
        Component of f.
    log_values
        Logarithms of the numbers that are averaged, of any shape.
    what
        What they are, for the reader.
    remedy
        What to do instead.
    """
    log_values = log_values.ravel()
    k, share = tail_index(log_values), largest_share(log_values)
    name = f" (component {component})" if findings.trusted.size > 1 else ""
    if k >= INFINITE_VARIANCE:
        findings.distrust(
            component,
            f"{what} have so heavy a tail that their variance looks infinite (Pareto k-hat "
            f"{k:.2f}){name}: the standard error means nothing; {remedy}",
        )
    elif share > LARGEST_SHARE:
        findings.distrust(
            component,
            f"one draw has {share:.0%} of the sum of {what}{name}; {remedy}",
        )

"""How long a warm-up takes."""

import pytest

from tabi.engine import Effort, choose_effort


def total(effort: Effort) -> int:
    return sum(effort.settle) + sum(effort.refine) + effort.climb


def test_every_part_is_even_and_grows_with_the_budget_up_to_its_full_length():
    budgets = [10**4, 10**5, 10**6, 10**7, 10**8]
    efforts = [choose_effort(budget, 8, 1.0) for budget in budgets]
    lengths = [total(effort) for effort in efforts]
    assert lengths == sorted(lengths) and lengths[0] < lengths[-1] == lengths[-2]
    for effort in efforts:
        assert all(sweeps % 2 == 0 for sweeps in (*effort.settle, *effort.refine, effort.climb))


def test_slow_kernels_get_longer_ones():
    assert total(choose_effort(10**8, 8, 16.0)) > 4 * total(choose_effort(10**8, 8, 1.0))


@pytest.mark.parametrize(
    "parts", [{"search": 1}, {"particles": 0}, {"settle": ()}, {"refine": (32, 1)}]
)
def test_too_short_parts_are_refused(parts):
    with pytest.raises(ValueError, match="at least 2 sweeps, got Effort"):
        Effort(**parts)

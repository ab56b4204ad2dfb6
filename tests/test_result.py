"""What a result says, how it survives under- and overflow, and that saving loses nothing."""

import dataclasses
import os
import re

import numpy as np
import pytest
from scipy import stats

from tabi.diagnostics import LegDiagnostics
from tabi.result import Result, RoundRecord, RunDiagnostics, load


def make_leg(component=0, rungs=5, seed=0):
    rng = np.random.default_rng(seed)
    return LegDiagnostics(
        component=component,
        betas=np.linspace(0, 1, rungs) ** 2,
        acceptance=rng.uniform(0.2, 0.5, rungs),
        exchange=rng.uniform(0.4, 0.6, rungs - 1),
        overlap=rng.uniform(0.2, 0.4, rungs - 1),
        rhat=rng.uniform(1, 1.01, rungs),
        ess=rng.uniform(400, 900, rungs),
        integrand=np.array([-np.inf, *np.sort(rng.normal(size=rungs - 1))]),
        bounds=(-38.1, -36.2),
        estimates={"MBAR": (-37.2, 0.01), "BAR": (-37.21, 0.012), "Simpson": (np.nan, np.inf)},
        refusals={"forward stepping stones": "no draw <reaches> the next rung."},
        round_trips=133,
    )


def make_result(shape=(), legs=1, **changes):
    diagnostics = RunDiagnostics(
        legs=tuple(make_leg(i, seed=i) for i in range(legs)),
        condition=np.ones(shape),
        autocorrelation_time=np.full(shape, 4.2),
        ladder_ratio=np.full(shape, 1.1),
        rounds=(RoundRecord("warm-up", 4, 4000, 0.25), RoundRecord("measure", 10, 9999, 0.1)),
        barrier=(2.3,) * legs,
        invalid_proposals=2,
        first_invalid="[0.1, nan <odd>]",
        compilations=4,
        compile_seconds=3.3,
        seconds=6.1,
    )
    size = int(np.prod(shape))
    arguments = dict(
        sign=1.0,
        log_abs=np.linspace(-3, 2, size).reshape(shape) if shape else -3.0,
        log_stderr=0.02,
        dof=30,
        evaluations=303_000,
        gradients=1_234,
        converged=True,
        warnings=("all ladders started at one point.", "<second>"),
        method="GTI()",
        diagnostics=diagnostics,
    )
    return Result.from_log(**(arguments | changes))


def assert_equal(a, b):
    """Same types, same bits, all the way down."""
    assert type(a) is type(b)
    if dataclasses.is_dataclass(a):
        for field in dataclasses.fields(a):
            assert_equal(getattr(a, field.name), getattr(b, field.name))
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    elif isinstance(a, dict):
        assert list(a) == list(b)
        assert_equal(list(a.values()), list(b.values()))
    elif isinstance(a, tuple | list):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_equal(x, y)
    else:
        assert a == b or (a != a and b != b)


@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_every_array_is_numpy_of_the_shape_of_f(shape):
    result = make_result(shape)
    for name in ("value", "stderr", "log_value", "log_stderr", "sign"):
        array = getattr(result, name)
        assert type(array) is np.ndarray and array.dtype == np.float64 and array.shape == shape
    assert result.converged.dtype == bool and result.converged.shape == shape
    for bound in result.interval():
        assert type(bound) is np.ndarray and bound.shape == shape


def test_value_and_stderr_follow_from_the_log_scale():
    result = make_result(sign=-1.0, log_abs=np.log(20.0), log_stderr=0.1)
    assert result.value == pytest.approx(-20.0)
    assert result.stderr == pytest.approx(2.0)


@pytest.mark.parametrize(("log_abs", "value"), [(-2000.0, 0.0), (2000.0, np.inf)])
def test_the_log_scale_survives_under_and_overflow_without_a_warning(log_abs, value):
    result = make_result(log_abs=log_abs)
    assert result.value == value and result.stderr == value
    assert result.log_value == log_abs and result.log_stderr == 0.02 and result.sign == 1
    lower, upper = result.interval()
    assert lower == upper == value
    assert f"{log_abs:.4f}" in str(result)


def test_stderr_survives_where_only_value_overflows():
    result = make_result(log_abs=710.0, log_stderr=1e-6)
    assert np.isinf(result.value) and np.isfinite(result.stderr)
    assert np.log(result.stderr) == pytest.approx(710 + np.log(1e-6))


@pytest.mark.parametrize("dof", [4.0, 30.0, np.inf])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_intervals_are_t_intervals_on_their_own_scale(dof, level):
    signs, log_abs, log_stderr = np.array([1.0, -1.0, 1.0, -1.0]), np.log(3.0), 0.2
    one_signed = np.array([True, True, False, False])
    result = make_result((), sign=signs, log_abs=log_abs, log_stderr=log_stderr, dof=dof,
                         one_signed=one_signed, diagnostics=None)  # fmt: skip
    lower, upper = result.interval(level)
    t = stats.t.interval(level, dof)[1]
    up, down = 3 * np.exp(t * 0.2), 3 * np.exp(-t * 0.2)
    np.testing.assert_allclose(lower, [down, -up, 3 - 0.6 * t, -3 - 0.6 * t], rtol=1e-9)
    np.testing.assert_allclose(upper, [up, -down, 3 + 0.6 * t, -3 + 0.6 * t], rtol=1e-9)


def test_intervals_cover_as_often_as_they_say():
    rng = np.random.default_rng(7)
    n, runs = 6, 4000
    x = rng.normal(1.5, 0.3, (runs, n))
    log_stderr = x.std(axis=1, ddof=1) / np.sqrt(n)
    result = make_result((), log_abs=x.mean(axis=1), log_stderr=log_stderr, dof=n - 1)
    lower, upper = result.interval(0.9)
    covered = np.mean((lower < np.exp(1.5)) & (np.exp(1.5) < upper))
    assert abs(covered - 0.9) < 4 * np.sqrt(0.09 / runs)


@pytest.mark.parametrize("level", [0, 1, 95, -0.1, float("nan")])
def test_an_impossible_level_is_refused(level):
    with pytest.raises(ValueError, match=r"between 0 and 1"):
        make_result().interval(level)


def test_a_sign_without_draws_gives_its_upper_bound_not_zero():
    result = make_result(sign=0.0, log_abs=5.0, upper_bound=1e-6, converged=False)
    assert result.value == 0 and result.sign == 0 and result.log_value == -np.inf
    assert result.stderr == 1e-6 and result.log_stderr == np.inf
    assert result.interval() == (-1e-6, 1e-6)
    assert "1e-06" in str(result) and "no draw" in str(result)
    assert np.isinf(make_result(sign=0.0, log_abs=0.0).stderr)


def test_minus_infinity_on_the_log_scale_means_the_same():
    result = make_result(sign=np.ones(2), log_abs=np.array([-np.inf, 0.0]), upper_bound=0.5)
    np.testing.assert_array_equal(result.sign, [0, 1])
    np.testing.assert_array_equal(result.stderr, [0.5, 0.02])


def test_the_arguments_are_copied():
    log_abs = np.zeros(2)
    result = make_result(log_abs=log_abs)
    log_abs[:] = 7
    np.testing.assert_array_equal(result.log_value, 0)


def test_a_result_prints_what_a_reader_needs():
    text = str(make_result(log_abs=np.log(2.5), log_stderr=0.02, converged=False))
    for piece in ("2.5 ± 0.05", "2%", "2.4 to 2.604", "0.9163", "303,000", "1,234", "GTI()"):
        assert piece in text
    assert re.search(r"converged\s+no", text) and "all ladders started at one point." in text
    assert len(text.splitlines()) <= 10


def test_a_vector_prints_one_row_a_component_and_few_of_many():
    few, many = str(make_result((3,))), str(make_result((40,)))
    assert "…" not in few and sum(line.count("yes") for line in few.splitlines()) == 3
    assert "…" in many and 5 <= many.count("yes") <= 10
    assert re.search(r"^39 ", many, re.MULTILINE), "the last component is shown"
    assert "1,1" in str(make_result((2, 2)))


def test_repr_is_one_line():
    assert repr(make_result()) == "Result(0.04979 ± 0.001, converged, 303,000 evaluations)"
    assert "\n" not in repr(make_result((40,)))


@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
@pytest.mark.parametrize("legs", [0, 2])
def test_saving_and_loading_changes_nothing(tmp_path, shape, legs):
    result = make_result(shape, legs)
    result.save(tmp_path / "a")
    assert os.listdir(tmp_path) == ["a"], "the given name and nothing else"
    assert_equal(load(tmp_path / "a"), result)
    bare = dataclasses.replace(result, diagnostics=None)
    bare.save(tmp_path / "a")
    assert_equal(load(tmp_path / "a"), bare)


def test_numpy_scalars_in_diagnostics_are_saved_by_value(tmp_path):
    leg = dataclasses.replace(make_leg(), round_trips=np.int64(7), bounds=(np.float64(0.1), 1.0))
    diagnostics = dataclasses.replace(make_result().diagnostics, legs=(leg,))
    make_result(diagnostics=diagnostics).save(tmp_path / "r.npz")
    loaded = load(tmp_path / "r.npz").diagnostics.legs[0]
    assert loaded.round_trips == 7 and loaded.bounds == (0.1, 1.0)


def test_a_failed_save_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "r.npz"
    make_result().save(path)
    before = path.read_bytes()

    def interrupted(file, **arrays):
        file.write(b"half a file")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make_result((3,)).save(path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["r.npz"]


def test_a_file_that_holds_no_result_is_refused(tmp_path):
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    np.save(tmp_path / "other.npy", np.zeros(3))
    for name in ("other.npz", "other.npy"):
        with pytest.raises(ValueError, match="no tabi result"):
            load(tmp_path / name)


def test_a_file_of_a_later_version_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("tabi.result.FORMAT", 2)
    make_result().save(tmp_path / "r.npz")
    monkeypatch.setattr("tabi.result.FORMAT", 1)
    with pytest.raises(ValueError, match="update tabi"):
        load(tmp_path / "r.npz")


def test_nothing_is_pickled(tmp_path):
    with pytest.raises(TypeError, match="cannot save a"):
        make_result(method=object()).save(tmp_path / "r.npz")
    assert os.listdir(tmp_path) == []

"""The examples and README's code run, and their answers lie within their error bars."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

ROOT = Path(__file__).parent.parent


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_predictive_density():
    result, log_truth = load("predictive_density").main()
    assert result.converged
    assert abs(result.log_value - log_truth) < 4 * result.log_stderr


def test_signed_vector():
    module = load("signed_vector")
    result = module.main()
    assert np.all(result.converged)
    assert np.all(np.abs(result.value - module.TRUTH) < 4 * result.stderr)


def test_rare_event():
    module = load("rare_event")
    result = module.main()
    assert result.converged
    assert abs(result.log_value - np.log(module.TRUTH)) < 4 * result.log_stderr


def test_which_path(tmp_path: Path):
    panels = load("which_path").main(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
    _, *between, end = panels["f = 1(x > 4): geometric path"]
    np.testing.assert_allclose(between, [end] * len(between), err_msg="something in between")


def test_every_example_is_tested():
    names = {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert names == {"predictive_density", "rare_event", "signed_vector", "which_path"}


def test_readme_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code
    namespace = {}
    for block in code:
        exec(block, namespace)
    for name, exact in (
        ("rare", norm.logsf(5.4)),
        ("payoff", np.log(norm.pdf(5) - 5 * norm.sf(5))),
    ):
        result = namespace[name]
        assert result.converged
        assert abs(result.log_value - exact) < 4 * result.log_stderr
    assert {path.name for path in tmp_path.iterdir()} >= {"run.png", "run.html", "run.npz"}

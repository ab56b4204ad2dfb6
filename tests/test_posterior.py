"""What a posterior accepts, and the product of a prior and a likelihood."""

import jax.numpy as jnp
import numpy as np
import pytest

import tabi


def log_prior(x):
    return jnp.where(x > 0, -x, -jnp.inf)


def log_likelihood(x):
    return -2 * x**2


def with_aux(x):
    return -2 * x**2, 3 * x


def sample_prior(key):
    return jnp.asarray(1.0)


@pytest.mark.parametrize("wrong", [None, 3.0, np.zeros(2)])
def test_a_density_must_be_a_function(wrong):
    with pytest.raises(TypeError, match="log_density must be a function of one position, got "):
        tabi.Posterior(wrong, 0.0)
    with pytest.raises(TypeError, match="log_prior must be a function|log_density must be"):
        tabi.Posterior.from_parts(wrong, log_likelihood, init=0.0)
    with pytest.raises(TypeError, match="log_likelihood must be a function"):
        tabi.Posterior.from_parts(log_prior, wrong, init=0.0)


def test_only_real_precisions_are_known():
    with pytest.raises(ValueError, match='"float64", "float32" or None, got \'int8\''):
        tabi.Posterior(log_prior, 1.0, dtype="int8")


def test_parts_need_a_start():
    with pytest.raises(ValueError, match=r"sample_prior\(key\) -> position or init=position"):
        tabi.Posterior.from_parts(log_prior, log_likelihood)


def test_the_product_is_the_sum_of_logs_and_knows_its_prior():
    posterior = tabi.Posterior.from_parts(log_prior, log_likelihood, sample_prior)
    assert posterior.log_density(jnp.asarray(0.5)) == pytest.approx(-1.0)
    assert posterior.log_prior is log_prior and posterior.init is sample_prior


def test_the_likelihood_is_not_read_where_the_prior_is_zero():
    posterior = tabi.Posterior.from_parts(log_prior, lambda x: jnp.log(x), sample_prior)
    assert posterior.log_density(jnp.asarray(-0.5)) == -jnp.inf


def test_an_init_comes_before_prior_draws():
    posterior = tabi.Posterior.from_parts(log_prior, log_likelihood, sample_prior, init=2.0)
    assert posterior.init == 2.0


def test_aux_of_the_likelihood_is_handed_on():
    posterior = tabi.Posterior.from_parts(log_prior, with_aux, init=1.0, has_aux=True)
    value, aux = posterior.log_density(jnp.asarray(0.5))
    assert value == pytest.approx(-1.0) and aux == pytest.approx(1.5)


def test_equal_products_are_equal_so_that_programs_are_shared():
    one, two = (tabi.Posterior.from_parts(log_prior, log_likelihood, sample_prior) for _ in "ab")
    assert one.log_density == two.log_density
    assert hash(one.log_density) == hash(two.log_density)

"""vtlite/models/rope_scaling.py: each scaling against its published rule, frequency by frequency; the rest refused."""

import math

import numpy as np
import pytest

from vtlite.config import ModelConfig
from vtlite.errors import ConfigError
from vtlite.models.rope_scaling import inverse_frequencies

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}


def frequencies(rotary_dim: int, **fields) -> np.ndarray:
    """Of a config.json with these fields."""
    return inverse_frequencies(ModelConfig("/models/x/config.json", fields), rotary_dim)


@pytest.mark.parametrize("rotary_dim, theta", [(2, 10000.0), (64, 10000.0), (20, 1e6), (128, 5e5)])
def test_frequencies_fall_from_one_by_powers_of_theta(rotary_dim, theta):
    found = frequencies(rotary_dim, rope_theta=theta)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [theta ** (-2 * j / rotary_dim) for j in range(rotary_dim // 2)], rtol=2**-23)


@pytest.mark.parametrize("spelling", ["type", "rope_type"])
def test_linear_divides_every_frequency(spelling):
    scaled = frequencies(16, rope_scaling={spelling: "linear", "factor": 4.0})
    np.testing.assert_array_equal(scaled, frequencies(16) / 4)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama3_keeps_short_wavelengths_divides_long_ones_and_blends_between(factor):
    scaled = frequencies(128, rope_theta=5e5, rope_scaling=LLAMA3 | {"factor": factor})
    kinds = set()
    for j, found in enumerate(scaled):
        f = 5e5 ** (-2 * j / 128)
        wavelength = 2 * math.pi / f
        if wavelength < 8192 / 4:
            expected, kind = f, "kept"
        elif wavelength > 8192 / 1:
            expected, kind = f / factor, "divided"
        else:
            m = (8192 / wavelength - 1) / (4 - 1)
            expected, kind = (1 - m) * f / factor + m * f, "blended"
        kinds.add(kind)
        assert found == pytest.approx(expected, rel=2**-22)
    assert kinds == {"kept", "divided", "blended"}


def test_rope_parameters_and_rope_scaling_are_two_spellings_of_one_thing():
    old = frequencies(16, rope_theta=5e5, rope_scaling=LLAMA3)
    new = frequencies(16, rope_theta=None, rope_scaling=None, rope_parameters=LLAMA3 | {"rope_theta": 5e5})
    np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("kind", ["yarn", "dynamic", "longrope", "su"])
@pytest.mark.parametrize("spelling", ["type", "rope_type"])
def test_a_scaling_that_is_not_implemented_is_named(kind, spelling):
    with pytest.raises(ConfigError, match=f"config.json: rope scaling '{kind}' is not implemented .*default, linear, llama3"):
        frequencies(16, rope_scaling={spelling: kind, "factor": 4.0})


@pytest.mark.parametrize("scaling, found", [
    ({"type": "linear"}, "'factor' of type 'linear' should be a positive number, found None"),
    ({"type": "linear", "factor": "4"}, "'factor' of type 'linear' should be a positive number, found '4'"),
    ({"type": "linear", "factor": 0}, "'factor' of type 'linear' should be a positive number, found 0"),
    ({"type": "linear", "factor": math.inf}, "found inf"),
    ({key: value for key, value in LLAMA3.items() if key != "low_freq_factor"}, "'low_freq_factor' of type 'llama3'"),
    ({key: value for key, value in LLAMA3.items() if key != "original_max_position_embeddings"},
     "'original_max_position_embeddings' of type 'llama3'"),
    ({"rope_type": "default", "rope_theta": -1.0}, "'rope_theta' of type 'default' should be a positive number, found -1.0"),
])
def test_a_parameter_that_is_missing_or_senseless_is_named(scaling, found):
    with pytest.raises(ConfigError, match=found):
        frequencies(16, rope_scaling=scaling)


def test_bands_that_meet_are_refused():
    with pytest.raises(ConfigError, match="'high_freq_factor' should be above 'low_freq_factor' 1, found 1"):
        frequencies(16, rope_scaling=LLAMA3 | {"high_freq_factor": 1.0})

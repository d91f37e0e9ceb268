"""Rotary frequencies f_j = theta^(-2j/R) and the published ways of stretching them to longer contexts."""

import math

import numpy as np

from vtlite.config import ModelConfig
from vtlite.errors import ConfigError


def inverse_frequencies(config: ModelConfig, rotary_dim: int) -> np.ndarray:
    """f_j, j = 0 .. rotary_dim/2 - 1, as float32 [rotary_dim/2], scaled as config.json asks.

    ConfigError for a rope_type that is not implemented or a parameter that is missing.
    """
    rope = config.rope
    theta = _parameter(config, rope, "rope_theta")
    frequencies = theta ** (-np.arange(0, rotary_dim, 2, dtype=np.float64) / rotary_dim)
    scale = SCALINGS.get(rope["rope_type"])
    if scale is None:
        raise ConfigError(f"{config.source}: rope scaling {rope['rope_type']!r} is not implemented "
                          f"(implemented: {', '.join(SCALINGS)})")
    return scale(config, rope, frequencies).astype(np.float32)


def _default(config: ModelConfig, rope: dict, frequencies: np.ndarray) -> np.ndarray:
    return frequencies


def _linear(config: ModelConfig, rope: dict, frequencies: np.ndarray) -> np.ndarray:
    """Position interpolation (Chen et al. 2023, arXiv:2306.15595)."""
    return frequencies / _parameter(config, rope, "factor")


def _llama3(config: ModelConfig, rope: dict, frequencies: np.ndarray) -> np.ndarray:
    """Llama 3.1: long wavelengths are divided by `factor`, short ones kept, those between blended linearly."""
    factor = _parameter(config, rope, "factor")
    low, high = _parameter(config, rope, "low_freq_factor"), _parameter(config, rope, "high_freq_factor")
    if high <= low:
        raise ConfigError(f"{config.source}: rope parameter 'high_freq_factor' should be above 'low_freq_factor' {low:g}, "
                          f"found {high:g}")
    turns = _parameter(config, rope, "original_max_position_embeddings") * frequencies / (2 * math.pi)
    blend = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return (1 - blend) * frequencies / factor + blend * frequencies


SCALINGS = {"default": _default, "linear": _linear, "llama3": _llama3}


def _parameter(config: ModelConfig, rope: dict, name: str) -> float:
    value = rope.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (0 < value < math.inf):
        raise ConfigError(f"{config.source}: rope parameter '{name}' of type {rope['rope_type']!r} "
                          f"should be a positive number, found {value!r}")
    return float(value)

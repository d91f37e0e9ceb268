"""Architecture name of a config.json -> the class that runs it."""

import numpy as np

from vtlite.config import ModelConfig
from vtlite.errors import ConfigError
from vtlite.models import llama, qwen3_5

ARCHITECTURES = dict.fromkeys(llama.VARIANTS, llama.Llama) | dict.fromkeys(qwen3_5.ARCHITECTURES, qwen3_5.Qwen3_5)


def load_model(config: ModelConfig, weights, ops, dtype, state_dtype: np.dtype | None = None):
    """Build the model from `weights` (a `vtlite.checkpoint.weights.Weights`), every tensor of which must find its place.

    `state_dtype`: what recurrent states are kept in between steps; None for float32 (float64 for float64).
    """
    model_class = ARCHITECTURES.get(config.architecture)
    if model_class is None:
        raise ConfigError(f"{config.source}: architecture {config.architecture!r} is not implemented "
                          f"(implemented: {', '.join(sorted(ARCHITECTURES))})")
    if state_dtype is not None and not model_class.state_shapes:                     # () of a class, where it has none
        raise ConfigError(f"mamba_ssm_cache_dtype is {state_dtype}, but {config.architecture} has no recurrent state that could be "
                          f"kept in it; leave it out")
    options = {} if state_dtype is None else {"state_dtype": state_dtype}
    model = model_class(config, weights, ops, dtype, **options)
    weights.finish()
    return model

"""Architecture name of a config.json -> the class that runs it."""

from vtlite.config import ModelConfig
from vtlite.errors import ConfigError
from vtlite.models import llama, qwen3_5

ARCHITECTURES = dict.fromkeys(llama.VARIANTS, llama.Llama) | dict.fromkeys(qwen3_5.ARCHITECTURES, qwen3_5.Qwen3_5)


def load_model(config: ModelConfig, weights, ops, dtype):
    """Build the model from `weights` (a `vtlite.checkpoint.weights.Weights`), every tensor of which must find its place."""
    model_class = ARCHITECTURES.get(config.architecture)
    if model_class is None:
        raise ConfigError(f"{config.source}: architecture {config.architecture!r} is not implemented "
                          f"(implemented: {', '.join(sorted(ARCHITECTURES))})")
    model = model_class(config, weights, ops, dtype)
    weights.finish()
    return model

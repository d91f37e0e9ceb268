"""What a checkpoint's config.json asks for, read strictly, and what the engine is told."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vtlite.errors import ConfigError
from vtlite.strict_json import read_object

_REQUIRED = object()


@dataclass(frozen=True)
class ModelConfig:
    """config.json and generation_config.json of one checkpoint.

    Model files read their own fields through `get`, `refuse_unless` and `rope`, so that a value
    that changes the arithmetic is either understood or refused by name, never dropped.
    """

    source: str                                   # path of config.json, for messages
    raw: dict[str, Any]
    generation: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path) -> "ModelConfig":
        source = directory / "config.json"
        if not source.is_file():
            raise ConfigError(f"{directory}: no config.json, so this is not a Hugging Face checkpoint directory")
        generation = directory / "generation_config.json"
        return cls(str(source), _text_part(read_object(source)), read_object(generation) if generation.is_file() else {})

    def get(self, key: str, kind: type | tuple[type, ...], default: Any = _REQUIRED) -> Any:
        """`raw[key]` checked to be a `kind`; null counts as absent. ConfigError if required and absent."""
        value = self.raw.get(key)
        if value is None:
            if default is _REQUIRED:
                raise ConfigError(f"{self.source}: '{key}' is missing")
            return default
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if float in kinds and type(value) is int:
            value = float(value)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            wanted = " or ".join(k.__name__ for k in kinds)
            raise ConfigError(f"{self.source}: '{key}' should be {wanted}, found {value!r}")
        return value

    def size(self, key: str, default: Any = _REQUIRED) -> int:
        """A positive integer field."""
        value = self.get(key, int, default)
        if value < 1:
            raise ConfigError(f"{self.source}: '{key}' should be at least 1, found {value}")
        return value

    def refuse_unless(self, key: str, *implemented: Any) -> None:
        """ConfigError if `key` is present, not null, and not one of the `implemented` values."""
        value = self.raw.get(key)
        if value is not None and value not in implemented:
            known = ", ".join(repr(v) for v in implemented) or "absent"
            raise ConfigError(f"{self.source}: '{key}' is {value!r}, which is not implemented (implemented: {known})")

    @property
    def architecture(self) -> str:
        names = self.get("architectures", list)
        if len(names) != 1 or not isinstance(names[0], str):
            raise ConfigError(f"{self.source}: 'architectures' should name one class, found {names!r}")
        return names[0]

    @property
    def vocab_size(self) -> int:
        return self.size("vocab_size")

    @property
    def max_position_embeddings(self) -> int:
        return self.size("max_position_embeddings")

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Ids that end an answer: generation_config.json's, else config.json's; possibly none."""
        value = self.generation.get("eos_token_id", self.raw.get("eos_token_id"))
        if value is None:
            return ()
        ids = tuple(value) if isinstance(value, list) else (value,)
        if not all(type(i) is int and i >= 0 for i in ids):
            raise ConfigError(f"{self.source}: 'eos_token_id' should be an id or a list of ids, found {value!r}")
        return ids

    @property
    def rope(self) -> dict[str, Any]:
        """Rotary parameters in one spelling: {"rope_type", "rope_theta", ...}.

        Newer files hold `rope_parameters`; older ones `rope_theta` beside `rope_scaling`, whose
        type is under "rope_type" or "type".
        """
        parameters = dict(self.get("rope_parameters", dict, None) or self.get("rope_scaling", dict, None) or {})
        parameters["rope_type"] = parameters.get("rope_type") or parameters.pop("type", None) or "default"
        parameters.setdefault("rope_theta", self.get("rope_theta", float, 10000.0))
        return parameters


def _text_part(raw: dict[str, Any]) -> dict[str, Any]:
    """A multimodal file with its `text_config` laid over it; what the outer file says of the whole model stays."""
    text = raw.get("text_config")
    if not isinstance(text, dict):
        return raw
    outer = {key: raw[key] for key in ("architectures", "tie_word_embeddings", "quantization_config") if key in raw}
    return {**raw, **text, **outer}


CHOICES = {                                  # of EngineConfig
    "device": ("auto", "cpu", "cuda", "reference", "sm_90"), "load_format": ("auto", "dummy"), "cublas": ("auto", "off"),
    "mamba_ssm_cache_dtype": ("float32", "bfloat16"), "scheduling_policy": ("fcfs", "priority"),
}


@dataclass(frozen=True)
class EngineConfig:
    """How the engine runs. Sizes are tokens unless a name says otherwise; None means "chosen to fit"."""

    device: str = "auto"                     # auto | cpu | cuda | reference | sm_90
    load_format: str = "auto"                # auto = safetensors | dummy = weights drawn at random, to measure speed with
    max_model_len: int | None = None         # prompt + answer; default: the model's max_position_embeddings
    max_num_seqs: int = 256                  # requests that run at once, at most: recurrent states must fit too
    max_num_batched_tokens: int | None = None   # tokens per step (the chunked-prefill budget); default: 512, 8192 on a GPU
    block_size: int = 16                     # tokens per KV block
    num_blocks: int | None = None            # KV blocks; default: from kv_cache_bytes
    kv_cache_bytes: int | None = None        # default: a quarter of the free memory, at most 4 GiB; on a GPU see below
    gpu_memory_utilization: float = 0.9      # of a GPU's memory, what weights, activations, states and KV cache may take
    enforce_eager: bool = False              # on a GPU, never replay a decode step as a graph
    async_scheduling: bool = True            # on a GPU, launch a decode step before the tokens of the last one are read
    cublas: str = "auto"                     # auto: prefill by cuBLASLt where the extra is installed and its bits are ours | off
    enable_prefix_caching: bool = True
    mamba_ssm_cache_dtype: str = "float32"   # of recurrent states between steps: float32 | bfloat16 = half the bytes, rounded
    state_cache_bytes: int | None = None     # for recurrent states of cached prefixes; default: an eighth of what states may take
    scheduling_policy: str = "fcfs"          # fcfs | priority (lower number = earlier)
    max_logprobs: int = 20

    def __post_init__(self):
        for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size", "num_blocks",
                     "kv_cache_bytes", "state_cache_bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} should be at least 1, found {value}")
        for name, choices in CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                raise ConfigError(f"{name} should be {', '.join(choices[:-1])} or {choices[-1]}, found {value!r}")
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ConfigError(f"gpu_memory_utilization should be in (0, 1], found {self.gpu_memory_utilization}")

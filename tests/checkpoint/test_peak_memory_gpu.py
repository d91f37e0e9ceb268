"""Loading a checkpoint onto a GPU passes through a little host memory, whatever its size."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.gpu

GIB = 1 << 30
LIMIT = 1.5 * GIB                        # above what the interpreter has after its imports
CONFIG = {"architectures": ["Qwen3ForCausalLM"], "vocab_size": 152_064, "hidden_size": 4096, "intermediate_size": 12_288,
          "num_hidden_layers": 8, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-6,
          "max_position_embeddings": 4096, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "eos_token_id": 0}
LOAD = """
import resource, sys
import numpy, vtlite.cuda.device, vtlite.engine.llm, vtlite.models.registry
vtlite.cuda.device.current()
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
from vtlite.config import EngineConfig
from vtlite.engine.engine import Engine
Engine(sys.argv[1], EngineConfig(device="cuda", num_blocks=128, max_model_len=1024))
print(peak() - before)
"""


def tensors() -> dict[str, tuple]:
    hidden, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    shapes = {"model.embed_tokens.weight": (CONFIG["vocab_size"], hidden), "lm_head.weight": (CONFIG["vocab_size"], hidden),
              "model.norm.weight": (hidden,)}
    for i in range(CONFIG["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        shapes |= {layer + "input_layernorm.weight": (hidden,), layer + "post_attention_layernorm.weight": (hidden,),
                   layer + "self_attn.q_norm.weight": (128,), layer + "self_attn.k_norm.weight": (128,),
                   layer + "self_attn.q_proj.weight": (4096, hidden), layer + "self_attn.k_proj.weight": (1024, hidden),
                   layer + "self_attn.v_proj.weight": (1024, hidden), layer + "self_attn.o_proj.weight": (hidden, 4096),
                   layer + "mlp.gate_proj.weight": (inner, hidden), layer + "mlp.up_proj.weight": (inner, hidden),
                   layer + "mlp.down_proj.weight": (hidden, inner)}
    return shapes


def write_zeros(path) -> int:
    """A safetensors file whose data is a hole: it takes no disk, but is read like any other. Returns its bytes."""
    header, at = {}, 0
    for name, shape in tensors().items():
        size = 2
        for n in shape:
            size *= n
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)
    return at


def test_five_gigabytes_of_weights_need_a_fraction_of_that_on_the_host(tmp_path):
    from vtlite.checkpoint.resolve import BUNDLED
    size = write_zeros(tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((BUNDLED / "tiny-dense" / name).read_bytes())
    done = subprocess.run([sys.executable, "-c", LOAD, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert size > 4 * GIB and int(done.stdout) <= LIMIT, f"{int(done.stdout) / GIB:.2f} GiB for {size / GIB:.2f} GiB of weights"

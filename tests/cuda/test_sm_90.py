"""vtlite/cuda/sm_90.py has a GPU's bits: those recorded on an H200, operation by operation, and a whole model's on the emulator."""

import json
from pathlib import Path

import numpy as np
import pytest

from bench.record_model import record
from vtlite import LLM
from vtlite.cuda import all_specs, ops, sm_90
from vtlite.opspec import case_name, checksum

RECORDED = np.load(Path(__file__).parents[1] / "golden" / "ops_h200.npz")          # by bench/record_ops.py
FUNCTIONS = {"act.gelu_tanh_and_mul": sm_90.gelu_tanh_and_mul, "act.sigmoid_gate": sm_90.sigmoid_gate,
             "act.silu_and_mul": sm_90.silu_and_mul, "norm.add_rms_norm": sm_90.add_rms_norm,
             "norm.gated_rms_norm": sm_90.gated_rms_norm, "norm.rms_norm": sm_90.rms_norm, "rope.cos_sin": sm_90.rope_cos_sin,
             "rope.rotary": sm_90.rotary}
CONFIG = {"architectures": ["Qwen3ForCausalLM"], "vocab_size": 32, "hidden_size": 32, "intermediate_size": 16, "num_hidden_layers": 1,
          "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64, "rms_norm_eps": 1e-6, "hidden_act": "silu",
          "max_position_embeddings": 512, "tie_word_embeddings": True, "rope_theta": 10000.0}


def test_it_has_every_operation_of_a_gpu():
    assert sorted(sm_90.__all__) == sorted(ops.__all__)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_operation_has_the_bits_recorded_on_an_h200(name):
    spec = all_specs()[name]
    for case in spec.cases:
        inputs, label = spec.inputs(case), f"{name}/{case_name(case)}"
        assert checksum(inputs) == RECORDED[f"{label}/inputs"], "NumPy draws other inputs than it did for the recording"
        results = FUNCTIONS[name](**inputs)
        for output, result in zip(spec.outputs(**case), results if isinstance(results, tuple) else (results,), strict=True):
            assert result.tobytes() == RECORDED[f"{label}/{output}"].tobytes(), f"{label}/{output}"


def test_a_model_has_the_bits_of_its_kernels(tmp_path, monkeypatch):
    """Every result of every operation, the caches, ids and logprobs, of a prompt and a decode step."""
    monkeypatch.setenv("VTLITE_DEVICE", "emulator")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    by_kernels, by_arrays = (record(LLM(tmp_path, device=device, load_format="dummy", num_blocks=20, max_model_len=128), [3, 14, 15], 2)
                             for device in ("cuda", "sm_90"))
    assert by_kernels.keys() == by_arrays.keys()
    for name, expected in by_kernels.items():
        np.testing.assert_array_equal(by_arrays[name], expected, err_msg=name)

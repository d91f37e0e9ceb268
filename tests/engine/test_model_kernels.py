"""What `vtlite kernels compile --model` compiles is what the model launches."""

from tests.tiny_device import DEVICE, DEVICE_HYBRIDS
from vtlite.checkpoint.resolve import BUNDLED
from vtlite.cuda.gdn_decode import decode_kernel
from vtlite.cuda.gdn_scan import scan_kernel
from vtlite.engine.model_kernels import launched_by_model


def names(directory) -> set[str]:
    return {specialized.kernel.name for specialized in launched_by_model(directory)}


def test_few_and_many_rows_short_and_long_contexts_and_the_moves_of_a_preempted_request(tmp_path):
    found = launched_by_model(DEVICE.build("two_layers", tmp_path / "dense"))
    assert {"embedding_kernel", "attention_inputs_kernel", "attention_decode_kernel", "attention_merge_kernel", "attention_prefill_kernel",
            "linear_skinny_kernel", "linear_wgmma_kernel", "write_kv_kernel", "draw_kernel", "rank_kernel"} <= {s.kernel.name for s in found}
    rows = {s.constants["TILE_T"] for s in found if s.kernel.name == "linear_skinny_kernel"}
    assert rows == {8, 16, 32, 64} and len(found) == len(set(found))


def test_a_hybrid_steps_and_scans_its_states_in_either_type(tmp_path):
    found = launched_by_model(DEVICE_HYBRIDS.build("hybrid", tmp_path / "hybrid"))
    assert {"conv_step_kernel", "decode_kernel", "conv_chunk_kernel", "chunk_kernel", "scan_kernel", "sigmoid_gate_kernel"} <= {
        specialized.kernel.name for specialized in found}
    for kernel in (decode_kernel, scan_kernel):
        assert {s.constants["BF16_STATE"] for s in found if s.kernel is kernel} == {False, True}


def test_the_models_of_the_package_need_no_weights_for_it():
    assert "linear_skinny_kernel" in names(BUNDLED / "tiny-dense")

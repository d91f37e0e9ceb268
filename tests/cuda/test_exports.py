"""The GPU's wing has the definition's operations, under the same names and with the same arguments."""

import inspect

from vtlite import reference
from vtlite.cuda import ops

PARTS_OF_GATED_DELTA_NET = {"causal_conv1d", "gated_delta_rule", "gdn_gates"}         # kernels there run them as one


def test_same_names():
    assert set(reference.__all__) - set(ops.__all__) == PARTS_OF_GATED_DELTA_NET
    assert set(ops.__all__) <= set(reference.__all__)


def test_same_arguments_but_for_out():
    for name in ops.__all__:
        definition, ours = (inspect.signature(getattr(wing, name)).parameters for wing in (reference, ops))
        assert list(definition) == [p for p in ours if p != "out"], name

"""The wings export the same names with the same arguments."""

import inspect

from vtlite import cpu, reference


def test_same_names_and_arguments():
    assert cpu.__all__ == reference.__all__
    for name in cpu.__all__:
        of_cpu, of_reference = (inspect.signature(getattr(wing, name)) for wing in (cpu, reference))
        assert list(of_cpu.parameters.values()) == list(of_reference.parameters.values()), name

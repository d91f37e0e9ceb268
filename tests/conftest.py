"""What several rooms' tests share."""

import functools

import pytest
from hypothesis import HealthCheck, settings

from tests.tiny_families import FAMILY_OF

# Every run tries the same examples, however slow the machine; `pytest --hypothesis-profile search` tries new ones.
settings.register_profile("same", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", settings.get_profile("same"), derandomize=False)
settings.load_profile("same")


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory):
    """tiny_checkpoint(name) -> directory of the tiny checkpoint `name`, built once per session. Do not write there."""
    root = tmp_path_factory.mktemp("tiny")
    return functools.cache(lambda name: FAMILY_OF[name].build(name, root / name))

"""What several rooms' tests share."""

import functools

import pytest

from tests import tiny_checkpoints, tiny_hybrids


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory):
    """tiny_checkpoint(name) -> directory of the tiny checkpoint `name`, built once per session. Do not write there."""
    root = tmp_path_factory.mktemp("tiny")

    @functools.cache
    def build(name):
        family = tiny_hybrids if name in tiny_hybrids.CONFIGS else tiny_checkpoints
        return family.build(name, root / name)
    return build

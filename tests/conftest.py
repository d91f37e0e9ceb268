"""What several rooms' tests share."""

import functools

import pytest

from tests import tiny_checkpoints


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory):
    """tiny_checkpoint(name) -> directory of the tiny checkpoint `name`, built once per session. Do not write there."""
    root = tmp_path_factory.mktemp("tiny")
    return functools.cache(lambda name: tiny_checkpoints.build(name, root / name))

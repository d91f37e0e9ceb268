"""What the tests of commands share."""

import shutil

import pytest

TEMPLATE = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")


@pytest.fixture(scope="session")
def chat_checkpoint(tiny_checkpoint, tmp_path_factory):
    """A tiny checkpoint of 512 tokens of context with a chat template; one token per byte."""
    directory = tmp_path_factory.mktemp("chat") / "tiny-chat"
    shutil.copytree(tiny_checkpoint("qwen3"), directory)
    (directory / "chat_template.jinja").write_text(TEMPLATE)
    return directory

"""The folder in which the snippets of the documentation run."""

import json

import builders
import pytest
from checkpoints import ENGLISH, ESTONIAN, checkpoint

import tokengraft as tg
from tokengraft.formats.huggingface import write_tokenizer_json


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with what the pages speak of, as the working directory."""
    checkpoint(tmp_path / "model")
    checkpoint(tmp_path / "padded", rows=448)
    (tmp_path / "llama").mkdir()
    (tmp_path / "llama" / "tokenizer.model").write_bytes(builders.llama2_like())
    builders.write(tmp_path / "llama", json.loads(write_tokenizer_json(tg.load(tmp_path / "llama"))))
    (tmp_path / "et.txt").write_text("\n".join(ESTONIAN), encoding="utf-8")
    (tmp_path / "en.txt").write_text("\n".join(ENGLISH), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path

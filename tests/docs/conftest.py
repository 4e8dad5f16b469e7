"""The folder in which the snippets of the documentation run."""

import json

import builders
import pytest
from checkpoints import ENGLISH, ESTONIAN, LATVIAN, checkpoint

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
    web = "".join(json.dumps({"content": text}) + "\n" for text in ESTONIAN[:9])
    texts = {"et.txt": "\n".join(ESTONIAN), "en.txt": "\n".join(ENGLISH), "lv.txt": "\n".join(LATVIAN)}
    texts |= {
        "web.jsonl": web,
        "broken.jsonl": web + "{",
        "notes.log": "kass",
        "deny.txt": "ad\n",
        "keep.txt": "Ġcat\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path

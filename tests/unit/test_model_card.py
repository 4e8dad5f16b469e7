"""The model card that `adapt` and `transplant` write: what it says, and that no name or source card can break it."""

import re

import numpy as np
import pytest
import yaml
from checkpoints import checkpoint, set_config, write_texts

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.checkpoint.model_card import (
    _fields,
    _loading,
    _source_card,
    base_name,
    code,
    model_class,
    public_command,
)
from tokengraft.checkpoint.model_job import ModelJob

pytestmark = pytest.mark.usefixtures("transformers_running")
SOURCE_CARD = """---
license: other
license_name: "my own"
license_link: https://example.org/licence#2
language:
- en
- no  # not false
tags: [chat, 'a b']
pipeline_tag: text-generation
base_model: someone/older
datasets:
- text
model-index:
- name: model
  results: []
---
# The model

Its figures.
"""
LICENCE = {"license", "license_name", "license_link"}
HOSTILE = [
    "plain",
    'quote" colon: hash # [x]',
    "line\n---\nlicense: mit\n---\n# heading",
    "`back``ticks`",
    "a|b|<script>",
    "' & * ! %",
    "\x1b[31mred\x85\u2028\u202e\x07",
    "no",
    "😀 õ",
    "\udcff",
]


@pytest.fixture
def texts(tmp_path, monkeypatch):
    """A model with a card, and texts, in the current folder."""
    monkeypatch.chdir(tmp_path)
    checkpoint(tmp_path / "model")
    (tmp_path / "model" / "README.md").write_text(SOURCE_CARD, encoding="utf-8")
    return write_texts(tmp_path)


@pytest.fixture
def new(texts):  # noqa: ARG001
    base = tg.load("model")
    return tg.extend(base, tg.count(base, "et.txt"), 8).apply(base)


def read(folder):
    """The front matter of a card, as a YAML library reads it, and its text."""
    raw = (folder / "README.md").read_bytes().decode()
    _, matter, text = re.split(r"^---\n", raw, maxsplit=2, flags=re.MULTILINE)
    return yaml.safe_load(matter), text


def adapted(texts, *arguments, source="model", out="out"):
    command = ["adapt", source, "--target", "et=et.txt", "--keep", "en=en.txt", "--quiet", "--no-report"]
    assert cli.main([*command, *arguments, "--out", out]) == 0
    return read(texts / out)


def test_the_front_matter_names_the_source_its_licence_and_all_languages(texts):
    matter, _ = adapted(texts, "--swap", "8")
    assert matter == {
        "base_model": "model",
        "library_name": "transformers",
        "license": "other",
        "license_name": "my own",
        "license_link": "https://example.org/licence#2",
        "language": ["en", "no", "et"],
        "pipeline_tag": "text-generation",
        "tags": ["chat", "a b", "tokengraft"],
    }


def test_a_card_says_what_was_changed_measured_and_not_measured_and_how(texts):
    _, text = adapted(texts, "--swap", "8", "--test", "lv=lv.txt")
    assert "**The rows of 8 new tokens are untrained.**" in text
    assert "| tokens | 8 new, 8 removed, 389 kept |" in text
    assert "| ids of kept tokens | unchanged |" in text
    measured = tg.adapt("model", target={"et": "et.txt"}, keep={"en": "en.txt"}, swap=8, out="other").evaluation
    before, after = (measured[name, "et"].bytes_per_token for name in ("base", "new"))
    assert f"| `et` | {before:.3f} → {after:.3f} |" in text
    assert "| `lv (test)` |" in text
    assert "Not measured: speed, and the model itself (bits per byte, downstream tasks)." in text
    assert "tokengraft adapt model --target et=et.txt --keep en=en.txt --test lv=lv.txt --swap 8" in text
    assert "AutoModelForCausalLM.from_pretrained(folder)" in text


def test_the_card_of_the_source_is_kept_below_without_its_front_matter(texts):
    _, text = adapted(texts, "--swap", "8")
    assert text.endswith("\n\n# The model\n\nIts figures.\n")
    assert text.index("## Card of the source") < text.index("# The model")
    assert "Its front matter also had `base_model`, `datasets`, `model-index`" in text


def test_a_source_without_a_card_has_no_part_for_it(texts):
    (texts / "model" / "README.md").unlink()
    matter, text = adapted(texts, "--swap", "8")
    assert "license" not in matter
    assert "Card of the source" not in text


def test_a_card_of_a_transplant_says_that_nothing_was_measured(texts, new):
    tg.transplant("model", new, "out", init="mean")
    matter, text = read(texts / "out")
    assert matter["base_model"] == "model"
    assert matter["license"] == "other"
    assert "Not measured: the bytes per token of any text, and the model itself" in text
    assert "tokengraft transplant model NEW_TOKENIZER --init mean --out transplanted" in text
    assert "bytes/token" not in text


def test_the_card_of_an_adapter_loads_the_source_first(texts):
    matter, text = adapted(texts, "--swap", "4", "--as-adapter")
    assert (matter["library_name"], matter["base_model"]) == ("peft", "model")
    assert 'base = AutoModelForCausalLM.from_pretrained("model")' in text
    assert 'PeftModel.from_pretrained(base, ".")' in text


def test_a_function_as_initialiser_is_no_command(texts, new):
    tg.transplant("model", new, "out", init=zeros)
    assert "With `tokengraft.transplant` in Python, and a function as initialiser." in read(texts / "out")[1]


def zeros(tokens, table):
    return np.zeros((len(tokens), table.width), np.float32)


def test_a_card_of_a_tokenizer_says_that_there_is_no_model(texts):
    _, text = adapted(texts, "--add", "8", source="model/tokenizer.json")
    assert "**This is a tokenizer without a model.** A model needs 8 new rows" in text
    assert "AutoModel" not in text
    assert "the model itself" not in text


def test_pruning_alone_leaves_no_untrained_rows(texts):
    _, text = adapted(texts, "--remove", "8")
    assert "untrained" not in text
    assert "No row is new." in text


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_breaks_a_card(texts, new, name):
    (texts / "model").rename(texts / name)
    tg.transplant(texts / name, new, "out")
    matter, text = read(texts / "out")
    assert {*matter} - {"base_model"} == {"library_name", "language", "pipeline_tag", "tags", *LICENCE}
    assert matter.get("base_model") == (name if name in ("plain", "no") else None)
    lines = text.splitlines()
    assert [line for line in lines if line.startswith("#")] == [
        f"# {code(name)} with a changed vocabulary",
        "## What was changed",
        "## What was measured",
        "## How to load it",
        "## How it was made",
        "## Card of the source",
        "# The model",
    ]
    assert not [c for c in text if not c.isprintable() and c != "\n"]


@pytest.mark.parametrize("value", HOSTILE)
def test_a_value_of_a_source_card_is_kept_as_it_is_or_left_out(texts, new, value):
    fields = {"license": value, "tags": [value, "x"], "language": value}
    card = "---\n" + yaml.safe_dump(fields, allow_unicode=True) + "---\ntext"
    (texts / "model" / "README.md").write_text(card, encoding="utf-8", errors="replace")
    tg.transplant("model", new, "out")
    matter, _ = read(texts / "out")
    assert matter.get("license") in (None, value)
    assert matter["tags"] in ([value, "x", "tokengraft"], ["tokengraft"])


@pytest.mark.parametrize(
    ("card", "licence", "body"),
    [
        (b"", None, b""),
        (b"---\n---\n", None, b""),
        (b"---\nlicense: mit\n---", "mit", b""),
        (b"---\nlicense: mit\n", None, b"---\nlicense: mit\n"),
        (b"\xff\xfe---\nlicense: mit\n---\n", None, b"\xff\xfe---\nlicense: mit\n---\n"),
        (b"---\nlicense: {a: b}\nlanguage: &x [*x]\ntags: |\n  a\n---\n```\n<!--", None, b"```\n<!--"),
        (b"\xef\xbb\xbf---\r\nlicense: mit\r\n---\r\ntext\r\n", "mit", b"text\r\n"),
        (b"--- \n\xff: \xff\n---\n\xff", None, b"\xff"),
    ],
)
def test_any_bytes_may_be_the_card_of_a_source(texts, new, card, licence, body):
    (texts / "model" / "README.md").write_bytes(card)
    tg.transplant("model", new, "out")
    raw = (texts / "out" / "README.md").read_bytes()
    assert yaml.safe_load(raw.split(b"---\n")[1]).get("license") == licence
    assert raw.endswith(b"\n\n" + body if body else b"has the inputs with their hashes.\n")
    assert (b"## Card of the source" in raw) == bool(body)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (" mit", ["mit"]),
        (" 'a # b'  ", ["a # b"]),
        ("\n- en\n  - et\n", ["en", "et"]),
        (" [en, et]", ["en", "et"]),
        (" en\n  et", []),
        ("\n- name: x", []),
        ("", []),
        (" |", []),
        (" *alias", []),
        (' "a\\nb"', []),
        (" a: b", []),
    ],
)
def test_only_plain_values_are_read(text, values):
    assert _fields(f"license: mit\ntags:{text}") == {"license": ["mit"], "tags": values}


def test_a_card_has_no_path_of_the_machine(texts):
    paths = ["--target", f"lv={texts}/lv.txt", "--swap", "8"]
    _, text = adapted(texts, *paths, source=str(texts / "model"))
    assert str(texts) not in text
    assert "tokengraft adapt model --target et=et.txt --target lv=lv.txt" in text
    words = ["~/a", "../b/c.txt", "C:\\d\\e.txt", "x=/f/g:2", "s3://h/i.txt", "*.txt", "--text-field", "text"]
    assert "a c.txt e.txt x=g:2 s3://h/i.txt '*.txt' --text-field text" in public_command(words)


def test_a_snapshot_of_the_hub_has_the_name_that_it_has_there(tmp_path):
    folder = tmp_path / "models--org--name" / "snapshots" / "0123"
    folder.mkdir(parents=True)
    assert base_name(folder) == "org/name"
    (folder / "tokenizer.json").touch()
    assert base_name(folder / "tokenizer.json") == "org/name"


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"architectures": ["T5ForConditionalGeneration"]}, "T5ForConditionalGeneration"),
        ({"architectures": ["RobertaForMaskedLM"]}, "RobertaForMaskedLM"),
        ({"architectures": ["Qwen2_5_VLForConditionalGeneration"]}, "Qwen2_5_VLForConditionalGeneration"),
        ({"architectures": ["GPT2LMHeadModel"]}, "AutoModelForCausalLM"),
        ({"architectures": ["LlamaModel"]}, "LlamaModel"),
        ({"architectures": ["x; import os"]}, "AutoModel"),
        ({"architectures": None, "model_type": "gpt2"}, "AutoModelForCausalLM"),
        ({"architectures": None, "model_type": "bert"}, "AutoModel"),
        ({"architectures": None, "model_type": "fsmt", "is_encoder_decoder": True}, "AutoModel"),
        ({"architectures": None, "model_type": None}, "AutoModel"),
    ],
)
def test_the_class_to_load_is_that_of_the_config_if_it_is_a_name(texts, config, name):
    set_config(texts / "model", **config)
    assert model_class(texts / "model") == name
    assert f"model = {name}.from_pretrained(folder)" in _loading(texts / "model", weighted=True)


def test_a_card_that_cannot_be_read_is_an_error(texts, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tokengraft.checkpoint.model_card.Path.read_bytes", refuse)
    with pytest.raises(errors.UnreadableFileError, match="Permission denied"):
        _source_card(texts / "model" / "README.md")


def test_a_card_given_by_the_caller_is_not_replaced(texts, new):
    job = ModelJob.prepare("model", new, tg.TransplantOptions())
    job.write(texts / "out", force=False, others={"README.md": b"mine"})
    assert (texts / "out" / "README.md").read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("et=file:///home/me/et.txt", "et=et.txt"),
        ("https://me:secret@host/et.txt", "https://host/et.txt"),
        ("et=https://host/et.txt?signature=secret", "et=https://host/et.txt"),
        ("hf://datasets/org/name/et.txt", "hf://datasets/org/name/et.txt"),
    ],
)
def test_a_command_has_no_path_of_the_machine_and_no_password(word, shown):
    assert public_command([word]) == f"```sh\n{shown}\n```"

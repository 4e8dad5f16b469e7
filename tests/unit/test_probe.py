"""`probe`: bits per byte by an obvious version, equal bytes for all models, and what is refused."""

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import builders
import pytest
from checkpoints import ESTONIAN, set_config

import tokengraft as tg
from tokengraft import cli, errors

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers")
import tiny_models  # noqa: E402

from tokengraft.train import score as chunking  # noqa: E402
from tokengraft.train.score import ids_of, sequences  # noqa: E402

LN2 = math.log(2)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A folder with a model, an adapted one, and texts."""
    folder = tiny_models.texts(tmp_path_factory.mktemp("probe"))
    tiny_models.tiny_llama(folder / "model")
    options = tg.AdaptOptions(report=False)
    texts = {"target": folder / "et.txt", "keep": folder / "en.txt"}
    tg.adapt(folder / "model", **texts, swap=30, out=folder / "new", options=options)
    return folder


@pytest.fixture
def place(template, tmp_path, monkeypatch):
    """A copy of it, which is the working directory."""
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def obvious_bits(folder, text, start):
    """Bits of every token of a text, one call of the model for each token; with the tokens."""
    model, ids = tiny_models.model_in(folder), tg.load(folder).encode(text)
    found = []
    for at, token in enumerate(ids):
        with torch.no_grad():
            logits = model(torch.tensor([[start, *ids[:at]]])).logits[0, -1]
        found.append(float(-logits.log_softmax(-1)[token]) / LN2)
    return found, ids


def quick(**values):
    return tg.train.ProbeOptions(**{"steps": 3, "step_bytes": 600, "learning_rate": 1e-2, "device": "cpu"} | values)


@pytest.mark.usefixtures("place")
def test_bits_are_those_of_one_token_after_the_other_split_by_new_and_kept():
    lines = ESTONIAN[300:303]
    base, new = tg.load("model"), tg.load("new")
    found = tg.train.probe({"base": "model", "new": "new"}, {"et": iter(lines)}, options=quick())
    start = base.added[0].id
    for name, tokenizer in (("base", base), ("new", new)):
        score = found[name, "et", 0]
        every = [obvious_bits("model" if name == "base" else "new", line, start) for line in lines]
        assert score.bits == pytest.approx(sum(sum(bits) for bits, _ in every), rel=1e-4)
        ours = [
            (b, i)
            for bits, ids in every
            for b, i in zip(bits, ids, strict=True)
            if tokenizer.strings[i] not in base.ids
        ]
        assert score.new_bits == pytest.approx(sum(b for b, _ in ours), rel=1e-4)
        lengths = {token.id: len(token.bytes) for token in tokenizer.tokens}
        assert score.new_bytes == sum(lengths[i] for _, i in ours)
        assert score.bytes == sum(len(line.encode()) for line in lines)
        assert score.tokens == sum(len(ids) for _, ids in every)
    assert found["base", "et", 0].new_bytes == 0
    assert found["new", "et", 0].new_bytes > 0


@pytest.mark.usefixtures("place")
def test_every_model_is_scored_on_the_same_bytes_and_the_parts_add_up():
    found = tg.train.probe({"base": "model", "new": "new"}, {"et": "held-out.txt", "en": "en.txt"}, options=quick())
    for text in ("et", "en"):
        scores = [found[name, text, 0] for name in ("base", "new")]
        assert scores[0].bytes == scores[1].bytes
        assert scores[0].tokens > scores[1].tokens or text == "en"
    score = found["new", "et", 0]
    kept = score.kept_bits_per_byte * (score.bytes - score.new_bytes)
    assert kept + score.new_bits_per_byte * score.new_bytes == pytest.approx(score.bits)


@pytest.mark.usefixtures("place")
def test_bits_do_not_depend_on_how_documents_are_batched(monkeypatch):
    before = tg.train.probe({"base": "model"}, {"et": "held-out.txt"}, options=quick())
    monkeypatch.setattr("tokengraft.train.models.Hardware.max_logits", 1)
    after = tg.train.probe({"base": "model"}, {"et": "held-out.txt"}, options=quick())
    assert after.scores[0].bits == pytest.approx(before.scores[0].bits, rel=1e-5)


@pytest.mark.usefixtures("place")
def test_a_short_training_lowers_the_bits_and_is_the_same_every_time():
    def trained():
        return tg.train.probe(
            {"base": "model", "new": "new"}, {"et": "held-out.txt"}, train="et.txt", options=quick(steps=8)
        )

    first = trained()
    for name in ("base", "new"):
        assert first[name, "et", 8].bits < 0.9 * first[name, "et", 0].bits
        assert first[name, "et", 8].bytes == first[name, "et", 0].bytes
    assert first.settings["training_bytes"] >= 8 * 600
    assert trained() == first


@pytest.mark.usefixtures("place")
def test_all_models_are_trained_on_the_same_chunks(monkeypatch):
    seen = []
    module = sys.modules["tokengraft.train.score"]
    real = module.ids_of
    monkeypatch.setattr(module, "ids_of", lambda tokenizer, step: seen.append(step) or real(tokenizer, step))
    tg.train.probe({"base": "model", "new": "new"}, {"et": "held-out.txt"}, train="et.txt", options=quick())
    assert len(seen) == 6
    assert seen[:3] == seen[3:]
    assert all(sum(len(chunk.encode()) for chunk in step) >= 600 for step in seen)


def test_the_model_folder_is_not_changed(place):
    before = {path.name: path.read_bytes() for path in (place / "new").iterdir()}
    tg.train.probe({"new": "new"}, {"et": "held-out.txt"}, train="et.txt", options=quick())
    assert {path.name: path.read_bytes() for path in (place / "new").iterdir()} == before


def test_text_that_is_scored_is_not_trained_on(place):
    with pytest.raises(errors.OptionError, match="scored on what it was"):
        tg.train.probe({"base": "model"}, {"et": "et.txt"}, train=["en.txt", place / "et.txt"], options=quick())
    (place / "mixed.txt").write_text("\n".join(ESTONIAN[200:340]), encoding="utf-8")
    found = tg.train.probe({"base": "model"}, {"et": "held-out.txt"}, train="mixed.txt", options=quick(step_bytes=1500))
    assert any("40 documents of the training text are also scored" in warning for warning in found.warnings)


@pytest.mark.usefixtures("place")
def test_a_training_text_that_is_too_short_is_refused():
    with pytest.raises(errors.CorpusError, match=r"enough for \d+ of 900 steps"):
        tg.train.probe({"base": "model"}, {"et": "held-out.txt"}, train="et.txt", options=quick(steps=900))


@pytest.mark.parametrize("metaspace", [True, False])
def test_the_space_that_sentencepiece_adds_is_no_byte_of_the_text(tmp_path, metaspace):
    tokenizer = tiny_models.tiny_llama(tmp_path / "model", document=builders.sentencepiece(metaspace=metaspace))
    texts = ["the cat", " the cat", "  the", " ", "   ", "猫 the", "\tcat", "the\nthe cat"]
    for text in texts:
        found = sequences(tokenizer, [text])
        assert sum(int(sizes.sum()) for sizes in found.n_bytes) == found.text_bytes == len(text.encode()), text
    score = tg.train.probe({"base": tmp_path / "model"}, {"t": iter(texts)}, options=quick()).scores[0]
    assert score.bytes == sum(len(text.encode()) for text in texts)


def test_without_a_start_token_a_newline_is_read_first(place):
    set_config(place / "model", bos_token_id=None, eos_token_id=None)
    line = ESTONIAN[300]
    newline = tg.load("model").encode("\n")[0]
    found = tg.train.probe({"base": "model"}, {"et": iter([line])}, options=quick()).scores[0]
    assert found.bits == pytest.approx(sum(obvious_bits("model", line, newline)[0]), rel=1e-4)


def test_chunks_join_to_the_documents_and_are_short():
    documents = ["õ" * 700, "a b " * 300, "", "\n\n" * 40, "x" * 100, "猫" * 50 + " " + "猫" * 50]
    for size in (16, 17, 100, 1500):
        parts = [list(chunking.chunks([document], size)) for document in documents]
        assert ["".join(part) for part in parts] == documents
        assert all(0 < len(chunk.encode()) <= size for part in parts for chunk in part)


@pytest.mark.usefixtures("place")
def test_the_command_prints_a_table_or_json(capsys):
    arguments = ["probe", "base=model", "new=new", "--text", "et=held-out.txt", "--device", "cpu", "--quiet"]
    assert cli.main([*arguments, "--train", "et.txt", "--steps", "2", "--step-bytes", "500"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split()[:4] == ["model", "text", "steps", "bits/byte"]
    assert [line.split()[:3] for line in table[1:]] == [
        ["base", "et", "0"],
        ["base", "et", "2"],
        ["new", "et", "0"],
        ["new", "et", "2"],
    ]
    assert cli.main([*arguments, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [score["model"] for score in data["scores"]] == ["base", "new"]
    assert data["scores"][1]["bits_per_byte"] > 0
    assert "learning_rate" not in data["settings"]


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--steps", "5"], "--steps is for the short training"),
        (["--seed", "1"], "--seed is for the short training"),
        (["--train", "et.txt", "--steps", "0"], "--steps is 0"),
        (["--train", "et.txt", "--learning-rate", "nan"], "--learning-rate is nan"),
        (["--chunk-bytes", "3"], "--chunk-bytes is 3"),
        (["--text", "en.txt", "./en.txt"], "two texts of --text are called 'en'"),
        (["--text", "x=missing.txt"], "missing.txt"),
    ],
)
def test_wrong_options_are_refused(capsys, more, message):
    assert cli.main(["probe", "model", "--text", "et=held-out.txt", "--device", "cpu", *more]) == 2
    assert message in capsys.readouterr().err


def test_a_model_that_cannot_be_loaded_is_a_checkpoint_error(place):
    with pytest.raises(errors.SourceNotFoundError):
        tg.train.probe({"base": place}, {"et": "held-out.txt"}, options=quick())
    (place / "model" / "model.safetensors").write_bytes(b"")
    with pytest.raises(errors.CheckpointError):
        tg.train.probe({"base": "model"}, {"et": "held-out.txt"}, options=quick())


def test_chunks_that_are_too_long_for_a_model_are_refused(tmp_path):
    tiny_models.tiny_llama(tmp_path / "model", max_position_embeddings=50)
    with pytest.raises(
        errors.OptionError, match=r"a part of the text has \d+ tokens for m, and the model reads at most 50"
    ):
        tg.train.probe({"m": tmp_path / "model"}, {"t": iter(["x" * 200])}, options=quick())
    assert tg.train.probe({"m": tmp_path / "model"}, {"t": iter(["x" * 200])}, options=quick(chunk_bytes=49)).scores


def test_code_in_a_folder_is_not_executed(place):
    code = {"AutoModelForCausalLM": "code.Model", "AutoConfig": "code.Config"}
    set_config(place / "model", model_type="strange", auto_map=code)
    (place / "model" / "code.py").write_text("open('executed', 'w')")
    with pytest.raises(errors.CheckpointError, match="trust_remote_code"):
        tg.train.probe({"base": "model"}, {"et": "held-out.txt"}, options=quick())
    assert not (place / "executed").exists()


@pytest.mark.usefixtures("place")
def test_without_torch_the_error_names_the_extra():
    code = """
import sys
sys.modules["torch"] = None
import tokengraft as tg
try:
    tg.train.probe({"base": "model"}, {"et": "held-out.txt"})
except tg.TokengraftError as error:
    print(type(error).__name__, error.hint)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == 'OptionError install them: pip install "tokengraft[torch]"'


@pytest.mark.usefixtures("place")
def test_training_text_that_is_too_long_for_a_model_is_refused():
    set_config(Path("model"), max_position_embeddings=30)
    long = [" ".join(ESTONIAN[at : at + 5]) for at in range(0, 300, 5)]
    with pytest.raises(errors.OptionError, match="reads at most 30"):
        tg.train.probe({"base": "model"}, {"et": iter(["tere"])}, train=iter(long), options=quick())


@pytest.mark.usefixtures("place")
def test_training_documents_with_a_line_that_is_scored_are_left_out():
    lines = [f"{number}: {' '.join(ESTONIAN[number : number + 3])}" for number in range(100)]
    documents = ["\n".join(lines[at : at + 5]) for at in range(0, 100, 5)]
    options = quick(step_bytes=sum(len(document.encode()) for document in documents) // 8)
    found = tg.train.probe(
        {"base": "model"}, {"et": iter([lines[7], lines[42]])}, train=iter(documents), options=options
    )
    assert any(warning.startswith("2 documents") for warning in found.warnings)


@pytest.mark.parametrize("prepends", [True, False])
def test_chunks_are_read_with_the_spaces_of_their_document(prepends, tmp_path):
    """The normalizer `Prepend` puts a space before each chunk too, which would be the second one of ` word`."""
    document = builders.sentencepiece()
    steps = [{"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]
    steps = [{"type": "Prepend", "prepend": "▁"}, *steps] if prepends else steps
    document["normalizer"] = {"type": "Sequence", "normalizers": steps}
    document["pre_tokenizer"] = None
    tokenizer = tg.load(builders.write(tmp_path / "model", document))
    text = "the cat sat on the mat and the other cat"
    parts = list(chunking.chunks([text], 12))
    assert len(parts) > 2
    assert all(part.startswith(" ") for part in parts[1:])
    found = sequences(tokenizer, parts)
    spelled = {token.id: token.bytes for token in tokenizer.tokens}
    read = [b"".join(spelled[token] for token in ids).decode() for ids in found.ids]
    assert read == [" " * prepends + parts[0], *parts[1:]]
    assert [sum(sizes) for sizes in found.n_bytes] == [len(part.encode()) for part in parts]
    assert [[*ids] for ids in ids_of(tokenizer, parts)] == [[*ids] for ids in found.ids]
    for blank in (" ", "  ", " a"):
        assert sum(sum(sizes) for sizes in sequences(tokenizer, [blank]).n_bytes) == len(blank)

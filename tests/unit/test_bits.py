"""Bits per byte of models: by an obvious version, equal bytes for all models, and what is refused."""

import json
import math
import shutil
import subprocess
import sys

import builders
import pytest
from checkpoints import ESTONIAN, set_config

import tokengraft as tg
from tokengraft import errors

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers")
import tiny_models  # noqa: E402

from tokengraft.checkpoint.folder import open_checkpoint  # noqa: E402
from tokengraft.measure import bits as scoring  # noqa: E402
from tokengraft.measure.models import Hardware, load_model, start_ids  # noqa: E402

EXACT = Hardware("cpu", "float32")


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A folder with a model, an adapted one, and texts."""
    folder = tiny_models.texts(tmp_path_factory.mktemp("bits"))
    tiny_models.tiny_llama(folder / "model")
    options = tg.AdaptOptions(report=False)
    texts = {"target": folder / "et.txt", "keep": folder / "en.txt"}
    tg.adapt(folder / "model", **texts, swap=30, out=folder / "new", options=options)
    return folder


@pytest.fixture
def place(template, tmp_path, monkeypatch):
    """A copy of it, which is the working directory. Models are scored in 32 bits."""
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scoring, "hardware", lambda: EXACT)
    return tmp_path


def obvious_bits(folder, text, start):
    """Bits of every token of a text, one call of the model for each token; with the tokens."""
    model, ids = tiny_models.model_in(folder), tg.load(folder).encode(text)
    found = []
    for at, token in enumerate(ids):
        with torch.no_grad():
            logits = model(torch.tensor([[start, *ids[:at]]])).logits[0, -1]
        found.append(float(-logits.log_softmax(-1)[token]) / math.log(2))
    return found, ids


@pytest.mark.usefixtures("place")
def test_bits_are_those_of_one_token_after_the_other_split_by_new_and_kept():
    lines = ESTONIAN[300:303]
    base = tg.load("model")
    found = tg.evaluate({"base": "model", "new": "new"}, {"et": lines}, bits=True)
    n_bytes = sum(len(line.encode()) for line in lines)
    for name, folder in (("base", "model"), ("new", "new")):
        score, tokenizer = found[name, "et"], tg.load(folder)
        every = [obvious_bits(folder, line, base.added[0].id) for line in lines]
        assert score.bits_per_byte == pytest.approx(sum(sum(bits) for bits, _ in every) / n_bytes, rel=1e-4)
        pairs = [pair for bits, ids in every for pair in zip(bits, ids, strict=True)]
        ours = [(b, i) for b, i in pairs if tokenizer.strings[i] not in base.ids]
        lengths = {token.id: len(token.bytes) for token in tokenizer.tokens}
        if ours:
            new_bytes = sum(lengths[i] for _, i in ours)
            assert score.new_bits_per_byte == pytest.approx(sum(b for b, _ in ours) / new_bytes, rel=1e-4)
            kept = score.kept_bits_per_byte * (n_bytes - new_bytes) + score.new_bits_per_byte * new_bytes
            assert kept == pytest.approx(score.bits_per_byte * n_bytes)
    assert found["base", "et"].new_bits_per_byte is None
    change = found["new", "et"].bits_per_byte / found["base", "et"].bits_per_byte - 1
    assert found["new", "et"].bits_change == pytest.approx(change)


@pytest.mark.usefixtures("place")
def test_bits_do_not_depend_on_how_documents_are_batched_or_divided(monkeypatch):
    loaded = load_model("model", EXACT)
    text = scoring.sequences(loaded.tokenizer, [*scoring.chunks(ESTONIAN[300:340])])
    whole = scoring.bits(loaded, text)[0]
    monkeypatch.setattr(Hardware, "max_logits", 40_000)
    small = scoring.bits(loaded, text)[0]
    parts = [scoring.bits(loaded, text, part=(number, 3))[0].bits for number in range(3)]
    assert small.bits == pytest.approx(whole.bits, rel=1e-5)
    assert all(parts)
    assert sum(parts) == pytest.approx(whole.bits, rel=1e-5)


@pytest.mark.usefixtures("place")
def test_16_bits_are_close_to_32(monkeypatch):
    exact = tg.evaluate({"base": "model"}, {"et": "held-out.txt"}, bits=True).scores[0].bits_per_byte
    monkeypatch.setattr(scoring, "hardware", lambda: Hardware("cpu", "bfloat16"))
    rounded = tg.evaluate({"base": "model"}, {"et": "held-out.txt"}, bits=True).scores[0].bits_per_byte
    assert rounded == pytest.approx(exact, rel=0.01)


@pytest.mark.usefixtures("place")
def test_the_command_shows_bits_beside_bytes_per_token(tokengraft):
    command = ["evaluate", "base=model", "new=new", "--text", "et=held-out.txt", "--bits"]
    shown = tokengraft(*command).out
    assert "bits/byte" in shown
    assert "bytes/token" in shown
    scores = tokengraft(*command, "--json").json["scores"]
    assert all(score["bits_per_byte"] > 0 for score in scores)
    assert "bits_per_byte" in tokengraft(*command, "--csv").out.splitlines()[0]
    assert "bits_per_byte" not in tokengraft(*[word for word in command if word != "--bits"] + ["--json"]).out


def test_the_model_folder_is_not_changed(place):
    before = {path.name: path.read_bytes() for path in (place / "new").iterdir()}
    tg.evaluate({"new": "new"}, {"et": "held-out.txt"}, bits=True)
    assert {path.name: path.read_bytes() for path in (place / "new").iterdir()} == before


def test_a_context_that_is_shorter_than_a_chunk_makes_chunks_shorter(place):
    set_config(place / "model", max_position_embeddings=64)
    assert scoring.chunk_bytes([place / "model"]) == 56
    assert scoring.chunk_bytes([place / "new"]) == scoring.CHUNK_BYTES
    long = " ".join(ESTONIAN[:20])
    assert tg.evaluate({"base": "model"}, {"et": [long]}, bits=True).scores[0].bits_per_byte > 0


@pytest.mark.parametrize(
    ("tokenizers", "texts", "message"),
    [
        ({"tokenizer": "tokenizer"}, {"et": "held-out.txt"}, "not a folder with weights"),
        ({"model": "model"}, {"et": "counts.parquet"}, "is counts"),
    ],
)
def test_what_cannot_be_run_is_refused(place, tokenizers, texts, message):
    builders.write(place / "tokenizer", builders.byte_level())
    tg.count(tg.load("model"), "et.txt").save(place / "counts.parquet")
    with pytest.raises(errors.OptionError, match=message):
        tg.evaluate(tokenizers, texts, bits=True)


@pytest.mark.usefixtures("place")
def test_a_model_that_does_not_fit_its_tokenizer_or_gives_no_numbers_is_refused():
    from safetensors.torch import load_file, save_file

    weights = load_file("model/model.safetensors")
    weights["model.norm.weight"][:] = float("nan")
    save_file(weights, "model/model.safetensors", {"format": "pt"})
    with pytest.raises(errors.CheckpointError, match="not numbers"):
        tg.evaluate({"base": "model"}, {"et": "held-out.txt"}, bits=True)
    base = tg.load("model")
    tg.save(tg.extend(base, tg.count(base, "et.txt"), 9).apply(base), "tokenizer")
    shutil.copy("tokenizer/tokenizer.json", "model")
    with pytest.raises(errors.CheckpointError, match="needs 406 rows"):
        tg.evaluate({"base": "model"}, {"et": "held-out.txt"}, bits=True)


def test_an_encoder_is_refused(tmp_path):
    tiny_models.tiny_model("bert", tmp_path / "bert")
    with pytest.raises(errors.CheckpointError, match="does not predict the next token"):
        tg.evaluate({"bert": tmp_path / "bert"}, {"et": ESTONIAN[:3]}, bits=True)


def test_a_model_that_cannot_be_loaded_is_a_checkpoint_error(place):
    (place / "model" / "model.safetensors").write_bytes(b"")
    with pytest.raises(errors.CheckpointError):
        tg.evaluate({"base": "model"}, {"et": "held-out.txt"}, bits=True)


@pytest.mark.parametrize("metaspace", [True, False])
def test_the_space_that_sentencepiece_adds_is_no_byte_of_the_text(tmp_path, metaspace):
    tokenizer = tiny_models.tiny_llama(tmp_path / "model", document=builders.sentencepiece(metaspace=metaspace))
    texts = ["the cat", " the cat", "  the", " ", "   ", "猫 the", "\tcat", "the\nthe cat"]
    for text in texts:
        found = scoring.sequences(tokenizer, [text])
        assert sum(int(sizes.sum()) for sizes in found.n_bytes) == found.text_bytes == len(text.encode()), text


def test_without_a_start_token_a_newline_is_read_first(place):
    set_config(place / "model", bos_token_id=None, eos_token_id=None)
    line = ESTONIAN[300]
    newline = tg.load("model").encode("\n")[0]
    found = tg.evaluate({"base": "model"}, {"et": iter([line])}, bits=True).scores[0]
    expected = sum(obvious_bits("model", line, newline)[0]) / len(line.encode())
    assert found.bits_per_byte == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("chat", "separator", "starts"),
    [
        ("{{ '<|im_start|>' + message['role'] }}", "<|endoftext|>", "<|endoftext|>"),
        ("{{ bos_token + message['role'] }}", "<|endoftext|>", "<|im_start|>"),
        ("{{ '<|im_start|>' + message['role'] }}", "</s>", "<|im_start|>"),
    ],
)
def test_the_token_that_begins_a_turn_of_a_chat_is_not_the_start_of_a_text(place, chat, separator, starts):
    """As in SmolLM2-Instruct, whose config names `<|im_start|>`: English costs it 6 % more bits there."""
    path, (first, *_, last) = place / "model" / "tokenizer.json", tg.load("model").added
    path.write_text(path.read_text().replace(first.content, "<|im_start|>").replace(last.content, separator))
    (place / "model" / "tokenizer_config.json").write_text(json.dumps({"chat_template": chat}))
    tokenizer = tg.load("model")
    found = start_ids(open_checkpoint(place / "model"), tokenizer)
    assert [tokenizer.strings[i] for i in found] == [starts]


def test_chunks_join_to_the_documents_and_are_short():
    documents = ["õ" * 700, "a b " * 300, "", "\n\n" * 40, "x" * 100, "猫" * 50 + " " + "猫" * 50]
    for size in (16, 17, 100, 1500):
        parts = [list(scoring.chunks([document], size)) for document in documents]
        assert ["".join(part) for part in parts] == documents
        assert all(0 < len(chunk.encode()) <= size for part in parts for chunk in part)


def test_code_in_a_folder_is_not_executed(place):
    code = {"AutoModelForCausalLM": "code.Model", "AutoConfig": "code.Config"}
    set_config(place / "model", model_type="strange", auto_map=code)
    (place / "model" / "code.py").write_text("open('executed', 'w')")
    with pytest.raises(errors.CheckpointError, match="trust_remote_code"):
        tg.evaluate({"base": "model"}, {"et": "held-out.txt"}, bits=True)
    assert not (place / "executed").exists()


@pytest.mark.usefixtures("place")
def test_without_torch_the_error_names_the_extra():
    code = """
import sys
sys.modules["torch"] = None
import tokengraft as tg
for call in (lambda: tg.evaluate({"base": "model"}, {"et": "held-out.txt"}, bits=True),
             lambda: tg.train("model", "et.txt", out="out")):
    try:
        call()
    except tg.TokengraftError as error:
        print(type(error).__name__, error.hint)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    hint = 'OptionError install them: pip install "tokengraft[{}]"'
    assert done.stdout.splitlines() == [hint.format("torch"), hint.format("train")]


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
    parts = list(scoring.chunks([text], 12))
    assert len(parts) > 2
    assert all(part.startswith(" ") for part in parts[1:])
    found = scoring.sequences(tokenizer, parts)
    spelled = {token.id: token.bytes for token in tokenizer.tokens}
    read = [b"".join(spelled[token] for token in ids).decode() for ids in found.ids]
    assert read == [" " * prepends + parts[0], *parts[1:]]
    assert [sum(sizes) for sizes in found.n_bytes] == [len(part.encode()) for part in parts]
    for blank in (" ", "  ", " a"):
        assert sum(sum(sizes) for sizes in scoring.sequences(tokenizer, [blank]).n_bytes) == len(blank)

"""A model and texts, which many tests start from."""

import builders
import pytest
from checkpoints import changed, checkpoint, write_texts

import tokengraft as tg


@pytest.fixture
def texts(tmp_path):
    """A folder with texts in three languages."""
    return write_texts(tmp_path)


@pytest.fixture
def model(texts):
    """A model of noise beside the texts."""
    checkpoint(texts / "model")
    return texts / "model"


@pytest.fixture
def place(texts, model, monkeypatch):  # noqa: ARG001
    """The folder of the texts and the model, as the working directory."""
    monkeypatch.chdir(texts)
    return texts


@pytest.fixture
def holey(texts):
    """A tokenizer with holes among its ids."""
    return builders.write(texts / "holey", builders.specials_first())


@pytest.fixture
def load(tmp_path):
    """Loads a `tokenizer.json`, in a folder with other files."""
    return lambda document, **others: tg.load(builders.write(tmp_path / "loaded", document, **others))


@pytest.fixture(scope="session")
def counts(base):
    """Of two short sentences."""
    return tg.count(base, iter(["the cat sat on the mat", "kass istus matil"] * 3))


@pytest.fixture
def target(tmp_path):
    """The tokenizer of a model with an untied head, for drafts; texts are beside it."""
    return checkpoint(write_texts(tmp_path) / "model")


@pytest.fixture(scope="session")
def extended(base):
    """The tiny tokenizer with 40 tokens of Estonian."""
    return changed(base, add=40)


@pytest.fixture(scope="session")
def pieces(tmp_path_factory):
    """A SentencePiece type in both forms."""
    return tg.load(builders.write_pieces(tmp_path_factory.mktemp("pieces")))


@pytest.fixture(scope="session")
def llama2(tmp_path_factory):
    """A tokenizer of Llama-2's type, from its `tokenizer.model` alone."""
    path = tmp_path_factory.mktemp("llama2") / "tokenizer.model"
    path.write_bytes(builders.llama2_like())
    return tg.load(path)


@pytest.fixture(scope="session")
def plain(tmp_path_factory, base):
    """A GGUF file with the tokens of the tiny tokenizer, which no test changes."""
    ggufs = pytest.importorskip("ggufs")
    return ggufs.write_gguf(tmp_path_factory.mktemp("plain") / "a.gguf", base)

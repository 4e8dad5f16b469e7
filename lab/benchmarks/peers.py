"""Other trainers, on the same text: Hugging Face `BpeTrainer`, `rustbpe`, `sentencepiece`. All train from scratch.

    python -m lab.benchmarks.peers NAME TEXT TOKENIZER_FOLDER TOKENS
    python -m lab.benchmarks.peers resize MODEL_FOLDER OUT ROWS

None of them can continue an existing vocabulary, so the comparison is with training one of as many tokens as new ones
are learned. The paper's toolkit is not on PyPI and is not measured. `resize` is what transformers offers in place of a
transplant: load the model, resize its embeddings, save it.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path


def _lines(text: Path) -> Iterator[str]:
    with text.open(encoding="utf-8", errors="replace") as lines:
        yield from lines


def hugging_face(text: Path, folder: Path, tokens: int) -> None:
    """`BpeTrainer` with the pipeline of the tokenizer."""
    from tokenizers import Tokenizer, models, trainers
    from tokenizers.pre_tokenizers import ByteLevel

    base = Tokenizer.from_file(str(folder / "tokenizer.json"))
    fresh = Tokenizer(models.BPE())
    if base.normalizer is not None:
        fresh.normalizer = base.normalizer
    if base.pre_tokenizer is not None:
        fresh.pre_tokenizer = base.pre_tokenizer
    alphabet = ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=len(alphabet) + tokens, initial_alphabet=alphabet, show_progress=False)
    fresh.train_from_iterator(_lines(text), trainer)


def rust_bpe(text: Path, folder: Path, tokens: int) -> None:
    """`rustbpe` with the pattern of the tokenizer."""
    import rustbpe

    steps = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["pre_tokenizer"]["pretokenizers"]
    rustbpe.Tokenizer().train_from_iterator(_lines(text), 256 + tokens, pattern=steps[0]["pattern"]["Regex"])


def sentence_piece(text: Path, folder: Path, tokens: int) -> None:  # noqa: ARG001 (it has its own pipeline)
    """`sentencepiece` with its own pipeline."""
    from sentencepiece import SentencePieceTrainer

    with tempfile.TemporaryDirectory() as scratch:
        SentencePieceTrainer.train(
            input=str(text),
            model_prefix=f"{scratch}/model",
            model_type="bpe",
            vocab_size=tokens,
            byte_fallback=True,
            character_coverage=0.9995,
            max_sentence_length=1 << 30,
            num_threads=2,
            minloglevel=2,
        )


PEERS: dict[str, tuple[str, str, Callable[[Path, Path, int], None]]] = {
    "hugging_face": ("tokenizers", "Hugging Face `BpeTrainer`, from scratch", hugging_face),
    "rust_bpe": ("rustbpe", "`rustbpe`, from scratch", rust_bpe),
    "sentence_piece": ("sentencepiece", "`sentencepiece`, from scratch, its own pipeline", sentence_piece),
}
"""By name: the package, what the tables call it, and the function."""


def installed() -> list[str]:
    """The peers whose package is installed."""
    return [name for name, (package, *_) in PEERS.items() if find_spec(package)]


def resize(model: Path, out: Path, rows: int) -> None:
    """Loads a model, resizes its embeddings and saves it, with transformers."""
    import torch
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(str(model), dtype=torch.bfloat16, local_files_only=True)
    loaded.resize_token_embeddings(rows)
    loaded.save_pretrained(str(out))


if __name__ == "__main__":
    if sys.argv[1] == "resize":
        resize(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
        raise SystemExit
    PEERS[sys.argv[1]][2](Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))

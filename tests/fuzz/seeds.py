"""Seeds: small files of the shapes that real ones have, built by the builders of the tests and cut out of real ones.

A seed is a folder as a mapping from relative paths to bytes. Its mutated files are decided by the target.
"""

import gzip
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
if str(TESTS) not in sys.path:
    sys.path.insert(0, str(TESTS))

import builders  # noqa: E402
import checkpoints  # noqa: E402
import rank_files  # noqa: E402

import tokengraft as tg  # noqa: E402
from tokengraft.formats.sources import folder_files  # noqa: E402

Seed = dict[str, bytes]
DOCUMENTS = [*builders.TEXT[:4], "", " ", "a\tb", "ﬁ e\u0301 ½", "<|end|> x", "don't 1234567"]
SHARED = ("gemma3", "llama2", "llama3", "mistral_nemo", "mistral_v3", "qwen2_5", "smollm2")
ONLY_TINY = "TOKENGRAFT_FUZZ_TINY"
"""The environment variable that leaves out tokenizers of other packages, which take seconds to cut down."""
MODEL, OLD, NEW = "model/tokenizer.json", "old/", "new/"
"""Where a case has its unchanged tokenizer, its checkpoint, and the tokenizer that the checkpoint gets."""


def as_json(document: Any) -> bytes:
    """A tokenizer.json as the library writes it."""
    return json.dumps(document, ensure_ascii=False, indent=2).encode()


def cut_down(document: dict[str, Any], merges: int = 40) -> dict[str, Any]:
    """A tokenizer with its own pipeline, its characters and bytes up to 80, its first merges and added tokens."""
    model = document["model"]
    pairs = [tuple(pair.split(" ")) if isinstance(pair, str) else tuple(pair) for pair in model["merges"][:merges]]
    added = document["added_tokens"][:6]
    wanted = {part for left, right in pairs for part in (left, right, left + right)}
    wanted |= {entry["content"] for entry in added} | {model.get("unk_token") or ""}
    single = [token for token in model["vocab"] if len(token) == 1 or token.startswith("<0x")]
    wanted |= {*single[:80]}
    kept = sorted(wanted & model["vocab"].keys(), key=model["vocab"].__getitem__)
    vocab = {token: place for place, token in enumerate(kept)}
    for place, entry in enumerate(added):
        entry["id"] = vocab.get(entry["content"], len(vocab) + place)
    return document | {
        "added_tokens": added,
        "model": model | {"vocab": vocab, "merges": [list(pair) for pair in pairs]},
    }


@cache
def documents() -> dict[str, dict[str, Any]]:
    """Small tokenizers by name: those of the tests, and real ones cut down, as far as they are installed."""
    found = {name: cut_down(make()) for name, make in builders.TINY.items()}
    found["whole"] = builders.byte_level()
    if os.environ.get(ONLY_TINY):
        return found
    for name, make in builders.REAL.items():
        with suppress(ImportError, AttributeError, OSError):
            found[name] = cut_down(make())
    data = Path(os.environ.get("TOKENGRAFT_DATA", "/nonexistent"))
    for name in SHARED:
        if (data / name / "tokenizer.json").exists():
            found[f"data-{name}"] = cut_down(json.loads((data / name / "tokenizer.json").read_bytes()))
    return found


def tokenizer_json() -> Iterator[Seed]:
    """A `tokenizer.json` alone."""
    yield from ({"tokenizer.json": as_json(document)} for document in documents().values())
    for document in (builders.unigram(), builders.word_piece()):
        yield {"tokenizer.json": as_json(document)}
        del document["model"]["type"]
        yield {"tokenizer.json": as_json(document)}


def tokenizer_folder() -> Iterator[Seed]:
    """A folder with every other file that names tokens."""
    settings = json.loads(builders.settings(image_token="<|image|>", eos_token="<|end|>", pad_token=None))
    special = {
        "bos_token": "<|start|>",
        "eos_token": builders.added(0, "<|end|>"),
        "additional_special_tokens": ["<|x|>"],
    }
    for name in ("byte-level", "specials-first-with-holes", "sentencepiece"):
        document = documents()[name]
        vocab, merges = document["model"]["vocab"], document["model"]["merges"]
        lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
        files = {"tokenizer.json": as_json(document), "vocab.json": json.dumps(vocab).encode()}
        files["merges.txt"] = "\n".join(lines).encode()
        yield files | {"tokenizer_config.json": json.dumps(settings).encode()}
        old = {
            "tokenizer_config.json": json.dumps(
                {"tokenizer_class": "X", "extra_special_tokens": {"a_token": "<a>"}}
            ).encode()
        }
        old["special_tokens_map.json"] = json.dumps(special).encode()
        old["added_tokens.json"] = json.dumps({"<|more|>": len(vocab), "<|x|>": len(vocab) + 1}).encode()
        yield files | old
    word_piece = builders.word_piece()
    lines = "".join(f"{token}\n" for token in word_piece["model"]["vocab"]).encode()
    cased = {"tokenizer_config.json": json.dumps({"do_lower_case": False, "mask_token": "[MASK]"}).encode()}
    yield {"vocab.txt": lines} | cased
    yield {"tokenizer.json": as_json(word_piece), "vocab.txt": lines} | cased


def piece_model() -> Iterator[Seed]:
    """A SentencePiece model alone, and beside the `tokenizer.json` of it."""
    learned = ["▁t", "he", "▁the", "at", "▁c", "▁cat"]
    pieces = [piece for piece in builders.pieces_of(learned, "theca▁sn", runs=("▁▁",)) if piece[2] != builders.BYTE]
    small = builders.piece_model([("<unk>", 0.0, 2), *pieces[1:]], byte_fallback=False)
    extra = [*pieces, ("[INST]", 0.0, builders.USER_DEFINED)]
    yield {"tokenizer.model": small}
    yield {"tokenizer.model": builders.piece_model(extra, byte_fallback=False, split_digits=False)}
    yield {"tokenizer.model": builders.piece_model(extra, byte_fallback=False, normalizer={"add_dummy_prefix": False})}
    yield {"tokenizer.model": builders.llama2_like()}
    listed = builders.unigram()["model"]["vocab"]
    kinds = {"<unk>": builders.UNKNOWN, "<pad>": builders.CONTROL, "</s>": builders.CONTROL}
    pieces = [(token, score, kinds.get(token, builders.NORMAL)) for token, score in listed]
    unigram = builders.piece_model(pieces, model_type=1, byte_fallback=False)
    yield {"spiece.model": unigram}
    yield {"spiece.model": unigram, "tokenizer.json": as_json(builders.unigram())}
    settings = json.dumps({"tokenizer_class": "LlamaTokenizer", "added_tokens_decoder": {}}).encode()
    yield {"tokenizer.model": small, "tokenizer_config.json": settings}


def _folder(write: Callable[[Path], object]) -> Seed:
    """The files that a function writes to a folder."""
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        paths = sorted(path for path in Path(name).rglob("*") if path.is_file())
        return {path.relative_to(name).as_posix(): path.read_bytes() for path in paths}


def _small_ranks() -> dict[bytes, int]:
    tokens = [bytes([byte]) for byte in range(256)] + [
        b"th",
        b"the",
        b" the",
        b"at",
        b"cat",
        b" c",
        b" cat",
        b"\xc3\xb5",
    ]
    return {token: rank for rank, token in enumerate(tokens)}


def tiktoken_folder() -> Iterator[Seed]:
    """A tiktoken file with the file that has its pattern and special tokens."""
    for specials in ({"<s>": 300, "</s>": 280}, ["<s>", "</s>"]):
        encoding = rank_files.encoding_file(specials)
        yield {"tokenizer.model": builders.tiktoken_file(_small_ranks()), rank_files.ENCODING: encoding}
        yield {"x.tiktoken": builders.tiktoken_file(_small_ranks()), rank_files.ENCODING: encoding}
    yield _folder(rank_files.explicit)


def tekken_folder() -> Iterator[Seed]:
    """A tekken file."""
    short = builders.tekken_file([b"th", b"the", b" the"], rank_files.SPECIALS, rank_files.TEKKEN)
    yield {"tekken.json": short}
    document = json.loads(short)
    yield {"tekken.json": json.dumps(document | {"special_tokens": None}).encode()}


@cache
def base() -> tg.Tokenizer:
    """The tokenizer of counts, results and corpora."""
    return _loaded({"tokenizer.json": as_json(documents()["whole"])})


def _loaded(files: Seed) -> tg.Tokenizer:
    with tempfile.TemporaryDirectory() as name:
        write_files(Path(name), files)
        return tg.load(name)


def write_files(folder: Path, files: Seed) -> None:
    """Writes the files of a seed."""
    for name, raw in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)


@cache
def counts() -> tg.PretokenCounts:
    """Counts of a short text."""
    return tg.count(base(), iter([*builders.TEXT[:4], *checkpoints.ESTONIAN[:30]]))


@cache
def extension() -> tg.Extension:
    """An extension of the base by nine tokens, three of them from a word list."""
    return tg.extend(base(), counts(), 9, include=["kass", "põder"])


def _saved(value: Any, name: str) -> Seed:
    return _folder(lambda folder: value.save(folder / name)) | {MODEL: as_json(documents()["whole"])}


def counts_file() -> Iterator[Seed]:
    """A Parquet file of counts."""
    yield _saved(counts(), "counts.parquet")
    yield _saved(tg.count(base(), iter(["a <|end|>"]), count_options=tg.CountOptions(min_count=1)), "counts.parquet")


def partial_counts() -> Iterator[Seed]:
    """Partial counts as a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tokengraft.distributed import partial_tables

    stream = io.BytesIO()
    pq.write_table(pa.concat_tables(partial_tables([counts().table], counts())), stream)
    yield {"partial.parquet": stream.getvalue(), MODEL: as_json(documents()["whole"])}


def extension_file() -> Iterator[Seed]:
    """An extension as JSON."""
    yield _saved(extension(), "extension.json")


def order_file() -> Iterator[Seed]:
    """A prune order as JSON."""
    yield _saved(tg.prune_order(base(), counts())[:12], "order.json")


def plan_file() -> Iterator[Seed]:
    """A plan as JSON."""
    yield _saved(tg.plan(base(), extension().apply(base())), "plan.json")


def record_file() -> Iterator[Seed]:
    """The request of an adaptation."""
    request = {
        "step": "adapt",
        "command": "tokengraft adapt model",
        "versions": {"tokengraft": "1"},
        "source": "model",
        "targets": {"et": {"corpus": ["et.txt"], "weight": "1"}, "lv": {"corpus": ["a.txt", "b.txt"], "weight": "1/3"}},
        "keep": {"en": ["en.txt"]},
        "sizes": {"swap": 20, "remove": 5},
        "options": {
            "read_options": {"documents": "lines", "rules": {"split_digits": False}, "shard": [0, 2]},
            "count_options": {"min_count": 2},
            "limits": {"max_token_bytes": 8},
            "include": {"words": ["kass"], "exact": True},
            "hold_out": {"one_in": 10},
            "preserve": ["en.txt"],
            "test": {"et": ["t.txt"]},
            "init": "fvt",
            "seed": 3,
        },
        "inputs": [{"role": "target", "name": "et", "sha256": "0" * 64, "bytes": 3}],
    }
    yield {"adaptation.json": json.dumps({"request": request}).encode()}


def word_list() -> Iterator[Seed]:
    """A word list, and special tokens as JSON."""
    words = "\n".join(["kass", "põder", "the cat", " x", "COX-2", "猫", "a"]).encode()
    model = {MODEL: as_json(documents()["byte-level"])}
    yield {"words.txt": words} | model
    yield {"words.txt": words} | {MODEL: as_json(documents()["sentencepiece"])}


def special_tokens() -> Iterator[Seed]:
    """Special tokens for a tiktoken file, as JSON."""
    for tokens in ({"<s>": 500, "</s>": 501}, ["<s>", "</s>"]):
        yield {"special.json": json.dumps(tokens).encode(), "x/x.tiktoken": builders.tiktoken_file(_small_ranks())}


def corpus() -> Iterator[Seed]:
    """The same documents in every format."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from fuzz.file_mutations import zstd

    text = "\n".join(DOCUMENTS).encode()
    lines = b"".join(json.dumps({"text": one, "id": place}).encode() + b"\n" for place, one in enumerate(DOCUMENTS))
    stream = io.BytesIO()
    pq.write_table(pa.table({"id": range(len(DOCUMENTS)), "text": DOCUMENTS}), stream, row_group_size=4)
    formats = {"a.txt": text, "a.jsonl": lines, "a.parquet": stream.getvalue()}
    formats |= {"a.txt.gz": gzip.compress(text, mtime=0), "a.jsonl.gz": gzip.compress(lines, mtime=0)}
    formats |= {"a.txt.zst": zstd(text), "a.jsonl.zst": zstd(lines)}
    for name, raw in formats.items():
        yield {name: raw, MODEL: as_json(documents()["byte-level"])}
    yield {"a.jsonl": lines, MODEL: as_json(documents()["sentencepiece"])}


def _new(tokenizer: tg.Tokenizer) -> Seed:
    """The files of the tokenizer that a checkpoint gets."""
    return {NEW + name: raw for name, raw in folder_files(tokenizer).items()}


def checkpoint() -> Iterator[Seed]:
    """A checkpoint, and the tokenizer that it gets."""
    tied = {"tie_word_embeddings": True}
    for options in ({}, {"shards": 2}, {"head": False, "config": tied, "dtype": "F32"}, {"bias": True, "dtype": "F16"}):
        files = _folder(lambda folder, options=options: checkpoints.checkpoint(folder, **options))
        tokenizer = extension().apply(base())
        pruned = tg.prune_order(tokenizer, method="last-id-leaf")[:20].apply(tokenizer)
        yield {OLD + name: raw for name, raw in files.items()} | _new(pruned)


def gguf_file() -> Iterator[Seed]:
    """A GGUF file, the tokenizer that it was converted with, and one that it gets."""
    import ggufs

    for options in ({}, {"head": "F16", "bias": True}, {"table": "Q8_0"}):
        files = _folder(lambda folder, options=options: ggufs.write_gguf(folder / "model.gguf", base(), **options))
        yield files | _new(extension().apply(base())) | {MODEL: as_json(documents()["whole"])}


def sharded_checkpoint() -> Iterator[Seed]:
    """A checkpoint with an index."""
    return (seed for seed in checkpoint() if any(name.endswith(".index.json") for name in seed))


def cache_files() -> Iterator[Seed]:
    """Counts and held out documents, as `adapt` keeps them."""
    held_out = json.dumps({"documents": 2, "texts": ["a document", "õ"]}).encode()
    yield {"held_out.json": held_out} | _folder(lambda folder: counts().save(folder / "counts.parquet"))

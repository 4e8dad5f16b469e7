"""`verify_folder`: loads a written tokenizer with every installed library and compares the ids of sample texts."""

import random
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from math import isclose
from pathlib import Path
from typing import Literal, NamedTuple

from tokengraft import _core
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import InvalidTokenizerError
from tokengraft.formats.agreement import require_agreement, require_same_tokens
from tokengraft.formats.huggingface import write_tokenizer_json
from tokengraft.formats.sources import save
from tokengraft.formats.vocabulary_files import read_piece_model, split_pattern
from tokengraft.output.partial import temporary_folder
from tokengraft.tokenizer.added import FLAGS
from tokengraft.tokenizer.kind import SPACE, Kind, byte_token, token_bytes
from tokengraft.tokenizer.piece_model import USER_DEFINED, PieceModel
from tokengraft.tokenizer.rank_file import RankFile, tiktoken_ranks
from tokengraft.tokenizer.rewrite import TOKENIZER_JSON
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify.transformers_loader import (
    CannotLoadError,
    announce,
    load_with_transformers,
    summary,
    transformers_installed,
    transformers_started,
)

Encode = Callable[[list[str]], list[list[int]]]
_LIBRARIES = {"tiktoken": ("tiktoken", "tiktoken"), "tekken": ("mistral-common", "mistral_common")}


def rank_library(tokenizer: Tokenizer) -> str | None:
    """The library of the rank file of a tokenizer; None if there is no such file, or the library is not installed."""
    if tokenizer.ranks is None:
        return None
    name, module = _LIBRARIES[tokenizer.ranks.format]
    return name if find_spec(module) else None


def tiktoken_encoder(ranks: dict[bytes, int], pattern: str, specials: dict[str, int]) -> Encode:
    """How tiktoken encodes texts."""
    import tiktoken

    # Not by `load_tiktoken_bpe`, which keeps a copy of every file it reads, by its path.
    encoding = tiktoken.Encoding("checked", pat_str=pattern, mergeable_ranks=ranks, special_tokens=specials)
    return lambda texts: [encoding.encode(text, allowed_special="all") for text in texts]


def tekken_encoder(path: Path) -> Encode:
    """How mistral-common encodes texts by a tekken file. It finds no special tokens in text."""
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    tekkenizer = Tekkenizer.from_file(path)
    return lambda texts: [tekkenizer.encode(text, bos=False, eos=False) for text in texts]


def piece_encoder(raw: bytes) -> Encode:
    """How sentencepiece encodes texts by a model."""
    from sentencepiece import SentencePieceProcessor

    return SentencePieceProcessor(model_proto=raw).encode


SAMPLES = 2000
LONGEST_SAMPLE = 256
"""The maximum bytes of a pretoken, or characters of a token, in a sample. A pretoken may be a whole document."""
PIECE_SAMPLES = 20_000
"""Samples if there is a SentencePiece model, which must agree with `tokenizer.json`."""


@dataclass(frozen=True)
class Verification:
    """Whether other libraries load a written tokenizer and give the same ids."""

    loaders: tuple[str, ...]
    """The libraries that gave the same ids for every sample text."""
    notes: tuple[str, ...]
    """Every difference, and every library that cannot load the files."""
    failures: tuple[str, ...] = ()
    """The notes that are failures: differences that the base does not have. Without a base, every note that a library
    gives different ids."""

    def raise_for_failures(self) -> None:
        """Raises an `InvalidTokenizerError` that lists the failures, if there are any."""
        if self.failures:
            raise InvalidTokenizerError(
                "other libraries do not read the written tokenizer correctly:\n  " + "\n  ".join(self.failures),
                hint="please report this, with the name of the model",
            )


class _Problem(NamedTuple):
    loader: str
    kind: Literal["not loaded", "refused", "other ids", "added tokens", "shared id", "unlisted", "unknown characters"]
    text: str


_BYTES = frozenset(map(byte_token, range(256)))
_DAMAGE = ("refused", "other ids", "added tokens", "shared id")
"""Problems that are failures if there is no base to compare with."""


@contextmanager
def loading(folder: Path, tokenizer: Tokenizer) -> Iterator[Future[_core.Upstream]]:
    """Loads a folder that a tokenizer was written to with other libraries, while the block does other work.

    `tokenizers` takes half a second for a large vocabulary. Yields the tokenizer as it reads `tokenizer.json` alone.
    """
    if tokenizer.main == TOKENIZER_JSON:
        announce(folder)
        raw = (folder / TOKENIZER_JSON).read_bytes()
    else:
        raw = write_tokenizer_json(tokenizer)
    with ThreadPoolExecutor(1) as thread:
        upstream = thread.submit(_core.Upstream, raw)
        del raw  # 30 MB that the block does not need
        yield upstream


def verify_folder(
    folder: Path,
    tokenizer: Tokenizer,
    texts: list[str] | None = None,
    *,
    base: Tokenizer | None = None,
    upstream: Future[_core.Upstream] | None = None,
) -> Verification:
    """The verification of a folder that a tokenizer was written to.

    Compares ids on text of random tokens, which reaches merges that ordinary text does not, on text with every added
    token, and on further ``texts``. A difference that the files of the ``base`` have too is a note, not a failure.

    Raises:
        InvalidTokenizerError: The `tokenizers` library gives different ids, the SentencePiece model merges differently
            from `tokenizer.json`, or an added token of the base is no longer found in text.
    """
    installed = ["tokenizers"]
    before, different_ids = set[tuple[str, str]](), ("transformers", "other ids")
    with transformers_started(), nullcontext(upstream) if upstream else loading(folder, tokenizer) as loaded:
        problems = [*_problems(folder, tokenizer, texts or [], base, loaded)]
        if base is not None and problems:
            with temporary_folder() as parent:
                written = save(base, parent / "base")
                with loading(written, base) as loaded:
                    before = {problem[:2] for problem in _problems(written, base, texts or [], None, loaded)}
                if different_ids in before and any(problem[:2] == different_ids for problem in problems):
                    problems += _lost_in_transformers(folder, written, tokenizer, base)
        installed += ["transformers"] if tokenizer.main == TOKENIZER_JSON and transformers_installed() else []
    installed += ["sentencepiece"] if tokenizer.piece_file and find_spec("sentencepiece") else []
    installed += filter(None, [rank_library(tokenizer)])
    fails = [p.kind in _DAMAGE if base is None else p[:2] not in before for p in problems]
    wrong = {problem.loader for problem in problems}
    return Verification(
        loaders=tuple(name for name in installed if name not in wrong),
        notes=tuple(problem.text for problem in problems),
        failures=tuple(problem.text for problem, failed in zip(problems, fails, strict=True) if failed),
    )


def added_texts(tokenizer: Tokenizer) -> list[str]:
    """Texts with every added token: alone, between words, inside a word, and surrounded by white space."""
    contents = [token.content for token in tokenizer.added]
    return [text for content in contents for text in (content, f"the {content} cat{content}sat  {content}\n")]


def _require_added_found(tokenizer: Tokenizer, base: Tokenizer) -> None:
    """Refuses a tokenizer that does not find the added tokens of its base in text, each with the right id."""
    before = {token.id: token.content for token in base.added if token.content in tokenizer.ids}
    after = {tokenizer.ids[content]: content for content in before.values()}
    for text in added_texts(base):
        was = [before[piece] for piece in base.pretokenize(text) if isinstance(piece, int) and piece in before]
        now = [after[piece] for piece in tokenizer.pretokenize(text) if isinstance(piece, int) and piece in after]
        if was != now:
            raise InvalidTokenizerError(
                f"in {text!r} the base finds the added tokens {was}, the new tokenizer {now}",
                hint="compare `added_tokens` in tokenizer.json and `added_tokens_decoder` in tokenizer_config.json",
            )


def _problems(
    folder: Path, tokenizer: Tokenizer, texts: list[str], base: Tokenizer | None, upstream: Future[_core.Upstream]
) -> Iterator[_Problem]:
    """Differences between the tokenizer and what other libraries load from its folder."""
    if base is not None:
        _require_added_found(tokenizer, base)
    samples = [*texts, *sample_texts(tokenizer), *added_texts(tokenizer)]
    expected = tokenizer.encode_batch(samples)
    # The library does not find added tokens that tokenizer.json lacks, or lists with other flags.
    listed = {entry["content"]: entry for entry in tokenizer.document.get("added_tokens") or ()}
    unlisted = [
        token.content
        for token in tokenizer.added
        if token.content not in listed or any(listed[token.content][flag] != getattr(token, flag) for flag in FLAGS)
    ]
    ours, known = dict(zip(samples, expected, strict=True)), _without(samples, unlisted)
    for text, ids in zip(known, upstream.result().encode_batch(known), strict=True):
        if ids != ours[text]:
            raise InvalidTokenizerError(f"`tokenizers` gives different ids for {text!r}", hint="please report this")
    if unlisted:
        yield _Problem(
            "tokenizers",
            "unlisted",
            f"tokenizers reads {tokenizer.main} alone, which lacks {len(unlisted):,} added tokens that the other files "
            f"name, or their flags, such as {unlisted[0]!r}",
        )
    if tokenizer.main == TOKENIZER_JSON:
        yield from _transformers_problems(folder, tokenizer, samples, expected)
    if tokenizer.piece_file:
        raw = (folder / tokenizer.piece_file).read_bytes()
        if tokenizer.algorithm == "Unigram":
            require_agreement(tokenizer, str(folder))
        else:
            _require_same_merging(raw, tokenizer, samples)
        yield from _sentencepiece_problems(raw, tokenizer, samples)
    if tokenizer.rank_file:
        yield from _rank_problems(folder, tokenizer, samples)


def _without(texts: Iterable[str], contents: Iterable[str]) -> list[str]:
    """The texts that have none of the contents in them.

    Looks up parts of a text by their first character and length: there may be ten thousand added tokens, and as many
    texts.

    >>> _without(["the cat", "the<x>", "a <yy> b"], ["<x>", "<yy>"])
    ['the cat']
    """
    by_start: dict[str, dict[int, set[str]]] = {}
    for content in contents:
        by_start.setdefault(content[:1], {}).setdefault(len(content), set()).add(content)

    def has_one(text: str) -> bool:
        starts = ((at, by_start[character]) for at, character in enumerate(text) if character in by_start)
        return any(text[at : at + n] in some for at, by_length in starts for n, some in by_length.items())

    return [text for text in texts if not has_one(text)]


def differing(texts: Iterable[str], first: Iterable[object], second: Iterable[object]) -> list[str]:
    """The texts that are encoded in two ways."""
    return [text for text, one, other in zip(texts, first, second, strict=True) if one != other]


def sample_texts(tokenizer: Tokenizer) -> list[str]:
    """Sample texts of random tokens; the same for the same vocabulary."""
    generator = random.Random(0)
    model = tokenizer.piece_model
    strings = [string for string in (model.normal if model else tokenizer.vocab) if len(string) <= LONGEST_SAMPLE]
    if not strings:
        return []
    chosen = (generator.choices(strings, k=8) for _ in range(PIECE_SAMPLES if model else SAMPLES))
    joined = (b"".join(token_bytes(string, tokenizer.kind) for string in some) for some in chosen)
    return [text.decode(errors="replace") for text in joined]


def sample_pretokens(counts: PretokenCounts, kind: Kind) -> list[str]:
    """Sample texts of random frequent pretokens of a corpus; the same for the same counts.

    Of a long pretoken only the beginning is used, so that all samples together take a few megabytes.
    """
    generator = random.Random(0)
    frequent = [pretoken for pretoken, _ in counts.table.top(min(SAMPLES, len(counts)), LONGEST_SAMPLE)]
    chosen = (b"".join(generator.choices(frequent, k=8)).decode(errors="replace") for _ in range(SAMPLES))
    return [text.replace(SPACE, " ") if kind == "sentencepiece" else text for text in chosen] if frequent else []


def _require_same_merging(raw: bytes, tokenizer: Tokenizer, samples: list[str]) -> None:
    """Refuses a SentencePiece model that merges differently from the tokenizer.

    Pieces that the user defined, such as Gemma's runs of spaces, are found before anything is merged. Text with them is
    left to `_sentencepiece_problems`, and the text between them is compared.
    """
    name = tokenizer.piece_file or ""
    model = read_piece_model({name: raw}, name, beside=tokenizer)
    pieces = model.piece_model.pieces if model.piece_model else ()
    found_before = {token.content for token in tokenizer.added if SPACE not in token.content}
    defined = sorted({piece.string for piece in pieces if piece.type == USER_DEFINED} - found_before, key=len)
    cut = re.compile("|".join(map(re.escape, reversed(defined))) or "(?!)")
    pretokens = (one for text in samples for one in tokenizer.pretokenize(text) if isinstance(one, str))
    for part in (part for pretoken in pretokens for part in cut.split(pretoken) if part):
        if model.core_model.encode(part) != tokenizer.core_model.encode(part):
            raise InvalidTokenizerError(
                f"`{name}` splits {part!r} differently from `{TOKENIZER_JSON}`",
                hint="check that the two agreed before: pass the path of one of them alone, and please report this",
            )


def _sentencepiece_problems(raw: bytes, tokenizer: Tokenizer, samples: list[str]) -> Iterator[_Problem]:
    """Differences from the ids of `sentencepiece`.

    Text on which the two differ by design is left out: the text of added tokens, and spaces at the ends.
    """
    if not find_spec("sentencepiece"):
        return
    texts = _without([text.strip(" ") for text in samples], [token.content for token in tokenizer.added])
    try:
        upstream = piece_encoder(raw)(texts)
    except Exception as error:  # its own errors are RuntimeError and whatever its parser raises
        yield _Problem("sentencepiece", "refused", f"sentencepiece refuses the model: {summary(error)}")
        return

    def alike(*paths: list[str]) -> bool:
        """Whether two Unigram paths have the same score, as far as 32 bits say: sentencepiece adds in 32 bits."""
        one, other = (sum(tokenizer.scores.get(token, 0.0) for token in path) for path in paths)
        return tokenizer.algorithm == "Unigram" and isclose(one, other, rel_tol=1e-5)

    # By string: the ids of `tokenizer.json` may have an offset.
    model, strings = PieceModel.read(raw, ""), tokenizer.strings
    ours = ([strings[i] for i in ids] for ids in tokenizer.encode_batch(texts))
    theirs = ([model.pieces[i].string for i in ids] for ids in upstream)
    if model.byte_fallback != tokenizer.byte_fallback:
        unknown = tokenizer.unknown or ""
        files = [str(tokenizer.piece_file), TOKENIZER_JSON][:: 1 if model.byte_fallback else -1]
        yield _Problem(
            "sentencepiece",
            "unknown characters",
            f"unknown characters are bytes by `{files[0]}` and {unknown!r} by `{files[1]}`",
        )
        ours, theirs = ((_bytes_as(unknown, path) for path in paths) for paths in (ours, theirs))
    different = [
        text for text, *paths in zip(texts, ours, theirs, strict=True) if paths[0] != paths[1] and not alike(*paths)
    ]
    if different:
        yield _Problem(
            "sentencepiece",
            "other ids",
            f"sentencepiece encodes {len(different):,} of {len(texts):,} sample texts differently from "
            f"{TOKENIZER_JSON}, such as {different[0]!r}: the two normalize differently",
        )


def _bytes_as(unknown: str, path: list[str]) -> list[str]:
    """Tokens with every run of bytes and unknown tokens as one unknown token.

    >>> _bytes_as("<unk>", ["a", "<0xD0>", "<0xB6>", "<unk>", "b"])
    ['a', '<unk>', 'b']
    """
    names = [unknown if token in _BYTES else token for token in path]
    return [name for name, before in zip(names, ["", *names], strict=False) if name != unknown or before != unknown]


def _rank_problems(folder: Path, tokenizer: Tokenizer, samples: list[str]) -> Iterator[_Problem]:
    """Differences from the ids of tiktoken or mistral-common. Text of special tokens is compared by tiktoken alone."""
    name, library = tokenizer.rank_file or "", rank_library(tokenizer)
    path, contents = folder / name, [token.content for token in tokenizer.added]
    require_same_tokens(tokenizer, RankFile.read(path.read_bytes(), name), str(folder))
    if library is None:
        return
    texts = [*_without(samples, contents), *(contents if library == "tiktoken" else ())]
    try:
        if library == "tiktoken":
            specials = {token.content: token.id for token in tokenizer.added}
            encode = tiktoken_encoder(tiktoken_ranks(path.read_bytes(), name), split_pattern(tokenizer) or "", specials)
        else:
            encode = tekken_encoder(path)
        different = differing(texts, tokenizer.encode_batch(texts), encode(texts))
    except Exception as error:  # tiktoken raises ValueError and panics, mistral-common AssertionError and others
        yield _Problem(library, "refused", f"{library} refuses `{name}`: {summary(error)}")
        return
    if different:
        share = f"{len(different):,} of {len(texts):,} sample texts"
        yield _Problem(library, "other ids", f"{library} encodes {share} differently, such as {different[0]!r}")


def _transformers_problems(
    folder: Path, tokenizer: Tokenizer, samples: list[str], expected: list[list[int]]
) -> Iterator[_Problem]:
    """Differences from the ids of `AutoTokenizer`."""
    if not transformers_installed():
        return
    try:
        loaded = load_with_transformers(folder, samples)
    except CannotLoadError as error:
        yield _Problem("transformers", "not loaded", f"transformers cannot load the folder: {error}")
        return
    different = differing(samples, expected, loaded.ids)
    if different:
        yield _Problem(
            "transformers",
            "other ids",
            f"transformers reads the folder differently from {TOKENIZER_JSON}: {len(different):,} of {len(samples):,} "
            f"sample texts, such as {different[0]!r}; perhaps its class for this model rebuilds it. Try "
            "`PreTrainedTokenizerFast.from_pretrained`, or that as `tokenizer_class` in tokenizer_config.json",
        )
    taken = tokenizer.strings
    for content, token_id in loaded.added.items():
        if taken.get(token_id, content) != content:
            text = f"transformers adds the token {content!r} with the id {token_id}, which {taken[token_id]!r} has"
            yield _Problem("transformers", "shared id", text)


def _lost_in_transformers(folder: Path, written: Path, tokenizer: Tokenizer, base: Tokenizer) -> Iterator[_Problem]:
    """Added tokens of the base that transformers finds in text with the files of the base, and not with the folder."""
    contents = {token.content for token in base.added if token.content in tokenizer.ids}
    texts = added_texts(base)
    loaded = [load_with_transformers(path, texts, tokens=True) for path in (written, folder)]
    was, now = ([[token for token in tokens if token in contents] for tokens in one.tokens] for one in loaded)
    if different := differing(texts, was, now):
        text = f"transformers finds other added tokens in {different[0]!r} than with the files of the base"
        yield _Problem("transformers", "added tokens", text)

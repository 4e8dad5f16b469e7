"""tiktoken, mistral-common and sentencepiece: each loads its own file, and the ids of sample texts are compared."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress

from tokengraft.errors import OptionError, TokengraftError, UnsupportedTokenizerError
from tokengraft.formats.convert import FileFormat, convert
from tokengraft.formats.ranks import split_pattern
from tokengraft.tokenizer.rank_file import tiktoken_ranks
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify.finding import EVIDENCE, Finding, Outcome, finding, named_token, not_checked
from tokengraft.verify.loaders import piece_encoder, sample_texts, tekken_encoder, tiktoken_encoder
from tokengraft.verify.serving.model_folder import ModelFolder
from tokengraft.verify.serving.stacks import facts
from tokengraft.verify.transformers_loader import summary

TEKKEN = "tekken.json"
_CONVERT = "write one: `tokengraft convert FOLDER --to {}`"
KEEP = "put the `.model` of the base into its folder before you change the tokenizer: both are then kept equal"


def tiktoken(folder: ModelFolder) -> Iterator[Finding]:
    """What tiktoken makes of the file of ranks. It splits by one pattern, and does not normalize."""
    tokenizer, fix = folder.tokenizer, _CONVERT.format("tiktoken")
    file = _rank_file(tokenizer)
    if file is None:
        detail = "there is no `.tiktoken` file and no `tokenizer.model` with ranks"
        yield Finding("rank file", "fail", detail, (), _conversion_fix(tokenizer, "tiktoken"))
        return
    try:
        ranks = tiktoken_ranks(tokenizer.files[file], file)
    except TokengraftError as error:  # tiktoken would panic
        yield Finding("rank file", "fail", error.message, (), fix)
        return
    yield Finding("rank file", "pass", f"`{file}` has {len(ranks):,} ranks")
    yield _after_ranks(tokenizer, ranks)
    pattern = split_pattern(tokenizer)
    if pattern is None:
        yield not_checked("encoding", "the pipeline of tokenizer.json is not one split pattern, as tiktoken needs")
    else:
        yield _compared(tokenizer, "tiktoken", lambda texts: [*map(tiktoken_encoder(ranks, pattern, {}), texts)], fix)


def _rank_file(tokenizer: Tokenizer) -> str | None:
    """The name of the file of ranks, if there is one, damaged or not. Llama-3 calls it `tokenizer.model`."""
    if tokenizer.ranks and tokenizer.ranks.format == "tiktoken":
        return tokenizer.rank_file
    names = (name for name in tokenizer.files if name.endswith((".tiktoken", "tiktoken.model")))
    other = "tokenizer.model" if tokenizer.piece_file is None and "tokenizer.model" in tokenizer.files else None
    return next(names, other)


def _after_ranks(tokenizer: Tokenizer, ranks: dict[bytes, int]) -> Finding:
    """Whether added tokens have ids of their own, and those after the ranks, where Meta's loader puts them."""
    fact, ids = facts("tiktoken")["special tokens"], [token.id for token in tokenizer.added]
    taken = {*ranks.values()}
    wrong = [named_token(token.content, token.id) for token in tokenizer.added if token.id in taken]
    if not wrong and ids != [*range(len(ranks), len(ranks) + len(ids))]:
        return fact.finding("other ids", ranks=len(ranks))
    return fact.of(wrong, n=len(ids))


def mistral_common(folder: ModelFolder) -> Iterator[Finding]:
    """What mistral-common makes of `tekken.json`: the id of a token is its rank plus the number of special tokens."""
    tokenizer, fix = folder.tokenizer, _CONVERT.format("tekken")
    raw, older = tokenizer.files.get(TEKKEN), folder.has("tokenizer.model.v*")
    if raw is None and older:
        yield Finding("rank file", "note", f"`{older[0]}` is read; see --for sentencepiece")
        return
    if raw is None:
        yield Finding("rank file", "fail", f"there is no `{TEKKEN}`", (), _conversion_fix(tokenizer, "tekken"))
        return
    try:
        config = json.loads(raw)["config"]
        size, specials = int(config["default_vocab_size"]), int(config["default_num_special_tokens"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        yield Finding("rank file", "fail", f"`{TEKKEN}` cannot be read: {summary(error)}", (), fix)
        return
    yield Finding("rank file", "pass", f"`{TEKKEN}` has {size:,} ids, {specials:,} of them for special tokens")
    yield finding(
        "special tokens",
        [named_token(token.content, token.id) for token in tokenizer.added if token.id >= specials],
        f"all ids are below {specials:,}",
        f"{{n}} have ids of {specials:,} or more, which mistral-common gives to ranks",
        "keep the special tokens of the base on their ids",
    )
    yield _rows(folder, size, fix)
    path = folder.path / TEKKEN
    yield _compared(tokenizer, "mistral-common", lambda texts: [*map(tekken_encoder(path), texts)], fix)


def _rows(folder: ModelFolder, size: int, fix: str) -> Finding:
    """Whether `tekken.json` has as many ids as the model has rows."""
    if folder.rows is None:
        return not_checked("embedding rows", "this is a tokenizer without a model")
    if size == folder.rows:
        return Finding("embedding rows", "pass", f"{size:,}, as `default_vocab_size` says")
    detail = f"`default_vocab_size` is {size:,}, and the model has {folder.rows:,} rows"
    outcome: Outcome = "fail" if size > folder.rows else "note"
    return Finding("embedding rows", outcome, detail, (), fix if size > folder.rows else "")


def sentencepiece(folder: ModelFolder) -> Iterator[Finding]:
    """What sentencepiece makes of the `.model`. It merges by the score of the product, and knows no other file."""
    tokenizer, file = folder.tokenizer, folder.tokenizer.piece_file
    if file is None:
        more = f"; {KEEP}" if tokenizer.kind == "sentencepiece" else ""
        fix = f"{_conversion_fix(tokenizer, 'sentencepiece')}{more}"
        yield Finding("model", "fail", "there is no SentencePiece model", (), fix)
        return
    yield Finding("model", "pass", f"`{file}`")
    yield _pieces(tokenizer)

    def encode(texts: list[str]) -> list[list[int]]:
        return piece_encoder(tokenizer.files[file])(texts)

    fix = "the two normalize differently; the base has the same difference"
    yield _compared(tokenizer, "sentencepiece", encode, fix, refused=KEEP)


def _pieces(tokenizer: Tokenizer) -> Finding:
    """Whether the model has all tokens, with the same ids."""
    model = tokenizer.piece_model
    places = {piece.string: place for place, piece in enumerate(model.pieces)} if model else {}
    added = {token.content for token in tokenizer.added}
    differing = {string: i for string, i in tokenizer.ids.items() if places.get(string) != i}
    learned = [named_token(string, i) for string, i in differing.items() if string not in added]
    if differing and not learned:
        shown = tuple(named_token(string, i) for string, i in [*differing.items()][:EVIDENCE])
        fix = "sentencepiece splits their text; use transformers or `tokenizers` where text has them"
        return Finding("pieces", "note", f"{len(differing):,} added tokens have no piece", shown, fix)
    fine = f"{len(tokenizer.ids):,}, with the ids of the tokenizer"
    return finding("pieces", learned, fine, "{n} tokens have no piece", KEEP)


def _conversion_fix(tokenizer: Tokenizer, to: FileFormat) -> str:
    """The command that writes the tokenizer in a format; if none does, why."""
    try:
        convert(tokenizer, to)
        return _CONVERT.format(to)
    except UnsupportedTokenizerError as error:
        reason = error.message
    with suppress(OptionError, UnsupportedTokenizerError):
        convert(tokenizer, to, renumber=True)
        return f"{_CONVERT.format(f'{to} --renumber')}, which changes ids, then `tokengraft transplant`"
    return f"use another stack: {reason}"


def _compared(
    tokenizer: Tokenizer, library: str, encode: Callable[[list[str]], list[list[int]]], fix: str, *, refused: str = ""
) -> Finding:
    """Whether a library gives the ids of the tokenizer for sample texts. Texts with added tokens are left out."""
    name = "encoding"
    texts = sample_texts(tokenizer)
    if library == "sentencepiece":  # the two differ by design in spaces at the ends
        texts = [text.strip(" ") for text in texts]
    try:
        theirs = encode(texts)
    except ImportError:
        return not_checked(name, f"{library} is not installed: `pip install {library}`")
    except Exception as error:  # whatever a parser of another library raises
        return Finding(name, "fail", f"{library} refuses the file: {summary(error)}", (), refused or fix)
    added = {token.id for token in tokenizer.added}
    ours = tokenizer.encode_batch(texts)
    pairs = [(text, a, b) for text, a, b in zip(texts, ours, theirs, strict=True) if not added.intersection(a)]
    wrong = [f"{text!r}" for text, a, b in pairs if a != b]
    fine = f"the same ids for {len(pairs):,} sample texts"
    return finding(name, wrong, fine, f"other ids for {{n}} of {len(pairs):,} sample texts", fix)

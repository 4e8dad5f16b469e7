"""`check_serving`: whether a serving stack can use a folder.

Libraries are asked: they load their own files, and the ids of sample texts are compared. vLLM and the converters of
llama.cpp and Ollama are not run: `serving_facts.json` has what was read in their sources.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from hashlib import sha256
from types import NoneType
from typing import Any, Literal

from tokengraft.checkpoint.ids import CONFIG
from tokengraft.errors import OptionError, TokengraftError, UnsupportedTokenizerError, require_type
from tokengraft.formats.convert import FileFormat, convert
from tokengraft.formats.vocabulary_files import split_pattern
from tokengraft.output.json_file import read_settings
from tokengraft.progress import stage
from tokengraft.tokenizer.added import ADDED, ADDITIONAL, LISTING, SETTINGS, SPECIAL_MAP
from tokengraft.tokenizer.llama_cpp import converter_check, converter_table, skipping_warning
from tokengraft.tokenizer.rank_file import tiktoken_ranks
from tokengraft.tokenizer.rewrite import TOKENIZER_JSON
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify.check import holes
from tokengraft.verify.finding import Check, Finding, facts, finding, named_token, not_checked, note, require_stack
from tokengraft.verify.joined_marks import cut_words
from tokengraft.verify.loaders import piece_encoder, tekken_encoder, tiktoken_encoder
from tokengraft.verify.model_folder import ModelFolder, model_findings, open_model_folder, same_ids
from tokengraft.verify.transformers_loader import summary, transformers_started

Reader = Literal["sentencepiece", "scores lost", "gpt2", "tekken", "none"]
MODEL, TEKKEN = "tokenizer.model", "tekken.json"
_WITH_TRANSFORMERS = {"transformers", "vllm", "llama.cpp"}
"""Stacks that load tokenizers with transformers."""
_CONVERT = "write one: `tokengraft convert FOLDER --to {}`"
KEEP = "put the `.model` of the base into its folder before you change the tokenizer: both are then kept equal"


@stage("checking serving stacks")
def check_serving(source: str | os.PathLike[str] | Tokenizer, *stacks: str, base: Tokenizer | None = None) -> Check:
    """Whether serving stacks can use a folder, with what to do where they cannot.

    A stack that is installed is asked: the folder is loaded, and the ids of sample texts are compared. Of the others,
    it is checked what they read, according to their source. A finding says what could not be checked.

    Args:
        source: A model folder; or a tokenizer, its file or its hub name, to check without a model.
        stacks: `transformers`, `vllm`, `llama.cpp`, `ollama`, `tiktoken`, `mistral-common` or `sentencepiece`.
        base: The tokenizer that this one was made from. llama.cpp must take both for the same type.

    Raises:
        OptionError: There is no such stack, or none was given.
        TokengraftError: The tokenizer or a config cannot be read.

    Examples:
        >>> result = tg.check_serving("model", "ollama")
        >>> [(finding.name, finding.fix) for finding in result.failures]
        []
    """
    require_type("base", base, Tokenizer, NoneType)
    if not stacks:
        raise OptionError("no serving stack was given", hint=f"choose one of {', '.join(_FINDINGS)}")
    for stack in stacks:
        require_stack(stack)
    loading = transformers_started() if _WITH_TRANSFORMERS.intersection(stacks) else nullcontext()
    with loading, open_model_folder(source) as opened:
        folder = replace(opened, base=base)
        found = ((stack, finding) for stack in dict.fromkeys(stacks) for finding in _FINDINGS[stack](folder))
        return Check(tuple(replace(finding, name=f"{stack}: {finding.name}") for stack, finding in found))


def transformers(folder: ModelFolder) -> Iterator[Finding]:
    """Whether transformers loads the folder, and whether the folder needs its own code to be executed."""
    yield folder.auto_tokenizer
    files = [name for name, part in ((CONFIG, folder.config), (SETTINGS, folder.settings)) if "auto_map" in part]
    if files:
        fix = "pass trust_remote_code=True only if you trust it, and check what its tokenizer makes of the new tokens"
        yield Finding("code", "note", f"`auto_map` in {' and '.join(files)} names code, which is not checked", (), fix)
    else:
        yield Finding("code", "pass", "the folder needs no code of its own")
    yield from model_findings(folder)


def vllm(folder: ModelFolder) -> Iterator[Finding]:
    """What transformers needs, and what vLLM does with Mistral's own files and with the number of rows."""
    loaded, code, *model = transformers(folder)
    yield from (loaded, code)
    known, weights = facts("vllm"), folder.has("consolidated*.safetensors")
    if weights:
        others = [*folder.has("params.json"), *folder.has(TEKKEN), *folder.has("tokenizer.model.v*")]
        used = ", ".join(f"`{name}`" for name in (weights[0], *others))
        case = "wrong" if folder.has("model*.safetensors") else "alone"
        yield known["format"].finding(case, used=used, weights=weights[0])
    else:
        yield known["format"].finding("fine")
    yield from model
    if folder.rows is not None:
        rows, multiple = folder.rows, known["padding"].values["multiple"]
        padded = -(-rows // multiple) * multiple
        yield known["padding"].finding("fine" if padded == rows else "wrong", rows=rows, padded=padded)
        yield known["LoRA"].finding("fine" if rows <= known["LoRA"].values["most"] else "wrong", rows=rows)


def llama_cpp(folder: ModelFolder) -> Iterator[Finding]:
    """What `convert_hf_to_gguf.py` of llama.cpp makes of a folder."""
    known, how = facts("llama.cpp"), reader(folder)
    yield _vocabulary(folder, how)
    if how == "gpt2":  # the converter asks `AutoTokenizer` for the vocabulary, and for the ids of its hash
        yield folder.auto_tokenizer
        yield _converter_hash(folder)
        yield from cut_words(folder.tokenizer)
    else:
        yield Finding("pre-tokenizer hash", "pass", "not needed: the vocabulary is not of the GPT-2 type")
    yield _added_tokens(folder, how)
    yield from model_findings(folder)
    if not folder.has_model:
        return
    sizes, size, ids = known["special sizes"], folder.vocab_size, folder.tokenizer.ids
    if size is None:
        yield sizes.finding("none")
    else:
        is_llama = folder.architecture.startswith(tuple(known["vocabulary"].values["llama"]))
        is_llama = is_llama and not folder.architecture.startswith(sizes.values["not_for"])
        effect = sizes.values["effects"].get(str(size)) if is_llama else None
        yield sizes.finding("wrong" if effect else "fine", size=size, effect=effect)
    wanted = known["fixed ids"].values.get(folder.architecture, {}).items()
    moved = [f"{token!r} is {ids[token]:,}, not {i}" for token, i in wanted if ids.get(token, i) != i]
    yield known["fixed ids"].of(moved)  # the converter takes these ids for granted
    parts = [part for part in (folder.config, folder.config.get("text_config")) if isinstance(part, Mapping)]
    fields = [f"{kind}_token_id" for kind in known["negative ids"].values["kinds"]]
    set_ids = [(field, part.get(field)) for part in parts for field in fields]
    negative = [f"`{field}` is {value}" for field, value in set_ids if type(value) is int and value < 0]
    yield known["negative ids"].of(negative)  # which end the converter


def reader(folder: ModelFolder) -> Reader:
    """Which part of llama.cpp's converter reads the vocabulary."""
    known, architecture = facts("llama.cpp")["vocabulary"].values, folder.architecture
    llama, first, only = (tuple(known[name]) for name in ("llama", "pieces_first", "pieces_only"))
    # Phi-4 has the architecture of Phi-3, and a byte-level tokenizer.
    pieces_only = architecture.startswith(only) and folder.settings.get("tokenizer_class") != "GPT2Tokenizer"
    if folder.has(MODEL) and (pieces_only or architecture.startswith(llama + first) or not folder.has_model):
        return "sentencepiece"
    has_json = bool(folder.has(TOKENIZER_JSON))
    if not has_json and folder.has(TEKKEN):
        return "tekken"
    if pieces_only or not has_json:
        return "none"
    scores_lost = folder.tokenizer.byte_fallback and architecture.startswith((*llama, known["keeps_merges"]))
    return "scores lost" if scores_lost else "gpt2"


def _vocabulary(folder: ModelFolder, how: Reader) -> Finding:
    """Whether the converter can read the vocabulary, and merges as the tokenizer does."""
    fact = facts("llama.cpp")["vocabulary"]
    if how == "sentencepiece":
        return fact.finding("pieces" if folder.tokenizer.piece_file == MODEL else "other format")
    if how == "tekken":
        return fact.finding("tekken")
    if folder.tokenizer.kind == "sentencepiece":
        if not folder.architecture.startswith(fact.values["keeps_merges"]):
            return fact.finding("no pieces")
        empty = holes(folder.tokenizer)
        case = "json with merges" if empty.outcome == "pass" else "holes"
        return fact.finding(case, empty.evidence, holes=empty.detail)
    if how == "none":
        case = "pieces only" if folder.has(TOKENIZER_JSON) else "nothing"
        return fact.finding(case, architecture=folder.architecture)
    return fact.finding("unknown" if folder.has_model and not folder.architecture else "json")


def _converter_hash(folder: ModelFolder) -> Finding:
    """Whether the converter recognises the pre-tokenizer, by the hash of the ids of its check text."""
    name = "pre-tokenizer hash"
    check, table = converter_check(folder.tokenizer, folder.base), converter_table()
    if check.known:
        warning = skipping_warning(folder.tokenizer, check.type)
        detail = f"known to the converter as `{check.type}` ({table.source})"
        return Finding(name, "note", f"{detail}; {warning}") if warning else Finding(name, "pass", detail)
    if check.line:
        lines = " / ".join(line.strip() for line in check.line.splitlines())
        return Finding(name, "fail", f"not that of the base, `{check.base_type}`", (), f"add to {table.file}: {lines}")
    fix = "pass --base to see the type of the base; keep the hash with `tokengraft extend --keep-llama-cpp-hash`"
    return Finding(name, "fail", f"the converter of {table.source} does not know {check.hash[:16]}…", (), fix)


def _added_tokens(folder: ModelFolder, how: Reader) -> Finding:
    """Whether the converter finds every token in the files it reads beside `tokenizer.model`: not in tokenizer.json."""
    fact, model = facts("llama.cpp")["added tokens"], folder.tokenizer.piece_model
    if how != "sentencepiece" or model is None:
        return fact.finding("json")
    listing = folder.settings.get(LISTING)
    entries = listing.values() if isinstance(listing, dict) else ()
    contents = (entry.get("content") for entry in entries if isinstance(entry, dict))
    listed = {*read_settings(folder.tokenizer.files, ADDED), *(text for text in contents if isinstance(text, str))}
    listed |= {piece.string for piece in model.pieces}
    lacking = [named_token(t.content, t.id) for t in folder.tokenizer.added if t.content not in listed]
    return fact.of(lacking, n=len(folder.tokenizer.added))


def ollama(folder: ModelFolder) -> Iterator[Finding]:
    """What `ollama create` makes of a folder. It reads `tokenizer.model` if there is one, whatever that is."""
    known, tokenizer = facts("ollama"), folder.tokenizer
    entries = tokenizer.document.get("added_tokens") or ()
    if folder.has(MODEL):
        yield known["vocabulary"].finding("pieces" if tokenizer.piece_file == MODEL else "other format")
        yield _beside_pieces(tokenizer)
        special = read_settings(tokenizer.files, SPECIAL_MAP).get(ADDITIONAL)
        texts = [repr(item) for item in special if isinstance(item, str)] if isinstance(special, list) else []
        yield known[SPECIAL_MAP].of(texts)  # tokens as text end the converter
    else:
        readable = tokenizer.kind == "byte-level" or folder.architecture.startswith(
            known["vocabulary"].values["any_kind"]
        )
        case = "nothing" if not folder.has(TOKENIZER_JSON) else "json" if readable else "no pieces"
        yield known["vocabulary"].finding(case)
        empty = holes(tokenizer)
        yield known["holes"].of(empty.evidence, holes=empty.detail)  # tokens are listed by ascending id
        listed = {**tokenizer.vocab, **{entry["content"]: entry["id"] for entry in entries}}
        lacking = [named_token(t.content, t.id) for t in tokenizer.added if listed.get(t.content) != t.id]
        case, n = "not in json" if lacking else "in json", len(tokenizer.added)
        yield known["added tokens"].finding(case, lacking, n=n, wrong=len(lacking))
        yield next(cut_words(folder.tokenizer), None) or _pre_tokenizer(folder)
    named = {name: folder.token_setting(name) for name in ("bos_token", "eos_token")}
    contents = {entry["content"] for entry in entries if tokenizer.main == TOKENIZER_JSON}
    wrong = [f"`{name}` is {token!r}" for name, token in named.items() if token is not None and token not in contents]
    without_end = not wrong and named["eos_token"] is None
    yield known["named tokens"].finding("no end") if without_end else known["named tokens"].of(wrong)
    elsewhere = "chat_template" not in folder.settings and folder.has("chat_template.*")
    yield known["chat template"].finding("wrong" if elsewhere else "fine")
    if folder.has_model:
        case = "fine" if folder.architecture in known["architecture"].values["supported"] else "wrong"
        yield known["architecture"].finding(case, architecture=folder.architecture or "none in config.json")
    yield from model_findings(folder)


def _beside_pieces(tokenizer: Tokenizer) -> Finding:
    """Whether Ollama finds every added token: in `tokenizer.model`, or after its pieces in `added_tokens.json`."""
    fact, model = facts("ollama")["added tokens"], tokenizer.piece_model
    if model is None:
        return fact.finding("unreadable")
    n, more = len(model.pieces), read_settings(tokenizer.files, ADDED)
    listed = {piece.string for piece in model.pieces} | {*more}
    lacking = [named_token(t.content, t.id) for t in tokenizer.added if t.content not in listed]
    after = sorted(i for i in more.values() if type(i) is int and i >= n)
    if not lacking and after != [*range(n, n + len(after))]:
        return fact.finding("hole")
    return fact.of(lacking, n=len(tokenizer.added), pieces=n)


def _pre_tokenizer(folder: ModelFolder) -> Finding:
    """Whether Ollama knows the split patterns."""
    fact = facts("ollama")["pre-tokenizer"]
    if folder.architecture.startswith(tuple(fact.values["by_architecture"])):
        return fact.finding("architecture")
    known = fact.values["by_sha256_of_patterns"].get(pattern_hash(folder.tokenizer.document))
    return fact.finding("fine" if known else "wrong", known=known)


def pattern_hash(document: Mapping[str, Any]) -> str:
    """The hash that Ollama recognises a pre-tokenizer by: of the patterns of all splits of a sequence.

    >>> pattern_hash({"pre_tokenizer": {"type": "ByteLevel"}})[:8]
    'e3b0c442'
    """
    steps = (document.get("pre_tokenizer") or {}).get("pretokenizers") or ()
    patterns = [(step.get("pattern") or {}).get("Regex", "") for step in steps if step.get("type") == "Split"]
    return sha256("".join(patterns).encode()).hexdigest()


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
    fact, ids, taken = facts("tiktoken")["special tokens"], [token.id for token in tokenizer.added], {*ranks.values()}
    shared = [named_token(token.content, token.id) for token in tokenizer.added if token.id in taken]
    follow = ids == [*range(len(ranks), len(ranks) + len(ids))]  # where Meta's loader puts them
    yield fact.of(shared, n=len(ids)) if shared or follow else fact.finding("other ids", ranks=len(ranks))
    pattern = split_pattern(tokenizer)
    if pattern is None:
        yield not_checked("encoding", "the pipeline of tokenizer.json is not one split pattern, as tiktoken needs")
    else:
        yield same_ids(tokenizer, "tiktoken", lambda texts: tiktoken_encoder(ranks, pattern, {})(texts), fix)


def _rank_file(tokenizer: Tokenizer) -> str | None:
    """The name of the file of ranks, if there is one, damaged or not. Llama-3 calls it `tokenizer.model`."""
    if tokenizer.ranks and tokenizer.ranks.format == "tiktoken":
        return tokenizer.rank_file
    names = (name for name in tokenizer.files if name.endswith((".tiktoken", "tiktoken.model")))
    other = "tokenizer.model" if tokenizer.piece_file is None and "tokenizer.model" in tokenizer.files else None
    return next(names, other)


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
    detail = f"`default_vocab_size` is {size:,}, and the model has {folder.rows or 0:,} rows"
    if folder.rows is None:
        yield not_checked("embedding rows", "this is a tokenizer without a model")
    elif size == folder.rows:
        yield Finding("embedding rows", "pass", f"{size:,}, as `default_vocab_size` says")
    elif size > folder.rows:
        yield Finding("embedding rows", "fail", detail, (), fix)
    else:
        yield Finding("embedding rows", "note", detail)
    path = folder.path / TEKKEN
    yield same_ids(tokenizer, "mistral-common", lambda texts: tekken_encoder(path)(texts), fix)


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
    fix, raw = "the two normalize differently; the base has the same difference", tokenizer.files[file]
    yield same_ids(tokenizer, "sentencepiece", lambda texts: piece_encoder(raw)(texts), fix, refused=KEEP)


def _pieces(tokenizer: Tokenizer) -> Finding:
    """Whether the model has all tokens, with the same ids."""
    model = tokenizer.piece_model
    places = {piece.string: place for place, piece in enumerate(model.pieces)} if model else {}
    added = {token.content for token in tokenizer.added}
    differing = {string: i for string, i in tokenizer.ids.items() if places.get(string) != i}
    learned = [named_token(string, i) for string, i in differing.items() if string not in added]
    if differing and not learned:
        fix = "sentencepiece splits their text; use transformers or `tokenizers` where text has them"
        shown = [named_token(string, i) for string, i in differing.items()]
        return note("pieces", f"{len(differing):,} added tokens have no piece", shown, fix)
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


_FINDINGS: dict[str, Callable[[ModelFolder], Iterator[Finding]]] = {
    "transformers": transformers,
    "vllm": vllm,
    "llama.cpp": llama_cpp,
    "ollama": ollama,
    "tiktoken": tiktoken,
    "mistral-common": mistral_common,
    "sentencepiece": sentencepiece,
}

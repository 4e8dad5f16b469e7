"""The converters of llama.cpp and Ollama: which files they read, by architecture, and what gets lost on the way.

Neither is run. `facts.json` has what was read in their sources.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Literal

from tokengraft.formats.sources import TOKENIZER_JSON
from tokengraft.output.json_file import read_settings
from tokengraft.tokenizer.added import ADDED, ADDITIONAL, LISTING, SPECIAL_MAP, AddedToken
from tokengraft.tokenizer.llama_cpp import converter_check, converter_table, skipping_warning
from tokengraft.verify.check import holes
from tokengraft.verify.finding import Finding, named_token
from tokengraft.verify.serving.model_folder import ModelFolder, model_findings
from tokengraft.verify.serving.stacks import facts

Reader = Literal["sentencepiece", "scores lost", "gpt2", "tekken", "none"]
MODEL = "tokenizer.model"


def llama_cpp(folder: ModelFolder) -> Iterator[Finding]:
    """What `convert_hf_to_gguf.py` of llama.cpp makes of a folder."""
    how = reader(folder)
    yield _vocabulary(folder, how)
    if how == "gpt2":  # the converter asks `AutoTokenizer` for the vocabulary, and for the ids of its hash
        yield folder.auto_tokenizer
    yield _converter_hash(folder, how)
    yield _added_tokens(folder, how)
    yield from model_findings(folder)
    if folder.has_model:
        yield _special_sizes(folder)
        yield _fixed_ids(folder)
        yield _negative_ids(folder)


def reader(folder: ModelFolder) -> Reader:
    """Which part of llama.cpp's converter reads the vocabulary."""
    known, architecture = facts("llama.cpp")["vocabulary"].values, folder.architecture
    llama, first, only = (tuple(known[name]) for name in ("llama", "pieces_first", "pieces_only"))
    # Phi-4 has the architecture of Phi-3, and a byte-level tokenizer.
    pieces_only = architecture.startswith(only) and folder.settings.get("tokenizer_class") != "GPT2Tokenizer"
    if folder.has(MODEL) and (pieces_only or architecture.startswith(llama + first) or not folder.has_model):
        return "sentencepiece"
    has_json = bool(folder.has(TOKENIZER_JSON))
    if not has_json and folder.has("tekken.json"):
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


def _converter_hash(folder: ModelFolder, how: Reader) -> Finding:
    """Whether the converter recognises the pre-tokenizer, by the hash of the ids of its check text.

    Only a vocabulary that is read from tokenizer.json needs it.
    """
    name = "pre-tokenizer hash"
    if how != "gpt2":
        return Finding(name, "pass", "not needed: the vocabulary is not of the GPT-2 type")
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
    lacking = (token for token in folder.tokenizer.added if token.content not in listed)
    return fact.of(_names(lacking), n=len(folder.tokenizer.added))


def _names(tokens: Iterable[AddedToken]) -> list[str]:
    return [named_token(token.content, token.id) for token in tokens]


def _special_sizes(folder: ModelFolder) -> Finding:
    """Whether `vocab_size` is one that the converter takes for another model."""
    fact, size = facts("llama.cpp")["special sizes"], folder.vocab_size
    if size is None:
        return fact.finding("none")
    llama = tuple(facts("llama.cpp")["vocabulary"].values["llama"])
    is_llama = folder.architecture.startswith(llama) and not folder.architecture.startswith(fact.values["not_for"])
    effect = fact.values["effects"].get(str(size)) if is_llama else None
    return fact.finding("wrong" if effect else "fine", size=size, effect=effect)


def _fixed_ids(folder: ModelFolder) -> Finding:
    """Whether tokens have the ids that the converter takes for granted."""
    fact, ids = facts("llama.cpp")["fixed ids"], folder.tokenizer.ids
    wanted = fact.values.get(folder.architecture, {}).items()
    return fact.of([f"{token!r} is {ids[token]:,}, not {i}" for token, i in wanted if ids.get(token, i) != i])


def _negative_ids(folder: ModelFolder) -> Finding:
    """Whether a special id in `config.json` is negative, which ends the converter."""
    fact, nested = facts("llama.cpp")["negative ids"], folder.config.get("text_config")
    parts = [part for part in (folder.config, nested) if isinstance(part, Mapping)]
    fields = [f"{kind}_token_id" for kind in fact.values["kinds"]]
    values = [(field, part.get(field)) for part in parts for field in fields]
    return fact.of([f"`{field}` is {value}" for field, value in values if type(value) is int and value < 0])


def ollama(folder: ModelFolder) -> Iterator[Finding]:
    """What `ollama create` makes of a folder."""
    known, has_pieces = facts("ollama"), bool(folder.has(MODEL))
    yield _file(folder, has_pieces=has_pieces)
    if has_pieces:
        yield _beside_pieces(folder)
        listed = read_settings(folder.tokenizer.files, SPECIAL_MAP).get(ADDITIONAL)
        texts = [repr(item) for item in listed if isinstance(item, str)] if isinstance(listed, list) else []
        yield known[SPECIAL_MAP].of(texts)  # tokens as text end the converter
    else:
        empty = holes(folder.tokenizer)
        yield known["holes"].of(empty.evidence, holes=empty.detail)  # tokens are listed by ascending id
        yield _in_json(folder)
        yield _pre_tokenizer(folder)
    yield _named_tokens(folder)
    elsewhere = "chat_template" not in folder.settings and folder.has("chat_template.*")
    yield known["chat template"].finding("wrong" if elsewhere else "fine")
    if folder.has_model:
        case = "fine" if folder.architecture in known["architecture"].values["supported"] else "wrong"
        yield known["architecture"].finding(case, architecture=folder.architecture or "none in config.json")
    yield from model_findings(folder)


def _file(folder: ModelFolder, *, has_pieces: bool) -> Finding:
    """Which file the vocabulary is read from: `tokenizer.model` if there is one, whatever it is."""
    fact = facts("ollama")["vocabulary"]
    if has_pieces:
        return fact.finding("pieces" if folder.tokenizer.piece_file == MODEL else "other format")
    if not folder.has(TOKENIZER_JSON):
        return fact.finding("nothing")
    readable = folder.tokenizer.kind == "byte-level" or folder.architecture.startswith(fact.values["any_kind"])
    return fact.finding("json" if readable else "no pieces")


def _in_json(folder: ModelFolder) -> Finding:
    """Whether tokenizer.json lists every added token, with its id. Ollama reads no other file for them."""
    tokenizer = folder.tokenizer
    entries = tokenizer.document.get("added_tokens") or ()
    listed = {**tokenizer.vocab, **{entry["content"]: entry["id"] for entry in entries}}
    wrong = _names(token for token in tokenizer.added if listed.get(token.content) != token.id)
    case = "not in json" if wrong else "in json"
    return facts("ollama")["added tokens"].finding(case, wrong, n=len(tokenizer.added), wrong=len(wrong))


def _beside_pieces(folder: ModelFolder) -> Finding:
    """Whether Ollama finds every added token: in `tokenizer.model`, or after its pieces in `added_tokens.json`."""
    fact, tokenizer, model = facts("ollama")["added tokens"], folder.tokenizer, folder.tokenizer.piece_model
    if model is None:
        return fact.finding("unreadable")
    n, more = len(model.pieces), read_settings(tokenizer.files, ADDED)
    listed = {piece.string for piece in model.pieces} | {*more}
    lacking = _names(token for token in tokenizer.added if token.content not in listed)
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


def _named_tokens(folder: ModelFolder) -> Finding:
    """Whether the tokens that settings name are added tokens of tokenizer.json, where Ollama looks up their ids."""
    fact, tokenizer = facts("ollama")["named tokens"], folder.tokenizer
    listed = (tokenizer.document.get("added_tokens") or ()) if tokenizer.main == TOKENIZER_JSON else ()
    contents = {entry["content"] for entry in listed}
    named = {name: folder.token_setting(name) for name in ("bos_token", "eos_token")}
    wrong = [f"`{name}` is {token!r}" for name, token in named.items() if token is not None and token not in contents]
    return fact.finding("no end") if not wrong and named["eos_token"] is None else fact.of(wrong)

"""llama.cpp: how `convert_hf_to_gguf.py` reads the vocabulary. It depends on the architecture and on the files.

Checked by reading release b10586: `conversion/{base,llama,gemma,qwen,phi}.py` and `gguf-py/gguf/vocab.py`.
"""

from collections.abc import Iterator, Mapping
from typing import Literal

from tokengraft.check.finding import EVIDENCE, Finding
from tokengraft.check.invariants import holes
from tokengraft.check.serving.model import model_findings, not_checked
from tokengraft.check.serving.model_folder import ModelFolder
from tokengraft.check.serving.stacks import LLAMA_CPP_SIZES
from tokengraft.check.settings_file import read_settings
from tokengraft.formats.files import MAIN as TOKENIZER_JSON
from tokengraft.tokenizer.llama_cpp import converter_check, converter_table, skipping_warning
from tokengraft.tokenizer.settings import ADDED, LISTING, SETTINGS

Reader = Literal["sentencepiece", "scores lost", "gpt2", "tekken", "none"]
MODEL = "tokenizer.model"
_LLAMA = ("Llama", "LLaMA", "Mistral", "Mixtral", "Arcee", "SmolLM3", "Apertus", "Granite")
_PIECES_FIRST = (*_LLAMA, "Qwen2", "Qwen3", "DeepseekForCausalLM", "Gemma3")
_PIECES_ONLY = ("GemmaForCausalLM", "Gemma2", "Phi3", "InternLM2", "Baichuan")
_FIXED = {"<|fim_prefix|>": 67, "<|fim_middle|>": 68, "<|fim_suffix|>": 69, "<end_of_turn>": 107}
"""Ids that the converter writes for `GemmaForCausalLM`, whatever the tokenizer says."""
_KINDS = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
COMPACT = "renumber the ids: `tg.save(tg.load(FOLDER).compact(), NEW)` in Python, then `tokengraft transplant`"


def findings(folder: ModelFolder) -> Iterator[Finding]:
    """What the converter makes of the folder."""
    yield vocabulary(folder)
    if reader(folder) == "gpt2":  # the converter asks `AutoTokenizer` for the vocabulary, and for the ids of its hash
        yield folder.auto_tokenizer
    yield converter_hash(folder)
    yield listed_tokens(folder)
    yield from model_findings(folder)
    if folder.has_model:
        yield special_sizes(folder)
        yield fixed_ids(folder)
        yield negative_ids(folder)


def reader(folder: ModelFolder) -> Reader:
    """Which part of the converter reads the vocabulary."""
    architecture, has_json = folder.architecture, bool(folder.has(TOKENIZER_JSON))
    # Phi-4 has the architecture of Phi-3, and a byte-level tokenizer.
    pieces_only = architecture.startswith(_PIECES_ONLY) and folder.settings.get("tokenizer_class") != "GPT2Tokenizer"
    if folder.has(MODEL) and (pieces_only or architecture.startswith(_PIECES_FIRST) or not folder.has_model):
        return "sentencepiece"
    if not has_json and folder.has("tekken.json"):
        return "tekken"
    if pieces_only or not has_json:
        return "none"
    scores_lost = folder.tokenizer.byte_fallback and architecture.startswith((*_LLAMA, "Gemma4"))
    return "scores lost" if scores_lost else "gpt2"


def vocabulary(folder: ModelFolder) -> Finding:
    """Whether the converter can read the vocabulary, and merges as the tokenizer does."""
    name, how = "vocabulary", reader(folder)
    if how == "sentencepiece":
        return _pieces(folder)
    if how == "tekken":
        return Finding(name, "pass", "read from tekken.json, by mistral-common")
    if folder.tokenizer.kind == "sentencepiece":
        return _without_pieces(folder)
    if how == "none" and folder.has(TOKENIZER_JSON):
        fix = "use the architecture of the base, or another stack"
        return Finding(name, "fail", f"the converter reads {folder.architecture} from a `{MODEL}` alone", (), fix)
    if how == "none":
        fix = f"write a {TOKENIZER_JSON}: `tokengraft convert FOLDER --to huggingface`"
        return Finding(name, "fail", f"there is no `{TOKENIZER_JSON}`", (), fix)
    if folder.has_model and not folder.architecture:
        return not_checked(name, "config.json has no `architectures`")
    return Finding(name, "pass", "read from tokenizer.json; unused ids are filled")


def _pieces(folder: ModelFolder) -> Finding:
    """What the converter makes of the `tokenizer.model` that it reads."""
    if folder.tokenizer.piece_file == MODEL:
        return Finding("vocabulary", "pass", f"read from {MODEL}, which needs no hash")
    fix = f"move `{MODEL}` out of the folder: tokenizer.json is then used"
    return Finding("vocabulary", "fail", f"the converter reads `{MODEL}`, which is not a SentencePiece model", (), fix)


def _without_pieces(folder: ModelFolder) -> Finding:
    """What the converter makes of a SentencePiece type without its `.model`."""
    if folder.architecture.startswith("Gemma4"):
        return _unfilled(folder) or Finding("vocabulary", "pass", "read from tokenizer.json, with its merges")
    fix = f"put the `{MODEL}` of the base into its folder before you change the tokenizer: both are then kept equal"
    detail = f"there is no `{MODEL}`: the converter fails, or loses scores and merges"
    return Finding("vocabulary", "fail", detail, (), fix)


def _unfilled(folder: ModelFolder) -> Finding | None:
    """A failure if there are holes, where the converter does not fill them."""
    empty = holes(folder.tokenizer)
    if empty.outcome == "pass":
        return None
    detail = f"{empty.detail}, and the converter stops at the first"
    return Finding("vocabulary", "fail", detail, empty.evidence, COMPACT)


def converter_hash(folder: ModelFolder) -> Finding:
    """Whether the converter recognises the pre-tokenizer, by the hash of the ids of its check text.

    Only a vocabulary that is read from tokenizer.json needs it.
    """
    name = "pre-tokenizer hash"
    if reader(folder) != "gpt2":
        return Finding(name, "pass", "not needed: the vocabulary is not of the GPT-2 type")
    found, table = converter_check(folder.tokenizer, folder.base), converter_table()
    if found.known:
        warning, detail = skipping_warning(folder.tokenizer, found.type), f"known to the converter as `{found.type}`"
        return Finding(name, "note", f"{detail}; {warning}") if warning else Finding(name, "pass", detail)
    if found.line:
        lines = " / ".join(line.strip() for line in found.line.splitlines())
        return Finding(name, "fail", f"not that of the base, `{found.base_type}`", (), f"add to {table.file}: {lines}")
    fix = "pass --base to see the type of the base; keep the hash with `tokengraft extend --keep-llama-cpp-hash`"
    return Finding(name, "fail", f"the converter of {table.source} does not know {found.hash[:16]}…", (), fix)


def listed_tokens(folder: ModelFolder) -> Finding:
    """Whether the converter finds every token in the files it reads beside `tokenizer.model`: not in tokenizer.json."""
    name, tokenizer = "added tokens", folder.tokenizer
    model = tokenizer.piece_model
    if reader(folder) != "sentencepiece" or model is None:
        return Finding(name, "pass", "read from tokenizer.json and tokenizer_config.json")
    listed = {piece.string for piece in model.pieces} | {*_settings_tokens(folder)}
    lacking = [f"{token.content!r} ({token.id:,})" for token in tokenizer.added if token.content not in listed]
    if not lacking:
        return Finding(name, "pass", f"all {len(tokenizer.added):,} are in {MODEL} or {SETTINGS}")
    fix = f"list them in `{LISTING}` of {SETTINGS}, or in {ADDED}"
    return Finding(
        name, "fail", f"{len(lacking):,} are in tokenizer.json alone and get lost", tuple(lacking[:EVIDENCE]), fix
    )


def _settings_tokens(folder: ModelFolder) -> Iterator[str]:
    yield from read_settings(folder.tokenizer, ADDED)
    listing = folder.settings.get(LISTING)
    for entry in listing.values() if isinstance(listing, dict) else ():
        if isinstance(entry, dict) and isinstance(entry.get("content"), str):
            yield entry["content"]


def special_sizes(folder: ModelFolder) -> Finding:
    """Whether `vocab_size` is one that the converter takes for another model."""
    name, size = "special sizes", folder.vocab_size
    effect = LLAMA_CPP_SIZES.get(size or 0) if _is_llama(folder) else None
    if size is None or effect is None:
        return Finding(name, "pass", f"{'no `vocab_size`' if size is None else f'{size:,}'} triggers no special case")
    fix = "if the base has another size, write another number of rows: `tokengraft transplant --pad-multiple N`"
    return Finding(name, "note", f"at `vocab_size` {size:,} the converter {effect}", (), fix)


def _is_llama(folder: ModelFolder) -> bool:
    return folder.architecture.startswith(_LLAMA) and not folder.architecture.startswith("Llama4")


def fixed_ids(folder: ModelFolder) -> Finding:
    """Whether tokens have the ids that the converter takes for granted."""
    name, ids = "fixed ids", folder.tokenizer.ids
    wanted = _FIXED if folder.architecture == "GemmaForCausalLM" else {}
    wrong = [f"{token!r} is {ids[token]:,}, not {i}" for token, i in wanted.items() if ids.get(token, i) != i]
    if not wrong:
        return Finding(name, "pass", "no token has an id that the converter does not expect")
    fix = "keep the ids: `tokengraft prune --ids keep`, or `tokengraft adapt --swap`"
    return Finding(name, "fail", "the converter writes other ids for these tokens", tuple(wrong), fix)


def negative_ids(folder: ModelFolder) -> Finding:
    """Whether a special id in `config.json` is negative, which ends the converter."""
    nested = folder.config.get("text_config")
    parts = [part for part in (folder.config, nested) if isinstance(part, Mapping)]
    values = [(f"{kind}_token_id", part.get(f"{kind}_token_id")) for part in parts for kind in _KINDS]
    wrong = [f"`{field}` is {value}" for field, value in values if type(value) is int and value < 0]
    if not wrong:
        return Finding("negative ids", "pass", "no special id is negative")
    return Finding("negative ids", "fail", "the converter refuses negative ids", tuple(wrong), "set them to null")

"""Ollama: `ollama create` from a folder has a converter of its own, which reads the files without other libraries.

Checked by reading v0.33.0-rc2: `convert/convert.go`, `convert/tokenizer.go`, `convert/tokenizer_spm.go`.
"""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

from tokengraft.check.finding import EVIDENCE, Finding
from tokengraft.check.invariants import holes
from tokengraft.check.serving.llama_cpp import COMPACT, MODEL
from tokengraft.check.serving.model import model_findings
from tokengraft.check.serving.model_folder import ModelFolder
from tokengraft.check.settings_file import read_settings
from tokengraft.formats.files import MAIN as TOKENIZER_JSON
from tokengraft.tokenizer.settings import ADDED, ADDITIONAL, SETTINGS, SPECIAL_MAP

_KNOWN = {
    "d98f9631be1e9607a9848c26c1f9eac1aa9fc21ac6ba82a2fc0741af9780a48f": "llama-bpe",
    "03df5c5863ad70781dcfdef491ead25140f895fe8010964be0daefe27be32b02": "deepseek-llm",
    "21cde974d587f0d54dc8d56b183cc1e6239600172035c68fbd6d4b9f8da0576e": "deepseek-coder",
    "1ff7f41064896984db5d1bb6ff64fa4bc29007d08c1b439e505b7392777a319e": "qwen2",
    "00431aed57e696b747435f734d1e3b9b1bfd931a121fb5cac7129e97c181e9ba": "qwen35",
    "b92c0824a58e1d8dc3221cf3e12c433c3a86f57e46d57229993489f0798e7702": "laguna",
}
"""SHA-256 of the joined split patterns, and the pre-tokenizer that Ollama then uses."""
_SET_BY_ARCHITECTURE = (
    "DeepseekV3",
    "Gemma",
    "Glm4MoeLite",
    "GlmOcr",
    "GptOss",
    "Laguna",
    "Lfm2",
    "Qwen3Next",
    "Qwen3_5",
)
_ARCHITECTURES = [
    "LlamaForCausalLM",
    "MllamaForConditionalGeneration",
    "Llama4ForConditionalGeneration",
    "Mistral3ForConditionalGeneration",
    "Ministral3ForCausalLM",
    "MixtralForCausalLM",
    "GemmaForCausalLM",
    "Gemma2ForCausalLM",
    "Gemma3ForCausalLM",
    "Gemma3ForConditionalGeneration",
    "Gemma3TextModel",
    "Gemma3nForConditionalGeneration",
    "Gemma4ForCausalLM",
    "Gemma4ForConditionalGeneration",
    "Phi3ForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen2_5_VLForConditionalGeneration",
    "Qwen3VLForConditionalGeneration",
    "Qwen3VLMoeForConditionalGeneration",
    "Olmo3ForCausalLM",
    "CohereForCausalLM",
    "GptOssForCausalLM",
    "DeepseekOCRForCausalLM",
    "DeepseekV3ForCausalLM",
    "Glm4MoeLiteForCausalLM",
    "LagunaForCausalLM",
    "GlmOcrForConditionalGeneration",
    "Lfm2ForCausalLM",
    "Lfm2MoeForCausalLM",
    "Lfm2VlForConditionalGeneration",
    "Qwen3NextForCausalLM",
    "Qwen3_5ForConditionalGeneration",
    "Qwen3_5MoeForConditionalGeneration",
    "NemotronH_Nano_VL_V2",
    "NemotronH_Nano_Omni_Reasoning_V3",
    "NemotronHForCausalLM",
]


def findings(folder: ModelFolder) -> Iterator[Finding]:
    """What Ollama's converter makes of the folder."""
    yield vocabulary(folder)
    if folder.has(MODEL):
        yield listed_tokens(folder)
        yield special_map(folder)
    else:
        yield every_id(folder)
        yield listed_here(folder)
        yield pre_tokenizer(folder)
    yield named_tokens(folder)
    yield template(folder)
    if folder.has_model:
        yield architecture(folder)
    yield from model_findings(folder)


def vocabulary(folder: ModelFolder) -> Finding:
    """Which file the vocabulary is read from: `tokenizer.model` if there is one, whatever it is."""
    name, tokenizer = "vocabulary", folder.tokenizer
    if folder.has(MODEL):
        if tokenizer.piece_file == MODEL:
            return Finding(name, "pass", f"read from {MODEL}")
        fix = f"move `{MODEL}` out of the folder: tokenizer.json is then used"
        return Finding(name, "fail", f"Ollama reads `{MODEL}`, which is not a SentencePiece model", (), fix)
    if not folder.has(TOKENIZER_JSON):
        fix = f"write a {TOKENIZER_JSON}: `tokengraft convert FOLDER --to huggingface`"
        return Finding(name, "fail", f"there is neither a `{MODEL}` nor a `{TOKENIZER_JSON}`", (), fix)
    if tokenizer.kind == "byte-level" or folder.architecture.startswith("Gemma4"):
        return Finding(name, "pass", "read from tokenizer.json")
    fix = f"put the `{MODEL}` of the base into its folder before you change the tokenizer: both are then kept equal"
    return Finding(name, "fail", f"there is no `{MODEL}`: Ollama takes tokenizer.json for a byte-level one", (), fix)


def every_id(folder: ModelFolder) -> Finding:
    """Whether every id has a token. Ollama lists tokens by ascending id and does not fill holes."""
    empty = holes(folder.tokenizer)
    if empty.outcome == "pass":
        return empty
    detail = f"{empty.detail}: every token after the first of them gets another id"
    return Finding("holes", "fail", detail, empty.evidence, COMPACT)


def listed_here(folder: ModelFolder) -> Finding:
    """Whether tokenizer.json lists every added token, with its id. Ollama reads no other file for them."""
    tokenizer = folder.tokenizer
    entries = tokenizer.document.get("added_tokens") or ()
    listed = {**tokenizer.vocab, **{entry["content"]: entry["id"] for entry in entries}}
    wrong = [f"{t.content!r} ({t.id:,})" for t in tokenizer.added if listed.get(t.content) != t.id]
    if not wrong:
        return Finding("added tokens", "pass", f"tokenizer.json lists all {len(tokenizer.added):,}")
    fix = "list them in `added_tokens` of tokenizer.json, as every change by tokengraft does"
    return Finding("added tokens", "fail", f"tokenizer.json lacks {len(wrong):,}", tuple(wrong[:EVIDENCE]), fix)


def listed_tokens(folder: ModelFolder) -> Finding:
    """Whether Ollama finds every added token: in `tokenizer.model`, or after its pieces in `added_tokens.json`."""
    tokenizer, model = folder.tokenizer, folder.tokenizer.piece_model
    if model is None:
        return Finding("added tokens", "note", f"not checked: `{MODEL}` cannot be read")
    pieces = {piece.string for piece in model.pieces}
    more = read_settings(tokenizer, ADDED)
    lacking = [
        f"{t.content!r} ({t.id:,})" for t in tokenizer.added if t.content not in pieces and t.content not in more
    ]
    if lacking:
        fix = f"list them in {ADDED}: an object of tokens and ids, from {len(model.pieces):,} on without a hole"
        return Finding("added tokens", "fail", f"{len(lacking):,} get lost", tuple(lacking[:EVIDENCE]), fix)
    after = sorted(i for i in more.values() if type(i) is int and i >= len(model.pieces))
    if after != [*range(len(model.pieces), len(model.pieces) + len(after))]:
        return Finding("added tokens", "fail", f"the ids in {ADDED} have a hole, which Ollama refuses", (), COMPACT)
    return Finding("added tokens", "pass", f"all {len(tokenizer.added):,} are in {MODEL} or {ADDED}")


def special_map(folder: ModelFolder) -> Finding:
    """Whether `special_tokens_map.json` lists tokens as text, which ends Ollama's converter."""
    name, listed = SPECIAL_MAP, read_settings(folder.tokenizer, SPECIAL_MAP).get(ADDITIONAL)
    texts = [item for item in listed if isinstance(item, str)] if isinstance(listed, list) else []
    if not texts:
        return Finding(name, "pass", "lists no token as text")
    fix = f"delete {SPECIAL_MAP}, or write each token as an object with `content`"
    shown = tuple(f"{text!r}" for text in texts[:EVIDENCE])
    return Finding(name, "fail", f"`{ADDITIONAL}` has tokens as text, at which Ollama stops", shown, fix)


def pre_tokenizer(folder: ModelFolder) -> Finding:
    """Whether Ollama knows the split patterns."""
    name = "pre-tokenizer"
    if folder.architecture.startswith(_SET_BY_ARCHITECTURE):
        return Finding(name, "pass", "chosen by the architecture")
    known = _KNOWN.get(pattern_hash(folder.tokenizer.document))
    if known:
        return Finding(name, "pass", f"recognised as {known}")
    fix = "convert with llama.cpp's convert_hf_to_gguf.py instead, and import the GGUF file"
    return Finding(
        name, "note", "not recognised: Ollama splits text by its default pattern, also for the base", (), fix
    )


def pattern_hash(document: Mapping[str, Any]) -> str:
    """The hash that Ollama recognises a pre-tokenizer by: of the patterns of all splits of a sequence.

    >>> pattern_hash({"pre_tokenizer": {"type": "ByteLevel"}})[:8]
    'e3b0c442'
    """
    steps = (document.get("pre_tokenizer") or {}).get("pretokenizers") or ()
    patterns = [(step.get("pattern") or {}).get("Regex", "") for step in steps if step.get("type") == "Split"]
    return sha256("".join(patterns).encode()).hexdigest()


def named_tokens(folder: ModelFolder) -> Finding:
    """Whether the tokens that settings name are added tokens of tokenizer.json, where Ollama looks up their ids."""
    listed = (folder.tokenizer.document.get("added_tokens") or ()) if folder.tokenizer.main == TOKENIZER_JSON else ()
    entries = {entry["content"] for entry in listed}
    named = {name: folder.token_setting(name) for name in ("bos_token", "eos_token")}
    wrong = [f"`{name}` is {token!r}" for name, token in named.items() if token is not None and token not in entries]
    if wrong:
        fix = "list the token in `added_tokens` of tokenizer.json"
        detail = f"not an added token of tokenizer.json: Ollama ignores {SETTINGS} there"
        return Finding("named tokens", "fail", detail, tuple(wrong), fix)
    if named["eos_token"] is None:
        fix = f"name it as `eos_token` in {SETTINGS}"
        return Finding("named tokens", "note", f"{SETTINGS} names no `eos_token`: replies may not end", (), fix)
    return Finding("named tokens", "pass", "found in tokenizer.json")


def template(folder: ModelFolder) -> Finding:
    """Whether the chat template is where Ollama reads it."""
    if "chat_template" in folder.settings or not folder.has("chat_template.*"):
        return Finding("chat template", "pass", f"in {SETTINGS}, or there is none")
    fix = f"copy it into `chat_template` of {SETTINGS}, or write a TEMPLATE into the Modelfile"
    return Finding(
        "chat template", "note", f"it is a file of its own; Ollama reads the one in {SETTINGS} alone", (), fix
    )


def architecture(folder: ModelFolder) -> Finding:
    """Whether Ollama's converter knows the architecture."""
    if folder.architecture in _ARCHITECTURES:
        return Finding("architecture", "pass", f"{folder.architecture} is supported")
    fix = "convert with llama.cpp's convert_hf_to_gguf.py instead, and import the GGUF file"
    shown = folder.architecture or "none in config.json"
    return Finding("architecture", "fail", f"Ollama v0.33 converts no such folder: {shown}", (), fix)

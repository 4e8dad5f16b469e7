"""A tokenizer as an object of `tokenizers` or of transformers. Both libraries are optional and imported on demand."""

import json
import os
from itertools import zip_longest
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tokengraft.errors import InvalidTokenizerError, OptionError, UnsupportedTokenizerError
from tokengraft.output.atomic import write_files
from tokengraft.output.partial import temporary_folder

if TYPE_CHECKING:
    from tokengraft.tokenizer.tokenizer import Tokenizer

_INSTEAD = "pass `tokenizer_object=tokenizer.to_tokenizers()` to `transformers.PreTrainedTokenizerFast`"


def tokenizers_object(tokenizer: "Tokenizer") -> Any:
    """The tokenizer as a `tokenizers.Tokenizer`."""
    return _imported("tokenizers").Tokenizer.from_str(whole_document(tokenizer))


def transformers_object(tokenizer: "Tokenizer") -> Any:
    """The fast tokenizer that transformers loads from the files. Code among them is not executed.

    Refused if it encodes text differently: up to 2,000 tokens from all over the vocabulary, eight at a time, each
    followed by an added token.
    """
    transformers = _imported("transformers")
    # Without settings, `AutoTokenizer` of transformers 4 does not know which class to take.
    has_settings = "tokenizer_config.json" in tokenizer.files
    loader = transformers.AutoTokenizer if has_settings else transformers.PreTrainedTokenizerFast
    with temporary_folder() as folder:
        write_files({**tokenizer.files, "tokenizer.json": whole_document(tokenizer).encode()}, folder)
        try:
            loaded = loader.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        except Exception as error:  # transformers raises OSError, ValueError, KeyError and its dependencies' errors
            raise UnsupportedTokenizerError(
                f"transformers cannot load the tokenizer: {type(error).__name__}: {error}", hint=_INSTEAD
            ) from error
    chosen = [token.bytes for token in tokenizer.tokens[:: len(tokenizer.tokens) // 2000 + 1]]
    parts = [b"".join(chosen[at : at + 8]).decode(errors="replace") for at in range(0, len(chosen), 8)]
    added = [token.content for token in tokenizer.added][: len(parts)]
    texts = [text + content for text, content in zip_longest(parts, added, fillvalue="")]
    wrong = [text for text in texts if loaded.encode(text, add_special_tokens=False) != tokenizer.encode(text)]
    if wrong:
        raise InvalidTokenizerError(
            f"transformers' {type(loaded).__name__} encodes {len(wrong):,} of {len(texts):,} sample texts "
            f"differently, such as {wrong[0]!r}",
            hint=_INSTEAD,
        )
    return loaded


def whole_document(tokenizer: "Tokenizer") -> str:
    """`tokenizer.json` with all added tokens, also those that only other files name."""
    document = json.loads(tokenizer.rest) | {"added_tokens": tokenizer.added_entries()}
    document["model"] |= tokenizer.model_lists()
    return json.dumps(document, ensure_ascii=False)


def _imported(library: str) -> ModuleType:
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # a missing torch does not matter here
    try:
        return __import__(library)
    except ImportError as error:
        raise OptionError(f"`{library}` is not installed", hint=f"install it: `pip install {library}`") from error

"""A tokenizer as an object of `tokenizers` or of transformers. Both libraries are optional and imported on demand."""

import os
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from tokengraft.errors import InvalidTokenizerError, OptionError, UnsupportedTokenizerError
from tokengraft.output.atomic import write_files
from tokengraft.output.partial import temporary_folder


def tokenizers_object(document: str) -> Any:
    """The `tokenizers.Tokenizer` of the text of a `tokenizer.json`."""
    return _imported("tokenizers").Tokenizer.from_str(document)


def transformers_object(files: Mapping[str, bytes]) -> Any:
    """The fast tokenizer that transformers loads from the files of a folder. Code among the files is not executed."""
    transformers = _imported("transformers")
    # Without settings, `AutoTokenizer` of transformers 4 does not know which class to take.
    loader = transformers.AutoTokenizer if "tokenizer_config.json" in files else transformers.PreTrainedTokenizerFast
    with temporary_folder() as folder:
        write_files(files, folder)
        try:
            return loader.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        except Exception as error:  # transformers raises OSError, ValueError, KeyError and its dependencies' errors
            raise UnsupportedTokenizerError(
                f"transformers cannot load the tokenizer: {type(error).__name__}: {error}",
                hint="pass `tokenizer_object=tokenizer.to_tokenizers()` to `transformers.PreTrainedTokenizerFast`",
            ) from error


def require_same_ids(loaded: Any, encode: Callable[[str], list[int]], texts: list[str]) -> None:
    """Refuses a tokenizer of transformers that encodes sample texts differently."""
    wrong = [text for text in texts if loaded.encode(text, add_special_tokens=False) != encode(text)]
    if wrong:
        raise InvalidTokenizerError(
            f"transformers' {type(loaded).__name__} encodes {len(wrong):,} of {len(texts):,} sample texts "
            f"differently, such as {wrong[0]!r}",
            hint="pass `tokenizer_object=tokenizer.to_tokenizers()` to `transformers.PreTrainedTokenizerFast`",
        )


def _imported(library: str) -> ModuleType:
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # a missing torch does not matter here
    try:
        return __import__(library)
    except ImportError as error:
        raise OptionError(f"`{library}` is not installed", hint=f"install it: `pip install {library}`") from error

"""`save`: writes a tokenizer, loads the result with other libraries, and only then renames it into place.

`prove_conversion`: encodes text with a tokenizer and with its conversion, and compares every id.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from types import NoneType
from typing import NamedTuple

from tokengraft.errors import InvalidTokenizerError, OptionError, require_type
from tokengraft.formats import sources as files
from tokengraft.progress import stage
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify.loaders import Verification, added_texts, sample_texts, verify_folder
from tokengraft.verify.transformers_loader import transformers_started


@stage("writing the tokenizer")
def save(
    tokenizer: Tokenizer,
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    verify: bool = True,
    base: Tokenizer | None = None,
) -> Path:
    """Writes a tokenizer as a folder and returns its path.

    The folder is complete or does not exist. An unchanged tokenizer is written as it was read.

    By default the written files are loaded with `tokenizers`, and with transformers and sentencepiece where they are
    installed, and the ids of sample texts are compared, as the commands do. This takes 1 to 10 seconds.

    Args:
        tokenizer: The tokenizer.
        out: The folder to write. It must not exist.
        force: Replace an existing folder, if it holds only tokenizer files.
        verify: Load the written files and compare. If a loader gives other ids, nothing is kept.
        base: The tokenizer that it was made from. Differences that a loader has with the files of the base too are
            accepted, and the added tokens of the base must still be found in text.

    Raises:
        OutputError: The folder exists or cannot be written.
        InvalidTokenizerError: A loader gives other ids for the written files.
        OptionError: ``base`` is given, but nothing is verified.

    Examples:
        >>> tok = tg.load("model")
        >>> new = tg.extend(tok, tg.count(tok, "et.txt"), 16).apply(tok)
        >>> tg.save(new, "extended", base=tok).name
        'extended'
    """
    require_type("tokenizer", tokenizer, Tokenizer)
    require_type("base", base, Tokenizer, NoneType)
    if base is not None and not verify:
        raise OptionError("`base` has no effect with verify=False", hint="drop base=, or drop verify=False")
    if not verify:
        return files.save(tokenizer, out, force=force)
    save_verified(tokenizer, out, base=base, force=force)
    return Path(out)


def save_verified(
    tokenizer: Tokenizer,
    out: str | os.PathLike[str],
    *,
    base: Tokenizer | None,
    texts: Sequence[str] = (),
    force: bool = False,
) -> Verification:
    """Writes a tokenizer as `save` does and returns how loaders read it. Also compares ``texts``."""
    verified: list[Verification] = []

    def check(folder: Path) -> None:
        verification = verify_folder(folder, tokenizer, [*texts], base=base)
        if base is None and verification.failures:
            raise InvalidTokenizerError(
                "loaders read the written tokenizer differently:\n  " + "\n  ".join(verification.failures),
                hint="pass base=, the tokenizer that it was made from, to accept differences that the base has too; "
                "or pass verify=False",
            )
        verification.raise_for_failures()
        verified.append(verification)

    with transformers_started():
        files.save(tokenizer, out, force=force, check=check)
    return verified[0]


class Proof(NamedTuple):
    """What was compared."""

    tokens: int
    """Tokens whose own text was encoded, added ones included."""
    texts: int
    """Texts of random tokens, and texts with added tokens."""
    moved: int
    """Tokens that have other ids in the conversion."""


def prove_conversion(before: Tokenizer, after: Tokenizer) -> Proof:
    """Compares the ids of both tokenizers, on the text of every token and on text of random tokens.

    Raises:
        InvalidTokenizerError: They encode a text to different tokens. Then the conversion is wrong.
    """
    new_ids = {token_id: after.ids.get(string, -1) for token_id, string in before.strings.items()}
    own = [token.bytes.decode(errors="replace") for token in before.tokens]
    texts = [*sample_texts(before), *added_texts(before)]
    for text in [*own, *texts]:
        if [new_ids[token_id] for token_id in before.encode(text)] != after.encode(text):
            raise InvalidTokenizerError(f"the two encode {text!r} to different tokens", hint="please report this")
    return Proof(len(own), len(texts), sum(old != new for old, new in new_ids.items()))

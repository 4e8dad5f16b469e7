"""`with_given`: a tokenizer with the special tokens of a request.

BPE starts from it, so that pruning, learning and all checks compare with a tokenizer that has them. The vocabularies of
Unigram and WordPiece are lists, and special tokens follow them: there, they are added at the end.
"""

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from tokengraft.learn.include import WordList
from tokengraft.learn.special import SpecialToken, add_special
from tokengraft.learn.words import SplitWords, split_words
from tokengraft.pipeline.request import Request
from tokengraft.pruning.removable import chat_templates, template_texts
from tokengraft.tokenizer.tokenizer import Tokenizer

_MARKER = re.compile(r"<\|[^|<>\s]{1,60}\|>")
"""What is written like a special token. Templates also have other names in `<...>`, which are plain text."""
_SHOWN = 3


class Given(NamedTuple):
    """A tokenizer with its special tokens."""

    tokenizer: Tokenizer
    words: WordList | None = None
    """The words that become tokens by merges."""
    warnings: tuple[str, ...] = ()


def with_given(job: Request, base: Tokenizer, keep: Collection[str]) -> Given:
    """The tokenizer with the special tokens of a request, and with words that only added tokens can be.

    ``keep`` are the tokens that the configs of the model name.
    """
    options = job.options
    tokens, words, warnings = [*map(SpecialToken.of, options.special)], options.include, list[str]()
    if options.include_added and words is not None:
        found = split_words(base, words)
        tokens, words, warnings = [*tokens, *found.tokens], found.others, [*_split_warnings(found)]
    new = add_special(base, tokens, like=options.like, eos=options.eos, pad=options.pad, keep=keep)
    if job.step == "extend" and any(token.description for token in tokens):
        warnings.append(
            "descriptions of special tokens decide rows of a model, and only a tokenizer is written: pass them to "
            "`tokengraft adapt --special`; `tokengraft transplant` starts from the parts of the texts"
        )
    return Given(new, words, (*warnings, *unknown_markers(new)))


def _split_warnings(found: SplitWords) -> Iterator[str]:
    """What added tokens for words change, and which words cannot be one."""
    if found.tokens:
        shown = ", ".join(f"`{token.content}`" for token in found.tokens[:_SHOWN])
        yield (
            f"{len(found.tokens):,} words are added tokens, such as {shown}: they are found only as they are spelled, "
            "a space before them is a token of its own, and llama.cpp finds them inside words too"
        )
    yield from (f"{word.word!r} is no token: {word.reason}" for word in found.left_out)


def unknown_markers(tokenizer: Tokenizer) -> Iterator[str]:
    """A warning if chat templates write markers such as ``<|im_start|>`` that are no tokens."""
    texts = (text for template in chat_templates(tokenizer) for text in template_texts(template))
    found = dict.fromkeys(marker for text in texts for marker in _MARKER.findall(text))
    if unknown := [f"`{marker}`" for marker in found if marker not in tokenizer.ids]:
        yield f"the chat template writes {', '.join(unknown[:_SHOWN])}: no token{'s' * (len(unknown) > 1)} of that text"

"""What may be learned: limits for new tokens, and several languages in balance."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from types import NoneType

from tokengraft.counts.fingerprint import piece_rules
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import CountsError, OptionError, number, option, positive, require_type
from tokengraft.representation import FrozenDict, frozen_strings, require_fields, set_fields, shown
from tokengraft.tokenizer.marks import script_names
from tokengraft.tokenizer.piece_model import PieceRules
from tokengraft.tokenizer.tokenizer import Tokenizer


@shown
@dataclass(frozen=True)
class Limits:
    """Which tokens continued training may make."""

    min_count: int = 2
    """Pairs that occur less often are not merged."""
    max_token_bytes: int | None = None
    """The longest token, in bytes."""
    deny: Collection[str] = ()
    """Texts that must not become tokens. The next most frequent pair is merged instead."""
    deny_pattern: str | None = None
    """A regular expression that no text of a new token may match anywhere."""
    scripts: Collection[str] = ()
    """The Unicode scripts that new tokens keep to, by their long or short names: ``["Arabic"]`` or ``["Arab"]``.

    A character belongs to all scripts of its `Script_Extensions`. One space at the front of a token is allowed, and so
    are characters that inherit their script: combining marks that many scripts use, and joiners. Empty allows all.
    """

    def __post_init__(self) -> None:
        require_fields(self)
        set_fields(self, frozen_strings, "deny", "scripts")
        set_fields(self, positive, "min_count", "max_token_bytes")
        try:
            re.compile(self.deny_pattern or "")
        except re.error as error:
            raise OptionError(
                f"{self.deny_pattern!r} is not a regular expression: {error}", hint=f"correct {option('deny_pattern')}"
            ) from error
        _ = self.script_names

    @property
    def script_names(self) -> tuple[str, ...]:
        """The long names of the scripts, sorted, as Unicode spells them.

        >>> Limits(scripts=["arab", "Latin"]).script_names
        ('Arabic', 'Latin')
        """
        return script_names(self.scripts, "scripts")


@shown
@dataclass(frozen=True)
class Parity:
    """Several texts in balance: every next token is learned for the language that is worst off.

    Worst off is the language whose text has the most tokens, as a share of its tokens under the base: the one that has
    gained least so far. With ``parallel`` and ``reference``, it is the language whose parallel text has the most
    tokens, as a share of the tokens of the reference under the base. Of equal ones, it is the first by name.

    The next token is the most frequent pair of that language, by its own counts. The merge is applied to all texts. A
    language without a pair that is frequent enough is passed over. The order of the mappings has no effect.
    """

    counts: Mapping[str, PretokenCounts]
    """The text of each language, by its name."""
    parallel: Mapping[str, PretokenCounts] | None = None
    """The same sentences in every language of ``counts``. Nothing is learned on them."""
    reference: PretokenCounts | None = None
    """The same sentences in the language of reference. Given together with ``parallel``, or not at all."""
    max_share: float = 1.0
    """No language gets more than this share of the merges, as long as another one has frequent pairs. A language that
    can hardly gain, because its words are split by the pre-tokenizer, would get nearly all of them."""

    def __post_init__(self) -> None:
        for name, texts in (("counts", self.counts), ("parallel", self.parallel or {})):
            require_type(name, texts, Mapping, hint="pass counts by language: {'et': counts}")
            for language, counts in texts.items():
                require_type("language", language, str)
                require_type(f"{name}[{language!r}]", counts, PretokenCounts)
        require_type("reference", self.reference, PretokenCounts, NoneType)
        set_fields(self, number, "max_share")
        if not self.counts:
            raise OptionError("there is no language to learn for", hint="pass counts={'et': ..., 'lv': ...}")
        require_max_share(self.max_share, len(self.counts))
        if "" in self.counts:
            raise OptionError("a language has an empty name", hint="name every language, such as 'et'")
        if (self.parallel is None) != (self.reference is None):
            given, missing = ("parallel", "reference") if self.reference is None else ("reference", "parallel")
            raise OptionError(
                f"`{given}` is given and `{missing}` is not",
                hint="pass both: the same sentences in every language, and in the language of reference",
            )
        if self.parallel is not None and set(self.parallel) != set(self.counts):
            raise OptionError(
                f"the languages of the parallel text are {_names(self.parallel)}, those of the text "
                f"{_names(self.counts)}",
                hint="give parallel text for every language, under the same names",
            )
        for name in ("counts", "parallel"):
            given_counts = getattr(self, name)
            if given_counts is not None:
                object.__setattr__(self, name, FrozenDict(sorted(given_counts.items())))

    @classmethod
    def of_parallel(
        cls, counts: Mapping[str, PretokenCounts], texts: Mapping[str, PretokenCounts], *, max_share: float = 1.0
    ) -> "Parity":
        """Texts in balance, given the same sentences in every language and in one more, the reference."""
        reference = reference_of(counts, texts)
        parallel = {name: text for name, text in texts.items() if name != reference}
        return cls(counts, parallel, texts[reference], max_share)

    @property
    def languages(self) -> tuple[str, ...]:
        """The names of the languages, sorted."""
        return tuple(self.counts)


def require_max_share(max_share: float, n_languages: int) -> None:
    """Refuses a largest share that the languages cannot keep: together they must be able to get all tokens."""
    if not 0 < max_share <= 1:
        raise OptionError(
            f"the largest share of one language is {max_share}",
            hint=f"pass a share above 0, at most 1: {option('max_share', 0.5)}",
        )
    if n_languages > 1 and Fraction(str(max_share)) * n_languages < 1:
        raise OptionError(
            f"the largest share of one language is {max_share}, and {n_languages} languages with it get less than all "
            "tokens",
            hint=f"pass at least {option('max_share', ceil(100 / n_languages) / 100)}",
        )


def reference_of(languages: Collection[str], texts: Collection[str]) -> str:
    """The name of the reference: the only one of the parallel texts that is no language to learn for.

    >>> reference_of(["et", "hi"], ["en", "et", "hi"])
    'en'
    """
    missing, others = sorted(set(languages) - set(texts)), sorted(set(texts) - set(languages))
    if missing or len(others) != 1:
        raise OptionError(
            f"the parallel texts are {_names(texts)}, the languages {_names(languages)}",
            hint=f"pass {option('parity_text')} NAME=FILE for every language, and for one more with another name, the "
            "reference",
        )
    return others[0]


def _names(languages: Collection[str]) -> str:
    return ", ".join(map(repr, sorted(languages))) or "none"


def languages_of(counts: PretokenCounts | Parity) -> list[PretokenCounts]:
    """The texts that tokens are learned on: one for each language."""
    return list(counts.counts.values()) if isinstance(counts, Parity) else [counts]


def all_texts(counts: PretokenCounts | Parity) -> list[PretokenCounts]:
    """All texts: those that tokens are learned on, and those that languages are compared by."""
    return [text for _, text in _named(counts, None)]


def rules_of(tokenizer: Tokenizer, counts: PretokenCounts | Parity) -> PieceRules | None:
    """The rules that new pieces must keep: those that the counts were made with. None for byte-level types."""
    rules = languages_of(counts)[0].fingerprint.rules
    return (rules or piece_rules(tokenizer)) if tokenizer.kind == "sentencepiece" else None


def require_texts(tokenizer: Tokenizer, counts: PretokenCounts | Parity, preserve: PretokenCounts | None) -> None:
    """Refuses counts of another pipeline, counts that do not fit together, and empty ones."""
    rules = rules_of(tokenizer, counts)
    for what, text in _named(counts, preserve):
        try:
            text.require(tokenizer)
        except CountsError as error:
            raise CountsError(f"{what}: {error.message}", hint=error.hint) from error
        if not text.table.total():
            raise CountsError(f"{what} are empty: there is no text", hint="count a corpus that has text")
        if text.fingerprint.rules not in (None, rules):
            # Pretokens were cut where other rules allow a token to span.
            raise CountsError(
                f"{what} were cut by other rules: {text.fingerprint.rules}, the first text by {rules}",
                hint=f"count all texts with the same {option('rule')}",
            )
    normalizations = {text.normalize for text in languages_of(counts)}
    if len(normalizations) > 1:
        shown = ", ".join(sorted(map(str, normalizations)))
        raise CountsError(
            f"the texts of the languages were normalized differently: {shown}",
            hint=f"count all texts with the same {option('normalize')}",
        )


def _named(counts: PretokenCounts | Parity, preserve: PretokenCounts | None) -> Iterator[tuple[str, PretokenCounts]]:
    """All counts, each with its name for messages."""
    if isinstance(counts, Parity):
        yield from ((f"the counts of `{name}`", text) for name, text in counts.counts.items())
        yield from ((f"the parallel counts of `{name}`", text) for name, text in (counts.parallel or {}).items())
        if counts.reference is not None:
            yield "the counts of the reference", counts.reference
    else:
        yield "the counts", counts
    if preserve is not None:
        yield "the preserved counts", preserve

"""`Fingerprint`: everything that pretokens depend on. Stored with counts and compared when they are used."""

import json
import re
from dataclasses import asdict, dataclass
from functools import cache
from itertools import compress
from typing import Any

from tokengraft import _core
from tokengraft.errors import CountsError
from tokengraft.tokenizer.kind import Kind
from tokengraft.tokenizer.piece_model import PieceRules
from tokengraft.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Fingerprint:
    """The parts of a pipeline that its pretokens depend on. Equal fingerprints mean equal pretokens."""

    kind: Kind
    normalizer: str
    """As JSON."""
    pre_tokenizer: str
    """As JSON, without settings that only change offsets."""
    added: tuple[tuple[str, str], ...]
    """Added tokens, each with the flags that affect where it is found."""
    rules: PieceRules | None = None
    """SentencePiece types: the rules by which pretokens were cut; None if they were not cut."""
    joined: frozenset[str] = frozenset()
    """SentencePiece types: pairs of characters that were not cut only because a token contains them side by side."""
    between: str | None = None
    """SentencePiece types: the characters between which pretokens were cut; None if between any."""

    @classmethod
    def of(cls, tokenizer: Tokenizer, rules: PieceRules | None = None) -> "Fingerprint":
        """The fingerprint of a tokenizer, for SentencePiece types under some rules."""
        added = {t.content: _flags(t.single_word, t.lstrip, t.rstrip, t.normalized) for t in tokenizer.added}
        cut = (rules or piece_rules(tokenizer)) if may_be_cut(tokenizer) else None
        joined, between = cutter(tokenizer, cut).limits() if cut else ([], None)
        return cls(
            kind=tokenizer.kind,
            normalizer=_canonical(tokenizer.document.get("normalizer")),
            pre_tokenizer=_canonical(tokenizer.document.get("pre_tokenizer")),
            added=tuple(sorted(added.items())),
            rules=cut,
            joined=frozenset(joined),
            between=between,
        )

    def normalizes_first(self, form: str) -> bool:
        """Whether the normalizer begins with a Unicode normal form, so that doing it before changes nothing."""
        # Its JSON has sorted keys. It is not parsed: files of counts may have anything here.
        return bool(re.match(rf'({{"normalizers": \[)*{{"type": "{form.upper()}"}}', self.normalizer))

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready data, in a fixed order."""
        return asdict(self) | {"joined": sorted(self.joined)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Fingerprint":
        """The fingerprint in the data that `as_dict` gave."""
        added, rules = tuple((token, flags) for token, flags in data["added"]), data["rules"]
        rules = PieceRules(**rules) if rules else None
        return cls(**data | {"added": added, "rules": rules, "joined": frozenset(data["joined"])})

    def require_counts(self, made_for: "Fingerprint") -> None:
        """Refuses counts that were made for a different pipeline, with all differences, one line of text each."""
        differences = [
            f"{name.replace('_', '-')}: counted with {getattr(made_for, name)}, the tokenizer has {getattr(self, name)}"
            for name in ("kind", "normalizer", "pre_tokenizer")
            if getattr(made_for, name) != getattr(self, name)
        ]
        changed = sorted(set(made_for.added) ^ set(self.added))
        if changed:
            names = ", ".join(repr(token) for token, _ in changed[:3])
            differences.append(f"added tokens: {len(changed):,} are not the same or have other flags, such as {names}")
        # Pretokens that were not cut are valid for every rule.
        if made_for.rules is not None and made_for.rules != self.rules:
            differences.append(f"cut rules: counted with {made_for.rules}, asked for {self.rules}")
        spanning = sorted(self.joined - made_for.joined)
        if made_for.rules == self.rules and spanning:
            differences.append(
                f"cuts: the tokenizer has tokens that span them, such as ones with {spanning[0]!r} inside"
            )
        # A character without a token can be dropped or joined with others, so that a cut beside it changes the tokens.
        if made_for.rules is not None and self.rules is not None and self.between is not None:
            unspelled = sorted(set(made_for.between or "") - set(self.between))
            if made_for.between is None:
                differences.append(
                    "cuts: counted with a tokenizer that spells every character, which this one does not"
                )
            elif unspelled:
                differences.append(f"cuts: made beside characters that the tokenizer lacks, such as {unspelled[0]!r}")
        if differences:
            raise CountsError(
                "the counts were made for another pipeline:\n  " + "\n  ".join(differences),
                hint="count the corpus with this tokenizer: `tokengraft count`",
            )


def piece_rules(tokenizer: Tokenizer) -> PieceRules:
    """The piece rules of a SentencePiece-type tokenizer: those of its model, or Llama's if it has no model."""
    return tokenizer.piece_model.rules if tokenizer.piece_model else PieceRules()


def cutter(tokenizer: Tokenizer, rules: PieceRules) -> _core.Cutter:
    """Finds places to cut text that no token of this vocabulary, and no token that the rules allow, spans."""
    made = tokenizer.core_cutters
    if rules not in made:
        made[rules] = _core.Cutter(tokenizer.core_model, rules, [token.content for token in tokenizer.added])
    return made[rules]


def may_be_cut(tokenizer: Tokenizer) -> bool:
    """Whether the pretokens of a tokenizer are cut.

    True for BPE of SentencePiece types, whose pretokens are whole documents, unless a whole pretoken can skip its
    merges.
    """
    return tokenizer.kind == "sentencepiece" and tokenizer.algorithm == "BPE" and not tokenizer.ignore_merges


@cache
def _flags(*given: bool) -> str:
    """The names of the flags of an added token that are set. Models have thousands of tokens with the same ones."""
    return " ".join(compress(("single_word", "lstrip", "rstrip", "normalized"), given))


def _canonical(step: Any) -> str:
    """A pipeline step as JSON, without settings that only change offsets."""

    def without_offsets(settings: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in settings.items() if name != "trim_offsets"}

    return json.dumps(json.loads(json.dumps(step), object_hook=without_offsets), ensure_ascii=False, sort_keys=True)

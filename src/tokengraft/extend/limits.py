"""`Limits`: which tokens continued training may make."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches

from tokengraft import _core
from tokengraft.arguments import checked
from tokengraft.errors import OptionError, require_positive
from tokengraft.frozen import frozen_strings
from tokengraft.representation import shown


@shown
@checked
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
        for name in ("deny", "scripts"):
            object.__setattr__(self, name, frozen_strings(getattr(self, name)))
        for name in ("min_count", "max_token_bytes"):
            require_positive(name, getattr(self, name))
        try:
            re.compile(self.deny_pattern or "")
        except re.error as error:
            raise OptionError(
                f"{self.deny_pattern!r} is not a regular expression: {error}", hint="correct --deny-pattern"
            ) from error
        _ = self.script_names

    @property
    def script_names(self) -> tuple[str, ...]:
        """The long names of the scripts, sorted, as Unicode spells them.

        >>> Limits(scripts=["arab", "Latin"]).script_names
        ('Arabic', 'Latin')

        Raises:
            OptionError: There is no such script.
        """
        if not self.scripts:
            return ()
        names = {_loose(name): long for long, short in _core.script_properties() for name in (long, short)}
        for name in self.scripts:
            if not isinstance(name, str) or _loose(name) not in names:
                raise _unknown_script(name, names)
        return tuple(sorted({names[_loose(name)] for name in self.scripts}))


def _loose(name: str) -> str:
    """A name as Unicode compares names: without case, spaces, hyphens and underscores."""
    return re.sub(r"[\s_-]", "", name).lower()


def _unknown_script(name: object, names: dict[str, str]) -> OptionError:
    matches = get_close_matches(_loose(str(name)), names, n=5, cutoff=0.5)
    close = list(dict.fromkeys(names[match] for match in matches)) or ["Latin", "Arabic", "Devanagari"]
    return OptionError(
        f"there is no Unicode script {name!r}; names like it: {', '.join(close)}", hint=f"pass --scripts {close[0]}"
    )

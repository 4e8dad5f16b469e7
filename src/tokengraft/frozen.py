"""`FrozenDict`: a mapping that cannot be changed and can be pickled. Frozen values hold their mappings in it."""

from collections.abc import Collection
from typing import Any, NoReturn, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class FrozenDict(dict[Key, Value]):
    """A dict that refuses to be changed.

    `types.MappingProxyType` cannot be pickled, and a `Mapping` in Python would be slow to look up in and to copy.

    Examples:
        >>> FrozenDict({"a": 1})["a"]
        1
        >>> FrozenDict({"a": 1})["b"] = 2
        Traceback (most recent call last):
        ...
        TypeError: this mapping cannot be changed; copy it with `dict(...)` first
    """

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("this mapping cannot be changed; copy it with `dict(...)` first")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)  # by default, pickle fills a dict item by item


def frozen_strings(strings: Collection[str]) -> tuple[str, ...]:
    """Strings of any collection as a tuple; those of a set sorted, because their order depends on chance.

    >>> frozen_strings({"b", "a"}), frozen_strings({"b": 1, "a": 2}.keys())
    (('a', 'b'), ('b', 'a'))
    """
    return tuple(sorted(strings) if isinstance(strings, set | frozenset) else strings)

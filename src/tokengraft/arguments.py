"""`checked`: refuses arguments of the wrong type, by the annotations of a public function or class.

A wrong type would otherwise surface deep inside, as an error that says nothing about the argument. Values are checked
by the functions themselves. Parts of large collections and of iterators are not looked at.
"""

import builtins
import operator
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache, partial, wraps
from inspect import Parameter, isclass, signature, unwrap
from itertools import chain, islice, repeat
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeVar, Union, cast, get_args, get_origin

from tokengraft.errors import ArgumentError

Checked = TypeVar("Checked", bound=Callable[..., Any])
_LOOKED_AT = 100_000
"""Items of a collection whose types are checked."""
_WORDS = {
    "bool": "True or False",
    "bytes": "bytes",
    "Callable": "a function",
    "Collection": "a list",
    "float": "a number",
    "int": "a whole number",
    "Iterable": "an iterable",
    "Mapping": "a mapping",
    "NoneType": "None",
    "PathLike": "a path",
    "Sequence": "a list",
    "str": "a string",
    "tuple": "a tuple",
}
_MADE_BY = {
    "Comparison": "tg.compare(before, after, text)",
    "Extension": "tg.extend(tokenizer, counts, n)",
    "PretokenCounts": "tg.count(tokenizer, corpus)",
    "PruneOrder": "tg.prune_order(tokenizer, counts)",
    "Tokenizer": "tg.load(source)",
    "VocabPlan": "tg.plan(old, new)",
}


class _Test(NamedTuple):
    """What an annotation allows."""

    passes: Callable[[Any], bool]
    expected: tuple[str, ...]
    """In words, one for each alternative."""
    convert: Callable[[Any], Any] | None = None
    """Makes an allowed value of one that is almost one; raises TypeError if it cannot."""
    items: tuple["_Test", ...] = ()
    """What the items of a collection must pass, or the keys and the values of a mapping."""
    exact: frozenset[type] = frozenset()
    """Types whose every instance passes, subclasses left out."""
    parts: tuple["_Test", ...] = ()
    """What the parts of a tuple of fixed length must pass."""


_ANYTHING = _Test(lambda _: True, ())


def checked(target: Checked) -> Checked:
    """A function, method or class that refuses arguments of the wrong type.

    The annotations decide what is allowed. Numbers of numpy become those of Python, and lists and iterators
    become tuples where a tuple is expected. Decorators such as `classmethod` come before it, `dataclass` after it.

    Raises:
        ArgumentError: When it is called with an argument of the wrong type.

    Examples:
        >>> @checked
        ... def double(number: int) -> int:
        ...     return 2 * number
        >>> double("4")
        Traceback (most recent call last):
        ...
        tokengraft.errors.ArgumentError: `number` of `double` is '4', a str; it must be a whole number
        hint: pass a whole number
    """
    if isclass(target):
        owner: Any = target
        owner.__init__ = _checked_function(owner.__init__, target.__name__)
        return target
    return cast(Checked, _checked_function(target, target.__qualname__))


def _checked_function(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    # Annotations are read at the first call, because they may name what is imported later.
    tests = cache(partial(_tests_of, function))

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        in_order, rest, by_name = tests()
        if len(args) <= len(in_order) and not kwargs:  # the way of functions that are called for every text: `encode`
            for (_, test), value in zip(in_order, args, strict=False):
                if not test.passes(value):
                    break
            else:
                return function(*args)
        given = [*zip(chain(in_order, repeat(rest)), args, strict=False)]
        given += [((key, by_name.get(key, _ANYTHING)), value) for key, value in kwargs.items()]
        if all(test.passes(value) for (_, test), value in given):
            return function(*args, **kwargs)
        allowed = [_converted(name, key, test, value) for (key, test), value in given]
        return function(*allowed[: len(args)], **dict(zip(kwargs, allowed[len(args) :], strict=True)))

    return call


Named = tuple[str, _Test]


def _tests_of(function: Callable[..., Any]) -> tuple[list[Named], Named, dict[str, _Test]]:
    """What the parameters of a function allow: in their order, all further ones, and by name."""
    in_order, rest = list[Named](), ("", _ANYTHING)
    by_name = dict[str, _Test]()
    for parameter in signature(function).parameters.values():
        test = _ANYTHING if parameter.name in ("self", "cls") else _test_of(_resolved(parameter, function))
        by_name[parameter.name] = test
        if parameter.kind is Parameter.VAR_POSITIONAL:
            rest = (parameter.name, test)
        elif parameter.kind is not Parameter.KEYWORD_ONLY:
            in_order.append((parameter.name, test))
    return in_order, rest, by_name


def _converted(function: str, name: str, test: _Test, value: Any) -> Any:
    if test.passes(value):
        return value
    if test.convert:
        try:
            return test.convert(value)
        except TypeError:
            pass
    wrong = next(_wrong_items(test, value), None)
    within = f"{described(value)}, with {wrong} in it" if wrong else None
    raise wrong_type(f"`{name}` of `{function}`", value, test.expected, within)


def _wrong_items(test: _Test, value: Any) -> Iterator[str]:
    """The items of a collection that are of the wrong type, in words."""
    if len(test.items) == 2 and isinstance(value, Mapping):
        yield from (described(key) for key in value if not test.items[0].passes(key))
        yield from (described(item) for item in value.values() if not test.items[1].passes(item))
    elif len(test.items) == 1 and isinstance(value, list | tuple | set | frozenset):
        yield from (described(item) for item in value if not test.items[0].passes(item))


def wrong_type(what: str, value: object, expected: Collection[str], given: str | None = None) -> ArgumentError:
    """The error of an argument of the wrong type.

    Args:
        what: What has it.
        value: The argument.
        expected: What is allowed, in words.
        given: The argument in words; by default `described`.
    """
    allowed = " or ".join(dict.fromkeys(expected))
    made_by = [f"`{_MADE_BY[word]}`" for one in expected if (word := one.split()[-1]) in _MADE_BY]
    hint = f"pass {allowed}" + (f", such as the result of {made_by[0]}" if made_by else "")
    if "a path" in expected and type(value).__name__ == "Tokenizer":
        hint = "save it, and pass the path of the folder: `tg.save(tokenizer, folder)`"
    return ArgumentError(f"{what} is {given or described(value)}; it must be {allowed}", hint=hint)


def described(value: object) -> str:
    """A value in an error: itself if it is short, and its type.

    >>> described("et.txt"), described(None), described([1, 2])
    ("'et.txt', a str", 'None', 'a list with 2 items')
    """
    kind = type(value).__name__
    article = "an" if kind[:1] in "AEIOaeio" else "a"
    if value is None:
        return "None"
    if isinstance(value, str | bytes | int | float) and len(text := repr(value)) <= 60:
        return f"{text}, {article} {kind}"
    if isinstance(value, list | tuple | dict | set | frozenset):
        return f"{article} {kind} with {len(value):,} item{'s' if len(value) != 1 else ''}"
    return f"{article} {kind}"


class _Unknown:
    """A module that only type checkers import, such as one of an optional library."""

    def __getattr__(self, name: str) -> Any:
        return Any


class _OtherNames(dict[str, Any]):
    """What annotations name and a module imports only for type checkers: public names, and other libraries."""

    def __init__(self, known: Mapping[str, Any]) -> None:
        super().__init__()
        self._known = known

    def __missing__(self, name: str) -> Any:
        if name in self._known or hasattr(builtins, name):
            raise KeyError(name)  # it is looked up there next
        package = sys.modules["tokengraft"]
        return getattr(package, name) if name in package.__all__ else _Unknown()


def _resolved(parameter: Parameter, function: Callable[..., Any]) -> Any:
    """The annotation of a parameter, which may be a string."""
    if parameter.annotation is Parameter.empty:
        return Any
    if not isinstance(parameter.annotation, str):
        return parameter.annotation
    known: dict[str, Any] = getattr(unwrap(function), "__globals__", {})
    return eval(parameter.annotation, known, _OtherNames(known))


def _test_of(hint: Any) -> _Test:
    """What an annotation allows."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        others = [part for part in args if get_origin(part) is not Literal and part is not NoneType]
        return _any_of(
            [_literal(part, exact=bool(others)) if get_origin(part) is Literal else _test_of(part) for part in args]
        )
    if origin is Literal:
        return _literal(hint, exact=False)
    if origin is tuple:
        return _tuple_of(args)
    if origin is not None and isclass(origin) and issubclass(origin, Iterable):
        return _items_of(origin, [_test_of(part) for part in args])
    kind = origin or hint
    if kind is None:
        kind = NoneType
    if not isclass(kind) or kind in (Any, object):
        return _ANYTHING
    if kind in (int, float):
        return _number(kind)
    return _Test(_instance_of(kind), (_worded(kind),), exact=frozenset((kind,)))


def _literal(hint: Any, *, exact: bool) -> _Test:
    """One of some values. If not ``exact``, any of their types: functions say best what is wrong with a value."""
    values = get_args(hint)
    kinds = tuple({type(one) for one in values})
    if exact:
        return _Test(lambda value: isinstance(value, kinds) and value in values, tuple(map(repr, values)))
    return _Test(lambda value: isinstance(value, kinds), tuple(map(repr, values)))


def _instance_of(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


def _worded(kind: type) -> str:
    name = kind.__name__
    article = "an" if name[:1] in "AEIO" else "a"
    return _WORDS.get(name, f"{article} {name}")


def _number(kind: type) -> _Test:
    """A number. True and False are none."""
    allowed = int if kind is int else (int, float)

    def convert(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, Integral if kind is int else Real):
            raise TypeError
        return operator.index(value) if isinstance(value, Integral) else float(value)

    return _Test(
        lambda value: isinstance(value, allowed) and not isinstance(value, bool),
        (_WORDS[kind.__name__],),
        convert,
        exact=frozenset((int, kind)),
    )


def _any_of(tests: list[_Test]) -> _Test:
    if any(not test.expected for test in tests):
        return _ANYTHING

    def convert(value: Any) -> Any:
        for test in tests:
            if test.convert:
                try:
                    return test.convert(value)
                except TypeError:
                    continue
        raise TypeError

    return _Test(
        lambda value: any(test.passes(value) for test in tests),
        tuple(chain.from_iterable(test.expected for test in tests)),
        convert,
        next((test.items for test in tests if test.items), ()),
        exact=frozenset(chain.from_iterable(test.exact for test in tests)),
    )


def _tuple_of(args: tuple[Any, ...]) -> _Test:
    if len(args) == 2 and args[1] is Ellipsis:
        return _items_of(tuple, [_test_of(args[0])])
    tests = [_test_of(part) for part in args]

    def passes(value: Any) -> bool:
        return isinstance(value, tuple) and len(value) == len(tests) and all(map(_passes, tests, value))

    words = ", ".join(" or ".join(test.expected) or "anything" for test in tests)
    return _Test(passes, (f"a tuple of {words}",), lambda value: _as_tuple(value, passes), parts=tuple(tests))


def _items_of(kind: type, tests: list[_Test]) -> _Test:
    """A collection or an iterable. A string is none: its characters are hardly ever meant."""

    def passes(value: Any) -> bool:
        return isinstance(value, kind) and not isinstance(value, str | bytes) and _items_pass(value, tests)

    items = [" or ".join(map(_plural, test.expected)) or "values" for test in tests]
    items = [] if items == ["values"] else items
    words = f"{_worded(kind)} of {' to '.join(items)}" if items else _worded(kind)

    def convert(value: Any) -> Any:
        if kind is tuple and isinstance(value, list | Iterator):  # the order of a set would depend on chance
            value = tuple(value)
        if len(tests) == 1 and tests[0].convert and isinstance(value, list | tuple):
            value = type(value)(_allowed(tests[0], item) for item in value)
        if not passes(value):
            raise TypeError
        return value

    return _Test(passes, (words,), convert, tuple(tests))


def _allowed(test: _Test, value: Any) -> Any:
    """A value that passes, converted if need be; raises TypeError if it cannot be."""
    if test.passes(value):
        return value
    if test.convert is None:
        raise TypeError
    return test.convert(value)


def _plural(words: str) -> str:
    """The plural of what an item is: `a string` becomes `strings`; names of types stay as they are.

    >>> _plural("a whole number"), _plural("a path"), _plural("a Tokenizer"), _plural("'vllm'")
    ('whole numbers', 'paths', 'Tokenizer', "'vllm'")
    """
    article, _, noun = words.partition(" ")
    if article not in ("a", "an"):
        return words
    first, of, rest = noun.partition(" of ")
    return f"{first}s{of}{rest}" if first.islower() else noun


def _items_pass(value: Any, tests: list[_Test]) -> bool:
    if isinstance(value, Mapping):
        keys, values = tests if len(tests) == 2 else (_ANYTHING, _ANYTHING)
        return _all_pass(keys, value.keys()) and _all_pass(values, value.values())
    if not tests or not isinstance(value, list | tuple | set | frozenset):
        return True
    return _all_pass(tests[0], value)


def _all_pass(test: _Test, values: Iterable[Any]) -> bool:
    """Whether the first values pass. A vocabulary has 100,000: their types are looked at first, which is fast."""
    if test is _ANYTHING:
        return True
    looked_at = [*islice(values, _LOOKED_AT)]
    kinds = {*map(type, looked_at)}
    if test.parts and kinds == {tuple} and {*map(len, looked_at)} == {len(test.parts)}:  # as fast, part by part
        return all(map(_all_pass, test.parts, zip(*looked_at, strict=True)))
    return kinds <= test.exact or all(map(test.passes, looked_at))


def _passes(test: _Test, value: Any) -> bool:
    return test.passes(value)


def _as_tuple(value: Any, passes: Callable[[Any], bool]) -> tuple[Any, ...]:
    """A list or an iterator as a tuple. The order of a set would depend on chance."""
    as_tuple = tuple(value) if isinstance(value, list | Iterator) else None
    if not passes(as_tuple):
        raise TypeError
    return cast(tuple[Any, ...], as_tuple)

"""Arguments of the wrong type: every public function, method and class refuses them, and says what it expects."""

import inspect
import re
import shutil

import numpy as np
import pytest
from checkpoints import ENGLISH, ESTONIAN, checkpoint

import tokengraft as tg
from tokengraft import errors
from tokengraft.arguments import checked

WRONG = {"None": None, "3": 3, "'x'": "x", "[]": [], "object()": object()}
SLOW = ("adapt", "distill", "probe")
"""Functions that are not run with arguments that they accept."""
PLAIN = ("AddedToken", "IncludedWord", "LearnedMerge", "RefusedPair", "Removal", "Target", "Token")
"""Named tuples: records that hold whatever they are given."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a model and texts."""
    folder = tmp_path_factory.mktemp("arguments")
    checkpoint(folder / "model")
    (folder / "et.txt").write_text("\n".join(ESTONIAN), encoding="utf-8")
    (folder / "en.txt").write_text("\n".join(ENGLISH), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def calls(place):
    """Every public function and method with arguments that it accepts, by name."""
    tok = tg.load(place / "model")
    et = tg.count(tok, place / "et.txt")
    extension = tg.extend(tok, et, 8)
    new = extension.apply(tok)
    order, changes = tg.prune_order(tok, et), tg.plan(tok, new)
    score = tg.ProbeScore("base", "et", 0, 10, 5, 3.0, 0, 0, 0.0)
    found = tg.evaluate({"base": tok, "new": new}, {"et": et})
    batches = tg.BatchCounter(tok)
    model, text, out = place / "model", place / "et.txt", place / "out"
    functions = {
        "adapt": {"source": model, "target": text, "out": out, "add": 3},
        "estimate": {"source": model, "target": text, "out": out, "add": 3},
        "check": {"tokenizer": new, "base": tok, "preserve": tg.count(tok, place / "en.txt")},
        "check_serving": {"source": model, "stacks": "ollama"},
        "choose_size": {"tokenizer": tok, "extension": extension, "counts": et, "text": text},
        "compare": {"before": tok, "after": new, "text": text},
        "convert": {"tokenizer": tok, "to": "huggingface"},
        "count": {"tokenizer": tok, "corpus": text},
        "curve": {"tokenizer": tok, "counts": et, "text": text, "sizes": [4]},
        "curves": {"tokenizer": tok, "extension": extension, "texts": {"et": et}, "sizes": [4]},
        "distill": {"base": model, "adapted": model, "corpus": text, "out": out},
        "evaluate": {"tokenizers": {"base": tok}, "texts": {"et": text}},
        "extend": {"tokenizer": tok, "counts": et, "n": 4},
        "extend_naively": {"tokenizer": tok, "counts": et, "n": 4},
        "inspect": {"tokenizer": tok},
        "load": {"source": model},
        "plan": {"old": tok, "new": new},
        "preserve_cost": {"tokenizer": tok, "counts": et, "extension": extension},
        "probe": {"models": {"base": model}, "texts": {"et": text}},
        "prune_order": {"tokenizer": tok, "counts": et},
        "save": {"tokenizer": tok, "out": out, "verify": False},
        "sum_partials": {"source": list(batches.count_batches([])), "tokenizer": tok},
        "transplant": {"checkpoint": model, "new_tokenizer": new, "out": None},
        "transplant_model": {"model": object(), "plan": changes},
    }
    methods = {
        "Probe.__getitem__": (tg.Probe((score,), "base", {}), {"key": ("base", "et", 0)}),
        "BatchCounter.__call__": (batches, {"batch": None}),
        "BatchCounter.count_batches": (batches, {"batches": []}),
        "Evaluation.__getitem__": (found, {"key": ("base", "et")}),
        "Evaluation.table": (found, {"wide": False}),
        "Extension.__getitem__": (extension, {"cut": slice(2)}),
        "Extension.apply": (extension, {"tokenizer": tok}),
        "Extension.load": (tg.Extension, {"path": extension.save(place / "extension.json")}),
        "Extension.save": (extension, {"out": out}),
        "Parity.of_parallel": (tg.Parity, {"counts": {"et": et}, "texts": {"et": et, "en": et}}),
        "PretokenCounts.__add__": (et, {"other": et}),
        "PretokenCounts.__radd__": (et, {"other": 0}),
        "PretokenCounts.changed": (et, {"before": tok, "after": new}),
        "PretokenCounts.load": (tg.PretokenCounts, {"path": et.save(place / "et.parquet")}),
        "PretokenCounts.lost": (et, {"tokenizer": tok}),
        "PretokenCounts.require": (et, {"tokenizer": tok}),
        "PretokenCounts.save": (et, {"out": out}),
        "PretokenCounts.scale": (et, {"weight": 2}),
        "PretokenCounts.tokens": (et, {"tokenizer": tok}),
        "PretokenCounts.top": (et, {"most": 2}),
        "PruneOrder.__getitem__": (order, {"cut": slice(2)}),
        "PruneOrder.apply": (order, {"tokenizer": tok}),
        "PruneOrder.load": (tg.PruneOrder, {"path": order.save(place / "order.json")}),
        "PruneOrder.save": (order, {"out": out}),
        "Sizes.chosen": (tg.Sizes(add=3, auto=True), {"n": 2}),
        "Sizes.of": (tg.Sizes, {"add": 3, "remove": 0, "swap": 0, "largest": 5}),
        "Sizes.rows": (tg.Sizes(add=3), {"before": 10, "tokens": 10}),
        "Tokenizer.change_to": (tok, {"ids": tok.ids, "learned": ()}),
        "Tokenizer.edited": (tok, {"ids": tok.ids}),
        "Tokenizer.encode": (tok, {"text": "kass"}),
        "Tokenizer.encode_batch": (tok, {"texts": ["kass"]}),
        "Tokenizer.encode_pretoken": (tok, {"pretoken": "kass"}),
        "Tokenizer.is_whole_pretoken": (tok, {"token": tok.tokens[0]}),
        "Tokenizer.of_core": (tg.Tokenizer, {"vocabulary": tok.core_vocabulary, "rest": tok.rest}),
        "Tokenizer.pretokenize": (tok, {"text": "kass"}),
        "Tokenizer.with_tokens": (tok, {"ids": tok.ids, "merges": tok.merge_strings()}),
        "Totals.__add__": (et.totals, {"other": et.totals}),
        "VocabPlan.load": (tg.VocabPlan, {"path": changes.save(place / "plan.json")}),
        "VocabPlan.save": (changes, {"out": out}),
    }
    values = {
        "BatchCounter": {"tokenizer": tok},
        "Curve": {"text": "et", "points": (), "extension": extension},
        "Parity": {"counts": {"et": et}},
        "Sizes": {"add": 3},
        "WordList": {"words": ("kass",)},
    }
    known = {name: (getattr(tg, name), arguments) for name, arguments in (functions | values).items()}
    known |= {name: (getattr(owner, name.split(".")[1]), arguments) for name, (owner, arguments) in methods.items()}
    return known


def public_callables():
    """The names of all public functions, classes, and methods that take arguments."""
    for name in tg.__all__:
        value = getattr(tg, name)
        if inspect.isfunction(value):
            yield name
        elif inspect.isclass(value) and name not in PLAIN and name != "TokengraftError":
            yield name
            for method, function in inspect.getmembers(value, callable):
                own = not method.startswith("_") or method in ("__add__", "__call__", "__getitem__", "__radd__")
                if own and not inspect.isclass(function) and len(parameters_of(getattr(value, method))) > 0:
                    yield f"{name}.{method}"


def parameters_of(function):
    names = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    return [name for name in names if name != "others" or "rest" not in names]


def outcome(function, arguments):
    """What a call gives: `accepted`, `refused`, or another error, which must not be."""
    try:
        if "stacks" in arguments and "source" in arguments:
            arguments = dict(arguments)
            function(arguments.pop("source"), arguments.pop("stacks"), **arguments)
            return "accepted"
        result = function(**arguments)
        if inspect.isgenerator(result):
            list(result)
    except tg.TokengraftError as error:
        return "refused" if error.hint and error.message else "without a hint"
    except TypeError as error:  # the other arguments of a value are left out here
        return "accepted" if " missing " in str(error) else f"TypeError: {error}"
    except Exception as error:  # what the test looks for
        return f"{type(error).__name__}: {error}"
    return "accepted"


def allowed(parameter):
    """The labels of `WRONG` that an annotation allows, by the words in it."""
    words = set(re.findall(r"\w+", str(parameter.annotation)))
    if "Any" in words or parameter.annotation is inspect.Parameter.empty or "object" in words:
        return {*WRONG}
    kinds = {
        "None": {"None", "NoneType", "Optional"},
        "3": {"int", "float", "Fraction"},
        "'x'": {"str", "Literal"},
        "[]": {"list", "tuple", "Sequence", "Iterable", "Collection", "Iterator"},
    }
    return {label for label, names in kinds.items() if names & words}


@pytest.mark.parametrize("name", sorted(public_callables()))
def test_an_argument_of_the_wrong_type_is_refused_with_what_is_expected(name, calls, place, monkeypatch):
    """Everything is refused by a `TokengraftError` with a hint, or is of a type that the annotation allows."""
    function, good = calls[name] if name in calls else (getattr(tg, name), {})
    monkeypatch.chdir(place)
    for parameter in parameters_of(function):
        for label, value in WRONG.items():
            fine = label in allowed(inspect.signature(function).parameters[parameter])
            if fine and name in SLOW:
                continue
            for left in (place / "x", place / "out"):
                shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
            result = outcome(function, {**good, parameter: value})
            assert result == "refused" or (result == "accepted" and fine), f"{parameter}={label}: {result}"


def test_a_call_with_what_is_expected_is_accepted(calls, place, monkeypatch):
    """So that the refusals of the other test are for the argument that is wrong."""
    monkeypatch.chdir(place)
    refused = {"BatchCounter.__call__", "transplant_model", *SLOW}
    for name, (function, good) in calls.items():
        for left in (place / "x", place / "out"):
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
        assert name in refused or outcome(function, good) == "accepted", name


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (lambda _: tg.extend("model", None, 3), "`tokenizer` of `extend` is 'model', a str", "tg.load"),
        (lambda tok: tg.extend(tok, "et.txt", 3), "it must be a PretokenCounts or a Parity", "tg.count"),
        (lambda tok: tg.count(tok, ["a b"], read_options={}), "is a dict with 0 items", "a ReadOptions or None"),
        (lambda tok: tg.adapt(tok, target="et.txt", out="x", add=3), "`source` of `adapt` is a Tokenizer", "tg.save"),
        (lambda _: tg.CountOptions(workers="4"), "`workers` of `CountOptions` is '4'", "a whole number or None"),
        (lambda _: tg.CountOptions(workers=True), "`workers` of `CountOptions` is True, a bool", "whole number"),
        (lambda _: tg.Limits(deny="abc"), "`deny` of `Limits` is 'abc'", "a list of strings"),
        (
            lambda _: tg.Limits(deny=["a", 3]),
            "`deny` of `Limits` is a list with 2 items, with 3, an int in it",
            "a list of strings",
        ),
        (lambda tok: tok.encode(b"kass"), "`text` of `Tokenizer.encode` is b'kass', a bytes", "a string"),
        (lambda _: tg.ReadOptions(shard=(1, 2, 3)), "is a tuple with 3 items", "whole number, a whole number"),
    ],
)
def test_the_error_has_what_was_given_and_what_to_pass(call, message, hint, calls):
    with pytest.raises(errors.ArgumentError) as raised:
        call(calls["inspect"][1]["tokenizer"])
    assert message in raised.value.message
    assert hint in raised.value.hint
    assert isinstance(raised.value, errors.OptionError | TypeError)


def test_numbers_of_numpy_and_lists_in_place_of_tuples_are_converted(calls):
    _, arguments = calls["extend"]
    extension = tg.extend(arguments["tokenizer"], arguments["counts"], np.int64(4))
    assert type(extension.asked) is int
    assert tg.ReadOptions(shard=[0, 4]).shard == (0, 4)
    assert tg.WordList(word for word in ["kass"]).words == ("kass",)
    assert type(tg.SizeOptions(max_rare=np.float32(0.5)).max_rare) is float


def test_numbers_of_numpy_in_lists_are_converted(place):
    tok = tg.load(place / "model")
    et = tg.count(tok, place / "et.txt")
    found = tg.curve(tok, et, place / "en.txt", [np.int64(4), 8])
    assert [point.tokens for point in found.points] == [0, 4, 8]
    assert all(type(point.tokens) is int for point in found.points)
    for wrong in ([np.float64(4)], [np.int64(4), "8"], [np.bool_(1)]):
        with pytest.raises(errors.ArgumentError, match="`sizes` of `curve` is a list"):
            tg.curve(tok, et, place / "en.txt", wrong)


@pytest.mark.parametrize("texts", [{"target": {1: "et.txt"}}, {"target": "et.txt", "keep": {None: "en.txt"}}])
def test_a_name_of_a_text_that_is_no_string_is_refused(texts, place, monkeypatch):
    monkeypatch.chdir(place)
    with pytest.raises(errors.OptionError, match="is not a valid name for a text"):
        tg.adapt("model", **texts, add=3, out="named")


@pytest.mark.parametrize("wrong", [(0, ("a",)), (0, ("a", 1)), ("0", ("a", "b")), (0, ["a", "b"]), (0,), (), "ab"])
def test_every_tuple_of_a_list_is_checked_with_its_parts(wrong, calls):
    tokenizer = calls["extend"][1]["tokenizer"]
    right = (0, tuple(tokenizer.merge_strings()[0]))
    for inserted in ([wrong], [right, wrong], [wrong, right]):
        with pytest.raises(errors.ArgumentError, match=r"`inserted` of `Tokenizer.edited` is a list"):
            tokenizer.edited(tokenizer.ids, inserted)


@pytest.mark.parametrize("wrong", [(), ("a",), 1])
def test_every_text_of_a_batch_is_checked(wrong, calls):
    with pytest.raises(errors.ArgumentError, match=r"`texts` of `Tokenizer.encode_batch` is a list"):
        calls["extend"][1]["tokenizer"].encode_batch(["a", wrong])


def test_items_of_iterators_are_checked_where_they_are_read(calls):
    _, arguments = calls["curve"]
    with pytest.raises(errors.ArgumentError, match="a size is 'a', a str"):
        tg.curve(**arguments | {"sizes": iter(["a"])})
    assert tg.curve(**arguments | {"sizes": np.array([4])}) == tg.curve(**arguments)
    with pytest.raises(errors.InvalidTokenizerError, match="a merge names 'x', which is no token"):
        arguments["tokenizer"].with_tokens({"a": 0}, [("x", "y")])


def test_missing_and_unknown_arguments_are_errors_of_python():
    with pytest.raises(TypeError, match="missing"):
        tg.count()
    with pytest.raises(TypeError, match="unexpected"):
        tg.load("x", nothing=3)


def test_the_sum_of_counts_is_that_of_python(calls):
    counts = calls["extend"][1]["counts"]
    assert sum([counts, counts]) == counts + counts
    with pytest.raises(errors.ArgumentError, match="what is added to counts is 1"):
        1 + counts


def test_a_score_that_does_not_exist_is_refused_with_those_that_do(calls):
    found = calls["Evaluation.__getitem__"][0].__self__
    with pytest.raises(errors.OptionError, match="no score of") as raised:
        found["base", "lv"]
    assert "('base', 'et')" in raised.value.hint


def test_a_function_that_is_checked_keeps_its_signature_and_its_name():
    @checked
    def example(left: "int", *right: str, flag: bool = False) -> str:
        """Says it."""
        return f"{left} {right} {flag}"

    assert example(1, "a", "b", flag=True) == "1 ('a', 'b') True"
    assert example.__name__ == "example"
    assert [*inspect.signature(example).parameters] == ["left", "right", "flag"]
    with pytest.raises(errors.ArgumentError, match=r"`right` of .*example` is 3"):
        example(1, "a", 3)

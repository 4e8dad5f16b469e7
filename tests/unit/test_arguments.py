"""Arguments of the wrong type: refused where a wrong one is likely, or would give a wrong result without an error."""

import json
from dataclasses import asdict
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from checkpoints import ESTONIAN, checkpoint

import tokengraft as tg
from tokengraft import errors
from tokengraft.counts.threads import HoldOut
from tokengraft.distributed import BatchCounter, sum_partials
from tokengraft.learn import Parity, WordList, extend_naively, preserve_cost
from tokengraft.measure import SizeOptions, choose_size, curve
from tokengraft.pipeline import Sizes
from tokengraft.training import TrainOptions


@pytest.fixture(scope="module")
def at(tmp_path_factory):
    """A model, a text, and what is made of them."""
    folder = tmp_path_factory.mktemp("arguments")
    checkpoint(folder / "model")
    (folder / "et.txt").write_text("\n".join(ESTONIAN), encoding="utf-8")
    tok = tg.load(folder / "model")
    et = tg.count(tok, folder / "et.txt")
    added, order = tg.extend(tok, et, 8), tg.prune_order(tok, et)
    return SimpleNamespace(model=folder / "model", text=folder / "et.txt", tok=tok, et=et, added=added, order=order)


TOKENIZER = {
    "BatchCounter": lambda _, tok: BatchCounter(tok),
    "Extension.apply": lambda at, tok: at.added.apply(tok),
    "PretokenCounts.tokens": lambda at, tok: at.et.tokens(tok),
    "check": lambda _, tok: tg.check(tok),
    "check(base)": lambda at, tok: tg.check(at.tok, tok),
    "check_serving(base)": lambda at, tok: tg.check_serving(at.model, "ollama", base=tok),
    "choose_size": lambda at, tok: choose_size(tok, at.added, at.et, at.text),
    "compare": lambda at, tok: tg.compare(at.tok, tok, at.text),
    "convert": lambda _, tok: tg.convert(tok, "huggingface"),
    "count": lambda at, tok: tg.count(tok, at.text),
    "curve": lambda at, tok: curve(tok, at.et, at.text, [4]),
    "evaluate": lambda at, tok: tg.evaluate(tok, {"et": at.text}),
    "extend": lambda at, tok: tg.extend(tok, at.et, 4),
    "extend_naively": lambda at, tok: extend_naively(tok, at.et, 4),
    "extend_naively(donor)": lambda at, tok: extend_naively(at.tok, None, 4, donor=tok),
    "inspect": lambda _, tok: tg.inspect(tok),
    "plan(new)": lambda at, tok: tg.plan(at.tok, tok),
    "plan(old)": lambda at, tok: tg.plan(tok, at.tok),
    "preserve_cost": lambda at, tok: preserve_cost(tok, at.et, at.added),
    "prune": lambda at, tok: tg.prune(tok, at.et, 2),
    "prune_order": lambda at, tok: tg.prune_order(tok, at.et),
    "save": lambda _, tok: tg.save(tok, "out"),
    "save(base)": lambda at, tok: tg.save(at.tok, "out", base=tok),
    "sum_partials": lambda _, tok: sum_partials([], tok),
}
COUNTS = {
    "Parity": lambda _, counts: Parity({"et": counts}),
    "PretokenCounts.__add__": lambda at, counts: at.et + counts,
    "PretokenCounts.__radd__": lambda at, counts: counts + at.et,
    "check(preserve)": lambda at, counts: tg.check(at.tok, at.tok, preserve=counts),
    "choose_size": lambda at, counts: choose_size(at.tok, at.added, counts, at.text),
    "curve": lambda at, counts: curve(at.tok, counts, at.text, [4]),
    "extend": lambda at, counts: tg.extend(at.tok, counts, 4),
    "extend(preserve)": lambda at, counts: tg.extend(at.tok, at.et, 4, preserve=counts),
    "extend_naively": lambda at, counts: extend_naively(at.tok, counts, 4),
    "preserve_cost": lambda at, counts: preserve_cost(at.tok, counts, at.added),
    "prune_order": lambda at, counts: tg.prune_order(at.tok, counts),
}
NUMBER = {
    "BatchCounter": lambda at, n: BatchCounter(at.tok, memory=n),
    "ReadOptions": lambda _, n: tg.ReadOptions(shard=[0, n]),
    "curve": lambda at, n: curve(at.tok, at.et, at.text, [n]),
    "curve(rows_width)": lambda at, n: curve(at.tok, at.et, at.text, [4], rows_width=n),
    "extend": lambda at, n: tg.extend(at.tok, at.et, n),
    "extend_naively": lambda at, n: extend_naively(at.tok, at.et, n),
    "prune": lambda at, n: tg.prune(at.tok, at.et, n),
    "sum_partials": lambda at, n: sum_partials(BatchCounter(at.tok).count_batches([]), at.tok, min_count=n),
    "transplant": lambda at, n: tg.transplant(at.model, at.tok, None, options=tg.TransplantOptions(seed=n)),
    "transplant(pad_multiple)": lambda at, n: tg.transplant(
        at.model, at.tok, None, options=tg.TransplantOptions(pad_multiple=n)
    ),
}


@pytest.mark.parametrize("name", TOKENIZER)
def test_what_is_no_tokenizer_is_refused_with_how_to_get_one(name, at):
    for wrong in ("model", at.model, at.et):
        with pytest.raises(errors.ArgumentError, match=r"it must be a (Tokenizer|mapping)") as raised:
            TOKENIZER[name](at, wrong)
        assert ("{'base': tokenizer}" if name == "evaluate" else "`tg.load(source)`") in raised.value.hint


@pytest.mark.parametrize("name", COUNTS)
def test_what_is_no_counts_is_refused_with_how_to_count(name, at):
    for wrong in ("et.txt", at.tok, at.added):
        with pytest.raises(errors.ArgumentError, match="it must be a PretokenCounts") as raised:
            COUNTS[name](at, wrong)
        assert "`tg.count(tokenizer, corpus)`" in raised.value.hint


@pytest.mark.parametrize("name", NUMBER)
def test_a_string_a_fraction_and_true_are_no_whole_numbers_and_those_of_numpy_are(name, at):
    for wrong in ("4", 2.5, True, np.bool_(True), np.float64(4), [4]):
        with pytest.raises(errors.ArgumentError, match="it must be a whole number") as raised:
            NUMBER[name](at, wrong)
        assert raised.value.hint.startswith("pass a whole number")
    assert NUMBER[name](at, np.int64(4)) is not None


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (lambda at: tg.count(at.tok, at.added), "a corpus is an Extension", "give paths"),
        (lambda at: tg.count(at.tok, at.order), "a corpus is a PruneOrder", "give paths"),
        (lambda at: tg.compare(at.tok, at.tok, at.et), "a corpus is a PretokenCounts", "give paths"),
        (lambda at: choose_size(at.tok, at.order, at.et, at.text), "`extension` is a PruneOrder", "tg.extend"),
        (lambda at: tg.count(at.tok, at.text, read_options={}), "`read_options` is a dict", "a ReadOptions or None"),
        (lambda at: tg.evaluate({"a": at.tok}, {"et": at.text}, read_options={}), "`read_options` is a dict", "None"),
        (lambda at: tg.adapt(at.model, target="x", out="y", add=3, options={}), "`options` is a dict", "AdaptOptions"),
        (lambda at: tg.adapt(at.tok, target="x", out="y", add=3), "`source` is a Tokenizer", "tg.save(tokenizer"),
        (lambda at: tg.adapt(at.model, target="x", out="y", add="all"), "`add` is 'all', a str", "'auto'"),
        (lambda at: tg.transplant(at.tok, at.tok, "out"), "`checkpoint` is a Tokenizer", "tg.save(tokenizer"),
        (lambda at: tg.transplant_model(None, at.tok), "`plan` is a Tokenizer", "`tg.plan(old, new)`"),
        (lambda at: tg.evaluate({"a": at.tok}, at.text), "`texts` is a PosixPath", "{'et': 'et.txt'}"),
        (lambda _: tg.AdaptOptions(limits={"min_count": 3}), "`limits` is a dict with 1 item", "a Limits"),
        (lambda _: tg.AdaptOptions(stacks="vllm"), "`stacks` is 'vllm', a str", "a list of strings"),
        (lambda _: tg.Limits(deny="abc"), "`deny` is 'abc', a str", "a list of strings"),
        (lambda _: tg.Limits(scripts=["Latin", 3]), "an item of `scripts` is 3, an int", "a string"),
        (lambda _: tg.Protection(tokens="abc"), "`tokens` is 'abc', a str", "a list of strings"),
        (lambda _: tg.Protection(defaults="no"), "`defaults` is 'no', a str", "True or False"),
        (lambda _: WordList("abc"), "`words` is 'abc', a str", "a list of strings"),
        (lambda at: tg.extend(at.tok, at.et, 4, include="abc"), "`words` is 'abc', a str", "a list of strings"),
        (lambda at: tg.count(at.tok, [at.text, at.text], weights="12"), "`weights` is '12'", "a list of numbers"),
        (lambda at: curve(at.tok, at.et, at.text, "48"), "`sizes` is '48', a str", "a list of whole numbers"),
        (lambda _: tg.ReadOptions(shard=(1, 2, 3)), "`shard` is a tuple with 3 items", "two whole numbers"),
        (lambda _: tg.ReadOptions(skip_bad="no"), "`skip_bad` is 'no', a str", "True or False"),
        (lambda _: tg.CountOptions(min_count=None), "`min_count` is None", "a whole number"),
        (lambda _: SizeOptions(max_rare="0.5"), "`max_rare` is '0.5', a str", "a number"),
        (
            lambda at: tg.adapt(at.model, target={1: at.text}, out="y", add=3),
            "is not a valid name for a text",
            "letter",
        ),
        (lambda at: tg.evaluate({"a": at.tok}, {"et": at.et})["a", "lv"], "no score of", "('a', 'et')"),
        (lambda at: at.tok.with_tokens({"a": 0}, [("x", "y")]), "a merge names 'x', which is no token", "an id"),
        (lambda at: at.tok.encode_batch("kass"), "`texts` is 'kass', a str", "a list of strings"),
        (lambda at: at.tok.decode(b"ab"), "`ids` is b'ab', a bytes", "a list of whole numbers"),
    ],
)
def test_the_error_has_what_was_given_and_what_to_pass(call, message, hint, at):
    with pytest.raises(tg.TokengraftError) as raised:
        call(at)
    assert message in raised.value.message
    assert hint in raised.value.hint


@pytest.mark.parametrize("call", [lambda tok: tok.encode(b"kass"), lambda tok: tok.encode_batch(["a", 1])])
def test_a_text_that_is_no_string_is_an_error_of_python(call, at):
    with pytest.raises(TypeError, match="is not an instance of 'str'"):
        call(at.tok)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (tg.AdaptOptions, "seed max_add"),
        (tg.CountOptions, "workers memory max_documents max_bytes min_count"),
        (tg.Limits, "min_count max_token_bytes"),
        (HoldOut, "one_in max_bytes"),
        (TrainOptions, "max_bytes step_bytes length batch seed"),
        (SizeOptions, "min_support multiple min_size training_text"),
        (Sizes, "add remove"),
    ],
)
def test_numbers_of_options_are_whole_and_those_of_numpy_are_converted_for_json(kind, names):
    given, expected = (asdict(kind(**dict.fromkeys(names.split(), n))) for n in (np.int64(64), 64))
    assert json.dumps(given) == json.dumps(expected)
    for name, wrong in product(names.split(), ("4", 2.5, True)):
        with pytest.raises(errors.ArgumentError, match=f"`{name}` is .*; it must be a whole number"):
            kind(**{name: wrong})


def test_results_have_numbers_that_json_can_have(at, tmp_path):
    assert type(tg.extend(at.tok, at.et, np.int64(4)).asked) is int
    assert at.added[: np.int64(4)] == at.added[:4]
    found = curve(at.tok, at.et, at.text, np.array([4, 8]), rows_width=np.int32(8))
    assert json.dumps([(point.tokens, point.parameters) for point in found.points]) == "[[0, 0], [4, 32], [8, 64]]"
    assert json.dumps(asdict(SizeOptions(max_rare=np.float32(0.5)))["max_rare"]) == "0.5"
    tg.transplant(
        at.model, at.tok, tmp_path / "out", options=tg.TransplantOptions(seed=np.int64(1), pad_multiple=np.int64(8))
    )
    assert json.loads((tmp_path / "out" / "tokengraft.json").read_text())["seed"] == 1


def test_lists_and_iterators_become_tuples_so_that_options_are_equal():
    assert tg.ReadOptions(shard=[0, 4]) == tg.ReadOptions(shard=(0, 4))
    assert WordList(word for word in ["kass"]) == WordList(("kass",))
    assert tg.Limits(deny=["a"], scripts=iter(["Latin"])) == tg.Limits(deny=("a",), scripts=("Latin",))
    assert tg.AdaptOptions(stacks=["vllm"]) == tg.AdaptOptions(stacks=("vllm",))
    assert hash(tg.Protection(tokens={"b", "a"})) == hash(tg.Protection(tokens=("a", "b")))


def test_a_sum_of_counts_begins_with_0(at):
    assert sum([at.et, at.et]) == at.et + at.et

"""Public values: a short `repr` whatever their size, escaped HTML, mappings that cannot be changed; and `logging`."""

import copy
import inspect
import json
import logging
import pickle
import subprocess
import sys
from dataclasses import MISSING, fields, is_dataclass
from html.parser import HTMLParser
from typing import NamedTuple

import builders
import pytest
from checkpoints import ENGLISH, ESTONIAN, checkpoint

import tokengraft as tg
from tokengraft.pruning import Removal
from tokengraft.representation import ROWS, FrozenDict, shown

EVIL = "</td></table><script>alert('x')</script>&amp;\x1b[31m"
MOST = 1200
"""Characters of the longest `repr`: ten lines of a wide terminal."""


class Tags(HTMLParser):
    """The tags of a page, and whether all that are opened are closed."""

    def __init__(self, page):
        super().__init__()
        self.open, self.seen, self.text = [], set(), ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        assert not attrs
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def values(tmp_path_factory):
    """Every public value, with large content and with text that is HTML, by name."""
    folder = tmp_path_factory.mktemp("values")
    tok = checkpoint(folder / "model")
    (folder / "et.txt").write_text("\n".join([*ESTONIAN, EVIL * 9]), encoding="utf-8")
    counts = tg.count(tok, folder / "et.txt")
    long = EVIL * 1000
    merges = tuple(tg.learn.LearnedMerge(f"{EVIL}{n}", long, n, True) for n in range(20_000))
    extension = tg.Extension(merges, 20_000, 2, "0" * 64, FrozenDict({EVIL: long}), tuple(long))
    removals = tuple(Removal(long, n, n) for n in range(20_000))
    finding = tg.verify.Finding(EVIL, "fail", long, (EVIL,) * 1000, long)
    learned = tg.extend(tok, counts, 16)
    new = learned.apply(tok)
    evaluation = tg.evaluate({EVIL: tok, "new": new}, {EVIL: folder / "et.txt", "counts": counts})
    curve = tg.measure.curve(tok, counts, folder / "et.txt", [4, 8])
    order = tg.PruneOrder("leaf-frequency", removals, "0" * 64, FrozenDict({EVIL: 3}))
    changes = tg.VocabPlan(100_000, tuple(range(100_000)), tuple(range(50_000)))
    check = tg.Check((finding,) * 1000)
    moved = tg.transplant(folder / "model", new, None)
    choice = tg.measure.SizeChoice(8, 8, 8, long, curve)
    found = [
        tg.AdaptOptions(preserve=[long] * 1000, stacks=["vllm"] * 1000, limits=tg.Limits(deny=[EVIL] * 1000)),
        tg.Adaptation(
            tok,
            new,
            order,
            extension,
            choice=choice,
            warnings=(long,) * 100,
            plan=changes,
            check=check,
            evaluation=evaluation,
            targets={},
            transplant=moved,
            test=evaluation,
        ),
        tg.tokenizer.AddedToken(3, long, True, True, True, True, True, 3),
        tg.distributed.BatchCounter(tok, EVIL),
        check,
        tg.compare(tok, new, folder / "et.txt"),
        tg.CountOptions(),
        curve,
        tg.pipeline.estimate(folder / "model", target=folder / "et.txt", out=folder / "out", add=3),
        evaluation,
        extension,
        finding,
        tg.counts.HoldOut(),
        tg.learn.IncludedWord(long, long, long),
        tg.inspect(new),
        merges[0],
        tg.Limits(deny=[long] * 1000, deny_pattern="x" * 10_000),
        tg.tokenizer.MergeStructure(
            {n: (n, n) for n in range(100_000)}, frozenset(range(100_000)), tuple(range(100_000))
        ),
        tg.learn.Parity({f"{EVIL}{n}": counts for n in range(1000)}),
        tg.tokenizer.PieceRules(),
        tg.learn.PreserveCost(1, 2, 3),
        counts,
        tg.TransplantOptions(seed=3),
        tg.Protection([long] * 1000, "x" * 10_000),
        order,
        tg.ReadOptions(text_field=long),
        tg.learn.RefusedPair(long, long, 3, 4),
        removals[0],
        evaluation.scores[0],
        choice,
        tg.measure.SizeOptions(),
        tg.pipeline.Sizes(add=3),
        tg.Target([long] * 1000),
        tg.pipeline.TargetResult(0.1, 3),
        tg.tokenizer.Token(3, long, long.encode()),
        new,
        tg.corpus.options.Totals(),
        moved,
        changes,
        tg.learn.WordList([f"word{n}" for n in range(10_000)]),
    ]
    return {type(value).__name__: value for value in found}


def public_values():
    classes = [name for name in tg.__all__ if inspect.isclass(getattr(tg, name))]
    return sorted(set(classes) - {"TokengraftError"})


def test_the_repr_of_a_public_value_fits_a_few_lines(values):
    assert {*public_values()} <= values.keys()
    for name, value in values.items():
        assert len(repr(value)) <= MOST
        assert name in repr(value)
        assert not {"\n", "\x1b"} & {*repr(value)}


def test_notebooks_show_a_public_value_as_escaped_html_of_a_few_kilobytes(values):
    for name in values.keys() - {"BatchCounter"}:
        page = values[name]._repr_html_()
        tags = Tags(page)
        assert not tags.open
        assert tags.seen <= {"b", "table", "tr", "th", "td", "caption"}
        assert "\x1b" not in page
        assert len(page) < 60_000
        assert tags.text.startswith(name)


def test_html_shows_tokens_as_text_and_says_what_is_left_out(values):
    text = Tags(values["Extension"]._repr_html_()).text
    assert "`</td></table><script>ale…`" in text
    assert f"the first {ROWS} of 20,000" in text
    assert "most frequent pretokens" in values["PretokenCounts"]._repr_html_()


def test_a_person_sees_the_text_of_tokens_and_a_program_their_strings(tmp_path):
    tok = checkpoint(tmp_path / "model")
    counts = tg.count(tok, iter(["õõ võõõ"] * 20))
    extension, order = tg.extend(tok, counts, 2), tg.prune_order(tok, counts)
    new = extension.apply(tok)
    assert extension[0] == "ÃµÃµ"
    merge = tg.learn.LearnedMerge("ĠvÃµ", "Ãµ", 3, True)
    assert repr(merge) == "LearnedMerge(left=`␠võ`, right=`õ`, frequency=3, new=True)"
    assert repr(Removal("▁või", 7, 1)) == "Removal(token=`␠või`, id=7, decided_by=1)"
    assert repr(tg.tokenizer.Token(9, "ĠÃ", b" \xc3")) == "Token(id=9, text=`␠\\xc3`)"
    assert repr(counts) == (
        "PretokenCounts(documents=20, bytes=240, pretokens=40, distinct=2, top={`␠võõõ`: 20, `õõ`: 20})"
    )
    assert repr(extension).startswith("Extension(tokens=2, first=(`õõ`, ")
    found = [extension, *extension.merges, order[:1], counts, tg.compare(tok, new, ["õõ võõõ"])]
    for value in found:
        for text in (repr(value), str(value), value._repr_html_()):
            assert not {"Ã", "Ġ", "µ"} & {*text}, text


def test_a_value_that_is_short_has_the_repr_of_a_dataclass():
    assert repr(tg.corpus.options.Totals(documents=2)) == (
        "Totals(documents=2, bytes=0, characters=0, pretokens=0, replaced=0, skipped=0)"
    )
    assert repr(tg.Target("et.txt", 2)) == "Target(corpus='et.txt', weight=2)"


def test_a_value_inside_another_does_not_repeat_without_end():
    @shown
    class Nested(NamedTuple):
        inner: object

    value = Nested(None)
    for _ in range(100):
        value = Nested([value] * 1000)
    assert len(repr(value)) < MOST


def test_every_public_dataclass_has_a_short_repr():
    """A new one cannot be forgotten: `shown` is what gives it."""
    for name in public_values():
        kind = getattr(tg, name)
        if is_dataclass(kind) and name != "Tokenizer":
            assert kind.__repr__ is tg.corpus.options.Totals.__repr__, f"@shown is missing at {name}"
            assert all(field.default is MISSING or field.default_factory is MISSING for field in fields(kind))


def test_logging_tells_the_stages_of_an_adaptation(tmp_path, caplog, capsys):
    builders.write(tmp_path / "model", builders.byte_level())
    with caplog.at_level(logging.INFO, logger="tokengraft"):
        options = tg.AdaptOptions(report=False)
        tg.adapt(tmp_path / "model", target=ESTONIAN, keep=ENGLISH, swap=4, out=tmp_path / "new", options=options)
    messages = [record.getMessage() for record in caplog.records]
    assert {record.name for record in caplog.records} == {"tokengraft"}
    for stage in ("adapting", "counting target", "learning new tokens", "ordering tokens for pruning", "writing"):
        assert stage in messages
    assert any(message.startswith("adapting: done in ") for message in messages)
    assert any(message.startswith("read 3") and "bytes of text" in message for message in messages)
    assert capsys.readouterr() == ("", "")


def test_an_adaptation_shows_its_steps_on_stderr_unless_something_else_does(tmp_path, capsys):
    builders.write(tmp_path / "model", builders.byte_level())

    def shown(name, **options):
        chosen = tg.AdaptOptions(report=False, **options)
        tg.adapt(tmp_path / "model", target=ESTONIAN, keep=ENGLISH, swap=4, out=tmp_path / name, options=chosen)
        out, err = capsys.readouterr()
        assert out == ""
        return err.splitlines()

    steps = []
    assert shown("b", on_step=steps.append) == []
    assert shown("a") == steps
    assert {"counting target", "counting keep", "writing"} <= {*steps}
    assert shown("c", quiet=True) == shown("d", progress=lambda *_: None) == []


def test_nothing_is_printed_by_default(tmp_path):
    builders.write(tmp_path / "model", builders.byte_level())
    code = "import tokengraft as tg; tg.count(tg.load('model'), ['the cat sat'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    heard = f"import logging; logging.basicConfig(level='INFO'); {code}"
    done = subprocess.run([sys.executable, "-c", heard], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "INFO:tokengraft:read 1 documents, 11 bytes of text" in done.stderr


CHANGES = {
    "set": lambda mapping: mapping.__setitem__("b", 2),
    "delete": lambda mapping: mapping.__delitem__("a"),
    "update": lambda mapping: mapping.update(b=2),
    "or": lambda mapping: mapping.__ior__({"b": 2}),
    "pop": lambda mapping: mapping.pop("a"),
    "popitem": lambda mapping: mapping.popitem(),
    "setdefault": lambda mapping: mapping.setdefault("b", 2),
    "clear": lambda mapping: mapping.clear(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_refused(change):
    mapping = FrozenDict({"a": 1})
    with pytest.raises(TypeError, match="cannot be changed"):
        CHANGES[change](mapping)
    assert mapping == {"a": 1}


@pytest.mark.parametrize("copied", [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy])
def test_a_copy_is_equal_and_frozen_too(copied):
    again = copied(FrozenDict({"a": 1}))
    assert again == {"a": 1}
    assert type(again) is FrozenDict


def test_it_is_written_as_json_like_any_dict():
    assert json.dumps(FrozenDict({"a": 1})) == '{"a": 1}'

"""`adapt --remove auto`: as many tokens are pruned as counted and held-out text can do without."""

import json

import pytest

import tokengraft as tg
from tokengraft.counts.count import count_with_hold_out
from tokengraft.pipeline.options import AdaptOptions
from tokengraft.pruning.order import COVERAGE

pytestmark = pytest.mark.usefixtures("transformers_running")


def adapted(*, out="out", **values):
    sizes = {name: values.pop(name) for name in ("add", "swap") if name in values}
    options = AdaptOptions(**{"quiet": True, "report": False} | values)
    texts = {"target": {"et": "et.txt"}, "keep": {"en": "en.txt"}}
    return tg.adapt("model", **texts, **sizes, remove="auto", out=out, options=options)


def command(tokengraft, *more, code=0):
    arguments = ["adapt", "model", "--target", "et=et.txt", "--keep", "en=en.txt", "--out", "out", "--quiet", *more]
    return tokengraft(*arguments, code=code)


def parts(base):
    """The texts as `adapt` divides them: counts and held-out documents."""
    default = AdaptOptions()
    options = {name: getattr(default, name) for name in ("read_options", "count_options", "hold_out")}
    return [count_with_hold_out(base, name, **options) for name in ("et.txt", "en.txt")]


def kept_shares(base, removed):
    """The share of the tokens of each held-out text that stay without some tokens."""
    for part in parts(base):
        found = tg.count(base, iter(part.held_out)).tokens(base)
        yield sum(n for token, n in found.items() if token not in removed) / sum(found.values())


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("share", [None, 0.9, 0.5])
def test_as_many_tokens_are_pruned_as_all_held_out_documents_can_do_without(share):
    done = adapted(keep_coverage=share)
    removed = {removal.id for removal in done.order.removals}
    least = COVERAGE if share is None else share
    assert 0 < len(removed) == len(done.base.tokens) - len(done.tokenizer.tokens)
    assert min(kept_shares(done.base, removed)) >= least
    assert done.coverage == least
    point = next(point for point in done.prune_curve if point.removed == len(removed))
    assert point.rows == done.tokenizer.n_rows == done.rows[1]
    assert (-point.parameters, -point.bytes) == done.transplant.growth
    for name, cost in zip(("et", "en"), point.cost.values(), strict=True):
        before, after = (done.evaluation[side, name].tokens for side in ("base", "new"))
        assert cost == pytest.approx(after / before - 1)


@pytest.mark.usefixtures("place")
def test_one_more_token_would_be_too_many():
    done = adapted(keep_coverage=0.9)
    found = [part.counts.tokens(done.base) for part in parts(done.base)]
    more = adapted(out="more", keep_coverage=0.5).order.removals
    assert more[: len(done.order)] == done.order.removals
    removed = {removal.id for removal in more[: len(done.order) + 1]}
    # The corpus is a mix in equal parts, by pretokens: nearly the mean.
    mixed = sum(sum(n for token, n in one.items() if token not in removed) / sum(one.values()) for one in found) / 2
    assert min(mixed, *kept_shares(done.base, removed)) < 0.9


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("add", [5, "auto"])
def test_tokens_can_be_learned_after_pruning(add):
    done = adapted(add=add, keep_coverage=0.9)
    alone = adapted(out="alone", keep_coverage=0.9)
    assert done.order == alone.order
    assert len(done.extension) == 5 or add == "auto"
    assert len(done.tokenizer.tokens) == len(alone.tokenizer.tokens) + len(done.extension)
    assert done.prune_curve == ()
    assert done.size_reason.endswith(f"{len(alone.order)} pruned: {alone.size_reason.partition(': ')[2]}")
    ids_change = len(done.extension) < len(done.order)
    assert (done.plan.summary.moved > 0) == ids_change


def test_output_record_and_files_say_what_was_chosen(place, tokengraft):
    shown = command(tokengraft, "--remove", "auto", "--keep-coverage", "0.9")
    assert "\nsize            at least 90 % of the tokens of the corpus and of every held-out text stay" in shown.out
    removed = shown.out.split(" removed, ")[0].split()[-1]
    assert [line.split()[0] for line in shown.out.splitlines() if line.endswith("chosen")] == [removed]
    adaptation, record = (
        json.loads((place / "out" / name).read_text()) for name in ("adaptation.json", "tokengraft.json")
    )
    assert adaptation["request"] == record["request"]
    assert record["request"]["options"]["remove"] == "auto"
    assert record["request"]["options"]["keep_coverage"] == 0.9
    assert record["transplant"]["removed"] == adaptation["pruned"] == int(removed)
    assert adaptation["coverage"] == 0.9
    assert int(removed) in [point["removed"] for point in adaptation["prune_curve"]]
    tokengraft("adapt", "--recipe", "out/tokengraft.json", "--out", "again", "--quiet")
    for path in (place / "out").iterdir():
        assert path.read_bytes() == (place / "again" / path.name).read_bytes()


@pytest.mark.usefixtures("place")
def test_the_report_has_the_curve_and_the_reason(tokengraft, monkeypatch):
    seen = []
    monkeypatch.setattr(tg.pipeline.write, "report_page", lambda content: seen.append(content) or "page")
    command(tokengraft, "--remove", "auto")
    (content,) = seen
    assert content.prune_curve
    assert content.size_reason.startswith(f"{len(content.plan.removed)} pruned: at least 99.95 % of the tokens")


def test_a_dry_run_says_that_the_number_is_chosen_later(place, tokengraft):
    shown = command(tokengraft, "--remove", "auto", "--dry-run").out
    rows = tg.load("model").n_rows
    assert f"rows            {rows} → {rows}, less what --remove auto removes" in shown
    assert "parameters      +0, less what --remove auto removes" in shown
    shown = json.loads(command(tokengraft, "--remove", "auto", "--add", "7", "--dry-run", "--json").out)
    assert (shown["removes_auto"], shown["rows_after"]) == (True, rows + 7)
    assert not json.loads(command(tokengraft, "--remove", "7", "--dry-run", "--json").out)["removes_auto"]
    assert not (place / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--remove auto --keep-coverage nan", "--keep-coverage is nan; it must be above 0"),
        ("--remove 5 --keep-coverage 0.9", "--keep-coverage has no effect without --remove auto"),
        ("--swap 5 --remove auto", "--swap 5 was given together with --add 0 --remove auto"),
        ("--remove auto --keep-llama-cpp-hash", "--keep-llama-cpp-hash needs ids that do not move"),
        ("--remove auto --add 300 --keep-llama-cpp-hash", "--keep-llama-cpp-hash needs ids that do not move"),
    ],
)
def test_values_without_meaning_or_effect_are_refused(place, tokengraft, options, message):
    shown = command(tokengraft, *options.split(), code=2).err
    assert message in shown
    assert "\nhint: " in shown
    assert not (place / "out").exists()

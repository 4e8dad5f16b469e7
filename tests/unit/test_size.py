"""How many tokens to add: the support of new tokens, and `choose_size`."""

from collections import Counter
from fractions import Fraction

import builders
import pytest
import rank_files
from hypothesis import given
from hypothesis import strategies as st

import tokengraft as tg
from tokengraft import errors
from tokengraft.measure.choose_size import SizeOptions, grid, rare_warning, supported_size
from tokengraft.measure.segments import Text
from tokengraft.measure.sizes import CurvePoint, Sizes, bytes_per_token, expected, knee_of, support_bounds, text_ratio

ESTONIAN = ["põdrad põõsas õunad õues", "kassid ja koerad jooksevad", "õhtu õdus põdrad", "sinine taevas", "punane õun"]
TRAINING = [document for place, document in enumerate(ESTONIAN) for _ in range(15 - 3 * place)]
ENGLISH = ["the cat sat on the mat", "that other cat"] * 3


def llama2_like(folder):
    (folder / "tokenizer.model").write_bytes(builders.llama2_like())
    return tg.load(folder / "tokenizer.model")


KINDS = {
    "byte-level": lambda folder: tg.load(builders.write(folder, builders.byte_level())),
    "merge skipping": lambda folder: tg.load(builders.write(folder, builders.byte_level(ignore_merges=True))),
    "sentencepiece": lambda folder: tg.load(builders.write(folder, builders.sentencepiece())),
    "no byte fallback": lambda folder: tg.load(builders.write(folder, builders.sentencepiece(byte_fallback=False))),
    "model file": llama2_like,
    "tiktoken": lambda folder: tg.load(rank_files.explicit(folder)),
    "tekken": lambda folder: tg.load(rank_files.write_tekken(folder)),
}


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """By whether merges are skipped."""
    names = {True: "merge skipping", False: "byte-level"}
    return {skip: KINDS[name](tmp_path_factory.mktemp("base")) for skip, name in names.items()}


@pytest.fixture(scope="module")
def of_every_kind(tmp_path_factory):
    return {kind: load(tmp_path_factory.mktemp("base")) for kind, load in KINDS.items()}


@pytest.fixture(scope="module")
def base(bases):
    return bases[True]


@pytest.fixture(scope="module")
def counts(base):
    return tg.count(base, iter(TRAINING))


@pytest.fixture(scope="module")
def extension(base, counts):
    return tg.extend(base, counts, 40)


@pytest.fixture
def held_out():
    return Text("et", tuple(ESTONIAN))


def occurring(base, extension, size):
    """The slow version: encodes every document of the training text with the extension of that size."""
    cut = extension[:size]
    extended = cut.apply(base)
    counted = Counter(i for document in TRAINING for i in extended.encode(document))
    return [counted[extended.ids[token]] for token in cut.tokens]


def choose(base, extension, counts, text, **options):
    return tg.measure.choose_size(base, extension, counts, text, SizeOptions(**options))


def encoded_support(base, extension, counts):
    """The slow version for counts: encodes them with the extended tokenizer."""
    extended = extension.apply(base)
    total = counts.tokens(extended)
    return [total.get(extended.ids[token], 0) for token in extension.tokens]


def rare(base, extension, size, below):
    times = occurring(base, extension, size)
    return sum(n < below for n in times) / len(times)


@pytest.mark.parametrize("kind", KINDS)
def test_support_is_what_encoding_the_training_text_gives(kind, tmp_path):
    base = KINDS[kind](tmp_path)
    sizes = [1, 3, 10, 25, 40]
    found = tg.measure.curve(base, tg.count(base, iter(TRAINING)), Text("et", tuple(TRAINING)), sizes)
    assert found.points[0][4:] == (None, None, None)
    for point in found.points[1:]:
        expected = tuple(rare(base, found.extension, point.tokens, below) for below in (10, 100, 1000))
        assert (point.below_10, point.below_100, point.below_1000) == expected
        extended = found.extension[: point.tokens].apply(base)
        scored = tg.evaluate({"new": extended}, {"et": iter(TRAINING)})["new", "et"]
        assert point.bytes_per_token == scored.bytes_per_token
    assert {point.below_10 for point in found.points[1:]} != {0.0}


@pytest.mark.parametrize("kind", KINDS)
@given(words=st.lists(st.text("aãb ", min_size=1, max_size=12), min_size=1, max_size=12))
def test_one_encoding_gives_support_and_bytes_per_token_of_every_size(of_every_kind, words, kind):
    base = of_every_kind[kind]
    counts, text = tg.count(base, iter(words * 2)), Text("t", tuple(words))
    extension = tg.extend(base, counts, 6)
    sizes = Sizes(base, extension)
    assert sizes.is_one_run == (not extension.characters)
    found, weighted = sizes.support(counts), sizes.support(counts.scale(7))
    rates = [sizes.bytes_per_token(measured) for measured in (counts, text)]
    for size in range(len(extension) + 1):
        extended = extension[:size].apply(base)
        assert found(size) == encoded_support(base, extension[:size], counts)
        assert weighted(size) == [7 * times for times in found(size)]
        assert [rate(size) for rate in rates] == [bytes_per_token(extended, measured) for measured in (counts, text)]


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(st.text("aab õ\u732b", min_size=1, max_size=12), min_size=1, max_size=12), st.integers(1, 30))
def test_the_merges_alone_bound_how_often_tokens_occur(of_every_kind, kind, documents, n):
    base = of_every_kind[kind]
    counts = tg.count(base, iter(documents * 3))
    extension = tg.extend(base, counts, n)
    occurring, (least, most) = encoded_support(base, extension, counts), support_bounds(extension)
    assert all(low <= times <= high for low, times, high in zip(least, occurring, most, strict=True))
    if all(merge.left != merge.right for merge in extension.merges):
        first = len(extension.characters)
        assert least[first:] == occurring[first:] == most[first:]


@pytest.mark.parametrize("max_rare", [0.0, 0.05, 0.25, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("multiple", [1, 4])
def test_the_supported_size_is_within_the_limit_and_the_next_one_is_not(
    base, counts, extension, held_out, max_rare, multiple
):
    choice = choose(base, extension, counts, held_out, max_rare=max_rare, min_support=8, multiple=multiple)
    assert choice.knee is None
    assert choice.size == choice.supported
    assert choice.size % multiple == 0
    assert rare(base, extension, choice.supported, 8) <= max_rare
    beyond = [size for size in (*grid(40, multiple), choice.supported + multiple) if choice.supported < size <= 40]
    assert all(rare(base, extension, size, 8) > max_rare for size in beyond)
    assert (choice.supported == 40) == (not beyond)
    sizes = [point.tokens for point in choice.curve.points]
    assert sizes == [0, *grid(40, multiple)]


def test_the_reason_names_what_decided(base, counts, extension, held_out):
    everything = choose(base, extension, counts, held_out, max_rare=1)
    assert everything.size == everything.supported == 40
    assert everything.reason == "40 new tokens, all that were learned: the knee of the curve is beyond them"
    few = choose(base, extension, counts, held_out, min_support=8)
    assert 0 < few.size < 40
    assert few.reason == (
        f"{few.size} new tokens: the knee of the curve is beyond 40, but beyond {few.size} more than 25 % of the new "
        "tokens occur fewer than 8 times"
    )
    flat = choose(base, extension, counts, Text("one word", ("põdrad",)), max_rare=1)
    assert flat.size == flat.knee < flat.supported == 40
    assert flat.reason == f"{flat.size} new tokens, the knee of the curve: 1,000 more gain less than 1 %"
    both = choose(base, extension, counts, Text("one word", ("põdrad",)), min_support=25)
    assert both.size == both.supported < both.knee == flat.knee
    assert f"the knee of the curve is at {both.knee}, but beyond {both.size} more than 25 %" in both.reason


def test_the_choice_does_not_depend_on_how_the_text_is_given(base, counts, extension, held_out, tmp_path):
    (tmp_path / "et.txt").write_text("\n".join(ESTONIAN), encoding="utf-8")
    counted = tg.count(base, iter(ESTONIAN))
    results = [
        choose(base, extension, counts, text, min_support=8)
        for text in (held_out, counted, iter(ESTONIAN), tmp_path / "et.txt")
    ]
    assert len({(result.size, result.knee, result.supported, result.reason) for result in results}) == 1
    assert len({result.curve.points for result in results}) == 1


def test_an_extension_is_cut_not_trained_again(base, counts, extension, held_out):
    short = choose(base, extension[:20], counts, held_out, max_rare=1)
    assert short.size == 20
    assert short.curve.extension == tg.extend(base, counts, 20)


def test_fewer_tokens_than_one_multiple_are_chosen_if_no_more_are_supported(base, counts, extension, held_out):
    few = choose(base, extension, counts, held_out, multiple=64, max_rare=1)
    assert few.size == 40
    one = choose(base, extension, counts, held_out, multiple=32, max_rare=0, min_support=8)
    assert 0 < one.size < 32
    assert rare(base, extension, one.size, 8) == 0
    assert choose(base, extension, counts, held_out, multiple=32, max_rare=1).size == 32


def test_no_size_below_the_smallest_is_chosen(base, counts, extension, held_out):
    free = choose(base, extension, counts, held_out, min_support=8)
    bound = choose(base, extension, counts, held_out, min_support=8, min_size=30)
    assert free.size < bound.size == 30
    assert bound.supported == 0
    limit = "more than 25 % of the new tokens occur fewer than 8 times"
    assert bound.reason == f"30 new tokens, the fewest that were allowed, although {limit}"
    assert [point.tokens for point in bound.curve.points[:2]] == [0, 30]
    at_knee = choose(base, extension, counts, Text("one word", ("põdrad",)), max_rare=1, min_size=30)
    assert at_knee.size == 30
    english = choose(base, extension, counts, Text("en", tuple(ENGLISH)), max_rare=1, min_size=30)
    assert english.size == english.knee == 30


def test_a_token_is_rare_by_its_expected_occurrences_in_the_training_text(base, counts, extension):
    n_bytes = counts.totals.bytes
    for training_text in (1, n_bytes // 7, n_bytes - 1, n_bytes, 3 * n_bytes + 1, 10**12):
        ratio = text_ratio(counts, training_text)
        for below in (1, 8, 100):
            times = occurring(base, extension, 40)
            slow = [Fraction(n * training_text, n_bytes) < below for n in times]
            assert [n < below for n in expected(times, ratio)] == slow


def test_the_default_training_text_is_the_counted_text(base, counts, extension, held_out):
    default, none, same, twice = (
        choose(base, extension, counts, held_out, min_support=16, **options)
        for options in (
            {},
            {"training_text": None},
            {"training_text": counts.totals.bytes},
            {"training_text": 2 * counts.totals.bytes},
        )
    )
    assert default == none
    assert (default.size, default.curve) == (same.size, same.curve)
    assert "training text" not in default.reason
    limit = choose(base, extension, counts, held_out, min_support=8)
    assert default.size < twice.size == limit.size
    assert twice.reason.endswith(f"occur fewer than 16 times in {2 * counts.totals.bytes:,} bytes of training text")
    for point in twice.curve.points[1:]:
        assert point.below_10 == rare(base, extension, point.tokens, 5)
        assert point.below_100 == rare(base, extension, point.tokens, 50)
    with pytest.raises(errors.CountsError, match=r"fewer than 16 times in 9 bytes of training text: it is too little"):
        choose(base, extension, counts, held_out, min_support=16, training_text=9)


def test_weighted_counts_have_no_expected_occurrences(base, counts, extension, held_out):
    for weighted in (counts.scale(2), counts.scale("1/2")):
        with pytest.raises(errors.CountsError, match="the counts were weighted") as refused:
            choose(base, extension, weighted, held_out, training_text=10**6)
        assert "drop `training_text`" in refused.value.hint
        with pytest.raises(errors.CountsError, match="the counts were weighted"):
            choose(base, extension, weighted, held_out, min_support=2)
    assert text_ratio(tg.count(base, iter(TRAINING), count_options=tg.CountOptions(min_count=4)), 10**6) == text_ratio(
        counts, 10**6
    )


def test_the_warning_names_the_training_text():
    assert "fewer than 100 times in the text:" in rare_warning([1])
    assert "fewer than 100 times in 5,000 bytes of training text:" in rare_warning([1], 5000)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"max_rare": -0.1}, "`max_rare` is -0.1"),
        ({"max_rare": 1.5}, "`max_rare` is 1.5"),
        ({"max_rare": float("nan")}, "`max_rare` is nan"),
        ({"min_support": 0}, "`min_support` is 0"),
        ({"multiple": 0}, "`multiple` is 0"),
        ({"min_size": 0}, "`min_size` is 0"),
        ({"min_size": 41}, "at least 41 are asked for"),
        ({"training_text": 0}, "`training_text` is 0"),
    ],
)
def test_options_out_of_range_are_refused(base, counts, extension, held_out, options, match):
    with pytest.raises(errors.OptionError, match=match):
        choose(base, extension, counts, held_out, **options)


def test_what_has_no_size_is_refused(base, counts, extension, held_out):
    with pytest.raises(errors.CountsError, match="more than 25 % of the new tokens occur fewer than 1,000 times"):
        choose(base, extension, counts, held_out, min_support=1000)
    with pytest.raises(errors.CountsError, match="no size is worth its cost"):
        choose(base, extension, counts, Text("en", tuple(ENGLISH)), min_support=1)
    with pytest.raises(errors.CountsError, match="has no tokens, so there is no size"):
        choose(base, extension[:0], counts, held_out)
    with pytest.raises(errors.OptionError, match="the held-out text has no tokens"):
        choose(base, extension, counts, Text("nothing", ()))
    with pytest.raises(errors.CountsError, match="weighted or lack rare pretokens"):
        choose(base, extension, counts, counts.scale(2))


def test_another_base_or_pipeline_is_refused(base, counts, extension, held_out, tmp_path):
    extended = extension[:1].apply(base)
    with pytest.raises(errors.InvalidTokenizerError, match="made for the tokenizer"):
        choose(extended, extension, counts, held_out)
    pieces = KINDS["sentencepiece"](tmp_path / "pieces")
    other = tg.count(pieces, iter(ESTONIAN))
    with pytest.raises(errors.CountsError, match="another pipeline"):
        choose(base, extension, other, held_out)
    with pytest.raises(errors.CountsError, match="another pipeline"):
        choose(base, extension, counts, other)


@given(
    largest=st.integers(1, 70_000),
    multiple=st.integers(1, 300),
    smallest=st.integers(1, 70_000),
)
def test_a_grid_has_the_multiples_it_should(largest, multiple, smallest):
    smallest = min(smallest, largest)
    sizes = grid(largest, multiple, smallest)
    assert sizes == sorted(set(sizes))
    assert 1 <= len(sizes) <= 22
    assert smallest <= sizes[0] <= sizes[-1] <= largest
    top = largest // multiple * multiple
    assert sizes == [largest] if top < max(smallest, 1) else sizes[-1] == top
    assert sizes == [largest] or all(size % multiple == 0 for size in sizes)


@given(
    shares=st.lists(st.floats(0, 1), min_size=1, max_size=80),
    limit=st.floats(0, 1),
    multiple=st.integers(1, 9),
    rising=st.booleans(),
)
def test_the_search_is_exact_for_its_definition(shares, limit, multiple, rising):
    at = dict(enumerate(sorted(shares) if rising else shares, start=1))
    sizes = grid(len(at), multiple)
    found = supported_size(sizes, at.__getitem__, SizeOptions(limit, 100, multiple))
    assert found == 0 or at[found] <= limit
    assert all(at[size] > limit for size in sizes if size > found)
    step = multiple if found >= multiple else 1
    following = min((size for size in sizes if size > found), default=None)
    if following is not None and following - found > step and following <= 16 * multiple:
        assert at[found + step] > limit
    if rising and len(at) <= 16:
        multiples = [size for size in at if size % multiple == 0 and at[size] <= limit]
        singles = [size for size in at if at[size] <= limit and (size < multiple or len(at) < multiple)]
        assert found == max(multiples or singles, default=0)


def test_the_curve_command_shows_support(base, tmp_path, tokengraft):
    folder = tg.save(base, tmp_path / "tok", verify=False)
    text = tmp_path / "et.txt"
    text.write_text("\n".join(TRAINING), encoding="utf-8")
    command = ["extend", str(folder), "--add", "40", "--curve", "--quiet"]
    command += ["--corpus", str(text), "--held-out", str(text)]
    heads, *rows = tokengraft(*command).out.splitlines()
    assert heads.split("  ")[-1].strip() == "below 1,000"
    assert [row.split()[-1] for row in rows if row.split()[0] == "40"] == ["100.0%"]
    points = tokengraft(*command, "--json").json["points"]
    assert points[0]["below_10"] is None
    assert 0 < points[-1]["below_10"] < points[-1]["below_100"] == 1


def test_extend_shows_chooses_and_warns_by_the_training_text(base, tmp_path, tokengraft):
    folder = tg.save(base, tmp_path / "tok", verify=False)
    text = tmp_path / "et.txt"
    text.write_text("\n".join(TRAINING), encoding="utf-8")
    command = ["extend", str(folder), "--corpus", str(text), "--documents", "lines", "--quiet", "--json"]
    n_bytes = tg.count(base, iter(TRAINING)).totals.bytes
    found = {}
    for size in ("", f"{n_bytes}", f"{10 * n_bytes}"):
        more = ["--training-text", size] if size else []
        curve = tokengraft(*command, "--add", "40", "--curve", "--held-out", text, *more).json["points"]
        chosen = ["--add", "auto", "--held-out", str(text), "--max-add", "40"]
        scaled = ["--training-text", str(6 * int(size or n_bytes))]
        choice = tokengraft(*command, *chosen, *scaled, "--out", tmp_path / f"auto{size}").json["size"]["size"]
        found[size] = (
            curve,
            choice,
            tokengraft(*command, "--add", "40", "--out", tmp_path / f"add{size}", *more).json["warnings"],
        )
    default, same, more = found.values()
    assert default[:2] == same[:2]
    rare_rows = 40 * more[0][-1]["below_100"]
    assert default[2][0].startswith("40 of the 40 new tokens occur fewer than 100 times in the text:")
    assert same[2][0] == default[2][0].replace("in the text:", f"in {n_bytes:,} bytes of training text:")
    assert more[2][0].startswith(f"{rare_rows:.0f} of the 40 ")
    assert default[0][-1]["below_10"] == more[0][-1]["below_100"] < default[0][-1]["below_100"] == 1
    assert default[1] < more[1]
    weights = ["extend", folder, "--corpus", text, text, "--weight", 2, "--weight", 1, "--documents", "lines"]
    for arguments, message in (
        ([*command, "--add", "4", "--method", "naive-regen"], "--training-text is for continued training"),
        ([*weights, "--add", "4"], "--training-text and --weight do not go together"),
    ):
        assert message in tokengraft(*arguments, "--training-text", "2KB", "--out", tmp_path / "no", code=2).err
        assert not (tmp_path / "no").exists()


def test_a_few_tokens_that_the_text_lacks_do_not_make_a_knee():
    rates = {0: 2.0, 1000: 2.5, 1100: 2.5, 2000: 2.8, 4000: 2.83, 8000: 2.86}
    points = [CurvePoint(tokens, rate, rate / 2 - 1, None) for tokens, rate in rates.items()]
    assert knee_of(points) == 2000
    assert knee_of(points[:4]) is None
    assert knee_of(points[:1]) is None
    assert knee_of([]) is None

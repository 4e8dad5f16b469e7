"""The fuzzing program: what it found once stays fixed, a short run finds nothing, and it notices what it is for.

`make fuzz` runs it for longer. A new case is the mutated files of a finding, in `findings/TARGET/NAME`.
"""

from pathlib import Path
from random import Random

import builders
import pytest

import tokengraft as tg
from fuzz import seeds, tokenizer_checks
from fuzz.cases import ACCEPTED, EARLY, FINDING, LATE, Cases, run_files
from fuzz.file_mutations import is_well_formed, mutate_file
from fuzz.report import findings, table
from fuzz.run import Plan, run
from fuzz.targets import TARGETS, Target
from tokengraft import errors
from tokengraft.formats import sources as files

CASES = Path(__file__).parent / "findings"
KEPT = sorted(path.relative_to(CASES).as_posix() for path in CASES.glob("*/*"))
N_CASES = 30


@pytest.fixture(autouse=True)
def _only_tiny(monkeypatch):
    """Seeds that need no other package and no data, so that cases are the same everywhere."""
    monkeypatch.setenv(seeds.ONLY_TINY, "1")


@pytest.mark.parametrize("name", KEPT)
def test_what_was_found_once_gives_a_result_or_an_error(name):
    target, folder = TARGETS[name.partition("/")[0]], CASES / name
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    whole = next(seed for seed in target.seeds() if files.keys() <= seed.keys()) | files
    outcome = run_files(target, whole, [*files], 0)
    assert outcome.kind in (ACCEPTED, LATE, EARLY), outcome.reason


def test_a_short_run_over_all_parsers_finds_nothing(tmp_path):
    tallies = run(Plan(tuple(TARGETS), cases=N_CASES, findings=tmp_path))
    assert not any(tally.kinds[FINDING] for tally in tallies.values()), findings(tallies)
    assert all(sum(tally.kinds.values()) == N_CASES for tally in tallies.values())
    assert all(tally.kinds[ACCEPTED] for tally in tallies.values()), table(tallies)


def test_a_process_that_dies_is_a_finding_and_the_run_goes_on(tmp_path):
    tallies = run(Plan(("self-test",), cases=12, findings=tmp_path))
    kinds = tallies["self-test"].kinds
    dying = sum(Random(index).random() < 0.2 for index in range(12))
    assert (kinds[FINDING], kinds[ACCEPTED]) == (dying, 12 - dying)
    assert len(list(tmp_path.glob("self-test-0-*/report.txt"))) == dying > 0


@pytest.mark.parametrize("error", [ValueError("x"), RecursionError(), MemoryError(), SystemExit(1), UserWarning("x")])
def test_any_other_exception_is_a_finding(error):
    def check(*_):
        raise error

    assert run_files(Target("x", seeds.record_file, ("*",), check), {"a": b""}, [], 0).kind == FINDING


def test_an_error_without_a_hint_is_a_finding():
    def check(*_):
        raise errors.OptionError("x", hint="")

    assert run_files(Target("x", seeds.record_file, ("*",), check), {"a": b""}, [], 0).kind == FINDING


def test_a_tokenizer_json_that_is_written_wrong_is_a_finding(tmp_path, monkeypatch):
    tokenizer = tg.load(builders.write(tmp_path, builders.byte_level()))
    tokenizer_checks.require_saved(tokenizer)
    monkeypatch.setattr(files, "write_tokenizer_json", lambda _: b"{}")
    with pytest.raises(tokenizer_checks.Difference, match="what was written is refused"):
        tokenizer_checks.require_saved(tokenizer)


def test_memory_out_of_proportion_is_a_finding():
    def check(*_):
        bytearray(400 << 20)[::4096] = b"x" * (100 << 10)

    outcome = run_files(Target("x", seeds.record_file, ("*",), check), {"a": b""}, [], 0)
    assert outcome.kind == FINDING
    assert "memory grew" in outcome.reason


@pytest.mark.parametrize("name", TARGETS)
def test_a_case_has_the_same_files_again(name):
    cases = [Cases(TARGETS[name], 3, [*TARGETS[name].seeds()]) for _ in range(2)]
    assert [cases[0].files(index) for index in range(10)] == [cases[1].files(index) for index in range(10)]


@pytest.mark.parametrize("name", ["a.json", "a.model", "a.safetensors", "a.parquet", "a.gz"])
def test_most_mutations_keep_a_file_well_formed(name):
    by_suffix = {"json": "tokenizer-json", "model": "sentencepiece", "safetensors": "safetensors"}
    by_suffix |= {"parquet": "counts", "gz": "corpus"}
    seed = next(
        raw
        for one in TARGETS[by_suffix[name[2:]]].seeds()
        for file, raw in one.items()
        if file.endswith(name[1:]) and is_well_formed(name, raw)
    )
    mutated = [mutate_file(name, seed, Random(index), [seed]) for index in range(100)]
    assert sum(is_well_formed(name, raw) for raw in mutated) > 40
    assert len({*mutated}) > 60

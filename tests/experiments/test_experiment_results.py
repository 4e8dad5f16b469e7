"""Tables show the paper's figures beside ours, and the page of figures is up to date."""

import re
from pathlib import Path

import pytest

from lab.experiments import equal_compute, paper, registry
from lab.experiments.docs import DOCS, PLACE, PLOTS, TEMPLATE, docs_page, finished, rows_of
from lab.experiments.experiment import Claim, Experiment
from lab.experiments.results import page
from lab.experiments.tables import from_csv, to_csv

RESULTS = Path(__file__).parents[2] / "lab" / "experiments" / "results"


def extension_rows(ours=3.2, naive=3.0, unreachable=0.0, languages=("et", "ru", "ar")):
    shared = {"model": "llama3", "size": 1_000, "renyi": 0.6, "unused_added": 0.1}
    rates = {"continued": (ours, unreachable), "naive": (naive, 0.1)}
    rows = []
    for language in languages:
        base = {"model": "llama3", "language": language, "method": "base", "size": 0, "renyi": 0.6}
        rows.append(base | {"bytes_per_token": 2.6, "by_merges": 2.6})
        for method, (rate, share) in rates.items():
            values = {"bytes_per_token": rate, "by_merges": rate, "unreachable_added": share}
            gain = ours / naive - 1
            paired = {"gain": gain, "gain_low": gain - 0.01, "gain_high": gain + 0.01} if method == "continued" else {}
            rows.append({**shared, "language": language, "method": method, **values, **paired})
    return rows


def test_the_figure_of_the_paper_is_beside_ours():
    text = page(registry.experiment_of("extension"), extension_rows())
    assert (
        "| Llama-3 | 1,000 | 3 | +6.7 % (3.3 %) | 3 of 3 (88.6 %) | 0.0 % (-0.1 %) | 0.0 % | 10.0 % (4.5 %) |" in text
    )
    assert "| Latn | et | +6.7 % (4.7 %) |" in text
    assert "The text differs from the paper's" in text


def test_a_claim_that_does_not_hold_is_said_so():
    text = page(registry.experiment_of("extension"), extension_rows(ours=2.9, unreachable=0.5))
    assert "| No token of continued training is unreachable | **no** | 50.00 % |" in text
    assert "| There are no notable losses | **no** | lowest -3.3 % [-4.3, -2.3]" in text


def test_a_claim_about_bytes_per_token_holds_only_if_its_interval_says_so():
    text = page(registry.experiment_of("extension"), extension_rows(ours=3.02))  # the mean gain is 0.7 %
    assert "| **no** | by intervals for 0 of 1 tokenizers and sizes; means 0.7 to 0.7 % (paper: 2.7 to 9.6 %) |" in text


def test_a_claim_about_a_script_needs_two_languages_of_it():
    experiment = registry.experiment_of("extension")
    claim = "| Llama-3: the gain is larger for Latin script than for all but Latin and Cyrillic | **no** |"
    assert claim in page(experiment, extension_rows(languages=("et", "fi", "ru", "ar")))
    assert "the gain is larger for" not in page(experiment, extension_rows(languages=("et", "ru", "ar")))


def shifted(rows, name, value, spread):
    """The rows with another interval in their columns of this name."""
    interval = {name: value, f"{name}_low": value - spread, f"{name}_high": value + spread}
    return [row | interval if row.get(name) is not None else row for row in rows]


@pytest.mark.parametrize(
    ("name", "column", "value", "text"),
    [
        ("naive-methods", "target_gain", -0.01, "`naive-regen` works better than `naive-append`"),
        ("naive-methods", "target_gain", -0.01, "`add-tokens` is worse than `naive-regen` for the language"),
        ("naive-methods", "english_gain", -0.01, "`add-tokens` is worse than `naive-regen` for English"),
        ("naive-methods", "target_gain", 0.01, "`naive-prepend` gives more bytes per token than `naive-regen`"),
        ("naive-methods", "english_change", -0.01, "`naive-prepend` changes English"),
        ("budget", "gain", 0.01, "8,000 tokens: continued training on 10 million characters"),
        ("order", "english_gain", 0.0, "The order makes no difference"),
        ("prune-extend", "over_naive", 0.01, "Continued training gives more bytes per token"),
        ("prune-extend", "english_over_leaf", 0.0, "Counting tokens is at least as good"),
        ("prune-extend", "target_over_leaf", 0.0, "Merge-based pruning is comparable"),
        ("prune", "over_leaf", 0.0, "`leaf-frequency` and `merge` overlap"),
        ("prune", "over_leaf", 0.0, "`frequency` and removing the last ids keep no more"),
    ],
)
def test_a_claim_does_not_hold_by_its_mean_alone(name, column, value, text):
    committed = rows_of(RESULTS, name)
    for spread, holds in ((0.0005, True), (0.02, False)):
        claims = registry.experiment_of(name).claims(shifted(committed, column, value, spread))
        (claim,) = [claim for claim in claims if claim.text.startswith(text)]
        assert claim.holds == holds
        assert "[" in claim.here


def test_gains_by_language_end_with_the_median():
    text = page(registry.experiment_of("extension"), extension_rows())
    assert "| Arabic | +6.7 [+5.7, +7.7] | +6.7 | +6.7 | 1 | 1 | 0 |" in text
    assert "| **median** | +6.7 | +6.7 | +6.7 | 3 | 3 | 0 |" in text


@pytest.mark.parametrize("figures", [paper.GAIN, paper.WIN_RATE, paper.RENYI_GAIN, paper.UNREACHABLE])
def test_the_paper_has_a_figure_for_every_tokenizer_and_size(figures):
    assert {model: [*sizes] for model, sizes in figures.items()} == {model: [*paper.SIZES] for model in paper.MODELS}


def test_rows_survive_csv():
    rows = [{"a": "x", "b": 1, "c": 0.25, "d": None}, {"a": "y", "b": -2, "c": 1e-9, "e": "1k"}]
    assert from_csv(to_csv(rows)) == [{**dict.fromkeys("abcde"), **row} for row in rows]


def test_the_page_names_every_experiment_once():
    places = [place[2] for place in PLACE.finditer(TEMPLATE.read_text(encoding="utf-8")) if place[1] == "experiment"]
    assert sorted(places) == sorted(registry.MODULES)


def test_the_page_of_figures_is_up_to_date():
    hint = "run `python -m lab.experiments docs`"
    assert (DOCS / "reproduce.md").read_text(encoding="utf-8") == docs_page(RESULTS), hint
    for experiment in finished(RESULTS):
        table = (RESULTS / experiment.name / "table.md").read_text(encoding="utf-8")
        assert table == page(experiment, rows_of(RESULTS, experiment.name)), hint
    assert {path.stem for path in (DOCS / PLOTS).iterdir()} == {experiment.name for experiment in finished(RESULTS)}


def test_the_tables_and_the_plot_at_equal_compute_are_made_from_the_results():
    text, plot = equal_compute.page()
    assert (equal_compute.FOLDER / "table.md").read_text(encoding="utf-8") == text
    assert plot == equal_compute.PLOT.read_bytes()


def test_results_have_versions_hashes_and_no_paths():
    for experiment in finished(RESULTS):
        text = (RESULTS / experiment.name / "run.json").read_text(encoding="utf-8")
        assert '"tokengraft": ' in text
        assert not re.search(r"(?<![\w.])[/~]\w", text), experiment.name


def test_every_claim_names_what_was_measured():
    for experiment in finished(RESULTS):
        claims = experiment.claims(rows_of(RESULTS, experiment.name))
        assert all(isinstance(claim, Claim) and claim.here for claim in claims)
        assert isinstance(experiment, Experiment)

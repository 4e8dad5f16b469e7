"""The expected cost of pruning in text that was not counted."""

from collections import Counter

import pytest
from checkpoints import ENGLISH, ESTONIAN, checkpoint, write_texts

import tokengraft as tg
from tokengraft.pruning.cost import BURST, MUCH, unseen_cost
from tokengraft.pruning.methods import by_frequency, usefulness

pytestmark = pytest.mark.usefixtures("transformers_running")
WORDS = " ".join([*ENGLISH[:3], *ESTONIAN[:4], "mat kassi koer sat the then thing"])


@pytest.mark.parametrize("n", [1, 10, 30, 50, 70, 90])
@pytest.mark.parametrize("factor", [1, 3])
def test_the_expected_cost_is_that_of_leaving_out_every_occurrence_in_turn(base, n, factor):
    kept = tg.count(base, iter([WORDS]))
    counts = kept.scale(factor) if factor > 1 else kept
    order, mixed, found = tg.prune_order(base, counts), counts.tokens(base), kept.tokens(base)
    expected, candidates = usefulness(base, mixed), {removal.id for removal in order.removals}

    def removed(frequencies):
        steps = by_frequency(base, candidates, frequencies, expected=expected)
        return {token for token, _ in [*steps][:n]}

    gone = {removal.id for removal in order.removals[:n]}
    weights = {token: 1 if token in gone else BURST for token in found}
    lost = {token for token in found if token in gone or token in removed(Counter(mixed) - Counter({token: factor}))}
    most = order.removals[n - 1].decided_by
    ties = {token for token in found if most and mixed[token] - factor == most}  # decided by their ids
    low, high = (
        sum(found[i] * weights[i] for i in tokens) / sum(found.values()) for tokens in (lost - ties, lost | ties)
    )
    assert low - 0.02 <= unseen_cost(base, order, n, mixed, found, factor) <= high + 0.02


def test_pruning_more_than_the_kept_text_can_spare_warns_of_what_other_text_will_need(tmp_path, monkeypatch):
    checkpoint(tmp_path / "model")
    monkeypatch.chdir(write_texts(tmp_path))
    found = tg.adapt("model", target="lv.txt", keep={"en": iter(ENGLISH[:60])}, remove=100, out="little")
    (cost,) = found.kept_cost.values()
    assert cost > MUCH
    assert any(f"other text like en is expected to need {cost:.1%} more tokens" in line for line in found.warnings)
    assert found.as_dict()["kept_cost"] == {"en": cost}
    enough = tg.adapt("model", target="et.txt", keep={"en": iter(ENGLISH * 30)}, swap=4, out="enough")
    assert enough.kept_cost["en"] <= MUCH
    assert not any("other text like" in line for line in enough.warnings)

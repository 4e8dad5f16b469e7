"""Tasks from FLORES: items, distractors, and who wins."""

import numpy as np

from lab.experiments.training.choices import CHOICES, distractors, solve, solved, split


def test_distractors_are_other_texts_of_nearly_the_same_length():
    texts = ["x" * n for n in (9, 30, 10, 29, 11, 31, 12, 28)]
    found = distractors(texts)
    assert found.shape == (len(texts), CHOICES)
    assert all(row[0] == place and len({*row}) == CHOICES for place, row in enumerate(found.tolist()))
    assert {*found[0].tolist()} == {0, 2, 4, 6}
    assert {*found[5].tolist()} == {1, 3, 5, 7}


def test_halves_are_the_sentence_also_without_spaces():
    for sentence in ("one two three four", "東京都に住んでいます", "a", " "):
        first, second = split(sentence)
        assert first + second == sentence
        assert first


def test_a_text_wins_by_what_it_gains_from_the_text_before_not_by_its_own_likelihood():
    texts = ["aaaa", "bbbb", "cccc", "dddd"]
    own = {"aaaa": 1.0, "bbbb": 40.0, "cccc": 40.0, "dddd": 40.0}

    def bits(asked, before=None):
        gain = [3.0 if before and before[i] == text.upper() else 0.0 for i, text in enumerate(asked)]
        return np.array([own[text] - saved for text, saved in zip(asked, gain, strict=True)])

    assert solve(bits, [text.upper() for text in texts], texts) == "1111"
    assert solve(bits, ["BBBB", "AAAA", "DDDD", "CCCC"], texts) == "0000"


def test_tasks_of_two_languages():
    scored = {
        "et_flores": ["üks kaks", "kolm neli", "viis kuus", "seitse kaheksa"],
        "en_flores": ["a b"] * 4,
        "et_held": [],
    }
    found = solved(lambda texts, _=None: np.zeros(len(texts)), scored)
    assert {*found} == {"continuation-et", "continuation-en", "to-et", "from-et"}
    assert all(len(digits) == 4 for digits in found.values())

"""The figures of the paper, "Teaching Old Tokenizers New Words" (Purason et al.), as its tables give them."""

SIZES = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000)
MODELS = ("llama3", "qwen2_5", "mistral_nemo", "llama2")


def _by_size(*values: float) -> dict[int, float]:
    return dict(zip(SIZES, values, strict=True))


GAIN = {
    "llama3": _by_size(3.3, 3.6, 3.8, 3.7, 3.3, 2.7),
    "qwen2_5": _by_size(4.3, 5.6, 6.9, 8.1, 9.0, 9.6),
    "mistral_nemo": _by_size(3.0, 3.7, 4.2, 4.5, 4.6, 4.3),
    "llama2": _by_size(4.6, 5.2, 6.1, 6.9, 7.4, 7.7),
}
"""Gain of continued training over naive extension in bytes per token, percent, mean of 70 languages."""
WIN_RATE = {
    "llama3": _by_size(88.6, 92.9, 98.6, 100.0, 98.6, 92.9),
    "qwen2_5": _by_size(98.6, 97.1, 100.0, 98.6, 97.1, 94.3),
    "mistral_nemo": _by_size(97.1, 94.3, 98.6, 98.6, 100.0, 98.6),
    "llama2": _by_size(95.7, 95.7, 90.0, 84.3, 72.9, 74.3),
}
"""Percent of the 70 languages with more bytes per token."""
RENYI_GAIN = {
    "llama3": _by_size(-0.1, -0.6, -1.1, -1.4, -1.3, -1.1),
    "qwen2_5": _by_size(0.1, -1.0, -1.8, -2.5, -3.0, -3.2),
    "mistral_nemo": _by_size(-0.5, -0.8, -1.0, -1.1, -1.1, -0.9),
    "llama2": _by_size(-0.2, -1.1, -1.8, -2.3, -2.7, -2.8),
}
UNREACHABLE = {
    "llama3": _by_size(4.5, 5.7, 7.0, 8.2, 9.3, 10.2),
    "qwen2_5": _by_size(4.3, 5.6, 7.1, 8.4, 9.6, 10.5),
    "mistral_nemo": _by_size(3.8, 4.9, 6.3, 7.5, 8.7, 9.7),
    "llama2": _by_size(3.6, 4.8, 6.0, 7.0, 7.8, 8.4),
}
"""Percent of the tokens that naive extension adds. Continued training: 0.0 at every size."""
BY_SCRIPT = {
    "Latn": dict(zip(MODELS, (4.7, 9.8, 3.3, 10.1), strict=True)),
    "Cyrl": dict(zip(MODELS, (5.1, 11.2, 5.4, 8.7), strict=True)),
    "Arab": dict(zip(MODELS, (0.7, 3.8, 0.4, 0.2), strict=True)),
    "Jpan": dict(zip(MODELS, (1.4, 1.1, 1.4, -1.0), strict=True)),
    "Hani": dict(zip(MODELS, (0.0, 0.2, 0.0, -0.1), strict=True)),
    "Other": dict(zip(MODELS, (1.2, 2.3, 5.9, 0.5), strict=True)),
}
"""Gain over naive extension, percent, mean of all sizes."""
UNUSED = {
    "llama3": {
        "continued": _by_size(0.0, 0.1, 0.1, 0.5, 2.1, 7.1),
        "naive": _by_size(4.0, 4.3, 4.6, 5.1, 6.9, 11.8),
    },
    "qwen2_5": {
        "continued": _by_size(0.0, 0.0, 0.1, 0.4, 2.0, 7.0),
        "naive": _by_size(8.3, 9.7, 11.0, 12.6, 15.3, 20.9),
    },
}
"""Percent of the added tokens that do not occur in 10,000 held-out documents."""
WITHOUT_SKIPPING = {
    "llama3": {
        "continued": _by_size(-0.1, -0.1, -0.1, -0.1, -0.1, -0.1),
        "naive": _by_size(-1.2, -1.9, -2.8, -3.8, -4.9, -5.8),
    },
    "mistral_nemo": {
        "continued": _by_size(0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        "naive": _by_size(-0.5, -0.9, -1.6, -2.4, -3.3, -4.1),
    },
}
"""Change in bytes per token with merge skipping off, percent."""
EDITS = {
    "continued": _by_size(0.001, 0.002, 0.003, 0.009, 0.023, 0.057),
    "naive": _by_size(0.001, 0.002, 0.004, 0.010, 0.024, 0.057),
}
"""Token edits per English sentence, Llama-3, mean of 70 languages."""
WORST_EDITS = {
    "continued": _by_size(0.010, 0.012, 0.022, 0.036, 0.106, 0.198),
    "naive": _by_size(0.010, 0.013, 0.022, 0.036, 0.098, 0.220),
}
EXACT = {
    "continued": _by_size(100.0, 99.9, 99.9, 99.6, 99.1, 97.7),
    "naive": _by_size(99.9, 99.9, 99.8, 99.6, 99.0, 97.6),
}
"""Percent of English sentences with unchanged segmentation."""

PRUNE_METHODS = ("last-id", "last-id-leaf", "frequency", "leaf-frequency", "merge")
SWAP_SIZES = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 112_000)


def _by_method(*lines: str) -> dict[int, dict[str, float]]:
    """A line for each size: a number for each method."""
    values = [[float(value) for value in line.split()] for line in lines]
    return {size: dict(zip(PRUNE_METHODS, line, strict=True)) for size, line in zip(SWAP_SIZES, values, strict=True)}


PRUNE_EXTEND = {
    ("continued", "et"): _by_method(
        "3.289 3.289 3.289 3.289 3.289",
        "3.526 3.526 3.527 3.527 3.527",
        "3.786 3.786 3.788 3.788 3.788",
        "4.109 4.109 4.110 4.110 4.110",
        "4.451 4.452 4.456 4.456 4.456",
        "4.829 4.829 4.837 4.837 4.837",
        "5.164 5.164 5.197 5.198 5.198",
        "5.381 5.381 5.407 5.386 5.386",
    ),
    ("naive", "et"): _by_method(
        "3.164 3.164 3.164 3.164 3.164",
        "3.362 3.362 3.362 3.362 3.362",
        "3.592 3.592 3.595 3.595 3.595",
        "3.870 3.870 3.874 3.874 3.874",
        "4.202 4.202 4.208 4.208 4.208",
        "4.552 4.552 4.567 4.567 4.566",
        "4.907 4.907 4.943 4.943 4.943",
        "5.147 5.147 4.732 5.154 5.174",
    ),
    ("continued", "en"): _by_method(
        "4.862 4.862 4.862 4.862 4.862",
        "4.862 4.862 4.862 4.862 4.862",
        "4.862 4.862 4.862 4.862 4.862",
        "4.862 4.862 4.862 4.862 4.862",
        "4.862 4.862 4.862 4.862 4.862",
        "4.852 4.852 4.863 4.863 4.863",
        "4.740 4.740 4.869 4.869 4.868",
        "4.219 4.219 4.402 4.385 4.387",
    ),
    ("naive", "en"): _by_method(
        "4.862 4.862 4.862 4.862 4.862",
        "4.862 4.862 4.862 4.862 4.862",
        "4.862 4.862 4.862 4.862 4.862",
        "4.862 4.862 4.862 4.862 4.862",
        "4.862 4.862 4.863 4.863 4.863",
        "4.853 4.853 4.864 4.864 4.864",
        "4.738 4.738 4.868 4.868 4.868",
        "4.206 4.206 4.377 4.382 4.384",
    ),
}
"""Bytes per token of Llama-3 after pruning N tokens and adding N, by (extension method, language) and N."""
PRUNE_EXTEND_UNREACHABLE = {
    "continued": _by_method(
        "556 551 541 534 534",
        "536 527 509 488 504",
        "483 465 446 386 445",
        "371 337 371 176 328",
        "173 136 980 0 132",
        "0 0 2309 0 0",
        "0 0 2711 0 0",
        "0 0 2923 0 0",
    ),
    "naive": _by_method(
        "630 625 615 608 608",
        "710 701 683 662 678",
        "834 817 798 738 797",
        "1273 1239 1272 1077 1230",
        "2196 2159 3015 2035 2167",
        "4656 4656 7002 4693 4693",
        "9581 9581 12663 9864 9868",
        "15279 15279 37637 16567 16813",
    ),
}
ORDER = {
    16_000: {"prune-extend": (4.441, 4.863), "extend-prune": (4.441, 4.863)},
    32_000: {"prune-extend": (4.441, 4.863), "extend-prune": (4.441, 4.863)},
    64_000: {"prune-extend": (4.440, 4.861), "extend-prune": (4.439, 4.861)},
    96_000: {"prune-extend": (4.402, 4.671), "extend-prune": (4.401, 4.671)},
}
"""Bytes per token of Estonian and English."""

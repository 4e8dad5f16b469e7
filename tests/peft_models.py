"""For tests that load adapters with PEFT."""

import pytest


class UsesPeft:
    """Gives a class of tests torch, PEFT and tiny models, or skips them."""

    @pytest.fixture(autouse=True)
    def libraries(self):
        self.torch = pytest.importorskip("torch", reason="torch is not installed")
        self.peft = pytest.importorskip("peft", reason="peft is not installed: `pip install peft` to run this")
        import tiny_models

        self.tiny = tiny_models

"""The examples of the adapters in README run as they stand, with a scripted model in the place of the provider."""

from __future__ import annotations

import contextlib
import io
import os
import re
import unittest
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import test_anthropic
import test_openai
from scripted import WHY, Model
from server import OPERATOR, URL

PRIMES = {"path": "primes.py", "content": "print(2, 3, 5)\n", **WHY}


class Examples(unittest.TestCase):
    def run_example(self, sdk: str, replies: list[Mapping[str, Any]]) -> None:
        readme = Path(__file__).parent.parent.joinpath("README.md").read_text()
        [example] = [one for one in re.findall(r"^```python\n(.*?)^```", readme, re.M | re.S) if f"\nfrom {sdk} import" in one]
        printed = io.StringIO()
        with Model(replies) as model:
            environment = {"WORKSPACED_URL": URL, "OPERATOR": OPERATOR}
            for name in ("ANTHROPIC", "OPENAI"):
                environment |= {f"{name}_BASE_URL": model.url, f"{name}_API_KEY": "none"}
            with mock.patch.dict(os.environ, environment), contextlib.redirect_stdout(printed):
                exec(compile(example, f"README.md: {sdk}", "exec"), {})
        self.assertIn("+print(2, 3, 5)\n", printed.getvalue())

    def test_the_example_with_the_package_anthropic_runs(self) -> None:
        self.run_example("anthropic", [test_anthropic.turn(0, "write_file", PRIMES), test_anthropic.END])

    def test_the_example_with_the_package_openai_runs(self) -> None:
        self.run_example("openai", [test_openai.response_turn(0, "write_file", PRIMES), test_openai.END_OF_RESPONSES])


if __name__ == "__main__":
    unittest.main()

"""The catalogue: each schema accepts its examples and values, and ten tasks are done with the tools that a model sees."""

from __future__ import annotations

import unittest
from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator

from server import agent
from workspaced import Run, anthropic, openai
from workspaced.run import Catalogue
from workspaced.tools import functions

FORMATS: list[Catalogue] = ["workspaced", "openai", "anthropic", "mcp"]
FILES = {
    "README.md": "# Bills\n\nSums bills.\n",
    "src/bill.py": "def total(items):\n    return sum(items) - 1\n\n\ndef mean(items):\n    return total(items) / len(items)\n",
    "src/old.py": "unused = True\n",
    "tests/test_bill.py": "from src.bill import total\n\n\ndef test_total():\n    assert total([1, 2]) == 3\n",
}
PATCH = """*** Begin Patch
*** Update File: README.md
@@
-Sums bills.
+Sums bills and takes their mean.
*** Add File: CHANGES.md
+# Changes
*** End Patch
"""
WHY = {"reason": "the task asks for it"}

# Each task: what is asked, the calls of the scripted model, and what the last answer contains.
TASKS: list[tuple[str, list[tuple[str, dict[str, Any]]], str]] = [
    ("What is in the repository?", [("list_dir", {}), ("tree_stats", {})], "files"),
    ("Where is `total` called?", [("search_text", {"query": "total(", "includeGlob": ["**/*.py"], "contextLines": 1})], "tests/test_bill.py"),
    ("Which tests exist?", [("find_files", {"glob": ["tests/**"]}), ("read_files", {"paths": ["tests/test_bill.py"]})], "assert total([1, 2]) == 3"),
    ("Correct `total`.", [("read_file", {"path": "src/bill.py"}), ("edit_file", {"path": "src/bill.py", "oldString": "sum(items) - 1", "newString": "sum(items)", **WHY})], "edited src/bill.py"),
    ("Make `mean` accept no items.", [("read_file", {"path": "src/bill.py", "startLine": 5}), ("replace_range", {"path": "src/bill.py", "startLine": 6, "endLine": 6, "content": "    return total(items) / max(1, len(items))\n", "expectedSha256": "seen", **WHY})], "src/bill.py"),
    ("Add a module.", [("write_file", {"path": "src/tax.py", "content": "RATE = 0.19\n", "mode": "CREATE_NEW", **WHY})], "created src/tax.py"),
    ("Rename it.", [("move_file", {"from": "src/tax.py", "to": "src/rates.py", **WHY}), ("stat_path", {"path": "src/rates.py"})], "src/rates.py"),
    ("Remove what is unused.", [("read_file", {"path": "src/old.py"}), ("delete_file", {"path": "src/old.py", **WHY})], "src/old.py"),
    ("Describe the change.", [("read_file", {"path": "README.md"}), ("apply_patch", {"patch": PATCH, **WHY})], "A CHANGES.md"),
    ("Show the change, and take the last one back.", [("diff_workspace", {"statOnly": True}), ("revert_calls", {"last": 1, **WHY})], ""),
]  # fmt: skip


def schema_of(tool: Mapping[str, Any], format: Catalogue) -> dict[str, Any]:
    schema = {
        "workspaced": lambda: tool["inputSchema"],
        "openai": lambda: tool["function"]["parameters"],
        "anthropic": lambda: tool["input_schema"],
        "mcp": lambda: tool["inputSchema"],
    }[format]()
    assert isinstance(schema, dict)
    return schema


def schemas(run: Run, format: Catalogue, audience: Any) -> dict[str, dict[str, Any]]:
    tools = run.tools(format, audience)
    return {(tool.get("function") or tool)["name"]: schema_of(tool, format) for tool in tools}


def resolved(schema: Any, root: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every schema inside of a schema, itself included."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key in ("properties", "$defs"):
        for child in schema.get(key, {}).values():
            yield from resolved(child, root)
    for key in ("items", "additionalProperties", "propertyNames"):
        yield from resolved(schema.get(key), root)
    for key in ("allOf", "oneOf", "anyOf"):
        for child in schema.get(key, []):
            yield from resolved(child, root)


class Schemas(unittest.TestCase):
    def test_every_example_value_and_default_is_accepted_in_every_format(self) -> None:
        _, client = agent()
        names, checked = None, 0
        for format in FORMATS:
            for audience in ("program", "model"):
                found = schemas(client, format, audience)
                names = names or list(found)
                self.assertEqual((list(found), len(found)), (names, 15), f"{format} {audience}")
                for name, schema in found.items():
                    where = f"{format} {audience} {name}"
                    Draft202012Validator.check_schema(schema)
                    for inner in resolved(schema, schema):
                        validator = Draft202012Validator({**inner, "$defs": schema.get("$defs", {})})
                        values = [*inner.get("examples", []), *([inner["example"]] if "example" in inner else [])]
                        for value in [*values, *inner.get("enum", [])]:
                            checked += 1
                            self.assertTrue(validator.is_valid(value), f"{where}: {value!r} in {inner}")
                    for member, inner in schema["properties"].items():
                        for value in inner.get("enum", []):
                            only = Draft202012Validator({**schema, "required": []})
                            self.assertTrue(only.is_valid({member: value}), f"{where}.{member}: {value!r}")
        self.assertGreater(checked, 50)

    def test_the_same_calls_are_accepted_in_every_format(self) -> None:
        _, client = agent()
        used = set()
        for format in FORMATS:
            for audience in ("program", "model"):
                found = schemas(client, format, audience)
                for _, calls, _ in TASKS:
                    for name, arguments in calls:
                        used.add(name)
                        if audience == "model":
                            arguments = {key: value for key, value in arguments.items() if key != "expectedSha256"}
                        errors = [error.message for error in Draft202012Validator(found[name]).iter_errors(arguments)]
                        self.assertEqual(errors, [], f"{format} {audience} {name} {arguments}")
                self.assertFalse(Draft202012Validator(found["read_file"]).is_valid({"path": "a", "unknown": 1}))
        self.assertEqual(len(used), 15, "the ten tasks use every tool")


class Tasks(unittest.TestCase):
    def test_ten_tasks_are_done_with_the_tools_that_a_model_sees(self) -> None:
        run, client = agent(FILES)
        ways = [self.by_openai(client), self.by_anthropic(client), self.by_function(client)]
        for number, (task, calls, expected) in enumerate(TASKS):
            way, answer = ways[number % len(ways)], ""
            for name, arguments in calls:
                if name == "revert_calls":
                    last = [record for record in run.audit() if record["mutates"]][-1]
                    arguments = {"toolCallIds": [last["toolCallId"]], **WHY}
                answer = way(name, {key: value for key, value in arguments.items() if key != "expectedSha256"})
                self.assertNotRegex(answer.split("\n")[0], "^[A-Z_]+: ", f"{task} {name} {arguments}")
            self.assertIn(expected, answer, task)
        self.assertEqual(client.read_bytes("README.md").decode(), FILES["README.md"], "the last change was taken back")
        self.assertIn(b"sum(items)\n", client.read_bytes("src/bill.py"))
        self.assertIn(b"max(1, len(items))", client.read_bytes("src/bill.py"))
        refused = [record["tool"] for record in run.audit() if record["outcome"] != "ok"]
        self.assertEqual(refused, [])

    def by_openai(self, client: Run) -> Any:
        import json

        names = {tool["function"]["name"] for tool in openai.chat_tools(client)}

        def call(name: str, arguments: dict[str, Any]) -> str:
            self.assertIn(name, names)
            message = openai.answer_chat(client, {"id": "1", "function": {"name": name, "arguments": json.dumps(arguments)}})
            return str(message["content"])

        return call

    def by_anthropic(self, client: Run) -> Any:
        names = {tool["name"] for tool in anthropic.message_tools(client)}

        def call(name: str, arguments: dict[str, Any]) -> str:
            self.assertIn(name, names)
            block = anthropic.answer(client, {"type": "tool_use", "id": "1", "name": name, "input": arguments})
            return str(block["content"])

        return call

    def by_function(self, client: Run) -> Any:
        found = {function.__name__: function for function in functions(client)}
        return lambda name, arguments: found[name](**arguments)

    def test_a_model_that_is_wrong_reads_what_to_do(self) -> None:
        import inspect

        _, client = agent({"a.txt": "a\n"})
        broken = openai.answer_chat(client, {"id": "7", "function": {"name": "read_file", "arguments": '{"path": '}})
        self.assertEqual(broken["tool_call_id"], "7")
        self.assertTrue(str(broken["content"]).startswith("INVALID_REQUEST: the arguments of `read_file` are not"), broken)
        wrong = anthropic.answer(client, {"id": "8", "name": "read_file", "input": {"file": "a.txt"}})
        self.assertTrue(wrong["is_error"] and str(wrong["content"]).startswith("INVALID_REQUEST: "), wrong)
        none = anthropic.answer(client, {"id": "9", "name": "execute", "input": {}})
        self.assertTrue(str(none["content"]).startswith("TOOL_NOT_FOUND: "), none)
        # The same ID twice is two calls: the model invents them.
        for name in ("b.txt", "c.txt"):
            arguments = {"path": name, "content": "x\n", "toolCallId": "tc_1", **WHY}
            self.assertFalse(anthropic.answer(client, {"id": "1", "name": "write_file", "input": arguments})["is_error"])
        read = next(function for function in functions(client) if function.__name__ == "read_file")
        self.assertEqual(read(path="a.txt"), "1  a\n")
        signature = inspect.signature(read)
        self.assertEqual((signature.parameters["path"].annotation, signature.return_annotation), (str, str))
        self.assertIs(signature.parameters["path"].default, inspect.Parameter.empty)
        self.assertEqual(read.schema["required"], ["path"])  # type: ignore[attr-defined]
        self.assertTrue(read.__doc__)


if __name__ == "__main__":
    unittest.main()

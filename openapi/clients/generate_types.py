#!/usr/bin/env python3
"""Writes the types of both packages, and the methods of the Python package, from ../workspaced.json, and the Python client for
threads from the one for asyncio. Run it after the API document or `python/src/workspaced/aio` has changed.

With `--check` it writes nothing, and fails if a file is not current.
"""

import json
import keyword
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROUTE = "/v1/runs/{run}/tools/"
SCALARS = {"python": {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"},
           "typescript": {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}}


class Writer:
    """The declarations of one language. Objects inside of objects get the name of their owner and their member."""

    def __init__(self, document, language):
        self.schemas, self.language, self.declared = document["components"]["schemas"], language, {}
        self.python = language == "python"
        for name, schema in self.schemas.items():
            self.declare(name, schema)

    def declare(self, name, schema):
        members = self.members(schema)
        self.declared[name] = ""  # Its position, before those of the objects in it.
        if members is None:
            kind = self.type_of(schema, name)
            self.declared[name] = f'{name}: TypeAlias = "{kind}"' if self.python else f"export type {name} = {kind};"
            return
        fields = [(key, self.type_of(value, name + pascal(key)), wanted) for key, (value, wanted) in members.items()]
        self.declared[name] = self.python_class(name, fields) if self.python else self.interface(name, fields)

    def members(self, schema):
        """The members of an object and whether each is required, or None for what is no object with members."""
        if "$ref" in schema:
            return self.members(self.schemas[schema["$ref"].rsplit("/", 1)[1]])
        found = {}
        for part in schema.get("allOf", []):
            found |= self.members(part) or {}
        required = schema.get("required", [])
        found |= {key: (value, key in required) for key, value in schema.get("properties", {}).items()}
        return found or None

    def type_of(self, schema, name):
        if not isinstance(schema, dict) or not schema:
            return self.any()
        if "$ref" in schema:
            return schema["$ref"].rsplit("/", 1)[1]
        for choice in ("oneOf", "anyOf"):
            if choice in schema:
                options = schema[choice]
                return self.union(self.type_of(option, name + self.suffix(option, options)) for option in options)
        if "x-const" in schema or "enum" in schema:
            return self.literals(schema.get("enum", [schema.get("x-const")]))
        if len(schema.get("allOf", [])) == 1 and "properties" not in schema:
            return self.type_of(schema["allOf"][0], name)
        if self.members(schema) is not None:
            self.declare(name, schema)
            return self.union([name, *(["None" if self.python else "null"] if "null" in schema.get("type", "") else [])])
        kinds = schema.get("type", [])
        return self.union(self.simple(kind, schema, name) for kind in ([kinds] if isinstance(kinds, str) else kinds))

    def suffix(self, option, options):
        """A distinction for each of several objects of a union: its tag, such as `git`."""
        objects = [one for one in options if "properties" in one]
        if option not in objects or len(objects) < 2:
            return ""
        tag = option["properties"].get("type", {})
        return pascal(str(tag.get("enum", [options.index(option)])[0]))

    def simple(self, kind, schema, name):
        if kind == "array":
            items = self.type_of(schema.get("items", {}), name)
            return f"list[{items}]" if self.python else f"Array<{items}>"
        if kind == "object":
            values = self.type_of(schema.get("additionalProperties"), name)
            return f"dict[str, {values}]" if self.python else f"{{ [name: string]: {values} }}"
        return SCALARS[self.language][kind]

    def any(self):
        return "Any" if self.python else "unknown"

    def union(self, kinds):
        return " | ".join(dict.fromkeys(kinds)) or self.any()

    def literals(self, values):
        if self.python:
            return f"Literal[{', '.join(map(repr, values))}]"
        return " | ".join(json.dumps(value) for value in values)

    def python_class(self, name, fields):
        if any(keyword.iskeyword(key) or not key.isidentifier() for key, _, _ in fields):
            rows = [f'    "{key}": {self.marked(kind, wanted, True)},' for key, kind, wanted in fields]
            return "\n".join([f'{name} = TypedDict("{name}", {{', *rows, "})"])
        rows = [f"    {key}: {self.marked(kind, wanted, False)}" for key, kind, wanted in fields]
        return "\n".join([f"class {name}(TypedDict):", *rows])

    @staticmethod
    def marked(kind, wanted, quoted):
        kind = f'"{kind}"' if quoted else kind
        return kind if wanted else f"NotRequired[{kind}]"

    @staticmethod
    def interface(name, fields):
        rows = [f"  {key}{'' if wanted else '?'}: {kind};" for key, kind, wanted in fields]
        return "\n".join([f"export interface {name} {{", *rows, "}"])


def pascal(text):
    return "".join(part[:1].upper() + part[1:] for part in text.replace("-", "_").split("_"))


def tools(document):
    """Each tool with the names of its input's and its output's schema."""
    for path, item in document["paths"].items():
        if path.startswith(ROUTE):
            bodies = item["post"]["requestBody"], item["post"]["responses"]["200"]
            refs = [body["content"]["application/json"]["schema"]["$ref"] for body in bodies]
            yield path.removeprefix(ROUTE), *(ref.rsplit("/", 1)[1] for ref in refs)


def python(document):
    note = '"""The objects of the API. Written by `generate_types.py` from the API document: do not edit."""\n'
    imports = ("from __future__ import annotations\n\n"
               "from typing import Any, Literal, NotRequired, Protocol, TypeAlias, TypedDict, Unpack, overload")
    writer = Writer(document, "python")
    calls = [call_protocol(document, prefix, function) for prefix, function in (("", "def"), ("Async", "async def"))]
    return "\n\n\n".join([f"{note}\n{imports}", *writer.declared.values(), *calls]) + "\n"


def call_protocol(document, prefix, function):
    calls = [f"class {prefix}CallTool(Protocol):", '    """Calls a tool by its name: the input and the answer of each tool."""']
    for name, taken, given in tools(document):
        calls.append(f'\n    @overload\n    {function} __call__(self, tool: Literal["{name}"], /, **input: Unpack[{taken}]) -> {given}: ...')
    return "\n".join(calls)


def python_methods(document):
    """A method for each tool. Members that the tool requires come first; keywords of Python end in `_`."""
    writer = Writer(document, "python")
    parts = ['"""A method for each tool. Written by `generate_types.py` from the API document: do not edit."""\n\n'
             "from __future__ import annotations\n\nfrom collections.abc import Awaitable, Callable, Mapping\n"
             "from typing import Any, Literal, cast"]
    used = set()
    for prefix, function, wait, returned in (("", "def", "", "dict[str, Any]"), ("Async", "async def", "await ", "Awaitable[dict[str, Any]]")):
        rows = [f"class {prefix}ToolMethods:", '    """The tools of a run. A member that is None is left out."""\n',
                f"    def __init__(self, call: Callable[[str, Mapping[str, Any]], {returned}]) -> None:", "        self._call = call"]
        for name, taken, given in tools(document):
            members = writer.members(writer.schemas[taken])
            ordered = sorted(members.items(), key=lambda member: not member[1][1])
            parameters, pairs = [], []
            for key, (schema, wanted) in ordered:
                kind, parameter = writer.type_of(schema, taken + pascal(key)), key + ("_" if keyword.iskeyword(key) else "")
                if not wanted:
                    kind = kind if kind.endswith("None") else f"{kind} | None"
                parameters.append(f"{parameter}: {kind}" + ("" if wanted else " = None"))
                pairs.append(f'"{key}": {parameter}')
                used |= {word for word in re.findall(r"\w+", kind) if word in writer.declared}
            used.add(given)
            summary = document["paths"][ROUTE + name]["post"]["description"].split("\n")[0].replace("\\", "\\\\")
            rows += ["", f"    {function} {name}(", "        self,", "        *,", *(f"        {one}," for one in parameters), f"    ) -> {given}:",
                     f'        """{summary}"""', f"        input = {{{', '.join(pairs)}}}",
                     f'        answer = {wait}self._call("{name}", {{key: value for key, value in input.items() if value is not None}})',
                     f"        return cast({given}, answer)"]
        parts.append("\n".join(rows))
    parts[0] += f"\n\nfrom .types import {', '.join(sorted(used))}"
    return "\n\n\n".join(parts) + "\n"


# What distinguishes the client for asyncio from the one for threads.
FOR_THREADS = [("async def ", "def "), ("async with ", "with "), ("async for ", "for "), ("await ", ""), ("AsyncIterator", "Iterator"),
               ("Awaitable[str]", "str"), ("Awaitable, ", ""), ("asynccontextmanager", "contextmanager"), ("AsyncClient", "Client"),
               ("AsyncToolMethods", "ToolMethods"), ("AsyncCallTool", "CallTool"), ("BetaAsync", "Beta"), ("coroutine=", "func="), ("aiter_", "iter_"), ("aread", "read"),
               ("aclose", "close"), ("__aenter__", "__enter__"), ("__aexit__", "__exit__"), ("asyncio", "time"), ("from .. ", "from . "),
               ("from ..", "from .")]


def for_threads(text):
    for one, other in FOR_THREADS:
        text = text.replace(one, other)
    text = text.replace("The same client for threads is `workspaced.Client`.", "The client for asyncio is `workspaced.aio.Client`.")
    note = "# Written by `generate_types.py` from the file of the same name in `aio`: do not edit."
    return f"{note}\n{text}"


def typescript(document):
    note = "// The objects of the API. Written by `generate_types.py` from the API document: do not edit."
    writer = Writer(document, "typescript")
    rows = [f"  {name}: {{ input: {taken}; output: {given} }};" for name, taken, given in tools(document)]
    table = "\n".join(["/** The input and the answer of each tool. */", "export interface Tools {", *rows, "}"])
    return "\n\n".join([note, *writer.declared.values(), table]) + "\n"


def main():
    document = json.loads((HERE / "../workspaced.json").read_text())
    stale = []
    package = "python/src/workspaced"
    files = [(f"{package}/types.py", python(document)), (f"{package}/methods.py", python_methods(document)),
             ("typescript/src/types.ts", typescript(document))]
    for name in ("anthropic", "checkout", "client", "langchain", "openai", "openai_agents", "pydantic_ai", "run", "streams", "tools", "transport"):
        files.append((f"{package}/{name}.py", for_threads((HERE / package / "aio" / f"{name}.py").read_text())))
    for path, text in files:
        file = HERE / path
        if "--check" not in sys.argv[1:]:
            file.write_text(text)
        elif not file.exists() or file.read_text() != text:
            stale.append(path)
    if stale:
        sys.exit(f"not current: {', '.join(stale)}. Run openapi/clients/generate_types.py")


if __name__ == "__main__":
    main()

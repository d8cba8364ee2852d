"""Plays BFCL's gold calls with its own tools: `bfcl_calls.py FOLDER OUT.jsonl` (needs only `mpmath`).

FOLDER holds the unpacked wheel `bfcl-eval`. Runs in an environment of its own: it imports nothing of lamina.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

NAME = "BFCL_v4_multi_turn_long_context.json"


def main() -> None:
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    sys.path.insert(0, str(folder))
    multi_turn_utils = import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils")
    data = folder / "bfcl_eval" / "data"
    gold = {row["id"]: row["ground_truth"] for row in read_rows(data / "possible_answer" / NAME)}
    count = 0
    with out.open("w", encoding="utf-8") as file:
        for row in read_rows(data / NAME):
            messages = play(row, gold[row["id"]], multi_turn_utils.execute_multi_turn_func_call)
            file.write(json.dumps({"id": row["id"], "sort": "arguments", "messages": messages}) + "\n")
            count += 1
    print(f"{count} tasks in {out}")


def play(
    row: dict[str, Any], gold_turns: list[list[str]], execute: Callable[..., Any]
) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    number = 0
    for question, calls in zip(row["question"], gold_turns, strict=False):
        messages += [{"role": each["role"], "content": each["content"]} for each in question]
        results = execute(
            calls, row["initial_config"], row["involved_classes"], "gold", row["id"], long_context=True
        )[0]
        for call, result in zip(calls, results, strict=False):
            name, arguments = read_call(call)
            function = {"name": name, "arguments": json.dumps(arguments)}
            tool_call = {"id": f"call_{number}", "type": "function", "function": function}
            messages.append({"role": "assistant", "content": None, "tool_calls": [tool_call]})
            messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": result})
            number += 1
        messages.append({"role": "assistant", "content": "Done."})
    return messages


def read_call(text: str) -> tuple[str, dict[str, Any]]:
    """`grep(file_name='a', pattern='b')` as its name and arguments; those without a name get a number."""
    node = ast.parse(text, mode="eval").body
    if not isinstance(node, ast.Call):
        raise TypeError(f"{text!r} is no call")
    arguments = {str(at): read_value(value) for at, value in enumerate(node.args)}
    arguments |= {str(keyword.arg): read_value(keyword.value) for keyword in node.keywords}
    return ast.unparse(node.func), arguments


def read_value(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    main()

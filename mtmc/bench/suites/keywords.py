"""keywords: a task file whose functions have their sizes as arguments with defaults, as one with module-level numbers. Pure.

def get_inputs(rows: int = 64): ...           rows = 64
                                        ->    def get_inputs(): return made_inputs(rows)
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from mtmc.errors import TaskError
from mtmc.syntax import parse

_MADE = {"get_inputs": "made_inputs", "get_init_inputs": "made_init_inputs"}


def with_numbers(text: str, given: Mapping[str, Any], name: str) -> str:
    """The text with a `get_inputs` and a `get_init_inputs` that take nothing; as it is where it has both already.

    given: values by argument, which go before the defaults. name: of the task, for messages.
    Raises: TaskError where an argument has no value, or one that no text can state.
    """
    try:
        tree = parse(text)
    except (SyntaxError, ValueError):
        return text  # which is said where the task is checked
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    model = next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model"), None)
    if "get_inputs" not in functions or model is None:
        return text
    wanted = [each for each in _MADE if each in functions and _arguments(functions[each].args)]
    init = next((each for each in model.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None)
    if not wanted and "get_init_inputs" in functions:
        return text
    numbers, added, taken = dict[str, str](), list[str](), _names(tree)
    lines = text.split("\n")
    for each in wanted:
        row = functions[each].lineno - 1
        lines[row] = lines[row].replace(f"def {each}", f"def {_MADE[each]}", 1)
        values = _values(functions[each].args, 0, given, numbers, taken, f"task {name}: {each}()")
        added.append(f"def {each}():\n    return {_MADE[each]}({', '.join(values)})")
    if "get_init_inputs" not in functions:
        values = [] if init is None else _values(init.args, 1, given, numbers, taken, f"task {name}: Model.__init__")
        added.append(f"def get_init_inputs():\n    return [{', '.join(values)}]")
    stated = "\n".join(f"{key} = {value}" for key, value in numbers.items())
    return "\n\n\n".join(part for part in ("\n".join(lines).rstrip(), stated, *added) if part) + "\n"


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def _values(
    arguments: ast.arguments, skip: int, given: Mapping[str, Any], numbers: dict[str, str], taken: set[str], where: str
) -> list[str]:
    """What stands for each argument in a call: the name of a number that is put into `numbers`, or the value itself.

    skip: arguments that the call does not have (self). taken: names that the file has for something else.
    """
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults: dict[str, ast.expr] = {
        each.arg: value for each, value in zip(reversed(plain), reversed(arguments.defaults), strict=False)
    }
    found = []
    for argument in plain[skip:]:
        key = argument.arg
        if key in given:
            value = repr(given[key])
        elif key in defaults:
            value = ast.unparse(defaults[key])
        elif key in numbers:  # an input function's: one name, one size
            value = numbers[key]
        else:
            raise TaskError(f"{where} has an argument {key!r} without a value: give it a default")
        if not _is_number(value):
            found.append(value)
            continue
        number = f"{key}_" if key in taken else key
        if numbers.setdefault(number, value) != value:
            raise TaskError(f"{where} takes {key} as {value}, and another function as {numbers[number]}: use one value")
        found.append(number)
    return found


def _is_number(text: str) -> bool:
    return text.isdigit()


def _names(tree: ast.Module) -> set[str]:
    """What a file defines or imports at module level."""
    found = set[str]()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Assign):
            found |= {each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return found

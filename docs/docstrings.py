"""An extension of griffe: docstrings as mtmc writes them, as Markdown.

A line or sentence that starts with the name of a parameter or field and a colon becomes an item of a list, and "Raises:" a
paragraph of its own.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension


class PlainDocstrings(Extension):
    """Marks up the docstring of each class and function when its members are known."""

    def on_class_members(self, *, cls: Any, **kwargs: Any) -> None:
        """A class: its fields, and the parameters of its constructor."""
        constructor = cls.members.get("__init__")
        parameters = [each.name for each in constructor.parameters] if constructor is not None else []
        mark_up(cls, {*cls.members, *parameters})

    def on_function_instance(self, *, func: Any, **kwargs: Any) -> None:
        """A function: its parameters."""
        mark_up(func, {each.name for each in func.parameters})

    def on_attribute_instance(self, *, attr: Any, **kwargs: Any) -> None:
        """A field, or a property, which may have a "Raises:"."""
        mark_up(attr, set())


def mark_up(documented: Any, names: set[str]) -> None:
    """Change the docstring of a class or function. names: of its fields or parameters."""
    if documented.docstring is not None:
        documented.docstring.value = marked_up(documented.docstring.value, names)


def marked_up(text: str, names: set[str]) -> str:
    """A docstring as Markdown. names: what may be explained in it, "name: meaning" or "one, other: meaning"."""

    def item(found: re.Match[str]) -> str:
        listed = [each.strip() for each in found[2].split(",")]
        if not set(listed) <= names:
            return found[0]
        return "\n\n- " + ", ".join(f"`{each}`" for each in listed) + ": "

    paragraphs = re.split(r"\n\s*\n", text)
    made = []
    for paragraph in paragraphs:
        if not paragraph.startswith(" "):  # an indented paragraph is code or a formula
            paragraph = re.sub(r"(^|\n|(?<=[.;]) )((?:\w+, )*\w+): ", item, paragraph)
            paragraph = re.sub(r"(^|\s)Raises: ", "\n\n**Raises:** ", paragraph)
            paragraph = re.sub(r"\n +(?=\S)", "\n", paragraph).strip("\n")
        made.append(paragraph)
    return "\n\n".join(made)

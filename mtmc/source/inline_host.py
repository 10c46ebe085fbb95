"""inline_host: a host function of torch's C++ extensions as Python: sizes, memory and launches. Pure.

Of C++ it knows what such functions are made of: declarations, arithmetic, `if`, tensors made by torch, launches, `return`,
and `AT_DISPATCH_...`. What it does not know is refused with its text (`NotPlain`): nothing is guessed.
"""

from __future__ import annotations

import re

from mtmc.source.inline_expressions import Expressions
from mtmc.source.inline_words import TYPES, WHOLE, python_name

_SCALARS = {"float32": "float", "float64": "double", "float16": "__half", "bfloat16": "__nv_bfloat16"}
_DISPATCHED = {"AT_DISPATCH_ALL_TYPES": ("float32", "float64"),
               "AT_DISPATCH_FLOATING_TYPES": ("float32", "float64"),
               "AT_DISPATCH_FLOATING_TYPES_AND_HALF": ("float32", "float64", "float16"),
               "AT_DISPATCH_FLOATING_TYPES_AND": ("float32", "float64", "float16"),
               "AT_DISPATCH_FLOATING_TYPES_AND2": ("float32", "float64", "float16", "bfloat16")}  # fmt: skip
_DROPPED = re.compile(
    r"^(TORCH_(CHECK|INTERNAL_ASSERT|WARN)\w*|AT_(ASSERT\w*|ERROR|CUDA_CHECK)|CHECK_\w+|C10_CUDA_\w+|CUDA_CHECK\w*|assert"
    r"|f?printf|cudaDeviceSynchronize|cudaGetLastError|cudaStreamSynchronize|cudaFuncSetAttribute)$"
)


class Translator(Expressions):
    """One function body, statement by statement. Raises: NotPlain."""

    def lines(self) -> list[str]:
        """The body in Python, indented by nothing."""
        while self._at < len(self._tokens):
            self._statement("")
        return self._lines or ["pass"]

    def _statement(self, indent: str) -> None:
        token = self._peek()
        if self._take(";"):
            return
        if token == "{":
            self._block(indent)
        elif token == "return":
            self._next()
            value = None if self._peek() == ";" else self._expression()
            self._need(";")
            self._lines.append(f"{indent}return" + ("" if value is None else f" {value.text}"))
        elif token == "if":
            self._if(indent)
        elif token in ("for", "while", "do", "switch", "try", "goto"):
            raise self._refused(f"a {token}")
        elif _DROPPED.match(token):
            self._skip()
        elif token in _DISPATCHED:
            self._dispatch(indent, token)
        elif self._is_launch():
            self._launch(indent)
        elif self._is_declaration():
            self._declaration(indent)
        else:
            self._assignment(indent)

    def _block(self, indent: str) -> None:
        self._need("{")
        while not self._take("}"):
            if not self._peek():
                raise self._refused("a block that is not closed")
            self._statement(indent)

    def _body(self, indent: str) -> None:
        before = len(self._lines)
        self._statement(indent + "    ")
        if len(self._lines) == before:
            self._lines.append(f"{indent}    pass")

    def _if(self, indent: str) -> None:
        self._need("if")
        if self._peek() == "constexpr":
            self._next()
        self._need("(")
        start = self._at
        if any(token in ("cudaSuccess", "cudaGetLastError") for token in self._tokens[start : start + 8]):
            self._at = start
            depth = 1
            while depth:
                depth += {"(": 1, ")": -1}.get(self._next(), 0)
            kept = len(self._lines)
            if self._peek() == "{":
                depth = 0
                while True:
                    depth += {"{": 1, "}": -1}.get(self._next(), 0)
                    if not depth:
                        break
            else:
                self._skip()
            del self._lines[kept:]
            return
        condition = self._expression()
        self._need(")")
        self._lines.append(f"{indent}if {condition.text}:")
        self._body(indent)
        if self._take("else"):
            self._lines.append(f"{indent}else:")
            self._body(indent)

    def _dispatch(self, indent: str, name: str) -> None:
        """AT_DISPATCH_...(tensor.scalar_type(), "name", ([&] { body }));"""
        self._next()
        self._need("(")
        while self._peek(1) == "::":  # further types, before the one that is asked for
            while self._next() != ",":
                pass
        dtype = self._expression()
        self._need(",")
        if not self._next().startswith('"'):
            raise self._refused("a name for the dispatch is expected")
        self._need(",")
        opened = self._take("(")
        self._need("[")
        self._next()
        self._need("]")
        self._take("(", ")")
        self._scalar = (dtype.text.removesuffix(".dtype"), _DISPATCHED[name])
        self._block(indent)
        self._scalar = None
        if opened:
            self._need(")")
        self._need(")")
        self._take(";")

    def _is_declaration(self) -> bool:
        ahead = 0
        while self._peek(ahead) in ("const", "constexpr", "static"):
            ahead += 1
        first = self._peek(ahead)
        if first in TYPES - {"const", "constexpr", "static"} or first in ("cudaStream_t", "cudaError_t", "std"):
            return first != "std" or self._peek(ahead + 2) in ("vector", "tuple")
        scoped = first in ("torch", "at", "c10") and self._peek(ahead + 1) == "::"
        return scoped and self._peek(ahead + 3) not in ("(", "<")

    def _declaration(self, indent: str) -> None:
        words: list[str] = []
        while self._peek(1) not in ("=", "(", ";", ",", "{") or self._peek() in ("const",):
            words.append(self._next())
            if not self._peek():
                raise self._refused("a declaration without an end")
        kind = "whole" if WHOLE & {*words} else "real" if {"float", "double"} & {*words} else ""
        if any("Guard" in word or word == "cudaError_t" for word in words):
            self._skip()
            return
        while True:
            name = python_name(self._next())
            if not name.isidentifier():
                raise self._refused("a name is expected")
            self._declared(indent, name, kind, words)
            if self._take(";"):
                return
            self._need(",")

    def _declared(self, indent: str, name: str, kind: str, words: list[str]) -> None:
        if self._take("("):
            values = self._until(")")
            value = self._dim3(values) if "dim3" in words else values[0]
        elif self._take("="):
            value = self._expression()
        elif self._peek() in (";", ","):
            self._kinds[name] = kind
            return
        else:
            raise self._refused("a value is expected")
        whole = kind == "whole" and value.kind == "real"
        self._kinds[name] = kind or value.kind
        self._lines.append(f"{indent}{name} = {f'int({value.text})' if whole else value.text}")

    def _assignment(self, indent: str) -> None:
        target = self._postfix()
        sign = self._next()
        if sign == ";" and target.text.endswith((".zero_()", ".fill_(0)")):
            self._lines.append(f"{indent}{target.text}")
            return
        if sign == ";":
            raise self._refused(f"`{target.text}` is called for what it does")
        if sign not in ("=", "+=", "-=", "*=", "/="):
            raise self._refused(f"{sign!r} here")
        value = self._expression()
        self._need(";")
        sign = "//=" if sign == "/=" and value.kind != "real" and target.kind != "real" else sign
        self._lines.append(f"{indent}{target.text} {sign} {value.text}")
        self._kinds.setdefault(target.text, value.kind)

    def _is_launch(self) -> bool:
        if self._peek() not in self._host.kernels:
            return False
        return "<<<" in self._tokens[self._at : self._at + 24]

    def _launch(self, indent: str) -> None:
        name = self._next()
        template: list[str] = []
        if self._take("<"):
            depth = 1
            while depth:
                token = self._next()
                if token == "<<<" or not token:
                    raise self._refused("arguments of a template that do not end")
                depth += {"<": 1, ">": -1}.get(token, 0)
                if depth:
                    template.append(token)
        self._need("<<<")
        sizes = self._until(">>>")
        self._need("(")
        arguments = self._until(")")
        self._need(";")
        if len(sizes) < 2:
            raise self._refused("a launch without a block")
        shared = f", shared_mem={sizes[2].text}" if len(sizes) > 2 and sizes[2].text != "0" else ""
        given = ", ".join(value.text for value in arguments)
        kernel = self._kernel(name, template)
        self._lines.append(f"{indent}{kernel}({sizes[0].text}, {sizes[1].text}, ({given},){shared})")

    def _kernel(self, name: str, template: list[str]) -> str:
        """The name in Python of a kernel with template arguments, or a look-up by dtype."""
        if "scalar_t" in template:
            if self._scalar is None:
                raise self._refused("scalar_t without a dispatch")
            tensor, dtypes = self._scalar
            pairs = []
            for dtype in dtypes:
                text = "".join(_SCALARS[dtype] if token == "scalar_t" else token for token in template)
                pairs.append(f"torch.{dtype}: {self._made(f'{name}<{text}>')}")
            return f"{{{', '.join(pairs)}}}[{tensor}.dtype]"
        return self._made(f"{name}<{''.join(template)}>" if template else name)

    def _made(self, full: str) -> str:
        if full not in self._host.made:
            plain = re.sub(r"\W+", "_", full).strip("_")
            self._host.made[full] = f"kernel_{plain}"
        return self._host.made[full]

"""inline_words: the words of a host function of torch's C++ extensions, and the values that they make. Pure."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass, field

from mtmc.errors import MtmcError

_TOKEN = re.compile(
    r'"(?:\\.|[^"\\])*"|<<<|>>>|::|->|&&|\|\||==|!=|<=|>=|\+=|-=|\*=|/=|\+\+|--|\d+\.\d*(?:[eE][-+]?\d+)?[fF]?|\.\d+[fF]?'
    r"|\d+[eE][-+]?\d+[fF]?|0x[0-9a-fA-F]+|\d+[uUlL]*|[A-Za-z_]\w*|\S"
)
WHOLE = frozenset(("int", "int64_t", "int32_t", "uint32_t", "uint64_t", "size_t", "unsigned", "long", "short"))
TYPES = WHOLE | {"auto", "bool", "float", "double", "dim3", "const", "constexpr", "static"}


class NotPlain(MtmcError):
    """Host code that is more than sizes, memory and launches."""


def python_name(name: str) -> str:
    """A name of C++ that Python has no other use for."""
    return f"{name}_" if keyword.iskeyword(name) else name


@dataclass
class Host:
    """What functions of one file have in common. kernels: names of its kernels. known: names of its constants.

    functions: of its host functions. made: (kernel with template arguments) -> name in Python, filled while translating.
    """

    kernels: frozenset[str]
    known: frozenset[str]
    functions: frozenset[str]
    made: dict[str, str] = field(default_factory=dict)
    own: str = "HostFunctions"


@dataclass(frozen=True)
class Value:
    """An expression in Python. kind: "whole", "real", "tensor", "options", "dtype", "sizes", "stream" or "" (not known)."""

    text: str
    kind: str = ""


class Tokens:
    """The words of one function body, gone through from the first to the last, and what is known of its names."""

    def __init__(self, body: str, host: Host, parameters: dict[str, str]) -> None:
        self._tokens, self._at = _TOKEN.findall(re.sub(r"/\*.*?\*/|//[^\n]*", " ", body, flags=re.DOTALL)), 0
        self._host = host
        self._kinds = dict(parameters)
        self._lines: list[str] = []
        self._scalar: tuple[str, tuple[str, ...]] | None = None

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _take(self, *tokens: str) -> bool:
        if self._tokens[self._at : self._at + len(tokens)] == list(tokens):
            self._at += len(tokens)
            return True
        return False

    def _need(self, token: str) -> None:
        if not self._take(token):
            raise self._refused(f"{token!r} is expected")

    def _refused(self, why: str) -> NotPlain:
        near = " ".join(self._tokens[max(0, self._at - 6) : self._at + 8])
        return NotPlain(f"the host function is more than sizes, memory and launches: {why}, near `{near}`")

    def _skip(self) -> None:
        """To the end of a statement, over what stands in brackets."""
        depth = 0
        while self._at < len(self._tokens):
            token = self._next()
            depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(token, 0)
            if token == ";" and depth == 0:
                return

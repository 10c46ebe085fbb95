"""inline_host: a host function of torch's C++ extensions as Python: sizes, memory and launches. Pure.

Of C++ it knows what such functions are made of: declarations, arithmetic, `if`, tensors made by torch, launches, `return`,
and `AT_DISPATCH_...`. What it does not know is refused with its text (`NotPlain`): nothing is guessed.
"""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass, field

from mtmc.errors import MtmcError

_TOKEN = re.compile(
    r'"(?:\\.|[^"\\])*"|<<<|>>>|::|->|&&|\|\||==|!=|<=|>=|\+=|-=|\*=|/=|\+\+|--|\d+\.\d*(?:[eE][-+]?\d+)?[fF]?|\.\d+[fF]?'
    r"|\d+[eE][-+]?\d+[fF]?|0x[0-9a-fA-F]+|\d+[uUlL]*|[A-Za-z_]\w*|\S"
)
_WHOLE = frozenset(("int", "int64_t", "int32_t", "uint32_t", "uint64_t", "size_t", "unsigned", "long", "short"))
_TYPES = _WHOLE | {"auto", "bool", "float", "double", "dim3", "const", "constexpr", "static"}
_DTYPES = {
    "kFloat32": "float32", "kFloat": "float32", "kFloat16": "float16", "kHalf": "float16", "kBFloat16": "bfloat16",
    "kInt32": "int32", "kInt": "int32", "kInt64": "int64", "kLong": "int64", "kDouble": "float64", "kFloat64": "float64",
    "kBool": "bool", "kInt8": "int8", "kUInt8": "uint8",
}  # fmt: skip
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
_MAKERS = {"empty_like", "zeros_like", "ones_like", "full_like", "empty", "zeros", "ones", "full"}
_METHODS = {"size", "numel", "dim", "contiguous", "stride", "clone", "view", "reshape", "is_contiguous", "transpose",
            "squeeze", "cuda", "unsqueeze", "flatten", "element_size", "expand", "permute", "to", "zero_",
            "fill_"}  # fmt: skip
_NUMBERS = {"min": "min", "max": "max", "ceil": "math.ceil", "floor": "math.floor", "sqrt": "math.sqrt",
            "sqrtf": "math.sqrt", "pow": "pow", "abs": "abs", "log2": "math.log2", "exp": "math.exp"}  # fmt: skip


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


class Translator:
    """One function body. Raises: NotPlain."""

    def __init__(self, body: str, host: Host, parameters: dict[str, str]) -> None:
        self._tokens, self._at = _TOKEN.findall(re.sub(r"/\*.*?\*/|//[^\n]*", " ", body, flags=re.DOTALL)), 0
        self._host = host
        self._kinds = dict(parameters)
        self._lines: list[str] = []
        self._scalar: tuple[str, tuple[str, ...]] | None = None

    def lines(self) -> list[str]:
        """The body in Python, indented by nothing."""
        while self._at < len(self._tokens):
            self._statement("")
        return self._lines or ["pass"]

    # --- tokens ------------------------------------------------------------------------------------------------------

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

    # --- statements --------------------------------------------------------------------------------------------------

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
        if first in _TYPES - {"const", "constexpr", "static"} or first in ("cudaStream_t", "cudaError_t", "std"):
            return first != "std" or self._peek(ahead + 2) in ("vector", "tuple")
        scoped = first in ("torch", "at", "c10") and self._peek(ahead + 1) == "::"
        return scoped and self._peek(ahead + 3) not in ("(", "<")

    def _declaration(self, indent: str) -> None:
        words: list[str] = []
        while self._peek(1) not in ("=", "(", ";", ",", "{") or self._peek() in ("const",):
            words.append(self._next())
            if not self._peek():
                raise self._refused("a declaration without an end")
        kind = "whole" if _WHOLE & {*words} else "real" if {"float", "double"} & {*words} else ""
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

    # --- expressions -------------------------------------------------------------------------------------------------

    def _until(self, end: str) -> list[Value]:
        values: list[Value] = []
        while not self._take(end):
            values.append(self._expression())
            if self._peek() != end:
                self._need(",")
        return values

    def _sizes(self, values: list[Value]) -> Value:
        return Value("(" + "".join(f"{value.text}, " for value in values) + ")", "sizes")

    def _dim3(self, values: list[Value]) -> Value:
        """Three sizes; those that are not given are 1."""
        texts = [value.text for value in values] + ["1"] * (3 - len(values))
        return Value(f"({', '.join(texts)})", "dim3")

    def _expression(self) -> Value:
        condition = self._binary(0)
        if not self._take("?"):
            return condition
        first = self._expression()
        self._need(":")
        second = self._expression()
        return Value(f"({first.text} if {condition.text} else {second.text})", first.kind or second.kind)

    _LEVELS = (("||",), ("&&",), ("==", "!="), ("<", ">", "<=", ">="), ("+", "-"), ("*", "/", "%"))

    def _binary(self, level: int) -> Value:
        if level == len(self._LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        while self._peek() in self._LEVELS[level]:
            sign = self._next()
            right = self._binary(level + 1)
            kind = "real" if "real" in (left.kind, right.kind) else "whole"
            if "tensor" in (left.kind, right.kind):
                raise self._refused("arithmetic on tensors")
            if sign == "/" and kind != "real":
                sign = "//"
            sign = {"||": "or", "&&": "and"}.get(sign, sign)
            left = Value(f"({left.text} {sign} {right.text})", kind)
        return left

    def _unary(self) -> Value:
        if self._take("!"):
            return Value(f"(not {self._unary().text})", "whole")
        if self._take("-"):
            value = self._unary()
            return Value(f"(-{value.text})", value.kind)
        if self._peek() == "(" and self._peek(1) in _TYPES | {"unsigned"} and self._peek(2) == ")":
            self._next()
            kind = self._next()
            self._next()
            return self._cast(kind, self._unary())
        return self._postfix()

    def _cast(self, kind: str, value: Value) -> Value:
        if kind in _WHOLE:
            return Value(f"int({value.text})", "whole")
        return Value(f"float({value.text})", "real") if kind in ("float", "double") else value

    def _postfix(self) -> Value:
        value = self._primary()
        while True:
            if self._take(".") or self._take("->"):
                value = self._method(value)
            elif self._take("["):
                index = self._expression()
                self._need("]")
                value = Value(f"{value.text}[{index.text}]", "whole" if value.kind == "sizes" else "tensor")
            else:
                return value

    def _method(self, value: Value) -> Value:
        name = self._next()
        if value.kind == "dim3" and name in ("x", "y", "z"):
            return Value(f"{value.text}[{'xyz'.index(name)}]", "whole")
        if self._take("<"):
            while not self._take(">"):
                self._next()
        self._need("(")
        arguments = self._until(")")
        given = ", ".join(each.text for each in arguments)
        if name in ("data", "data_ptr", "const_data_ptr", "mutable_data_ptr"):
            return Value(value.text, "tensor")
        if name == "sizes":
            return Value(f"tuple({value.text}.shape)", "sizes")
        if name == "defined":
            return Value(f"({value.text} is not None)", "whole")
        if name in ("scalar_type", "dtype", "type") and not arguments:
            return Value(f"{value.text}.dtype", "dtype")
        if name == "options":
            return Value(f'{{"dtype": {value.text}.dtype, "device": {value.text}.device}}', "options")
        if name in ("dtype", "device") and value.kind == "options":
            return Value(f'{{**{value.text}, "{name}": {given}}}', "options")
        if name == "device":
            return Value(f"{value.text}.device")
        if name == "is_cuda":
            return Value(f"{value.text}.is_cuda", "whole")
        if name == "item":
            raise self._refused("the value of a tensor is asked for")
        if name not in _METHODS:
            raise self._refused(f"the method {name}")
        if name == "dim":
            return Value(f"{value.text}.dim()", "whole")
        whole = name in ("size", "numel", "stride", "element_size", "is_contiguous")
        return Value(f"{value.text}.{name}({given})", "whole" if whole else "tensor")

    def _primary(self) -> Value:
        token = self._next()
        if token == "(":
            value = self._expression()
            self._need(")")
            return Value(f"({value.text})", value.kind)
        if token == "{":
            return self._sizes(self._until("}"))
        if re.match(r"\d|\.\d", token):
            real = not token.startswith("0x") and re.search(r"[.eEfF]", token) is not None
            return Value(token.rstrip("fFuUlL") if not token.startswith("0x") else token, "real" if real else "whole")
        if token in ("true", "false"):
            return Value(token.capitalize(), "whole")
        if token == "nullptr":
            return Value("None")
        if token in ("static_cast", "reinterpret_cast", "const_cast"):
            return self._named_cast()
        if token == "sizeof":
            return self._sizeof()
        if token == "dim3":
            self._need("(")
            return self._dim3(self._until(")"))
        if token in ("torch", "at", "std", "c10") and self._take("::"):
            return self._scoped(token)
        return self._name(token)

    def _name(self, token: str) -> Value:
        if not token.isidentifier():
            raise self._refused(f"{token!r} here")
        token = python_name(token)
        if token in _NUMBERS and self._take("("):
            return self._number(token)
        if token in self._host.functions and self._take("("):
            given = ", ".join(value.text for value in self._until(")"))
            return Value(f"{self._host.own}.{token}({given})", "")
        if token in _TYPES and self._take("("):
            value = self._expression()
            self._need(")")
            return self._cast(token, value)
        if self._peek() == "(" or (token not in self._kinds and token not in self._host.known):
            raise self._refused(f"{token} is not known")
        return Value(token, self._kinds.get(token, "whole"))

    def _number(self, name: str) -> Value:
        values = self._until(")")
        kind = "real" if name in ("sqrt", "sqrtf", "pow", "log2", "exp", "ceil", "floor") else ""
        kind = kind or ("real" if any(value.kind == "real" for value in values) else "whole")
        return Value(f"{_NUMBERS[name]}({', '.join(value.text for value in values)})", kind)

    def _named_cast(self) -> Value:
        self._need("<")
        words: list[str] = []
        while not self._take(">"):
            words.append(self._next())
        self._need("(")
        value = self._expression()
        self._need(")")
        return value if "*" in words or not words else self._cast(words[-1], value)

    def _sizeof(self) -> Value:
        self._need("(")
        kind = self._next()
        self._need(")")
        size = {
            "float": 4,
            "int": 4,
            "double": 8,
            "__half": 2,
            "half": 2,
            "int64_t": 8,
            "__nv_bfloat16": 2,
            "float4": 16,
        }
        if kind == "scalar_t" and self._scalar is not None:
            return Value(f"{self._scalar[0]}.element_size()", "whole")
        if kind not in size:
            raise self._refused(f"sizeof({kind})")
        return Value(str(size[kind]), "whole")

    def _scoped(self, space: str) -> Value:
        name = self._next()
        while self._take("::"):
            name = self._next()
        if space == "std" and name in _NUMBERS:
            if self._take("<"):
                while not self._take(">"):
                    self._next()
            self._need("(")
            return self._number(name)
        if name in _DTYPES:
            return Value(f"torch.{_DTYPES[name]}", "dtype")
        if name == "kCUDA":
            return Value('"cuda"')
        if name == "getCurrentCUDAStream":
            self._need("(")
            self._until(")")
            if self._take("."):
                self._next()
                self._need("(")
                self._until(")")
            return Value("None", "stream")
        if name == "device" and self._take("("):
            return Value(f'{{"device": {self._until(")")[0].text}}}', "options")
        if name in ("TensorOptions", "dtype") and self._take("("):
            made = self._until(")")
            return Value(f'{{"dtype": {made[0].text}}}' if made else "{}", "options")
        if name in ("tuple", "make_tuple", "vector") or space == "std":
            if name == "make_tuple":
                self._need("(")
                return Value("(" + "".join(f"{value.text}, " for value in self._until(")")) + ")")
            raise self._refused(f"{space}::{name}")
        if name not in _MAKERS:
            raise self._refused(f"{space}::{name}, which is no memory of its own")
        self._need("(")
        values = self._until(")")
        given = ", ".join(f"**{value.text}" if value.kind == "options" else value.text for value in values)
        return Value(f"torch.{name}({given})", "tensor")

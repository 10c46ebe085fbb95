"""inline_expressions: expressions of such a host function as Python's. Pure."""

from __future__ import annotations

import re

from mtmc.source.inline_words import TYPES, WHOLE, Tokens, Value, python_name

_DTYPES = {
    "kFloat32": "float32", "kFloat": "float32", "kFloat16": "float16", "kHalf": "float16", "kBFloat16": "bfloat16",
    "kInt32": "int32", "kInt": "int32", "kInt64": "int64", "kLong": "int64", "kDouble": "float64", "kFloat64": "float64",
    "kBool": "bool", "kInt8": "int8", "kUInt8": "uint8",
}  # fmt: skip
_MAKERS = {"empty_like", "zeros_like", "ones_like", "full_like", "empty", "zeros", "ones", "full"}
_METHODS = {"size", "numel", "dim", "contiguous", "stride", "clone", "view", "reshape", "is_contiguous", "transpose",
            "squeeze", "cuda", "unsqueeze", "flatten", "element_size", "expand", "permute", "to", "zero_",
            "fill_"}  # fmt: skip
_NUMBERS = {"min": "min", "max": "max", "ceil": "math.ceil", "floor": "math.floor", "sqrt": "math.sqrt",
            "sqrtf": "math.sqrt", "pow": "pow", "abs": "abs", "log2": "math.log2", "exp": "math.exp"}  # fmt: skip


class Expressions(Tokens):
    """What gives a value. Raises (each method): NotPlain."""

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
        if self._peek() == "(" and self._peek(1) in TYPES | {"unsigned"} and self._peek(2) == ")":
            self._next()
            kind = self._next()
            self._next()
            return self._cast(kind, self._unary())
        return self._postfix()

    def _cast(self, kind: str, value: Value) -> Value:
        if kind in WHOLE:
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
        if token in TYPES and self._take("("):
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

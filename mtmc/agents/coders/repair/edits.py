"""Small changes of single nodes; each gives a new node and leaves the old one as it is."""

from __future__ import annotations

import libcst as cst

from mtmc.agents.coders.repair.program import New, Program

PLAIN = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
_COMMA = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
_SIMPLE = cst.Name | cst.Attribute | cst.Call | cst.Subscript | cst.Integer | cst.Float


def argument(call: cst.Call, keyword: str, position: int | None = None) -> cst.Arg | None:
    """The argument of a call that is given by keyword, or else by position."""
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value == keyword:
            return arg
    plain = [arg for arg in call.args if arg.keyword is None]
    if position is None or position >= len(plain) or any(arg.star for arg in call.args):
        return None
    return plain[position]


def with_argument(call: cst.Call, keyword: str, text: str) -> cst.Call:
    """The call with a keyword argument set: its value exchanged, or the argument added at the end."""
    given = argument(call, keyword)
    if given is not None:
        return with_value(call, given, text)
    new = cst.Arg(cst.parse_expression(text), cst.Name(keyword), equal=PLAIN)
    args = list(call.args)
    if args and not isinstance(args[-1].comma, cst.Comma):
        args[-1] = args[-1].with_changes(comma=_COMMA)
    elif args:
        new = new.with_changes(comma=args[-1].comma)
        inner = args[-2].comma if len(args) > 1 else _COMMA
        args[-1] = args[-1].with_changes(comma=inner)
    return call.with_changes(args=[*args, new])


def without_argument(call: cst.Call, keyword: str) -> cst.Call:
    """The call without one of its keyword arguments."""
    kept = [arg for arg in call.args if arg.keyword is None or arg.keyword.value != keyword]
    if kept and len(kept) < len(call.args) and kept[-1] is not call.args[-1]:
        kept[-1] = kept[-1].with_changes(comma=call.args[-1].comma)
    return call.with_changes(args=kept)


def with_value(call: cst.Call, arg: cst.Arg, text: str) -> cst.Call:
    """The call with the value of one of its arguments exchanged."""
    new = arg.with_changes(value=cst.parse_expression(text))
    return call.with_changes(args=[new if one is arg else one for one in call.args])


def with_keyword(call: cst.Call, arg: cst.Arg, keyword: str) -> cst.Call:
    """The call with one of its keywords renamed."""
    new = arg.with_changes(keyword=cst.Name(keyword))
    return call.with_changes(args=[new if one is arg else one for one in call.args])


def with_parameter(function: cst.FunctionDef, text: str) -> cst.FunctionDef:
    """The function with one more parameter at the end, given as in `def`: "eps: float = 0.0"."""
    model = cst.parse_statement(f"def f({text}): pass")
    assert isinstance(model, cst.FunctionDef)
    given = list(function.params.params)
    new = model.params.params[0]
    if given and isinstance(given[-1].comma, cst.Comma):
        new = new.with_changes(comma=given[-1].comma)
        given[-1] = given[-1].with_changes(comma=given[-2].comma if len(given) > 1 else _COMMA)
    elif given:
        given[-1] = given[-1].with_changes(comma=_COMMA)
    return function.with_changes(params=function.params.with_changes(params=[*given, new]))


def operand(node: cst.BaseExpression, code: str) -> str:
    """The text `code` of a node, in parentheses where it could not stand before a dot."""
    return code if isinstance(node, _SIMPLE) or node.lpar else f"({code})"


def integer(value: int) -> cst.Integer:
    """The literal of an integer that is not negative."""
    return cst.Integer(str(value))


def imported(program: Program, line: str) -> dict[cst.CSTNode, New]:
    """The change that adds an import after the module's last one; none where the module is empty."""
    body = program.module.body
    imports = [
        part
        for part in body
        if isinstance(part, cst.SimpleStatementLine) and isinstance(part.body[0], cst.Import | cst.ImportFrom)
    ]
    anchor = (*body[:1], *imports)[-1:]
    new = cst.parse_statement(line)
    return {one: cst.FlattenSentinel([one, new] if imports else [new, one]) for one in anchor}

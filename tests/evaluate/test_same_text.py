"""One text is audited, executed and read by Triton: what is read in another way is refused, by whoever meets it first."""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import triton.language as tl
from evaluate_sources import HONEST

from mtmc.evaluate.audit.audit import audit
from mtmc.evaluate.compiling import build
from mtmc.evaluate.loading.jitted import described, digest
from mtmc.evaluate.loading.modules import candidate_text, load_module
from mtmc.evaluate.loading.same_text import OtherText, function_of
from mtmc.syntax import canonical_text, tree_of
from mtmc.task.constants import apply_constants
from tests.exploits.catalogue import exploits, task

KERNEL = '''
@triton.jit
def add_one(x_ptr, SIZE: tl.constexpr):
    """Adds one.

    To each number.
    """
    at = tl.arange(0, SIZE)
    tl.store(x_ptr + at, tl.load(x_ptr + at) + 1)
'''
HEAD = "import torch\nimport triton\nimport triton.language as tl\n"
TAIL = "\n\nclass ModelNew(torch.nn.Module):\n    pass\n"


@pytest.mark.parametrize("number", range(60, 67))
def test_the_text_alone_gives_each_attack_of_this_kind_away(number: int) -> None:
    exploit = next(exploit for exploit in exploits() if exploit.number == number)
    outcome = audit(exploit.source, task(exploit.task).source)
    assert outcome is not None and outcome.diagnosis is not None and outcome.diagnosis.stage == "audit"
    assert outcome.diagnosis.line is not None and outcome.diagnosis.line > (0 if number == 61 else 10)


@pytest.mark.parametrize(
    "text",
    [
        "x = 'a\x0cb'",
        "x = 1\rimport os",
        "# a\u2028import os",
        "# a\x85import os",
        "x = '\ud800'",
        "# \u202eso",
        "# a\x1ab",
        "x = 1\x0c\n",
    ],
)
def test_characters_that_readers_do_not_agree_on_are_refused(text: str) -> None:
    with pytest.raises(SyntaxError, match="readers do not agree") as raised:
        canonical_text(f"y = 1\n\n{text}\n")
    assert raised.value.lineno == 3


@pytest.mark.parametrize(
    "line",
    [
        "# coding: latin-1",
        "# -*- coding: utf-7 -*-",
        "#!python\n# vim: set fileencoding=cp1252 :",
        " \t# coding=utf_16",
    ],
)
def test_no_other_coding_is_declared(line: str) -> None:
    with pytest.raises(SyntaxError, match="declares the coding"):
        canonical_text(f"{line}\nx = 1\n")


def test_what_all_readers_agree_on_stays() -> None:
    text = "# -*- coding: utf-8 -*-\n\n# coding: latin-1 is not this file's\nname = 'naïve 🚀'\tif 1 else 0\n"
    assert canonical_text(text) == text
    assert canonical_text("\ufeff" + text.replace("\n", "\r\n")) == text


def test_lines_of_a_main_module_go_and_all_others_keep_their_numbers() -> None:
    guard = "if __name__ == '__main__':"
    text = f"x = 1\n{guard}\n    import os\n    os.remove('''\n''')\ny = 2\n{guard} z = 3\n"
    assert canonical_text(text) == "x = 1\n\n\n\n\ny = 2\n\n"
    kept = f"{guard}\n    import os\nelse:\n    x = 1\ndef f():\n    {guard}\n        pass\n"
    assert canonical_text(kept) == kept
    assert audit(HEAD + kept + TAIL) is not None
    assert candidate_text(text, (("x", 7), ("y", 9), ("z", 8))) == "x = 7\n\n\n\n\ny = 9\n\n"


@pytest.mark.parametrize(
    "text",
    [
        # the name says what runs
        "__name__ = 'torch'",
        "def f(__name__): pass",
        "import math as __name__",
        "class A:\n    __class__ = int",
        "class A:\n    def __reduce_ex__(self, n): return f",
        "def __builtins__(): pass",
        "class A:\n    def __reduce__(self): return A, (), {'a': 1}",
        "class A:\n    def __reduce__(self): return f, ()",
        "class A:\n    def __reduce__(self): return A, (), (None, {'_s' + 'rc': ''})",
        "class A: pass\ndef f(A):\n    class B:\n        def __reduce__(self): return A, ()",
        # a name that means another
        "def f(vars):\n    class A:\n        vars = vars",
        "def f(type):\n    pass\nkind = type",
        "def f(eval_, setattr):\n    class A:\n        global setattr\n        setattr(f, 'a' + 'b', 1)",
        "def f() -> vars(torch): pass",
        "f = lambda vars, x=vars(torch): vars",
        "def super(): return torch.ones(1)\nclass A:\n    def f(self): super().__setattr__('a', 1)",
        "object = torch.ones(1)",
        "from math import pi as super",
        "def type(x): return torch.ones(1)\nclass A:\n    def f(self): type(self).copy_ = f",
        # letters that Python takes for others
        "\uff45val('1')",
        "import \uff4fs",
        "torch.\uff4fs",
        "x = torch.utils.\uff44ata",
        # a kernel that is another one
        "@triton.jit\ndef k(x): pass\nk._src = 'def k(x): 1'",
        "@triton.jit\ndef k(x): pass\nk.fn = 1",
        "class K(triton.runtime.jit.JITFunction):\n    def parse(self):\n        return super().parse().body",
        "from triton import JITFunction\nclass K(JITFunction):\n    src = 'def k(x): pass'",
        "class K(tl.core.tensor): pass",
        "@triton.jit\ndef k(x): pass\nsetattr(k, 'f' + 'n', 1)",
        "class A:\n    fn = 1\ndef f(k):\n    k.fn = 1",
        "@triton.jit\ndef k(x): pass\nk.rewritten_fn.update({1: 2})",
        # a beginning that is none
        "def note(s): return s\n@note('''\ndef k(x):\n    pass\n''')\ndef k(x): pass",
        "def k(x):\n    y = '''\n    def k(x): pass'''",
        "def k(x):\n    y = '''\n  async def k(x): pass'''",
        # attributes by the names in a format
        "'{0.forward.__func__}'.format(f)",
        "'{0:{1._secret}}'.format(1, f)",
        "text = '{0.os}'\ntext.format(f)",
        "text = '{0.a}'\ntext = text + '{0.os}'\ntext.format(f)",
        "str.format('{0.a}', f)",
        "''.join(['{0', '.a}']).format_map(f)",
        "look = str.format_map",
        "class A:\n    def format(self, x): pass\ntext = 'a'\ntext = f()\ntext.format(f)",
        "getattr('{0.a}' + '', 'format')(f)",
    ],
)
def test_what_would_run_otherwise_than_it_reads_is_refused(text: str) -> None:
    outcome = audit(HEAD + text + TAIL)
    assert outcome is not None and outcome.status == "rejected", text
    assert outcome.diagnosis is not None and (outcome.diagnosis.line or 0) >= HEAD.count("\n") + 1


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("def f(x: Tensor): pass", "Tensor"),
        ("@triton.jit\ndef k(x):\n    return libdevice.abs(x)", "libdevice"),
        ("def f():\n    return np.pi", "np"),
        ("class A:\n    kind = nn.Module", "nn"),
        ("x = [i for i in math_tools]", "math_tools"),
        ("def f():\n    global counter\n    return counter", "counter"),
        ("class A:\n    y = 1\n    def f(self): return y", "y"),
        ("from torch import nn\nprint(__loader)", "__loader"),
    ],
)
def test_a_name_that_the_file_does_not_have_is_told_before_anything_runs(text: str, name: str) -> None:
    outcome = audit(HEAD + text + TAIL)
    assert outcome is not None and outcome.status == "build_error"
    assert outcome.diagnosis is not None and outcome.diagnosis.kind == "NameError"
    assert f"name '{name}' is not defined" in outcome.diagnosis.message


@pytest.mark.parametrize(
    "text",
    [
        "from __future__ import annotations\ndef f(x: Tensor): pass",
        "from math import *\nfrom typing import *\nx = cos(pi)\ny: Optional[int] = None",
        "def f():\n    return later()\ndef later():\n    return 1",
        "def f():\n    global counter\n    counter = 1\ndef g():\n    return counter",
        "try:\n    import numpy as np\nexcept ImportError:\n    np = None\nx = np is None",
        "class A:\n    size = 4\n    wide = size * 2\n    def f(self):\n        return __class__.__name__",
        "x = [a * b for a in range(3) for b in range(a) if (c := a)]\ny = c",
        "with torch.no_grad() as guard:\n    print(guard, __file__, __name__)",
        "match 1:\n    case [one, *rest]:\n        print(one, rest)\n    case {'a': two, **more}:\n        print(two, more)",
        "__all__ = ['ModelNew']\n__version__ = '1'\nclass A:\n    __slots__ = ('x',)\n    __hash__ = None",
        "'{:>{w}} {x.shape[0]}'.format(1, w=3, x=1)\nTEXT = '{} of {}'\nTEXT.format(1, 2)",
        "class A:\n    def __reduce__(self):\n        return A, ()",
        "class A:\n    def format(self, x):\n        return x\na = A()\na.format(1)",
        "def outer(type):\n    def inner():\n        return type\n    return inner",
        "def f(x: torch.Tensor, *, y: 'int' = 1) -> torch.Tensor:\n    '''Sums.\n\n    Default: define it.\n    '''",
    ],
)
def test_honest_names_and_formats_pass(text: str) -> None:
    outcome = audit((text if "__future__" in text else HEAD + text) + "\nimport torch" + TAIL)
    assert outcome is None, outcome


def test_what_the_reference_lacks_its_copy_may_lack() -> None:
    dead = HEAD + "def unused():\n    return left_over\n"
    assert audit(dead + TAIL, dead) is None
    assert audit(dead + "print(np)" + TAIL, dead) is not None


def test_a_module_is_executed_without_the_loaders_own_settings(tmp_path: Path) -> None:
    with pytest.raises(NameError, match="Tensor"):
        load_module("def f(x: Tensor): pass\n", tmp_path / "leaky.py")


def test_triton_reads_what_was_executed_whatever_becomes_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "kept.py"
    module = load_module(HEAD.replace("\n", "\r\n") + "x = 'ï'\n" + KERNEL, path)
    assert path.read_bytes().decode() == HEAD + "x = 'ï'\n" + KERNEL
    path.write_text("x = 1\n")
    linecache.checkcache()
    assert inspect.getsource(module.add_one.fn).startswith("@triton.jit\ndef add_one(")
    assert "+ 1" in module.add_one.src
    nested = HEAD + "def make():" + KERNEL.replace("\n", "\n    ") + "\n    return add_one\n\nmade = make()\n"
    assert load_module(nested, tmp_path / "nested.py").made.src.startswith("def add_one(")
    assert load_module(HONEST, tmp_path / "honest.py").ModelNew


@pytest.mark.parametrize(
    "text",
    [
        "def note(s): return lambda f: f\n\n@triton.jit\n@note('''\ndef add_one(x_ptr):\n    return x_ptr\n    \"\"\"''')\n"
        'def add_one(x_ptr, SIZE: tl.constexpr):\n    tl.store(x_ptr, 1.0)  # """\n',
        "def cheap(x_ptr): return 1\n\ndef add_one(x_ptr): return 2\n\nadd_one.__wrapped__ = cheap\ntriton.jit(add_one)\n",
    ],
)
def test_a_kernel_whose_text_is_another_function_is_refused_where_it_is_made(text: str, tmp_path: Path) -> None:
    with pytest.raises(OtherText):
        load_module(HEAD + text, tmp_path / "other.py")
    assert "other" not in sys.modules


def test_a_kernel_whose_text_is_changed_later_is_refused_where_it_is_compiled(tmp_path: Path) -> None:
    module = load_module(HEAD + KERNEL, tmp_path / "changed.py")
    vars(module.add_one)["_src"] = module.add_one.src.replace("+ 1", "+ 2")
    with pytest.raises(OtherText):
        module.add_one.cache_key  # noqa: B018


def test_the_interpreter_leaves_no_names_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.runtime import interpreter

    from mtmc.evaluate.interpreter.names import keep_names_out

    rewriter = interpreter.FunctionRewriter
    monkeypatch.setattr(rewriter, "_compile_and_exec", rewriter._compile_and_exec)
    keep_names_out(interpreter)
    never = "if False:\n    inspect = ast = None\n"  # bound, as far as a text can say
    own = KERNEL.replace("    at =", "    functools = SIZE * 1 < 2\n    at =")
    assert audit(HEAD + never + own + "print(inspect, ast)" + TAIL) is None
    module = load_module(HEAD + never + own, tmp_path / "lacking.py")
    before = set(vars(module))
    rewritten = rewriter(module.add_one.fn).rewrite_ast()
    assert set(vars(module)) - before <= {"interpreter_semantic", "_InterpreterComparison"}
    assert rewritten.__globals__ is vars(module)
    for name in set(vars(module)) - before:
        outcome = audit(HEAD + f"if False:\n    {name} = 1\nx = {name}" + TAIL)
        assert outcome is not None and outcome.status == "rejected"


def test_the_interpreter_is_held_to_the_same_function(tmp_path: Path) -> None:
    from triton.runtime.interpreter import FunctionRewriter

    from mtmc.evaluate.loading import same_text

    same_text._watch.cache_clear()
    hidden = KERNEL.replace("    To each number.\n", "    def add_one(x_ptr, SIZE):\n        x_ptr\n").replace(
        "+ 1)", "+ 1)  # '''"
    )
    hidden = hidden.replace('"""', "'''")
    module = load_module(HEAD + hidden, tmp_path / "hidden.py")
    with pytest.raises(OtherText, match="add_one"):
        FunctionRewriter(module.add_one.fn).rewrite_ast()
    plain = load_module(HEAD + KERNEL, tmp_path / "plain.py")
    assert FunctionRewriter(plain.add_one.fn).rewrite_ast().__name__ == "add_one"


def test_each_text_is_parsed_once_by_all_gates_of_a_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parsed: list[str] = []
    original = ast.parse

    def counted(source: str, *rest: object, **named: object) -> object:
        parsed.append(source)
        return original(source, *rest, **named)

    monkeypatch.setattr(ast, "parse", counted)
    version, reference = HEAD + KERNEL + TAIL + f"# {tmp_path}\n", f"import torch\nrows = 3  # {tmp_path}\n"
    assert audit(version, reference) is None
    for _ in range(3):
        assert candidate_text(version, (("rows", 7),)) == version
        assert apply_constants(reference, (("rows", 7),)).startswith("import torch\nrows = 7")
        load_module(version, tmp_path / "parsed_once.py")
    assert (parsed.count(version), parsed.count(reference)) == (1, 1)


def test_the_tree_that_all_are_given_is_that_of_the_text_as_it_was(tmp_path: Path) -> None:
    version = HEAD + KERNEL + TAIL
    before = ast.dump(ast.parse(version), include_attributes=True)
    assert audit(version, version.replace("ModelNew", "Model")) is None
    candidate_text(version, (("rows", 7),))
    described(load_module(version, tmp_path / "as_it_was.py").add_one)
    assert ast.dump(tree_of(version), include_attributes=True) == before


def test_what_a_kernel_looks_up_is_asked_for_at_each_launch(tmp_path: Path) -> None:
    text = HEAD + "STEP = tl.constexpr(1)\n" + KERNEL.replace("+ 1)", "+ STEP)") + TAIL
    module = load_module(text, tmp_path / "looks_up.py")
    before = digest(described(module.add_one))
    module.STEP = tl.constexpr(2)
    after = digest(described(module.add_one))
    assert "" != before != after != ""


def test_a_text_that_was_held_first_is_not_taken_for_the_one_that_took_its_path(tmp_path: Path) -> None:
    path = tmp_path / "replaced.py"
    load_module(HEAD + KERNEL + TAIL, path)
    other = load_module(HEAD + KERNEL.replace("+ 1)", "+ 2)") + TAIL, path)
    found = function_of(other.add_one.fn.__code__)
    assert found is not None and "+ 2" in ast.unparse(found)


def test_a_text_is_executed_once_for_all_shapes_at_which_it_is_the_same(tmp_path: Path) -> None:
    known: list[object] = []
    trace, modules = SimpleNamespace(for_gpu=True, know=known.append), {}
    one, two = HEAD + KERNEL + TAIL, HEAD + KERNEL + TAIL + "rows = 3\n"
    first = build._module(one, tmp_path / "mtmc_candidate.py", trace, modules)
    (tmp_path / "small").mkdir()
    other = build._module(two, tmp_path / "small" / "mtmc_candidate.py", trace, modules)
    assert other is not first and sys.modules["mtmc_candidate"] is other
    assert build._module(one, tmp_path / "unused.py", trace, modules) is first
    assert sys.modules["mtmc_candidate"] is first, "its own name leads to it again"
    assert known == [first, other]

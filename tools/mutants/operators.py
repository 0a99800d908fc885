"""Small changes to a module's source, one at a time: what a slip of the hand would do. Runs nothing, writes nothing.

Left alone, since no test should care: docstrings and other prose, annotations (but for the bounds called in them),
asserts, what stands under TYPE_CHECKING or ``pragma: no cover``, and keywords of classes that only make them fast.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Change = tuple[str, ast.AST]  # operator, what stands in the node's place

_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
    ast.Pow: ast.Mult,
}
_CALLED = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "sorted": "list",
    "startswith": "endswith",
    "endswith": "startswith",
    "removeprefix": "removesuffix",
    "removesuffix": "removeprefix",
    "partition": "rpartition",
    "rpartition": "partition",
    "find": "rfind",
    "rfind": "find",
    "append": "count",
}
_FAST = {"frozen", "gc", "slots", "kw_only", "cache_hash"}  # what a class declares for speed or form
_SHOWN_MAX = 100


@dataclass(frozen=True)
class Mutant:
    """One changed module. ``before`` and ``after`` show the change; ``function`` is dotted, empty for the module."""

    room: str
    function: str
    line: int
    last_line: int
    operator: str
    before: str
    after: str
    source: str

    @property
    def at_import(self) -> bool:
        """Whether what was changed runs when the module is imported: then any of its tests may notice."""
        return not self.function


@dataclass(frozen=True)
class _Site:
    node: ast.AST
    put: Callable[[ast.AST], None]
    function: str
    text_counts: bool  # false in a raise: what is said there is for people


def mutants(room: str, source: str) -> Iterator[Mutant]:
    """Every mutant of a module, in the order of its lines."""
    tree = ast.parse(source)
    seen = {_compiled(ast.unparse(tree))}
    for site in sorted(_sites(tree, source), key=_line):
        for operator, changed in _changes(site):
            line = _line(site)
            site.put(changed)
            text = ast.unparse(ast.fix_missing_locations(tree))
            site.put(site.node)
            compiled = _compiled(text)
            if compiled not in seen:  # such as a `return` where the function ends anyway
                seen.add(compiled)
                end = getattr(site.node, "end_lineno", line)
                last = line if isinstance(site.node, ast.stmt) else end
                before, after = _shown(site.node), _shown(changed)
                yield Mutant(room, site.function, line, last, operator, before, after, text)


def _compiled(source: str) -> tuple[object, ...]:
    return _code(compile(source, "", "exec", dont_inherit=True, optimize=0))


def _code(code: CodeType) -> tuple[object, ...]:
    consts = [_code(const) if isinstance(const, CodeType) else (type(const), repr(const)) for const in code.co_consts]
    names = (code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return (code.co_code, code.co_exceptiontable, code.co_flags, *names, *consts)


def _line(site: _Site) -> int:
    node = site.node.target if isinstance(site.node, ast.comprehension) else site.node
    return int(getattr(node, "lineno", 0))


def _shown(node: ast.AST) -> str:
    if isinstance(node, ast.ExceptHandler):
        return "except: raise" if isinstance(node.body[0], ast.Raise) else "except: ..."
    text = ast.unparse(node).partition("\n")[0]
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."


def _sites(tree: ast.Module, source: str) -> list[_Site]:
    left_out = {number for number, line in enumerate(source.splitlines(), 1) if "pragma: no cover" in line}
    found: list[_Site] = []
    _collect(tree, "", True, left_out, found)
    return found


def _collect(parent: ast.AST, function: str, text_counts: bool, left_out: set[int], found: list[_Site]) -> None:  # noqa: FBT001  # one walk
    for name, value in ast.iter_fields(parent):
        for index, node in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(node, ast.AST) or _is_left_out(parent, name, node, left_out):
                continue
            put = _putter(parent, name, index if isinstance(value, list) else None)
            if name == "annotation":
                for call in (each for each in ast.walk(node) if isinstance(each, ast.Call)):
                    _collect(call, function, text_counts, left_out, found)
                continue
            found.append(_Site(node, put, function, text_counts))
            inner = function
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                inner = f"{function}.{node.name}" if function else node.name
            _collect(node, inner, text_counts and not isinstance(node, ast.Raise), left_out, found)


def _is_left_out(parent: ast.AST, field: str, node: ast.AST, left_out: set[int]) -> bool:
    if field in {"returns", "decorator_list", "format_spec", "op", "ops", "ctx"} or _is_type(parent, node):
        return True
    match node:
        case ast.Assert() | ast.Import() | ast.ImportFrom() | ast.Global() | ast.Nonlocal():
            return True
        case ast.Expr(value=ast.Constant()) | ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True  # a docstring; what only types need
        case ast.Assign(targets=[ast.Name(id="TYPE_CHECKING" | "__all__")]):
            return True
        case ast.keyword(arg=arg) if isinstance(parent, ast.ClassDef):
            return arg in _FAST
    return isinstance(node, ast.If) and node.lineno in left_out


def _is_type(parent: ast.AST, node: ast.AST) -> bool:
    match parent:
        case ast.Call(func=ast.Name(id="cast"), args=[first, *_]):
            return first is node
    return False


def _putter(parent: ast.AST, field: str, index: int | None) -> Callable[[ast.AST], None]:
    def put(node: ast.AST) -> None:
        if index is None:
            setattr(parent, field, node)
        else:
            getattr(parent, field)[index] = node

    return put


def _changes(site: _Site) -> Iterator[Change]:
    match site.node:
        case ast.Constant() as node:
            yield from _constant(node, text_counts=site.text_counts)
        case ast.expr() as node:
            yield from _expression(node)
        case ast.If() | ast.While() as node:
            yield from _condition(node)
        case ast.comprehension(ifs=ifs) as node:
            for number in range(len(ifs)):
                yield "drop a filter", _with(node, ifs=ifs[:number] + ifs[number + 1 :])
        case ast.ExceptHandler(body=[first, *_]) as node if not isinstance(first, ast.Raise):
            yield "handle nothing", _with(node, body=[ast.Raise()])
        case ast.AugAssign(op=op) as node:
            yield "drop", ast.Pass()
            yield "compute otherwise", _with(node, op=_COMPUTED[type(op)]())
        case ast.stmt() as node:
            yield from _statement(node)


def _expression(node: ast.expr) -> Iterator[Change]:
    match node:
        case ast.Compare():
            yield from _compare(node)
        case ast.BoolOp():
            yield from _bool_op(node)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield "drop the sign", operand
        case ast.BinOp():
            yield from _bin_op(node)
        case ast.Call():
            yield from _call(node)
        case ast.IfExp():
            yield from _condition(node)


def _with(node: ast.AST, **fields: Any) -> Any:  # noqa: ANN401  # a node of the same type
    kept = {name: value for name, value in ast.iter_fields(node) if name not in fields}
    return ast.copy_location(type(node)(**kept, **fields), node)


def _compare(node: ast.Compare) -> Iterator[Change]:
    for number, op in enumerate(node.ops):
        for other in _COMPARED[type(op)]:
            yield "compare otherwise", _with(node, ops=[*node.ops[:number], other(), *node.ops[number + 1 :]])


def _bool_op(node: ast.BoolOp) -> Iterator[Change]:
    yield "and for or", _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    for number in range(len(node.values)):
        rest = node.values[:number] + node.values[number + 1 :]
        yield "skip a check", rest[0] if len(rest) == 1 else _with(node, values=rest)


def _bin_op(node: ast.BinOp) -> Iterator[Change]:
    if isinstance(node.left, ast.Constant | ast.JoinedStr) and not isinstance(getattr(node.left, "value", ""), int):
        return  # text put together
    yield "compute otherwise", _with(node, op=_COMPUTED[type(node.op)]())


def _constant(node: ast.Constant, *, text_counts: bool) -> Iterator[Change]:
    value = node.value
    if isinstance(value, bool):
        yield "the other truth", ast.Constant(not value)
    elif isinstance(value, int | float):
        yield "one more", ast.Constant(value + 1)
        if value:
            yield "one less", ast.Constant(value - 1)
    elif isinstance(value, bytes):
        yield "other text", ast.Constant(value + b"~")
    elif isinstance(value, str) and text_counts and " " not in value:
        yield "other text", ast.Constant(value + "~")


def _call(node: ast.Call) -> Iterator[Change]:
    func = node.func
    if isinstance(func, ast.Name) and func.id in _CALLED:
        yield "call another", _with(node, func=ast.Name(_CALLED[func.id], ast.Load()))
    elif isinstance(func, ast.Attribute) and func.attr in _CALLED:
        yield "call another", _with(node, func=_with(func, attr=_CALLED[func.attr]))
    for number in range(len(node.keywords)):
        yield "drop an argument", _with(node, keywords=node.keywords[:number] + node.keywords[number + 1 :])


def _condition(node: ast.If | ast.While | ast.IfExp) -> Iterator[Change]:
    if isinstance(node.test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant):
        return  # changed where they stand
    yield "negate", _with(node, test=ast.UnaryOp(ast.Not(), node.test))


def _statement(node: ast.stmt) -> Iterator[Change]:
    match node:
        case ast.Expr(value=ast.Yield() | ast.YieldFrom() | ast.Call()) | ast.Delete() | ast.Raise():
            yield "drop", ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "drop", ast.Pass()
        case ast.Assign(targets=[ast.Name()], value=value) if not _is_none(value):
            yield "assign None", _with(node, value=ast.Constant(None))
        case ast.Continue():
            yield "leave the loop", ast.Break()
        case ast.Break():
            yield "go on", ast.Continue()
        case ast.Return(value=ast.Constant(value=bool())):
            return  # None is as false, and the other truth is tried
        case ast.Return(value=value):
            yield ("drop", ast.Pass()) if value is None or _is_none(value) else ("return None", ast.Return())
        case ast.With(items=[ast.withitem(optional_vars=None)], body=body):
            yield "without with", ast.If(ast.Constant(True), body, [])
        case ast.Try(finalbody=[_, *_], handlers=[_, *_]):
            yield "drop finally", _with(node, finalbody=[])


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None

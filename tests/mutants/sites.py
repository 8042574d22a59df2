"""Where a file of Python could be wrong, and what it would say then.

A site is a comparison, a condition, a constant, an arithmetic operation, a statement or a keyword
argument that can be changed or left out; texts, annotations and ``__repr__`` are none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType

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
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
# Arguments of which a test cannot tell anything: the encoding is the platform's own, and what is
# zipped is equally long, and no caller gives what is not to be given.
_SILENT = ("encoding", "stacklevel", "slots", "frozen", "kw_only", "strict", "init")
# A statement that begins with one of these is for readers and tools.
_NOT_RUN = ("__all__", "__slots__", "TYPE_CHECKING")


@dataclass(frozen=True)
class Site:
    """A change of the text from ``begin`` to ``end`` (lines from 1, bytes from 0).

    after: what may stand there instead. lines: if one of them runs, so does this. where: the names
    around it, from the outside, or what the statement defines. once: it may run only once in a
    process, when its module is imported or for a cache.
    """

    kind: str
    begin: tuple[int, int]
    end: tuple[int, int]
    before: str
    after: tuple[str, ...]
    lines: frozenset[int]
    where: tuple[str, ...]
    once: bool

    def applied(self, text: str, after: str) -> str:
        lines = text.encode().splitlines(keepends=True)
        first, last = lines[self.begin[0] - 1], lines[self.end[0] - 1]
        changed = first[: self.begin[1]] + after.encode() + last[self.end[1] :]
        lines[self.begin[0] - 1 : self.end[0]] = [changed]
        return b"".join(lines).decode()


def sites(text: str) -> list[Site]:
    """Those of a module, from top to bottom."""
    return list(_Finder(text).module())


def defined_by(statement: ast.stmt) -> set[str]:
    """The names that it defines or assigns to."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    nodes = ast.walk(statement)
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


class _Finder:
    def __init__(self, text: str) -> None:
        self._text = text
        self._text_lines = text.encode().splitlines(keepends=True)
        self._code = frozenset(_lines_of(compile(text, "", "exec")))
        # Of the statement that is looked at: its own lines, without those of what is inside.
        self._lines = range(0)
        self._where: tuple[str, ...] = ()
        self._once = True

    def module(self) -> Iterator[Site]:
        yield from self._block(ast.parse(self._text).body)

    def _block(self, body: list[ast.stmt], is_end: bool = False) -> Iterator[Site]:
        for statement in body:
            yield from self._statement(statement, is_end and statement is body[-1])

    def _statement(self, node: ast.stmt, is_end: bool) -> Iterator[Site]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from self._definition(node)
            return
        parts = list(_expressions(node))
        if parts and ast.unparse(parts[0]) in _NOT_RUN:
            return
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return
        last = max((part.end_lineno or 0 for part in parts), default=node.lineno)
        self._lines = range(node.lineno, max(last, node.lineno) + 1)
        outside = self._where
        self._where = self._where or (*sorted(defined_by(node)),)
        # Without a return at its end a function gives None, which types exclude.
        if _can_go(node) and not (is_end and isinstance(node, ast.Return)):
            yield self._site("statement", node, ["pass"])
        # What an error says is a text.
        for part in () if isinstance(node, ast.Raise) else parts:
            yield from self._expression(part)
        if isinstance(node, ast.If | ast.While):
            yield from self._negation(node.test)
        ends = is_end and not isinstance(node, ast.For | ast.While)
        for block in _blocks(node):
            yield from self._block(block, ends)
        self._where = outside

    def _definition(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    ) -> Iterator[Site]:
        if node.name == "__repr__":
            return
        outside = self._where, self._once
        self._where = (*self._where, node.name)
        self._lines = range(min(n.lineno for n in (node, *node.decorator_list)), node.lineno + 1)
        defaults = [] if isinstance(node, ast.ClassDef) else node.args.defaults
        defaults += [] if isinstance(node, ast.ClassDef) else filter(None, node.args.kw_defaults)
        for part in (*node.decorator_list, *defaults):
            if "dataclass" not in ast.unparse(part):
                yield from self._expression(part)
        is_function = not isinstance(node, ast.ClassDef)
        cached = any("cache" in ast.unparse(each) for each in node.decorator_list)
        self._once = cached or (self._once and not is_function)
        yield from self._block(node.body, is_end=is_function)
        self._where, self._once = outside

    def _expression(self, node: ast.AST) -> Iterator[Site]:
        if isinstance(node, ast.JoinedStr) or _of_types(node):
            return
        if isinstance(node, ast.expr):
            yield from (self._site(kind, node, after) for kind, after in _changes(node))
        if isinstance(node, ast.IfExp):
            yield from self._negation(node.test)
        for condition in node.ifs if isinstance(node, ast.comprehension) else ():
            yield from self._negation(condition)
        for child in ast.iter_child_nodes(node):
            if not (isinstance(child, ast.keyword) and child.arg in _SILENT):
                yield from self._expression(child)

    def _negation(self, test: ast.expr) -> Iterator[Site]:
        """Unless a change of the condition itself says the same."""
        if not isinstance(test, ast.UnaryOp | ast.Compare | ast.Constant):
            yield self._site("condition", test, [f"not ({ast.unparse(test)})"])

    def _site(self, kind: str, node: ast.expr | ast.stmt, after: list[str]) -> Site:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        own = self._code.intersection(range(node.lineno, node.end_lineno + 1))
        return Site(
            kind,
            (node.lineno, node.col_offset),
            (node.end_lineno, node.end_col_offset),
            self._between(node.lineno, node.col_offset, node.end_lineno, node.end_col_offset),
            tuple(text if kind == "statement" else f"({text})" for text in after),
            own or self._code.intersection(self._lines),
            self._where,
            self._once,
        )

    def _between(self, first: int, begin: int, last: int, end: int) -> str:
        lines = self._text_lines[first - 1 : last]
        lines[-1] = lines[-1][:end]
        return b"".join([lines[0][begin:], *lines[1:]]).decode()


def _changes(node: ast.expr) -> Iterator[tuple[str, list[str]]]:
    """What the expression itself could be instead, by kinds; nothing inside it changes."""
    other: list[ast.expr]
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            begin, rest = node.ops[:place], node.ops[place + 1 :]
            other = [
                ast.Compare(node.left, [*begin, each(), *rest], node.comparators)
                for each in _COMPARED[type(operator)]
            ]
            yield "comparison", [*map(ast.unparse, other)]
    elif isinstance(node, ast.BoolOp):
        swapped = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "condition", [ast.unparse(ast.BoolOp(swapped, node.values))]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        kind = "condition" if isinstance(node.op, ast.Not) else "arithmetic"
        yield kind, [ast.unparse(node.operand)]
    elif isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED and not _of_text(node):
        other = [ast.BinOp(node.left, _COMPUTED[type(node.op)](), node.right)]
        if isinstance(node.op, ast.BitOr | ast.BitAnd):
            other += [node.left, node.right]
        yield "arithmetic", [*map(ast.unparse, other)]
    elif isinstance(node, ast.Constant):
        if values := _other_values(node.value):
            yield "constant", [*map(repr, values)]
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        if len(node.elts) > 1 and all(isinstance(each, ast.Constant) for each in node.elts):
            shorter = [[*node.elts[:i], *node.elts[i + 1 :]] for i in range(len(node.elts))]
            yield "constant", [ast.unparse(_collection(node, elts)) for elts in shorter]
    elif isinstance(node, ast.Call):
        for place, keyword in enumerate(node.keywords):
            if keyword.arg is not None and keyword.arg not in _SILENT:
                left = [*node.keywords[:place], *node.keywords[place + 1 :]]
                yield "argument", [ast.unparse(ast.Call(node.func, node.args, left))]


def _collection(node: ast.Tuple | ast.List | ast.Set, elts: list[ast.expr]) -> ast.expr:
    return ast.Set(elts) if isinstance(node, ast.Set) else type(node)(elts, node.ctx)


def _other_values(value: object) -> list[object]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1]
    if isinstance(value, float):
        return [value * 2, value / 2] if value else [1.0]
    return []


def _of_types(node: ast.AST) -> bool:
    """Whether it is a union of types, which is an annotation, or the options of a dataclass."""
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) == "dataclass"
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)):
        return False
    each = ast.unparse(node).split(" | ")
    return not {"None", "bool", "int", "float", "str"}.isdisjoint(each)


def _of_text(node: ast.expr) -> bool:
    """Whether it is a text, or puts texts together."""
    if isinstance(node, ast.BinOp):
        return _of_text(node.left) or _of_text(node.right)
    is_constant = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return is_constant or isinstance(node, ast.JoinedStr)


def _can_go(node: ast.stmt) -> bool:
    call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    return call or isinstance(
        node, ast.Return | ast.Raise | ast.Continue | ast.Break | ast.AugAssign
    )


def _expressions(node: ast.stmt) -> Iterator[ast.expr]:
    """Those of the statement itself, not of the statements in it, without annotations.

    Where names get values one by one, no value can be left out.
    """
    match node:
        case ast.Assign(targets=[ast.Tuple()], value=ast.Tuple(elts=values)):
            yield from values
            return
    for name, value in ast.iter_fields(node):
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.expr) and name != "annotation":
                yield each
            elif isinstance(each, ast.withitem):
                yield each.context_expr
            elif isinstance(each, ast.match_case) and each.guard is not None:
                yield each.guard


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        yield getattr(node, name, [])
    for name in ("handlers", "cases"):
        yield from (each.body for each in getattr(node, name, []))


def _lines_of(code: CodeType) -> Iterator[int]:
    yield from (line for _, _, line in code.co_lines() if line)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _lines_of(inner)

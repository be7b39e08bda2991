"""The mutants of a source file: every small change that a test should notice.

In: a file's source. Out: its mutants, in the order of the text, and for each the changed source.
The operators are mutmut's (comparisons, arithmetic, and/or/not, numbers, strings, arguments,
assignments, conditional expressions), and four of our own: a condition is turned round, a
statement is left out, a result is None, a slice loses an end.

What is no mutant, for no test ought to hold it: docstrings, annotations and names of types,
decorators and the options of classes, `__all__`, with which words something is raised, and the
spelling of wording: of strings that hold two words side by side (messages, headings, prompts).
Unlike mutmut itself this also changes what is done when a module is loaded (its tables, limits
and patterns), properties, and functions that have a decorator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

UNTOUCHED = (cst.Annotation, cst.Decorator, cst.Import, cst.ImportFrom)
WHOLE_CALLS = {"len", "isinstance", "cast"}  # their arguments are not dropped
TYPE_NAME = re.compile(r"_?[A-Z](?:[A-Za-z0-9]*[a-z][A-Za-z0-9]*)?")
TWO_WORDS = re.compile(r"[A-Za-z]{2} [A-Za-z]{2}")


@dataclass(frozen=True)
class Mutant:
    """One change, at the lines (from 1, both included) of the statement that it is in."""

    path: str
    number: int  # in the file, from 0
    operator: str
    line: int
    lines: tuple[int, int]
    loading: bool  # done when the module is loaded, not when a function is called

    @property
    def name(self) -> str:
        """The name by which a run can be told to try this one again."""
        return f"{self.path}:{self.line}:{self.number}"


def left_out(node: cst.BaseSmallStatement) -> Iterator[cst.CSTNode]:
    """`f(x)`, `raise X` and `del x` do nothing."""
    docstring = isinstance(node, cst.Expr) and isinstance(
        node.value, cst.SimpleString | cst.ConcatenatedString | cst.Ellipsis
    )
    if not docstring:
        yield cst.Pass()


def no_result(node: cst.Return) -> Iterator[cst.CSTNode]:
    """`return x` returns None."""
    if node.value is not None and not (
        isinstance(node.value, cst.Name) and node.value.value == "None"
    ):
        yield node.with_changes(value=cst.Name("None"))


def turned(node: cst.If | cst.CompIf) -> Iterator[cst.CSTNode]:
    """`if x` is `if not x`."""
    test = node.test
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return  # mutmut takes its `not` away
    inner = test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    space = cst.SimpleWhitespace(" ")
    yield node.with_changes(
        test=cst.UnaryOperation(cst.Not(), inner),
        whitespace_before_test=space,
    )


def open_ended(node: cst.Slice) -> Iterator[cst.CSTNode]:
    """`x[a:b]` is `x[:b]` or `x[a:]`."""
    if node.lower is not None:
        yield node.with_changes(lower=None)
    if node.upper is not None:
        yield node.with_changes(upper=None)


NARROWER = {  # mutmut asks these of every node, which takes a minute
    "operator_keywords": (cst.BaseCompOp, cst.Break, cst.Continue),
    "operator_swap_op": (
        cst.BinaryOperation,
        cst.UnaryOperation,
        cst.BooleanOperation,
        cst.ComparisonTarget,
        cst.AugAssign,
    ),
}
OPERATORS: list[tuple[Any, Callable[[Any], Iterable[cst.CSTNode]]]] = [
    *((NARROWER.get(does.__name__, kinds), does) for kinds, does in mutation_operators),
    ((cst.Expr, cst.Raise, cst.Del), left_out),
    (cst.Return, no_result),
    ((cst.If, cst.CompIf), turned),
    (cst.Slice, open_ended),
]


class Mutants(cst.CSTVisitor):
    """All mutants of one file."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, path: str, source: str) -> None:
        super().__init__()
        self.path = path
        self.found: list[Mutant] = []
        self._nodes: list[tuple[cst.CSTNode, cst.CSTNode]] = []
        self._sources: dict[int, str] = {}
        self._around: list[tuple[tuple[int, int], bool]] = []  # statements, the innermost last
        self._skipped: set[cst.CSTNode] = set()  # options of classes, types of `cast`
        self._depth = 0  # of functions
        self.original = source
        wrapper = MetadataWrapper(cst.parse_module(source))
        self._module = wrapper.module
        wrapper.visit(self)

    def source(self, mutant: Mutant) -> str:
        """The file with the change."""
        if mutant.number not in self._sources:
            changed = self._module.deep_replace(*self._nodes[mutant.number])
            assert isinstance(changed, cst.Module)
            self._sources[mutant.number] = changed.code
        return self._sources[mutant.number]

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Look at a node; whether its parts are looked at too."""
        if isinstance(node, UNTOUCHED) or node in self._skipped or _is_declaration(node):
            return False
        self._enter(node)
        self._change(node)
        if isinstance(node, cst.Raise) or _is_docstring(node):
            self._leave(node)
            return False
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        """The statement or function is over."""
        self._leave(original_node)

    def _enter(self, node: cst.CSTNode) -> None:
        if isinstance(node, cst.ClassDef):
            self._skipped.update(node.keywords)
        if _called(node) == "cast" and isinstance(node, cst.Call):
            self._skipped.add(node.args[0])
        if isinstance(node, cst.SimpleStatementLine | cst.BaseCompoundStatement):
            place = self.get_metadata(PositionProvider, node)
            first, last = place.start.line, place.end.line
            if isinstance(node, cst.BaseCompoundStatement):
                body = self.get_metadata(PositionProvider, node.body)
                last = max(first, body.start.line - 1)
            self._around.append(((first, last), self._depth == 0 or _defines(node)))
        if isinstance(node, cst.FunctionDef | cst.Lambda):
            self._depth += 1

    def _leave(self, node: cst.CSTNode) -> None:
        if isinstance(node, cst.SimpleStatementLine | cst.BaseCompoundStatement):
            self._around.pop()
        if isinstance(node, cst.FunctionDef | cst.Lambda):
            self._depth -= 1

    def _change(self, node: cst.CSTNode) -> None:
        if not self._around or isinstance(node, cst.ClassDef) or _is_wording(node):
            return
        whole = _called(node) in WHOLE_CALLS
        for kinds, operator in OPERATORS:
            name = operator.__name__.removeprefix("operator_")
            if isinstance(node, kinds) and not (whole and name == "arg_removal"):
                for new in operator(node):
                    self._add(node, new, name)

    def _add(self, node: cst.CSTNode, new: cst.CSTNode, operator: str) -> None:
        lines, loading = self._around[-1]
        place = self.get_metadata(PositionProvider, node, None)
        line = place.start.line if place else lines[0]
        self.found.append(Mutant(self.path, len(self._nodes), operator, line, lines, loading))
        self._nodes.append((node, new))


def _defines(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.FunctionDef | cst.ClassDef)


def _called(node: cst.CSTNode) -> str:
    """The name of what is called, if it has no dot."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Name):
        return node.func.value
    return ""


def _is_declaration(node: cst.CSTNode) -> bool:
    """`__all__ = …`, and the name of a type: `Row = Mapping[str, Any]`."""
    if not isinstance(node, cst.Assign) or not isinstance(node.targets[0].target, cst.Name):
        return False
    name = node.targets[0].target.value
    return name == "__all__" or TYPE_NAME.fullmatch(name) is not None


def _is_wording(node: cst.CSTNode) -> bool:
    if not isinstance(node, cst.SimpleString) or "r" in node.prefix.lower():
        return False
    return TWO_WORDS.search(node.raw_value) is not None


def _is_docstring(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Expr) and isinstance(
        node.value, cst.SimpleString | cst.ConcatenatedString
    )

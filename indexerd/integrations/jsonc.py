"""JSON text that belongs to somebody else, changed at one place and nowhere else.

In: the text of a settings file, comments allowed. Out: the same text with a member or an item
put in, replaced or taken out; everything around it keeps its spaces, order, numbers and
comments to the letter. What was put in can be taken out again, and the text is then what it
was, byte for byte, as long as nobody has changed that place in between.

A container that we make begins with a line break; one that was empty before we came begins with
our first member at once, and that member has line breaks. That is how taking out knows which of
the two stays, empty. Where another program has written all of it into one line since, nobody can
know; then what is empty goes, down to the document itself, which stays.

ValueError says where a text is not JSON: a line's number, never what stands there.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from indexerd.privacy.late import late

DEPTH_MAX = 100
_GAP = late(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = late(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = late(r"[-+.0-9A-Za-z]+")
_INDENT = late(r"\n([ \t]+)\S")


@dataclass(slots=True)
class Node:
    """A value in a text, from `start` to before `end`; a container knows its children."""

    start: int
    end: int
    value: Any
    children: list[Child] = field(default_factory=list)

    def member(self, key: str) -> Node | None:
        """The value under a key of an object; of several, the last, as readers take it."""
        found = [one.node for one in self.children if one.key == key]
        return found[-1] if found else None


@dataclass(frozen=True, slots=True)
class Child:
    """A member or an item: where it starts (its key, if it has one), and the comma before it."""

    start: int
    node: Node
    key: str | None = None
    comma: int = -1

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.node.end


def parse(text: str) -> Node:
    """Read one document; ValueError where it is none."""
    node = _value(text, _skip(text, 0), 0)
    if _skip(text, node.end) != len(text):
        raise _wrong(text, node.end)
    return node


def insert(text: str, into: Node, value: Any, key: str | None = None) -> str:
    """The text with one more member (`key`) or item as the last of a container."""
    newline = "\r\n" if "\r\n" in text else "\n"
    if into.children:
        last = into.children[-1]
        before = into.children[-2].end if len(into.children) > 1 else into.start + 1
        lead = text[before : last.start].rpartition("\n")
        own_line = bool(lead[1]) and not lead[2].strip()
        gap = f"{newline}{lead[2]}" if own_line else " "
        margin = lead[2] if own_line else _margin(text, into.start)
        new = "," + gap + _rendered(text, value, key, margin, newline)
        return text[: last.end] + new + text[last.end :]
    new = _rendered(text, value, key, _margin(text, into.start), newline)
    return text[: into.start + 1] + new + text[into.start + 1 :]


def replace(text: str, node: Node, value: Any) -> str:
    """The text with another value in the place of one."""
    newline = "\r\n" if "\r\n" in text else "\n"
    new = _rendered(text, value, None, _margin(text, node.start), newline)
    return text[: node.start] + new + text[node.end :]


def remove(text: str, path: list[tuple[Node, int]]) -> str | None:
    """The text without one child, and without the containers that we had made around it.

    `path` leads from the document to the child: each container, and the child's index in it.
    None: nothing is left of the whole document.
    """
    container, index = path[-1]
    child = container.children[index]
    around = text[container.start + 1 : child.start], text[child.end : container.end - 1]
    if len(container.children) > 1 or "".join(around).strip():  # others, or a comment of theirs
        return _without(text, container, index)
    if len(path) == 1:
        return None if around[0] else _without(text, container, index)
    if around[0] or (child.node.children and "\n" not in text[child.start : child.end]):
        return remove(text, path[:-1])
    return _without(text, container, index)


def _without(text: str, container: Node, index: int) -> str:
    children = container.children
    child = children[index]
    if index:
        start, end, comma = children[index - 1].end, child.end, child.comma
    elif len(children) > 1:
        start, end, comma = child.start, children[1].start, children[1].comma
    else:
        return text[: child.start] + text[child.end :]
    between = text[start : child.start] + text[child.end : end]
    if not between.replace(",", "", 1).strip():
        return text[:start] + text[end:]
    # A comment of the user's stands between the two, and stays.
    spans = sorted([(comma, comma + 1), (child.start, child.end)])
    (first, second), kept = spans, text
    return kept[: first[0]] + kept[first[1] : second[0]] + kept[second[1] :]


# -- writing -------------------------------------------------------------------------------------


def document(value: Any) -> str:
    """A new text, in the form that the agents write themselves."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _rendered(text: str, value: Any, key: str | None, margin: str, newline: str) -> str:
    """A value (and its key) as text, its later lines below `margin`."""
    found = _INDENT.search(text)
    unit = found[1] if found and not found[1].strip(" ") else ("\t" if found else "  ")
    shown = json.dumps(value, indent=unit, ensure_ascii=False)
    label = "" if key is None else json.dumps(key, ensure_ascii=False) + ": "
    return label + shown.replace("\n", newline + margin)


def _margin(text: str, at: int) -> str:
    """The spaces that the line of a place begins with."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


# -- reading -------------------------------------------------------------------------------------


def _value(text: str, at: int, depth: int) -> Node:
    if depth > DEPTH_MAX:
        raise ValueError("nested too deeply")
    opened = text[at : at + 1]
    if opened == "{":
        return _container(text, at, "}", depth)
    if opened == "[":
        return _container(text, at, "]", depth)
    found = (_STRING if opened == '"' else _SCALAR).match(text, at)
    if found is None:
        raise _wrong(text, at)
    try:
        return Node(at, found.end(), json.loads(found[0]))
    except (ValueError, RecursionError):
        raise _wrong(text, at) from None


def _container(text: str, start: int, closing: str, depth: int) -> Node:
    node = Node(start, start, {} if closing == "}" else [])
    at, comma = _skip(text, start + 1), -1
    while text[at : at + 1] != closing or comma >= 0:
        child = _child(text, at, depth, comma, keyed=closing == "}")
        node.children.append(child)
        if child.key is None:
            node.value.append(child.node.value)
        else:
            node.value[child.key] = child.node.value
        at, comma = _skip(text, child.end), -1
        if text[at : at + 1] == ",":
            at, comma = _skip(text, at + 1), at
        elif text[at : at + 1] != closing:
            raise _wrong(text, at)
    node.end = at + 1
    return node


def _child(text: str, at: int, depth: int, comma: int, *, keyed: bool) -> Child:
    if not keyed:
        return Child(at, _value(text, at, depth + 1), comma=comma)
    name = _STRING.match(text, at)
    colon = _skip(text, name.end()) if name else at
    if name is None or text[colon : colon + 1] != ":":
        raise _wrong(text, colon)
    key = str(_value(text, at, depth).value)
    return Child(at, _value(text, _skip(text, colon + 1), depth + 1), key, comma)


def _skip(text: str, at: int) -> int:
    found = _GAP.match(text, at)
    return found.end() if found else at


def _wrong(text: str, at: int) -> ValueError:
    return ValueError(f"not JSON in line {text.count(chr(10), 0, at) + 1}")

"""Finding `@@…` in prompts (S0.47, S0.48, S0.58, S0.65)."""

import pytest

from indexerd.references.parse import find

ID = "0199c3f2-7a10-7bbb-8000-0123456789ab"


def refs(text: str) -> list[str]:
    """The references of a text, without `@@`."""
    return [reference.ref for reference in find(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"see @@{ID}.", [ID]),
        (f"see @@{ID.upper()}!", [ID.upper()]),
        ("@@confirm-button-refactor, please", ["confirm-button-refactor"]),
        ('like in @@"Confirm button refactor".', ["Confirm button refactor"]),
        ("like in @@“Confirm button  refactor”", ["Confirm button refactor"]),
        ("(@@a) **@@b** @@c's", ["a", "b", "c"]),
        ("@@ses_4f2 and @@v1.2-plan.", ["ses_4f2", "v1.2-plan"]),
        ("请看@@名字。然后", ["名字"]),
        ("@@हिन्दी-नाम", ["हिन्दी-नाम"]),
        (f"看@@{ID}了 @@{ID}é", [ID, ID]),
        ("_@@ses_4_ *@@b* __@@c__", ["ses_4", "b", "c"]),
        ("That is it.@@a -@@b see...@@c and @@d...", ["a", "b", "c", "d"]),
        ("@@parser-fix—and @@parser-fix🚀2 @@a…", ["parser-fix", "parser-fix", "a"]),
        ('@@"a `b` c"', ["a `b` c"]),
        ("@@c++ @@c#, @@c#x @@c+", ["c++", "c#", "c", "c"]),
    ],
)
def test_what_is_a_reference(text: str, found: list[str]) -> None:
    """S0.47, S0.48: ids and names anywhere in a prompt, up to punctuation."""
    assert refs(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "@@",
        "@@ name",
        "@name",
        "@@@name",
        "me@@example.org",
        "@@bob@example.org",
        "see a/@@b",
        r"\@@name",
        '@@"no end',
        '@@""',
        "`@@code`",
        "`` a ` @@code ``",
        "```\n@@code\n```",
        "~~~sh\n@@code\n```\n@@code\n~~~",
        "  ````\n```\n@@code",
        "- ```\n  @@code\n  ```",
        "* ```sh\n  @@code\n  ```",
        "10. run\n\n    ```\n    x\n\n    @@code\n    ```",
        "> ```\n> @@code",
        f"@@{ID}@x",
        "a_@@b",
    ],
)
def test_what_is_no_reference(text: str) -> None:
    """`@@` alone, in addresses and paths, in code, or after a backslash."""
    assert refs(text) == []


def test_code_ends() -> None:
    """Text after a code span, a code block or a lone backtick's paragraph counts again."""
    text = "`x` @@a\n```\n@@no\n```\n@@b ` here\n\n@@c ` there"
    nested = "- ```\n  @@no\n  ```\n@@d\n> ```\n> @@no\n> ```\n\n@@e"
    assert refs(text) == ["a", "b", "c"]
    assert refs(nested) == ["d", "e"]


@pytest.mark.parametrize(
    ("text", "up"),
    [("@@a~2", 2), ("@@a~99", 10), ('@@"a b"~1', 1), ("@@a~", 0), ("@@a~2x", 0), ("@@a~x", 0)],
)
def test_ancestors(text: str, up: int) -> None:
    """S0.58: `~N` asks for ancestors, ten at most."""
    assert [reference.up for reference in find(text)] == [up]


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("@@a: what was left?", "what was left?"),
        ("@@a:what was left? And then go on.", "what was left?"),
        ('@@"a b"~1: why v1.2, e.g. for tests?', "why v1.2, e.g. for tests?"),
        ("@@名：为什么？", "为什么？"),  # noqa: RUF001 - full-width on purpose
        ("@@a what was left?", None),
        ("@@a: go on with this. Can you?", None),
        ("@@a: go on with this", None),
        ("@@a:\nwhat was left?", None),
        ("@@a: ?", None),
        ("@@a: why is `foo()` slow, and `--retry` on?", "why is `foo()` slow, and `--retry` on?"),
        ("@@a: why?!", "why?!"),
        ("@@a:: why?", "why?"),
        ("@@a: open http://x/?q=1 and go on", None),
    ],
)
def test_questions(text: str, question: str | None) -> None:
    """S0.65: one sentence ending with a question mark, after a colon, on the same line."""
    assert [reference.question for reference in find(text)] == [question]

"""Sessions built in memory, and their exported pages."""

import json
from pathlib import Path

from indexerd.digests.segments import Segment, encode
from indexerd.web.document import document_of
from indexerd.web.session_page import session_page, wish_for
from tests.sessions.opening import opened
from tests.sessions.tree_sessions import call, entry, result, said, session

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
    "AAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
EVIL = "</script><script>window.owned=1</script><img src=http://127.0.0.1:9/x onerror=owned=1>"


def page_of(folder: Path, entries: list[bytes], *digests: Segment) -> Path:
    """The exported page of a session with these entries."""
    (folder / "s1.digest.jsonl").write_text(
        "".join(json.dumps(encode(digest)) for digest in digests)
    )
    held = opened(session(*entries), home=folder)
    row = {"sessionId": "s1", "cwd": "/w", "name": f"Tidy up {EVIL}", "agent": "pi"}
    row["parentSessionId"] = "p1"
    stored = {"session": row, "context": {"files": ["/w/<b>.py"]}}
    page = folder / "page.html"
    page.write_text(session_page(document_of(held, stored, wish_for("html"))))
    return page


LOOKING = {"type": "text", "text": "I look."}
FORKED = [
    said("a", None, "user", f"Where do alerts go? {EVIL}"),
    said("b", "a", "assistant", content=[LOOKING, call("1", "bash", command=EVIL)]),
    result("c", "b", "1", "bash", "alerts.py", at=1),
    said("d", "c", "assistant", "Redis or a file.", at=2),
    entry("label", "l", "d", 2, targetId="d", label="storage"),
    said("e", "l", "user", "Take Redis.", at=3),
    said("f", "e", "assistant", "Redis is too big.", at=4),
    said("g", "l", "user", "Take a file.", at=5),
    said("h", "g", "assistant", "It is written.", at=6),
]


def forked(folder: Path) -> Path:
    """A session of two branches, with a label, a digest, and markup in every text."""
    told = {"content": f"- Alerts. {EVIL}", "key_decisions": (f"No Redis. {EVIL}",)}
    return page_of(folder, FORKED, Segment(id="x", covering=(0, 2), model="m", leaf_id="d", **told))


def hostile(count: int) -> list[bytes]:
    """Texts of megabytes, control characters, markup, and nested forks."""
    entries = [said("0", None, "user", "A" * 5_000_000)]
    for at in range(1, count):
        above = at - 1 if at % 3 else max(0, at - 2)
        role = "user" if at % 2 else "assistant"
        entries.append(said(str(at), str(above), role, f"{EVIL} \x1b]0;x\x07 {at}", at=at))
    return entries

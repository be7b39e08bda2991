"""What a session's page stands beside, and what must be in it, for `bench_view.py`.

In: the bytes of a session's file. Out: pages that do the least (one row; the same data, parsed; as
many plain rows), a server that tells a page of each new line, and whether a page shows all that the
file has: by the words of its rows, in order, wherever one looks, and those of its conversation.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from measure import Bench

ROW = "[role=treeitem]"
EMPTY = f"<!doctype html><html lang=en><title>x</title><p {ROW.strip('[]')}>One row.</p>"
PLACES = 5  # in a tree, that are looked at
SCREEN = 10  # rows that one place shows, at least
CUT = 60  # characters of a row that are compared
SHOWN = 0.95  # of what was said, in the conversation: marks of prose are drawn, not told
IN_SIGHT = """async (share) => {
  const box = document.getElementById("tree");
  const next = () => new Promise(requestAnimationFrame);
  box.scrollTop = share * box.scrollHeight;
  for (let n = 0; n < 6; n++) await next();
  const { top, bottom } = box.getBoundingClientRect();
  const inside = (one) => one.getBoundingClientRect().top >= top - 1
    && one.getBoundingClientRect().bottom <= bottom + 1;
  return [...box.querySelectorAll("[role=treeitem]")].filter(inside)
    .map((one) => [...one.querySelector(".words").childNodes]
      .filter((part) => part.className !== "bad").map((part) => part.textContent).join(""));
}"""
FOLLOWS = """<p id=count></p><pre id=new></pre><script>
let held = %d;
new EventSource("/events").onmessage = ({ data }) => {
  const { message } = JSON.parse(data);
  document.getElementById("new").append(message.content[0].text + "\\n");
  document.getElementById("count").textContent = `${(++held).toLocaleString("en-US")} entries`;
};
</script>"""


# -- the least ------------------------------------------------------------------------------------


def parsed(page: Path, target: Path) -> Path:
    """A page that holds the same data, parses it, and draws one row."""
    text = page.read_text()
    data = text[text.index('<script type="application/json"') :]
    data = data[: data.index("</script>") + len("</script>")]
    work = "JSON.parse(document.getElementById('data').textContent)"
    target.write_text(f"{EMPTY}{data}<script>{work}</script>")
    return target


def plain(data: bytes, target: Path) -> Path:
    """A page of as many plain rows as the file has entries; the last of them ends it."""
    told = "\n".join(escape(one[:120]) for one in texts(data))
    target.write_text(
        f"<!doctype html><title>x</title><pre>{told}</pre>{EMPTY[EMPTY.index('<p') :]}"
    )
    return target


@contextmanager
def tail(page: Path, path: Path, entries: int) -> Iterator[str]:
    """Serve a page that shows each line which is appended to a file; the address."""
    body = (page.read_text() + FOLLOWS % entries).encode()
    ended = threading.Event()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            if self.path != "/events":
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write(body)
                return
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            with path.open("rb") as file:
                file.seek(0, 2)
                while not ended.is_set():
                    line = file.readline()
                    self.wfile.write(b"data: %s\n\n" % line.rstrip() if line else b"")
                    time.sleep(0 if line else 0.002)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        ended.set()
        server.shutdown()
        server.server_close()


# -- whether all is there -------------------------------------------------------------------------


def texts(data: bytes) -> list[str]:
    """Of each entry what was said in it, in the order of the file, which is the tree's here."""
    return [said(json.loads(row)) for row in data.splitlines()[1:]]


def said(entry: dict[str, Any]) -> str:
    """The words of a message; of what is none, nothing."""
    parts = entry.get("message", {}).get("content", [])
    parts = [{"type": "text", "text": parts}] if isinstance(parts, str) else parts
    return "\n".join(one["text"] for one in parts if one.get("type") == "text")


def whole(bench: Bench, name: str, page: Any, data: bytes) -> None:
    """Hold a page against its file: its count, its rows wherever one looks, its conversation."""
    wanted = [bare(one[: 9 * CUT])[: 2 * CUT] for one in texts(data)]
    count = len(wanted)
    first = next(one for one in wanted if one)[:CUT]
    begins = bare(page.evaluate("document.getElementById('path').textContent.slice(0, 2000)"))
    bench.check(f"{name}: the conversation begins with what was asked first", ok=first in begins)
    page.select_option("#filter", "all")
    told = page.locator("#count").inner_text()
    bench.check(f"{name}: {count} entries", ok=told == f"{count:,} of {count:,} entries")
    at = []
    for n in range(PLACES):
        seen = page.evaluate(IN_SIGHT, n / (PLACES - 1))
        at.append(found(seen, wanted))
        bench.check(f"{name}: rows {n + 1}/{PLACES} are the file's", ok=at[-1] >= 0)
        bench.check(f"{name}: rows {n + 1}/{PLACES} fill the tree", ok=len(seen) >= SCREEN)
    bench.check(f"{name}: the tree begins with the first", ok=at[0] == 0)
    bench.check(f"{name}: and goes on", ok=at == sorted(set(at)))
    bench.check(f"{name}: it ends with the last", ok=at[-1] + len(seen) == count)


def found(seen: list[str], wanted: list[str]) -> int:
    """From which entry on the rows are those of the file, one after the other; -1 of none."""
    rows = [bare(one.partition(": ")[2])[:CUT] for one in seen]
    for at in range(len(wanted) - len(rows) + 1):
        there = zip(rows, wanted[at : at + len(rows)], strict=True)
        if all(not one or (row and one.startswith(row)) for row, one in there):
            return at
    return -1


def talk(page: Any, data: bytes) -> bool:
    """Whether the conversation has what was said in the whole of a session: in the end it does."""
    wanted = [
        bare(said(entry))[:CUT]
        for entry in map(json.loads, data.splitlines()[1:])
        if entry.get("message", {}).get("role") in ("user", "assistant") and said(entry)
    ]
    there = bare(page.evaluate("document.getElementById('path').textContent"))
    return sum(one in there for one in wanted) >= SHOWN * len(wanted)


def bare(text: str) -> str:
    """Letters and digits alone: what is left of a text however it is set."""
    return re.sub(r"[\W_]+", "", text)

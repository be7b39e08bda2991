"""Sessions of pi, version 3 of the file: one line an entry, each below the one before.

Now and then the human goes back and asks something else there (the next entry's parent is an
older one), names the session, sets a label or another model, runs a command, or compacts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from corpus_text import Clock, Draw, Written, iso

_ARGUMENTS = {
    "bash": b'"command":"%s"',
    "edit": b'"path":"src/app.ts","edits":[{"oldText":"old","newText":"%s"}]',
    "read": b'"path":"src/%s.ts"',
    "write": b'"path":"src/new.ts","content":"%s"',
}
_USAGE = (
    b'"usage":{"input":%d,"output":%d,"cacheRead":%d,"cacheWrite":0,"totalTokens":%d,"cost":'
    b'{"input":0.013875000000000002,"output":0.0035250000000000004,"cacheRead":0,"cacheWrite":0,'
    b'"total":0.017400000000000002}}'
)
_PICTURE = b',{"type":"image","data":"%s","mimeType":"image/png"}'


@dataclass
class _Session:
    draw: Draw
    clock: Clock
    target: int
    due: int  # bytes of pictures to come
    newer: bool  # its answers end with what the provider said, as they do since 0.87
    lines: list[bytes] = field(default_factory=list)
    ids: list[bytes] = field(default_factory=list)
    parent: bytes = b""
    size: int = 0
    users: int = 0
    pictures: int = 0

    def entry(self, kind: bytes, body: bytes) -> None:
        """One more line; `body` is what only this kind of entry has."""
        draw = self.draw
        own = draw.hex(8)
        above = b'"%s"' % self.parent if self.parent else b"null"
        at = self.clock.tick(40 + int(draw.random() * 20_000))
        self.add(
            b'{"type":"%s","id":"%s","parentId":%s,"timestamp":"%s",%s}\n'
            % (kind, own, above, at, body)
        )
        self.ids.append(own)
        self.parent = own

    def add(self, line: bytes) -> None:
        """A line as it is."""
        self.lines.append(line)
        self.size += len(line)

    def picture(self) -> bytes:
        """A block with a picture, if one is due."""
        if self.pictures >= self.due or self.draw.random() > 0.4:
            return b""
        data = self.draw.picture()
        self.pictures += len(data)
        return _PICTURE % data

    def ask(self) -> None:
        """A human message."""
        self.users += 1
        said = (self.draw.prose("prompt"), self.picture(), self.clock.ms)
        self.entry(
            b"message",
            b'"message":{"role":"user","content":[{"type":"text","text":"%s"}%s],"timestamp":%d}'
            % said,
        )

    def answer(self, tool: str = "") -> None:
        """What the model says, and the tool's call with its result; without one, the turn ends."""
        draw, blocks = self.draw, []
        if draw.random() < 0.1:
            thought = (draw.prose("thought"), draw.hex(64))
            blocks.append(b'{"type":"thinking","thinking":"%s","thinkingSignature":"%s"}' % thought)
        if not tool or draw.random() < 0.45:
            blocks.append(b'{"type":"text","text":"%s"}' % draw.prose("said", 1 if tool else 3))
        call = b"toolu_" + draw.hex(22)
        if tool:
            given = draw.hex(6) if tool == "read" else draw.code("argument")
            called = (call, tool.encode(), _ARGUMENTS[tool] % given)
            blocks.append(b'{"type":"toolCall","id":"%s","name":"%s","arguments":{%s}}' % called)
        stop = b"toolUse" if tool else b"stop"
        spent, put = int(draw.random() * 4000), int(draw.random() * 900)
        read = int(draw.random() * 90_000)
        usage = _USAGE % (spent, put, read, spent + put + read)
        raw = b',"responseId":"msg_%s","rawStopReason":"%s"' % (draw.hex(24), stop)
        self.entry(
            b"message",
            b'"message":{"role":"assistant","content":[%s],"api":"anthropic-messages","provider":'
            b'"anthropic","model":"claude-opus-4-5",%s,"stopReason":"%s","timestamp":%d%s}'
            % (b",".join(blocks), usage, stop, self.clock.ms, raw if self.newer else b""),
        )
        if tool:
            self.result(call, tool)

    def result(self, call: bytes, tool: str) -> None:
        """What a tool gave back."""
        draw = self.draw
        text, details = draw.code(tool), b""
        if tool == "edit":
            details = b',"details":{"diff":"%s","firstChangedLine":7}' % text
            text = b"Successfully replaced 1 block(s) in src/app.ts."
        shown = self.picture() if tool == "read" else b""
        failed = b"true" if draw.random() < 0.05 else b"false"
        told = (call, tool.encode(), text, shown, details, failed, self.clock.ms)
        self.entry(
            b"message",
            b'"message":{"role":"toolResult","toolCallId":"%s","toolName":"%s","content":[{"type":'
            b'"text","text":"%s"}%s]%s,"isError":%s,"timestamp":%d}' % told,
        )

    def beside(self) -> None:
        """What else stands between turns, sometimes."""
        draw, chance = self.draw, self.draw.random()
        if chance < 0.03:
            self.entry(b"thinking_level_change", b'"thinkingLevel":"high"')
        elif chance < 0.05:
            named = (self.ids[int(draw.random() * len(self.ids))], draw.name())
            self.entry(b"label", b'"targetId":"%s","label":"%s"' % named)
        elif chance < 0.07:
            self.entry(b"session_info", b'"name":"%s"' % draw.name())
        elif chance < 0.08:
            told = (draw.prose("summary"), self.ids[-1])
            self.entry(
                b"compaction", b'"summary":"%s","firstKeptEntryId":"%s","tokensBefore":99000' % told
            )
        elif chance < 0.1:
            ran = (draw.code("bash"), self.clock.ms)
            self.entry(
                b"message",
                b'"message":{"role":"bashExecution","command":"make","output":"%s","exitCode":0,'
                b'"cancelled":false,"truncated":false,"timestamp":%d}' % ran,
            )
        elif chance < 0.12:
            self.entry(b"custom", b'"customType":"todo","data":{"count":3}')
        if len(self.ids) > 12 and draw.random() < 0.04:
            self.parent = self.ids[2 + int(draw.random() * (len(self.ids) - 6))]


def write(folder: Path, draw: Draw, target: int, at: int, due: int) -> Written:
    """Write one session of about `target` bytes that began at `at` (ms)."""
    project = b"project-%03d" % int(200 * draw.random() ** 2)
    own, began = draw.uuid(), iso(at)
    held = _Session(draw, Clock(at), target, due, newer=draw.random() < 0.5)
    held.add(
        b'{"type":"session","version":3,"id":"%s","timestamp":"%s","cwd":"/home/dev/%s"}\n'
        % (own, began, project)
    )
    held.entry(b"model_change", b'"provider":"anthropic","modelId":"claude-opus-4-5"')
    held.entry(b"thinking_level_change", b'"thinkingLevel":"medium"')
    while held.size < target or not held.users:
        held.ask()
        for _ in range(draw.calls()):
            held.answer(draw.tool())
            if held.size >= target:
                break
        held.answer()
        held.beside()
    name = f"{began.decode().replace(':', '-').replace('.', '-')}_{own.decode()}.jsonl"
    path = folder / "sessions" / f"--home-dev-{project.decode()}--" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(held.lines))
    return Written(str(path), held.size, len(held.lines), held.users, held.pictures)

"""Sessions of Claude Code, as version 2.1 writes them: much beside what is said.

Every block of an answer is a line of its own; a tool's result is a line of type `user`, with the
output twice. A session begins with a quarter of a megabyte of attachments and of what was asked of
the model, which repeats it; here that is at most a part of the session's bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from corpus_text import Clock, Draw, Written

_ANSWER = (
    b'"message":{"id":"msg_%s","type":"message","role":"assistant","model":"claude-sonnet-4-5",'
    b'"content":[%s],"stop_reason":"%s","stop_sequence":null,"usage":{"input_tokens":%d,'
    b'"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":20,'
    b'"output_tokens_details":{"thinking_tokens":0},"server_tool_use":{"web_search_requests":0,'
    b'"web_fetch_requests":0},"service_tier":"standard","cache_creation":'
    b'{"ephemeral_1h_input_tokens":0,"ephemeral_5m_input_tokens":0},"inference_geo":"",'
    b'"iterations":[],"speed":"standard","fallback_credit":null},"stop_details":null},'
    b'"apiBlockIndex":%d,"requestRef":"%s","requestedModel":"claude-sonnet-4-5",'
    b'"promptCacheRequested":"5m","type":"assistant"'
)
_TOOLS = {
    "bash": (b"Bash", b'"command":"%s","description":"Run it"'),
    "edit": (b"Edit", b'"file_path":"/home/dev/app.ts","old_string":"old","new_string":"%s"'),
    "read": (b"Read", b'"file_path":"/home/dev/%s.ts"'),
    "write": (b"Write", b'"file_path":"/home/dev/new.ts","content":"%s"'),
}
_PICTURE = b',{"type":"image","source":{"type":"base64","media_type":"image/png","data":"%s"}}'


@dataclass
class _Session:
    draw: Draw
    clock: Clock
    own: bytes
    cwd: bytes
    due: int
    lines: list[bytes] = field(default_factory=list)
    parent: bytes = b""
    request: bytes = b""
    prompts: list[tuple[bytes, bytes]] = field(default_factory=list)  # what they hang from, own id
    size: int = 0
    pictures: int = 0

    def add(self, line: bytes) -> None:
        self.lines.append(line)
        self.size += len(line)

    def note(self, kind: bytes, body: bytes) -> None:
        """A line that is in no chain."""
        self.add(b'{"type":"%s","sessionId":"%s",%s}\n' % (kind, self.own, body))

    def node(self, body: bytes, after: bytes = b"", before: bytes = b"") -> bytes:
        """A line of the chain; its id."""
        draw = self.draw
        own = draw.uuid()
        above = b'"%s"' % self.parent if self.parent else b"null"
        at = self.clock.tick(10 + int(draw.random() * 5000))
        told = (above, before, body, own, at, after, self.cwd, self.own)
        self.add(
            b'{"parentUuid":%s,"isSidechain":false,%s%s,"uuid":"%s","timestamp":"%s",%s'
            b'"userType":"external","entrypoint":"cli","cwd":"%s","sessionId":"%s",'
            b'"version":"2.1.330","gitBranch":"main"}\n' % told
        )
        self.parent = own
        return own

    def attach(self, kind: bytes, size: int) -> None:
        """What is put beside a prompt."""
        text = self.draw.filler(size)
        self.node(
            b'"attachment":{"type":"%s","content":"%s"},"type":"attachment"' % (kind, text),
            b'"rendered":[{"content":"%s"}],"renderedRole":"system",'
            % text[:2000].rpartition(b" ")[0],
        )

    def ask(self) -> None:
        """A human message, and what the client puts beside it."""
        draw = self.draw
        if len(self.prompts) > 4 and draw.random() < 0.04:  # the human goes back
            self.parent = self.prompts[-2][0]
        above = self.parent
        shown = b""
        if self.pictures < self.due and draw.random() < 0.5:
            data = draw.picture()
            self.pictures += len(data)
            shown = _PICTURE % data
        text = draw.prose("prompt")
        self.note(
            b"queue-operation", b'"operation":"enqueue","timestamp":"%s"' % self.clock.tick(1)
        )
        own = self.node(
            b'"type":"user","message":{"role":"user","content":[{"type":"text","text":"%s"}%s]}'
            % (text, shown),
            b'"permissionMode":"default","promptSource":"typed",',
            b'"promptId":"%s",' % draw.uuid(),
        )
        self.prompts.append((above, own))
        self.attach(b"total_tokens_reminder", 60)
        self.asked_of_model(text)

    def asked_of_model(self, text: bytes) -> None:
        """The client's own record of a request; it repeats what was said."""
        self.request = self.draw.uuid()
        digest = self.draw.hex(64)
        self.note(
            b"api-request-blob",
            b'"hash":"%s","message":{"role":"user","content":[{"type":"text","text":"%s"}]}'
            % (digest, text),
        )
        self.note(
            b"api-request",
            b'"id":"%s","timestamp":"%s","version":"2.1.330","querySource":"sdk","shapeHash":"%s",'
            b'"params":{"model":"claude-sonnet-4-5","betas":["claude-code-20250219"],"max_tokens":'
            b'32000},"keep":0,"tail":["%s"],"requestDigest":"%s"'
            % (self.request, self.clock.tick(1), self.draw.hex(64), digest, self.draw.hex(64)),
        )

    def answer(self, tool: str = "") -> None:
        """What the model says, a line for each block of it, and the tool's result."""
        draw = self.draw
        blocks = []
        if draw.random() < 0.15:
            thought = (draw.prose("thought"), draw.hex(64))
            blocks.append(b'{"type":"thinking","thinking":"%s","signature":"%s"}' % thought)
        if not tool or draw.random() < 0.45:
            blocks.append(b'{"type":"text","text":"%s"}' % draw.prose("said", 1 if tool else 3))
        call = b"toolu_" + draw.hex(24)
        if tool:
            name, given = _TOOLS[tool]
            said = given % (draw.hex(6) if tool == "read" else draw.code("argument"))
            told = (call, name, said)
            blocks.append(b'{"type":"tool_use","id":"%s","name":"%s","input":{%s}}' % told)
        stop, message = b"tool_use" if tool else b"end_turn", draw.hex(24)
        used = 20_000 + int(draw.random() * 9000)
        for at, block in enumerate(blocks):
            answer = _ANSWER % (message, block, stop, used, at, self.request)
            self.node(answer, b'"perTurnEffort":null,"madeBy":"model",')
        if tool:
            self.result(call, tool)

    def result(self, call: bytes, tool: str) -> None:
        """What a tool gave back, as the model sees it and once more."""
        draw, text = self.draw, self.draw.code(tool)
        if tool == "edit":
            twice = b'{"filePath":"/home/dev/app.ts","oldString":"old","newString":"%s"}' % text
            text = b"The file /home/dev/app.ts has been updated successfully."
        else:
            twice = b'{"stdout":"%s","stderr":"","interrupted":false,"isImage":false}' % text
        failed = b',"is_error":true' if draw.random() < 0.05 else b""
        told = (call, text, failed)
        self.node(
            b'"type":"user","message":{"role":"user","content":[{"tool_use_id":"%s","type":'
            b'"tool_result","content":"%s"%s}]}' % told,
            b'"toolUseResult":%s,"sourceToolAssistantUUID":"%s",' % (twice, self.parent),
            b'"promptId":"%s",' % draw.uuid(),
        )
        self.attach(b"total_tokens_reminder", 60)


def write(folder: Path, draw: Draw, target: int, at: int, due: int) -> Written:
    """Write one session of about `target` bytes that began at `at` (ms)."""
    own, project = draw.uuid(), b"project-%03d" % int(200 * draw.random() ** 2)
    held = _Session(draw, Clock(at), own, b"/home/dev/" + project, due)
    part = min(250_000, target // 3)
    held.note(b"mode", b'"mode":"normal"')
    held.ask()
    for kind, share in (
        (b"environment", 170),
        (b"agent_listing_delta", 60),
        (b"skill_listing", 40),
    ):
        held.attach(kind, part // share)
    held.attach(b"prompt_snapshot", part // 2)
    held.note(b"api-request-shape", b'"shape":{"system":[{"text":"%s"}]}' % draw.filler(part // 3))
    held.answer()
    while held.size < target:
        held.ask()
        for _ in range(draw.calls()):
            held.answer(draw.tool())
            if held.size >= target:
                break
        held.answer()
    if draw.random() < 0.3:
        held.note(b"ai-title", b'"aiTitle":"%s"' % draw.name())
    held.note(b"last-prompt", b'"lastPrompt":"%s","leafUuid":"%s"' % (b"go on", held.parent))
    path = folder / "projects" / f"-home-dev-{project.decode()}" / f"{own.decode()}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(held.lines))
    return Written(str(path), held.size, len(held.lines), len(held.prompts), held.pictures)

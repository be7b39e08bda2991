"""Sessions of Codex, in the newest dialect: rollouts whose events tell of finished items.

A turn is a frame of events around what the model saw; much is written twice, as an item and as
an event, and counts of tokens stand between. There are no ids of parents: order is the history.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from corpus_text import Clock, Draw, Written, iso

_TOKENS = (
    b'{"input_tokens":%d,"cached_input_tokens":0,"cache_write_input_tokens":0,"output_tokens":20,'
    b'"reasoning_output_tokens":0,"total_tokens":%d}'
)
_LIMITS = (
    b'{"limit_id":"codex","limit_name":null,"primary":null,"secondary":null,"credits":null,'
    b'"individual_limit":null,"plan_type":null,"rate_limit_reached_type":null}'
)
_META = b'"metadata":{"history_sequence":%d,"sampled_through_sequence":%d,"client_authored":false}'
_TURN = b'"internal_chat_message_metadata_passthrough":{"turn_id":"%s"}'


@dataclass
class _Session:
    draw: Draw
    clock: Clock
    own: bytes
    cwd: bytes
    due: int
    lines: list[bytes] = field(default_factory=list)
    turn: bytes = b""
    size: int = 0
    users: int = 0
    spent: int = 0
    sequence: int = 0
    pictures: int = 0

    def line(self, kind: bytes, payload: bytes, after: bytes = b"") -> None:
        at = self.clock.tick(int(self.draw.random() * 3000))
        line = b'{"timestamp":"%s","ordinal":%d,"type":"%s","payload":{%s}%s}\n' % (
            at,
            len(self.lines),
            kind,
            payload,
            after,
        )
        self.lines.append(line)
        self.size += len(line)

    def event(self, payload: bytes) -> None:
        self.line(b"event_msg", payload)

    def item(self, payload: bytes) -> None:
        """What the model sees."""
        self.sequence += 1
        meta = _META % (self.sequence, self.sequence - 1)
        self.line(b"response_item", payload + b"," + _TURN % self.turn, b"," + meta)

    def completed(self, item: bytes) -> None:
        """An item is finished."""
        self.event(
            b'"type":"item_completed","thread_id":"%s","turn_id":"%s","item":{%s},'
            b'"started_at_ms":%d,"completed_at_ms":%d'
            % (self.own, self.turn, item, self.clock.ms - 2, self.clock.ms)
        )

    def message(self, role: bytes, kind: bytes, text: bytes, more: bytes = b"") -> bytes:
        """A message of somebody; its id."""
        name = b"msg_" + self.draw.uuid()
        told = (name, role, kind, text, more)
        self.item(
            b'"type":"message","id":"%s","role":"%s","content":[{"type":"%s","text":"%s"}%s]' % told
        )
        return name

    def counted(self) -> None:
        """How many tokens that took."""
        used = 2000 + int(self.draw.random() * 3000)
        self.spent += used
        total, last = _TOKENS % (self.spent, self.spent + 20), _TOKENS % (used, used + 20)
        names = (self.own, self.turn, self.own)
        self.line(
            b"token_usage_record",
            b'"thread_id":"%s","turn_id":"%s","session_id":"%s","usage":%s,"thread_token_usage":%s'
            % (*names, last, total),
        )
        self.event(
            b'"type":"token_count","info":{"total_token_usage":%s,"last_token_usage":%s,'
            b'"model_context_window":190000},"rate_limits":%s' % (total, last, _LIMITS)
        )

    def ask(self) -> None:
        """A turn begins: its frame, and what the human said, twice."""
        draw = self.draw
        self.turn = draw.uuid()
        self.users += 1
        self.event(
            b'"type":"task_started","turn_id":"%s","root_turn_id":"%s","started_at":%d,'
            b'"model_context_window":190000,"collaboration_mode_kind":"default"'
            % (self.turn, self.turn, self.clock.ms // 1000)
        )
        self.line(
            b"turn_context",
            b'"turn_id":"%s","cwd":"%s","approval_policy":"never","model":"gpt-5.5",'
            b'"collaboration_mode":{"mode":"default","settings":{"model":"gpt-5.5",'
            b'"reasoning_effort":null,"developer_instructions":null}},"summary":"none",'
            b'"sandbox_policy":{"type":"danger-full-access"}' % (self.turn, self.cwd),
        )
        text, shown = draw.prose("prompt"), b""
        if self.pictures < self.due and draw.random() < 0.6:
            data = draw.picture()
            self.pictures += len(data)
            shown = b',{"type":"input_image","image_url":"data:image/png;base64,%s"}' % data
        self.message(b"user", b"input_text", text, shown)
        self.completed(
            b'"type":"UserMessage","id":"%s","content":[{"type":"text","text":"%s",'
            b'"text_elements":[]}]' % (draw.uuid(), text)
        )

    def call(self) -> None:
        """A tool is used."""
        draw, tool = self.draw, self.draw.tool()
        call, given = b"call_" + draw.hex(24), draw.code("argument")
        output = draw.code(tool)
        if draw.random() < 0.3:
            thought = b'"type":"reasoning","summary":[],"encrypted_content":"%s"'
            self.item(thought % draw.hex(2 * draw.size("thought")))
        if tool in ("edit", "write"):
            patch = b"*** Begin Patch\\n*** Update File: src/app.ts\\n@@\\n-old\\n+%s" % given
            self.item(
                b'"type":"custom_tool_call","id":"fc_%s","status":"completed","call_id":"%s",'
                b'"name":"apply_patch","input":"%s"' % (draw.hex(24), call, patch)
            )
            self.counted()
            self.completed(
                b'"type":"FileChange","id":"%s","changes":{"%s/src/app.ts":{"type":"update",'
                b'"unified_diff":"%s","move_path":null}},"status":"completed","stdout":"Success.",'
                b'"stderr":""' % (call, self.cwd, given)
            )
            kind, output = b"custom_tool_call_output", b"Exit code: 0\\nOutput:\\n%s" % output
        else:
            self.item(
                b'"type":"function_call","status":"completed","id":"fc_%s","name":"exec_command",'
                b'"arguments":"{\\"cmd\\": \\"make test\\"}","call_id":"%s"' % (draw.hex(24), call)
            )
            self.counted()
            self.completed(
                b'"type":"CommandExecution","id":"%s","process_id":"77","command":["/bin/bash",'
                b'"-lc","make test"],"cwd":"file://%s","parsed_cmd":[{"type":"unknown","cmd":'
                b'"make test"}],"status":"completed","aggregated_output":"%s","exit_code":0'
                % (call, self.cwd, output)
            )
            kind = b"function_call_output"
        told = (kind, draw.uuid(), call, output)
        self.item(b'"type":"%s","id":"fco_%s","call_id":"%s","output":"%s"' % told)

    def answer(self) -> None:
        """The turn ends with an answer, which is written three times."""
        text = self.draw.prose("said", 3)
        name = self.message(b"assistant", b"output_text", text)
        self.completed(
            b'"type":"AgentMessage","id":"%s","content":[{"type":"Text","text":"%s"}]'
            % (name, text)
        )
        self.counted()
        self.event(
            b'"type":"task_complete","turn_id":"%s","last_agent_message":"%s","completed_at":%d,'
            b'"duration_ms":351' % (self.turn, text, self.clock.ms // 1000)
        )


def write(folder: Path, draw: Draw, target: int, at: int, due: int) -> Written:
    """Write one session of about `target` bytes that began at `at` (ms)."""
    own, began = draw.uuid(), iso(at).decode()
    cwd = b"/home/dev/project-%03d" % int(200 * draw.random() ** 2)
    held = _Session(draw, Clock(at), own, cwd, due)
    held.line(
        b"session_meta",
        b'"session_id":"%s","id":"%s","timestamp":"%s","cwd":"%s","originator":"codex-tui",'
        b'"cli_version":"0.169.0","source":"cli","model_provider":"openai","base_instructions":'
        b'{"text":"%s"},"history_mode":"paginated","git":{"branch":"main"}'
        % (own, own, began.encode(), cwd, draw.filler(min(21_600, target // 4))),
    )
    while held.size < target or not held.users:
        held.ask()
        for _ in range(draw.calls()):
            held.call()
            if held.size >= target:
                break
        held.answer()
    day, stamp = began[:10].replace("-", "/"), began[:19].replace(":", "-")
    path = folder / "sessions" / day / f"rollout-{stamp}-{own.decode()}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(held.lines))
    return Written(str(path), held.size, len(held.lines), held.users, held.pictures)

"""Summarize a conversation with the first usable model.

If the text is too large for a model, a compaction drops the oldest parts, as the agents' own do. A
segment must cover all of its messages, so its halves are summarized one after the other.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

from indexerd import errors
from indexerd.digests.prompts import NO_WISH, Wish, consult, instructions, summary_prompt
from indexerd.digests.transcript import words_in
from indexerd.entries import Prompt, Stretch
from indexerd.indexing.transcript import Section, secrets_in, size_of, text_of
from indexerd.models.attempts import Calls, Rejected, first_usable
from indexerd.models.base import Model, Reply
from indexerd.privacy.redact import redactor
from indexerd.privacy.sanitize import clean_text
from indexerd.references.services import Services

CHARS_PER_TOKEN = 8  # more than any model writes: a longer answer is rejected
PAUSE_SECONDS, LONGEST_PAUSE = 0.25, 4.0  # before a smaller text is tried

Row = dict[str, Any]


class Summarizer:
    """Writes the summaries of one request. `task`, for the audit: segment, compaction or branch."""

    def __init__(
        self,
        services: Services,
        row: Row,
        task: str,
        *,
        strategy: str = "",
        covering: tuple[int, int] | None = None,
        manual: bool = True,  # a person wants it; else it is automatic
    ) -> None:
        self.model: str | None = None  # the model that wrote the first summary
        self.ms, self.notes = 0, list[str]()
        self._services, self._row, self._task, self._manual = services, row, task, manual
        self._settings, self._redactions = services.settings(), Counter[str]()
        self._clean = redactor(self._settings)
        # The user's hook gets this and the prompt.
        self._payload: Row = {"task": task, "strategy": strategy, "sessionId": row["sessionId"]}
        self._payload |= {"agent": row["agent"], "covering": covering}
        by = "user" if manual else "daemon"
        audit: Row = {"customType": "digest:segment", "task": task, "by": by}
        audit |= {"covering_messages": covering, "sessionId": row["sessionId"]}
        log = partial(self._log, "digest.attempt")
        self.calls = Calls(services.budget, audit, lambda fields, _error: log(fields))

    @property
    def usage(self) -> dict[str, Any]:
        return {**self.calls.usage, "model": self.model, "ms": self.ms}

    async def write(self, text: Sequence[Section], base: Stretch, wish: Wish = NO_WISH) -> str:
        """Summarize; an IndexerdError means that there is no summary.

        `base` is the stretch without its messages.
        """
        if not text:
            raise errors.SessionEmptyError("there is no text to summarize")
        started, self._redactions = perf_counter(), secrets_in(text)
        try:
            wish = Wish(self._safe(wish.focus), self._safe(wish.instead))
            wish = await self._consult_hook(base, wish)
            work = partial(self._by_model, text, base, wish)
            models = self._services.summarizers()
            summary, model = await first_usable(models, work, awaited=self._manual)
        except errors.ModelError as bad:
            if self._manual and bad.kind not in ("budget_exhausted", "model_unavailable"):
                bad.hint = "try again later, or use another model: [digest] model"
            raise
        self.model = self.model or model.key
        self.ms += round((perf_counter() - started) * 1000)
        return summary

    def _safe(self, text: str) -> str:
        clean, counts = self._clean(text)
        self._redactions.update(counts)  # counts for everything that is sent
        return clean

    def _log(self, event: str, fields: dict[str, Any]) -> None:
        self._services.events.log(event, {"session": self._row["sessionId"], **fields})

    async def _consult_hook(self, base: Stretch, wish: Wish) -> Wish:
        """Let the user's hook change the prompt; a failing hook changes nothing."""
        wanted = self._settings.digest
        if not wanted.hook:
            return wish
        prompt = wish.instead or instructions(base)
        payload = self._payload | {"cwd": base.cwd, "prompt": prompt}
        try:
            advice = await asyncio.to_thread(consult, wanted.hook, payload, wanted.hook_seconds)
        except errors.IndexerdError as failed:
            self._log("digest.hook_failed", {"reason": str(failed)})
            return wish
        instead = self._safe(advice.prompt or "") or wish.instead
        return Wish(wish.focus, instead, tuple(map(self._safe, advice.context or ())))

    async def _by_model(
        self, everything: Sequence[Section], base: Stretch, wish: Wish, model: Model
    ) -> str:
        """Summarize with one model, in smaller parts if the text is too large for it."""
        segment, pause = self._task == "segment", PAUSE_SECONDS
        todo, texts, parts = [everything], list[str](), everything
        while todo:
            parts = todo.pop()
            stretch = replace(
                base,
                messages=tuple(words_in(parts)),
                previous="\n\n".join([base.previous, *texts]).strip(),
                instructions=wish.focus,
            )
            prompt = summary_prompt(text_of(parts), stretch, secrets.token_hex(8), wish)
            try:
                texts.append(await self._ask(model, prompt))
            except errors.ContextTooLargeError:
                if len(parts) == 1:
                    raise
                half, fourth = len(parts) // 2, max(1, len(parts) // 4)
                todo += [parts[half:], parts[:half]] if segment else [parts[fourth:]]
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        if not segment and len(parts) < len(everything):
            left_out = f"the oldest parts ({len(everything) - len(parts)}) were left out"
            self.notes.append(f"{left_out}: too large for {model.key}")
        return "\n\n".join(texts)

    async def _ask(self, model: Model, base: Prompt) -> str:
        most = CHARS_PER_TOKEN * base.max_output_tokens

        def read(reply: Reply) -> str | Rejected:
            # Cleaned first: invisible characters could be inside a secret.
            text = self._clean(clean_text(reply.text[: 2 * most], 2 * most))[0]
            if reply.cut:
                return Rejected("it was cut off at its limit; be much briefer")
            if not text:
                return Rejected("it was empty")
            return text if len(text) <= most else Rejected("it was far too long; be much briefer")

        def again(_reply: Reply, error: str) -> Prompt:
            problem = f"Your previous answer could not be used: {error}."
            return replace(base, user=f"{base.user}\n\n{problem}")

        self.calls.audit |= {"bytes": size_of(base.user), "redactions": dict(self._redactions)}
        timeout = self._settings.model.timeout_seconds
        return await self.calls.ask(model, base, timeout=timeout, read=read, again=again)

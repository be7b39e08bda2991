"""What `query_session` and `expand_references` answer: what is asked of past sessions.

In: a conversation with the daemon; a question, or a text with `@@` references. Out: answers and
summaries, quoted, with all that failed named beside what did not: a question that was not
answered is never passed over. A caller's own words come back as they were written, but for
control characters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from indexerd.mcp.answers import DATA, Answer, brief_head, by, candidates, usage_of
from indexerd.mcp.daemon import Talk
from indexerd.mcp.pick import named, own_id
from indexerd.mcp.texts import Safe, bounded, ident
from indexerd.meta.limits import NAME_MAX, SUMMARY_MAX
from indexerd.privacy.sanitize import clean_line
from indexerd.references.parse import find

ASKED_AT_ONCE = 2  # questions of one text that the daemon asks at most: a text is one turn
QUESTION_MAX = 400  # characters of a question that is named in an answer
_INJECTED_MAX = 12_000  # bytes of messages; the daemon cuts them better than `bounded` would
_ANSWERED = "answered"


def query(talk: Talk, ref: str, question: str, *, leaf: str | None, turn_id: str | None) -> Answer:
    """`query_session`: an answer from one session."""
    one = named(talk, ref)
    found = talk.ask(
        "query_session", session=one["sessionId"], question=question, leaf=leaf, turnId=turn_id
    )
    safe, usage = talk.safe, usage_of(found)
    return bounded(
        brief_head(talk, found, by(_ANSWERED, usage.get("model")))
        | {
            "answerMarkdown": safe.quote(found.get("answerMarkdown"), 4 * SUMMARY_MAX),
            "confidence": ident(found.get("confidence")),
            "citations": [_citation(safe, one) for one in found.get("citations") or ()],
            "notes": safe.lines(found.get("notes"), 20),
            "usage": usage,
        }
    )


def _citation(safe: Safe, one: Mapping[str, Any]) -> Answer:
    return {
        "entryId": ident(one.get("entryId")),
        "role": ident(one.get("role")),
        "excerpt": safe.line(one.get("excerpt")),
    }


def questions_in(text: str) -> int:
    """How many questions a text will ask, at most."""
    asked = {(one.ref.lower(), one.question) for one in find(text) if one.question}
    return min(len(asked), ASKED_AT_ONCE)


def expand(talk: Talk, text: str, *, turn_id: str | None) -> Answer:
    """`expand_references`: what `@@…` in a text stands for."""
    found = talk.ask(
        "expand",
        text=text,
        cwd=talk.cwd,
        sessionId=own_id(talk),
        turnId=turn_id,
        maxBytes=_INJECTED_MAX,
    )
    messages = [talk.safe.block(one.get("content")) for one in found.get("messages") or ()]
    references = [_reference(talk.safe, one) for one in found.get("references") or ()]
    questions = [one for each in references for one in each.get("questions", ())]
    failed = sum(one["status"] != _ANSWERED for one in questions)
    said = talk.safe.lines(found.get("statusText"), 5)
    return bounded(
        {
            "provenance": f"Messages quote the sessions that they name: {DATA}.",
            "references": references,
            "messages": messages,
            "statusText": said + ([f"failed to answer {failed} question(s)"] if failed else []),
        }
    )


def _reference(safe: Safe, one: Mapping[str, Any]) -> Answer:
    raw = clean_line(str(one.get("raw")), NAME_MAX)
    told: Answer = {"raw": raw, "status": ident(one.get("status"))}
    if one.get("sessionId"):
        told["sessionId"] = ident(one["sessionId"])
    if one.get("name"):
        told["name"] = safe.line(one["name"], NAME_MAX)
    if one.get("how"):
        told["how"] = ident(one["how"])
    if one.get("candidates"):
        told["candidates"] = candidates(safe, one["candidates"])
    if one.get("notes"):
        told["notes"] = safe.lines(one["notes"], 10)
    if one.get("questions"):
        told["questions"] = [_question(safe, each) for each in one["questions"]]
    return told


def _question(safe: Safe, one: Mapping[str, Any]) -> Answer:
    told: Answer = {
        "question": safe.line(one.get("question"), QUESTION_MAX),
        "status": ident(one.get("status")),
    }
    if one.get("code"):
        told["code"] = ident(one["code"])
    if one.get("message"):
        told["message"] = safe.line(one["message"])
    return told

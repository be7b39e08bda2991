"""A daemon whose model is a fake server of OpenAI's protocol, with answers for each session."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.world import Session, World
from tests.fakes.openai_server import OpenAIServer
from tests.fakes.wire import Answer, Request

Item = Answer | Callable[[], Answer]


class Answering:
    def __init__(self, world: World, server: OpenAIServer) -> None:
        self.world, self.server = world, server
        self._answers: dict[str, list[Item]] = {}
        server.default = self._answer

    def session(self, *answers: Item, turns: int = 1) -> Session:
        session = self.world.session(turns)
        self.answers_for(session, *answers)
        self.world.seen(session)
        return session

    def answers_for(self, session: Session, *answers: Item) -> None:
        self._answers[session.id] = list(answers)

    def index(self, session: Session) -> dict[str, Any]:
        done = self.world.call("index", ref=session.id, force=True, wait=True)
        assert done["status"] == "indexed"
        return self.world.meta(session.id) or {}

    def prompts(self, session: Session) -> list[str]:
        return [text for request in self.server.requests if session.id in (text := prompt(request))]

    def rows(self, session: Session) -> list[dict[str, Any]]:
        return [row for row in self.world.telemetry() if row["sessionId"] == session.id]

    def _answer(self, request: Request) -> Answer | str:
        said = prompt(request)
        answers: list[Item] = next((a for key, a in self._answers.items() if key in said), [])
        answer = answers.pop(0) if answers else "valid"
        return answer() if callable(answer) else answer


def prompt(request: Request) -> str:
    return "".join(
        message["content"] for message in request.json["messages"] if message["role"] == "user"
    )


@contextmanager
def answering(root: Path, **env: str) -> Iterator[Answering]:
    world = World(root)
    world.install_pi()
    with OpenAIServer() as server:
        world.env |= {
            "INDEXERD_MODEL_KEYS": '["google/absent", "openai/first", "openai/second"]',
            "INDEXERD_PROVIDERS__OPENAI__BASE_URL": json.dumps(server.url),
            "INDEXERD_MIN_NEW_USER_MESSAGES": "10000",
            "INDEXERD_BUDGET__REQUESTS_PER_MINUTE": "10000",
            **env,
        }
        with world.daemon():
            yield Answering(world, server)

"""An opencode that calls its plugin's hooks; node stands in for bun, which opencode uses."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import indexerd

PLUGIN = Path(indexerd.__file__).parent / "integrations/opencode/indexerd.js"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="there is no node to run the plugin")

# Runs the given hooks one after another and prints their results.
DRIVER = """
const { file, calls, opencode } = JSON.parse(process.argv[1])
const module = await import(file)
const toasts = [], asked = []
const answer = (name, found) => async (given) => {
  asked.push([name, given])
  if (opencode.broken) throw new Error("opencode is not well")
  return { data: found(given.path.id) }
}
const client = opencode.absent ? undefined : {
  session: {
    get: answer("get", (id) => ({ id, parentID: opencode.parents?.[id] })),
    messages: answer("messages", (id) => opencode.begun?.[id] ?? []),
  },
  tui: { showToast: async ({ body }) => { toasts.push(body) } },
}
const [plugin] = Object.values(module)
const hooks = await plugin({ client, directory: "/w", worktree: "/w", project: {}, $: undefined })
const outputs = []
for (const [hook, input, output] of calls) {
  const returned = await hooks[hook](input, output)
  outputs.push({ input, output, returned: returned ?? null })
}
const exported = Object.entries(module).map(([name, value]) => [name, typeof value])
console.log(JSON.stringify({ outputs, toasts, asked, exported, hooks: Object.keys(hooks) }))
"""

SUMMARY = "Referenced session summaries:\n\n## 1. Widget (s-1)\n> swapped the buttons: 東京 🌦"
ANSWERED = "Answer from a referenced session: blue."
REFERENCE = {"customType": "session-reference", "display": False}
MESSAGES: list[dict[str, Any]] = [
    REFERENCE | {"content": SUMMARY, "details": {"sessionIds": ["s-1"]}},
    REFERENCE | {"content": ANSWERED, "details": {"sessionIds": ["s-1"], "question": "why?"}},
]
STATUS = ["✅ resolved 1 reference(s)", "⚠️ failed to resolve 1 reference(s)"]
ANSWERS: dict[str, Any] = {
    "hello": {"protocol": 1, "settings": {"notificationAutoClearMs": 1234}},
    "expand": {"messages": MESSAGES, "statusText": STATUS},
    "resume_context": {"text": "Relevant context: a.py", "missingFiles": []},
}
TYPED = "Do it as in @@widget, please."


def run(
    env: dict[str, str], *calls: list[Any], file: Path = PLUGIN, **opencode: Any
) -> dict[str, Any]:
    """Call the plugin's hooks in a separate process, which must print nothing else."""
    given = {"file": file.as_uri(), "calls": calls, "opencode": opencode}
    argv = [str(NODE), "--input-type=module", "-e", DRIVER, json.dumps(given)]
    path = {"PATH": os.environ["PATH"]}
    done = subprocess.run(argv, env=path | env, capture_output=True, timeout=50, check=False)
    assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()
    (line,) = done.stdout.decode().splitlines()
    found: dict[str, Any] = json.loads(line)
    assert [output["returned"] for output in found["outputs"]] == [None] * len(calls)
    return found


def prompt(*texts: str, session: str = "ses_a", **last: Any) -> list[Any]:
    """A user's message as opencode hands it to plugins."""
    message = {"id": "msg_1", "sessionID": session, "role": "user"}
    of = {"sessionID": session, "messageID": "msg_1", "type": "text"}
    parts = [of | {"id": f"prt_0123456789a{n}Zz", "text": text} for n, text in enumerate(texts)]
    parts[-1] |= last
    return ["chat.message", {"sessionID": session}, {"message": message, "parts": parts}]


def parts(found: dict[str, Any], nth: int = 0) -> list[dict[str, Any]]:
    """A message's parts in the order in which opencode stores them."""
    several: list[dict[str, Any]] = found["outputs"][nth]["output"]["parts"]
    return sorted(several, key=lambda part: str(part["id"]))

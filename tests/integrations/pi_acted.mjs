// pi, acted: loads the extension given as argument, and does what each line of stdin says.
// Every line of stdout is an answer, in order, or at any time {"status": [key, text]} or
// {"notice": [text, level]}.
// Nothing here keeps the process alive once stdin has ended.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const folder = process.argv[2];
const say = (said) => process.stdout.write(`${JSON.stringify(said)}\n`);
const module = (name) => import(pathToFileURL(`${folder}/${name}.ts`));

const handlers = {};
const tools = {};
const commands = {};
let wrap;
let stale = false;

const said = { type: "message", message: { role: "user" } };
const keys = new Set(); // who listens to the terminal

function context({ id = "s-1", file = "/s/s-1.jsonl", entries = [], hasUI = true, editor = true, idle } = {}) {
  const setStatus = (key, text) => {
    if (stale) throw new Error("this context is stale");
    say({ status: [key, text ?? null] });
  };
  const notify = (text, level) => say({ notice: [text, level] });
  const onTerminalInput = (listener) => {
    keys.add(listener);
    return () => keys.delete(listener);
  };
  const newer = { onTerminalInput, addAutocompleteProvider: (made) => (wrap = made) };
  const ui = { setStatus, notify, ...(editor && newer) };
  const sessionManager = { getSessionFile: () => file ?? undefined, getSessionId: () => id, getBranch: () => entries };
  const isIdle = () => idle;
  return { cwd: "/w", hasUI, ui, sessionManager, ...(idle !== undefined && { isIdle }), waitForIdle: async () => {} };
}

const files = {
  getSuggestions: async () => ({ items: [{ value: "@file", label: "file" }], prefix: "@" }),
  applyCompletion: (lines, cursorLine, cursorCol) => ({ lines, cursorLine, cursorCol }),
};

const deeds = {
  async emit({ emit, event = {}, ctx }) {
    const results = [];
    for (const handler of handlers[emit] ?? []) results.push((await handler({ type: emit, ...event }, context(ctx))) ?? null);
    return { results };
  },
  async tool({ tool, params, ctx }) {
    const signal = new AbortController().signal;
    return tools[tool].execute("call-1", params, signal, undefined, context(ctx));
  },
  async command({ command, ctx }) {
    await commands[command].handler("", context({ entries: [said], ...ctx }));
    return { ran: command };
  },
  async type({ type, after = "" }) {
    const provider = wrap(files);
    const lines = ["first", type + after];
    const options = { signal: new AbortController().signal };
    const found = await provider.getSuggestions(lines, 1, type.length, options);
    const applied = found && provider.applyCompletion(lines, 1, type.length, found.items[0], found.prefix);
    return { found, applied };
  },
  async pure({ pure, name, args }) {
    return { value: (await module(pure))[name](...args) ?? null };
  },
  async press({ press }) {
    return { taken: [...keys].map((listener) => listener(press) ?? null) };
  },
  async stale() {
    stale = true;
    return {};
  },
  async list() {
    return { tools: Object.keys(tools), commands: Object.keys(commands) };
  },
};

(await module("index")).default({
  on: (event, handler) => (handlers[event] ??= []).push(handler),
  registerTool: (tool) => (tools[tool.name] = tool),
  registerCommand: (name, command) => (commands[name] = command),
});

async function act(asked) {
  const deed = Object.keys(deeds).find((name) => name in asked);
  try {
    say(await deeds[deed](asked));
  } catch (problem) {
    say({ error: problem.message });
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  const acted = act(asked);
  if (!asked.meanwhile) await acted;
}

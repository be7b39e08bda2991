/**
 * indexerd for pi: past sessions in a prompt, questions to them, and this session's own indexing.
 *
 * In: pi's events, and the answers of the indexerd daemon on its socket. Out: hidden messages
 * after the user's prompt (`@@name`, a resumed session's context), notifications of failures, three
 * tools, one command, one text in the status line, and `@@` completion in the editor. Only pi
 * writes this session's file. If the daemon is down, slow or broken, prompts continue without it:
 * every wait is bounded, a wait for a model begins only right after the daemon answered a request,
 * and only a tool's failure is thrown into pi.
 *
 * A prompt without `@@` in the user's own words makes no request. The daemon does not know sessions
 * without a file, but they may refer to others. Types are pi's and are stripped on loading, so older
 * versions under another package name can load this, too.
 */

import type {
  ExtensionAPI,
  ExtensionCommandContext,
  ExtensionContext,
  InputEvent,
} from "@earendil-works/pi-coding-agent";
import { randomUUID } from "node:crypto";
import { homedir } from "node:os";
import { withSessions } from "./completion.ts";
import { ask, DaemonError, type Json, Listening, socketPath } from "./daemon.ts";
import { lines, type Message, Queue, references, resumed } from "./prompts.ts";
import { DEFAULTS, failed, INDEXING, indexed, NOTHING, type Settings, Status } from "./status.ts";
import { answerText, failure, GET_CONTEXT, QUERY_SESSION, result, SET_CONTEXT, usageOf } from "./tools.ts";
import { type Wait, waiting } from "./waiting.ts";
import { asks, mentions, own, refers, Typed } from "./words.ts";

// Seconds.
const GREETING = 0.5;
const TYPING = 1;
const PLAIN = 2;
const QUESTION = 5; // in addition to the model's own time
const RUN = 900;
const NOTING = 5;
const APPEARING = 3; // until the daemon knows a new session's file

const MESSAGES = 8; // separate messages of a prompt; more are joined
const ASKING = "⏳ asking...";
const QUEUED = "@@… is expanded only in a prompt of its own, not in one that is queued while the agent works";

type Context = ExtensionContext;

/** The session that pi has open, from its start to its end. */
interface Here {
  over: AbortController;
  status: Status;
  listening?: Listening;
  resuming?: Promise<Message[]>;
}

export default function indexerd(pi: ExtensionAPI): void {
  new Extension(pi).attach();
}

class Extension {
  private readonly pi: ExtensionAPI;
  private readonly path = socketPath(process.env, process.env.HOME || homedir(), process.platform);
  private readonly queue = new Queue();
  private readonly typed = new Typed();
  private readonly commands = new Set<string>();
  private settings: Settings = DEFAULTS;
  private turn = randomUUID(); // limits the model's questions in each turn
  private here: Here | undefined;

  constructor(pi: ExtensionAPI) {
    this.pi = pi;
  }

  /** Register everything that does not depend on the daemon. */
  attach(): void {
    const { pi, queue } = this;
    pi.on("session_start", (event, ctx) => this.start(event.reason, ctx).catch(ignore));
    pi.on("session_shutdown", () => this.leave());
    pi.on("input", (event, ctx) => this.input(event, ctx));
    pi.on("before_agent_start", (event, ctx) => this.prompted(event.prompt, ctx).catch(ignore));
    for (let more = 2; more < MESSAGES; more++) pi.on("before_agent_start", () => queue.next());
    pi.on("before_agent_start", () => queue.rest());
    pi.on("agent_start", () => void (this.turn = randomUUID()));
    this.tool(QUERY_SESSION, (params, ctx, signal) => this.query(params, ctx, signal));
    this.tool(SET_CONTEXT, (params, ctx, signal) => this.note(params, ctx, signal));
    this.tool(GET_CONTEXT, (params, ctx, signal) => this.noted(params, ctx, signal));
  }

  private call(method: string, params: Json, seconds: number, signal?: AbortSignal): Promise<Json> {
    return ask(this.path, method, params, { seconds, signal: signal ?? this.here?.over.signal });
  }

  /** Make a request that may take long, if the daemon answers `hello` in time. */
  private async patiently(method: string, params: Json, signal?: AbortSignal): Promise<Json> {
    this.greet(await this.call("hello", {}, PLAIN, signal));
    return this.call(method, params, this.settings.queryTimeoutSeconds + QUESTION, signal);
  }

  // -- the session's own life ---------------------------------------------------------------

  private async start(reason: string, ctx: Context): Promise<void> {
    this.leave();
    const setStatus = (key: string, text: string | undefined): void => ctx.ui.setStatus(key, text);
    const now: Here = { over: new AbortController(), status: new Status(setStatus, () => this.settings) };
    this.here = now;
    const greeted = this.call("hello", {}, GREETING).then((hello) => this.greet(hello), ignore);
    const id = known(ctx);
    if (id && again(reason, ctx)) {
      const asked = this.call("resume_context", { session: id, resumeId: randomUUID() }, PLAIN);
      now.resuming = asked.then((answer) => resumed(answer, id), () => []);
    }
    if (id && ctx.hasUI) now.listening = new Listening(this.path, id, now.status);
    if (ctx.hasUI) this.complete(ctx);
    await greeted;
    this.command(this.settings.commandName);
  }

  private leave(): void {
    this.here?.over.abort();
    this.here?.listening?.close();
    this.here?.status.clear();
    this.here = undefined;
  }

  private greet(hello: Json): void {
    this.settings = { ...DEFAULTS, ...(hello.settings as Partial<Settings>) };
  }

  private complete(ctx: Context): void {
    if (typeof ctx.ui.addAutocompleteProvider !== "function") return; // an older pi
    const candidates = (prefix: string, signal: AbortSignal): Promise<Json> => {
      const exclude = known(ctx);
      return this.call("complete", { prefix, cwd: ctx.cwd, ...(exclude && { exclude }) }, TYPING, signal);
    };
    ctx.ui.addAutocompleteProvider((current) => withSessions(current, candidates));
  }

  // -- prompts ------------------------------------------------------------------------------

  /** Note a typed prompt; warn about a reference in a queued message, which cannot be expanded. */
  private input(event: InputEvent, ctx: Context): undefined {
    const says = "streamingBehavior" in event; // an older pi does not
    const queued = says ? Boolean(event.streamingBehavior) : ctx.isIdle?.() === false;
    if (!queued) this.typed.note(event.text);
    else if (event.source !== "extension" && refers(own(event.text))) warn(ctx, [QUEUED]);
  }

  private async prompted(prompt: string, ctx: Context): Promise<{ message: Message } | undefined> {
    const words = this.typed.wordsOf(prompt);
    const resuming = this.here?.resuming ?? [];
    if (this.here) this.here.resuming = undefined;
    const found = await Promise.all([mentions(words) ? this.expand(words, ctx) : [], resuming]);
    this.queue.fill(found.flat());
    return this.queue.next();
  }

  /** Expand the user's references. Questions in them do not count towards a turn's limit. */
  private async expand(words: string, ctx: Context): Promise<Message[]> {
    const status = this.here?.status;
    const sessionId = known(ctx);
    const params = { text: words, cwd: ctx.cwd, ...(sessionId && { sessionId }) };
    const wait = asks(words) ? waiting(ctx, this.here?.over.signal) : undefined;
    try {
      const answer = await this.expanded(params, wait, status);
      const said = lines(answer.statusText).join(" · ");
      if (said) status?.final(said);
      warn(ctx, lines(answer.failures));
      return references(answer);
    } catch (problem) {
      if (problem instanceof DaemonError && problem.kind === "usage") warn(ctx, [problem.message]); // too long
      return []; // the prompt continues without them
    } finally {
      wait?.end();
      if (wait) status?.forget();
    }
  }

  private expanded(params: Json, wait: Wait | undefined, status: Status | undefined): Promise<Json> {
    if (!wait) return this.call("expand", params, PLAIN);
    status?.pending(ASKING);
    return this.patiently("expand", params, wait.signal);
  }

  // -- tools --------------------------------------------------------------------------------

  /** Register a tool with a plain JSON Schema, which pi accepts and its types do not. */
  private tool(words: object, work: (params: Json, ctx: Context, signal?: AbortSignal) => Promise<unknown>): void {
    const execute = (_id: string, params: Json, signal: AbortSignal | undefined, _update: unknown, ctx: Context) =>
      work(params, ctx, signal).catch(raise);
    this.pi.registerTool({ ...words, execute } as never);
  }

  private async query(params: Json, ctx: Context, signal?: AbortSignal): Promise<unknown> {
    const asked = { ...params, turnId: this.turn, cwd: ctx.cwd };
    const answer = await this.patiently("query_session", asked, signal);
    const { sessionId, name, confidence, citations, notes, usage } = answer;
    const used = usageOf(answer);
    const details = { sessionId, name, confidence, citations, notes, usage };
    return { ...result(answerText(answer), details), ...(used && { usage: used }) };
  }

  private async note(params: Json, ctx: Context, signal?: AbortSignal): Promise<unknown> {
    const answer = await this.own("set_relevant_context", "session", params, NOTING, ctx, signal);
    const warnings = lines(answer.warnings);
    const { contextChanged, setName } = answer;
    return result([String(answer.text), ...warnings].join("\n"), { contextChanged, setName, warnings });
  }

  private async noted(params: Json, ctx: Context, signal?: AbortSignal): Promise<unknown> {
    const answer = await this.own("get_relevant_context", "session", params, NOTING, ctx, signal);
    return result(answer.text, { context: answer.context });
  }

  // -- the command --------------------------------------------------------------------------

  private command(name: string): void {
    if (this.commands.has(name)) return;
    this.commands.add(name);
    this.pi.registerCommand(name, {
      description: "Index this session now: its name, description and summary",
      handler: async (_args, ctx) => {
        const run = this.index(ctx);
        if (!ctx.hasUI) await run; // or the process would end; an editor must not wait
      },
    });
  }

  private async index(ctx: ExtensionCommandContext): Promise<void> {
    const at = this.here;
    if (!known(ctx) || !at) return;
    try {
      await ctx.waitForIdle();
      if (at !== this.here) return;
      if (!spoken(ctx)) return at.status.final(failed(NOTHING));
      at.status.pending(INDEXING);
      this.greet(await this.call("hello", {}, PLAIN)); // fails soon without a daemon
      const done = await this.own("index", "ref", { force: true, wait: true }, RUN, ctx);
      at.status.final(done.status === "indexed" ? indexed(done.costUsd) : failed(done.status));
    } catch (problem) {
      const told = problem instanceof DaemonError ? problem.message : "internal";
      if (at === this.here) at.status.final(failed(told));
    }
  }

  /** Make a request about this session, whose file the daemon may not know yet. */
  private async own(
    method: string,
    name: "session" | "ref",
    params: Json,
    seconds: number,
    ctx: Context,
    signal?: AbortSignal,
  ): Promise<Json> {
    const id = known(ctx);
    if (!id) throw new DaemonError("this session has no file", "not_found");
    const late = Date.now() + APPEARING * 1000;
    for (let pause = 100; ; pause *= 2) {
      try {
        return await this.call(method, { ...params, [name]: id }, seconds, signal);
      } catch (problem) {
        const unknown = problem instanceof DaemonError && problem.kind === "not_found";
        if (!unknown || Date.now() + pause > late) throw problem;
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }
}

/** The id of a session that has a file. */
function known(ctx: Context): string | undefined {
  return ctx.sessionManager.getSessionFile() ? ctx.sessionManager.getSessionId() : undefined;
}

/** Whether the session has a message; before that pi writes no file. */
function spoken(ctx: Context): boolean {
  const roles = ctx.sessionManager.getBranch().map((entry) => entry.type === "message" && entry.message.role);
  return roles.some((role) => role === "user" || role === "assistant");
}

/** Show lines to the user, if there are any. */
function warn(ctx: Context, lines: string[]): void {
  try {
    if (lines.length) ctx.ui.notify?.(lines.join("\n"), "warning");
  } catch {
    // the session was replaced
  }
}

/** Whether the session is resumed: its shell is gone, and the model should be told. */
function again(reason: string, ctx: Context): boolean {
  if (reason !== "resume" && reason !== "startup") return false;
  return ctx.sessionManager.getBranch().some((entry) => entry.type === "message");
}

function raise(problem: unknown): never {
  throw failure(problem);
}

function ignore(): undefined {
  return undefined; // like without a daemon
}

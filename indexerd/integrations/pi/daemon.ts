/**
 * Connections to the daemon's socket: one for each request, and one that listens for events.
 *
 * In: a method and its params. Out: the result, or a `DaemonError`; nothing else is ever thrown. A
 * request is bounded in time and in the size of its answer, and keeps the process alive. The
 * listening connection does not; it reconnects with growing pauses if the daemon goes away. Only
 * node's own modules are used, so any version of pi can load this.
 *
 * Pitfalls: while a promise waits only for unref'd sockets, node may end the process, and
 * `pi -p` with it, so requests keep their sockets ref'd.
 */

import { connect, type Socket } from "node:net";
import { StringDecoder } from "node:string_decoder";
import { type Status, tell } from "./status.ts";

const ANSWER_MAX = 4 * 1024 * 1024; // characters
const EVENT_MAX = 256 * 1024; // characters of one line of a listening connection
const REQUEST_MAX = 1024 * 1024; // bytes: the daemon hangs up on longer ones
const UNKNOWN_METHOD = -32601; // a daemon older than this extension
const AGAIN_FIRST = 1_000; // milliseconds until the first new attempt to listen
const AGAIN_MOST = 60_000;
const RUNS = ["index.started", "index.retry", "index.succeeded", "index.failed"];

export type Json = Record<string, unknown>;

/** The daemon refused, or could not be asked (then `kind` is daemon_down or timeout). */
export class DaemonError extends Error {
  readonly kind: string;
  readonly data: Json;

  constructor(message: string, kind: string, data: Json = {}) {
    super(message);
    this.name = "DaemonError";
    this.kind = kind;
    this.data = data;
  }
}

/** The path of the daemon's socket, by the daemon's own rules. */
export function socketPath(env: Record<string, string | undefined>, home: string, system: string): string {
  const absolute = (text: string): string => (text === "~" || text.startsWith("~/") ? home + text.slice(1) : text);
  const base = (name: string): string | undefined => (env[name]?.startsWith("/") ? env[name] : undefined);
  if (env.INDEXERD_SOCKET) return absolute(env.INDEXERD_SOCKET);
  const runtime = base("XDG_RUNTIME_DIR");
  if (runtime) return `${runtime}/indexerd/indexerd.sock`;
  if (env.INDEXERD_STATE_DIR) return `${absolute(env.INDEXERD_STATE_DIR)}/indexerd.sock`;
  const state = base("XDG_STATE_HOME");
  if (state) return `${state}/indexerd/indexerd.sock`;
  if (system === "darwin") return `${home}/Library/Application Support/indexerd/indexerd.sock`;
  return `${home}/.local/state/indexerd/indexerd.sock`;
}

/** Splits bytes into lines, which end only at LF. Throws on a line that is too long. */
export class Lines {
  private readonly decoder = new StringDecoder("utf8");
  private readonly most: number;
  private held = "";

  constructor(most: number) {
    this.most = most;
  }

  take(bytes: Buffer): string[] {
    const lines = (this.held + this.decoder.write(bytes)).split("\n");
    this.held = lines.pop() ?? "";
    if (this.held.length > this.most) throw new DaemonError("indexerd's answer is too long", "internal");
    return lines;
  }
}

export interface Asking {
  seconds: number;
  signal?: AbortSignal;
}

/** Make a request. Rejects with a DaemonError only. */
export function ask(path: string, method: string, params: Json, { seconds, signal }: Asking): Promise<Json> {
  return new Promise((resolve, reject) => {
    const line = `${JSON.stringify({ jsonrpc: "2.0", id: 1, method, params })}\n`;
    const fits = Buffer.byteLength(line) <= REQUEST_MAX;
    if (!fits) return reject(new DaemonError("this text is too long for indexerd", "usage"));
    if (signal?.aborted) return reject(new DaemonError("the request was cancelled", "aborted"));
    const lines = new Lines(ANSWER_MAX);
    const socket = connect(path);
    const end = (finish: () => void): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", giveUp);
      socket.removeAllListeners();
      socket.on("error", () => {}); // later errors are ignored
      socket.destroy();
      finish();
    };
    const fail = (message: string, kind: string): void => end(() => reject(new DaemonError(message, kind)));
    const giveUp = (): void => fail("the request was cancelled", "aborted");
    const timer = setTimeout(() => fail("indexerd did not answer in time", "timeout"), seconds * 1000);
    signal?.addEventListener("abort", giveUp, { once: true });
    socket.on("error", () => fail("indexerd is not running", "daemon_down"));
    socket.on("close", () => fail("indexerd closed the connection", "daemon_down"));
    socket.on("connect", () => socket.write(line));
    socket.on("data", (bytes: Buffer) => {
      try {
        const [answer] = lines.take(bytes);
        if (answer !== undefined) settle(JSON.parse(answer) as Json);
      } catch {
        fail("indexerd's answer is invalid", "internal");
      }
    });
    const settle = (answer: Json): void => {
      const { error, result } = answer;
      if (isObject(error)) return end(() => reject(refusal(error)));
      if (!isObject(result)) return fail("indexerd's answer is invalid", "internal");
      end(() => resolve(result));
    };
  });
}

function refusal(error: Json): DaemonError {
  const data = isObject(error.data) ? error.data : {};
  const kind = error.code !== UNKNOWN_METHOD && typeof data.kind === "string" ? data.kind : "internal";
  return new DaemonError(typeof error.message === "string" ? error.message : "indexerd refused", kind, data);
}

export function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A connection that shows the daemon's own runs on a session, while a daemon runs. */
export class Listening {
  private readonly path: string;
  private readonly sessionId: string;
  private readonly status: Status;
  private socket: Socket | undefined;
  private timer: NodeJS.Timeout | undefined;
  private pause = AGAIN_FIRST;
  private over = false;

  constructor(path: string, sessionId: string, status: Status) {
    this.path = path;
    this.sessionId = sessionId;
    this.status = status;
    this.open();
  }

  /** End it for good. */
  close(): void {
    this.over = true;
    clearTimeout(this.timer);
    this.socket?.destroy();
  }

  private open(): void {
    const lines = new Lines(EVENT_MAX);
    const socket = connect(this.path);
    socket.unref();
    this.socket = socket;
    socket.on("error", () => {}); // "close" follows
    socket.on("connect", () => {
      const params = { events: RUNS };
      socket.write(`${JSON.stringify({ jsonrpc: "2.0", id: 1, method: "subscribe", params })}\n`);
    });
    socket.on("data", (bytes: Buffer) => {
      try {
        for (const line of lines.take(bytes)) this.take(JSON.parse(line) as Json);
      } catch {
        socket.destroy(); // not our protocol
      }
    });
    socket.on("close", () => this.again());
  }

  private take(said: Json): void {
    if (said.id === 1 && isObject(said.error)) return this.close(); // a daemon without events
    this.pause = AGAIN_FIRST;
    const event = said.method === "event" && isObject(said.params) ? said.params : {};
    if (event.sessionId === this.sessionId) tell(this.status, event);
  }

  private again(): void {
    if (this.over) return;
    this.status.forget(); // the end of a reported run may never be reported
    this.timer = setTimeout(() => this.open(), this.pause * (0.75 + Math.random() / 2));
    this.timer.unref();
    this.pause = Math.min(this.pause * 2, AGAIN_MOST);
  }
}

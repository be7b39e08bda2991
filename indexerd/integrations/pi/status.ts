/**
 * Texts in pi's status line about indexing and references.
 *
 * In: pi's function to set a status, the daemon's events and answers. Out: texts under one key;
 * final ones are removed after a while. Other programs' texts become one short line without control
 * characters. Never throws: after a session was replaced, pi rejects calls to its old interface.
 */

import type { Json } from "./daemon.ts";

const SHOWN_MAX = 200; // characters
const PENDING_MAX = 600_000; // milliseconds after which "indexing" is removed

/** The daemon's, in its answer to `hello`. */
export interface Settings {
  commandName: string;
  statusKey: string;
  notificationAutoClearMs: number;
  queryTimeoutSeconds: number;
}

export const DEFAULTS: Settings = {
  commandName: "index-session",
  statusKey: "index-session",
  notificationAutoClearMs: 3000,
  queryTimeoutSeconds: 30,
};

/** One line of printable text. */
export function oneLine(text: string, most = SHOWN_MAX): string {
  const line = text.replace(/[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}\s]+/gu, " ").trim();
  const whole = [...line.slice(0, most * 2 + 1)]; // by code points, so that none is split
  return whole.length <= most ? line : `${whole.slice(0, most - 1).join("")}…`;
}

/** A cost with four decimals from one cent, six below, or in words if it is unknown. */
export function usd(cost: unknown): string {
  if (typeof cost !== "number" || !Number.isFinite(cost)) return "unknown cost";
  return `$${cost.toFixed(cost >= 0.01 ? 4 : 6)}`;
}

export const INDEXING = "⏳ indexing...";
export const NOTHING = "no user/assistant conversation to index";
export const indexed = (cost: unknown): string => `✅ session indexed (${usd(cost)})`;
export const failed = (message: unknown): string => oneLine(`❌ index failed: ${String(message)}`);

export type SetStatus = (key: string, text: string | undefined) => void;

/** Our entry in pi's status line. */
export class Status {
  private readonly set: SetStatus;
  private readonly settings: () => Settings;
  private timer: NodeJS.Timeout | undefined;
  private shown: { key: string; text: string } | undefined;

  constructor(set: SetStatus, settings: () => Settings) {
    this.set = set;
    this.settings = settings;
  }

  pending(text: string): void {
    this.show(text, PENDING_MAX);
  }

  /** Show a text that is removed after a while. */
  final(text: string): void {
    this.show(text, this.settings().notificationAutoClearMs);
  }

  /** Remove a pending text if its end will not be reported. */
  forget(): void {
    if (this.shown?.text.startsWith("⏳")) this.clear();
  }

  clear(): void {
    clearTimeout(this.timer);
    const { shown } = this;
    this.shown = undefined;
    if (shown) this.say(shown.key, undefined);
  }

  private show(text: string, milliseconds: number): void {
    clearTimeout(this.timer);
    const key = this.settings().statusKey;
    if (this.shown?.key !== key) this.clear();
    if (this.shown?.text !== text) this.say(key, text); // the answer and the event report the same
    this.shown = { key, text };
    this.timer = setTimeout(() => this.clear(), milliseconds);
    this.timer.unref();
  }

  private say(key: string, text: string | undefined): void {
    try {
      this.set(key, text);
    } catch {
      // the session was replaced
    }
  }
}

/** Show an event about a session's indexing. */
export function tell(status: Status, event: Json): void {
  switch (event.event) {
    case "index.started":
      return status.pending(INDEXING);
    case "index.retry":
      return status.pending(oneLine(`⏳ indexing... (retry ${String(event.attempt)}/${String(event.of)})`));
    case "index.succeeded":
      return status.final(indexed(event.costUsd));
    case "index.failed":
      return status.final(failed(event.message));
  }
}

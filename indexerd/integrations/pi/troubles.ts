/**
 * Failed references, as lines of a notification.
 *
 * In: the daemon's answer to `expand`. Out: a few short lines without control characters, worded
 * like those of `indexerd expand`. The status line says how many failed; these say which, and why.
 */

import { isObject, type Json } from "./daemon.ts";
import { oneLine } from "./status.ts";

const LINES_MAX = 8;
const LINE_MAX = 300; // characters
const CANDIDATES_MAX = 4;
const WHY: Record<string, string> = { over_limit: "one reference too many", invalid_meta: "its meta file is invalid" };

export const QUEUED = "@@… is expanded only in a prompt of its own, not in one that is queued while the agent works";

/** The warning for a prompt that does not fit into a request, if the rest has an `@@`. */
export const tooLong = (looked: number): string =>
  `only the first ${looked} characters of the prompt were searched for @@ references`;

/** List the failures, with reasons. */
export function failures(answer: Json): string[] {
  const told = [...new Set(list(answer.references).flatMap(lines))].map((line) => oneLine(line, LINE_MAX));
  if (told.length <= LINES_MAX) return told;
  return [...told.slice(0, LINES_MAX - 1), `… and ${told.length - LINES_MAX + 1} more`];
}

function lines(one: Json): string[] {
  const { status } = one;
  if (typeof one.raw !== "string" || typeof status !== "string") return [];
  const raw = oneLine(one.raw, 100);
  const notes = Array.isArray(one.notes) ? one.notes.map(String) : [];
  const failed = list(one.questions).filter((each) => each.status !== "answered");
  const told = [...notes, ...failed.map((each) => String(each.message))].map((why) => `${raw}: ${why}`);
  if (status === "resolved") return told;
  return [status === "ambiguous" ? choice(raw, one) : `${raw}: ${WHY[status] ?? "no such session"}`, ...told];
}

function choice(raw: string, one: Json): string {
  const near = list(one.candidates).slice(0, CANDIDATES_MAX);
  const named = near.map(({ name, sessionId }) => `${oneLine(String(name), 60)} (@@${oneLine(String(sessionId), 60)})`);
  return `${raw} is ambiguous: ${named.join("; ")}`;
}

const list = (value: unknown): Json[] => (Array.isArray(value) ? value.filter(isObject) : []);

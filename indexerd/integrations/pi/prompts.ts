/**
 * Messages that accompany a prompt: the sessions it refers to, and a resumed session's context.
 *
 * In: the daemon's answers. Out: messages for pi, which puts them after the user's own, in order;
 * the user's text is never changed. pi accepts one message from each handler, so a `Queue` returns
 * them one by one. Messages are never displayed, and have one of the two types below.
 */

import { isObject, type Json } from "./daemon.ts";
import { oneLine } from "./status.ts";

export const REFERENCE = "session-reference";
export const RESUME = "session-resume-context";
const CONTENT_MAX = 2_000_000; // characters of one message
const LINES_MAX = 8; // failures
const LINE_MAX = 300; // characters

export interface Message {
  customType: string;
  content: string;
  display: boolean;
  details: Json;
}

/** The messages of an answer to `expand`, in order. */
export function references(answer: Json): Message[] {
  const messages = Array.isArray(answer.messages) ? answer.messages : [];
  return messages.filter(isObject).flatMap((one) => message(REFERENCE, one.content, one.details));
}

/** The message of an answer to `resume_context`, if it has a text. */
export function resumed(answer: Json, sessionId: string): Message[] {
  return message(RESUME, answer.text, { sessionIds: [sessionId], missingFiles: answer.missingFiles });
}

function message(customType: string, content: unknown, details: unknown): Message[] {
  if (typeof content !== "string" || !content || content.length > CONTENT_MAX) return [];
  return [{ customType, content, display: false, details: isObject(details) ? details : {} }];
}

/** The outcome of the references as one line, or "" if there are none. */
export function outcome(answer: Json): string {
  const said = Array.isArray(answer.statusText) ? answer.statusText : [answer.statusText];
  return oneLine(said.filter((one) => typeof one === "string").join(" · "));
}

/** Which references failed, and why: short lines, whatever the answer has. */
export function failures(answer: Json): string[] {
  const told = Array.isArray(answer.failures) ? answer.failures.slice(0, LINES_MAX) : [];
  return told.filter((one) => typeof one === "string").map((one) => oneLine(one, LINE_MAX));
}

/** Messages that pi has not got yet. */
export class Queue {
  private held: Message[] = [];

  fill(messages: Message[]): void {
    this.held = messages;
  }

  /** The next one, as a handler's result. */
  next(): { message: Message } | undefined {
    const first = this.held.shift();
    return first && { message: first };
  }

  /** All that remain, joined, for the last handler. */
  rest(): { message: Message } | undefined {
    const [first, ...others] = this.held.splice(0);
    if (!first) return undefined;
    const content = [first, ...others].map((one) => one.content).join("\n\n");
    return { message: { ...first, content } };
  }
}

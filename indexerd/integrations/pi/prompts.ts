/**
 * Messages that accompany a prompt: the sessions it refers to, and a resumed session's context.
 *
 * In: the daemon's answers. Out: messages for pi, which puts them after the user's own, in order;
 * the user's text is never changed. pi accepts one message from each handler, so a `Queue` returns
 * them one by one. Messages are never displayed, and have one of the two types below.
 */

import { isObject, type Json } from "./daemon.ts";

export const REFERENCE = "session-reference";
export const RESUME = "session-resume-context";
const CONTENT_MAX = 2_000_000; // characters of one message

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

/** The daemon's lines for people, in a field of an answer. */
export function lines(value: unknown): string[] {
  return Array.isArray(value) ? value.map(String) : [];
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

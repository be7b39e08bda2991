/**
 * Cancelling a long wait for an answer.
 *
 * In: pi's context, and the session's end. Out: a signal, and a way to stop listening. Terminal
 * input is read only during a wait, and only Escape is consumed.
 *
 * Pitfalls: before an agent starts, pi has no signal, and its abort does nothing: neither
 * Escape nor a client's abort reaches an extension.
 */

import type { ExtensionContext } from "@earendil-works/pi-coding-agent";

const ESCAPE = /^\x1b(?:\[27(?:;\d+(?::[12])?)?u)?$/; // in old and new terminals

export interface Wait {
  signal: AbortSignal;
  end(): void;
}

/** Start listening; `over` signals the session's end. */
export function waiting(ctx: ExtensionContext, over: AbortSignal | undefined): Wait {
  const escaped = new AbortController();
  const listen = ctx.ui.onTerminalInput?.bind(ctx.ui); // an older pi has none
  const end = listen?.((data) => {
    if (!ESCAPE.test(data)) return undefined;
    escaped.abort();
    return { consume: true };
  });
  const signals = [escaped.signal, ctx.signal, over].filter((one) => one !== undefined);
  return { signal: AbortSignal.any(signals), end: () => end?.() };
}

/**
 * How a long wait for an answer is given up before its time.
 *
 * In: pi's context, and the session's end. Out: a signal, and an end to listening for it. What a
 * terminal sends is looked at only while something is waited for, and only Escape is taken.
 *
 * What surprised us: before an agent starts, pi has no signal, and its abort does nothing: Escape
 * reaches nobody, and a client's abort no extension.
 */

import type { ExtensionContext } from "@earendil-works/pi-coding-agent";

const ESCAPE = /^\x1b(?:\[27(?:;\d+(?::[12])?)?u)?$/; // as terminals send it, old and new

export interface Wait {
  signal: AbortSignal;
  end(): void;
}

/** Begin to listen; `over` is the session's end. */
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

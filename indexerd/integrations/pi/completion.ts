/**
 * Completion of `@@` in pi's editor: sessions, newest first, instead of files.
 *
 * In: pi's own provider, and a function that asks the daemon. Out: a provider that answers if the
 * text before the cursor ends in `@@…`; otherwise, or without a daemon, pi's own does. The inserted
 * text is always a whole id.
 */

import type { AutocompleteItem, AutocompleteProvider } from "@earendil-works/pi-tui";
import { isObject, type Json } from "./daemon.ts";
import { oneLine } from "./status.ts";

const ITEMS_MAX = 20;
const LABEL_MAX = 60;

export type Complete = (prefix: string, signal: AbortSignal) => Promise<Json>;

/** The reference before the cursor, and the part after its `@@`; a name may be in quotes. */
export function begun(before: string): { whole: string; prefix: string } | undefined {
  const found = /(?:^|[\s(])(@@(?:"([^"]*)|([^\s"@]*)))$/.exec(before);
  return found?.[1] ? { whole: found[1], prefix: found[2] ?? found[3] ?? "" } : undefined;
}

/** The daemon's candidates in pi's format. */
export function items(answer: Json): AutocompleteItem[] {
  const found = Array.isArray(answer.items) ? answer.items.filter(isObject) : [];
  return found.slice(0, ITEMS_MAX).flatMap(({ insert, label, age, named }) => {
    if (typeof insert !== "string" || !/^@@[A-Za-z0-9._-]{1,128} $/.test(insert)) return [];
    const shown = oneLine(String(label), LABEL_MAX);
    return [{ value: insert, label: named === false ? `“${shown}”` : shown, description: oneLine(String(age), 20) }];
  });
}

/** Add sessions to pi's provider. */
export function withSessions(current: AutocompleteProvider, complete: Complete): AutocompleteProvider {
  return {
    triggerCharacters: current.triggerCharacters,

    async getSuggestions(lines, line, column, options) {
      const own = () => current.getSuggestions(lines, line, column, options);
      const typed = begun((lines[line] ?? "").slice(0, column));
      if (!typed) return own();
      try {
        const found = items(await complete(typed.prefix, options.signal));
        return found.length ? { items: found, prefix: typed.whole } : null;
      } catch {
        return own();
      }
    },

    applyCompletion(lines, line, column, item, prefix) {
      if (!prefix.startsWith("@@") || !item.value.startsWith("@@")) {
        return current.applyCompletion(lines, line, column, item, prefix);
      }
      const text = lines[line] ?? "";
      const before = text.slice(0, column - prefix.length) + item.value;
      const after = text.slice(column).replace(/^"? ?/, ""); // an item ends in a space
      return { lines: lines.with(line, before + after), cursorLine: line, cursorCol: before.length };
    },

    shouldTriggerFileCompletion(lines, line, column) {
      return current.shouldTriggerFileCompletion?.(lines, line, column) ?? true;
    },
  };
}

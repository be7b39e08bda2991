/**
 * The user's own words in a prompt: only these refer to sessions, ask them, and may cost money.
 *
 * In: what was typed, and the prompt that pi made of it. Out: the prompt without what pi put in
 * from files, and as much of it as one request takes. Work is linear in the prompt's length.
 *
 * What surprised us: pi joins attached files, `<file name="…">`, and the words after them to one
 * text, and escapes nothing. A file may hold `</file>`, so all up to the last one is taken for
 * files: words between two blocks are lost, and no file's are ever taken for the user's.
 */

const TEXT_MAX = 1_000_000; // bytes as JSON; a request's line is 1 MiB, and holds a directory, too
const REFERENCE_MAX = 300; // characters
const TYPED_MAX = 8; // prompts that are on their way at once

/** What was typed, until pi has made a prompt of it: skills and templates are nobody's words. */
export class Typed {
  private held: string[] = [];

  note(text: string): void {
    this.held = [...this.held.slice(1 - TYPED_MAX), text];
  }

  /** The user's words in a prompt. An older pi does not tell what was typed. */
  wordsOf(prompt: string): string {
    const same = this.held.lastIndexOf(prompt);
    const at = same < 0 ? this.held.findLastIndex((one) => one.startsWith("/")) : same;
    const typed = this.held[at] ?? prompt;
    this.held = this.held.slice(at + 1);
    return own(typed);
  }
}

/** A prompt without what pi puts into it: attached files, and a skill at its beginning. */
export function own(prompt: string): string {
  const skill = '<skill name="';
  const said = prompt.startsWith(skill) ? without(prompt, skill, "</skill>") : prompt;
  return without(said, '<file name="', "</file>");
}

function without(text: string, opening: string, closing: string): string {
  const from = text.indexOf(opening);
  const to = text.lastIndexOf(closing);
  return from < 0 || to < from ? text : `${text.slice(0, from)}\n${text.slice(to + closing.length)}`;
}

/** Whether words may refer to a session at all; without this no connection is opened. */
export function mentions(words: string): boolean {
  return words.includes("@@");
}

/** Whether words are likely to: marks such as a difference's `@@ -1 +1 @@` are none. */
export function refers(words: string): boolean {
  return /(?:^|[^\w@/\\])@@["“„«\p{L}\p{N}_]/u.test(words);
}

// A reference and its colon; every part is bounded, as a prompt may hold ten thousands of them.
const NAMED = /@@(?:"[^"\n]{1,200}"|[“„«][^“”„«»\n]{1,200}[”“»]|[^\s:：@"“„«]{1,220})(?:~\d{1,3})?[:：]/;

/**
 * Whether words may ask a session something: such an answer takes a model, and longer. The
 * daemon's own rule is narrower, and it alone decides.
 */
export function asks(words: string): boolean {
  return words.split("\n").some((line) => {
    const last = Math.max(...["?", "？", "؟", "⁇", "⁈", "⁉"].map((mark) => line.lastIndexOf(mark)));
    return last > 0 && NAMED.test(line.slice(0, last));
  });
}

/** As much of some words as fits into a request; JSON cannot carry half a character. */
export function fitting(words: string): string {
  const whole = words.slice(0, TEXT_MAX).replace(/\p{Cs}/gu, "\ufffd");
  const fits = (end: number): boolean => Buffer.byteLength(JSON.stringify(whole.slice(0, end))) <= TEXT_MAX;
  if (whole.length === words.length && fits(whole.length)) return whole;
  let [low, high] = [0, whole.length];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (fits(middle)) low = middle;
    else high = middle - 1;
  }
  const from = Math.max(0, low - REFERENCE_MAX); // a reference that is cut would be another one
  const blank = whole.slice(from, low).search(/\s\S*$/);
  return whole.slice(0, blank < 0 ? low : from + blank).replace(/\p{Cs}$/u, "");
}

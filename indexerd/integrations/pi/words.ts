/**
 * The user's own words in a prompt: only these can refer to sessions, ask questions and cost money.
 *
 * In: the typed text, and the prompt that pi made of it. Out: the prompt without the contents of
 * files. Linear in the prompt's length.
 *
 * Pitfalls: pi joins attached files, `<file name="…">`, and the words after them into one
 * text without escaping. A file may contain `</file>`, so everything up to the last one counts as
 * files: words between two files are ignored, and a file's words never count as the user's.
 */

const TYPED_MAX = 8; // typed texts that are kept

/** Typed texts, until pi makes prompts of them: words of skills and templates are not the user's. */
export class Typed {
  private held: string[] = [];

  note(text: string): void {
    this.held = [...this.held.slice(1 - TYPED_MAX), text];
  }

  /** The user's words in a prompt. An older pi does not report typed texts. */
  wordsOf(prompt: string): string {
    const same = this.held.lastIndexOf(prompt);
    const at = same < 0 ? this.held.findLastIndex((one) => one.startsWith("/")) : same;
    const typed = this.held[at] ?? prompt;
    this.held = this.held.slice(at + 1);
    return own(typed);
  }
}

/** A prompt without attached files, and without a skill at its beginning. */
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

/** Whether words may refer to a session; otherwise no connection is opened. */
export function mentions(words: string): boolean {
  return words.includes("@@");
}

/** Whether words are likely to refer to a session; a diff's `@@ -1 +1 @@` does not. */
export function refers(words: string): boolean {
  return /(?:^|[^\w@/\\])@@["“„«\p{L}\p{N}_]/u.test(words);
}

/** Whether words with `@@` may ask a question, which takes longer. The daemon's rule is narrower. */
export function asks(words: string): boolean {
  return /[?？؟⁇⁈⁉]/.test(words.slice(words.indexOf("@@")));
}

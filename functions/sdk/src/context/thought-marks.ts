import type { ThoughtFormat } from 'pie:inferlet/tokenize@0.1.0';

/** Efforts of thinking, from none to the highest, as OpenAI's `reasoning_effort` names them. */
export const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh'] as const;
export type Effort = (typeof EFFORTS)[number];

/**
 * Variables of a chat template for an effort: toggles are off for `none`, and `reasoning_effort` is the nearest one that the template takes. Only
 * `none` turns thoughts off.
 */
export function thoughtVariables(
  { toggles, efforts }: { readonly toggles: readonly string[]; readonly efforts: readonly string[] },
  effort: Effort,
): Readonly<Record<string, boolean | string>> {
  const variables: Record<string, boolean | string> = {};
  for (const name of toggles) variables[name] = effort !== 'none';
  const levels: readonly string[] = EFFORTS;
  const distance = (each: string): number => Math.abs(levels.indexOf(each) - levels.indexOf(effort));
  const [first, ...rest] = effort === 'none' ? efforts : efforts.filter((each) => each !== 'none');
  if (first !== undefined) {
    variables.reasoning_effort = rest.reduce((best, each) => (distance(each) < distance(best) ? each : best), first);
  }
  return variables;
}

/** Whether a prompt ends inside a thought that it opens, so that the model's text begins with the thought and not with `begin`. */
export function opensThought(prompt: string, { begin }: Pick<ThoughtFormat, 'begin'>): boolean {
  return prompt.trimEnd().endsWith(begin);
}

/** Whether a prompt ends with the end of a thought, so that the model's text begins with the answer. */
export function closesThought(prompt: string, { close }: Pick<ThoughtFormat, 'close'>): boolean {
  return prompt.trimEnd().endsWith(close.trim());
}

/**
 * The text of the template that opens an answer behind `prompt`, such as `<|channel|>final<|message|>` behind `<|start|>assistant`; empty for templates
 * that put white space alone between a thought and its answer.
 */
export function answerHeader(prompt: string, { close, end }: Pick<ThoughtFormat, 'close' | 'end'>): string {
  const between = close.trimStart().slice(end.length);
  if (between.trim() === '') return '';
  let known = between.length;
  while (!prompt.endsWith(between.slice(0, known))) known--;
  return between.slice(known);
}

/** The marks of a thought in generated text. */
export interface Marks {
  /** The mark before a thought, with its special tokens: `<think>`. */
  readonly begin: string;
  /** The part of `begin` that remains when special tokens are omitted; all of it if it has none. */
  readonly shownBegin: string;
}

/** Takes generated text piece by piece, finds out whether it begins with a thought, and returns the thought without white space around it. */
export class ThoughtText {
  /** True for a thought, false for another text, undefined while the pieces may still become a mark. */
  isThought: boolean | undefined;
  /** The thought so far. */
  text = '';
  /** Text that is not decided yet, or white space that the thought may end with. */
  #held = '';
  readonly #marks: Marks;

  /** @param isOpen true when the prompt opens the thought, so that the text has no mark before it */
  constructor(marks: Marks, isOpen: boolean) {
    this.#marks = marks;
    this.isThought = isOpen ? true : undefined;
  }

  /**
   * @param piece the next text, without special tokens
   * @param written returns the whole text so far, with special tokens
   * @returns the text that continues the thought
   */
  push(piece: string, written: () => string): string {
    this.#held += piece;
    if (this.isThought === undefined) {
      this.isThought = beginsWith(written(), this.#marks.begin);
      if (this.isThought) this.#held = this.#held.trimStart().slice(this.#marks.shownBegin.length);
    }
    if (!this.isThought) return '';
    const all = this.text === '' ? this.#held.trimStart() : this.#held;
    const shown = all.trimEnd();
    this.#held = all.slice(shown.length);
    this.text += shown;
    return shown;
  }
}

/** Whether a text begins with a mark, behind white space; undefined while the text may still become one. */
function beginsWith(text: string, mark: string): boolean | undefined {
  // The last token may end inside a character.
  const known = text.trimStart().replace(/\ufffd+$/, '');
  if (known.startsWith(mark)) return true;
  return mark.startsWith(known) ? undefined : false;
}

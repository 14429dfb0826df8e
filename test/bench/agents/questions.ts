import { type Pattern, questionOf } from './task.ts';
import type { TextTokens } from './tokens.ts';

/** Number of the last question: no cache of this run knows a later one. */
let last = 0;

/** Returns `count` new questions with each call. All have equally many tokens. */
export function questions(tokens: TextTokens, pattern: Pattern, count: number): () => string[] {
  const length = (question: string) => tokens.more(question).length;
  const usual = length(questionOf(pattern, 0));
  return () => {
    const list: string[] = [];
    while (list.length < count) {
      const question = questionOf(pattern, ++last);
      if (length(question) === usual) list.push(question);
    }
    return list;
  };
}

import { type Pattern, questionOf } from './task.ts';
import type { TextTokens } from './tokens.ts';

/** Number of the last question. Numbers rise in the whole process, so no cache has seen a new question. */
let lastNumber = 0;

/** Returns `count` new questions with each call. All have equally many tokens. */
export function questions(tokens: TextTokens, pattern: Pattern, count: number): () => string[] {
  const lengthOf = (question: string) => tokens.more(question).length;
  const usualLength = lengthOf(questionOf(pattern, 0));
  return () => {
    const list: string[] = [];
    while (list.length < count) {
      const question = questionOf(pattern, ++lastNumber);
      if (lengthOf(question) === usualLength) list.push(question);
    }
    return list;
  };
}

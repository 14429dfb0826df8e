import { model as modelOf, tokenize } from '@pie/inferlet';
import { attempt, Detokenizer } from '@pie/inferlet/raw';

/** A piece of a text, and the number of its tokens. */
interface Piece {
  readonly text: string;
  readonly size: number;
}

/** Cuts a text into parts of at most `maxTokens` tokens, between sentences where possible, and never within a character. */
export function partsOf(text: string, maxTokens: number, model?: string): string[] {
  const pieces = (text.match(/[^.!?。！？\n]+[.!?。！？\n]*\s*/g) ?? [text]).flatMap((sentence) => {
    const tokens = tokenize(sentence, { model });
    if (tokens.length <= maxTokens) return [{ text: sentence, size: tokens.length }];
    return joinPieces(charactersOf(tokens, model), maxTokens);
  });
  return joinPieces(pieces, maxTokens).map((part) => part.text.trim());
}

/** Joins neighbouring pieces into larger ones of at most `maxTokens` tokens. */
function joinPieces(pieces: readonly Piece[], maxTokens: number): readonly Piece[] {
  const parts: Piece[] = [];
  for (const { text, size } of pieces) {
    const last = parts.at(-1);
    if (last && last.size + size <= maxTokens)
      parts[parts.length - 1] = { text: last.text + text, size: last.size + size };
    else parts.push({ text, size });
  }
  return parts;
}

/** Splits the text of tokens into the smallest pieces that cut no character: one token each, or several tokens that make up a character. */
function charactersOf(tokens: readonly number[], model?: string): readonly Piece[] {
  const detokenizer = new Detokenizer(modelOf(model).name);
  try {
    const pieces: Piece[] = [];
    let size = 0;
    for (const token of tokens) {
      size += 1;
      const text = attempt(() => detokenizer.push([token]));
      if (text === '') continue;
      pieces.push({ text, size });
      size = 0;
    }
    return pieces;
  } finally {
    detokenizer.drop();
  }
}

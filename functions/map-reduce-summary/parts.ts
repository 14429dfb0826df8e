import { model as modelOf, tokenize } from '@pie/inferlet';
import { attempt, Detokenizer } from '@pie/inferlet/raw';

/** A piece of a text, and the number of its tokens. */
interface Piece {
  readonly text: string;
  readonly size: number;
}

/** Cuts a text into parts of at most `most` tokens, between sentences where possible, and never within a character. */
export function partsOf(text: string, most: number, model?: string): string[] {
  const pieces = (text.match(/[^.!?。！？\n]+[.!?。！？\n]*\s*/g) ?? [text]).flatMap((sentence) => {
    const tokens = tokenize(sentence, { model });
    if (tokens.length <= most) return [{ text: sentence, size: tokens.length }];
    return joinPieces(charactersOf(tokens, model), most);
  });
  return joinPieces(pieces, most).map((part) => part.text.trim());
}

/** Joins pieces that follow each other to pieces of at most `most` tokens. */
function joinPieces(pieces: readonly Piece[], most: number): readonly Piece[] {
  const parts: Piece[] = [];
  for (const { text, size } of pieces) {
    const last = parts.at(-1);
    if (last && last.size + size <= most) parts[parts.length - 1] = { text: last.text + text, size: last.size + size };
    else parts.push({ text, size });
  }
  return parts;
}

/** The text of tokens in pieces of one token, or of the tokens that only together are characters. */
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

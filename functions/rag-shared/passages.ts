/** The places behind the ends of sentences, as `items` of the workflow library finds them, and behind the ends of lines. */
const BORDERS = /(?<=[.!?]["')\]]*\s|\n)/;

/**
 * Cuts a document between sentences and lines into passages of at most `maxLength` characters. A longer sentence is cut between words, and a longer
 * word is cut too. The result has repeated passages once, so that an answer from several passages has different ones.
 */
export function passagesOf(document: string, maxLength: number): string[] {
  const pieces = document.split(BORDERS).flatMap((sentence) => piecesOf(sentence, maxLength));
  const passages: string[] = [];
  let passage = '';
  for (const piece of pieces) {
    if (passage !== '' && passage.length + piece.length > maxLength) {
      passages.push(passage.trim());
      passage = '';
    }
    passage += piece;
  }
  passages.push(passage.trim());
  return [...new Set(passages)].filter((text) => text !== '');
}

function piecesOf(sentence: string, maxLength: number): string[] {
  const pieces: string[] = [];
  let rest = sentence;
  while (rest.length > maxLength) {
    const space = rest.lastIndexOf(' ', maxLength);
    const splitsSurrogatePair = (rest.codePointAt(maxLength - 1) ?? 0) > 0xffff;
    const wordEnd = splitsSurrogatePair ? maxLength - 1 : maxLength;
    const end = space > 0 ? space + 1 : wordEnd;
    pieces.push(rest.slice(0, end));
    rest = rest.slice(end);
  }
  return [...pieces, rest];
}

/** Finds the passages whose vectors are nearest to a query's vector: by a {@link scan}, or by an index. */
export type Search = (query: Float32Array, count: number) => readonly string[];

/** A search that compares the query with every vector; fast enough for some thousand passages. */
export const scan =
  (passages: readonly string[], vectors: readonly Float32Array[]): Search =>
  (query, count) =>
    passages
      .map((passage, i) => ({ passage, score: dot(query, vectors[i] ?? new Float32Array()) }))
      .sort((a, b) => b.score - a.score)
      .slice(0, count)
      .map(({ passage }) => passage);

/** The passages with the largest scores, each once, the best first. */
export function best(passages: readonly string[], scores: readonly number[], count: number): string[] {
  const scored = passages.map((passage, i) => ({ passage, score: scores[i] ?? 0 }));
  const sorted = scored.sort((a, b) => b.score - a.score).map(({ passage }) => passage);
  return [...new Set(sorted)].slice(0, count);
}

function dot(one: Float32Array, other: Float32Array): number {
  let sum = 0;
  for (let i = 0; i < one.length; i++) sum += (one[i] as number) * (other[i] ?? 0);
  return sum;
}

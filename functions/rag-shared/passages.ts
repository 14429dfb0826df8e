/** The places behind the ends of sentences, as `items` of the workflow library finds them, and behind the ends of lines. */
const BORDERS = /(?<=[.!?]["')\]]*\s|\n)/;

/**
 * Cuts a document between sentences and lines into passages of at most `most` characters; a longer sentence is cut between words, and a longer
 * word is cut too. A passage that the document repeats comes once, so that an answer that reads several passages reads different ones.
 */
export function passagesOf(document: string, most: number): string[] {
  const pieces = document.split(BORDERS).flatMap((sentence) => piecesOf(sentence, most));
  const passages: string[] = [];
  let passage = '';
  for (const piece of pieces) {
    if (passage !== '' && passage.length + piece.length > most) {
      passages.push(passage.trim());
      passage = '';
    }
    passage += piece;
  }
  passages.push(passage.trim());
  return [...new Set(passages)].filter((text) => text !== '');
}

function piecesOf(sentence: string, most: number): string[] {
  const pieces: string[] = [];
  let rest = sentence;
  while (rest.length > most) {
    const space = rest.lastIndexOf(' ', most);
    const splitsPair = (rest.codePointAt(most - 1) ?? 0) > 0xffff;
    const end = space > 0 ? space + 1 : most - Number(splitsPair);
    pieces.push(rest.slice(0, end));
    rest = rest.slice(end);
  }
  return [...pieces, rest];
}

/**
 * Cuts a document between sentences into passages of at most `most` characters; a longer sentence is cut between words. A passage that the
 * document repeats comes once, so that an answer from several passages has as many different ones.
 */
export function passagesOf(document: string, most: number): string[] {
  const sentences = document.match(/[^.!?\n]+[.!?\n]*\s*/g) ?? [];
  const pieces = sentences.flatMap((sentence) => (sentence.length <= most ? [sentence] : piecesOf(sentence, most)));
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
    const end = space > 0 ? space + 1 : most;
    pieces.push(rest.slice(0, end));
    rest = rest.slice(end);
  }
  return [...pieces, rest];
}

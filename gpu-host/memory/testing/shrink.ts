/**
 * Finds a short schedule that still fails, by leaving out ever smaller pieces (delta debugging, Zeller and Hildebrandt, 2002).
 * @param fails true when a schedule fails, as `schedule` must
 */
export function shrink<T>(schedule: readonly T[], fails: (shorter: readonly T[]) => boolean): readonly T[] {
  let shortest = schedule;
  for (
    let pieceLength = shortest.length >> 1;
    pieceLength >= 1;
    pieceLength = Math.min(pieceLength >> 1, shortest.length)
  ) {
    for (let at = 0; at < shortest.length; ) {
      const shorter = [...shortest.slice(0, at), ...shortest.slice(at + pieceLength)];
      if (fails(shorter)) shortest = shorter;
      else at += pieceLength;
    }
  }
  return shortest;
}

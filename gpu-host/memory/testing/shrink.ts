/**
 * Finds a short schedule that still fails, by leaving out ever smaller pieces (delta debugging, Zeller and Hildebrandt, 2002).
 * @param fails true when a schedule fails, as `schedule` must
 */
export function shrink<T>(schedule: readonly T[], fails: (shorter: readonly T[]) => boolean): readonly T[] {
  let left = schedule;
  for (let piece = left.length >> 1; piece >= 1; piece = Math.min(piece >> 1, left.length)) {
    for (let at = 0; at < left.length; ) {
      const shorter = [...left.slice(0, at), ...left.slice(at + piece)];
      if (fails(shorter)) left = shorter;
      else at += piece;
    }
  }
  return left;
}

import type { Mask } from '../../protocol/calls.ts';

/**
 * True when a cut between any two inputs of a call does not change its result: its keys are kept (`outPages`), and no input sees a later
 * one. The check looks at the request only, because it runs while a batch is chosen. A malformed mask is refused later, with its cause.
 */
export function isChunkable(outPages: number, positions: Uint32Array, mask: Mask | undefined): boolean {
  if (outPages === 0) return false;
  return mask ? seesNothingLater(mask, positions.length) : isSorted(positions);
}

/** An inferred mask shows keys of smaller positions, so in rising order no input sees a later one. */
function isSorted(positions: Uint32Array): boolean {
  for (let i = 1; i < positions.length; i++) if ((positions[i] as number) < (positions[i - 1] as number)) return false;
  return true;
}

/** The last `inputs` columns of an explicit mask are the inputs. The runs of a row are hidden and visible in turn. */
function seesNothingLater({ runs, rowLengths }: Mask, inputs: number): boolean {
  let run = 0;
  for (let row = 0; row < rowLengths.length; row++) {
    let width = 0;
    let visibleEnd = 0;
    const end = run + (rowLengths[row] as number);
    for (let r = run; r < end && r < runs.length; r++) {
      const length = runs[r] as number;
      width += length;
      if ((r - run) % 2 === 1 && length > 0) visibleEnd = width;
    }
    run = end;
    if (visibleEnd > width - inputs + row + 1) return false;
  }
  return true;
}

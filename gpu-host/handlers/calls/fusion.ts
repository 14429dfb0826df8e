import type { DistributionCall } from './project.ts';

/** Projections that one forward computes in its own step: embed, forward and next-distribution become one device call. */
export interface Fusion {
  /** The largest `topK` of the members. */
  readonly topK: number;
  readonly members: readonly {
    readonly call: DistributionCall;
    /** Index among the rows of the step. */
    readonly row: number;
  }[];
}

/**
 * Chooses the projections of a forward's states (`riders`) that the forward's step computes; undefined for none. The step outputs the last `rows` of
 * the states for `outEmbeds`. Its projection covers all rows or none, so it runs when the riders ask for at least half of the rows. All other
 * projections are computed from their embeds afterwards.
 */
export function fuse(riders: readonly DistributionCall[], outEmbeds: Uint32Array, rows: number): Fusion | undefined {
  const members: { call: DistributionCall; row: number }[] = [];
  const askedRows = new Set<number>();
  let topK = 1;
  for (const call of riders) {
    // An embed that is named twice keeps the later state.
    const row = outEmbeds.lastIndexOf(call.embed) - (outEmbeds.length - rows);
    if (row < 0) continue;
    members.push({ call, row });
    askedRows.add(row);
    topK = Math.max(topK, call.topK);
  }
  return members.length > 0 && askedRows.size * 2 >= rows ? { topK, members } : undefined;
}

import type { DistributionCall } from './project.ts';

/** Projections that one forward computes in its own step: embed, forward and next-distribution become one call of the device. */
export interface Fusion {
  /** The largest that any of them asks. */
  readonly topK: number;
  readonly members: readonly {
    readonly call: DistributionCall /** Among the rows of the step. */;
    readonly row: number;
  }[];
}

/**
 * Which of the `riders` a step answers that hands out the last `rows` of the states that go to `outEmbeds`; undefined when it is none.
 * The head runs over all rows of a step or none, so it does where at least half of the rows are asked for. What does not ride is projected
 * from its embed afterwards.
 */
export function fuse(riders: readonly DistributionCall[], outEmbeds: Uint32Array, rows: number): Fusion | undefined {
  const members: { call: DistributionCall; row: number }[] = [];
  const asked = new Set<number>();
  let topK = 1;
  for (const call of riders) {
    // An embed that is named twice keeps the later state.
    const row = outEmbeds.lastIndexOf(call.embed) - (outEmbeds.length - rows);
    if (row < 0) continue;
    members.push({ call, row });
    asked.add(row);
    topK = Math.max(topK, call.topK);
  }
  return members.length > 0 && asked.size * 2 >= rows ? { topK, members } : undefined;
}

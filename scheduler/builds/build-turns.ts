/** A requested build that has not ended. */
export interface BuildTurn {
  readonly tenant: string;
  readonly turn: number;
}

/**
 * The turn of a new build: start-time fair queueing (Goyal, Vin and Cheng, 1996) with one unit of work per build. Builds begin in order of
 * their turns; within one turn the earliest request goes first. `time` is the largest turn that has begun. A tenant's next build queues
 * after its own last one, and another tenant's first build after those that have begun, so tenants are served in rounds.
 * `scripts/take-turn.lua` computes the same.
 */
export function nextTurn(outstanding: Iterable<BuildTurn>, tenant: string, time: number): number {
  let turn = time;
  for (const other of outstanding) if (other.tenant === tenant) turn = Math.max(turn, other.turn + 1);
  return turn;
}

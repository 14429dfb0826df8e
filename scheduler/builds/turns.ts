/** A build that was asked for and has not ended. */
export interface BuildTurn {
  readonly tenant: string;
  readonly turn: number;
}

/**
 * The turn of a new build: start-time fair queueing (Goyal, Vin and Cheng, 1996) with one unit of work a build. Builds are begun in order of their
 * turns, of one turn the first that came; `time` is the largest turn that has begun. So a tenant whose builds wait already stands behind its own last
 * one, and another tenant's first build behind what is under way: builds are taken from the tenants in rounds.
 *
 * `scripts/take-turn.lua` says the same.
 */
export function nextTurn(outstanding: Iterable<BuildTurn>, tenant: string, time: number): number {
  let turn = time;
  for (const other of outstanding) if (other.tenant === tenant) turn = Math.max(turn, other.turn + 1);
  return turn;
}

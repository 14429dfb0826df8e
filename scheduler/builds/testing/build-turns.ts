/** A requested build and its turn: the number of the round in which it begins. */
export interface BuildTurn {
  readonly tenant: string;
  readonly turn: number;
}

/**
 * The turn of a new build: start-time fair queueing (Goyal, Vin and Cheng, 1996) with one unit of work per build. Builds begin in order of
 * their turns; within one turn the earliest request goes first. A new build gets the later of two turns: the latest turn that has begun, and the
 * turn after its tenant's last build, even if that build has ended. So tenants are served in rounds. `take-turn` of `builds.lua` computes the same.
 *
 * @param builds all builds that have not ended, and the last one that each tenant began
 * @param time the largest turn that has begun
 */
export function nextTurn(builds: Iterable<BuildTurn>, tenant: string, time: number): number {
  let turn = time;
  for (const other of builds) if (other.tenant === tenant) turn = Math.max(turn, other.turn + 1);
  return turn;
}

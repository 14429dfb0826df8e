import { firstDifference, inTurn, warmUp } from '../rounds.ts';
import { type Spread, spread } from '../statistics.ts';
import type { EngineProcess } from './engine-process.ts';
import type { Measured, Task } from './engines.ts';

/** Our engine and a peer's on one task, over several rounds. */
export interface Comparison {
  /** Tokens a second of our engine. */
  readonly rate: Spread;
  /** Our rate over the peer's, within each round. */
  readonly ratio: Spread;
  /** Milliseconds of our engine in each round. */
  readonly ms: readonly number[];
  /** Undefined for tasks without tokens, and for peers with other weights. */
  readonly tokens: TokenCheck | undefined;
  /** Memory of our engine after the task. */
  readonly memory: Measured['memory'];
}

/** Greedy tokens of the first sequence, ours beside the peer's. */
export interface TokenCheck {
  readonly count: number;
  /** Index of the first token that differs in any round; -1 when all are equal. */
  readonly firstDifference: number;
}

/**
 * Measures both sides in turn, after a round of both that does not count. A peer may be several processes, such as one for each number of
 * threads: each is measured in every round, and the fastest of the round is the peer.
 */
export async function compare(
  { task, tokens }: { readonly task: Task; readonly tokens: number },
  ours: EngineProcess,
  theirs: readonly EngineProcess[],
  repetitions: number,
): Promise<Comparison> {
  const rounds: { readonly own: Measured; readonly peers: readonly Measured[] }[] = [];
  for (let round = -1; round < repetitions; round++) {
    const sides = [ours, ...theirs].map((engine) => () => engine.measure(task));
    const [own, ...peers] = await (round < 0 ? warmUp<Measured[]>(sides) : inTurn<Measured[]>(round + 1, sides));
    if (own !== undefined && round >= 0) rounds.push({ own, peers });
  }
  const best = (peers: readonly Measured[]) => Math.min(...peers.map(({ ms }) => ms));
  return {
    rate: spread(rounds.map(({ own }) => (tokens * 1000) / own.ms)),
    ratio: spread(rounds.map(({ own, peers }) => best(peers) / own.ms)),
    ms: rounds.map(({ own }) => own.ms),
    tokens: checkTokens(rounds),
    memory: rounds.at(-1)?.own.memory,
  };
}

function checkTokens(
  rounds: readonly { readonly own: Measured; readonly peers: readonly Measured[] }[],
): TokenCheck | undefined {
  const pairs = rounds.flatMap(({ own, peers }) =>
    peers.flatMap((peer) => (own.tokens && peer.tokens ? [[own.tokens, peer.tokens] as const] : [])),
  );
  const [first] = pairs;
  if (first === undefined) return undefined;
  const differences = pairs.map(([own, peer]) => firstDifference(own, peer)).filter((index) => index >= 0);
  return { count: first[0].length, firstDifference: differences.length === 0 ? -1 : Math.min(...differences) };
}

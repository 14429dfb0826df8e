import { firstDifference, inTurn, warmUp } from '../rounds.ts';
import { type Spread, spread } from '../statistics.ts';
import type { EngineProcess } from './engine-process.ts';
import type { Measurement, Task } from './engines.ts';

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
  readonly memory: Measurement['memory'];
}

/** Comparison of the greedy tokens of the first sequence between our engine and the peers. */
export interface TokenCheck {
  readonly count: number;
  /** Index of the first token that differs in any round; -1 when all are equal. */
  readonly firstDifference: number;
}

/**
 * Measures both sides in turn, after an unmeasured round of both. `theirs` may be several processes of one peer, such as one for each number
 * of threads: each process is measured in every round, and the fastest process of the round counts.
 */
export async function compare(
  { task, tokens }: { readonly task: Task; readonly tokens: number },
  ours: EngineProcess,
  theirs: readonly EngineProcess[],
  repetitions: number,
): Promise<Comparison> {
  const rounds: { readonly own: Measurement; readonly peers: readonly Measurement[] }[] = [];
  for (let round = -1; round < repetitions; round++) {
    const sides = [ours, ...theirs].map((engine) => () => engine.measure(task));
    const [own, ...peers] = await (round < 0 ? warmUp<Measurement[]>(sides) : inTurn<Measurement[]>(round + 1, sides));
    if (own !== undefined && round >= 0) rounds.push({ own, peers });
  }
  const fastestMs = (peers: readonly Measurement[]) => Math.min(...peers.map(({ ms }) => ms));
  return {
    rate: spread(rounds.map(({ own }) => (tokens * 1000) / own.ms)),
    ratio: spread(rounds.map(({ own, peers }) => fastestMs(peers) / own.ms)),
    ms: rounds.map(({ own }) => own.ms),
    tokens: checkTokens(rounds),
    memory: rounds.at(-1)?.own.memory,
  };
}

function checkTokens(
  rounds: readonly { readonly own: Measurement; readonly peers: readonly Measurement[] }[],
): TokenCheck | undefined {
  const pairs = rounds.flatMap(({ own, peers }) =>
    peers.flatMap((peer) => (own.tokens && peer.tokens ? [[own.tokens, peer.tokens] as const] : [])),
  );
  const [first] = pairs;
  if (first === undefined) return undefined;
  const differences = pairs.map(([own, peer]) => firstDifference(own, peer)).filter((index) => index >= 0);
  return { count: first[0].length, firstDifference: differences.length === 0 ? -1 : Math.min(...differences) };
}

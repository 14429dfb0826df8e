import type { ModelConfig } from '#gpu-host/models/config.ts';
import type { StateScores, TopTokens } from '../backend.ts';
import type { LazySession } from './lazy-session.ts';
import { Tensor } from './library.ts';
import { floats, projectedRows, type RunResult } from './outputs.ts';

/** Maximum number of logits in one run of the head, which keeps several 4-byte copies of each. More states are split into several runs. */
const MAX_LOGITS = 1 << 24;

/** The head alone, for states that were computed earlier: the decoder's own head cannot run without the decoder. */
export class Head {
  readonly #config: ModelConfig;
  readonly #session: LazySession;

  /** `session` runs the graph that `buildHead` makes. */
  constructor(config: ModelConfig, session: LazySession) {
    this.#config = config;
    this.#session = session;
  }

  async project(states: Float32Array, count: number, topK: number): Promise<TopTokens> {
    const k = Math.min(topK, this.#config.vocabularySize);
    const tokens = new Uint32Array(count * k);
    const logProbabilities = new Float32Array(count * k);
    for (const { from, to } of this.#runRanges(count)) {
      const result = await this.#run(states, from, to, { topK: k, picks: null });
      const top = projectedRows(result, to - from, k);
      tokens.set(top.tokens, from * k);
      logProbabilities.set(top.logProbabilities, from * k);
    }
    return { topK: k, tokens, logProbabilities };
  }

  async score(states: Float32Array, count: number, tokens: readonly Uint32Array[]): Promise<StateScores> {
    const { vocabularySize } = this.#config;
    const logProbabilities: Float32Array[] = [];
    const entropies = new Float32Array(count);
    for (const { from, to } of this.#runRanges(count)) {
      const lists = tokens.slice(from, to);
      const picks = new Int32Array(lists.reduce((sum, { length }) => sum + length, 0));
      let nextPick = 0;
      for (const [row, list] of lists.entries())
        for (const token of list) picks[nextPick++] = row * vocabularySize + token;
      const result = await this.#run(states, from, to, { topK: 1, picks });
      const picked = floats(result.picked);
      const logSums = floats(result.log_sum);
      let next = 0;
      lists.forEach((list, row) => {
        logProbabilities.push(picked.subarray(next, next + list.length).map((logit) => logit - logSums[row]));
        next += list.length;
      });
      entropies.set(floats(result.entropies), from);
    }
    return { logProbabilities, entropies };
  }

  async #run(
    states: Float32Array,
    from: number,
    to: number,
    { topK, picks }: { readonly topK: number; readonly picks: Int32Array | null },
  ): Promise<RunResult> {
    const session = await this.#session.get();
    const { hiddenSize } = this.#config;
    const runStates = states.subarray(from * hiddenSize, to * hiddenSize);
    const feeds = {
      states: new Tensor('float32', runStates, [to - from, hiddenSize]),
      wants_top: new Tensor('bool', [picks === null], [1]),
      wants_scores: new Tensor('bool', [picks !== null], [1]),
      top_k: new Tensor('int64', BigInt64Array.of(BigInt(topK)), [1]),
      picks: new Tensor('int32', picks ?? new Int32Array(0), [picks?.length ?? 0]),
    };
    const outputNames = picks === null ? ['top_tokens', 'top_logits'] : ['picked', 'entropies'];
    return session.run(feeds, [...outputNames, 'log_sum']);
  }

  #runRanges(count: number): { readonly from: number; readonly to: number }[] {
    const statesPerRun = Math.max(1, Math.floor(MAX_LOGITS / this.#config.vocabularySize));
    return Array.from({ length: Math.ceil(count / statesPerRun) }, (_, i) => ({
      from: i * statesPerRun,
      to: Math.min(count, (i + 1) * statesPerRun),
    }));
  }
}

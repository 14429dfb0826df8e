import type { StateScores, TopTokens } from '../../backends/backend.ts';
import { checkStates } from '../../backends/check.ts';
import type { KeyVisitor } from '../../batcher/call.ts';
import { fault } from '../../memory/fault.ts';
import type { Operation } from '../../protocol/operations.ts';
import { embedKey, HostCall, type ModelContext } from './call.ts';
import { checkTokens, checkTopK } from './checks.ts';
import type { HostQueue } from './space.ts';

/** A call about one state. It needs the head (the projection onto the vocabulary), but no step over pages. */
export abstract class ProjectCall extends HostCall {
  readonly embed: number;
  protected readonly model: ModelContext;

  constructor(queue: HostQueue, id: number, embed: number, model: ModelContext) {
    super('project', queue, id);
    this.embed = embed;
    this.model = model;
  }

  /** Checks the arguments except the state. @throws CallFault */
  abstract check(): void;

  /** The state to project. @throws CallFault */
  input(): Float32Array {
    const embed = this.hostQueue.space.embeds.get(this.embed);
    if (embed.kind !== 'state') {
      throw fault(
        'invalid-argument',
        `embed ${this.embed} holds ${embed.kind === 'token' ? 'a token' : 'a part of an image'}, not a state; name it in a forward's out-embeds first`,
      );
    }
    checkStates(this.model.backend.config, embed.values, 1);
    return embed.values;
  }

  override visitKeys(visit: KeyVisitor): void {
    visit(embedKey(this.embed), 'read');
  }

  protected override poison(): void {}
}

/** `next-distribution` of `wit/output-text.wit`: the most probable tokens after a state. */
export class DistributionCall extends ProjectCall {
  readonly topK: number;

  constructor(queue: HostQueue, id: number, operation: Operation<'next-distribution'>, model: ModelContext) {
    super(queue, id, operation.embed, model);
    this.topK = operation.topK;
  }

  override check(): void {
    checkTopK(this.topK, this.model.maxTopK);
  }

  /** Replies with row `row` of the device's projection. */
  accept(top: TopTokens, row: number): void {
    const offset = row * top.topK;
    const value = {
      tokens: top.tokens.slice(offset, offset + this.topK),
      logProbabilities: top.logProbabilities.slice(offset, offset + this.topK),
    };
    if (Number.isNaN(value.logProbabilities[0]))
      throw fault('internal', 'the model computed no numbers for this state');
    this.reply('next-distribution', value);
  }
}

/** `log-probabilities` and `entropy` of `wit/output-text.wit`: the log-probabilities of some tokens after a state, or its entropy. */
export class ScoreCall extends ProjectCall {
  /** Tokens to score; undefined for the entropy. */
  readonly #tokens: Uint32Array | undefined;

  constructor(queue: HostQueue, id: number, embed: number, tokens: Uint32Array | undefined, model: ModelContext) {
    super(queue, id, embed, model);
    this.#tokens = tokens;
  }

  get scoredTokens(): Uint32Array {
    return this.#tokens ?? NO_TOKENS;
  }

  override get scores(): number {
    return this.scoredTokens.length;
  }

  override check(): void {
    checkTokens(this.scoredTokens, this.model.backend.config.vocabularySize);
  }

  /** Replies with row `row` of the device's scores. */
  accept(scores: StateScores, row: number): void {
    if (this.#tokens) this.reply('log-probabilities', scores.logProbabilities[row] as Float32Array);
    else this.reply('entropy', scores.entropies[row] as number);
  }
}

const NO_TOKENS = new Uint32Array(0);

import type { TopTokens } from '../backends/backend.ts';
import type { KeyVisitor } from '../batcher/call.ts';
import { fault } from '../memory/fault.ts';
import type { NextDistributionOperation } from '../protocol/decode-calls.ts';
import { encodeDistribution } from '../protocol/results.ts';
import { embedKey, HostCall, type ModelContext } from './call.ts';
import type { HostQueue } from './space.ts';
import { checkTopK } from './step.ts';

/** `next-distribution` of `wit/output-text.wit`: the most probable tokens after a state. */
export class ProjectCall extends HostCall {
  readonly topK: number;
  readonly #embed: number;
  readonly #model: ModelContext;

  constructor(queue: HostQueue, id: number, operation: NextDistributionOperation, model: ModelContext) {
    super('project', queue, id);
    this.#embed = operation.embed;
    this.topK = operation.topK;
    this.#model = model;
  }

  /** The state to project. @throws CallFault */
  input(): Float32Array {
    checkTopK(this.topK, this.#model.maxTopK);
    const embed = this.hostQueue.space.embeds.get(this.#embed);
    if (embed.kind !== 'state') {
      throw fault(
        'invalid-argument',
        `embed ${this.#embed} holds a token, not a state; name it in a forward's out-embeds first`,
      );
    }
    return embed.values;
  }

  /** Takes row `row` of what the device projected. */
  accept(top: TopTokens, row: number): void {
    const offset = row * top.topK;
    const value = {
      tokens: top.tokens.slice(offset, offset + this.topK),
      logProbabilities: top.logProbabilities.slice(offset, offset + this.topK),
    };
    this.reply(() => encodeDistribution(this.hostQueue.space.port.writer, this.id, value));
  }

  override visitKeys(visit: KeyVisitor): void {
    visit(embedKey(this.#embed), false);
  }

  protected override poison(): void {}
}

import type { SequenceInput, SequenceOutput } from '../../backends/backend.ts';
import { fault } from '../../memory/fault.ts';
import { MAX_FRAME_WORDS } from '../../protocol/wire.ts';
import type { Progress } from './call.ts';
import { ForwardCall } from './forward.ts';
import type { ForwardPlan } from './plan.ts';
import { visiblePlaces } from './visibility.ts';

/** `forward-scores` of `wit/introspect.wit`: a forward that also returns the attention that each slot received from its inputs. */
export class ForwardScoresCall extends ForwardCall {
  /** Attention received so far by each context slot, then by each input. */
  #receivedAttention = new Float32Array(0);
  /** Index of each context slot among the in-pages' slots. */
  #places: readonly number[] = [];

  /** The guest wants every input's attention, so every input is computed. */
  protected override get takesFromCache(): boolean {
    return false;
  }

  override prepare(granted: number): SequenceInput {
    return { ...super.prepare(granted), attention: true };
  }

  protected override makePlan(): ForwardPlan {
    const { inPages, inEmbeds } = this.operation;
    const numbers = inPages.length * this.model.backend.pageSize + inEmbeds.length;
    // Half a frame leaves room for the rest of the result.
    if (numbers > MAX_FRAME_WORDS / 2) {
      throw fault(
        'limit-exceeded',
        `the scores of ${numbers} slots and inputs are more than one result holds; split the call`,
      );
    }
    const plan = super.makePlan();
    this.#places = visiblePlaces(this.hostQueue.space.pages, inPages);
    this.#receivedAttention = new Float32Array(this.#places.length + inEmbeds.length);
    return plan;
  }

  override accept(output: SequenceOutput): Progress {
    const { attention } = output;
    if (!attention) throw new Error('the backend gave no attention');
    // Inputs of earlier parts are context of later ones, in the same order, so index `i` stands for the same slot or input in every part.
    for (let i = 0; i < attention.length; i++)
      this.#receivedAttention[i] = (this.#receivedAttention[i] as number) + (attention[i] as number);
    const progress = super.accept(output);
    if (progress === 'done') this.reply('forward-scores', this.#bySlot());
    return progress;
  }

  /** `page-size` numbers for each in-page, then one for each input. */
  #bySlot(): Float32Array {
    const { pageSize } = this.model.backend;
    const { inPages, inEmbeds } = this.operation;
    const scores = new Float32Array(inPages.length * pageSize + inEmbeds.length);
    this.#places.forEach((place, i) => {
      scores[place] = this.#receivedAttention[i] as number;
    });
    scores.set(this.#receivedAttention.subarray(this.#places.length), inPages.length * pageSize);
    return scores;
  }
}

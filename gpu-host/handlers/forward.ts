import type { InputRows, OutputRequest, SequenceInput, SequenceOutput } from '../backends/backend.ts';
import type { KeyVisitor } from '../batcher/call.ts';
import type { Embed } from '../memory/embeds.ts';
import { fault } from '../memory/fault.ts';
import type { ForwardOperation } from '../protocol/decode-calls.ts';
import type { HandlerError } from '../protocol/errors.ts';
import { DeviceCall, embedKey, type ModelContext, type Progress, pageKey } from './call.ts';
import { ForwardPlan } from './plan.ts';
import type { HostQueue } from './space.ts';

/** `forward` of `wit/forward.wit`: embeds over pages, the last states into embeds. */
export class ForwardCall extends DeviceCall {
  readonly #operation: ForwardOperation;
  readonly #model: ModelContext;
  #plan: ForwardPlan | undefined;
  #inputs: Exclude<Embed, { kind: 'empty' }>[] = [];
  #prepared = 0;
  /** States of the rows so far, when the call is cut inside the rows that are wanted. */
  #states: Float32Array[] = [];

  constructor(queue: HostQueue, id: number, operation: ForwardOperation, model: ModelContext) {
    super('forward', queue, id);
    this.#operation = operation;
    this.#model = model;
  }

  override get tokens(): number {
    return this.#operation.inEmbeds.length - (this.#plan?.done ?? 0);
  }

  override chunkable(): boolean {
    try {
      return this.#planned().chunkable;
    } catch {
      // It fails the same way, with its cause, when it is prepared.
      return false;
    }
  }

  override prepare(tokens: number, model: ModelContext): SequenceInput {
    const plan = this.#planned();
    this.#prepared = tokens;
    const wanted = this.#operation.outEmbeds.length;
    const rows = Math.max(0, Math.min(tokens, plan.done + tokens - (plan.positions.length - wanted)));
    const output: OutputRequest = rows > 0 ? { kind: 'states', rows } : { kind: 'none' };
    return plan.sequence(tokens, inputRows(this.#inputs, plan.done, tokens, model), output);
  }

  override accept(output: SequenceOutput): Progress {
    const plan = this.#plan as ForwardPlan;
    plan.commit(this.#prepared);
    if (output.kind === 'states') this.#states.push(output.states);
    if (plan.left > 0) return 'more';
    this.#writeStates(plan);
    return 'done';
  }

  #planned(): ForwardPlan {
    if (this.#plan) return this.#plan;
    const { inPages, inEmbeds, outPages, outEmbeds, mask } = this.#operation;
    const { pages, embeds } = this.hostQueue.space;
    if (inEmbeds.length === 0) throw fault('invalid-argument', 'a forward without in-embeds');
    if (outEmbeds.length > inEmbeds.length) {
      throw fault('invalid-argument', `${outEmbeds.length} out-embeds for ${inEmbeds.length} inputs`);
    }
    const inputs = Array.from(inEmbeds, (address) => embeds.get(address));
    embeds.checkHeld(outEmbeds);
    embeds.checkStateRoom(outEmbeds.length * this.#model.backend.config.hiddenSize * 4);
    const positions = Uint32Array.from(inputs, (embed) => embed.position);
    const plan = new ForwardPlan(
      pages,
      { positions, inPages, outPages, mask },
      this.#model.backend.config.contextLength,
    );
    this.#inputs = inputs;
    this.#plan = plan;
    return plan;
  }

  #writeStates(plan: ForwardPlan): void {
    const { outEmbeds } = this.#operation;
    const { hiddenSize } = this.#model.backend.config;
    const first = plan.positions.length - outEmbeds.length;
    let row = 0;
    for (const states of this.#states) {
      for (let at = 0; at < states.length; at += hiddenSize) {
        // A state sits where the next input would: fed back, it follows the input that it came from.
        const position = (plan.positions[first + row] as number) + 1;
        const values = states.slice(at, at + hiddenSize);
        this.hostQueue.space.embeds.setState(outEmbeds[row++] as number, values, position);
      }
    }
    this.#states = [];
  }

  override visitKeys(visit: KeyVisitor): void {
    const { inPages, inEmbeds, outPages, outEmbeds } = this.#operation;
    // What it writes first: a page that is both needs no second look.
    for (const page of outPages) visit(pageKey(page), true);
    for (const embed of outEmbeds) visit(embedKey(embed), true);
    for (const page of inPages) visit(pageKey(page), false);
    for (const embed of inEmbeds) visit(embedKey(embed), false);
  }

  protected override poison(cause: HandlerError): void {
    const { pages, embeds } = this.hostQueue.space;
    pages.fail(this.#operation.outPages, cause, this.hostQueue);
    embeds.fail(this.#operation.outEmbeds, cause, this.hostQueue);
  }
}

/** Embeds as device inputs: tokens when all are, else rows of values with the tokens among them looked up. */
function inputRows(
  embeds: readonly Exclude<Embed, { kind: 'empty' }>[],
  from: number,
  count: number,
  model: ModelContext,
): InputRows {
  const tokens = new Uint32Array(count);
  let states = 0;
  for (let i = 0; i < count; i++) {
    const embed = embeds[from + i] as Exclude<Embed, { kind: 'empty' }>;
    if (embed.kind === 'token') tokens[i] = embed.token;
    else states++;
  }
  if (states === 0) return { kind: 'tokens', tokens };
  const { hiddenSize } = model.backend.config;
  const rows = new Float32Array(count * hiddenSize);
  for (let i = 0; i < count; i++) {
    const embed = embeds[from + i] as Exclude<Embed, { kind: 'empty' }>;
    const values = embed.kind === 'state' ? embed.values : model.embedding(embed.token);
    if (!values) throw fault('unsupported', 'this host cannot mix tokens and states in one forward; split it');
    rows.set(values, i * hiddenSize);
  }
  return { kind: 'embeds', embeds: rows };
}

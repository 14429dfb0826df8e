import type { InputRows, OutputRequest, SequenceInput, SequenceOutput } from '../backends/backend.ts';
import type { KeyVisitor } from '../batcher/call.ts';
import type { Embed } from '../memory/embeds.ts';
import { fault } from '../memory/fault.ts';
import type { ForwardOperation } from '../protocol/decode-calls.ts';
import type { HandlerError } from '../protocol/errors.ts';
import { DeviceCall, embedKey, type ModelContext, type Progress, pageKey } from './call.ts';
import { isChunkable } from './chunkable.ts';
import { type Fusion, fuse } from './fusion.ts';
import { ForwardPlan } from './plan.ts';
import type { DistributionCall } from './project.ts';
import type { HostQueue } from './space.ts';

type HeldEmbed = Exclude<Embed, { kind: 'empty' }>;

/** `forward` of `wit/forward.wit`: embeds over pages, the last states into embeds. */
export class ForwardCall extends DeviceCall {
  protected readonly operation: ForwardOperation;
  protected readonly model: ModelContext;
  protected plan: ForwardPlan | undefined;
  #inputs: HeldEmbed[] = [];
  /** States of the rows so far, when the call is cut inside the rows that are wanted. */
  #states: Float32Array[] = [];
  #riders: readonly DistributionCall[] = [];
  /** Projections that this step answers as well, with the row of each. */
  fusion: Fusion | undefined;

  constructor(queue: HostQueue, id: number, operation: ForwardOperation, model: ModelContext) {
    super('forward', queue, id);
    this.operation = operation;
    this.model = model;
  }

  override get tokens(): number {
    return this.plan ? this.plan.left : this.operation.inEmbeds.length;
  }

  override chunkable(): boolean {
    const { outPages, inEmbeds, mask } = this.operation;
    const { embeds } = this.hostQueue.space;
    try {
      const positions = Uint32Array.from(inEmbeds, (address) => embeds.get(address).position);
      return isChunkable(outPages.length, positions, mask);
    } catch {
      // It fails the same way, with its cause, when it is prepared.
      return false;
    }
  }

  /** Projections of its states that go with the batch; those that can be computed in the same step are, and stand in `fusion` after `prepare`. */
  ride(riders: readonly DistributionCall[]): void {
    this.#riders = riders;
  }

  /** Whether the state of `embed` is one that it makes. */
  makes(embed: number): boolean {
    return this.operation.outEmbeds.includes(embed);
  }

  override prepare(granted: number): SequenceInput {
    this.plan ??= this.makePlan();
    const { plan } = this;
    const count = Math.min(granted, plan.left);
    const inputs = inputRows(this.#inputs, plan.done, count, this.model);
    return plan.begin(count, inputs, this.#output(plan, count));
  }

  override accept(output: SequenceOutput): Progress {
    const plan = this.plan as ForwardPlan;
    plan.commit();
    if (output.kind !== 'none' && output.states) this.#states.push(output.states);
    if (plan.left > 0) return 'more';
    this.#writeStates(plan);
    return 'done';
  }

  protected override rollback(): void {
    this.plan?.rollback();
    this.fusion = undefined;
  }

  protected makePlan(): ForwardPlan {
    const { inPages, inEmbeds, outPages, outEmbeds, mask } = this.operation;
    const { pages, embeds } = this.hostQueue.space;
    if (inEmbeds.length === 0) throw fault('invalid-argument', 'a forward without in-embeds');
    if (outEmbeds.length > inEmbeds.length) {
      throw fault('invalid-argument', `${outEmbeds.length} out-embeds for ${inEmbeds.length} inputs`);
    }
    const inputs = Array.from(inEmbeds, (address) => embeds.get(address));
    embeds.checkHeld(outEmbeds);
    embeds.checkStateRoom(outEmbeds.length * this.model.backend.config.hiddenSize * 4);
    const positions = Uint32Array.from(inputs, (embed) => embed.position);
    const tokens = this.takesFromCache ? tokensOf(inputs) : undefined;
    const request = { positions, inPages, outPages, mask, tokens, rows: outEmbeds.length };
    const plan = new ForwardPlan(pages, request, this.model.backend.config.contextLength);
    this.#inputs = inputs;
    return plan;
  }

  /** Whether keys of the prefix cache may stand for inputs. */
  protected get takesFromCache(): boolean {
    return true;
  }

  #output(plan: ForwardPlan, count: number): OutputRequest {
    const { outEmbeds } = this.operation;
    const rows = Math.max(0, Math.min(count, plan.done + count - (plan.positions.length - outEmbeds.length)));
    this.fusion = undefined;
    if (rows === 0) return { kind: 'none' };
    if (plan.left === count) this.fusion = fuse(this.#riders, outEmbeds, rows);
    if (!this.fusion) return { kind: 'states', rows };
    return { kind: 'top', rows, topK: this.fusion.topK, states: true };
  }

  #writeStates(plan: ForwardPlan): void {
    const { outEmbeds } = this.operation;
    const { hiddenSize } = this.model.backend.config;
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
    const { inPages, inEmbeds, outPages, outEmbeds } = this.operation;
    // What it writes first: a page that is both needs no second look.
    for (const page of outPages) visit(pageKey(page), 'fill');
    for (const embed of outEmbeds) visit(embedKey(embed), 'write');
    for (const page of inPages) visit(pageKey(page), 'read');
    for (const embed of inEmbeds) visit(embedKey(embed), 'read');
  }

  protected override poison(cause: HandlerError): void {
    const { pages, embeds } = this.hostQueue.space;
    pages.fail(this.operation.outPages, cause, this.hostQueue);
    embeds.fail(this.operation.outEmbeds, cause, this.hostQueue);
  }
}

/** The inputs' tokens when all are tokens. */
function tokensOf(inputs: readonly HeldEmbed[]): Uint32Array | undefined {
  const tokens = new Uint32Array(inputs.length);
  for (let i = 0; i < inputs.length; i++) {
    const embed = inputs[i] as HeldEmbed;
    if (embed.kind !== 'token') return undefined;
    tokens[i] = embed.token;
  }
  return tokens;
}

/** Embeds as device inputs: tokens when all are, else rows of values with the tokens among them looked up. */
function inputRows(embeds: readonly HeldEmbed[], from: number, count: number, model: ModelContext): InputRows {
  const part = embeds.length === count ? embeds : embeds.slice(from, from + count);
  const tokens = tokensOf(part);
  if (tokens) return { kind: 'tokens', tokens };
  const { hiddenSize } = model.backend.config;
  const rows = new Float32Array(count * hiddenSize);
  for (let i = 0; i < count; i++) {
    const embed = part[i] as HeldEmbed;
    const values = embed.kind === 'state' ? embed.values : model.embedding(embed.token);
    if (!values) throw fault('unsupported', 'this host cannot mix tokens and states in one forward; split it');
    rows.set(values, i * hiddenSize);
  }
  return { kind: 'embeds', embeds: rows };
}

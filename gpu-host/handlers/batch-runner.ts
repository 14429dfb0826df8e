import type { SequenceInput, SequenceOutput } from '../backends/backend.ts';
import { checkInputs, checkSequence, InvalidInput } from '../backends/check.ts';
import type { Batch, Grant } from '../batcher/batcher.ts';
import type { BatchCall } from '../batcher/call.ts';
import { dependencyFault } from '../memory/fault.ts';
import type { BatchTracer } from '../telemetry/batch-trace.ts';
import type { DeviceCall, HostCall, ModelContext } from './call.ts';
import type { EmbedImageCall } from './embed-image.ts';
import { ForwardCall } from './forward.ts';
import type { Payer } from './meter.ts';
import { DistributionCall, type ProjectCall, ScoreCall } from './project.ts';
import { RunCall } from './run.ts';
import type { StepStats } from './stats.ts';

/** What becomes of a call after its part of a batch. */
export interface CallEnds {
  /** It is complete. */
  finish(call: HostCall): void;
  /** It has inputs left. */
  resume(call: HostCall): void;
  /** It waits for its consumer. */
  pause(call: HostCall): void;
}

interface Prepared {
  readonly call: DeviceCall;
  readonly grant: Grant;
  readonly sequence: SequenceInput;
}

/**
 * Does one batch on the device: prepares its calls, computes them in one step, hands out what came of it, then projects what did not fit
 * the step. A call's fault stays its own: what the backend would refuse is found when the call is prepared, and where that was missed, the calls of
 * the batch are computed one by one.
 */
export class BatchRunner {
  readonly #context: ModelContext;
  readonly #stats: StepStats;
  readonly #traces: BatchTracer | undefined;
  readonly #ends: CallEnds;

  constructor(context: ModelContext, stats: StepStats, traces: BatchTracer | undefined, ends: CallEnds) {
    this.#context = context;
    this.#stats = stats;
    this.#traces = traces;
    this.#ends = ends;
  }

  async run(batch: Batch): Promise<void> {
    await this.#encode(batch.encodings as readonly EmbedImageCall[]);
    const projections = this.#checked(batch.projections as readonly ProjectCall[]);
    const answered = await this.#forward(batch.forwards, projections);
    const left = projections.filter((call) => !answered.has(call));
    await this.#distributions(left.filter((call) => call instanceof DistributionCall));
    await this.#scores(left.filter((call) => call instanceof ScoreCall));
  }

  /** Projections whose arguments make sense; the others have failed. */
  #checked(calls: readonly ProjectCall[]): ProjectCall[] {
    return calls.filter((call) =>
      this.#try(call, () => {
        call.check();
        return true;
      }),
    );
  }

  /** Computes the forwards; returns the projections that were answered with them. */
  async #forward(grants: readonly Grant[], projections: readonly ProjectCall[]): Promise<Set<ProjectCall>> {
    const answered = new Set<ProjectCall>();
    const prepared = this.#prepare(grants, projections);
    if (prepared.length > 0) await this.#compute(prepared, answered);
    return answered;
  }

  async #compute(prepared: readonly Prepared[], answered: Set<ProjectCall>): Promise<void> {
    const sequences = prepared.map(({ sequence }) => sequence);
    const startedMs = performance.now();
    let outputs: readonly SequenceOutput[];
    try {
      outputs = await this.#charged(prepared, inputsOf, meterOf, () => this.#context.backend.forward(sequences));
      if (outputs.length !== sequences.length) throw new Error('the backend returned another number of outputs');
    } catch (error) {
      // Nothing was computed, and one of them is to blame.
      if (error instanceof InvalidInput && prepared.length > 1) {
        await this.#computeEach(prepared, answered);
        return;
      }
      for (const { call } of prepared) this.#fail(call, deviceError(error));
      return;
    }
    const endedMs = performance.now();
    this.#stats.step(sequences, endedMs - startedMs);
    for (const { call } of prepared) this.#stats.waited(startedMs - call.arrivedMs);
    this.#trace(prepared, startedMs, endedMs);
    for (const [i, { call, grant }] of prepared.entries()) {
      const acceptedMs = call.span === '' ? 0 : performance.now();
      this.#accept(call, grant, outputs[i] as SequenceOutput, answered);
      if (call.span !== '' && call.samples) this.#traces?.sampled(call, acceptedMs, performance.now());
    }
  }

  /** One after another, as the batch has them: later ones may need what those before them make. */
  async #computeEach(prepared: readonly Prepared[], answered: Set<ProjectCall>): Promise<void> {
    for (const each of prepared) {
      if (each.call.hostQueue.space.closed) {
        this.#ends.finish(each.call);
        continue;
      }
      const ready = this.#try(each.call, () => checkBefore(each.grant));
      if (ready) await this.#compute([each], answered);
    }
  }

  #trace(prepared: readonly Prepared[], startedMs: number, endedMs: number): void {
    if (!this.#traces || !prepared.some(({ call }) => call.span !== '')) return;
    const parts = prepared.map(({ call, sequence }) => ({ call, inputs: sequence.positions.length }));
    this.#traces.computed(parts, { startedMs, endedMs, padding: this.#context.backend.batchPadding?.() ?? 0 });
  }

  #prepare(grants: readonly Grant[], projections: readonly ProjectCall[]): Prepared[] {
    const prepared: Prepared[] = [];
    for (const grant of grants) {
      const call = grant.call as DeviceCall;
      if (call instanceof RunCall && call.stopped) {
        call.endStopped();
        this.#ends.finish(call);
        continue;
      }
      if (call instanceof ForwardCall) call.ride(ridersOf(call, projections));
      this.#try(call, () => {
        checkBefore(grant);
        prepared.push({ call, grant, sequence: this.#sequence(call, grant.tokens) });
      });
    }
    // Room for one call may have been made by ending the inferlet of another: that one's slots are somebody else's now.
    return prepared.filter(({ call }) => {
      if (!call.hostQueue.space.closed) return true;
      this.#ends.finish(call);
      return false;
    });
  }

  #sequence(call: DeviceCall, tokens: number): SequenceInput {
    // Its space may have been ended for the room of a call before it.
    if (call.hostQueue.space.closed) throw new Error('the inferlet has ended');
    const { backend } = this.#context;
    const { adapter } = call;
    const prepared = call.prepare(tokens);
    const sequence = adapter ? { ...prepared, adapter } : prepared;
    if (backend.checksSlots) checkInputs(backend.config, sequence);
    else checkSequence(backend.config, backend.pageSize * backend.pageCount, sequence);
    return sequence;
  }

  #accept(call: DeviceCall, grant: Grant, output: SequenceOutput, answered: Set<ProjectCall>): void {
    if (call.hostQueue.space.closed) {
      this.#ends.finish(call);
      return;
    }
    this.#try(call, () => {
      checkBefore(grant);
      const progress = call.accept(output);
      if (call instanceof ForwardCall) this.#answerRiders(call, output, answered);
      if (progress === 'done') this.#ends.finish(call);
      else if (progress === 'more') this.#ends.resume(call);
      else this.#ends.pause(call);
    });
  }

  /** The projections that the forward's own step computed. */
  #answerRiders({ fusion }: ForwardCall, output: SequenceOutput, answered: Set<ProjectCall>): void {
    if (!fusion || output.kind !== 'top') return;
    for (const { call, row } of fusion.members) {
      answered.add(call);
      this.#stats.fusedProjections++;
      this.#try(call, () => {
        call.accept(output, row);
        this.#ends.finish(call);
      });
    }
  }

  async #distributions(calls: readonly DistributionCall[]): Promise<void> {
    const topK = calls.reduce((most, call) => Math.max(most, call.topK), 1);
    await this.#project(
      calls,
      (states, ready) => this.#context.backend.project(states, ready.length, topK),
      (call, top, row) => call.accept(top, row),
    );
  }

  async #scores(calls: readonly ScoreCall[]): Promise<void> {
    await this.#project(
      calls,
      (states, ready) => {
        const tokens = ready.map((call) => call.scored);
        return this.#context.backend.score(states, ready.length, tokens);
      },
      (call, scores, row) => call.accept(scores, row),
    );
  }

  /** Encodes the calls' pictures in one step. */
  async #encode(calls: readonly EmbedImageCall[]): Promise<void> {
    const ready: EmbedImageCall[] = [];
    const pictures: Uint8Array[] = [];
    for (const call of calls) {
      this.#try(call, () => {
        pictures.push(call.prepare());
        ready.push(call);
      });
    }
    const { images } = this.#context.backend;
    if (!images || ready.length === 0) return;
    let encoded: readonly Float32Array[];
    try {
      encoded = await this.#charged(ready, tokensOf, payerOf, () => images.encode(pictures));
    } catch (error) {
      for (const call of ready) this.#fail(call, deviceError(error));
      return;
    }
    this.#stats.images += ready.length;
    for (const [i, call] of ready.entries()) {
      this.#try(call, () => {
        if (!call.hostQueue.space.closed) call.accept(encoded[i] as Float32Array);
        this.#ends.finish(call);
      });
    }
  }

  /** Computes something of the calls' states in one go, and hands each its row. */
  async #project<C extends ProjectCall, R>(
    calls: readonly C[],
    compute: (states: Float32Array, ready: readonly C[]) => Promise<R>,
    accept: (call: C, result: R, row: number) => void,
  ): Promise<void> {
    const ready: C[] = [];
    const states: Float32Array[] = [];
    for (const call of calls) {
      this.#try(call, () => {
        states.push(call.input());
        ready.push(call);
      });
    }
    if (ready.length === 0) return;
    const { hiddenSize } = this.#context.backend.config;
    const rows = new Float32Array(ready.length * hiddenSize);
    for (const [i, state] of states.entries()) rows.set(state, i * hiddenSize);
    let result: R;
    try {
      result = await this.#charged(ready, tokensOf, payerOf, () => compute(rows, ready));
    } catch (error) {
      for (const call of ready) this.#fail(call, deviceError(error));
      return;
    }
    this.#stats.projections += ready.length;
    for (const [row, call] of ready.entries()) {
      this.#try(call, () => {
        accept(call, result, row);
        this.#ends.finish(call);
      });
    }
  }

  /** Has the device do something at the expense of the parts' inferlets: also when it fails, and of those too that have ended meanwhile. */
  async #charged<P, R>(
    parts: readonly P[],
    tokens: (part: P) => number,
    payer: (part: P) => Payer,
    work: () => Promise<R>,
  ): Promise<R> {
    const startedMs = performance.now();
    try {
      return await work();
    } finally {
      this.#stats.time.spend(performance.now() - startedMs, parts, tokens, payer);
    }
  }

  /** Does something for a call; false, and the call has failed, when that throws. */
  #try(call: HostCall, action: () => void): boolean {
    try {
      action();
      return true;
    } catch (error) {
      this.#fail(call, error);
      return false;
    }
  }

  #fail(call: HostCall, error: unknown): void {
    if (!call.hostQueue.space.closed) this.#stats.failedCalls++;
    call.fail(error);
    this.#ends.finish(call);
  }
}

const inputsOf = ({ sequence }: Prepared): number => sequence.positions.length;
const meterOf = ({ call }: Prepared): Payer => payerOf(call);
const tokensOf = ({ tokens }: HostCall): number => tokens;
const payerOf = ({ hostQueue }: HostCall): Payer => hostQueue.space.port.meter;

/** Why the device failed. Arguments were checked before, so that no caller is to blame, whatever the backend says. */
function deviceError(error: unknown): Error {
  return new Error(error instanceof Error ? error.message : String(error));
}

/** The distributions that are asked of the states which a forward makes. */
function ridersOf(forward: ForwardCall, projections: readonly ProjectCall[]): DistributionCall[] {
  const { space } = forward.hostQueue;
  const riders: DistributionCall[] = [];
  for (const call of projections) {
    if (call instanceof DistributionCall && call.hostQueue.space === space && forward.makes(call.embed))
      riders.push(call);
  }
  return riders;
}

/** What the calls before it in the batch should have filled is needed. @throws CallFault with the cause of the one that failed */
function checkBefore({ after }: Grant): void {
  const failed = after?.find((call) => failureOf(call) !== undefined);
  if (failed) throw dependencyFault(failureOf(failed) as NonNullable<HostCall['failure']>);
}

function failureOf(call: BatchCall): HostCall['failure'] {
  return (call as HostCall).failure;
}

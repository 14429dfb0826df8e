import type { SequenceInput, SequenceOutput } from '../backends/backend.ts';
import type { DeviceCall, HostCall, ModelContext } from './call.ts';
import { type ComputedStep, DeviceStep, type StepPart } from './device-step.ts';
import { NextStep } from './next-step.ts';
import { StepCall } from './step.ts';

/** Least share of a step's rows whose next step is guessed: the inferlets of the others may have to wait for one step more. */
const LEAST_SHARE = 7 / 8;
/** Maximum milliseconds for which a guessed step that has ended waits for its calls, while nothing else can go. */
const MOST_LATE_MS = 20;
/** The same once other calls of its inferlets can go, at most as long as the step took. */
const MOST_AHEAD_MS = 4;

/** The engine and the batch runner, as the guesses see them. */
export interface GuessTurns {
  /**
   * True when nothing but the calls of the batch wants the device or the memory, and no other call is expected soon. With `own`: when at most
   * as many others can go now.
   */
  isAlone(own?: number): boolean;
  /** Sends the results, and reads the frames that have arrived. */
  stepped(): Promise<void>;
  /** Resolves when a call has come, and at the latest with `end`. */
  called(end: Promise<void>): Promise<void>;
  /** Sends the results, and resolves when a call has come, or after `ms`. */
  lingered(ms: number): Promise<void>;
  /** Takes a ready call into the batch under way. */
  adopt(call: HostCall): void;
  /** The call's input, as it would go to the device now. @throws CallFault or CallHeld */
  prepare(call: DeviceCall): SequenceInput;
  /** Charges the step, and returns the time at which the device began it. */
  charge(step: GuessedStep): number;
  /** Hands out the results of a step. */
  accept(step: ComputedStep, startedMs: number): void;
  /** Hands out the result of a call that came after the end of its step. */
  acceptLate(part: StepPart, output: SequenceOutput): void;
  /** Computes prepared calls in a step of their own. */
  compute(parts: readonly StepPart[]): Promise<void>;
}

export type GuessedStep = DeviceStep<NextStep>;

/**
 * Steps ahead of inferlets that see every token. An inferlet that has asked for some steps in a row, each with the token of the one before,
 * will probably ask for the next one, and the device computes that while the inferlet still reads the token. When the call comes, it is prepared
 * as always, and takes the result only if it would have gone to the device in exactly that form: same slots, position and sampler, and the
 * token that was picked. A wrong guess leaves no trace but its time, which its inferlet pays: the key and value that it wrote lie in a slot that
 * counts as empty. When all calls for a guessed step have come, the step after it is handed over.
 */
export class GuessedSteps {
  readonly #context: ModelContext;
  readonly #turns: GuessTurns;

  constructor(context: ModelContext, turns: GuessTurns) {
    this.#context = context;
    this.#turns = turns;
  }

  /** What the inferlets of a step under way will probably ask for next; empty when too few of them will. */
  rowsAfter({ parts, failure }: DeviceStep): readonly NextStep[] {
    const { ahead, config } = this.#context.backend;
    if (ahead !== true || failure || !parts.every(({ call }) => call instanceof StepCall)) return [];
    const rows: NextStep[] = [];
    let row = 0;
    for (const { call, sequence } of parts) {
      const isSteady = call instanceof StepCall && call.hostQueue.trail.isSteady;
      const next = isSteady && NextStep.after(call, sequence, row, config.contextLength);
      if (next) rows.push(next);
      if (sequence.output.kind === 'top') row += sequence.output.rows;
    }
    return rows.length >= LEAST_SHARE * parts.length ? rows : [];
  }

  /** Hands a guessed step over, unless someone else wants the device; a call that comes later waits for it. `own` is that of `isAlone`. */
  handOver(rows: readonly NextStep[], own?: number): GuessedStep | undefined {
    if (rows.length === 0 || !this.#turns.isAlone(own)) return undefined;
    // Two queues of one inferlet may fill one page. Only one of them can be right.
    const slots = new Set(rows.map(({ sequence }) => sequence.writes[0]));
    return slots.size === rows.length ? new DeviceStep(this.#context.backend, rows, true) : undefined;
  }

  /** Gives the guessed step to the calls that ask for it, and goes on guessing until one does not come in time. */
  async follow(first: GuessedStep): Promise<void> {
    let step: GuessedStep | undefined = first;
    while (step) {
      await this.#turns.stepped();
      const awaited = new Set(step.parts.entries());
      const taken: Taken[] = this.#take(awaited);
      while (awaited.size > 0 && step.endedMs === 0) {
        await this.#turns.called(step.ended);
        taken.push(...this.#take(awaited));
      }
      let next: GuessedStep | undefined = awaited.size === 0 && !step.failure ? this.#handOverAfter(step) : undefined;
      await step.ended;
      const startedMs = this.#turns.charge(step);
      if (step.failure) return this.#fail(step, taken, next);
      this.#give(step, taken, startedMs);
      if (awaited.size > 0) next = await this.#linger(step, awaited);
      for (const [, part] of awaited) part.missed();
      step = next;
    }
  }

  /** Prepares the calls that have come, if they ask for what was guessed. Other calls stay ready for the next batch. */
  #take(awaited: Set<[number, NextStep]>): Taken[] {
    const taken: Taken[] = [];
    for (const entry of awaited) {
      const [row, part] = entry;
      const call = part.find();
      const sequence = call && this.#prepare(part, call);
      if (!sequence) continue;
      this.#turns.adopt(call);
      part.take(call);
      awaited.delete(entry);
      taken.push({ row, part: { call, grant: { call, tokens: 1 }, sequence } });
    }
    return taken;
  }

  /** The call's input, if it is the guessed one. */
  #prepare(part: NextStep, call: StepCall): SequenceInput | undefined {
    const { pages, closed } = call.hostQueue.space;
    if (closed || pages.contender.isAway || pages.isFetching) return undefined;
    try {
      const sequence = this.#turns.prepare(call);
      if (part.is(sequence)) return sequence;
    } catch {
      // The next batch prepares the call again, and tells its inferlet what is wrong.
    }
    call.unprepare();
    return undefined;
  }

  /** Hands over the step after a guessed one, whose calls have come. */
  #handOverAfter({ parts }: GuessedStep, own?: number): GuessedStep | undefined {
    const { contextLength } = this.#context.backend.config;
    const rows = parts.flatMap((part, row) => NextStep.after(part, part.sequence, row, contextLength) ?? []);
    return rows.length >= LEAST_SHARE * parts.length ? this.handOver(rows, own) : undefined;
  }

  #give(step: GuessedStep, taken: readonly Taken[], startedMs: number): void {
    const { isAhead, submittedMs, endedMs, rows } = step;
    const parts = taken.map(({ part }) => part);
    const outputs = taken.map(({ row }) => step.outputs[row] as SequenceOutput);
    this.#turns.accept({ parts, outputs, rows, isAhead, submittedMs, endedMs }, startedMs);
  }

  /**
   * Waits for missing calls while nobody else wants the device: they need not be computed again, and inferlets that were together stay so.
   * @returns the step after `step`, handed over when the wait has ended
   */
  async #linger(step: GuessedStep, awaited: Set<[number, NextStep]>): Promise<GuessedStep | undefined> {
    const aheadMs = Math.min(MOST_AHEAD_MS, step.endedMs - step.submittedMs);
    let endMs = step.endedMs + MOST_LATE_MS;
    for (;;) {
      const own = step.parts.filter(({ hasReadyCall }) => hasReadyCall).length;
      if (!this.#turns.isAlone(own)) return undefined;
      const nowMs = performance.now();
      if (own > 0) endMs = Math.min(endMs, nowMs + aheadMs);
      if (awaited.size === 0 || nowMs >= endMs) return this.#handOverAfter(step, own);
      await this.#turns.lingered(endMs - nowMs);
      for (const { row, part } of this.#take(awaited))
        this.#turns.acceptLate(part, step.outputs[row] as SequenceOutput);
    }
  }

  /** Computes the calls of a failed step as if it had not been guessed. */
  async #fail(step: GuessedStep, taken: readonly Taken[], next: GuessedStep | undefined): Promise<void> {
    for (const part of step.parts) part.missed();
    if (next) {
      await next.ended;
      this.#turns.charge(next);
    }
    if (taken.length > 0) await this.#turns.compute(taken.map(({ part }) => part));
  }
}

/** A call that has taken a row of a guessed step. */
interface Taken {
  readonly row: number;
  readonly part: StepPart;
}

import { setImmediate } from 'node:timers/promises';
import type { Batcher } from '../../batcher/batcher.ts';
import type { Contender } from '../../memory/contender.ts';
import type { Relief } from '../../memory/relief.ts';
import type { PageSpace } from '../../memory/space.ts';
import type { HostCall } from '../calls/call.ts';
import type { ModelSpace } from '../calls/space.ts';

/**
 * Time for which the device may do nothing while calls are held. After it, every family (an invocation and its children) counts as waiting, and the
 * oldest family with a held call goes on. Longer than the time between a result and the next call, shorter than most waits that inferlets announce.
 */
const STALL_MS = 20;
/**
 * Maximum held families for which one search between two steps counts the pages of all others, which takes some tenths of a millisecond each with
 * many families. The search after the next step goes on with the rest.
 */
const MAX_COUNTED = 4;
/** Time after which held calls that no family could go on with are considered again: other tenants keep their shares for a while after they end. */
const RETRY_MS = 500;

/** The engine, as preemption sees it. */
export interface PreemptionTurns {
  readonly batcher: Batcher;
  spaceOf(pages: PageSpace): ModelSpace | undefined;
  /** Called when held calls may go on. */
  wanted(): void;
}

/** Holds the calls of preempted families on one model, and lets them go when their family returns. */
export class Preemption {
  readonly #relief: Relief;
  readonly #turns: PreemptionTurns;
  #timer: NodeJS.Timeout | undefined;

  constructor(relief: Relief, turns: PreemptionTurns) {
    this.#relief = relief;
    this.#turns = turns;
  }

  spaceOf(pages: PageSpace): ModelSpace | undefined {
    return this.#turns.spaceOf(pages);
  }

  /** Holds the family's ready calls. Its later calls, and those on the device, are held when their turn comes. */
  preempt(family: Contender): void {
    for (const pages of family.spaces) {
      const space = this.spaceOf(pages);
      for (const { batchQueue: order } of space?.queues ?? []) {
        for (const call of [order.front, ...order.heldCalls]) {
          if (call?.state !== 'ready' || !space?.park(call as HostCall)) continue;
          this.#turns.batcher.pause(call);
        }
      }
    }
  }

  /** Holds a call that was chosen to go and needs more memory than there is. */
  hold(call: HostCall): void {
    this.#turns.batcher.hold(call);
    // A call that follows another held one is queued again, not paused: it waits for that call without being held.
    if (call.state !== 'paused' || call.hostQueue.space.park(call)) return;
    // The family has returned while the call waited for a disk.
    this.#turns.batcher.resume(call, performance.now());
  }

  /** Lets a paused call go, or holds it while its family is preempted. */
  resume(call: HostCall): void {
    const { batcher } = this.#turns;
    if (call.hostQueue.space.park(call)) batcher.pause(call);
    else batcher.resume(call, performance.now());
  }

  /** Resumes a held call of a preempted family, because it needs no memory any more. Returns false when the call is not held. */
  release(call: HostCall): boolean {
    const { space } = call.hostQueue;
    if (!space.parkedCalls.has(call)) return false;
    space.unpark(call);
    this.#turns.batcher.resume(call, performance.now());
    return true;
  }

  /** Lets the held calls of a space go on, unless its family is preempted. */
  goOn(space: ModelSpace): void {
    if (space.pages.contender.isAway) return;
    this.#goOn(space);
    this.#turns.wanted();
  }

  /** Lets those families return whose pages fit. Between two steps, it may leave a part of the search to the next call. */
  admit(): void {
    this.#admit(MAX_COUNTED);
  }

  #admit(maxCounted?: number): boolean {
    let anyReturned = false;
    for (let family = this.#relief.next(maxCounted); family; family = this.#relief.next(maxCounted)) {
      anyReturned = true;
      for (const pages of family.spaces) this.#goOn(this.spaceOf(pages));
    }
    return anyReturned;
  }

  /** The engine calls this method when the device has no work. Returns true when a family returned. */
  idle(): boolean {
    if (!this.#relief.holdsCalls) return false;
    this.#relief.noteChange();
    if (this.#admit()) return true;
    this.#timer ??= setTimeout(() => void this.#stalled(), STALL_MS);
    return false;
  }

  async #stalled(): Promise<void> {
    const timer = this.#timer;
    // This thread may have stood still meanwhile: one turn of the event loop reads the calls that have come, and the next one begins them.
    await setImmediate();
    await setImmediate();
    if (this.#timer !== timer) return;
    this.#timer = undefined;
    if (this.#relief.stalled()) this.#turns.wanted();
    else if (this.#relief.holdsCalls) this.#timer = setTimeout(() => void this.#stalled(), RETRY_MS);
  }

  /** The engine calls this method when the device has work, and when the host stops. */
  stopWatching(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #goOn(space: ModelSpace | undefined): void {
    if (!space) return;
    for (const call of [...space.parkedCalls]) {
      space.unpark(call);
      if (call.state === 'paused' && call.acquire()) this.#turns.batcher.resume(call, performance.now());
    }
  }
}

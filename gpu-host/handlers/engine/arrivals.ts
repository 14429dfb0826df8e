import type { Batcher } from '../../batcher/batcher.ts';
import type { HostCall } from '../calls/call.ts';
import type { ModelSpace } from '../calls/space.ts';
import type { StepGaps } from '../sharing/step-gaps.ts';

/**
 * Pushes arriving calls to the batcher, which orders them by their addresses. Ordering takes long for a call with many addresses, so such a
 * call waits for a gap between steps. The inferlet's later calls wait behind it; other inferlets' calls on the same socket do not.
 */
export class Arrivals {
  readonly #batcher: Batcher;
  readonly #gaps: StepGaps;

  constructor(batcher: Batcher, gaps: StepGaps) {
    this.#batcher = batcher;
    this.#gaps = gaps;
  }

  /** Pushes the call now; or later, in a gap, when it has many addresses or an earlier call of its inferlet waits for a gap. */
  take(call: HostCall, nowMs: number): void {
    const { space } = call.hostQueue;
    const { arrivingCalls, owner, port, scoreboard } = space;
    if (arrivingCalls.length > 0) arrivingCalls.push(call);
    // The batcher does not look at the addresses of a call while the inferlet has no other unfinished call.
    else if (!call.hasManyAddresses || scoreboard.size === 0) this.#batcher.push(call, nowMs);
    else {
      arrivingCalls.push(call);
      void this.#gaps.work(() => this.#takeNext(space), owner.tenant, port.meter);
    }
  }

  /** Pushes the next waiting call of a space. Returns true when more wait, false after the last, undefined when the space has ended. */
  #takeNext({ arrivingCalls }: ModelSpace): boolean | undefined {
    const call = arrivingCalls.shift();
    if (!call) return undefined;
    this.#batcher.push(call, performance.now());
    return arrivingCalls.length > 0;
  }
}

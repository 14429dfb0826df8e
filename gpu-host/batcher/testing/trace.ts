import { type Batch, Batcher, type BatcherOptions } from '../batcher.ts';
import type { LatencyTargets } from '../call.ts';
import { type BatchQueue, Scoreboard } from '../call.ts';
import type { BatchLimits } from '../select.ts';
import { type BatchPolicy, departureOf } from './policies.ts';
import { SimCall, type SimShape } from './sim-call.ts';

const LIMITS: BatchLimits = { maxCalls: 4, maxTokens: 64, maxScores: 100, agingMs: 100 };
const NO_GRACE = { maxMs: 0, stepShare: 0 };

/** A batcher with a clock and named queues that plays a hand-made trace. */
export class Trace {
  readonly batcher: Batcher;
  nowMs = 0;
  #queues = new Map<string, BatchQueue>();
  #scoreboards = new Map<string, Scoreboard>();

  constructor(
    limits: Partial<BatchLimits> = {},
    { policy = { kind: 'adaptive' }, ...options }: BatcherOptions & { readonly policy?: BatchPolicy } = {},
  ) {
    const bounds = { ...LIMITS, ...limits };
    const departure = departureOf(policy, bounds.maxCalls);
    this.batcher = new Batcher({ grace: NO_GRACE, departure, ...options, limits: bounds });
  }

  /**
   * The queue of this name; its first mention opens it with these options. `a.1` is queue 1 of inferlet a, the only inferlet of a tenant a. `t/a.1`
   * is queue 1 of inferlet a of tenant t. Each inferlet of a tenant is a query; queries rank by the first letter of the inferlet's name.
   */
  queue(name: string, maxPriority?: number, targets?: LatencyTargets): BatchQueue {
    const inferlet = name.split('.')[0] as string;
    if (!this.#scoreboards.has(inferlet)) this.#scoreboards.set(inferlet, new Scoreboard());
    if (!this.#queues.has(name)) {
      const [tenant = '', query = ''] = inferlet.split('/');
      const owner = { tenant, query: query === '' ? 0 : query.charCodeAt(0) };
      const options = { ...owner, targets, ...(maxPriority === undefined ? {} : { maxPriority }) };
      this.#queues.set(name, this.batcher.openQueue(this.#scoreboards.get(inferlet)!, options));
    }
    return this.#queues.get(name)!;
  }

  push(queue: string, shape: SimShape, name = queue): SimCall {
    const call = new SimCall(this.queue(queue), shape, name);
    this.batcher.push(call, this.nowMs);
    return call;
  }

  /** A forward of one input that touches no page or embed. */
  decode(queue: string, name = queue): SimCall {
    return this.push(queue, { kind: 'forward' }, name);
  }

  /**
   * Starts the next batch, and gives the names of its calls. The name of a forward with several inputs or steps left is followed by the number of
   * its inputs that go with the batch, as in `long:62`.
   */
  start(): { batch: Batch; names: string[] } {
    const decision = this.batcher.next(this.nowMs);
    if (decision.kind !== 'batch') throw new Error(`no batch: ${decision.kind}`);
    const names = decision.batch.forwards.map((grant) => {
      const call = grant.call as SimCall;
      return grant.tokens > 1 || call.left > 1 ? `${call.name}:${grant.tokens}` : call.name;
    });
    const { projections, encodings } = decision.batch;
    return {
      batch: decision.batch,
      names: [...names, ...[...projections, ...encodings].map((call) => (call as SimCall).name)],
    };
  }

  /** Ends the batch after `tookMs` of virtual time. */
  end(batch: Batch, tookMs = 1): void {
    this.nowMs += tookMs;
    for (const grant of batch.forwards) {
      const call = grant.call as SimCall;
      call.left -= grant.tokens;
      if (call.left > 0) this.batcher.resume(call, this.nowMs);
      else this.batcher.finish(call, this.nowMs);
    }
    for (const call of [...batch.projections, ...batch.encodings]) this.batcher.finish(call, this.nowMs);
    this.batcher.ended(this.nowMs);
  }

  /** Runs one step and returns its calls. */
  step(tookMs = 1): string[] {
    const { batch, names } = this.start();
    this.end(batch, tookMs);
    return names;
  }

  /** Steps until no call is ready. */
  steps(): string[][] {
    const namesByStep: string[][] = [];
    while (this.batcher.waiting > 0) namesByStep.push(this.step());
    return namesByStep;
  }

  /**
   * The milliseconds that the batcher wants to wait. Returns 0 when a batch leaves instead, and runs that batch to its
   * end.
   */
  waitMs(): number {
    const decision = this.batcher.next(this.nowMs);
    if (decision.kind === 'idle') throw new Error('nothing is ready');
    if (decision.kind === 'wait') return decision.ms;
    this.end(decision.batch);
    return 0;
  }

  /** Executes the calls that need no step, and returns their names. */
  instants(): string[] {
    const names: string[] = [];
    for (let call = this.batcher.takeInstant(); call; call = this.batcher.takeInstant()) {
      names.push((call as SimCall).name);
      this.batcher.finish(call, this.nowMs);
    }
    return names;
  }
}

import type { Counter, Histogram, Meter } from '@opentelemetry/api';
import type { InvocationJob } from '#scheduler/admission/job.ts';
import type { Usage } from '#scheduler/invocations/types.ts';

/** Histogram bounds in seconds: from the time of a warm launch to the longest common wall time. */
const LATENCY_BOUNDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300];
/** Histogram bounds in seconds, for the time between two output tokens. */
const TOKEN_BOUNDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1];

/** Times of an invocation's first message and of its tokens, milliseconds of `performance.now`; 0 for never. */
export interface TokenTimes {
  readonly firstMessageAt: number;
  readonly firstTokenAt: number;
  readonly lastTokenAt: number;
}

/** The measurements of one run of an invocation. */
export interface RunFacts {
  readonly job: InvocationJob;
  /** End of the run by the platform's clock, milliseconds since the Unix epoch. */
  readonly endedAt: number;
  /** `ok`, a failure's code, `requeued`, `waiting` or `lost`; see `ObservedRun.ended`. */
  readonly code: string;
  readonly usage: Usage;
  readonly times: TokenTimes;
  /** Name of the first model that the run used; empty when it used none. */
  readonly model: string;
}

/** The runtime's own state, read when metrics are collected. */
export interface RuntimeState {
  readonly running: number;
  readonly children: number;
  readonly slots: number;
  /** Number of slots that the runtime's thread keeps up with now. */
  readonly pace: number;
  readonly readyInstances: number;
}

/** The runtime's instruments. */
export class RuntimeMetrics {
  readonly #invocations: Counter;
  readonly #durations: Histogram;
  readonly #waits: Histogram;
  readonly #firstTokens: Histogram;
  readonly #perToken: Histogram;
  readonly #tokens: Counter;
  readonly #deviceTime: Counter;
  readonly #starts: Histogram;

  constructor(meter: Meter) {
    const seconds = (name: string, description: string, bounds: number[] = LATENCY_BOUNDS) =>
      meter.createHistogram(name, { unit: 's', description, advice: { explicitBucketBoundaries: bounds } });
    this.#invocations = meter.createCounter('pie.invocations', {
      unit: '{invocation}',
      description: 'Runs that ended, by outcome: ok, the failure, requeued, or waiting for a person.',
    });
    this.#durations = seconds('pie.invocation.duration', 'From submission to the end.');
    this.#waits = seconds('pie.admission.wait', 'From submission to the start.');
    this.#firstTokens = seconds('gen_ai.server.time_to_first_token', 'From submission to the first message.');
    this.#perToken = seconds('gen_ai.server.time_per_output_token', 'Between two output tokens.', TOKEN_BOUNDS);
    this.#tokens = meter.createCounter('pie.tokens', {
      unit: '{token}',
      description: 'Tokens of invocations: input, output, and those of the input that a prefix cache had.',
    });
    this.#deviceTime = meter.createCounter('pie.gpu.time', {
      unit: 's',
      description: 'Time of devices that invocations were charged for.',
    });
    this.#starts = seconds('pie.instance.start', 'Until an instance was there: taken ready (warm) or created (cold).');
  }

  /** Watches the runtime's state. */
  watch(meter: Meter, state: () => RuntimeState): void {
    const gauge = (name: string, unit: string, description: string, read: (state: RuntimeState) => number) =>
      meter.createObservableGauge(name, { unit, description }).addCallback((result) => result.observe(read(state())));
    gauge('pie.runtime.running', '{invocation}', 'Invocations that run, children included.', ({ running }) => running);
    gauge('pie.runtime.children', '{invocation}', 'Children that run.', ({ children }) => children);
    gauge('pie.runtime.slots', '{invocation}', 'Invocations that may run at once.', ({ slots }) => slots);
    gauge('pie.runtime.pace', '{invocation}', 'Invocations that its thread keeps up with.', ({ pace }) => pace);
    gauge('pie.pool.ready', '{instance}', 'Instances that are ready.', ({ readyInstances }) => readyInstances);
  }

  launched(cold: boolean, ms: number): void {
    this.#starts.record(ms / 1000, { start: cold ? 'cold' : 'warm' });
  }

  ended({ job, endedAt, code, usage, times, model }: RunFacts): void {
    const owner = { tenant: job.tenant, function: job.function };
    this.#invocations.add(1, { ...owner, code });
    // An invocation that was requeued or waits for a person has not ended.
    if (code !== 'requeued' && code !== 'waiting')
      this.#durations.record(Math.max(0, endedAt - job.submittedAt) / 1000, owner);
    if (usage.queuedMs !== undefined) this.#waits.record(usage.queuedMs / 1000, { tenant: job.tenant });
    for (const type of ['input', 'output', 'cached'] as const) {
      const count = usage[`${type}Tokens`] ?? 0;
      if (count > 0) this.#tokens.add(count, { ...owner, type });
    }
    if ((usage.gpuMs ?? 0) > 0) this.#deviceTime.add((usage.gpuMs ?? 0) / 1000, owner);
    const { firstMessageAt, firstTokenAt, lastTokenAt } = times;
    if (firstMessageAt > 0) {
      const at = endedAt - (performance.now() - firstMessageAt);
      this.#firstTokens.record(Math.max(0, at - job.submittedAt) / 1000, { ...owner, model });
    }
    const gaps = (usage.outputTokens ?? 0) - 1;
    if (gaps > 0 && lastTokenAt > firstTokenAt)
      this.#perToken.record((lastTokenAt - firstTokenAt) / 1000 / gaps, { ...owner, model });
  }
}

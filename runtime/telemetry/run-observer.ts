import type { Meter, Tracer } from '@opentelemetry/api';
import type { InvocationJob } from '#scheduler/admission/job.ts';
import type { Usage } from '#scheduler/invocations/types.ts';
import type { Launched } from '../lifecycle/launch.ts';
import { RuntimeMetrics, type RuntimeState, type TokenTimes } from './metrics.ts';
import { type RunStart, RunTrace } from './run-trace.ts';
import type { StepTrace } from './step-trace.ts';

/** What the entry point hands in: `infra/telemetry`. */
export interface Instruments {
  readonly meter: Meter;
  /** Absent when nobody records traces. */
  readonly tracer: Tracer | undefined;
}

/** An inferlet as it is measured: what it said and decoded when, with which model, and on which GPU host; both empty when it used none. */
export interface Measured {
  readonly times: TokenTimes;
  readonly model: string;
  readonly gpuHost: string;
}

const NOTHING_MEASURED: Measured = {
  times: { firstMessageAt: 0, firstTokenAt: 0, lastTokenAt: 0 },
  model: '',
  gpuHost: '',
};

/** Measures and traces the runs of one runtime. */
export class RunObserver {
  readonly #instruments: Instruments;
  readonly #metrics: RuntimeMetrics;

  constructor(instruments: Instruments) {
    this.#instruments = instruments;
    this.#metrics = new RuntimeMetrics(instruments.meter);
  }

  /** Shows the runtime's own state beside its runs. */
  watch(state: () => RuntimeState): void {
    this.#metrics.watch(this.#instruments.meter, state);
  }

  /** A run begins; whoever begins one ends it. */
  begin(job: InvocationJob, start: RunStart): ObservedRun {
    const { tracer } = this.#instruments;
    return new ObservedRun(job, this.#metrics, tracer ? RunTrace.begin(tracer, job, start) : null);
  }
}

/** One run, from its beginning to its terminal event. */
export class ObservedRun {
  readonly #job: InvocationJob;
  readonly #metrics: RuntimeMetrics;
  readonly #trace: RunTrace | null;
  #measured: () => Measured = () => NOTHING_MEASURED;
  #ended = false;

  constructor(job: InvocationJob, metrics: RuntimeMetrics, trace: RunTrace | null) {
    this.#job = job;
    this.#metrics = metrics;
    this.#trace = trace;
  }

  /** @param at when the instance was there, milliseconds since the Unix epoch */
  launched(launched: Pick<Launched, 'coldStart' | 'timings'>, at: number): void {
    const { buildMs, compileMs, instantiateMs } = launched.timings;
    this.#metrics.launched(launched.coldStart, buildMs + compileMs + instantiateMs);
    this.#trace?.launched(launched, at);
  }

  /**
   * The inferlet is about to begin. Answers the trace context of what it does (the job's own when nobody records it), and where its steps
   * are told, if they are recorded.
   */
  runs(measured: () => Measured): { readonly traceparent: string | undefined; readonly steps: StepTrace | undefined } {
    this.#measured = measured;
    return this.#trace?.runs() ?? { traceparent: this.#job.traceparent, steps: undefined };
  }

  /** Its code runs no more. */
  returned(): void {
    this.#trace?.returned();
  }

  /**
   * It is over; what is said after the first time is not heard.
   *
   * @param code `ok`, the failure's code, `requeued`, or `lost` when somebody else has ended it
   */
  ended(code: string, message: string, usage: Usage): void {
    if (this.#ended) return;
    this.#ended = true;
    const { times, model, gpuHost } = this.#measured();
    this.#metrics.ended({ job: this.#job, code, usage, times, model });
    this.#trace?.ended(code, message, usage, { model, gpuHost });
  }
}

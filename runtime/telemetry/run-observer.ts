import type { Meter, Tracer } from '@opentelemetry/api';
import type { InvocationJob } from '#scheduler/admission/job.ts';
import type { Usage } from '#scheduler/invocations/types.ts';
import type { Launched } from '../lifecycle/launch.ts';
import { RuntimeMetrics, type RuntimeState, type TokenTimes } from './metrics.ts';
import { type RunStart, RunTrace } from './run-trace.ts';
import type { StepTrace } from './step-trace.ts';

/** Instruments from `infra/telemetry`, which the entry point passes in. */
export interface Instruments {
  readonly meter: Meter;
  /** Undefined when traces are not recorded. */
  readonly tracer: Tracer | undefined;
}

/** Measurements of an inferlet. The names of its model and GPU host are empty when it used none. */
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

  /** Exports the runtime's own state as metrics. */
  watch(state: () => RuntimeState): void {
    this.#metrics.watch(this.#instruments.meter, state);
  }

  /** Starts the observation of a run. The caller must call `ended` of the result. */
  begin(job: InvocationJob, start: RunStart): ObservedRun {
    const { tracer } = this.#instruments;
    return new ObservedRun(job, start.clock, this.#metrics, tracer ? RunTrace.begin(tracer, job, start) : null);
  }
}

/** One run, from its beginning to its terminal event. */
export class ObservedRun {
  readonly #job: InvocationJob;
  readonly #clock: () => number;
  readonly #metrics: RuntimeMetrics;
  readonly #trace: RunTrace | null;
  #measured: () => Measured = () => NOTHING_MEASURED;
  #ended = false;

  constructor(job: InvocationJob, clock: () => number, metrics: RuntimeMetrics, trace: RunTrace | null) {
    this.#job = job;
    this.#clock = clock;
    this.#metrics = metrics;
    this.#trace = trace;
  }

  /** @param at time at which the instance was ready, milliseconds since the Unix epoch */
  launched(launched: Pick<Launched, 'coldStart' | 'timings'>, at: number): void {
    const { buildMs, compileMs, instantiateMs } = launched.timings;
    this.#metrics.launched(launched.coldStart, buildMs + compileMs + instantiateMs);
    this.#trace?.launched(launched, at);
  }

  /**
   * Called when the inferlet is about to begin. Returns the trace context of its work (the job's own when the trace is not recorded), and
   * the recorder of its steps, if they are recorded.
   */
  beginInferlet(measured: () => Measured): {
    readonly traceparent: string | undefined;
    readonly steps: StepTrace | undefined;
  } {
    this.#measured = measured;
    return this.#trace?.beginInferlet() ?? { traceparent: this.#job.traceparent, steps: undefined };
  }

  /** Called when the guest's code has ended. */
  returned(): void {
    this.#trace?.returned();
  }

  /**
   * Called when the run is over; calls after the first are ignored.
   *
   * @param code `ok`, the failure's code, `requeued`, `waiting` for a person, or `lost` when another process has ended the invocation
   * @param message message of a failure or a requeue, without secrets; traces contain it
   */
  ended(code: string, message: string, usage: Usage): void {
    if (this.#ended) return;
    this.#ended = true;
    const { times, model, gpuHost } = this.#measured();
    this.#metrics.ended({ job: this.#job, endedAt: this.#clock(), code, usage, times, model });
    this.#trace?.ended(code, message, usage, { model, gpuHost });
  }
}

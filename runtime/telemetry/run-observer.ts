import {
  type Attributes,
  type Context,
  type Counter,
  type Histogram,
  type Meter,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api';
import { remoteContext, traceparentOf } from '#infra/telemetry/trace-context.ts';
import type { InvocationJob } from '#scheduler/admission/job.ts';
import type { Usage } from '#scheduler/invocations/types.ts';
import type { Launched } from '../lifecycle/launch.ts';
import { StepTrace } from './step-trace.ts';

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

/** The start of a run, and its attempt number. */
export interface RunStart {
  /** Time of the start, by `clock`. */
  readonly startedAt: number;
  /** The platform's clock, milliseconds since the Unix epoch. */
  readonly clock: () => number;
  readonly attempt: number;
  readonly runtimeId: string;
}

/**
 * The spans of one run. `invocation` lasts from submission to the end. Its parent span is that of the request; for a child invocation, it is
 * the `inferlet` span of the parent invocation. Its child spans are `admission wait`, `instance` and `inferlet`.
 */
export class RunTrace {
  readonly #tracer: Tracer;
  readonly #invocation: Span;
  readonly #context: Context;
  readonly #startedMs: number;
  #inferlet: Span | undefined;
  #steps: StepTrace | undefined;

  private constructor(tracer: Tracer, invocation: Span, context: Context, startedMs: number) {
    this.#tracer = tracer;
    this.#invocation = invocation;
    this.#context = context;
    this.#startedMs = startedMs;
  }

  /** Null when the job's trace is not recorded. */
  static begin(
    tracer: Tracer,
    job: InvocationJob,
    { startedAt, clock, attempt, runtimeId }: RunStart,
  ): RunTrace | null {
    // Converts times to this machine's clock, which also times the other spans.
    const aheadMs = Date.now() - clock();
    const [submittedMs, startedMs] = [job.submittedAt + aheadMs, startedAt + aheadMs];
    const parent = remoteContext(job.traceparent);
    const attributes: Attributes = {
      'faas.invocation_id': job.id,
      'faas.name': job.function,
      'faas.version': job.version,
      'faas.instance': runtimeId,
      'faas.trigger': job.parent === undefined ? 'http' : 'other',
      'pie.tenant': job.tenant,
      'pie.attempt': attempt,
      ...(job.parent !== undefined && { 'pie.parent': job.parent }),
    };
    const options = { startTime: submittedMs, kind: SpanKind.CONSUMER, attributes };
    const span = tracer.startSpan('invocation', options, parent);
    if (!span.isRecording()) return null;
    const context = trace.setSpan(ROOT_CONTEXT, span);
    tracer.startSpan('admission wait', { startTime: submittedMs }, context).end(startedMs);
    return new RunTrace(tracer, span, context, startedMs);
  }

  /** Called when the instance is ready; `at` in milliseconds since the Unix epoch. */
  launched({ coldStart, timings }: Pick<Launched, 'coldStart' | 'timings'>, at: number): void {
    const attributes: Attributes = {
      'faas.coldstart': coldStart,
      'pie.instance.build_ms': timings.buildMs,
      'pie.instance.compile_ms': timings.compileMs,
      'pie.instance.instantiate_ms': timings.instantiateMs,
    };
    this.#invocation.setAttribute('faas.coldstart', coldStart);
    this.#tracer.startSpan('instance', { startTime: this.#startedMs, attributes }, this.#context).end(at);
  }

  /** Called when the inferlet is about to begin; returns the trace context of its work, and the recorder of its steps. */
  beginInferlet(): { readonly traceparent: string; readonly steps: StepTrace } {
    this.#inferlet = this.#tracer.startSpan('inferlet', {}, this.#context);
    this.#steps = new StepTrace(this.#tracer, trace.setSpan(ROOT_CONTEXT, this.#inferlet));
    return { traceparent: traceparentOf(this.#inferlet), steps: this.#steps };
  }

  /** Called when the guest's code has ended. */
  returned(): void {
    this.#steps?.close();
    const dropped = this.#steps?.dropped ?? 0;
    if (dropped > 0) this.#inferlet?.setAttribute('pie.steps.dropped', dropped);
    this.#inferlet?.end();
    this.#inferlet = undefined;
  }

  /** Called when the end of the run is written. */
  ended(code: string, message: string, usage: Usage, { model, gpuHost }: { model: string; gpuHost: string }): void {
    this.returned();
    const { inputTokens, outputTokens, cachedTokens, cpuMs, gpuMs, kvPagesPeak } = usage;
    this.#invocation.setAttributes({
      ...(model !== '' && { 'gen_ai.request.model': model, 'gen_ai.provider.name': 'pie' }),
      ...(gpuHost !== '' && { 'pie.gpu_host': gpuHost }),
      ...(inputTokens !== undefined && { 'gen_ai.usage.input_tokens': inputTokens }),
      ...(outputTokens !== undefined && { 'gen_ai.usage.output_tokens': outputTokens }),
      ...(cachedTokens !== undefined && { 'gen_ai.usage.cache_read.input_tokens': cachedTokens }),
      ...(cpuMs !== undefined && { 'pie.usage.cpu_ms': cpuMs }),
      ...(gpuMs !== undefined && { 'pie.usage.gpu_ms': gpuMs }),
      ...(kvPagesPeak !== undefined && { 'pie.usage.kv_pages_peak': kvPagesPeak }),
    });
    // An invocation that waits for a person goes on in another run.
    if (code !== 'ok' && code !== 'waiting') {
      this.#invocation.setAttribute('error.type', code);
      this.#invocation.setStatus({ code: SpanStatusCode.ERROR, message });
    }
    this.#invocation.end();
  }
}

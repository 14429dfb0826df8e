import {
  type Attributes,
  type Context,
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

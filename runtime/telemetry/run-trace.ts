import {
  type Attributes,
  type Context,
  ROOT_CONTEXT,
  type Span,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api';
import type { InvocationJob } from '#scheduler/admission/job.ts';
import type { Usage } from '#scheduler/invocations/types.ts';
import type { Launched } from '../lifecycle/launch.ts';
import { StepTrace } from './step-trace.ts';

/** When a run began, and which one of its invocation it is. */
export interface RunStart {
  /** Milliseconds since the Unix epoch. */
  readonly startedAt: number;
  readonly attempt: number;
  readonly runtimeId: string;
}

/**
 * The spans of one run: `invocation` from submission to the end, below the request (a child's below its parent's `inferlet`), and in it
 * `admission wait`, `instance` and `inferlet`.
 */
export class RunTrace {
  readonly #tracer: Tracer;
  readonly #invocation: Span;
  readonly #context: Context;
  readonly #startedAt: number;
  #inferlet: Span | undefined;
  #steps: StepTrace | undefined;

  private constructor(tracer: Tracer, invocation: Span, context: Context, startedAt: number) {
    this.#tracer = tracer;
    this.#invocation = invocation;
    this.#context = context;
    this.#startedAt = startedAt;
  }

  /** Null when nobody records the trace that the job is of. */
  static begin(tracer: Tracer, job: InvocationJob, { startedAt, attempt, runtimeId }: RunStart): RunTrace | null {
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
    const options = { startTime: job.submittedAt, kind: SpanKind.CONSUMER, attributes };
    const span = tracer.startSpan('invocation', options, parent);
    if (!span.isRecording()) return null;
    const context = trace.setSpan(ROOT_CONTEXT, span);
    tracer.startSpan('admission wait', { startTime: job.submittedAt }, context).end(startedAt);
    return new RunTrace(tracer, span, context, startedAt);
  }

  /** An instance is there since `at`, milliseconds since the Unix epoch. */
  launched({ coldStart, timings }: Pick<Launched, 'coldStart' | 'timings'>, at: number): void {
    const attributes: Attributes = {
      'faas.coldstart': coldStart,
      'pie.instance.build_ms': timings.buildMs,
      'pie.instance.compile_ms': timings.compileMs,
      'pie.instance.instantiate_ms': timings.instantiateMs,
    };
    this.#invocation.setAttribute('faas.coldstart', coldStart);
    this.#tracer.startSpan('instance', { startTime: this.#startedAt, attributes }, this.#context).end(at);
  }

  /** The inferlet is about to begin: the trace context of what it does, and where its steps go. */
  runs(): { readonly traceparent: string; readonly steps: StepTrace } {
    this.#inferlet = this.#tracer.startSpan('inferlet', {}, this.#context);
    this.#steps = new StepTrace(this.#tracer, trace.setSpan(ROOT_CONTEXT, this.#inferlet));
    return { traceparent: traceparentOf(this.#inferlet.spanContext()), steps: this.#steps };
  }

  /** Its code runs no more. */
  returned(): void {
    this.#steps?.close();
    const dropped = this.#steps?.dropped ?? 0;
    if (dropped > 0) this.#inferlet?.setAttribute('pie.steps.dropped', dropped);
    this.#inferlet?.end();
    this.#inferlet = undefined;
  }

  /** The end is written. */
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
    if (code !== 'ok') {
      this.#invocation.setAttribute('error.type', code);
      this.#invocation.setStatus({ code: SpanStatusCode.ERROR, message });
    }
    this.#invocation.end();
  }
}

const TRACEPARENT = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;

/** The context of a W3C `traceparent`; without one, or with one that is none, of a trace that begins here. */
function remoteContext(traceparent: string | undefined): Context {
  const [, traceId, spanId, flags] = TRACEPARENT.exec(traceparent ?? '') ?? [];
  if (traceId === undefined || spanId === undefined || flags === undefined) return ROOT_CONTEXT;
  const traceFlags = Number.parseInt(flags, 16) & 1;
  return trace.setSpanContext(ROOT_CONTEXT, { traceId, spanId, traceFlags, isRemote: true });
}

function traceparentOf({ traceId, spanId, traceFlags }: SpanContext): string {
  return `00-${traceId}-${spanId}-${(traceFlags & 1).toString().padStart(2, '0')}`;
}

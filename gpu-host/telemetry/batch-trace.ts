import { type Attributes, ROOT_CONTEXT, type Span, type SpanContext, type Tracer, trace } from '@opentelemetry/api';
import type { HostCall, ModelSpace } from '../handlers/calls/call.ts';
import type { Device } from '../protocol/host.ts';

/** One call of a batch, and its number of computed inputs. */
export interface BatchPart {
  readonly call: HostCall;
  readonly inputs: number;
}

/** A completed device step; times are of `performance.now`. */
export interface TracedStep {
  readonly startedMs: number;
  readonly endedMs: number;
  /** Share of the step's work that was padding, 0 to 1. */
  readonly padding: number;
}

/** Maximum spans of one inferlet on one model: batches and samplings. Later steps are not traced. */
export const MAX_SPANS = 1024;
/** Maximum links of a span to others of the same batch. */
export const MAX_LINKS = 16;

/**
 * Makes the spans of a model's batches. Each traced call of a batch gets a span of its own, a child of the span that its inferlet has set
 * (`HostCall.span`). The spans of one batch link to each other. An untraced call costs one field access.
 */
export class BatchTracer {
  readonly #tracer: Tracer;
  readonly #attributes: Attributes;
  readonly #spans = new WeakMap<ModelSpace, number>();
  /** Calls of which a part had several inputs. Their later parts also count as prefills, even with one input. */
  readonly #prefills = new WeakSet<HostCall>();

  constructor(tracer: Tracer, model: string, { name, index }: Pick<Device, 'name' | 'index'>) {
    this.#tracer = tracer;
    this.#attributes = {
      'gen_ai.request.model': model,
      'pie.device': name,
      ...(index !== undefined && { 'pie.device.index': index }),
    };
  }

  /** Records a computed batch. */
  recordStep(parts: readonly BatchPart[], { startedMs, endedMs, padding }: TracedStep): void {
    const tracedParts = parts.filter(({ call }) => call.span !== '');
    if (tracedParts.length === 0) return;
    const attributes: Attributes = {
      ...this.#attributes,
      'pie.batch.size': parts.length,
      'pie.batch.tokens': parts.reduce((sum, { inputs }) => sum + inputs, 0),
      'pie.batch.padding': padding,
    };
    const spans: Span[] = [];
    for (const { call, inputs } of tracedParts) {
      if (inputs > 1) this.#prefills.add(call);
      const name = this.#prefills.has(call) ? 'batch_prefill' : 'batch_decode';
      const callAttributes = { 'pie.call.tokens': inputs, 'pie.call.wait_ms': Math.max(0, startedMs - call.arrivedMs) };
      const span = this.#start(call, name, startedMs, { ...attributes, ...callAttributes });
      if (span) spans.push(span);
    }
    const links = spans.slice(0, MAX_LINKS + 1).map((span) => ({ context: span.spanContext() }));
    for (const span of spans) {
      const ownContext = span.spanContext();
      if (spans.length > 1) span.addLinks(links.filter(({ context }) => context !== ownContext).slice(0, MAX_LINKS));
      span.end(endedMs);
    }
  }

  /** Records the pick of a token from the call's distribution. */
  recordSample(call: HostCall, startedMs: number, endedMs: number): void {
    if (call.span === '') return;
    this.#start(call, 'sample', startedMs, this.#attributes)?.end(endedMs);
  }

  #start(call: HostCall, name: string, startTime: number, attributes: Attributes): Span | undefined {
    const { space } = call.hostQueue;
    const parent = parentOf(space.owner.traceparent, call.span);
    const spans = this.#spans.get(space) ?? 0;
    if (!parent || spans >= MAX_SPANS) return undefined;
    this.#spans.set(space, spans + 1);
    const truncation = spans + 1 === MAX_SPANS ? { 'pie.spans.truncated': true } : {};
    const context = trace.setSpanContext(ROOT_CONTEXT, parent);
    return this.#tracer.startSpan(name, { startTime, attributes: { ...attributes, ...truncation } }, context);
  }
}

/** The context of span `spanId` in the trace that the inferlet was opened with; undefined without a readable trace or a span. */
function parentOf(traceparent: string | undefined, spanId: string | undefined): SpanContext | undefined {
  const traceId = /^00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}$/.exec(traceparent ?? '')?.[1];
  if (traceId === undefined || spanId === undefined) return undefined;
  return { traceId, spanId, traceFlags: 1, isRemote: true };
}

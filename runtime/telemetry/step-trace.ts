import { type Context, type Span, SpanStatusCode, type Tracer, trace } from '@opentelemetry/api';
import type { DeviceClient } from '#gpu-host/protocol/client.ts';
import type { Outcome } from '#gpu-host/protocol/errors.ts';

/** Maximum steps of one invocation that get spans; later steps are only counted. */
export const MAX_STEPS = 256;

/** The queue that a step is issued on. */
export interface StepQueue {
  readonly name: string;
  readonly device: Pick<DeviceClient, 'setSpan'> | null;
}

/** A step under way. */
export interface Step {
  /** Ends the step's span when its result arrives; returns the same promise. */
  until<T>(result: Promise<Outcome<T>>): Promise<Outcome<T>>;
  /** Counts tokens of a `fused` run on the device, which is one step however many tokens it decodes. */
  took(tokens: number): void;
  /** Ends the span, if it has not ended. */
  end(): void;
}

interface Generate {
  readonly span: Span;
  readonly context: Context;
  tokens: number;
  /** Number of steps that have not ended. */
  open: number;
  /** End of the last ended step, milliseconds since the Unix epoch. */
  lastMs: number;
}

interface QueueState {
  generate: Generate | undefined;
  /** An open step of {@link StepTrace.forward}; the next answer or step of its queue ends it. */
  forward: OpenStep | undefined;
}

/**
 * Makes spans from one inferlet's calls on models. Several inputs, or inputs without an output, are a `fill`. One input with an output is a
 * `forward` within a `generate`, which lasts until its queue does something else. The GPU host gets the span of the calls that follow, so
 * that its batches become child spans. Only an invocation whose trace is recorded has a `StepTrace`.
 */
export class StepTrace {
  readonly #tracer: Tracer;
  readonly #inferletContext: Context;
  readonly #queues = new Map<StepQueue, QueueState>();
  readonly #open = new Set<OpenStep>();
  /** Devices that were told that no span follows. */
  readonly #silenced = new WeakSet<object>();
  #steps = 0;
  #dropped = 0;

  /** @param inferlet context of the parent span of all steps */
  constructor(tracer: Tracer, inferlet: Context) {
    this.#tracer = tracer;
    this.#inferletContext = inferlet;
  }

  /** Number of steps without a span. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Starts a step before it is issued. @param hasOutput true when the step has an output for its last input */
  begin(queue: StepQueue, inputs: number, hasOutput: boolean): Step | undefined {
    const { device } = queue;
    if (!device) return undefined;
    const state = this.#state(queue);
    this.#settle(state);
    if (this.#steps >= MAX_STEPS) {
      this.#dropped++;
      if (!this.#silenced.has(device)) device.setSpan(0, 0);
      this.#silenced.add(device);
      endGenerate(state);
      return undefined;
    }
    this.#steps++;
    const isDecode = inputs === 1 && hasOutput;
    if (!isDecode) endGenerate(state);
    else state.generate ??= this.#generate(queue);
    const { generate } = state;
    const span = generate
      ? this.#tracer.startSpan('forward', { attributes: { 'pie.tokens': 1 } }, generate.context)
      : this.#tracer.startSpan(
          'fill',
          { attributes: { 'gen_ai.request.model': queue.name, 'pie.tokens': inputs } },
          this.#inferletContext,
        );
    sendSpanId(device, span.spanContext().spanId);
    const step = new OpenStep(span, generate, this.#open);
    this.#open.add(step);
    return step;
  }

  /** Like `begin`, for a call without an answer: the step ends with the next answer or step of its queue. */
  forward(queue: StepQueue, inputs: number, hasOutput: boolean): void {
    const step = this.begin(queue, inputs, hasOutput);
    if (step instanceof OpenStep) this.#state(queue).forward = step;
  }

  /** Adds a `sample` span below the open forward. The answer ends both. */
  sample<T>(queue: StepQueue, answer: Promise<Outcome<T>>): Promise<Outcome<T>> {
    const state = this.#queues.get(queue);
    const forward = state?.forward;
    if (!state || !forward) return answer;
    const span = this.#tracer.startSpan('sample', {}, trace.setSpan(this.#inferletContext, forward.span));
    return answer.finally(() => {
      span.end();
      if (state.forward === forward) this.#settle(state);
    });
  }

  /** Ends the queue's open forward when `answer` settles: the answer comes after those of all earlier calls of the queue. */
  answered<T>(queue: StepQueue, answer: Promise<T>): Promise<T> {
    const state = this.#queues.get(queue);
    return state ? answer.finally(() => this.#settle(state)) : answer;
  }

  /** Ends all open spans: the inferlet has ended. */
  close(): void {
    for (const step of this.#open) step.end();
    for (const state of this.#queues.values()) {
      this.#settle(state);
      endGenerate(state);
    }
    this.#queues.clear();
  }

  #state(queue: StepQueue): QueueState {
    let state = this.#queues.get(queue);
    if (!state) {
      state = { generate: undefined, forward: undefined };
      // A queue without spans needs no state at `close`.
      if (this.#steps < MAX_STEPS) this.#queues.set(queue, state);
    }
    return state;
  }

  #settle(state: QueueState): void {
    state.forward?.end();
    state.forward = undefined;
  }

  #generate(queue: StepQueue): Generate {
    const attributes = { 'gen_ai.operation.name': 'text_completion', 'gen_ai.request.model': queue.name };
    const span = this.#tracer.startSpan('generate', { attributes }, this.#inferletContext);
    return { span, context: trace.setSpan(this.#inferletContext, span), tokens: 0, open: 0, lastMs: Date.now() };
  }
}

class OpenStep implements Step {
  readonly span: Span;
  readonly #generate: Generate | undefined;
  readonly #open: Set<OpenStep>;
  #ended = false;
  #tokens: number | undefined;

  /** @param open the steps that have not ended; this step removes itself when it ends */
  constructor(span: Span, generate: Generate | undefined, open: Set<OpenStep>) {
    this.span = span;
    this.#generate = generate;
    this.#open = open;
    if (generate) generate.open++;
  }

  until<T>(result: Promise<Outcome<T>>): Promise<Outcome<T>> {
    return result.then((outcome) => {
      if (outcome.tag === 'err') this.span.setStatus({ code: SpanStatusCode.ERROR, message: outcome.val.tag });
      this.end();
      return outcome;
    });
  }

  took(tokens: number): void {
    this.#tokens = (this.#tokens ?? 0) + tokens;
  }

  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#open.delete(this);
    if (this.#tokens !== undefined) this.span.setAttribute('pie.tokens', this.#tokens);
    this.span.end();
    const generate = this.#generate;
    if (!generate) return;
    generate.open--;
    generate.tokens += this.#tokens ?? 1;
    generate.lastMs = Date.now();
  }
}

/** Ends a `generate` span at the end of its last step, however long ago that was. */
function endGenerate(state: QueueState): void {
  const { generate } = state;
  if (!generate) return;
  state.generate = undefined;
  generate.span.setAttribute('gen_ai.usage.output_tokens', generate.tokens);
  generate.span.end(generate.open > 0 ? Date.now() : generate.lastMs);
}

/** Sends a span's id to the GPU host, as two 32-bit words. */
function sendSpanId(device: Pick<DeviceClient, 'setSpan'>, spanId: string): void {
  device.setSpan(Number.parseInt(spanId.slice(0, 8), 16), Number.parseInt(spanId.slice(8), 16));
}

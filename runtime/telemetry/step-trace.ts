import { type Context, type Span, SpanStatusCode, type Tracer, trace } from '@opentelemetry/api';
import type { GpuInferlet } from '#gpu-host/protocol/client.ts';
import type { Outcome } from '#gpu-host/protocol/errors.ts';

/** Steps of one invocation that get spans; those past them run untraced, and are counted. */
export const MAX_STEPS = 256;

/** The queue that a step is issued on. */
export interface StepQueue {
  readonly name: string;
  readonly device: Pick<GpuInferlet, 'setSpan'> | null;
}

/** A step under way. */
export interface Step {
  /** Ends the step's span when its result is there; returns the result as it is. */
  until<T>(result: Promise<Outcome<T>>): Promise<Outcome<T>>;
  /** Tokens came of a run, which is one step however long it goes on. */
  took(tokens: number): void;
  /** Ends the span, if it has not ended. */
  end(): void;
}

interface Generate {
  readonly span: Span;
  readonly context: Context;
  tokens: number;
  /** Steps that have not ended. */
  open: number;
  /** When the last of its steps ended, milliseconds since the Unix epoch. */
  lastMs: number;
}

interface QueueState {
  generate: Generate | undefined;
  /** A forward whose end shows in the next answer of its queue. */
  forward: OpenStep | undefined;
}

/**
 * Spans of what one inferlet has a model do, made out of its calls. Several inputs, or inputs of which nothing is picked, are a `fill`. One
 * input of which something is picked is a `forward` of a `generate`, which goes on until its queue does something else. The GPU host is told
 * whose calls follow, so that its batches become spans below. There is one of these only for an invocation whose trace is recorded.
 */
export class StepTrace {
  readonly #tracer: Tracer;
  readonly #inferlet: Context;
  readonly #queues = new Map<StepQueue, QueueState>();
  readonly #open = new Set<OpenStep>();
  /** Hosts that were told that no span follows. */
  readonly #silenced = new WeakSet<object>();
  #steps = 0;
  #dropped = 0;

  /** @param inferlet context of the span that all this is below */
  constructor(tracer: Tracer, inferlet: Context) {
    this.#tracer = tracer;
    this.#inferlet = inferlet;
  }

  /** Steps that got no span. */
  get dropped(): number {
    return this.#dropped;
  }

  /** A step is about to be issued: of so many inputs, and with something picked of the last or not. */
  begin(queue: StepQueue, inputs: number, picks: boolean): Step | undefined {
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
    const decodes = inputs === 1 && picks;
    if (!decodes) endGenerate(state);
    else state.generate ??= this.#generate(queue);
    const { generate } = state;
    const span = generate
      ? this.#tracer.startSpan('forward', { attributes: { 'pie.tokens': 1 } }, generate.context)
      : this.#tracer.startSpan(
          'fill',
          { attributes: { 'gen_ai.request.model': queue.name, 'pie.tokens': inputs } },
          this.#inferlet,
        );
    tell(device, span.spanContext().spanId);
    const step = new OpenStep(span, generate, this.#open);
    this.#open.add(step);
    return step;
  }

  /** As `begin`, of a call that has no answer of its own: it ends with the next answer of its queue, or step. */
  forward(queue: StepQueue, inputs: number, picks: boolean): void {
    const step = this.begin(queue, inputs, picks);
    if (step instanceof OpenStep) this.#state(queue).forward = step;
  }

  /** What follows the state of a forward was asked for: a `sample` below it. Ends both when the answer is there. */
  sample<T>(queue: StepQueue, answer: Promise<Outcome<T>>): Promise<Outcome<T>> {
    const state = this.#queues.get(queue);
    const forward = state?.forward;
    if (!state || !forward) return answer;
    const span = this.#tracer.startSpan('sample', {}, trace.setSpan(this.#inferlet, forward.span));
    return answer.finally(() => {
      span.end();
      if (state.forward === forward) this.#settle(state);
    });
  }

  /** An answer of the queue that comes after all earlier calls. */
  answered<T>(queue: StepQueue, answer: Promise<T>): Promise<T> {
    const state = this.#queues.get(queue);
    return state ? answer.finally(() => this.#settle(state)) : answer;
  }

  /** The inferlet has ended: so has all that is open. */
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
      // One that made no span needs no end.
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
    const span = this.#tracer.startSpan('generate', { attributes }, this.#inferlet);
    return { span, context: trace.setSpan(this.#inferlet, span), tokens: 0, open: 0, lastMs: Date.now() };
  }
}

class OpenStep implements Step {
  readonly span: Span;
  readonly #generate: Generate | undefined;
  readonly #open: Set<OpenStep>;
  #ended = false;
  #tokens: number | undefined;

  /** @param open the steps that have not ended: it leaves them when it ends */
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

/** It ends with its last step, however long ago that was. */
function endGenerate(state: QueueState): void {
  const { generate } = state;
  if (!generate) return;
  state.generate = undefined;
  generate.span.setAttribute('gen_ai.usage.output_tokens', generate.tokens);
  generate.span.end(generate.open > 0 ? Date.now() : generate.lastMs);
}

/** The host gets a span's id as two words. */
function tell(device: Pick<GpuInferlet, 'setSpan'>, spanId: string): void {
  device.setSpan(Number.parseInt(spanId.slice(0, 8), 16), Number.parseInt(spanId.slice(8), 16));
}

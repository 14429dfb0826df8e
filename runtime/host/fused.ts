import type {
  StepResult as DeviceStepResult,
  RunRequest as WireRunRequest,
  StepRequest as WireStepRequest,
} from '#gpu-host/protocol/calls.ts';
import type { RunHandle } from '#gpu-host/protocol/client.ts';
import { err, type HandlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import type { RunChunk, StepResult } from '#wit/generated/host.ts';
import type { Step } from '../telemetry/step-trace.ts';
import type { Inferlet } from './inferlet.ts';
import type { DeviceQueue } from './queue.ts';

/** The host's side of a `run` resource. */
export class DeviceRun {
  readonly #handle: RunHandle | null;
  readonly #refusal: Outcome<RunChunk> | null;
  readonly #inferlet: Inferlet;
  readonly #queue: DeviceQueue;
  readonly #step: Step | undefined;
  /** Whether a quota ends it before its own limit. */
  readonly #capped: boolean;
  #dropped = false;

  constructor(inferlet: Inferlet, queue: DeviceQueue, request: WireRunRequest) {
    this.#inferlet = inferlet;
    this.#queue = queue;
    queue.retain();
    // Each token that comes out went in before: a run for which the quota has no room is as long as it has.
    const refused: HandlerError | null = inferlet.refuseTokens(2);
    const most = Math.floor(inferlet.tokens.quotaLeft / 2);
    this.#capped = request.maxTokens > most;
    this.#refusal = refused ? err(refused) : queue.device ? null : queue.refusal();
    this.#step = this.#refusal ? undefined : inferlet.hooks.steps?.begin(queue, 1, true);
    this.#handle =
      this.#refusal || !queue.device
        ? null
        : queue.device.run(queue.id, this.#capped ? { ...request, maxTokens: most } : request);
  }

  next(): Promise<Outcome<RunChunk>> {
    const next = this.#handle?.next();
    if (!next) return Promise.resolve(this.#refusal as Outcome<RunChunk>);
    return next.then((outcome) => {
      if (outcome.tag === 'ok') {
        const tokens = outcome.val.tokens.length;
        // Each token that comes out went in before the next.
        this.#inferlet.count(tokens, tokens);
        const atCap = this.#capped && outcome.val.finished === 'max-tokens';
        if (this.#inferlet.refuseTokens(atCap ? 2 : 0)) this.stop();
        this.#step?.took(tokens);
        if (outcome.val.finished === undefined) return outcome;
      }
      this.#step?.end();
      return outcome;
    });
  }

  stop(): void {
    this.#handle?.stop();
  }

  /** Its queue may close now, if the inferlet has dropped it. */
  drop(): void {
    if (this.#dropped) return;
    this.#dropped = true;
    this.#step?.end();
    this.stop();
    this.#queue.release();
  }
}

/** Tokens of a step: those that go in, and those that come out. */
export function tokensOf({ tokens, output, rows }: WireStepRequest): {
  readonly inputs: number;
  readonly outputs: number;
} {
  return { inputs: tokens.length, outputs: output.tag === 'none' ? 0 : rows };
}

/** A fused step's result; its tokens, and what the prefix cache had of them, count as the inferlet's. */
export function counted(
  inferlet: Inferlet,
  { inputs, outputs }: { readonly inputs: number; readonly outputs: number },
  result: Promise<Outcome<DeviceStepResult>>,
  step?: Step,
): Promise<Outcome<StepResult>> {
  if (step) void step.until(result);
  const answer = inferlet.countDuring(inputs, outputs, result);
  // The steps of a decode have nothing to find.
  if (inputs === 1) return answer;
  return answer.then((outcome) => {
    if (outcome.tag === 'ok') inferlet.countCached(outcome.val.cachedTokens);
    return outcome;
  });
}

/** `wit/fused.wit`. */
export const fused = {
  '[constructor]run': (inferlet: Inferlet, queue: DeviceQueue, request: WireRunRequest) =>
    new DeviceRun(inferlet, queue, request),
  '[method]run.next': (_inferlet: Inferlet, self: DeviceRun) => self.next(),
  '[method]run.stop': (_inferlet: Inferlet, self: DeviceRun): void => self.stop(),
  '[resource-drop]run': (_inferlet: Inferlet, self: DeviceRun): void => self.drop(),

  step: (inferlet: Inferlet, queue: DeviceQueue, request: WireStepRequest): Promise<Outcome<StepResult>> => {
    const tokens = tokensOf(request);
    const refused = inferlet.refuseTokens(tokens.inputs + tokens.outputs);
    if (refused) return Promise.resolve(err(refused));
    if (!queue.device) return Promise.resolve(queue.refusal());
    const step = inferlet.hooks.steps?.begin(queue, request.tokens.length, request.output.tag !== 'none');
    return counted(inferlet, tokens, queue.device.step(queue.id, request), step);
  },
};

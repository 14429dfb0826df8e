import type {
  StepResult as DeviceStepResult,
  RunRequest as WireRunRequest,
  StepRequest as WireStepRequest,
} from '#gpu-host/protocol/calls.ts';
import type { RunHandle } from '#gpu-host/protocol/client.ts';
import { err, type HandlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import type { RunChunk, StepResult } from '#wit/generated/host.ts';
import type { Inferlet } from './inferlet.ts';
import type { DeviceQueue } from './queue.ts';

/** The host's side of a `run` resource. */
export class DeviceRun {
  readonly #handle: RunHandle | null;
  readonly #refusal: Outcome<RunChunk> | null;
  readonly #inferlet: Inferlet;
  readonly #queue: DeviceQueue;
  #dropped = false;

  constructor(inferlet: Inferlet, queue: DeviceQueue, request: WireRunRequest) {
    this.#inferlet = inferlet;
    this.#queue = queue;
    queue.retain();
    const refused: HandlerError | null = inferlet.refuseTokens();
    this.#refusal = refused ? err(refused) : queue.device ? null : queue.refusal();
    this.#handle = this.#refusal || !queue.device ? null : queue.device.run(queue.id, request);
  }

  next(): Promise<Outcome<RunChunk>> {
    const next = this.#handle?.next();
    if (!next) return Promise.resolve(this.#refusal as Outcome<RunChunk>);
    return next.then((outcome) => {
      if (outcome.tag === 'ok') {
        const tokens = outcome.val.tokens.length;
        // Each token that comes out went in before the next.
        this.#inferlet.count(tokens, tokens);
        if (this.#inferlet.refuseTokens()) this.stop();
      }
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
    this.stop();
    this.#queue.release();
  }
}

/** A fused step's result; what the prefix cache had of its `inputs` counts as the inferlet's. */
export function counted(
  inferlet: Inferlet,
  inputs: number,
  result: Promise<Outcome<DeviceStepResult>>,
): Promise<Outcome<StepResult>> {
  // The steps of a decode have nothing to find.
  if (inputs === 1) return result;
  return result.then((outcome) => {
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
    const refused = inferlet.refuseTokens();
    if (refused) return Promise.resolve(err(refused));
    inferlet.count(request.tokens.length, request.output.tag === 'none' ? 0 : request.rows);
    if (!queue.device) return Promise.resolve(queue.refusal());
    return counted(inferlet, request.tokens.length, queue.device.step(queue.id, request));
  },
};

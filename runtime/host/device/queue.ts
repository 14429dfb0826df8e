import type { DeviceClient } from '#gpu-host/protocol/client.ts';
import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { type AskedOperation, OPERATIONS, type SentOperation } from '#gpu-host/protocol/operations.ts';
import { type QueueCall, queueCalls } from '#wit/generated/queue-calls.ts';
import type { HostTable } from '../../lowering/compile.ts';
import type { Inferlet } from '../session/inferlet.ts';
import { type GrantedModel, offers } from './granted.ts';

/** Maximum characters of an unknown model's name in an error. */
const MAX_SHOWN_NAME = 128;

/** The host's side of a `queue` resource. */
export class DeviceQueue {
  readonly model: GrantedModel | null;
  readonly device: DeviceClient | null;
  readonly id: number;
  readonly name: string;
  /** Number of holders: the inferlet's handle, and resources that use the queue for longer than one call. */
  #holders = 1;
  /** The error that the inferlet's next `synchronize` reports: `settle` took it from the device, or a call that was not sent left it. */
  #failure: HandlerError | null = null;

  constructor(inferlet: Inferlet, name: string) {
    this.model = inferlet.description.models.get(name) ?? null;
    // An unknown name may have many MiB. A slice would keep all of them in memory; this copy does not.
    this.name = this.model ? name : Buffer.from(name.slice(0, MAX_SHOWN_NAME)).toString();
    if (this.model && inferlet.model === '') inferlet.model = name;
    this.device = this.model ? inferlet.device(this.model.connection) : null;
    this.id = this.device ? this.device.createQueue(name) : 0;
  }

  /** Keeps the queue open after the inferlet has dropped it, until `release`. */
  retain(): void {
    this.#holders++;
  }

  release(): void {
    if (--this.#holders === 0) this.device?.closeQueue(this.id);
  }

  /** The error of a call on a queue without a model. */
  refusal<T>(): Outcome<T> {
    return err(handlerError('not-found', `this function was granted no model named ${this.name}; ask runtime.models`));
  }

  /** The device, when the queue's model offers `trait`; an error otherwise. */
  offering(trait: string): Outcome<DeviceClient> {
    if (!this.model || !this.device) return this.refusal();
    if (offers(this.model, trait)) return ok(this.device);
    return err(handlerError('unsupported', `${this.name} does not offer ${trait}; ask runtime.model-traits`));
  }

  /** Keeps the error of a call without a result that was not sent. The slots that the call would have written keep their content. */
  fail(error: HandlerError): void {
    this.#failure ??= error;
  }

  /** `synchronize` for the inferlet: returns the first error since the last `synchronize`. */
  async synchronize(): Promise<Outcome<undefined>> {
    if (!this.device) return this.refusal();
    const failure = this.#failure;
    this.#failure = null;
    const outcome = await this.device.synchronize(this.id);
    return failure ? err(failure) : outcome;
  }

  /** Completes after all earlier calls, like `synchronize`, but keeps the error for the inferlet's next `synchronize`. */
  async settle(): Promise<Outcome<undefined>> {
    if (!this.device) return this.refusal();
    const outcome = await this.device.synchronize(this.id);
    if (outcome.tag === 'err') this.#failure ??= outcome.val;
    return outcome;
  }
}

/** Implements `wit/queue.wit`. */
export const queue = {
  '[constructor]queue': (inferlet: Inferlet, model: string) => new DeviceQueue(inferlet, model),
  '[method]queue.set-priority': (_inferlet: Inferlet, { device, id }: DeviceQueue, priority: number): void =>
    device?.send(id, { op: 'set-priority', priority }),
  '[method]queue.set-depth': (_inferlet: Inferlet, { device, id }: DeviceQueue, depth: number): void =>
    device?.send(id, { op: 'set-depth', depth }),
  '[method]queue.stop': (_inferlet: Inferlet, { device, id }: DeviceQueue): void =>
    device?.send(id, { op: 'stop-queue' }),
  '[method]queue.synchronize': (inferlet: Inferlet, self: DeviceQueue): Promise<Outcome<undefined>> => {
    const { steps } = inferlet.hooks;
    return steps ? steps.answered(self, self.synchronize()) : self.synchronize();
  },
  '[resource-drop]queue': (_inferlet: Inferlet, self: DeviceQueue): void => self.release(),
};

type Asked = Extract<QueueCall, { op: AskedOperation['op'] }>;
type Sent = Extract<QueueCall, { op: SentOperation['op'] }>;

/** How each operation is called: `asked` for a result, `sent` without one; any other way needs a function of its own. */
const ways = new Map<string, string>(Object.entries(OPERATIONS).map(([name, { way }]) => [name, way]));

const functions: HostTable = queueCalls((queue: DeviceQueue, call) => {
  const { device, id } = queue;
  if (ways.get(call.op) === 'sent') return device?.send(id, call as Sent);
  return device ? device.ask(id, call as Asked) : Promise.resolve(queue.refusal());
});

/** The functions of the contract whose calls go to the queue's device unchanged, by interface. */
export const passed: HostTable = Object.fromEntries(
  Object.entries(functions).map(([name, members]) => [name, pick(members)]),
);

/** The functions whose calls are only asked or sent. */
function pick(members: HostTable[string]): HostTable[string] {
  return Object.fromEntries(
    Object.entries(members).filter(([name]) => ways.get(name) === 'asked' || ways.get(name) === 'sent'),
  );
}

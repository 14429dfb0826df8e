import type { GpuInferlet } from '#gpu-host/protocol/client.ts';
import { err, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import type { GrantedModel, Inferlet } from './inferlet.ts';

/** The host's side of a `queue` resource. */
export class DeviceQueue {
  readonly model: GrantedModel | null;
  readonly device: GpuInferlet | null;
  readonly id: number;
  readonly name: string;

  constructor(inferlet: Inferlet, name: string) {
    this.name = name;
    this.model = inferlet.description.models.get(name) ?? null;
    this.device = this.model ? inferlet.device(this.model.connection) : null;
    this.id = this.device ? this.device.createQueue(name) : 0;
  }

  /** What a call that has an answer says on a queue without a model. */
  refusal<T>(): Outcome<T> {
    return err(handlerError('not-found', `this function was granted no model named ${this.name}; ask runtime.models`));
  }
}

/** `wit/queue.wit`. */
export const queue = {
  '[constructor]queue': (inferlet: Inferlet, model: string) => new DeviceQueue(inferlet, model),
  '[method]queue.set-priority': (_inferlet: Inferlet, { device, id }: DeviceQueue, priority: number): void =>
    device?.setPriority(id, priority),
  '[method]queue.synchronize': (_inferlet: Inferlet, self: DeviceQueue): Promise<Outcome<undefined>> =>
    self.device ? self.device.synchronize(self.id) : Promise.resolve(self.refusal<undefined>()),
  '[resource-drop]queue': (_inferlet: Inferlet, { device, id }: DeviceQueue): void => device?.closeQueue(id),
};

import type { DeviceClient, DeviceUsage, GpuHostConnection } from '#gpu-host/protocol/client.ts';
import type { InferletOptions } from '#gpu-host/protocol/issuer.ts';

/** An inferlet's queue of calls on one GPU host. */
export interface Side {
  readonly device: DeviceClient;
  readonly queue: number;
}

/** An inferlet's queue on a GPU host that it does not run on. */
export interface OtherSide extends Side {
  readonly connection: GpuHostConnection;
}

/** Usage without encoded tokens: an inferlet calls encoders only on its own hosts. */
type Usage = Omit<DeviceUsage, 'encodedTokens'>;

interface OpenHost {
  readonly device: DeviceClient;
  /** Queues by model. */
  readonly queues: Map<string, number>;
}

/** One inferlet's queues on GPU hosts that it does not run on, for names that those hosts own. The loss of a host costs only the locks there. */
export class OtherHosts {
  readonly #options: () => InferletOptions;
  readonly #open = new Map<GpuHostConnection, OpenHost>();
  /** Replaced devices whose hosts have not reported their last usage yet. */
  readonly #ending = new Set<DeviceClient>();
  /** Usage of devices that have ended. */
  #past: Usage = { gpuUs: 0, pageMs: 0 };
  #isClosed = false;

  constructor(options: () => InferletOptions) {
    this.#options = options;
  }

  /** Usage by the last reports of all hosts. */
  get usage(): Usage {
    let { gpuUs, pageMs } = this.#past;
    for (const { usage } of [...[...this.#open.values()].map(({ device }) => device), ...this.#ending]) {
      gpuUs += usage.gpuUs;
      pageMs += usage.pageMs;
    }
    return { gpuUs, pageMs };
  }

  /** The inferlet's queue for a model on a host. Opens the host at first use, and again after its loss. */
  at(connection: GpuHostConnection, model: string): OtherSide {
    const known = this.#open.get(connection);
    const open = known && known.device.lost === undefined ? known : this.#reopen(connection);
    const queue = open.queues.get(model) ?? open.device.createQueue(model);
    open.queues.set(model, queue);
    return { device: open.device, queue, connection };
  }

  /** Ends what is open at a host: its pending calls, its locks, and pages on their way. */
  drop(connection: GpuHostConnection): void {
    const known = this.#open.get(connection);
    if (!known) return;
    this.#open.delete(connection);
    void this.#end(known.device);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    const devices = [...[...this.#open.values()].map(({ device }) => device), ...this.#ending];
    await Promise.all(devices.map((device) => device.close()));
  }

  /** Closes the device at a host, and adds the usage that the host then reports to the past usage. */
  async #end(device: DeviceClient): Promise<void> {
    this.#ending.add(device);
    await device.close();
    this.#ending.delete(device);
    const { gpuUs, pageMs } = device.usage;
    this.#past = { gpuUs: this.#past.gpuUs + gpuUs, pageMs: this.#past.pageMs + pageMs };
  }

  #reopen(connection: GpuHostConnection): OpenHost {
    this.drop(connection);
    const open: OpenHost = { device: connection.openInferlet(this.#options()), queues: new Map() };
    this.#open.set(connection, open);
    if (this.#isClosed) void open.device.close();
    return open;
  }
}

/** Longest sleep, ms, of a model's engine that waits for the end of another model's step. The end of the step, or a frame, wakes it earlier. */
export const LONGEST_USE_MS = 1000;

/**
 * Maximum inputs of a small step, which a backend on the CPU computes quickly unless the model is large. A larger step may block the thread of the
 * process for seconds, and the host answers no runtime meanwhile.
 */
const QUICK_INPUTS = 16;
/** Maximum duration of a quick step: far less than the time after which runtimes take a silent host for lost. */
const QUICK_MS = 500;
/** Factor by which each small step lowers the recorded duration of the slowest one: one slow step is forgotten after a few dozen others. */
const SLOWEST_STEP_DECAY = 0.9;

/** One model's access to the device that it shares with other models. */
export interface DeviceTurns {
  /** True while another model uses the device or has the next turn. Ask again after a turn of the event loop, or when `isUsed` becomes false. */
  mustWait(): boolean;
  /** True while another model's step is on the device. At the end of that step, `DeviceShare` wakes the `pause` that was given to `join`. */
  isUsed(): boolean;
  /** True when another model uses the device, or has done so or asked for it since this model's last step. */
  isContended(): boolean;
  /** Notes that a step of this many inputs begins. A batch of several steps calls this for each, so that each is charged when it ends. */
  begin(inputs: number): void;
  /** Notes that the step has ended, and took the device for `ms`. */
  end(ms: number): void;
}

/** The calls of one model. */
export interface TenantsAtWork {
  /** Tenants whose calls are on the device or ready for it; a tenant may come more than once. */
  tenants(): Iterable<string>;
}

/** A model among the models of one device. */
interface Participant {
  readonly calls: TenantsAtWork;
  /** Is woken when another model's step has ended, or when another model wants the device. */
  readonly pause: { wake(): void };
  /** True when the model had to wait when it last asked. */
  waits: boolean;
  /** Virtual time at which the model's last step ended, ms: each step takes its duration divided by the model's weight. */
  endMs: number;
  /** Weight of the step on the device; 0 between steps. */
  weight: number;
  /** Duration of the slowest recent small step, ms; undefined before the first one, which may take long. */
  slowestMs: number | undefined;
  /** Counts the model's signs of work: ended steps, and requests that had to wait. A new number tells another model that this one is at work. */
  signs: number;
  /** The number of signs of each other model when this model last asked. */
  readonly signsSeen: Map<Participant, number>;
}

/**
 * Divides the time of one device among its models, in proportion to the number of tenants that want each. Without this division, a model with
 * long steps slows the others down to its own pace. The method is start-time fair queueing (Goyal et al., SIGCOMM '96), with device time in
 * place of the length of packets: the model whose next step has the smallest virtual start time goes first.
 *
 * A tenant that wants several models splits its weight of 1 among them, so that it gains nothing by using more. A model waits only for models that
 * use the device or ask for it, so the device never idles for the sake of a share.
 */
export class DeviceShare {
  readonly #participants = new Set<Participant>();
  /** Virtual time at which the last step began. */
  #nowMs = 0;
  readonly #onLongStep: () => void;
  #isLong = false;

  /** @param onLongStep called when a step begins that may take seconds on the CPU */
  constructor(onLongStep: () => void = () => undefined) {
    this.#onLongStep = onLongStep;
  }

  /** True while a step is on the device that may take seconds on the CPU. */
  get isLong(): boolean {
    return this.#isLong;
  }

  /**
   * Adds a model.
   * @param pause in which the model waits for the end of other models' steps
   */
  join(calls: TenantsAtWork, pause: { wake(): void } = { wake: () => undefined }): DeviceTurns {
    let startMs = 0;
    let isSmall = false;
    /** Number of signs of each other model when this model's last step ended. */
    const signsAtEnd = new Map<Participant, number>();
    const participant: Participant = {
      calls,
      pause,
      waits: false,
      endMs: 0,
      weight: 0,
      signs: 0,
      signsSeen: new Map(),
      slowestMs: undefined,
    };
    this.#participants.add(participant);
    return {
      mustWait: () => this.#mustWait(participant),
      isUsed: () => this.#others(participant).some(({ weight }) => weight > 0),
      isContended: () =>
        this.#others(participant).some((other) => other.weight > 0 || other.signs !== signsAtEnd.get(other)),
      begin: (inputs) => {
        startMs = this.#start(participant);
        this.#nowMs = startMs;
        participant.weight = this.#weight(participant);
        isSmall = inputs <= QUICK_INPUTS;
        this.#isLong = !isSmall || (participant.slowestMs ?? Number.POSITIVE_INFINITY) > QUICK_MS;
        if (this.#isLong) this.#onLongStep();
      },
      end: (ms) => {
        if (isSmall) participant.slowestMs = Math.max(ms, (participant.slowestMs ?? 0) * SLOWEST_STEP_DECAY);
        participant.endMs = startMs + ms / participant.weight;
        participant.weight = 0;
        this.#isLong = false;
        participant.signs++;
        for (const other of this.#others(participant)) {
          signsAtEnd.set(other, other.signs);
          // A model that waits for the end of this step counts as at work until it asks again, unless its calls have ended meanwhile.
          other.waits &&= wants(other);
          if (other.waits) other.signs++;
        }
        for (const other of this.#others(participant)) other.pause.wake();
      },
    };
  }

  #mustWait(me: Participant): boolean {
    let waits = false;
    for (const other of this.#others(me)) {
      const isAtWork = other.weight > 0 || other.signs !== me.signsSeen.get(other);
      me.signsSeen.set(other, other.signs);
      // Wait while any step is on the device: if two steps overlapped, each would be charged the other's time, too.
      const goesFirst = other.weight > 0 || this.#start(other) < this.#start(me);
      if (isAtWork && goesFirst && wants(other)) waits = true;
      // Wakes the other model, which may keep the device idle while it waits for calls of its own.
      if (other.weight > 0) other.pause.wake();
    }
    me.waits = waits;
    if (waits) me.signs++;
    return waits;
  }

  #others(participant: Participant): Participant[] {
    return [...this.#participants].filter((other) => other !== participant);
  }

  #start({ endMs }: Participant): number {
    return Math.max(this.#nowMs, endMs);
  }

  #weight(participant: Participant): number {
    if (this.#participants.size === 1) return 1;
    const others = this.#others(participant).map(({ calls }) => new Set(calls.tenants()));
    let weight = 0;
    for (const tenant of new Set(participant.calls.tenants()))
      weight += 1 / (1 + others.filter((all) => all.has(tenant)).length);
    // A step may begin when all its inferlets have just ended. It then counts as the step of one tenant.
    return weight || 1;
  }
}

function wants({ calls }: Participant): boolean {
  for (const _ of calls.tenants()) return true;
  return false;
}

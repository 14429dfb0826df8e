/** Longest sleep of an engine until another model's step ends; that end, and each frame, wakes it before. */
export const LONGEST_USE_MS = 1000;

/**
 * Maximum inputs of a step that a backend on the CPU computes quickly, unless the model is large. A larger step may block the process's thread for
 * seconds, while it answers no runtime.
 */
const QUICK_INPUTS = 16;
/** Duration of a quick step, far below the time after which a silent host counts as lost. */
const QUICK_MS = 500;
/** Part of the slowest quick step that counts at the next one: a single slow one is forgotten after a few dozen. */
const SLOWEST_STEP_DECAY = 0.9;

/** A model's turns on the device that it shares with other models. */
export interface DeviceTurns {
  /** True while another model uses the device or goes first. Ask again after a turn of the event loop, or when `isUsed` ends. */
  mustWait(): boolean;
  /** True while another model's step is on the device. Its end calls the `ended` of `join`. */
  isUsed(): boolean;
  /** True when another model uses the device, or has done so or asked for it since this model's last step. */
  isContended(): boolean;
  /** A step of this many inputs begins. Each step of a batch is charged on its own: a model that comes later is not owed their time. */
  begin(inputs: number): void;
  /** The step has ended; it took the device for `ms`. */
  end(ms: number): void;
}

/** A model among the models of one device. */
interface Participant {
  /** Tenants whose calls can use the device now or do so; one may come more than once. */
  readonly tenants: () => Iterable<string>;
  /** Called when another model's step has ended, or when another model wants the device. */
  readonly ended: () => void;
  /** True when the model had to wait when it last asked. */
  waits: boolean;
  /** Virtual time at which the model's time so far ends: its time divided by its weight, ms. */
  endMs: number;
  /** Weight of the step on the device; 0 between steps. */
  weight: number;
  /** Duration of the slowest recent step of few inputs, ms. */
  slowestMs: number | undefined;
  /** Number of steps that the model has ended, and of times that it had to wait. Between two looks, a change shows that it is at work. */
  signs: number;
  /** Signs of each other model when this one last asked. */
  readonly signsSeen: Map<Participant, number>;
}

/**
 * Divides the time of one device among its models by the number of tenants that want each: start-time fair queueing (Goyal et
 * al., SIGCOMM '96) with device time for the length of packets. Without it, a model with long steps slows the others down to its own pace.
 * A tenant that wants several models has a part of its weight in each, so that it gains nothing by using more. A model waits only for
 * models that use the device or ask for it, so the device never idles for the sake of a share.
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

  /** Adds a model. */
  join(tenants: () => Iterable<string>, ended: () => void = () => undefined): DeviceTurns {
    let startMs = 0;
    let isSmall = false;
    /** Signs of the other models at the end of this one's last step. A guest between two steps may want the device again in a moment. */
    const signsAtEnd = new Map<Participant, number>();
    const participant: Participant = {
      tenants,
      ended,
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
          // A model that waits for this end counts as at work until it asks again, unless its calls have ended meanwhile.
          other.waits &&= wants(other);
          if (other.waits) other.signs++;
        }
        for (const other of this.#others(participant)) other.ended();
      },
    };
  }

  #mustWait(me: Participant): boolean {
    let waits = false;
    for (const other of this.#others(me)) {
      const isAtWork = other.weight > 0 || other.signs !== me.signsSeen.get(other);
      me.signsSeen.set(other, other.signs);
      // Steps that overlap would pay for each other's time.
      const goesFirst = other.weight > 0 || this.#start(other) < this.#start(me);
      if (isAtWork && goesFirst && wants(other)) waits = true;
      // Wakes the other model, which may keep the device idle while it waits for calls of its own.
      if (other.weight > 0) other.ended();
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
    const others = this.#others(participant).map(({ tenants }) => new Set(tenants()));
    let weight = 0;
    for (const tenant of new Set(participant.tenants()))
      weight += 1 / (1 + others.filter((all) => all.has(tenant)).length);
    // A step without a tenant's call serves tenants that have just gone.
    return weight || 1;
  }
}

function wants({ tenants }: Participant): boolean {
  for (const _ of tenants()) return true;
  return false;
}

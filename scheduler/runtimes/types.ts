/** A model that a runtime offers, as its GPU host describes it. */
export interface RuntimeModel {
  readonly name: string;
  /** Tokens that the model was trained to see at once. */
  readonly contextLength: number;
  readonly vocabularySize: number;
  /** Slots of a KV page. */
  readonly pageSize: number;
  readonly pageCount: number;
  readonly traits: readonly string[];
}

/** What a runtime says of itself when it registers. */
export interface RuntimeDescription {
  /** Stays the same over restarts, such as `runtime-1`; a new runtime of a name takes over from its predecessor. */
  readonly name: string;
  /** Invocations that it runs at once. */
  readonly slots: number;
  /** Models that it offers. */
  readonly models?: readonly RuntimeModel[];
  readonly pid?: number;
}

/** A registered runtime. */
export interface RuntimeInfo extends RuntimeDescription {
  /** Unique to one run of the process. */
  readonly id: string;
  /** Milliseconds since the Unix epoch. */
  readonly startedAt: number;
  readonly alive: boolean;
  /** Load at the last renewal of its lease; null when not alive. */
  readonly load: RuntimeLoad | null;
}

export interface RuntimeLoad {
  readonly running: number;
  /** Fetched, waiting for pages. */
  readonly held: number;
}

/** What became of the jobs that a dead runtime had. */
export interface Recovery {
  /** Back in line: not begun, or restartable. */
  readonly waiting: number;
  /** Ended with `runtime-lost`. */
  readonly failed: number;
  /** Ended as cancelled: a cancel was under way. */
  readonly cancelled: number;
  /** Had ended already. */
  readonly dropped: number;
}

/** A model that a runtime offers, as its GPU host describes it. */
export interface RuntimeModel {
  readonly name: string;
  /** Tokens that the model was trained to see at once. */
  readonly contextLength: number;
  readonly vocabularySize: number;
  /** Slots of a KV page. */
  readonly pageSize: number;
  readonly pageCount: number;
  /** One life of the GPU host's process: runtimes that share a host report the same one, and its pages count once. */
  readonly hostId?: string;
  /** Which of several GPU hosts, the same after every restart; none where there is one. */
  readonly host?: string;
  readonly traits: readonly string[];
}

/** A GPU host, as a runtime that is connected to it knows it. */
export interface RuntimeGpuHost {
  /** Its name in the configuration, such as `gpu-host-1`; the same after every restart. */
  readonly name: string;
  /** Whether calls reach it now. */
  readonly connected: boolean;
  /** Since when, or when last it was there, milliseconds since the Unix epoch. */
  readonly connectedAt?: number;
  /** While it is away: since when, milliseconds since the Unix epoch; absent when it was never there. */
  readonly lostAt?: number;
  /** When it was drained last: since then it took nothing new. */
  readonly drain?: Drain;
  /** One life of its process, the last one when it is away: runtimes that share a host report the same one. */
  readonly hostId?: string;
  /** Those that it had when it was last there. */
  readonly models: readonly HostedModel[];
}

/** A time in which a GPU host takes no new invocations; milliseconds since the Unix epoch. */
export interface Drain {
  readonly since: number;
  /** Absent while it lasts. */
  readonly until?: number;
}

/** What computes a model on a GPU host. */
export interface HostedModel {
  readonly name: string;
  readonly backend: string;
  /** Of the weights, such as `bf16`. */
  readonly precision: string;
  /** Of keys and values, where it is another one. */
  readonly kv?: string;
  readonly device: {
    /** The card's, or `CPU`. */
    readonly name: string;
    readonly index?: number;
    /** Of its memory what the model takes, and all that there is; not told of a CPU. */
    readonly memory?: { readonly takenBytes: number; readonly totalBytes: number };
  };
  /** Slots of a KV page. */
  readonly pageSize: number;
  readonly pageCount: number;
}

/** What a runtime says of itself when it registers. */
export interface RuntimeDescription {
  /** Stays the same over restarts, such as `runtime-1`; a new runtime of a name takes over from its predecessor. */
  readonly name: string;
  /** Invocations that it runs at once, at most. */
  readonly slots: number;
  /** How many of them its thread keeps up with now; all by default. Tenants that hold few may go past it. */
  readonly pace?: number;
  /** Which of several GPU hosts serves an invocation: its tenant's by default. */
  readonly spread?: 'tenant' | 'invocation';
  /** The layers that confine its sandboxes and builds, with a notice for the operator when the machine lacks some. */
  readonly isolation?: { readonly layers: 'namespaces' | 'process'; readonly notice?: string };
  /** How the kernel limits its sandboxes, besides rlimits, with a notice for the operator when the machine lacks something. */
  readonly limits?: {
    readonly memory: 'cgroup' | 'rlimit';
    readonly demotion: 'cgroup' | 'autogroup' | 'none';
    readonly notice?: string;
  };
  /** Models that it offers. */
  readonly models?: readonly RuntimeModel[];
  /** GPU hosts that it uses, those that are away among them. */
  readonly gpuHosts?: readonly RuntimeGpuHost[];
  readonly pid?: number;
  /** Path of the socket on which it shows events before they are in the log; absent when it shows none. */
  readonly live?: string;
  /** It takes invocations: its slots and pages count from when its worker has started until it drains. */
  readonly accepting?: boolean;
  /** Memory that the instances of all that it runs may take together, MiB; not counted when absent. */
  readonly memoryMb?: number;
  /** Invocations that may be on their way to it, admitted and not begun; 8 by default. */
  readonly starts?: number;
  /** Pages admitted for each that there is, 1 by default; the largest of any runtime holds for the platform. */
  readonly overcommit?: number;
  /** Part of slots and pages that is kept for tenants that hold little, 0 by default; likewise. */
  readonly reserve?: number;
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
  /** Invocations that it runs, children included, by the name of the GPU host that serves them; those that none serves are left out. */
  readonly gpuHosts?: Readonly<Record<string, number>>;
  /** What its GPU hosts did of late; absent until they were first asked. */
  readonly models?: readonly ModelLoad[];
}

/** One model of one GPU host, over about the last second. */
export interface ModelLoad {
  readonly model: string;
  /** Of the GPU host's process: runtimes that share a host report the same one. */
  readonly hostId: string;
  /** Of the whole pool. */
  readonly pages: number;
  readonly freePages: number;
  /** Held by nobody, kept for their content. */
  readonly cachedPages: number;
  /** Of inferlets that wait, and with room in swap. */
  readonly idlePages: number;
  /** When the host was asked, milliseconds since the Unix epoch: what was given back before is counted. */
  readonly readAt: number;
  /** Mean of sequences per device step; 0 without steps. */
  readonly batchSize: number;
  /** Part of the time that the device computed, 0 to 1. */
  readonly utilisation: number;
  /** Part of the tokens that the prefix cache was asked for and had, 0 to 1; 0 when it was asked for none. */
  readonly hitRate: number;
  /** Tokens a second that were computed. */
  readonly tokensPerSecond: number;
  /** Calls that waited for the device. */
  readonly waitingCalls: number;
  /** Inferlets that have ended for others' memory, since the GPU host's start. */
  readonly terminations: number;
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

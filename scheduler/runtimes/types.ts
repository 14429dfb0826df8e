/** A model that a runtime offers, as its GPU host describes it. */
export interface RuntimeModel {
  readonly name: string;
  /** Context length in tokens that the model was trained for. */
  readonly contextLength: number;
  readonly vocabularySize: number;
  /** KV slots (tokens) in a page. */
  readonly pageSize: number;
  readonly pageCount: number;
  /** Id of one run of the GPU host's process. Runtimes that share a host report the same id, and the host's pages count once. */
  readonly hostId?: string;
  /** Name of the GPU host, unchanged by a restart; absent when the platform has a single host. */
  readonly host?: string;
  readonly traits: readonly string[];
  /** True when the model has a chat template; absent when its tokenizer cannot be read. */
  readonly chat?: boolean;
  /** The marks before and behind the thoughts of a model that thinks before its answers; absent for other models, and like `chat`. */
  readonly thoughts?: { readonly begin: string; readonly end: string };
}

/** A model that makes vectors or scores, as its GPU host describes it. */
export interface RuntimeEncoder {
  readonly name: string;
  readonly kind: 'embedding' | 'reranker';
  /** Number of values in a vector; 1 for a reranker. */
  readonly size: number;
  /** Maximum tokens of a text, or of a query with a document. */
  readonly contextLength: number;
}

/** A GPU host, as a runtime connected to it reports it. */
export interface RuntimeGpuHost {
  /** Unique among all machines, such as `gpu-host-1` or `gpu-host-1@east`; the same after every restart. */
  readonly name: string;
  /** True when calls reach the host now. */
  readonly connected: boolean;
  /** Time of the last connection, milliseconds since the Unix epoch. */
  readonly connectedAt?: number;
  /** While the host is disconnected: the time at which it was lost, milliseconds since the Unix epoch. Absent when it never connected. */
  readonly lostAt?: number;
  /** The last drain of the host. */
  readonly drain?: Drain;
  /** Id of the present run of the host's process, or of the last run while disconnected. Runtimes that share a host report the same id. */
  readonly hostId?: string;
  /** The models that the host had when it was last connected. */
  readonly models: readonly HostedModel[];
}

/** A period in which a GPU host takes no new invocations; milliseconds since the Unix epoch. */
export interface Drain {
  readonly since: number;
  /** Absent while the drain lasts. */
  readonly until?: number;
}

/** A model on a GPU host, with the backend and device that compute it. */
export interface HostedModel {
  readonly name: string;
  readonly backend: string;
  /** Type of the weights, such as `bf16`. */
  readonly precision: string;
  /** Type of keys and values, when it differs from the weights'. */
  readonly kv?: string;
  /** Why the host chose the backend; absent when the configuration names it. */
  readonly reason?: string;
  readonly device: {
    /** Name of the card, or `CPU`. */
    readonly name: string;
    readonly index?: number;
    /** Device memory: bytes that the model takes, and bytes in total. Absent for a CPU. */
    readonly memory?: { readonly takenBytes: number; readonly totalBytes: number };
  };
  /** KV slots (tokens) in a page. */
  readonly pageSize: number;
  readonly pageCount: number;
}

export const ISOLATION_LAYERS = ['namespaces', 'process'] as const;
export const MEMORY_LIMITS = ['cgroup', 'rlimit'] as const;
export const DEMOTIONS = ['cgroup', 'autogroup', 'none'] as const;
export const PLACEMENTS = ['invocation', 'tenant'] as const;

/**
 * Placement of invocations on GPU hosts. `tenant`: all invocations of a tenant run on one host, which also has the tenant's saved state.
 * `invocation`: each root invocation runs on any host, together with its children.
 */
export type PlacementPolicy = (typeof PLACEMENTS)[number];

/** A runtime's description of itself when it registers. */
export interface RuntimeDescription {
  /** Unchanged by a restart, such as `runtime-1` or `runtime-1@east`. A new runtime takes over from the earlier one of the same name. */
  readonly name: string;
  /** The machine that it runs on. */
  readonly machine?: string;
  /** Identifies the runtime's contract, the calls that it offers to components (`wit/contract.ts`). */
  readonly contract?: string;
  /** sha256 of the engine's component on which the runtime evaluates new scripts; absent until the runtime has it. */
  readonly engine?: string;
  /** Maximum invocations that the runtime runs at once. */
  readonly slots: number;
  /** Number of invocations that the runtime's thread keeps up with now; by default all slots. Tenants with few invocations may exceed it. */
  readonly pace?: number;
  /** Placement on GPU hosts, `tenant` by default. */
  readonly placement?: PlacementPolicy;
  /** The layers that confine its sandboxes and builds, with a notice for the operator when the machine lacks some. */
  readonly isolation?: { readonly layers: (typeof ISOLATION_LAYERS)[number]; readonly notice?: string };
  /**
   * How the kernel limits its sandboxes, with a notice for the operator when the machine lacks a limit. `memory`: what ends a sandbox that
   * exceeds its memory. `demotion`: what makes a sandbox yield the cores after much computation.
   */
  readonly limits?: {
    readonly memory: (typeof MEMORY_LIMITS)[number];
    readonly demotion: (typeof DEMOTIONS)[number];
    readonly notice?: string;
  };
  readonly models?: readonly RuntimeModel[];
  readonly encoders?: readonly RuntimeEncoder[];
  /** GPU hosts that the runtime uses, disconnected ones included. */
  readonly gpuHosts?: readonly RuntimeGpuHost[];
  readonly pid?: number;
  /** Path of the socket on which the runtime sends events before they are in the log; absent when it has none. */
  readonly live?: string;
  /** `host:port` at which the runtime sends these events to gateways of other machines; absent when it has none. */
  readonly liveAt?: string;
  /** True while the runtime takes invocations: from its worker's start until it drains. Its slots and pages count only then. */
  readonly accepting?: boolean;
  /** MiB that the instances of all its invocations may take together; memory is not limited when absent. */
  readonly memoryMb?: number;
  /** Maximum invocations that are admitted to the runtime and have not begun; 8 by default. */
  readonly starts?: number;
  /** Pages that admission gives out per existing page, 1 by default. The platform uses the largest value of any runtime. */
  readonly overcommit?: number;
  /** Fraction of slots and pages kept for tenants that hold little, 0 by default. The platform uses the largest value of any runtime. */
  readonly reserve?: number;
}

export interface RuntimeInfo extends RuntimeDescription {
  /** Unique to one run of the runtime's process. */
  readonly id: string;
  /** Milliseconds since the Unix epoch. */
  readonly startedAt: number;
  readonly alive: boolean;
  /** Load at the last renewal of its lease; null when not alive. */
  readonly load: RuntimeLoad | null;
}

export interface RuntimeLoad {
  readonly running: number;
  /** Running invocations, children included, by the name of the GPU host that serves them. Invocations without a host are left out. */
  readonly gpuHosts?: Readonly<Record<string, number>>;
  /** Recent load of the runtime's GPU hosts; absent until the runtime has first asked them. */
  readonly models?: readonly ModelLoad[];
  readonly encoders?: readonly EncoderLoad[];
}

/** One model of one GPU host, over about the last second. */
export interface ModelLoad {
  readonly model: string;
  /** Id of one run of the GPU host's process; runtimes that share a host report the same id. */
  readonly hostId: string;
  /** Pages in the whole pool. */
  readonly pages: number;
  readonly freePages: number;
  /** Pages that no inferlet holds, kept for their content. */
  readonly cachedPages: number;
  /** Pages of waiting inferlets that would fit into swap. */
  readonly idlePages: number;
  /** Time at which the runtime asked the host, milliseconds since the Unix epoch. `freePages` counts all pages given back before it. */
  readonly readAt: number;
  /** Mean number of sequences per device step; 0 without steps. */
  readonly batchSize: number;
  /** Fraction of the time in which the device computed, 0 to 1. */
  readonly utilisation: number;
  /** Fraction of the looked-up tokens that the prefix cache had, 0 to 1; 0 without lookups. */
  readonly hitRate: number;
  /** Computed tokens per second. */
  readonly tokensPerSecond: number;
  /** Number of tokens up to which a larger device step costs little more time; absent when the GPU host does not measure its steps. */
  readonly efficientTokens?: number;
  /** Measured times of device steps; absent without measurements. */
  readonly stepTimes?: {
    /** Times by a step's number of tokens, those of all sequences together. */
    readonly tokens: readonly { readonly size: number; readonly ms: number }[];
    /** Times of steps that only decode, by their number of sequences. */
    readonly sequences: readonly { readonly size: number; readonly ms: number }[];
  };
  /** Calls that wait for the device. */
  readonly waitingCalls: number;
  /** Inferlets ended to free memory for others, since the GPU host's start. */
  readonly terminations: number;
}

/** One encoder of one GPU host, over about the last second. */
export interface EncoderLoad {
  readonly encoder: string;
  readonly kind: RuntimeEncoder['kind'];
  /** Id of the host's process, as in {@link ModelLoad}. */
  readonly hostId: string;
  readonly device: { readonly name: string; readonly index?: number };
  /** Mean number of texts per device step; 0 without steps. */
  readonly batchSize: number;
  /** Fraction of the time in which the device computed texts, 0 to 1. */
  readonly utilisation: number;
  readonly textsPerSecond: number;
  /** Tokens per second, without padding. */
  readonly tokensPerSecond: number;
  /** Calls that wait for the device, or that it computes now. */
  readonly waitingCalls: number;
  /** Maximum tokens of the next batch, padding included. */
  readonly maxBatchTokens: number;
  /** Measured time of batches by their number of tokens, padding included. */
  readonly latency: readonly { readonly tokens: number; readonly msPerToken: number }[];
}

/** Outcome of the recovery of a dead runtime's jobs, as counts. */
export interface Recovery {
  /** Jobs put back into the queue: not begun, or restartable. */
  readonly waiting: number;
  /** Jobs ended with `runtime-lost`. */
  readonly failed: number;
  /** Jobs whose invocation ended as cancelled, because a cancel was under way. */
  readonly cancelled: number;
  /** Jobs whose invocation had ended already. */
  readonly dropped: number;
}

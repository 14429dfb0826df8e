import type { Call, InvocationState, InvocationStatus } from '../control.ts';

export interface InvocationQuery {
  /** A tenant other than the caller's; operators only. */
  readonly tenant?: string | undefined;
  readonly function?: string | undefined;
  /** One state or several; all states when absent. */
  readonly status?: InvocationStatus | readonly InvocationStatus[] | undefined;
  readonly limit: number;
  /** Opaque cursor of an earlier page. */
  readonly cursor?: string | undefined;
}

export interface ListedInvocation extends InvocationState {
  readonly tenant: string;
  /** The GPU host that serves a running invocation, when there are several; operators only. */
  readonly gpuHost?: string | undefined;
}

export interface InvocationPage {
  /** Newest first, without outputs. A page may be shorter than asked for even though `cursor` says that more follow. */
  readonly invocations: readonly ListedInvocation[];
  readonly cursor: string | null;
}

/** Memory and batches of one model on one device, over the last seconds. */
export interface ModelLoad {
  readonly model: string;
  /** Null when the host did not report its name. */
  readonly gpuHost: string | null;
  readonly pages: number;
  readonly freePages: number;
  readonly cachedPages: number;
  /** Mean sequences per batch; null when there was no batch. */
  readonly batchSize: number | null;
  /** Fraction of the time that the device computed, 0 to 1. */
  readonly utilisation: number;
  /** Fraction of the prompt tokens found in the prefix cache, 0 to 1; null when there were no prompt tokens. */
  readonly hitRate: number | null;
}

/** State of a GPU host. */
export interface GpuHostState {
  /** The host's name in the configuration. */
  readonly name: string;
  /** True when a runtime reaches the host now. */
  readonly connected: boolean;
  /** True while an operator drains the host: it takes no new invocations. */
  readonly drained: boolean;
  /** Invocations that the host serves, children included. */
  readonly running: number;
  /** The host's models; those last reported when it is not connected. */
  readonly models: readonly HostedModel[];
}

export interface GpuHostChange {
  readonly drained: boolean;
  /** Also drains the last connected host; new invocations then wait in the queue. */
  readonly force?: boolean | undefined;
}

export interface HostedModel {
  readonly model: string;
  readonly backend: string;
  /** Precision of the weights, such as `bf16`. */
  readonly precision: string;
  /** Precision of keys and values; null when it equals `precision`. */
  readonly kv: string | null;
  /** Name of the card, or `CPU`. */
  readonly device: string;
  /** Index of the device in the driver's numbering. */
  readonly deviceIndex: number | null;
  /** Device memory that the model takes without adapters, and the device's total; null for a CPU. */
  readonly memory: { readonly takenBytes: number; readonly totalBytes: number } | null;
  readonly pages: number;
  /** Slots of a page. */
  readonly pageSize: number;
}

export interface RuntimeLimits {
  /** The kernel's limit that ends a sandbox which exceeds its memory between two checks of the runtime. */
  readonly memory: 'cgroup' | 'rlimit';
  /** The kernel mechanism that lowers the priority of a sandbox which has computed much. */
  readonly demotion: 'cgroup' | 'autogroup' | 'none';
  /** Names the limits that the machine lacks, and says how to get them. */
  readonly notice: string | null;
}

export interface PlatformLoad {
  readonly runtimes: readonly {
    readonly name: string;
    readonly alive: boolean;
    readonly slots: number;
    /** The layers that confine the runtime's sandboxes and builds; null when the runtime does not report them. */
    readonly isolation: 'namespaces' | 'process' | null;
    /** Names the layers that the machine lacks, and says how to get them. */
    readonly isolationNotice: string | null;
    /** The kernel's limits on the runtime's sandboxes; null when the runtime does not report them. */
    readonly limits: RuntimeLimits | null;
    readonly running: number;
  }[];
  readonly gpuHosts: readonly GpuHostState[];
  readonly models: readonly ModelLoad[];
  readonly waiting: number;
  readonly running: number;
  readonly tenants: readonly {
    readonly tenant: string;
    readonly waiting: number;
    readonly running: number;
    readonly weight: number;
  }[];
}

/** State of the platform, for operators and for tenants about themselves. */
export interface Operations {
  invocations(call: Call, query: InvocationQuery): Promise<InvocationPage>;
  /** Operators only. */
  load(call: Call): Promise<PlatformLoad>;
  /** Drains a GPU host, or ends its drain; null when no host has that name. Operators only. */
  changeGpuHost(call: Call, name: string, change: GpuHostChange): Promise<GpuHostState | null>;
  /** The secret that signs the webhooks of the caller's tenant (`whsec_…`). Made on first use, and anew with `rotate`. */
  webhookSecret(call: Call, rotate: boolean): Promise<string>;
}

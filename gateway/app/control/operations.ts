import type { Call, InvocationState, InvocationStatus } from '../control.ts';

export interface InvocationQuery {
  /** Another tenant than the caller's: operators only. */
  readonly tenant?: string | undefined;
  readonly function?: string | undefined;
  /** One state or several; all without it. */
  readonly status?: InvocationStatus | readonly InvocationStatus[] | undefined;
  readonly limit: number;
  /** Opaque; from an earlier page. */
  readonly cursor?: string | undefined;
}

export interface ListedInvocation extends InvocationState {
  readonly tenant: string;
  /** Of several GPU hosts the one that serves it, while it runs; told to operators. */
  readonly gpuHost?: string | undefined;
}

export interface InvocationPage {
  /** Newest first, without their outputs. May be fewer than were asked for while `cursor` says that more follow. */
  readonly invocations: readonly ListedInvocation[];
  readonly cursor: string | null;
}

/** Memory and batches of one model on one device, over the last seconds. */
export interface ModelLoad {
  readonly model: string;
  /** Name of the GPU host; null of one that did not say it. */
  readonly gpuHost: string | null;
  readonly pages: number;
  readonly freePages: number;
  readonly cachedPages: number;
  /** Mean sequences of a batch; null when there was none. */
  readonly batchSize: number | null;
  /** Part of the time that the device computed, 0 to 1. */
  readonly utilisation: number;
  /** Part of the prompt tokens found in the prefix cache, 0 to 1; null when there were none. */
  readonly hitRate: number | null;
}

/** A GPU host: what computes there. */
export interface GpuHostState {
  /** Its name in the configuration. */
  readonly name: string;
  /** Whether a runtime reaches it now. */
  readonly connected: boolean;
  /** It takes no new invocations: an operator drains it. */
  readonly drained: boolean;
  /** Invocations that it serves, children included. */
  readonly running: number;
  /** Those that it had when it was last there. */
  readonly models: readonly HostedModel[];
}

export interface GpuHostChange {
  readonly drained: boolean;
  /** Drains also the last one that is there: what comes waits in line then. */
  readonly force?: boolean | undefined;
}

export interface HostedModel {
  readonly model: string;
  readonly backend: string;
  /** Of the weights, such as `bf16`. */
  readonly precision: string;
  /** Of keys and values; null where it is that of the backend's precision. */
  readonly kv: string | null;
  /** Name of the device: the card's, or `CPU`. */
  readonly device: string;
  /** Which of several, as the driver counts them. */
  readonly deviceIndex: number | null;
  /** Of the device's memory what the model takes, adapters apart, and all that there is; not told of a CPU. */
  readonly memory: { readonly takenBytes: number; readonly totalBytes: number } | null;
  readonly pages: number;
  /** Slots of a page. */
  readonly pageSize: number;
}

export interface RuntimeLimits {
  /** The kernel's limit that ends a sandbox when it passes its memory between two looks of the runtime. */
  readonly memory: 'cgroup' | 'rlimit';
  /** How the kernel makes a sandbox yield after it has computed much. */
  readonly demotion: 'cgroup' | 'autogroup' | 'none';
  /** Names the limits that the machine lacks, and says how to get them. */
  readonly notice: string | null;
}

export interface PlatformLoad {
  readonly runtimes: readonly {
    readonly name: string;
    readonly alive: boolean;
    readonly slots: number;
    /** The layers that confine its sandboxes and builds; null when the runtime does not report them. */
    readonly isolation: 'namespaces' | 'process' | null;
    /** Names the layers that the machine lacks, and says how to get them. */
    readonly isolationNotice: string | null;
    /** How the kernel limits its sandboxes; null when the runtime does not report it. */
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

/** What goes on: for people who operate the platform. */
export interface Operations {
  invocations(call: Call, query: InvocationQuery): Promise<InvocationPage>;
  /** Operators only. */
  load(call: Call): Promise<PlatformLoad>;
  /** Drains a GPU host, or takes it back; null when there is none of that name. Operators only. */
  changeGpuHost(call: Call, name: string, change: GpuHostChange): Promise<GpuHostState | null>;
  /** The secret with which webhooks of the caller's tenant are signed (`whsec_…`), made when there is none yet, or anew. */
  webhookSecret(call: Call, rotate: boolean): Promise<string>;
}

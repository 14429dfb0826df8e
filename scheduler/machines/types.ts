import type { Versions } from '../links/versions.ts';

/** The roles of a machine: the kinds of processes that it runs. */
export const ROLES = ['gateway', 'runtime', 'gpu-host'] as const;
export type Role = (typeof ROLES)[number];

/** Maximum characters of a machine's name. */
export const MAX_MACHINE_NAME = 63;
/** Pattern of a machine's name, which appears in URLs, Redis keys and commands. */
export const MACHINE_NAME = /^[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?$/;
/** Pattern of a process's name: `gpu-host-1` when there is one machine, else with the name of its machine, `gpu-host-1@east`. */
export const PROCESS_NAME = /^[a-z][a-z0-9-]{0,62}(?:@[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?)?$/;

/** A GPU host as the supervisor of its machine registers it. */
export interface RegisteredGpuHost {
  /** Unique among all machines on the Redis. */
  readonly name: string;
  /** `host:port`, or the path of a unix socket, which only processes of the same machine can use. */
  readonly address: string;
}

/** A GPU host that the processes of some machine can reach. */
export interface ReachableGpuHost extends RegisteredGpuHost {
  /** Name of the machine that registered the host. On links over the network, the host shows that machine's certificate. */
  readonly machine: string;
  /** True while the lease of `machine` holds. */
  readonly alive: boolean;
}

/** The outcome of asking a model for an answer, which shows that the model works through the routes that clients use. */
export interface ModelProof {
  /** Milliseconds since the Unix epoch, by the machine's clock. */
  readonly at: number;
  /** The reason of a failure; null when the model answered. */
  readonly fault: string | null;
}

/** A supervisor's description of its machine. */
export interface MachineDescription {
  /** Unique among the running machines on the Redis. */
  readonly name: string;
  readonly roles: readonly Role[];
  /** `os.hostname()` of the machine, which operators see. */
  readonly host: string;
  /** Process id of the supervisor. */
  readonly pid: number;
  /** Version of Pie. */
  readonly version: string;
  readonly gpuHosts: readonly RegisteredGpuHost[];
  /** SHA-256 (`AB:CD:…`) of the certificate that the machine shows on links to other machines; absent when the machine has no such links. */
  readonly certificate?: string;
  /** The last proof of each model and encoder that this run of the supervisor has asked, by the name. */
  readonly proofs?: Readonly<Record<string, ModelProof>>;
}

/** A machine that has joined with a token, whether it runs or not. */
export interface JoinedMachine {
  readonly name: string;
  readonly roles: readonly Role[];
  /** Milliseconds since the Unix epoch. */
  readonly joinedAt: number;
}

/** A machine in the registry: it runs, or it died within the last hour. */
export interface MachineInfo extends MachineDescription {
  /** Id of this run of the supervisor; a restarted supervisor has another. */
  readonly life: string;
  /** Milliseconds since the Unix epoch, by the machine's clock. */
  readonly startedAt: number;
  /** True while this run of the supervisor holds the lease of the machine's name. */
  readonly alive: boolean;
}

/** Versions of the exchange by which a machine joins. When you add a version, keep the one before it. Each message is bound to its version. */
export const JOIN_VERSIONS: Versions = { oldest: 1, newest: 1 };

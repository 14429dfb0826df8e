/** The roles of a machine: kinds of processes that it runs. */
export const ROLES = ['gateway', 'runtime', 'gpu-host'] as const;
export type Role = (typeof ROLES)[number];

export interface RegisteredGpuHost {
  /** Unique among all machines on the Redis. */
  readonly name: string;
  /** `host:port`, or the path of a unix socket, which only processes of the same machine can use. */
  readonly address: string;
}

/** A GPU host that processes of a machine can reach. */
export interface ReachableGpuHost extends RegisteredGpuHost {
  /** The machine that registered it, whose certificate it shows. */
  readonly machine: string;
  /** True while the lease of the host's machine holds. */
  readonly alive: boolean;
}

/** A supervisor's description of its machine. */
export interface MachineDescription {
  /** Unique among the running machines on the Redis. */
  readonly name: string;
  readonly roles: readonly Role[];
  /** Name of the operating system's host, for operators. */
  readonly host: string;
  /** Process id of the supervisor. */
  readonly pid: number;
  /** Version of Pie. */
  readonly version: string;
  readonly gpuHosts: readonly RegisteredGpuHost[];
  /** SHA-256 of the machine's certificate, `AB:CD:…`: its links to other machines show it. Absent without links. */
  readonly certificate?: string;
}

/** A machine that has joined with a token, whether it runs or not. */
export interface JoinedMachine {
  readonly name: string;
  readonly roles: readonly Role[];
  /** Milliseconds since the Unix epoch. */
  readonly joinedAt: number;
}

export interface MachineInfo extends MachineDescription {
  /** Unique to one run of the supervisor. */
  readonly life: string;
  /** Milliseconds since the Unix epoch, by the machine's clock. */
  readonly startedAt: number;
  /** True while the lease holds. */
  readonly alive: boolean;
}

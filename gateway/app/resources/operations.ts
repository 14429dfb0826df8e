import type { Role } from '#scheduler/machines/types.ts';
import type { Call, InvocationStatus } from '../control.ts';
import type { ListedInvocation } from '../schemas/invocations.ts';
import type { GpuHostChange, GpuHostState, MachineChange, MachineState, PlatformLoad } from '../schemas/platform.ts';

export type {
  EncoderLoad,
  GpuHostChange,
  GpuHostState,
  HostedModel,
  MachineChange,
  MachineState,
  ModelLoad,
  PlatformLoad,
  RuntimeLimits,
} from '../schemas/platform.ts';
export type { ListedInvocation };

/** Maximum invocations of one page. */
export const MAX_PAGE = 200;

export interface InvocationQuery {
  /** A tenant other than the caller's; operators only. */
  readonly tenant?: string | undefined;
  readonly function?: string | undefined;
  /** One state or several; all states when absent or empty. */
  readonly status?: InvocationStatus | readonly InvocationStatus[] | undefined;
  /** 1 to {@link MAX_PAGE}. */
  readonly limit: number;
  /** Opaque cursor of an earlier page. */
  readonly cursor?: string | undefined;
}

export interface InvocationPage {
  /** Newest first, without outputs. A page may be shorter than asked for even though `cursor` says that more follow. */
  readonly invocations: readonly ListedInvocation[];
  readonly cursor: string | null;
}

/** A token with which one machine may join. */
export interface JoinToken {
  readonly token: string;
  readonly expiresAt: string;
}

/** Rights of a join token. */
export interface JoinTokenRequest {
  readonly ttlSeconds: number;
  /** Roles that the machine may have. */
  readonly roles: readonly Role[];
}

/** State of the platform, for operators and for tenants about themselves. */
export interface Operations {
  invocations(call: Call, query: InvocationQuery): Promise<InvocationPage>;
  /** Operators only. */
  load(call: Call): Promise<PlatformLoad>;
  /** Drains a GPU host, or ends its drain; null when no host has that name. Operators only. */
  changeGpuHost(call: Call, name: string, change: GpuHostChange): Promise<GpuHostState | null>;
  /** Drains a machine, or ends its drain; null when no machine has that name. Operators only. */
  changeMachine(call: Call, name: string, change: MachineChange): Promise<MachineState | null>;
  /** Makes a token with which one machine may join. Throws `conflict` where none can. Operators only. */
  createJoinToken(call: Call, request: JoinTokenRequest): Promise<JoinToken>;
  /** Removes a machine for good; false when no machine has that name. Operators only. */
  removeMachine(call: Call, name: string): Promise<boolean>;
  /** The secret that signs the webhooks of the caller's tenant (`whsec_…`). Made on first use, and anew with `rotate`. */
  webhookSecret(call: Call, rotate: boolean): Promise<string>;
}

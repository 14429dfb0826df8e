import type { Call } from '../control.ts';
import type { InvocationPage, InvocationQuery, ListedInvocation } from '../schemas/invocations.ts';
import type {
  GpuHostChange,
  GpuHostState,
  JoinToken,
  JoinTokenRequest,
  MachineChange,
  MachineState,
  PlatformLoad,
} from '../schemas/platform.ts';

export type {
  EncoderLoad,
  GpuHostChange,
  GpuHostState,
  HostedModel,
  JoinToken,
  JoinTokenRequest,
  MachineChange,
  MachineState,
  ModelLoad,
  PlatformLoad,
  RuntimeLimits,
} from '../schemas/platform.ts';
export type { InvocationPage, InvocationQuery, ListedInvocation };

/** Maximum invocations of one page. */
export const MAX_PAGE = 200;

/** State of the platform for operators, and of their own tenant for other callers. */
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

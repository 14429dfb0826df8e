import type { Call } from '../app/control.ts';
import type {
  GpuHostChange,
  GpuHostState,
  InvocationPage,
  InvocationQuery,
  JoinToken,
  JoinTokenRequest,
  MachineChange,
  MachineState,
  Operations,
  PlatformLoad,
} from '../app/resources/operations.ts';
import { type ClientOf, isFound, options, orNull, translating } from './origin.ts';

/** Lists of invocations, load, GPU hosts, machines, join tokens and the webhook secret, from the origin. */
export class OriginOperations implements Operations {
  readonly #client: ClientOf;

  constructor(client: ClientOf) {
    this.#client = client;
  }

  invocations(call: Call, query: InvocationQuery): Promise<InvocationPage> {
    return translating(() => this.#client(call).operations.invocations({ ...options(call), ...query }));
  }

  load(call: Call): Promise<PlatformLoad> {
    return translating(() => this.#client(call).operations.load(options(call)));
  }

  changeGpuHost(call: Call, name: string, change: GpuHostChange): Promise<GpuHostState | null> {
    return orNull('unknown-gpu-host', () => this.#client(call).operations.changeGpuHost(name, change, options(call)));
  }

  changeMachine(call: Call, name: string, change: MachineChange): Promise<MachineState | null> {
    return orNull('unknown-machine', () => this.#client(call).operations.changeMachine(name, change, options(call)));
  }

  createJoinToken(call: Call, request: JoinTokenRequest): Promise<JoinToken> {
    return translating(() => this.#client(call).operations.createJoinToken(request, options(call)));
  }

  removeMachine(call: Call, name: string): Promise<boolean> {
    return isFound('unknown-machine', () => this.#client(call).operations.removeMachine(name, options(call)));
  }

  webhookSecret(call: Call, rotate: boolean): Promise<string> {
    return translating(() => this.#client(call).operations.webhookSecret({ ...options(call), rotate }));
  }
}

import type { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import { type Grants, NO_GRANTS } from '#scheduler/functions/grants.ts';
import type { GrantedModel } from '../host/device/granted.ts';
import { DeviceQueue } from '../host/device/queue.ts';
import { StoreQueues } from '../host/services/ask.ts';
import type { InvocationServices, Services } from '../host/services/services.ts';
import { inferletBytes } from '../host/session/holdings.ts';
import { type Deadline, Inferlet } from '../host/session/inferlet.ts';
import { type EventSink, Session } from '../host/session/session-state.ts';
import { hostTable } from '../host/table.ts';
import { type InferletHooks, NO_HOOKS } from '../lifecycle/waiting.ts';
import { releaseOf } from '../lowering/future-release.ts';
import { TEST_MODEL } from './gpu-host.ts';

export interface TestInferletOptions {
  readonly id?: string;
  readonly tenant?: string;
  readonly functionName?: string;
  readonly pages?: number;
  readonly tokens?: number;
  /** Replaces parts of the GPU host's description of its model. */
  readonly model?: Partial<GrantedModel>;
  /** Names of the GPU host's encoders that the inferlet may use; by default none. */
  readonly encoders?: readonly string[];
  readonly grants?: Partial<Grants>;
  /** The services that the test calls. */
  readonly services?: Partial<Services>;
  /** Milliseconds since the Unix epoch. */
  readonly deadlineAt?: number;
  readonly traceparent?: string;
  /** The objects of the invocation itself that the test needs. */
  readonly own?: Partial<InvocationServices>;
  /** Receives the inferlet's events; by default they are dropped. */
  readonly sink?: EventSink;
  /** Replaces parts of the runner; by default nothing happens in it. */
  readonly hooks?: Partial<InferletHooks>;
}

/** An inferlet without a guest: the test calls its host functions by WIT interface and core name. */
export class TestInferlet {
  readonly inferlet: Inferlet;
  readonly queue: DeviceQueue;

  /** @param connection null for a test that calls no device; the inferlet then has no models */
  constructor(connection: GpuHostConnection | null, options: TestInferletOptions = {}) {
    const { id = 'test', tenant = 'default', functionName = 'tester', pages = 128, tokens = 100_000 } = options;
    const summary = connection?.models.find(({ name }) => name === TEST_MODEL);
    if (connection && !summary) throw new Error(`the GPU host does not serve ${TEST_MODEL}`);
    const granted = (connection?.models ?? []).map((each): [string, GrantedModel] => [
      each.name,
      {
        summary: each,
        connection: connection as GpuHostConnection,
        tokenizer: null,
        metadata: null,
        vision: null,
        grammars: NO_GRAMMARS,
        ...(each === summary && options.model),
      },
    ]);
    const encoders = (connection?.encoders ?? []).filter(({ name }) => options.encoders?.includes(name));
    const session = new Session(
      options.sink ?? { pendingBytes: 0, add: () => undefined, flushed: () => Promise.resolve(true) },
      { attach: () => () => undefined },
    );
    this.inferlet = new Inferlet(
      {
        id,
        tenant,
        functionName,
        functionVersion: '1',
        arrival: 0,
        input: '{}',
        grants: { ...NO_GRANTS, ...options.grants },
        deadline: deadlineAt(options.deadlineAt ?? Number.MAX_SAFE_INTEGER),
        ...(options.traceparent !== undefined && { traceparent: options.traceparent }),
        limits: { pages, tokens },
        models: new Map(granted),
        ...(connection && { encoders: new Map(encoders.map((each) => [each.name, { summary: each, connection }])) }),
      },
      session,
      Object.assign(only({ storeQueues: new StoreQueues(), bytes: inferletBytes(), ...options.services }, SERVICES), {
        names: options.services?.names,
      }),
      { ...NO_HOOKS, ...options.hooks },
      options.own ? only(options.own, INVOCATION_SERVICES) : null,
    );
    this.queue = new DeviceQueue(this.inferlet, TEST_MODEL);
  }

  /**
   * Calls a host function like a guest that reads each answer as soon as it settles. The caller chooses the type of
   * the result.
   */
  call<T>(interfaceName: string, coreName: string, ...args: readonly unknown[]): T {
    const answer = this.callOnly<T>(interfaceName, coreName, ...args);
    if (answer instanceof Promise) answer.then(() => TestInferlet.releaseFuture(answer));
    return answer;
  }

  /** Reads an answer, or drops its future when `isRead` is false. An unsettled answer cannot be read: drop its future. */
  static releaseFuture(answer: Promise<unknown>, isRead = true): void {
    releaseOf(answer)?.(isRead);
  }

  /** Calls a host function like a guest that does not read the answer. */
  callOnly<T>(interfaceName: string, coreName: string, ...args: readonly unknown[]): T {
    const call = hostTable[interfaceName]?.[coreName] as ((...all: unknown[]) => T) | undefined;
    if (!call) throw new Error(`the host has no ${interfaceName} ${coreName}`);
    return call(this.inferlet, ...args);
  }

  end(): Promise<void> {
    return this.inferlet.release();
  }
}

/** Returns the services that the test passes in. A use of any other service of `names` throws. */
function only<T extends object>(passedIn: Partial<T>, names: readonly (keyof T & string)[]): T {
  const refuse = (name: string): never => {
    throw new Error(`no use of ${name} was expected`);
  };
  const properties = Object.fromEntries(
    names.map((name) => [name, { enumerable: true, get: () => passedIn[name] ?? refuse(name) }]),
  );
  return Object.defineProperties({}, properties) as T;
}

const SERVICES = [
  'keyValues',
  'messaging',
  'storeQueues',
  'bytes',
  'indexes',
  'http',
  'images',
  'texts',
] as const satisfies readonly (keyof Services)[];
const INVOCATION_SERVICES = ['children', 'files', 'shared'] as const satisfies readonly (keyof InvocationServices)[];

const deadlineAt = (at: number): Deadline => ({
  at,
  get leftMs() {
    return Math.max(0, at - Date.now());
  },
});

/** For models without a tokenizer, which have no grammars. */
const NO_GRAMMARS: GrantedModel['grammars'] = {
  compile: () => {
    throw new Error('no grammar was expected');
  },
};

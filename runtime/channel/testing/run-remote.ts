import { type Duplex, duplexPair } from 'node:stream';
import type { LifecycleEnding, LifecycleOpening } from '#wit/generated/channel.ts';
import { compileWorld, type HostTable } from '../../lowering/compile.ts';
import type { Ending, Execution, ExecutionOptions } from '../../lowering/execution.ts';
import { instantiate, type Program } from '../../lowering/instance.ts';
import type { ChannelFault } from '../limits.ts';
import type { RemoteEnding, RemoteGuest, RemoteGuestOptions } from '../remote-guest.ts';
import { RuntimeEnd } from '../runtime-end.ts';
import { SandboxEnd, sandboxTable, suspendingWorld } from '../sandbox-end.ts';
import { SharedThread } from '../shared-thread.ts';

export const OPENING: LifecycleOpening = {
  instance: 1,
  cpuLimitMs: 60_000,
  id: 'inv-1',
  tenant: 'default',
  functionName: 'tester',
  functionVersion: '1',
  input: '{}',
  leftMs: 3_600_000n,
  models: [],
};

export interface GuestRunner {
  readonly program: Program;
  readonly execution: ExecutionOptions;
  /** Functions that the sandbox answers itself. */
  readonly local: HostTable;
  readonly lost?: (fault: ChannelFault) => void;
}

/** The sandbox's side of a channel. It runs one program in each invocation that the runtime opens. */
export function sandboxOf(stream: Duplex, runner: GuestRunner) {
  const compiled = suspendingWorld(compileWorld(sandboxTable(runner.local)));
  const executions = new Set<Execution>();
  const end = new SandboxEnd(stream, {
    opened: (invocation) => {
      const execution = instantiate(runner.program, compiled, runner.execution);
      executions.add(execution);
      execution.guest.context = invocation;
      invocation.attach({
        task: execution,
        charge: (cpuMs) => execution.charge(cpuMs),
        closed: (trap) => execution.kill(trap),
      });
      void execution.start(invocation.opening.input).then((ending) => {
        const used = { cpuMs: execution.cpuMs, memoryBytes: 0n, calls: 0n };
        invocation.end({ ending: asEnding(ending), used, handlerErrors: [], stderr: '', firstCallMs: undefined });
        execution.dispose();
        executions.delete(execution);
      });
    },
    control: () => undefined,
    lost: (fault) => runner.lost?.(fault),
  });
  return { end, executions };
}

export function asEnding(ending: Ending): LifecycleEnding {
  if (ending.kind === 'returned') return { tag: ending.ok ? 'success' : 'failure', val: ending.text };
  return { tag: 'trapped', val: { code: ending.trap.code, message: ending.trap.message } };
}

/** Outcome of an invocation: its guest's result or trap, or the loss of its sandbox. */
export type Ended = LifecycleEnding | Extract<RemoteEnding, { tag: 'sandbox-lost' }>;

/** Opens an invocation; `ended` resolves with its ending. */
export function openInvocation(
  runtime: RuntimeEnd,
  opening: Partial<LifecycleOpening>,
  options: Partial<RemoteGuestOptions> = {},
): { readonly guest: RemoteGuest; readonly ended: Promise<Ended> } {
  const { promise, resolve } = Promise.withResolvers<Ended>();
  const ended = (ending: RemoteEnding) => resolve(ending.tag === 'ended' ? ending.ended.ending : ending);
  const guest = runtime.open(
    { ...OPENING, ...opening },
    { context: null, charge: () => undefined, flushed: () => Promise.resolve(true), ...options, ended },
  );
  return { guest, ended: promise };
}

/** Connects a runtime's side and a sandbox's side of one channel in this process. */
export function bothEnds(host: HostTable, runner: GuestRunner) {
  const [mine, theirs] = duplexPair();
  const { promise: lost, resolve } = Promise.withResolvers<ChannelFault>();
  const runtime = new RuntimeEnd(mine, { host, thread: new SharedThread(), control: () => undefined, lost: resolve });
  return { runtime, lost, sandbox: sandboxOf(theirs, runner), stream: mine };
}

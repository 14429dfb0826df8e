import { announce, type FutureHandle, type FutureType, type Guest, WaitableSet } from './guest.ts';

/** Results of a copy (Component Model, Canonical ABI, "CopyResult"), and the result of an asynchronous copy that must wait. */
const COMPLETED = 0;
const CANCELLED = 2;
const BLOCKED = -1;

/** Event codes that a guest may see. */
export const EVENT_NONE = 0;
export const EVENT_FUTURE_READ = 4;

/** A core function that may suspend the guest, in three parts; `blockingImport` describes when each is called. */
export interface BlockingFunction {
  /** Number of i32 parameters. */
  readonly params: number;
  /** Number of i32 results. */
  readonly results: 0 | 1;
  /** Takes the call; true when the guest must wait. */
  readonly begin: (...core: number[]) => boolean;
  readonly wait: () => Promise<unknown>;
  /** Returns the call's result; gets the parameters again. */
  readonly end: (...core: number[]) => unknown;
}

/** A core function given to a guest. */
export type CoreFunction = ((...args: never[]) => unknown) | BlockingFunction;

/** Cost of a turn of the event loop for the host, charged to a guest that requests one. */
export const YIELD_COST_MS = 0.02;

/** Operations of an inferlet's task besides computing. */
export interface Task {
  /** Suspends the guest's stack until `wake` is called, or until the guest dies. */
  block(arm: (wake: () => void) => void): Promise<void>;
  /** Suspends until it is the guest's turn again, or until the guest dies. */
  yield(costMs?: number): Promise<unknown>;
  /** `[task-return]run` was called with these core values. */
  returned(flat: number[]): void;
}

const FUTURE =
  /^(\[async-lower\])?\[future-(new|read|write|cancel-read|cancel-write|drop-readable|drop-writable)-(\d+)\](.*)$/;
const CONTEXT = /^\[context-(get|set)-(?:i32-)?([01])\]$/;

/** Splits the import name of an intrinsic on the future number `index` in the signature of the function `of`. Null for another name. */
export function parseFutureIntrinsic(
  name: string,
): { operation: string; async: boolean; index: number; of: string } | null {
  const match = FUTURE.exec(name);
  if (!match) return null;
  return { async: match[1] !== undefined, operation: match[2] ?? '', index: Number(match[3]), of: match[4] ?? '' };
}

/** An intrinsic on futures of one type. */
export function futureIntrinsic(
  guest: Guest,
  task: Task,
  operation: string,
  async: boolean,
  type: FutureType,
): CoreFunction {
  const g = guest;
  switch (operation) {
    case 'read': {
      const begin = (handle: number, pointer: number): FutureHandle => {
        g.enter();
        const future = g.future(handle, type);
        if (future.consumed) g.trap('a future can be read once');
        if (future.target >= 0) g.trap('a read of this future is under way');
        future.target = g.range(pointer, type.size, type.align);
        return future;
      };
      return async
        ? (handle: number, pointer: number) => {
            const future = begin(handle, pointer);
            if (!future.settled) return BLOCKED;
            g.complete(future);
            return COMPLETED;
          }
        : blockingRead(g, task, begin);
    }
    case 'cancel-read':
      return (handle: number) => {
        g.enter();
        const future = g.future(handle, type);
        if (future.target < 0) g.trap('no read of this future is under way');
        if (!future.settled) {
          future.target = -1;
          return CANCELLED;
        }
        unqueue(future.set, future);
        g.complete(future);
        return COMPLETED;
      };
    case 'drop-readable':
      return (handle: number) => {
        g.enter();
        g.dropFuture(handle, type);
      };
    default:
      return () => {
        g.enter();
        g.trap(`[future-${operation}]: the contract takes no futures from an inferlet`);
      };
  }
}

function blockingRead(
  guest: Guest,
  task: Task,
  begin: (handle: number, pointer: number) => FutureHandle,
): BlockingFunction {
  let reading: FutureHandle | null = null;
  const read = (): FutureHandle => reading ?? guest.trap('no read is under way');
  return {
    params: 2,
    results: 1,
    begin: (handle, pointer) => {
      reading = begin(handle, pointer);
      return !reading.settled;
    },
    wait: () =>
      task.block((wake) => {
        read().wake = wake;
      }),
    end: () => {
      const future = read();
      reading = null;
      guest.complete(future);
      return COMPLETED;
    },
  };
}

/** An intrinsic of `$root` or `[export]$root`; null when the name is unknown. */
export function rootIntrinsic(guest: Guest, task: Task, fullName: string): CoreFunction | null {
  const g = guest;
  const name = fullName.replace(/^\[(?:async-lower|cancellable)\]/, '');
  const context = CONTEXT.exec(name);
  if (context) {
    const slot = context[2] === '0' ? 0 : 1;
    if (context[1] === 'get') return () => g.taskContext[slot];
    return (value: number) => {
      g.taskContext[slot] = value;
    };
  }
  if (name.startsWith('[task-return]')) {
    return (...flat: number[]) => {
      g.enter();
      task.returned(flat);
    };
  }
  switch (name) {
    case '[waitable-set-new]':
      return () => {
        g.enter();
        const set = new WaitableSet();
        set.index = g.add(set);
        return set.index;
      };
    case '[waitable-set-drop]':
      return (handle: number) => {
        g.enter();
        const set = g.waitableSet(handle);
        if (set.members > 0) g.trap('a waitable set is dropped while futures are joined to it');
        g.remove(handle);
      };
    case '[waitable-join]':
      return (handle: number, setHandle: number) => {
        g.enter();
        const future = g.waitable(handle);
        const set = setHandle === 0 ? null : g.waitableSet(setHandle);
        if (future.set) {
          future.set.members--;
          unqueue(future.set, future);
        }
        // A future that was read never completes again, so nothing can wait for it.
        future.set = future.consumed ? null : set;
        if (!future.set) {
          g.spend(future);
          return;
        }
        future.set.members++;
        if (future.target >= 0 && future.settled) announce(future.set, future);
      };
    case '[waitable-set-poll]':
      return (handle: number, pointer: number) => {
        g.enter();
        return takeEvent(g, g.waitableSet(handle), g.range(pointer, 8, 4));
      };
    case '[waitable-set-wait]':
      return blockingWait(g, task);
    case '[yield]':
    case '[thread-yield]':
      return {
        params: 0,
        results: 1,
        begin: () => {
          g.enter();
          return true;
        },
        wait: () => task.yield(YIELD_COST_MS),
        // 0: the yield was not cancelled.
        end: () => 0,
      };
    case '[backpressure-set]':
    case '[backpressure-inc]':
    case '[backpressure-dec]':
      return () => g.enter();
    case '[subtask-drop]':
    case '[subtask-cancel]':
    case '[task-cancel]':
      return () => {
        g.enter();
        g.trap(`${name}: no such task`);
      };
    default:
      return null;
  }
}

function blockingWait(guest: Guest, task: Task): BlockingFunction {
  let waiting: { readonly set: WaitableSet; readonly address: number } | null = null;
  const wait = () => waiting ?? guest.trap('no wait is under way');
  return {
    params: 2,
    results: 1,
    begin: (handle, pointer) => {
      guest.enter();
      const set = guest.waitableSet(handle);
      waiting = { set, address: guest.range(pointer, 8, 4) };
      if (set.ready.length > 0) return false;
      if (set.members === 0) guest.trap(NOTHING_TO_WAIT_FOR);
      return true;
    },
    wait: () =>
      task.block((wake) => {
        wait().set.wake = wake;
      }),
    end: () => {
      const { set, address } = wait();
      waiting = null;
      return takeEvent(guest, set, address);
    },
  };
}

/** Message for a guest that would wait forever. */
export const NOTHING_TO_WAIT_FOR =
  'the inferlet waits, but no call of it is under way: a promise that nothing will ever settle';

/** Takes the oldest event of a set, writes its two words to `address` and returns its code. */
function takeEvent(guest: Guest, set: WaitableSet, address: number): number {
  const future = set.ready.shift();
  if (guest.u8.length === 0) guest.refresh();
  guest.u32[address >>> 2] = future?.index ?? 0;
  guest.u32[(address >>> 2) + 1] = COMPLETED;
  if (!future) return EVENT_NONE;
  guest.complete(future);
  return EVENT_FUTURE_READ;
}

function unqueue(set: WaitableSet | null, future: { readonly set: WaitableSet | null }): void {
  if (!set) return;
  const at = set.ready.indexOf(future as never);
  if (at >= 0) set.ready.splice(at, 1);
}

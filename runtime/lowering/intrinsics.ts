import { announce, type FutureType, type Guest, WaitableSet } from './guest.ts';

/** Results of a copy (Component Model, Canonical ABI, "CopyResult"), and what an asynchronous one that must wait returns. */
const COMPLETED = 0;
const CANCELLED = 2;
const BLOCKED = -1;

/** Event codes that a guest may see. */
export const EVENT_NONE = 0;
export const EVENT_FUTURE_READ = 4;

/** A core function given to a guest. `blocking` ones may return a promise and need a suspendable stack. */
export interface CoreFunction {
  readonly call: (...args: never[]) => unknown;
  readonly blocking: boolean;
}

/** What a turn of the event loop costs the host, charged to a guest that asks for one. */
export const YIELD_COST_MS = 0.02;

/** What an inferlet's task does besides computing; implemented by whoever drives it. */
export interface Task {
  /** Suspends the guest's stack until `wake` is called. */
  block(arm: (wake: () => void) => void): Promise<void>;
  /** Lets others run; completes with 0. */
  yield(costMs?: number): Promise<number>;
  /** `[task-return]run` was called with these core values. */
  returned(flat: number[]): void;
}

const plain = (call: CoreFunction['call']): CoreFunction => ({ call, blocking: false });
const blocking = (call: CoreFunction['call']): CoreFunction => ({ call, blocking: true });

const FUTURE =
  /^(\[async-lower\])?\[future-(new|read|write|cancel-read|cancel-write|drop-readable|drop-writable)-(\d+)\](.*)$/;
const CONTEXT = /^\[context-(get|set)-(?:i32-)?([01])\]$/;

/** Splits the import name of a future intrinsic: which operation, on which future of which function. Null for another name. */
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
      const begin = (handle: number, pointer: number): number | Promise<number> => {
        g.enter();
        const future = g.future(handle, type);
        if (future.consumed) g.trap('a future can be read once');
        if (future.target >= 0) g.trap('a read of this future is under way');
        future.target = g.range(pointer, type.size, type.align);
        if (future.settled) {
          g.complete(future);
          return COMPLETED;
        }
        if (async) return BLOCKED;
        return task
          .block((wake) => {
            future.wake = wake;
          })
          .then(() => {
            g.complete(future);
            return COMPLETED;
          });
      };
      return { call: begin, blocking: !async };
    }
    case 'cancel-read':
      return plain((handle: number) => {
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
      });
    case 'drop-readable':
      return plain((handle: number) => {
        g.enter();
        g.dropFuture(handle, type);
      });
    default:
      return plain(() => {
        g.enter();
        g.trap(`[future-${operation}]: the contract takes no futures from an inferlet`);
      });
  }
}

/** An intrinsic of `$root` or `[export]$root`; null when the name is unknown. */
export function rootIntrinsic(guest: Guest, task: Task, fullName: string): CoreFunction | null {
  const g = guest;
  const name = fullName.replace(/^\[(?:async-lower|cancellable)\]/, '');
  const context = CONTEXT.exec(name);
  if (context) {
    const slot = context[2] === '0' ? 0 : 1;
    if (context[1] === 'get') return plain(() => g.taskContext[slot]);
    return plain((value: number) => {
      g.taskContext[slot] = value;
    });
  }
  if (name.startsWith('[task-return]')) {
    return plain((...flat: number[]) => {
      g.enter();
      task.returned(flat);
    });
  }
  switch (name) {
    case '[waitable-set-new]':
      return plain(() => {
        g.enter();
        const set = new WaitableSet();
        set.index = g.add(set);
        return set.index;
      });
    case '[waitable-set-drop]':
      return plain((handle: number) => {
        g.enter();
        const set = g.waitableSet(handle);
        if (set.members > 0) g.trap('a waitable set is dropped while futures are joined to it');
        g.remove(handle);
      });
    case '[waitable-join]':
      return plain((handle: number, setHandle: number) => {
        g.enter();
        const future = g.waitable(handle);
        const set = setHandle === 0 ? null : g.waitableSet(setHandle);
        if (future.set) {
          future.set.members--;
          unqueue(future.set, future);
        }
        // One that was read completes no more: nothing can wait for it.
        future.set = future.consumed ? null : set;
        if (!future.set) {
          g.spend(future);
          return;
        }
        future.set.members++;
        if (future.target >= 0 && future.settled) announce(future.set, future);
      });
    case '[waitable-set-poll]':
      return plain((handle: number, pointer: number) => {
        g.enter();
        return takeEvent(g, g.waitableSet(handle), g.range(pointer, 8, 4));
      });
    case '[waitable-set-wait]':
      return blocking((handle: number, pointer: number) => {
        g.enter();
        const set = g.waitableSet(handle);
        const address = g.range(pointer, 8, 4);
        if (set.ready.length > 0) return takeEvent(g, set, address);
        if (set.members === 0) g.trap(NOTHING_TO_WAIT_FOR);
        return task
          .block((wake) => {
            set.wake = wake;
          })
          .then(() => takeEvent(g, set, address));
      });
    case '[yield]':
    case '[thread-yield]':
      return blocking(() => {
        g.enter();
        return task.yield(YIELD_COST_MS);
      });
    case '[backpressure-set]':
    case '[backpressure-inc]':
    case '[backpressure-dec]':
      return plain(() => undefined);
    case '[subtask-drop]':
    case '[subtask-cancel]':
    case '[task-cancel]':
      return plain(() => {
        g.enter();
        g.trap(`${name}: no such task`);
      });
    default:
      return null;
  }
}

/** Said to a guest that waits for ever. */
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

import type { KeyVisitor } from '../../batcher/call.ts';
import type { Caller } from '../../memory/registry/entry.ts';
import type { PageSnapshot } from '../../memory/space-snapshot.ts';
import type { Operation } from '../../protocol/operations.ts';
import { pageKey } from './call.ts';
import { NamedPagesCall } from './exports.ts';
import type { NamedPages } from './named-pages.ts';
import type { HostQueue, ModelSpace } from './space.ts';

type FileOperation = Operation<'file-open' | 'file-save' | 'file-unlock' | 'file-remove' | 'file-list'>;

/** For each inferlet and name: number of opens for writing without an unlock yet. All of them share one lock of the registry. */
const writeHolds = new WeakMap<ModelSpace, Map<string, number>>();

/** The calls of `wit/kv-files.wit` that need the host: names, locks and rights. The rest of a file is ordinary pages. */
export class FileCall extends NamedPagesCall {
  readonly #operation: FileOperation;

  constructor(queue: HostQueue, id: number, operation: FileOperation, names: NamedPages) {
    super(queue, id, names);
    this.#operation = operation;
  }

  override get claims(): boolean {
    return this.#operation.op === 'file-open';
  }

  protected override get failsQueue(): boolean {
    return this.#operation.op === 'file-save';
  }

  override execute(): undefined | Promise<void> {
    const { pages } = this.hostQueue.space;
    const { registry } = this.names;
    const operation = this.#operation;
    switch (operation.op) {
      case 'file-open': {
        const { name, write } = operation;
        const open = (snapshot: PageSnapshot) => this.#open(operation, snapshot);
        return registry.openFile(this.#caller, name, write, this.requester, open) ?? undefined;
      }
      case 'file-save': {
        const { name, persistent, rights } = operation;
        const snapshot = pages.snapshot(operation.pages);
        const saved = registry.saveFile(this.#caller, name, snapshot, { persistent, rights }, this.requester);
        return this.doneAfter(operation.op, saved);
      }
      case 'file-unlock':
        this.#release(operation.name);
        this.replyDone(operation.op);
        return undefined;
      case 'file-remove':
        registry.removeFile(this.#caller, operation.name);
        this.replyDone(operation.op);
        return undefined;
      case 'file-list':
        this.reply(operation.op, registry.listFiles(this.#caller, operation.prefix));
        return undefined;
    }
  }

  /** Maps an opened file's pages; with `write`, the registry has taken the lock. */
  #open(operation: Operation<'file-open'>, snapshot: PageSnapshot): void {
    const { name, write } = operation;
    if (write) this.#retain(name);
    try {
      this.map(operation, snapshot);
    } catch (cause) {
      if (write) this.#release(name);
      throw cause;
    }
  }

  /** Counts one more holder of the lock. */
  #retain(name: string): void {
    const { space } = this.hostQueue;
    const holdCounts = writeHolds.get(space) ?? new Map<string, number>();
    holdCounts.set(name, (holdCounts.get(name) ?? 0) + 1);
    writeHolds.set(space, holdCounts);
  }

  /** Counts one holder less. Gives the lock back when none is left, or none was counted. */
  #release(name: string): void {
    const holdCounts = writeHolds.get(this.hostQueue.space);
    const remainingHolds = (holdCounts?.get(name) ?? 0) - 1;
    if (remainingHolds > 0) {
      holdCounts?.set(name, remainingHolds);
      return;
    }
    holdCounts?.delete(name);
    this.names.registry.unlockFile(this.#caller, name);
  }

  get #caller(): Caller {
    const { owner, holder } = this.hostQueue.space;
    const functionName = 'functionName' in this.#operation ? this.#operation.functionName : '';
    return { tenant: owner.tenant, inferlet: holder, functionName };
  }

  override visitKeys(visit: KeyVisitor): void {
    if (this.#operation.op === 'file-save') for (const page of this.#operation.pages) visit(pageKey(page), 'read');
  }
}

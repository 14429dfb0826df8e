import type { KeyVisitor } from '../batcher/call.ts';
import type { Caller } from '../memory/registry/rights.ts';
import type { FileOperation } from '../protocol/decode-calls.ts';
import { pageKey } from './call.ts';
import { NamedPagesCall } from './exports.ts';
import type { NamedPages } from './named-pages.ts';
import type { HostQueue } from './space.ts';

/** What the calls of `wit/kv-files.wit` need of the host: names, locks and rights. The rest of a file is pages like all others. */
export class FileCall extends NamedPagesCall {
  readonly #operation: FileOperation;

  constructor(queue: HostQueue, id: number, operation: FileOperation, names: NamedPages) {
    super(queue, id, names);
    this.#operation = operation;
  }

  override execute(): undefined | Promise<void> {
    const { pages } = this.hostQueue.space;
    const { registry, restore } = this.names;
    const operation = this.#operation;
    switch (operation.op) {
      case 'file-open': {
        const { first, name, write } = operation;
        this.map(
          first,
          registry.openFile(this.#caller, name, write, (stored) => restore(pages, stored)),
        );
        return undefined;
      }
      case 'file-save': {
        const { name, persistent, rights } = operation;
        const snapshot = pages.snapshot(operation.pages);
        return this.doneAfter(registry.saveFile(this.#caller, name, snapshot, { persistent, rights }));
      }
      case 'file-unlock':
        registry.unlockFile(this.#caller, operation.name);
        return this.doneAfter(undefined);
      case 'file-remove':
        registry.removeFile(this.#caller, operation.name);
        return this.doneAfter(undefined);
      case 'file-list':
        this.replyList(registry.listFiles(this.#caller, operation.prefix));
        return undefined;
    }
  }

  get #caller(): Caller {
    const { owner } = this.hostQueue.space;
    const functionName = 'functionName' in this.#operation ? this.#operation.functionName : '';
    return { tenant: owner.tenant, inferlet: owner.id, functionName };
  }

  override visitKeys(visit: KeyVisitor): void {
    if (this.#operation.op === 'file-save') for (const page of this.#operation.pages) visit(pageKey(page), 'read');
  }
}

import type { KeyVisitor } from '../../batcher/call.ts';
import { fault } from '../../memory/fault.ts';
import type { Requester } from '../../memory/registry/stored.ts';
import type { PageSnapshot } from '../../memory/space-snapshot.ts';
import type { DoneOperation, ImportOperation, Operation } from '../../protocol/operations.ts';
import { MAX_IMPORT_PAGES } from '../../protocol/wire.ts';
import { InstantCall, pageKey } from './call.ts';
import type { NamedPages } from './named-pages.ts';
import type { HostQueue } from './space.ts';

export type ExportOperation = Operation<'export-pages' | 'import-pages' | 'unexport' | 'list-exports'>;

/** A call about the tenant's named pages (exports and KV files). */
export abstract class NamedPagesCall extends InstantCall {
  protected readonly names: NamedPages;

  constructor(queue: HostQueue, id: number, names: NamedPages) {
    super('instant', queue, id);
    this.names = names;
  }

  /** The call's inferlet as the registry sees it. */
  protected get requester(): Requester<PageSnapshot> {
    return this.requesterWithCheck(checkMappable);
  }

  /** The call's inferlet as the registry sees it. Before memory makes room for pages, `check` gets their number and may throw. */
  protected requesterWithCheck(check: (pages: number) => void): Requester<PageSnapshot> {
    const requester = this.names.requesterOf(this.hostQueue.space);
    return {
      tenant: requester.tenant,
      get hasEnded() {
        return requester.hasEnded;
      },
      whenEnded: (tell) => requester.whenEnded(tell),
      between: (next) => requester.between(next),
      restore(owner, pages) {
        check(pages);
        return requester.restore(owner, pages);
      },
    };
  }

  /** Answers once the save is on disk; at once when nothing is saved. The device and other queues go on meanwhile. */
  protected doneAfter(op: DoneOperation, saved: Promise<void> | undefined): undefined | Promise<void> {
    if (saved) return saved.then(() => this.replyDone(op));
    this.replyDone(op);
    return undefined;
  }

  /** Maps the pages of a snapshot, and answers the call that maps them. @throws CallFault */
  protected map({ op, first }: ImportOperation, snapshot: PageSnapshot): void {
    const { tokens, nextPosition } = snapshot;
    const pages = snapshot.pages.length;
    checkMappable(pages);
    this.hostQueue.space.pages.importSnapshot(first, snapshot);
    this.reply(op, { pages, tokens, nextPosition });
  }

  /** The runtime makes some of these calls to learn where a name is, so by default their errors do not fail the inferlet's queue. */
  protected override get failsQueue(): boolean {
    return false;
  }

  override visitKeys(_visit: KeyVisitor): void {}

  /** Pages that were not mapped have no addresses to mark. */
  protected override poison(): void {}
}

/** @throws CallFault `limit-exceeded` */
export function checkMappable(pages: number): void {
  if (pages > MAX_IMPORT_PAGES)
    throw fault('limit-exceeded', `${pages} pages have the name; ${MAX_IMPORT_PAGES} can be mapped at once`);
}

/** The exports of `wit/allocate.wit`. */
export class ExportCall extends NamedPagesCall {
  readonly #operation: ExportOperation;

  constructor(queue: HostQueue, id: number, operation: ExportOperation, names: NamedPages) {
    super(queue, id, names);
    this.#operation = operation;
  }

  override get claims(): boolean {
    return this.#operation.op === 'import-pages';
  }

  protected override get failsQueue(): boolean {
    return this.#operation.op === 'export-pages';
  }

  override execute(): undefined | Promise<void> {
    const { pages, owner } = this.hostQueue.space;
    const { registry } = this.names;
    const operation = this.#operation;
    switch (operation.op) {
      case 'export-pages': {
        const { name, persistent } = operation;
        const snapshot = pages.snapshot(operation.pages);
        const saved = registry.exportPages(owner.tenant, name, snapshot, persistent, this.requester);
        return this.doneAfter(operation.op, saved);
      }
      case 'import-pages': {
        const map = (snapshot: PageSnapshot) => this.map(operation, snapshot);
        return registry.importPages(owner.tenant, operation.name, this.requester, map) ?? undefined;
      }
      case 'unexport':
        registry.unexport(owner.tenant, operation.name);
        this.replyDone(operation.op);
        return undefined;
      case 'list-exports':
        this.reply(operation.op, registry.listExports(owner.tenant));
        return undefined;
    }
  }

  override visitKeys(visit: KeyVisitor): void {
    if (this.#operation.op === 'export-pages') for (const page of this.#operation.pages) visit(pageKey(page), 'read');
  }
}

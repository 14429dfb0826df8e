import type { KeyVisitor } from '../../batcher/call.ts';
import type { DeviceMemory } from '../../memory/device-memory.ts';
import { fault } from '../../memory/fault.ts';
import type { PageSnapshot } from '../../memory/pool.ts';
import type { Caller, Maker } from '../../memory/registry/entry.ts';
import type { ControlledExport, PageRegistry } from '../../memory/registry/registry.ts';
import type { Requester } from '../../memory/registry/stored.ts';
import type { Copies } from '../../memory/transfers.ts';
import type { Residency, Tier } from '../../protocol/calls.ts';
import type { DoneOperation, ExportControl, ImportOperation, Operation } from '../../protocol/operations.ts';
import { MAX_IMPORT_PAGES } from '../../protocol/wire.ts';
import type { StepGaps } from '../sharing/thread-share.ts';
import { type HostQueue, InstantCall, type ModelSpace, pageKey } from './call.ts';

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

/** The registry of named pages, and the inferlets that it works for. */
export interface NamedPages {
  readonly registry: PageRegistry<PageSnapshot>;
  readonly memory: DeviceMemory;
  /** Copies of other hosts' pages. */
  readonly copies: Copies;
  /** The model, for pages that go from host to host; undefined when the host has no fingerprint of it. */
  readonly maker: Maker | undefined;
  /** The inferlet of a space as the registry sees it: with turns between steps, which it pays for, and a way to bring pages back from disk. */
  requesterOf(space: ModelSpace): Requester<PageSnapshot>;
}

export function namedPages(
  parts: Pick<NamedPages, 'registry' | 'memory' | 'copies' | 'maker'>,
  gaps: StepGaps,
): NamedPages {
  const { memory } = parts;
  return {
    ...parts,
    requesterOf: (space) => ({
      tenant: space.owner.tenant,
      get hasEnded() {
        return space.closed;
      },
      whenEnded: (tell) => {
        space.whenClosed.add(tell);
        return () => space.whenClosed.delete(tell);
      },
      between: (next) => gaps.work(next, space.owner.tenant, space.port.meter),
      restore: (owner, pages) => memory.restore(space.pages, owner, pages),
    }),
  };
}

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

/**
 * Control of where an export's pages are: the calls of `wit/allocate.wit` that pin, retain, prefetch and demote. They move pages between steps and
 * take no frame that an inferlet or another export holds, so they change no token and stop no inferlet.
 */
export class ResidencyCall extends NamedPagesCall {
  readonly #operation: ExportControl;

  constructor(queue: HostQueue, id: number, operation: ExportControl, names: NamedPages) {
    super(queue, id, names);
    this.#operation = operation;
  }

  override get claims(): boolean {
    const { op } = this.#operation;
    return op === 'pin-export' || op === 'prefetch-export';
  }

  override execute(): undefined | Promise<void> {
    const operation = this.#operation;
    const found = this.#find();
    const { snapshots } = this.names.memory;
    switch (operation.op) {
      case 'export-residency':
        return this.#answer();
      case 'unpin-export':
        this.#unpin(found);
        return this.#answer();
      case 'retain-export':
        if (found.snapshot) snapshots.expect(found.snapshot, operation.nextUseMs);
        return this.#answer();
      case 'pin-export': {
        const { leaseMs } = operation;
        // Check the lease first, so that no pages are read from disk in vain.
        snapshots.leases.check(this.hostQueue.space.owner.tenant, found.pages, leaseMs, found.snapshot);
        return this.#bringBack(found, (snapshot) => {
          // The name may have passed to another export while the pages came from disk.
          this.#find().lease = snapshots.leases.grant(snapshot, leaseMs);
        });
      }
      case 'prefetch-export':
        return this.#bringBack(found, () => undefined);
      case 'demote-export':
        return this.#demote(found, operation.tier);
    }
  }

  /** Brings the pages to the device while it has room for them. @param begin called with the snapshot once it is in memory */
  #bringBack(
    found: ControlledExport<PageSnapshot>,
    begin: (snapshot: PageSnapshot) => void,
  ): Promise<void> | undefined {
    const { memory } = this.names;
    const bring = (snapshot: PageSnapshot): Promise<void> | undefined => {
      if (snapshot.pages.every(({ page }) => page.frame >= 0)) return this.#answer();
      return this.#eachPage(snapshot, (at) => memory.bringBack(this.hostQueue.space.pages, at)).then(() => {
        this.#answer();
      });
    };
    const { snapshot } = found;
    if (snapshot) {
      begin(snapshot);
      return bring(snapshot);
    }
    return this.#restore(begin).then(bring);
  }

  /** Brings the export back from disk, into frames that are free or hold cached prefixes only. */
  async #restore(begin: (snapshot: PageSnapshot) => void): Promise<PageSnapshot> {
    const { memory, registry } = this.names;
    const { tenant } = this.hostQueue.space.owner;
    const requester = this.requesterWithCheck((pages) => {
      if (!memory.relief.holdsCalls && pages <= memory.availableTo(tenant)) return;
      throw fault('unavailable', `the device has no free frames for the export's ${pages} pages; try again later`);
    });
    return await registry.importPages(tenant, this.#operation.name, requester, (snapshot) => {
      begin(snapshot);
      return snapshot;
    });
  }

  #demote(found: ControlledExport<PageSnapshot>, tier: Tier): Promise<void> | undefined {
    if (tier === 'device') throw fault('invalid-argument', 'demote moves pages to "memory" or "disk"');
    this.#unpin(found);
    const { snapshot } = found;
    if (!snapshot) return this.#answer();
    if (tier === 'disk') {
      if (found.drop()) return this.#answer();
      throw fault('unsupported', 'only a persistent export whose file is complete can be on disk alone');
    }
    const { memory } = this.names;
    return this.#eachPage(snapshot, (page) => {
      memory.moveOut(this.hostQueue.space.pages, page);
      return true;
    }).then(() => {
      this.#answer();
    });
  }

  /** Moves the pages between device steps, while the export is in memory, until `move` returns false. */
  #eachPage(snapshot: PageSnapshot, move: (page: PageSnapshot['pages'][number]['page']) => boolean): Promise<void> {
    const { snapshots } = this.names.memory;
    const requester = this.names.requesterOf(this.hostQueue.space);
    let next = 0;
    return requester.between(() => {
      const frozen = snapshot.pages[next++];
      if (!frozen || requester.hasEnded || !snapshots.has(snapshot)) return false;
      return move(frozen.page);
    });
  }

  #unpin(found: ControlledExport<PageSnapshot>): void {
    const { snapshot } = found;
    if (snapshot) this.names.memory.snapshots.leases.drop(snapshot);
    found.lease = undefined;
  }

  #find(): ControlledExport<PageSnapshot> {
    return this.names.registry.controlExport(this.hostQueue.space.owner.tenant, this.#operation.name);
  }

  /** Answers with the export's current residency. @throws CallFault `not-found` when the name was removed meanwhile */
  #answer(): undefined {
    const found = this.#find();
    this.reply(this.#operation.op, residencyOf(found, this.names.memory.pageBytes));
    return undefined;
  }
}

function residencyOf({ pages, snapshot, lease }: ControlledExport<PageSnapshot>, pageBytes: number): Residency {
  const counts = { devicePages: 0, memoryPages: 0, diskPages: snapshot ? 0 : pages };
  for (const { page } of snapshot?.pages ?? []) {
    // An empty page may have no frame and no copy in swap. It counts as on the device, because there is nothing to bring back.
    if (page.frame >= 0 || !page.swapped) counts.devicePages++;
    else if (page.swapped.place === 'memory') counts.memoryPages++;
    else counts.diskPages++;
  }
  let tier: Tier = 'device';
  if (counts.diskPages > 0) tier = 'disk';
  else if (counts.memoryPages > 0) tier = 'memory';
  const { leftMs = 0, ended } = lease?.status ?? {};
  return {
    tier,
    ...counts,
    bytes: BigInt(pages * pageBytes),
    leaseMs: Math.ceil(leftMs),
    ...(ended && { leaseEnded: ended }),
  };
}

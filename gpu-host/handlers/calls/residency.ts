import { fault } from '../../memory/fault.ts';
import type { ControlledExport } from '../../memory/registry/registry.ts';
import type { PageSnapshot } from '../../memory/space-snapshot.ts';
import type { Residency, Tier } from '../../protocol/calls.ts';
import type { ExportControl } from '../../protocol/operations.ts';
import { NamedPagesCall } from './exports.ts';
import type { NamedPages } from './named-pages.ts';
import type { HostQueue } from './space.ts';

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

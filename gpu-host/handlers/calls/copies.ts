import type { KeyVisitor } from '../../batcher/call.ts';
import { fault } from '../../memory/fault.ts';
import { type Extent, NO_EXTENT, withPage } from '../../memory/page-records.ts';
import type { Maker } from '../../memory/registry/entry.ts';
import {
  checkOpen,
  fillPages,
  onceBetween,
  type PageSource,
  type Requester,
  type Restoration,
} from '../../memory/registry/stored.ts';
import type { PageSnapshot } from '../../memory/space-snapshot.ts';
import type { Copy } from '../../memory/transfers.ts';
import type { Operation } from '../../protocol/operations.ts';
import { PIECE_BYTES } from '../../protocol/wire.ts';
import { pageKey } from './call.ts';
import { Arrival, arrivalsOf, Sending, sendingsOf } from './carried.ts';
import { checkMappable, NamedPagesCall } from './exports.ts';
import type { NamedPages } from './named-pages.ts';
import type { HostQueue } from './space.ts';

type SendOperation = Operation<'name-version' | 'send-begin' | 'send-piece' | 'send-end'>;
type CopyOperation = Operation<'copy-begin' | 'copy-piece' | 'copy-end' | 'copy-drop' | 'copy-map'>;

/** Maximum characters of a version, which names the pages of one save. */
const MAX_VERSION_LENGTH = 64;

/** A call about pages that go to or come from another host. */
abstract class CarryCall extends NamedPagesCall {
  /** The model that makes this host's pages. @throws CallFault `unsupported` on a host without a directory for persistent pages */
  protected get maker(): Maker {
    const { maker } = this.names;
    if (maker) return maker;
    throw fault('unsupported', 'this GPU host has no directory for persistent pages, so it exchanges none with others');
  }
}

/** The calls by which a runtime reads the tenant's pages for another host. */
export class SendCall extends CarryCall {
  readonly #operation: SendOperation;

  constructor(queue: HostQueue, id: number, operation: SendOperation, names: NamedPages) {
    super(queue, id, names);
    this.#operation = operation;
  }

  override execute(): undefined | Promise<void> {
    const { space } = this.hostQueue;
    const operation = this.#operation;
    switch (operation.op) {
      case 'name-version':
        this.reply(operation.op, { version: this.#version(operation) });
        return undefined;
      case 'send-begin': {
        const { fingerprint, pageSize, pageBytes } = this.maker;
        const { number, item } = sendingsOf(space, this.names.copies).add(
          () => new Sending(space.pages.snapshot(operation.pages), this.names.memory, { pageSize, pageBytes }),
        );
        const pages = operation.pages.length;
        const layout = { fingerprint: fingerprint.hash, pageSize, pageBytes };
        this.reply(operation.op, { sending: number, pages, bytes: item.bytes, ...layout });
        return undefined;
      }
      case 'send-piece':
        return this.#send(sendingsOf(space, this.names.copies).get(operation.sending));
      case 'send-end': {
        const checksum = sendingsOf(space, this.names.copies).get(operation.sending).checksum();
        sendingsOf(space, this.names.copies).drop(operation.sending);
        this.reply(operation.op, checksum);
        return undefined;
      }
    }
  }

  async #send(sending: Sending): Promise<void> {
    const piece = await sending.next(this.requester);
    this.reply('send-piece', piece);
  }

  #version({ file, name, functionName }: Operation<'name-version'>): string {
    const { owner, holder } = this.hostQueue.space;
    const { tenant } = owner;
    const { registry } = this.names;
    return file
      ? registry.fileVersion({ tenant, inferlet: holder, functionName }, name)
      : registry.exportVersion(tenant, name);
  }

  override visitKeys(visit: KeyVisitor): void {
    if (this.#operation.op === 'send-begin') for (const page of this.#operation.pages) visit(pageKey(page), 'read');
  }
}

/** The calls by which a runtime writes pages of another host into a copy on this host, and maps the pages of the copy. */
export class CopyCall extends CarryCall {
  readonly #operation: CopyOperation;

  constructor(queue: HostQueue, id: number, operation: CopyOperation, names: NamedPages) {
    super(queue, id, names);
    this.#operation = operation;
  }

  override get claims(): boolean {
    return this.#operation.op === 'copy-map';
  }

  override execute(): undefined | Promise<void> {
    const { space } = this.hostQueue;
    const arrivals = arrivalsOf(space, this.names.copies);
    const operation = this.#operation;
    switch (operation.op) {
      case 'copy-begin':
        this.reply(operation.op, this.#begin(operation));
        return undefined;
      case 'copy-piece':
        arrivals.get(operation.copy).take(operation.bytes);
        this.replyDone(operation.op);
        return undefined;
      case 'copy-end':
        try {
          arrivals.get(operation.copy).keep(operation.checksum);
        } finally {
          arrivals.drop(operation.copy);
        }
        this.replyDone(operation.op);
        return undefined;
      case 'copy-drop':
        arrivals.drop(operation.copy);
        this.replyDone(operation.op);
        return undefined;
      case 'copy-map':
        return this.#map(operation);
    }
  }

  #begin({ version, pages, fingerprint, pageSize, pageBytes }: Operation<'copy-begin'>): number {
    const { maker } = this;
    if (fingerprint !== maker.fingerprint.hash || pageSize !== maker.pageSize || pageBytes !== maker.pageBytes) {
      const theirModel = `fingerprint ${fingerprint.slice(0, 12)}, ${pageBytes} bytes a page of ${pageSize}`;
      const ourModel = `${maker.fingerprint.name}, fingerprint ${maker.fingerprint.hash.slice(0, 12)}, ${maker.pageBytes} bytes a page of ${maker.pageSize}`;
      throw fault(
        'invalid-argument',
        `another model made these pages on another GPU host: ${theirModel}; this is ${ourModel}. Serve the same model with the same settings on all GPU hosts`,
      );
    }
    if (version.length === 0 || version.length > MAX_VERSION_LENGTH) {
      throw fault('invalid-argument', `a version has 1 to ${MAX_VERSION_LENGTH} characters`);
    }
    checkMappable(pages);
    const { space } = this.hostQueue;
    const layout = { pageSize, pageBytes };
    return arrivalsOf(space, this.names.copies).add(
      () => new Arrival(space.owner.tenant, version, pages, layout, this.names.copies),
    ).number;
  }

  #map(operation: Operation<'copy-map'>): Promise<void> {
    const { version } = operation;
    const copy = this.names.copies.find(this.hostQueue.space.owner.tenant, version);
    if (!copy) throw fault('not-found', 'this GPU host keeps no copy of this version');
    const { requester } = this;
    const restoration = requester.restore(requester.tenant, copy.records.pages);
    return this.#fill(operation, copy, requester, restoration);
  }

  /**
   * Returns `extent`. If it is the reason why a page does not fit the layout instead, drops the copy.
   * @throws CallFault `invalid-argument` with that reason
   */
  #checked(extent: Extent | string, version: string): Extent {
    if (typeof extent !== 'string') return extent;
    this.names.copies.drop(this.hostQueue.space.owner.tenant, version);
    throw fault('invalid-argument', `the other GPU host sent no pages: ${extent}`);
  }

  async #fill(
    operation: Operation<'copy-map'>,
    { records }: Copy,
    requester: Requester<PageSnapshot>,
    restoration: Restoration<PageSnapshot>,
  ): Promise<void> {
    try {
      const { snapshots } = this.names.memory;
      const { layout } = records;
      let extent = NO_EXTENT;
      const source: PageSource = {
        pages: records.pages,
        pageBytes: layout.pageBytes,
        pageAt: (index) => {
          const page = records.pageAt(index);
          extent = this.#checked(withPage(extent, page, layout), operation.version);
          return page;
        },
        readPages: (from, into) => records.readPages(from, into),
      };
      await fillPages(source, restoration, requester, { memory: snapshots, bufferBytes: PIECE_BYTES });
      await onceBetween(requester, () => {
        checkOpen(requester);
        const snapshot = restoration.finish(extent.tokens, extent.nextPosition);
        try {
          this.map(operation, snapshot);
        } finally {
          restoration.end();
          snapshots.release(snapshot);
        }
      });
    } finally {
      restoration.end();
    }
  }
}

import type { Distribution, FileInfo, FileRights, Imported } from '#gpu-host/protocol/calls.ts';
import { err, type HandlerError, handlerError, type Outcome, ok, refuseName } from '#gpu-host/protocol/errors.ts';
import type { Access, Rights } from '#wit/generated/host.ts';
import type { DeviceQueue } from '../device/queue.ts';
import type { Droppable } from '../session/holdings.ts';
import type { Inferlet } from '../session/inferlet.ts';
import { makeDurable } from './durable-names.ts';
import { type Brought, bring, listNames, noteSave, removeName, saveAtOwner } from './named-pages.ts';
import type { OtherSide, Side } from './other-hosts.ts';

/** Implements `wit/kv-files.wit`. */
export const kvFiles = {
  '[constructor]file': (inferlet: Inferlet, queue: DeviceQueue, name: string | undefined, access: Access): KvFile =>
    KvFile.open(inferlet, queue, name, access === 'write'),
  '[method]file.ready': (_inferlet: Inferlet, self: KvFile): Promise<Outcome<undefined>> => self.ready(),
  '[method]file.tokens': (_inferlet: Inferlet, self: KvFile): number => self.tokens,
  '[method]file.next-position': (_inferlet: Inferlet, self: KvFile): number => self.nextPosition,
  '[method]file.pages': (_inferlet: Inferlet, self: KvFile): Uint32Array => self.pages,
  '[method]file.reserve': (_inferlet: Inferlet, self: KvFile, tokens: number): Outcome<Uint32Array> =>
    self.reserve(tokens),
  '[method]file.filled': (_inferlet: Inferlet, self: KvFile, tokens: number, nextPosition: number): void =>
    self.filled(tokens, nextPosition),
  '[method]file.pred': (
    _inferlet: Inferlet,
    self: KvFile,
    tokens: Uint32Array,
    positions: Uint32Array,
    topK: number,
  ): Promise<Outcome<readonly Distribution[]>> => self.pred(tokens, positions, topK),
  '[method]file.fork': (_inferlet: Inferlet, self: KvFile): KvFile => self.fork(),
  '[method]file.extract': (
    _inferlet: Inferlet,
    self: KvFile,
    indices: Uint32Array,
    renumber: number | undefined,
  ): KvFile => self.extract(indices, renumber),
  '[method]file.merge': (
    _inferlet: Inferlet,
    self: KvFile,
    other: KvFile,
    keepPositions: boolean,
  ): Promise<Outcome<undefined>> => self.merge(other, keepPositions),
  '[method]file.save': (
    _inferlet: Inferlet,
    self: KvFile,
    name: string,
    persistent: boolean,
    rights: Rights,
  ): Promise<Outcome<undefined>> => self.save(name, persistent, rights),
  '[method]file.unlock': (_inferlet: Inferlet, self: KvFile): void => self.unlock(),
  '[resource-drop]file': (_inferlet: Inferlet, self: KvFile): void => self.drop(),

  remove: (inferlet: Inferlet, queue: DeviceQueue, name: string): Promise<Outcome<undefined>> => {
    const refused = refuseName(name);
    if (refused) return Promise.resolve(err(refused));
    const offered = queue.offering('kv-files');
    if (offered.tag === 'err') return Promise.resolve(offered);
    const { functionName } = inferlet.description;
    const call = { op: 'file-remove', name, functionName } as const;
    return removeName({ inferlet, queue, kind: 'file', name }, (side) => side.device.ask(side.queue, call));
  },
  'make-durable': (inferlet: Inferlet, queue: DeviceQueue, name: string): Promise<Outcome<undefined>> => {
    const refused = refuseName(name);
    if (refused) return Promise.resolve(err(refused));
    const offered = queue.offering('kv-files');
    if (offered.tag === 'err') return Promise.resolve(offered);
    const { functionName } = inferlet.description;
    return makeDurable({ inferlet, queue, kind: 'file', name }, (side) =>
      side.device.openFile(side.queue, name, false, functionName),
    );
  },
  files: (inferlet: Inferlet, queue: DeviceQueue, prefix: string): Promise<Outcome<readonly FileInfo[]>> => {
    const offered = queue.offering('kv-files');
    if (offered.tag === 'err') return Promise.resolve(offered);
    // A prefix that is not a valid name begins no valid name.
    if (prefix !== '' && refuseName(prefix)) return Promise.resolve(ok([]));
    const { functionName } = inferlet.description;
    const call = { op: 'file-list', prefix, functionName } as const;
    return listNames(
      { inferlet, queue, kind: 'file' },
      (side) => side.device.ask(side.queue, call),
      (name, { tokens, nextPosition, access }) =>
        access && name.startsWith(prefix)
          ? { name, tokens, nextPosition, persistent: true, rights: access.rights, owner: access.owner, locked: false }
          : null,
    );
  },
};

/** Initial content of a file: pages that the inferlet owns, and their tokens. */
type Content = Imported;

const EMPTY: Content = { pages: new Uint32Array(0), tokens: 0, nextPosition: 0 };

/**
 * The host's side of a `file` resource: pages of the inferlet, whose slots fill in order without gaps, and perhaps the lock of a name.
 * The file issues its calls on its queue at once; `merge` first waits for the other file's queue if that is another one. Asynchronous calls
 * wait while the file opens, and count among the inferlet's calls under way (`outgoing`); a waiting `fork` counts only as a file.
 */
export class KvFile implements Droppable {
  readonly #inferlet: Inferlet;
  readonly queue: DeviceQueue;
  /** Completes when the pages are known. */
  readonly #opening: Promise<Outcome<undefined>>;
  /** The outcome of `#opening` once it has completed; null before. */
  #opened: Outcome<undefined> | null = null;
  #pages: Uint32Array = EMPTY.pages;
  #tokens = 0;
  #nextPosition = 0;
  /** Number of leading pages that `#trim` must not free: those of the first content, of successful calls, and of `reserve`. */
  #keptPageCount = 0;
  /** Number of issued calls that append tokens and have not ended. */
  #appendingCount = 0;
  /** The lock that the file holds: its name, and the GPU host `at` which it is kept. `elsewhere` is `at` again if the queue runs on another host. */
  #lock: { readonly name: string; readonly at: Side; readonly elsewhere: OtherSide | undefined } | null = null;
  /** True after `unlock`: a file that is still opening then gives the lock back as soon as it gets it. */
  #isUnlockRequested = false;
  #dropped = false;

  /**
   * @param make returns a promise only when the file cannot open at once: a GPU host must answer, or another file must open first
   * @param lockName name whose lock the file holds once it is open; null for none
   */
  private constructor(
    inferlet: Inferlet,
    queue: DeviceQueue,
    make: () => Outcome<Content> | Promise<Outcome<Content>>,
    lockName: string | null,
  ) {
    this.#inferlet = inferlet;
    this.queue = queue;
    queue.retain();
    const refused = inferlet.files.take(this);
    const content = refused ? err(refused) : make();
    if (content instanceof Promise) this.#opening = content.then((outcome) => this.#open(outcome, lockName));
    else this.#opening = Promise.resolve(this.#open(content, lockName));
  }

  /** `[constructor]file`. */
  static open(inferlet: Inferlet, queue: DeviceQueue, name: string | undefined, write: boolean): KvFile {
    const make = (): Outcome<Content> | Promise<Outcome<Content>> => {
      const refused = name === undefined ? null : refuseName(name);
      if (refused) return err(refused);
      const offered = queue.offering('kv-files');
      if (offered.tag === 'err') return offered;
      if (name === undefined) return ok(EMPTY);
      const { functionName } = inferlet.description;
      return bring({ inferlet, queue, kind: 'file', name }, write, (side) =>
        side.device.openFile(side.queue, name, write, functionName),
      );
    };
    return new KvFile(inferlet, queue, make, write && name !== undefined ? name : null);
  }

  get tokens(): number {
    return this.#tokens;
  }

  get nextPosition(): number {
    return this.#nextPosition;
  }

  get pages(): Uint32Array {
    return this.#pages;
  }

  ready(): Promise<Outcome<undefined>> {
    return this.#opening;
  }

  /** The file's pages, with room for `tokens` more. */
  reserve(tokens: number): Outcome<Uint32Array> {
    const pages = this.#reserve(tokens);
    if (pages.tag === 'ok') this.#keptPageCount = pages.val.length;
    return pages;
  }

  /** Like `reserve`, for a call of the file itself: if the call fails, `#trim` frees the added pages. */
  #reserve(tokens: number): Outcome<Uint32Array> {
    const refusal = this.#refusal();
    if (refusal) return err(refusal);
    const missingPageCount = Math.ceil((this.#tokens + tokens) / this.#pageSize) - this.#pages.length;
    if (missingPageCount > 0) {
      const fresh = this.#allocate(missingPageCount);
      if (fresh.tag === 'err') return fresh;
      this.#pages = concat(this.#pages, fresh.val);
    }
    return ok(this.#pages);
  }

  /** Adds tokens that other calls wrote into the file's slots. */
  filled(tokens: number, nextPosition: number): void {
    this.#tokens = Math.min(this.#tokens + tokens, this.#pages.length * this.#pageSize);
    this.#nextPosition = Math.max(this.#nextPosition, nextPosition);
  }

  /** Computes and appends tokens. Lists may be views of the guest's memory. */
  pred(tokens: Uint32Array, positions: Uint32Array, topK: number): Promise<Outcome<readonly Distribution[]>> {
    const refused = this.#inferlet.refuseTokens();
    if (refused) return Promise.resolve(err(refused));
    if (positions.length !== tokens.length) {
      const text = `${tokens.length} tokens and ${positions.length} positions; they go together`;
      return Promise.resolve(err(handlerError('invalid-argument', text)));
    }
    const tooMany = this.#refuseCount(tokens.length);
    if (tooMany) return Promise.resolve(err(tooMany));
    if (this.#opened) return this.#pred(tokens, positions, topK);
    return this.#inferlet.outgoing.during(tokens.byteLength + positions.byteLength, () => {
      const [ownTokens, ownPositions] = [tokens.slice(), positions.slice()];
      return this.#whenOpen(() => {
        // Ask again: calls that waited for the file, too, have counted their tokens since.
        const lateRefusal = this.#inferlet.refuseTokens();
        return lateRefusal ? err(lateRefusal) : this.#pred(ownTokens, ownPositions, topK);
      });
    });
  }

  fork(): KvFile {
    return this.#derive((device) => {
      if (this.#pages.length === 0) return ok(EMPTY);
      const shared = device.sharePages(this.queue.id, this.#pages);
      if (shared.tag === 'err') return shared;
      return ok({ pages: shared.val, tokens: this.#tokens, nextPosition: this.#nextPosition });
    });
  }

  /** `indices` may be a view of the guest's memory. */
  extract(indices: Uint32Array, firstPosition: number | undefined): KvFile {
    // Refuse before copying: the list may be as long as the guest's memory.
    const { outgoing } = this.#inferlet;
    // An open file sends the list at once. One that is still opening sends it later, and needs a copy.
    const bytes = this.#opened ? 0 : indices.byteLength;
    const refused = this.#refuseCount(indices.length) ?? (bytes > 0 ? outgoing.refusal(bytes) : null);
    if (refused) return this.#derive(() => err(refused));
    const usedIndices = bytes > 0 ? indices.slice() : indices;
    if (bytes > 0) {
      outgoing.begin(bytes);
      void this.#opening.then(() => outgoing.end(bytes));
    }
    return this.#derive((device) => {
      for (const index of usedIndices) {
        if (index < this.#tokens) continue;
        return err(handlerError('invalid-argument', `the file has ${this.#tokens} tokens, and none at ${index}`));
      }
      const pages = this.#allocate(Math.ceil(usedIndices.length / this.#pageSize));
      if (pages.tag === 'err') return pages;
      const positions = firstPosition === undefined ? KEEP : range(firstPosition, usedIndices.length);
      const call = {
        op: 'copy-tokens',
        sources: this.#pages,
        indices: usedIndices,
        destinations: pages.val,
        positions,
      } as const;
      device.send(this.queue.id, call);
      const nextPosition = firstPosition === undefined ? this.#nextPosition : firstPosition + usedIndices.length;
      const content: Content = { pages: pages.val, tokens: usedIndices.length, nextPosition };
      // The copy may fail on the device, so wait for its outcome.
      return this.queue.settle().then((outcome) => {
        if (outcome.tag === 'ok') return ok(content);
        if (content.pages.length > 0) device.freePages(this.queue.id, content.pages);
        return outcome;
      });
    });
  }

  merge(other: KvFile, keepPositions: boolean): Promise<Outcome<undefined>> {
    if (this.#opened && other.#opened) return this.#merge(other, keepPositions);
    return this.#inferlet.outgoing.during(0, () => this.#merge(other, keepPositions));
  }

  async #merge(other: KvFile, keepPositions: boolean): Promise<Outcome<undefined>> {
    const hasWaited = !this.#opened || !other.#opened || other.queue !== this.queue;
    const [mine, theirs] = [this.#opened ?? (await this.#opening), other.#opened ?? (await other.#opening)];
    if (mine.tag === 'err') return mine;
    if (theirs.tag === 'err') return theirs;
    if (other.queue.name !== this.queue.name) {
      const text = `a file of ${other.queue.name} cannot be merged into one of ${this.queue.name}`;
      return err(handlerError('invalid-argument', text));
    }
    // Wait for the other queue: calls on different queues have no order.
    if (other.queue !== this.queue) {
      const settled = await other.queue.settle();
      if (settled.tag === 'err') return settled;
    }
    const merge = () => this.#mergeNow(other, keepPositions);
    return hasWaited ? this.#runCharged(merge) : merge();
  }

  async #mergeNow(other: KvFile, keepPositions: boolean): Promise<Outcome<undefined>> {
    if (this.#dropped || other.#dropped) return err(handlerError('closed', 'the file was dropped'));
    const { device, id } = this.queue;
    const addedTokens = other.#tokens;
    const reserved = this.#reserve(addedTokens);
    if (reserved.tag === 'err') return reserved;
    const first = this.#nextPosition;
    const positions = keepPositions ? KEEP : range(first, addedTokens);
    const writtenPages = reserved.val.subarray(Math.floor(this.#tokens / this.#pageSize));
    const indices = range(0, addedTokens);
    device?.send(id, { op: 'copy-tokens', sources: other.#pages, indices, destinations: writtenPages, positions });
    return this.#append(addedTokens, keepPositions ? other.#nextPosition : first + addedTokens, this.queue.settle());
  }

  save(name: string, persistent: boolean, rights: FileRights): Promise<Outcome<undefined>> {
    const refused = refuseName(name);
    if (refused) return Promise.resolve(err(refused));
    if (this.#opened) return this.#save(name, persistent, rights);
    const bytes = Buffer.byteLength(name);
    return this.#inferlet.outgoing.during(bytes, () => this.#whenOpen(() => this.#save(name, persistent, rights)));
  }

  async #save(name: string, persistent: boolean, rights: FileRights): Promise<Outcome<undefined>> {
    const refusal = this.#refusal();
    const { device, id } = this.queue;
    if (refusal || !device) return refusal ? err(refusal) : this.queue.refusal();
    const inferlet = this.#inferlet;
    const { queue } = this;
    const { functionName } = inferlet.description;
    const usedName = { inferlet, queue, kind: 'file', name } as const;
    const call = { op: 'file-save', name, persistent, rights, functionName } as const;
    const owner = this.#lock?.name === name ? this.#lock.elsewhere : undefined;
    if (owner) {
      return saveAtOwner(usedName, this.#pages, owner, persistent, (pages) =>
        owner.device.ask(owner.queue, { ...call, pages }),
      );
    }
    const saved = device.ask(id, { ...call, pages: this.#pages });
    const undo = (side: Side) => side.device.ask(side.queue, { op: 'file-remove', name, functionName } as const);
    return noteSave(usedName, persistent, saved, undo, this.#lock?.name === name);
  }

  /** Gives the lock back: at once, or as soon as the file is open and has the lock. */
  unlock(): void {
    this.#isUnlockRequested = true;
    if (this.#lock === null) return;
    const { name, at } = this.#lock;
    // Ignore the outcome: the lock may be gone already.
    void at.device.ask(at.queue, { op: 'file-unlock', name });
    this.#lock = null;
  }

  drop(): void {
    if (this.#dropped) return;
    this.#dropped = true;
    this.#inferlet.files.give(this);
    if (this.#opened) this.#close();
    else void this.#opening.then(() => this.#close());
  }

  #close(): void {
    this.unlock();
    if (this.#pages.length > 0) this.queue.device?.freePages(this.queue.id, this.#pages);
    this.#pages = EMPTY.pages;
    this.queue.release();
  }

  #open(opened: Outcome<Content | Brought>, lockName: string | null): Outcome<undefined> {
    if (opened.tag === 'ok') {
      this.#pages = opened.val.pages;
      this.#tokens = opened.val.tokens;
      this.#nextPosition = opened.val.nextPosition;
      this.#keptPageCount = opened.val.pages.length;
      const { device, id } = this.queue;
      const elsewhere = 'owner' in opened.val ? opened.val.owner : undefined;
      const at = elsewhere ?? (device ? { device, queue: id } : undefined);
      this.#lock = lockName !== null && at ? { name: lockName, at, elsewhere } : null;
      if (this.#isUnlockRequested) this.unlock();
      this.#inferlet.observePages(this.queue);
    }
    this.#opened = opened.tag === 'ok' ? ok(undefined) : opened;
    return this.#opened;
  }

  /** Makes an unnamed file from this one, as soon as this one is open. */
  #derive(make: (device: NonNullable<DeviceQueue['device']>) => Outcome<Content> | Promise<Outcome<Content>>): KvFile {
    const begin = (): Outcome<Content> | Promise<Outcome<Content>> => {
      const refusal = this.#refusal();
      const { device } = this.queue;
      if (refusal || !device) return refusal ? err(refusal) : this.queue.refusal();
      return make(device);
    };
    return new KvFile(this.#inferlet, this.queue, this.#opened ? begin : () => this.#whenOpen(begin), null);
  }

  /** Makes a call once the file is open. */
  #whenOpen<T>(call: () => T | Promise<T>): Promise<T> {
    return this.#opening.then(() => this.#runCharged(call));
  }

  /** Charges the inferlet for the thread's time of a call that waited: it runs after the guest's own call, and only that one is measured. */
  #runCharged<T>(call: () => T): T {
    const startMs = performance.now();
    const outcome = call();
    this.#inferlet.hooks.cpu.charge(performance.now() - startMs);
    return outcome;
  }

  async #pred(tokens: Uint32Array, positions: Uint32Array, topK: number): Promise<Outcome<readonly Distribution[]>> {
    const pages = this.#reserve(tokens.length);
    const { device, id } = this.queue;
    if (pages.tag === 'err') return pages;
    if (!device) return this.queue.refusal();
    const filledPages = Math.ceil(this.#tokens / this.#pageSize);
    const request = {
      tokens,
      positions,
      inPages: pages.val.subarray(0, filledPages),
      outPages: pages.val.subarray(Math.floor(this.#tokens / this.#pageSize)),
      mask: undefined,
      rows: tokens.length,
      output: { tag: 'distributions', val: topK } as const,
    };
    let nextPosition = 0;
    for (const position of positions) nextPosition = Math.max(nextPosition, position + 1);
    const step = this.#inferlet.hooks.steps?.begin(this.queue, tokens.length, true);
    // Each token counts twice: as an input, and as an output for its distribution.
    const issued = this.#inferlet.countDuring({ inputs: tokens.length, outputs: tokens.length, cacheable: 0 }, () =>
      device.ask(id, { op: 'step', request }),
    );
    const outcome = await this.#append(tokens.length, nextPosition, step ? step.until(issued) : issued);
    return outcome.tag === 'ok' ? ok(outcome.val.distributions) : outcome;
  }

  /** Counts the tokens of an issued call, so that the next call writes after them; subtracts them when the call fails. */
  async #append<T>(tokens: number, nextPosition: number, issued: Promise<Outcome<T>>): Promise<Outcome<T>> {
    const positionBefore = this.#nextPosition;
    const pageCount = this.#pages.length;
    this.filled(tokens, nextPosition);
    const positionAfter = this.#nextPosition;
    this.#appendingCount++;
    const outcome = await issued;
    this.#appendingCount--;
    if (outcome.tag === 'err') {
      this.#tokens = Math.max(0, this.#tokens - tokens);
      // A later call may have moved the position on.
      if (this.#nextPosition === positionAfter) this.#nextPosition = positionBefore;
    } else {
      this.#keptPageCount = Math.max(this.#keptPageCount, pageCount);
    }
    if (this.#appendingCount === 0) this.#trim();
    return outcome;
  }

  /** Frees the pages that failed calls have added: a page whose allocation failed on the device would make every later call on the file fail. */
  #trim(): void {
    const keptCount = Math.max(this.#keptPageCount, Math.ceil(this.#tokens / this.#pageSize));
    const addedPages = this.#pages.subarray(keptCount);
    if (addedPages.length === 0) return;
    this.#pages = this.#pages.slice(0, keptCount);
    this.queue.device?.freePages(this.queue.id, addedPages);
  }

  /** The error for a list of tokens that the invocation's pages can never hold; null for a shorter list. */
  #refuseCount(tokens: number): HandlerError | null {
    const { pages } = this.#inferlet.description.limits;
    // Every call on a queue without a model fails with its own error.
    if (!this.queue.model || tokens <= pages * this.#pageSize) return null;
    return handlerError(
      'limit-exceeded',
      `${tokens} tokens; the invocation's ${pages} pages (manifest: limits.pages) hold fewer`,
    );
  }

  #allocate(count: number): Outcome<Uint32Array> {
    const { device, id } = this.queue;
    if (!device) return this.queue.refusal();
    if (count === 0) return ok(EMPTY.pages);
    const outcome = device.allocatePages(id, count);
    this.#inferlet.observePages(this.queue);
    return outcome;
  }

  /** Tokens per page; 1 on a queue without a model, where every call fails. */
  get #pageSize(): number {
    return this.queue.model?.summary.pageSize ?? 1;
  }

  /** The error of a file that is not open, or null. */
  #refusal(): HandlerError | null {
    if (!this.#opened) return OPENING;
    return this.#opened.tag === 'err' ? this.#opened.val : null;
  }
}

/** The `positions` argument of `copy-tokens` that keeps the tokens' positions. */
const KEEP = new Uint32Array(0);
const OPENING = handlerError('unavailable', 'the file is not open yet: await ready first');

/** `[first, first + 1, …]`. */
function range(first: number, length: number): Uint32Array {
  const list = new Uint32Array(length);
  for (let i = 0; i < length; i++) list[i] = first + i;
  return list;
}

function concat(left: Uint32Array, right: Uint32Array): Uint32Array {
  const joined = new Uint32Array(left.length + right.length);
  joined.set(left);
  joined.set(right, left.length);
  return joined;
}

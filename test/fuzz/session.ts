import type { PagesMaker } from '#gpu-host/protocol/calls.ts';
import { PageLists } from '#gpu-host/protocol/fields.ts';
import type { FrameWriter } from '#gpu-host/protocol/frames.ts';
import { type ExportControl, encodeCall, type Operation } from '#gpu-host/protocol/operations.ts';
import { RIGHTS_CASES, TIER_CASES } from '#wit/generated/host.ts';
import type { Random } from '../harness/random.ts';
import { hostileWord, limit, list, logitChanges, mask, sampler, stepOutput, text, word } from './hostile.ts';
import { hostileCopies } from './hostile-copies.ts';
import { hostileImage, hostileTexts } from './hostile-inputs.ts';
import { type Addresses, emptySpace, grow, type Space } from './space.ts';

interface OpenQueue {
  readonly queue: number;
  readonly space: Space;
}

const TENANTS = ['attacker', 'attacker-2'];
/** Adapters; no model has the last one. */
const ADAPTERS = ['one', 'two', 'none'];
const NAMES = ['a', 'b', 'some/name', 'system/shared'];
const MAX_QUEUES = 6;
const PAGE_SIZE = 8;

/**
 * Makes the calls of one hostile runtime. Each call is readable, names an open inferlet and queue, and has right, nearly right or absurd arguments.
 */
export class HostileSession {
  readonly #random: Random;
  readonly #makers: readonly PagesMaker[];
  readonly #vocabularySize: number;
  readonly #pageLists = new PageLists();
  #queues: OpenQueue[] = [];
  /** Space of the call that the session is writing. */
  #space: Space = emptySpace(0, 0);
  #runs: number[] = [];
  #lastHandle = 0;
  #lastQueue = 0;
  #lastId = 0;

  /** @param makers for each model of the host, the fingerprint and the sizes of its pages */
  constructor(random: Random, makers: readonly PagesMaker[], vocabularySize: number) {
    this.#random = random;
    this.#makers = makers;
    this.#vocabularySize = vocabularySize;
  }

  /** Writes the calls of one frame. */
  write(writer: FrameWriter): void {
    if (this.#queues.length === 0) this.#open(writer);
    for (let calls = 1 + this.#random.below(3); calls > 0 && this.#queues.length > 0; calls--) this.#call(writer);
  }

  #open(writer: FrameWriter): void {
    const random = this.#random;
    const inferlet = ++this.#lastHandle;
    const family = random.pick(['', 'fuzz', 'fuzz', text(random, 'family')]);
    this.#put(writer, inferlet, 0, 0, {
      op: 'open-inferlet',
      name: text(random, random.once(10) ? 'again' : `hostile ${inferlet}`),
      epoch: random.below(3),
      tenant: random.pick(TENANTS),
      maxPages: word(random, 16),
      maxPriority: word(random, 10),
      firstTokenMs: random.once(3) ? word(random, 100) : 0,
      perTokenMs: word(random, 20),
      arrival: word(random, 1 + random.below(1000)),
      family,
      // Mostly one epoch for the family: its inferlets of an older epoch can do nothing.
      familyEpoch: family !== 'fuzz' && random.once(10) ? random.below(3) : 1,
      familyPages: word(random, 24),
      tenantPages: limit(random),
      functionName: text(random, 'function'),
      traceparent: text(random, ''),
    });
    for (let queues = 1 + random.below(2); queues > 0; queues--) this.#openQueue(writer, inferlet);
  }

  /** Opens a queue, often with some memory. */
  #openQueue(writer: FrameWriter, inferlet: number): void {
    const queue = ++this.#lastQueue;
    const model = this.#random.below(this.#makers.length);
    this.#put(writer, inferlet, queue, 0, { op: 'create-queue', model });
    const sibling = this.#queues.find(({ space }) => space.inferlet === inferlet && space.model === model);
    const space = sibling?.space ?? emptySpace(inferlet, model);
    this.#queues.push({ queue, space });
    if (this.#random.once(2)) return;
    for (const [op, addresses] of [
      ['allocate-pages', space.pages],
      ['allocate-embeds', space.embeds],
    ] as const) {
      this.#put(writer, inferlet, queue, 0, { op, first: addresses.next, count: 4 });
      grow(addresses, 4);
    }
  }

  #call(writer: FrameWriter): void {
    const random = this.#random;
    const { queue, space } = random.pick(this.#queues);
    const { inferlet } = space;
    this.#space = space;
    const id = random.once(5) ? 0 : ++this.#lastId;
    switch (random.below(34)) {
      case 0:
        this.#close(writer, inferlet, queue, id);
        return;
      case 1:
        if (this.#queues.length < MAX_QUEUES) {
          if (random.once(2)) this.#open(writer);
          else this.#openQueue(writer, inferlet);
        }
        return;
      case 2:
        if (random.once(2))
          this.#put(writer, inferlet, queue, 0, { op: 'set-depth', depth: word(random, random.below(20)) });
        else if (random.once(9)) this.#put(writer, inferlet, queue, 0, { op: 'stop-queue' });
        else this.#put(writer, inferlet, queue, 0, { op: 'set-priority', priority: word(random, random.below(20)) });
        return;
      case 3:
        if (random.once(3)) this.#put(writer, inferlet, 0, 0, { op: 'set-tenant-limit', tenantPages: limit(random) });
        else if (random.once(4))
          this.#put(writer, inferlet, 0, 0, { op: 'set-span', high: random.u32(), low: random.u32() });
        else this.#put(writer, inferlet, 0, 0, { op: 'set-waiting', waiting: random.once(2) });
        return;
      case 4:
      case 5:
        this.#allocate(writer, 'allocate-pages', inferlet, queue, id, this.#space.pages);
        return;
      case 6:
        this.#allocate(writer, 'allocate-embeds', inferlet, queue, id, this.#space.embeds);
        return;
      case 7:
        this.#put(writer, inferlet, queue, 0, { op: 'free-pages', pages: list(random, 3, this.#page) });
        return;
      case 8:
        this.#put(writer, inferlet, queue, 0, { op: 'free-embeds', embeds: list(random, 3, this.#embed) });
        return;
      case 9: {
        const first = word(random, this.#space.pages.next);
        const pages = list(random, 4, this.#page);
        grow(this.#space.pages, Math.min(pages.length, 8));
        this.#put(writer, inferlet, queue, 0, { op: 'share-pages', first, pages });
        return;
      }
      case 10: {
        const slot = () => word(random, random.below(PAGE_SIZE));
        const shift = random.once(2) ? 0 : hostileWord(random) | 0;
        const from = { source: this.#page(), sourceOffset: slot() };
        const to = { destination: this.#page(), destinationOffset: slot(), count: slot() };
        this.#put(writer, inferlet, queue, 0, { op: 'copy-slots', ...from, ...to, shift });
        return;
      }
      case 11: {
        const indices = list(random, 6, () => random.below(12));
        const positions = random.once(2) ? new Uint32Array() : list(random, 6, () => random.below(40));
        const [sources, destinations] = [list(random, 3, this.#page), list(random, 3, this.#page)];
        this.#put(writer, inferlet, queue, 0, { op: 'copy-tokens', sources, indices, destinations, positions });
        return;
      }
      case 12: {
        const [sources, destinations] = [list(random, 4, this.#embed), list(random, 4, this.#embed)];
        this.#put(writer, inferlet, queue, 0, { op: 'copy-embeds', sources, destinations });
        return;
      }
      case 13:
      case 14: {
        const embeds = list(random, 6, this.#embed);
        const positions = Uint32Array.from(embeds, (_, i) => word(random, i));
        this.#put(writer, inferlet, queue, 0, { op: 'embed-text', tokens: embeds.map(this.#token), positions, embeds });
        return;
      }
      case 15:
      case 16:
        this.#forward(writer, inferlet, queue, random.once(3) ? Math.max(id, 1) : 0);
        return;
      case 17:
        this.#put(writer, inferlet, queue, id, {
          op: 'mask-page',
          page: this.#page(),
          slots: word(random, random.below(256)),
        });
        return;
      case 18:
        this.#put(writer, inferlet, queue, id, {
          op: 'next-distribution',
          embed: this.#embed(),
          topK: word(random, 1 + random.below(9)),
        });
        return;
      case 19:
      case 20:
      case 21:
        this.#step(writer, inferlet, queue, id);
        return;
      case 22:
        this.#run(writer, inferlet, queue, id);
        return;
      case 23:
        this.#put(writer, inferlet, queue, id, { op: 'synchronize' });
        return;
      case 24:
        this.#put(writer, inferlet, queue, id, {
          op: 'log-probabilities',
          embed: this.#embed(),
          tokens: list(random, 5, this.#token),
        });
        return;
      case 25:
        this.#put(writer, inferlet, queue, id, {
          op: random.pick(['entropy', 'read-embed'] as const),
          embed: this.#embed(),
        });
        return;
      case 26:
        this.#registry(writer, inferlet, queue, id);
        return;
      case 27:
        this.#copies(writer, inferlet, queue);
        return;
      case 28:
        this.#put(writer, inferlet, queue, this.#runId(), {
          op: 'run-consumed',
          tokens: word(random, random.below(300)),
        });
        return;
      case 29:
        if (random.once(4)) this.#put(writer, inferlet, queue, id, { op: 'list-adapters' });
        else this.#put(writer, inferlet, queue, id, { op: 'load-adapter', name: text(random, random.pick(ADAPTERS)) });
        return;
      case 30:
      case 31:
        this.#put(writer, inferlet, 0, id, hostileTexts(random, this.#vocabularySize));
        if (random.once(4)) this.#put(writer, inferlet, 0, id, { op: 'encode-stop' });
        return;
      case 32: {
        const image = ++this.#lastId;
        for (const call of hostileImage(random, this.#embed)) this.#put(writer, inferlet, queue, image, call);
        return;
      }
      default:
        this.#put(writer, inferlet, queue, this.#runId(), { op: random.once(2) ? 'run-stop' : 'run-piped' });
    }
  }

  #close(writer: FrameWriter, inferlet: number, queue: number, id: number): void {
    if (this.#random.once(2)) {
      this.#put(writer, inferlet, 0, id, { op: 'close-inferlet' });
      this.#queues = this.#queues.filter(({ space }) => space.inferlet !== inferlet);
    } else {
      this.#put(writer, inferlet, queue, id, { op: 'close-queue' });
      this.#queues = this.#queues.filter((open) => open.queue !== queue);
    }
  }

  #allocate(
    writer: FrameWriter,
    op: 'allocate-pages' | 'allocate-embeds',
    inferlet: number,
    queue: number,
    id: number,
    addresses: Addresses,
  ): void {
    const first = word(this.#random, addresses.next);
    // Each embed costs the host a map entry, so large counts are rare.
    const sane = 1 + this.#random.below(8);
    const count = this.#random.once(200) ? hostileWord(this.#random) : sane;
    grow(addresses, Math.min(count, 8));
    this.#put(writer, inferlet, queue, id, { op, first, count });
  }

  #forward(writer: FrameWriter, inferlet: number, queue: number, scoresId: number): void {
    const random = this.#random;
    const inEmbeds = list(random, 4, this.#embed);
    const visible = mask(random, inEmbeds.length, inEmbeds.length + random.below(2 * PAGE_SIZE));
    const [inPages, outPages] = [list(random, 3, this.#page), list(random, 2, this.#page)];
    const outEmbeds = list(random, 2, this.#embed);
    const lists = { inPages, inEmbeds, outPages, outEmbeds, mask: visible };
    if (scoresId > 0) this.#put(writer, inferlet, queue, scoresId, { op: 'forward-scores', ...lists });
    else {
      const adapter = random.once(3) ? text(random, random.pick(ADAPTERS)) : undefined;
      this.#put(writer, inferlet, queue, 0, { op: 'forward', ...lists, adapter });
    }
  }

  #step(writer: FrameWriter, inferlet: number, queue: number, id: number): void {
    const random = this.#random;
    const tokens = list(random, 12, this.#token);
    const start = random.below(16);
    const positions = random.once(6)
      ? list(random, 12, () => random.below(40))
      : Uint32Array.from(tokens, (_, i) => start + i);
    const maskWords = Math.ceil(this.#vocabularySize / 32);
    this.#put(writer, inferlet, queue, id, {
      op: 'step',
      request: {
        tokens,
        positions,
        inPages: list(random, 3, this.#page),
        outPages: list(random, 3, this.#page),
        mask: random.once(4) ? mask(random, tokens.length, tokens.length + random.below(16)) : undefined,
        rows: word(random, random.below(3)),
        output: stepOutput(random),
        allowed: random.once(3) ? list(random, maskWords, () => random.u32()) : undefined,
        adapter: random.once(4) ? text(random, random.pick(ADAPTERS)) : undefined,
      },
    });
  }

  #run(writer: FrameWriter, inferlet: number, queue: number, id: number): void {
    const random = this.#random;
    if (id > 0) this.#runs.push(id);
    const request = {
      token: this.#token(),
      position: word(random, random.below(8)),
      pages: list(random, 3, this.#page),
      maxTokens: word(random, 1 + random.below(12)),
      sampler: sampler(random),
      stopTokens: list(random, 3, this.#token),
    };
    const changes = logitChanges(random, this.#token);
    this.#put(
      writer,
      inferlet,
      queue,
      id,
      random.once(3) ? { op: 'start-run', request, changes } : { op: 'run', request },
    );
  }

  #registry(writer: FrameWriter, inferlet: number, queue: number, id: number): void {
    const random = this.#random;
    const name = text(random, random.pick(NAMES));
    const functionName = text(random, random.pick(['f', 'g']));
    const pages = list(random, 3, this.#page);
    const first = word(random, this.#space.pages.next);
    const persistent = random.once(20);
    switch (random.below(12)) {
      case 0:
      case 1:
        this.#put(writer, inferlet, queue, id, { op: 'export-pages', pages, name, persistent });
        return;
      case 2:
        this.#put(writer, inferlet, queue, id, { op: 'import-pages', first, name });
        grow(this.#space.pages, 3);
        return;
      case 3:
        this.#put(writer, inferlet, queue, id, { op: 'unexport', name });
        return;
      case 4:
        this.#put(writer, inferlet, queue, id, { op: 'list-exports' });
        return;
      case 5:
        this.#put(writer, inferlet, queue, id, { op: 'file-open', first, name, write: random.once(2), functionName });
        grow(this.#space.pages, 3);
        return;
      case 6: {
        const rights = random.pick(RIGHTS_CASES);
        this.#put(writer, inferlet, queue, id, { op: 'file-save', name, pages, persistent, rights, functionName });
        return;
      }
      case 7:
        this.#put(writer, inferlet, queue, id, { op: 'file-unlock', name });
        return;
      case 8:
        this.#put(writer, inferlet, queue, id, { op: 'file-remove', name, functionName });
        return;
      case 9:
      case 10:
        this.#put(writer, inferlet, queue, id, this.#control(name));
        return;
      default:
        this.#put(writer, inferlet, queue, id, { op: 'file-list', prefix: name, functionName });
    }
  }

  #copies(writer: FrameWriter, inferlet: number, queue: number): void {
    const random = this.#random;
    const { copies, model, pages } = this.#space;
    const fields = {
      name: text(random, random.pick(NAMES)),
      number: random.once(2) ? copies + 1 : 1 + random.below(copies + 2),
      first: word(random, pages.next),
      pages: list(random, 3, this.#page),
    };
    for (const operation of hostileCopies(random, this.#makers[model] as PagesMaker, fields)) {
      if (operation.op === 'copy-begin') this.#space.copies++;
      this.#put(writer, inferlet, queue, ++this.#lastId, operation);
    }
    grow(pages, 2);
  }

  #control(name: string): ExportControl {
    const random = this.#random;
    const ms = word(random, random.below(1000));
    switch (random.below(6)) {
      case 0:
        return { op: 'export-residency', name };
      case 1:
        return { op: 'pin-export', name, leaseMs: ms };
      case 2:
        return { op: 'unpin-export', name };
      case 3:
        return { op: 'retain-export', name, nextUseMs: ms };
      case 4:
        return { op: 'prefetch-export', name };
      default:
        return { op: 'demote-export', name, tier: random.pick(TIER_CASES) };
    }
  }

  #put(writer: FrameWriter, inferlet: number, queue: number, id: number, operation: Operation): void {
    encodeCall(writer, this.#pageLists, { inferlet, queue, id }, operation);
  }

  #page = (): number => this.#address(this.#space.pages);

  #embed = (): number => this.#address(this.#space.embeds);

  /** Returns mostly an address allocated in this space; sometimes a page of another inferlet or model, or any word. */
  #address({ allocated }: Addresses): number {
    const random = this.#random;
    if (random.once(10)) {
      const others = random.pick(this.#queues).space.pages.allocated;
      if (others.length > 0) return random.pick(others);
    }
    return allocated.length === 0 ? hostileWord(random) : word(random, random.pick(allocated));
  }

  #token = (): number => word(this.#random, this.#random.below(this.#vocabularySize));

  #runId(): number {
    return this.#runs.length === 0 ? hostileWord(this.#random) : this.#random.pick(this.#runs);
  }
}

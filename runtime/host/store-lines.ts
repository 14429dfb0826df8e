import { Fifo } from '../channel/fifo.ts';

/** Most commands, and bytes of commands, of one tenant in the store at once: another tenant's command waits behind no more than these. */
const MAX_CALLS = 16;
const MAX_BYTES = 2 ** 20;

interface Line {
  calls: number;
  bytes: number;
  readonly waiting: Fifo<{ readonly bytes: number; readonly begin: () => void }>;
}

/**
 * Queues inferlets' calls of the platform's store, one line per tenant. A tenant's flood waits here, and not in the store's single
 * connection, which serves the commands of all tenants in order.
 */
export class StoreLines {
  readonly #lines = new Map<string, Line>();

  /** Number of tenants with calls. */
  get tenants(): number {
    return this.#lines.size;
  }

  /** Makes a call as soon as there is room, in the order of the tenant's calls. A call larger than the byte limit goes alone. */
  async during<T>(tenant: string, bytes: number, call: () => Promise<T>): Promise<T> {
    const line = this.#lines.get(tenant) ?? { calls: 0, bytes: 0, waiting: new Fifo() };
    this.#lines.set(tenant, line);
    if (line.waiting.first || !hasRoom(line, bytes)) {
      await new Promise<void>((begin) => line.waiting.push({ bytes, begin }));
    } else enter(line, bytes);
    try {
      return await call();
    } finally {
      line.calls--;
      line.bytes -= bytes;
      for (let next = line.waiting.first; next && hasRoom(line, next.bytes); next = line.waiting.first) {
        line.waiting.shift();
        enter(line, next.bytes);
        next.begin();
      }
      if (line.calls === 0) this.#lines.delete(tenant);
    }
  }
}

const hasRoom = (line: Line, bytes: number): boolean =>
  line.calls === 0 || (line.calls < MAX_CALLS && line.bytes + bytes <= MAX_BYTES);

function enter(line: Line, bytes: number): void {
  line.calls++;
  line.bytes += bytes;
}

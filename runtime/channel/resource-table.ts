import { CHANNEL_RESOURCES } from '#wit/generated/channel.ts';
import { ChannelFault } from './fault.ts';
import { MAX_NUMBERS } from './limits.ts';
import type { Handles } from './value-reader.ts';

interface HeldResource {
  readonly resource: number;
  readonly value: unknown;
}

/** Resources that one invocation holds in the runtime, under numbers that its sandbox chose. A number is valid only for its own kind. */
export class ResourceTable implements Handles {
  readonly #entries = new Map<number, HeldResource>();

  get size(): number {
    return this.#entries.size;
  }

  /** @throws ChannelFault when a new resource cannot have this number */
  check(number: number): void {
    if (this.#entries.has(number)) {
      throw new ChannelFault('bad-number', `the sandbox used the number ${number}, which it holds, for a new resource`);
    }
    if (this.#entries.size >= MAX_NUMBERS) {
      throw new ChannelFault('too-much-in-flight', `an invocation holds more than ${MAX_NUMBERS} resources`);
    }
  }

  /** Adds a resource of kind `resource`, an index of `CHANNEL_RESOURCES`. Call `check` first. */
  add(resource: number, number: number, value: unknown): void {
    this.#entries.set(number, { resource, value });
  }

  /** @throws ChannelFault `bad-number` when `number` is not a resource of this kind */
  get(resource: number, number: number): unknown {
    const entry = this.#entries.get(number);
    if (entry?.resource === resource) return entry.value;
    const kind = CHANNEL_RESOURCES[resource];
    throw new ChannelFault(
      'bad-number',
      `the sandbox named ${number}, which is not the number of a ${kind} in this invocation`,
    );
  }

  take(resource: number, number: number): unknown {
    const value = this.get(resource, number);
    this.#entries.delete(number);
    return value;
  }

  clear(): void {
    this.#entries.clear();
  }
}

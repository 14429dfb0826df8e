import type { DeviceClient } from '../protocol/client.ts';
import { GREEDY, must, range } from './host.ts';

/** Slots of a page of the hosts that steppers use. */
export const PAGE_SIZE = 8;

/** An inferlet that decides after each token what it asks next. */
export class Stepper {
  readonly inferlet: DeviceClient;
  readonly queue: number;
  pages: Uint32Array;
  readonly text: number[];

  constructor(inferlet: DeviceClient, text: readonly number[], pageCount = 10) {
    this.inferlet = inferlet;
    this.queue = inferlet.createQueue('tiny');
    this.pages = must(inferlet.allocatePages(this.queue, pageCount));
    this.text = [...text];
  }

  /** Computes the last `count` tokens of the text, and appends the token that is sampled after them. */
  async step(count = 1, { sampler = GREEDY, queue = this.queue } = {}) {
    const from = this.text.length - count;
    const result = must(
      await this.inferlet.ask(queue, {
        op: 'step',
        request: {
          tokens: Uint32Array.from(this.text.slice(from)),
          positions: range(from, this.text.length),
          outPages: this.outPages(from),
          inPages: this.pages,
          mask: undefined,
          rows: 1,
          output: { tag: 'sample', val: sampler },
        },
      }),
    );
    const token = result.tokens[0] as number;
    this.text.push(token);
    return token;
  }

  /** The pages that tokens from `from` on may fill. */
  protected outPages(_from: number): Uint32Array {
    return this.pages;
  }
}

/** A stepper that allocates pages when its pages are full. */
export class PageStepper extends Stepper {
  readonly #count: number;

  /** @param count pages of each allocation */
  constructor(inferlet: DeviceClient, text: readonly number[], count = 1) {
    super(inferlet, text, Math.ceil(text.length / PAGE_SIZE));
    this.#count = count;
  }

  protected override outPages(from: number): Uint32Array {
    if (this.text.length > this.pages.length * PAGE_SIZE)
      this.pages = Uint32Array.of(...this.pages, ...must(this.inferlet.allocatePages(this.queue, this.#count)));
    return this.pages.slice(Math.floor(from / PAGE_SIZE), Math.ceil(this.text.length / PAGE_SIZE));
  }
}

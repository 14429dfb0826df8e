import { textOf } from '../html/html.ts';
import type { Fragment } from '../page.ts';
import type { LiveFrame } from './frames.ts';

/** Renders fragments repeatedly and returns those that changed. */
export class Changes {
  readonly #sent = new Map<string, string>();

  /** The fragments that differ from the last sent ones, or were never sent. */
  async since(fragments: readonly Fragment[]): Promise<LiveFrame[]> {
    const rendered = await Promise.all(
      fragments.map(async ({ id, render }) => ({ id, html: await textOf(await render()) })),
    );
    const changed = rendered.filter(({ id, html }) => this.#sent.get(id) !== html);
    for (const { id, html } of changed) this.#sent.set(id, html);
    return changed.map((data): LiveFrame => ({ event: 'fragment', data }));
  }
}

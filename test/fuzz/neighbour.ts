import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Distribution, GpuHostConnection, GpuInferlet, Outcome } from '#gpu-host/protocol/client.ts';
import { Random } from './random.ts';

const NONE = new Uint32Array();
const PAGE_SIZE = 8;
const CHOICES = 5;
/** How long a round waits with its pages held, so that they may be swapped out. */
const PAUSE_MS = 30;

/**
 * A well-behaved inferlet whose every answer is known: what it hears in a round depends on the model and the round's number alone, so each
 * round must hash to what it did when nobody else was there. It is the oldest inferlet of its host, so it is never the one to be ended.
 */
export class Neighbour {
  readonly #inferlet: GpuInferlet;
  readonly #model: string;
  readonly #vocabularySize: number;
  readonly #name: string;

  constructor(connection: GpuHostConnection, model: string, vocabularySize: number, name: string) {
    this.#inferlet = connection.openInferlet({ id: name, tenant: 'neighbour', maxPages: 24, arrival: 0 });
    this.#model = model;
    this.#vocabularySize = vocabularySize;
    this.#name = name;
  }

  /**
   * One round: prefill, decode, fork, a run, the three calls one by one, an export and its import, a pause. Returns a hash of every bit heard.
   * @throws Error when a call is answered with an error
   */
  async round(number: number): Promise<string> {
    const random = Random.of(0xbeef, number);
    const heard = createHash('sha256');
    const inferlet = this.#inferlet;
    const queue = inferlet.createQueue(this.#model);
    const prompt = random.list(4 + random.below(16), () => 1 + random.below(this.#vocabularySize - 1));
    const pages = must(inferlet.allocatePages(queue, Math.ceil((prompt.length + 8) / PAGE_SIZE)));
    const hear = (distribution: Distribution): number => {
      heard.update(distribution.tokens).update(distribution.logProbabilities);
      return distribution.tokens[0] as number;
    };
    const step = async (own: Uint32Array, tokens: readonly number[], position: number, keep = own): Promise<number> => {
      const outcome = await inferlet.step(queue, {
        tokens: Uint32Array.from(tokens),
        positions: Uint32Array.from(tokens, (_, i) => position + i),
        inPages: own,
        outPages: keep,
        mask: undefined,
        rows: 1,
        output: { tag: 'distributions', val: CHOICES },
      });
      return hear(must(outcome).distributions[0] as Distribution);
    };

    let position = prompt.length;
    let token = await step(pages, prompt, 0);
    for (let i = 0; i < 3; i++) token = await step(pages, [token], position++);
    const fork = must(inferlet.sharePages(queue, pages));
    await step(pages, [token], position);
    await step(fork, [(token + 1) % this.#vocabularySize], position);
    position++;

    const name = `${this.#name}/${number}`;
    must(await inferlet.exportPages(queue, fork, name, false));
    inferlet.freePages(queue, fork);
    inferlet.setWaiting(true);
    await sleep(PAUSE_MS);
    const imported = must(await inferlet.importPages(queue, name));
    heard.update(`${imported.tokens} ${imported.nextPosition}`);
    await step(imported.pages, [7], position, NONE);
    must(await inferlet.unexport(queue, name));

    const run = inferlet.run(queue, {
      token,
      position,
      pages: imported.pages,
      maxTokens: 3,
      sampler: { temperature: 1.1, topK: 20, topP: 0.95, minP: 0, seed: number },
      stopTokens: NONE,
    });
    for (let finished: string | undefined; finished === undefined; ) {
      const chunk = must(await run.next());
      heard.update(chunk.tokens);
      finished = chunk.finished;
    }
    const embeds = must(inferlet.allocateEmbeds(queue, 2));
    inferlet.embedText(queue, Uint32Array.of(token), Uint32Array.of(position), embeds.subarray(0, 1));
    inferlet.forward(queue, pages, embeds.subarray(0, 1), NONE, embeds.subarray(1), undefined);
    const state = embeds[1] as number;
    hear(must(await inferlet.nextDistribution(queue, state, CHOICES)));
    heard.update(must(await inferlet.logProbabilities(queue, state, Uint32Array.of(1, 2, token))));
    heard.update(must(await inferlet.readEmbed(queue, state)));
    heard.update(`${must(await inferlet.entropy(queue, state))}`);
    inferlet.freeEmbeds(queue, embeds);
    inferlet.freePages(queue, imported.pages);
    inferlet.freePages(queue, pages);
    must(await inferlet.synchronize(queue));
    inferlet.closeQueue(queue);
    return heard.digest('hex');
  }

  close(): Promise<void> {
    return this.#inferlet.close();
  }
}

function must<T>(outcome: Outcome<T>): T {
  if (outcome.tag === 'err') throw new Error(`${outcome.val.tag}: ${outcome.val.val}`);
  return outcome.val;
}

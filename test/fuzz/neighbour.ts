import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { DeviceClient, Distribution, GpuHostConnection, Outcome } from '#gpu-host/protocol/client.ts';
import { Random } from '../harness/random.ts';

const NONE = new Uint32Array();
const PAGE_SIZE = 8;
/** Candidates of each distribution. */
const CHOICES = 5;
/** Tokens of the exported context: fewer than its two pages can hold, so that rounds can append. */
const EXPORTED_TOKENS = 11;
/** Pause of a round that holds its pages, so that the host may swap them out. */
const PAUSE_MS = 30;

/**
 * A well-behaved inferlet with known answers: the answers of a round depend only on the model and the round's number, so each round must
 * have the same hash as without attackers. The neighbour is the oldest inferlet of its host, so the host never ends it to reclaim memory.
 */
export class Neighbour {
  readonly #inferlet: DeviceClient;
  readonly #model: string;
  readonly #vocabularySize: number;
  readonly #name: string;

  constructor(connection: GpuHostConnection, model: string, vocabularySize: number, name: string) {
    this.#inferlet = connection.openInferlet({ id: name, tenant: 'neighbour', maxPages: 24, arrival: 0 });
    this.#model = model;
    this.#vocabularySize = vocabularySize;
    this.#name = name;
  }

  /** Exports two pages before the attackers connect; each round imports them. */
  async exportContext(): Promise<void> {
    const inferlet = this.#inferlet;
    const queue = inferlet.createQueue(this.#model);
    const pages = must(inferlet.allocatePages(queue, 2));
    const tokens = Uint32Array.from({ length: EXPORTED_TOKENS }, (_, i) => 3 + i);
    const positions = tokens.map((_, i) => i);
    const request = { tokens, positions, inPages: NONE, outPages: pages, mask: undefined, rows: 0 };
    void inferlet.ask(queue, { op: 'step', request: { ...request, output: { tag: 'none' } } });
    must(await inferlet.ask(queue, { op: 'export-pages', pages, name: this.#name, persistent: false }));
    inferlet.freePages(queue, pages);
    inferlet.closeQueue(queue);
  }

  /**
   * Plays one round: prefill, decode, fork, an import, a pause in which the host may swap pages out, a run, and a step by the separate calls
   * `embed-text`, `forward` and `next-distribution`. Returns a hash of all answers.
   * @throws Error when the host answers a call with an error
   */
  async round(number: number): Promise<string> {
    const random = Random.of(0xbeef, number);
    const answers = createHash('sha256');
    const inferlet = this.#inferlet;
    const queue = inferlet.createQueue(this.#model);
    const prompt = random.list(4 + random.below(16), () => 1 + random.below(this.#vocabularySize - 1));
    const pages = must(inferlet.allocatePages(queue, Math.ceil((prompt.length + 8) / PAGE_SIZE)));
    const record = (distribution: Distribution): number => {
      answers.update(distribution.tokens).update(distribution.logProbabilities);
      return distribution.tokens[0] as number;
    };
    const step = async (
      inPages: Uint32Array,
      tokens: readonly number[],
      position: number,
      outPages = inPages,
    ): Promise<number> => {
      const outcome = await inferlet.ask(queue, {
        op: 'step',
        request: {
          tokens: Uint32Array.from(tokens),
          positions: Uint32Array.from(tokens, (_, i) => position + i),
          inPages,
          outPages,
          mask: undefined,
          rows: 1,
          output: { tag: 'distributions', val: CHOICES },
        },
      });
      return record(must(outcome).distributions[0] as Distribution);
    };

    let position = prompt.length;
    let token = await step(pages, prompt, 0);
    for (let i = 0; i < 3; i++) token = await step(pages, [token], position++);
    const fork = must(inferlet.sharePages(queue, pages));
    await step(pages, [token], position);
    await step(fork, [(token + 1) % this.#vocabularySize], position);
    position++;

    inferlet.freePages(queue, fork);
    const imported = must(await inferlet.importPages(queue, this.#name));
    answers.update(`${imported.tokens} ${imported.nextPosition}`);
    inferlet.setWaiting(true);
    await sleep(PAUSE_MS);
    await step(imported.pages, [7], EXPORTED_TOKENS, NONE);

    const run = inferlet.run(queue, {
      token,
      position: EXPORTED_TOKENS,
      pages: imported.pages,
      maxTokens: 3,
      sampler: { temperature: 1.1, topK: 20, topP: 0.95, minP: 0, seed: number },
      stopTokens: NONE,
    });
    let finished: string | undefined;
    while (finished === undefined) {
      const chunk = must(await run.next());
      answers.update(chunk.tokens);
      finished = chunk.finished;
    }
    const embeds = must(inferlet.allocateEmbeds(queue, 2));
    inferlet.send(queue, {
      op: 'embed-text',
      tokens: Uint32Array.of(token),
      positions: Uint32Array.of(position),
      embeds: embeds.subarray(0, 1),
    });
    inferlet.send(queue, {
      op: 'forward',
      inPages: pages,
      inEmbeds: embeds.subarray(0, 1),
      outPages: NONE,
      outEmbeds: embeds.subarray(1),
    });
    const state = embeds[1] as number;
    record(must(await inferlet.ask(queue, { op: 'next-distribution', embed: state, topK: CHOICES })));
    answers.update(
      must(await inferlet.ask(queue, { op: 'log-probabilities', embed: state, tokens: Uint32Array.of(1, 2, token) })),
    );
    answers.update(must(await inferlet.ask(queue, { op: 'read-embed', embed: state })));
    answers.update(`${must(await inferlet.ask(queue, { op: 'entropy', embed: state }))}`);
    inferlet.freeEmbeds(queue, embeds);
    inferlet.freePages(queue, imported.pages);
    inferlet.freePages(queue, pages);
    must(await inferlet.synchronize(queue));
    inferlet.closeQueue(queue);
    return answers.digest('hex');
  }

  async close(): Promise<void> {
    must(await this.#inferlet.ask(this.#inferlet.createQueue(this.#model), { op: 'unexport', name: this.#name }));
    await this.#inferlet.close();
  }
}

/** @throws Error for an answer that is an error */
export function must<T>(outcome: Outcome<T>): T {
  if (outcome.tag === 'err') throw new Error(`${outcome.val.tag}: ${outcome.val.val}`);
  return outcome.val;
}

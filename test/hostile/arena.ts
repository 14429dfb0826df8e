import { PieClient } from '#gateway/client/client.ts';
import { PieError } from '#gateway/client/errors.ts';
import { readEvents, terminal } from '#test/harness/events.ts';
import { Platform } from '#test/harness/platform.ts';
import { createTenant, type TenantClient } from '#test/harness/tenants.ts';
import type { Attack, End } from './attack.ts';
import { Canary, type CanaryOptions, type StoryTimes } from './canary.ts';
import { attackBytes } from './guest.ts';
import { type Holdings, holdings, leftBehind } from './left-behind.ts';

/** Limits of every attack's function unless the attack sets others. */
const LIMITS = { cpuMs: 60, wallMs: 10_000, memoryMb: 16, pages: 16, tokens: 1000 };
/** The canary's model, and one with a chat template. */
const CONFIG = '[[model]]\nname = "stories15m"\n\n[[model]]\nname = "minimind2-small"\n';
/** Deadline for the answer to a deploy or an invocation, longer than the limits of a build and of an invocation. */
const DEADLINE_MS = 75_000;

/** The members of an attack that the arena uses. */
export type RunnableAttack = Pick<Attack, 'name' | 'source' | 'manifest' | 'input' | 'wallMs' | 'invocations'>;

/** Outcome of an attack. */
export interface Report {
  /** The distinct ends of the attack's invocations, or the refusal of its deploy. */
  readonly ends: readonly End[];
  /** Message of the first error. */
  readonly message: string;
  /** Times of the canary's stories, from the deploy of the attack to the end of the first whole story after it. */
  readonly canary: StoryTimes;
}

/** A whole platform, a canary that streams on it, and an attacking tenant with a key to deploy and invoke. */
export class Arena implements AsyncDisposable {
  readonly platform: Platform;
  readonly #canary: Canary;
  readonly #attacker: TenantClient;
  readonly #pids: string;
  readonly #holdingsBefore: Holdings;

  private constructor(platform: Platform, canary: Canary, attacker: TenantClient, before: Holdings) {
    this.platform = platform;
    this.#canary = canary;
    this.#attacker = attacker;
    this.#holdingsBefore = before;
    this.#pids = String(platform.pids());
  }

  static async start(options: CanaryOptions = {}): Promise<Arena> {
    const platform = await Platform.start({ functions: false, config: CONFIG });
    try {
      const client = await createTenant(platform, 'canary');
      const attacker = await createTenant(platform, 'attacker');
      const before = await holdings(platform);
      return new Arena(platform, await Canary.start(platform, client, options), attacker, before);
    } catch (error) {
      await platform[Symbol.asyncDispose]();
      throw error;
    }
  }

  /**
   * Deploys an attack, invokes it, and waits until the canary has streamed a whole story afterwards.
   *
   * @throws Error that describes the harm to the canary or the platform; the arena is unusable afterwards
   */
  async attack({ name, source, manifest, input, wallMs, invocations = 1 }: RunnableAttack): Promise<Report> {
    const startedAt = performance.now();
    const bytes = await attackBytes(source());
    const client = new PieClient({ url: this.platform.url, apiKey: this.#attacker.apiKey });
    const ends = new Set<End>();
    let message = '';
    const limits = { ...LIMITS, ...manifest?.limits, ...(wallMs !== undefined && { wallMs }) };
    try {
      const wholeManifest = { name, ...manifest, limits };
      await client.deploy(wholeManifest, new Uint8Array(bytes), { signal: AbortSignal.timeout(DEADLINE_MS) });
    } catch (error) {
      if (!(error instanceof PieError)) throw error;
      ends.add(`refused ${error.code}`);
      message = error.message;
    }
    if (ends.size === 0) {
      this.#canary.wake();
      const outcomes = await Promise.all(Array.from({ length: invocations }, () => this.#invoke(name, input)));
      for (const outcome of outcomes) {
        ends.add(`ended ${outcome.code}`);
        message ||= outcome.message;
      }
      await client.removeFunction(name, { now: true });
    }
    const canary = await this.#canary.listen(1, startedAt);
    const pids = String(this.platform.pids());
    if (pids !== this.#pids) throw new Error(`a process of the platform was started again: ${this.#pids} to ${pids}`);
    return { ends: [...ends], message, canary };
  }

  /** Measures the canary's next stories, without an attack. */
  measureAlone(stories: number): Promise<StoryTimes> {
    return this.#canary.listen(stories);
  }

  /** Describes what the attacks left behind. Stops the canary first. */
  async leftBehind(): Promise<string[]> {
    await this.#canary.stop();
    return leftBehind(this.platform, this.#holdingsBefore);
  }

  async #invoke(name: string, input: unknown): Promise<{ code: string; message: string }> {
    const response = await this.#attacker.fetch(`/v1/functions/${name}/invocations`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'text/event-stream' },
      body: JSON.stringify(input ?? null),
      signal: AbortSignal.timeout(DEADLINE_MS),
    });
    if (!response.ok) {
      const { code, detail } = (await response.json()) as { code: string; detail?: string };
      return { code, message: detail ?? '' };
    }
    const end = terminal(await readEvents(response));
    if (end === undefined) throw new Error('the stream ended without a terminal event');
    if (end.event === 'result') return { code: 'result', message: '' };
    return { code: String(end.data.code), message: String(end.data.message) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.platform[Symbol.asyncDispose]();
  }
}

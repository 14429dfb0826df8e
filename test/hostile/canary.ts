import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { deploySource } from '#test/harness/deploy.ts';
import { invoke, numberOf, type StreamEvent, text } from '#test/harness/events.ts';
import { type Platform, ROOT } from '#test/harness/platform.ts';
import type { TenantClient } from '#test/harness/tenants.ts';

const FUNCTION = 'text-completion';
const STORY = { prompt: 'Once upon a time', temperature: 0 };
/** Longest time for one story: an attack may slow the canary but not stop it. */
const DEADLINE_MS = 30_000;

/** The amount of a canary's work. */
export interface CanaryOptions {
  /** Length of a story, in tokens; 32 by default. */
  readonly tokens?: number;
  /** Rest after each story, which leaves the cores to builds; none by default. {@link Canary.wake} ends a rest early. */
  readonly restMs?: number;
}

/** Times of some stories, in milliseconds. */
export interface StoryTimes {
  /** Median of the stories' `startMs`. */
  readonly startMs: number;
  /** Median of the stories' `tokenMs`. */
  readonly tokenMs: number;
  /** `tokenMs` of the slowest story. */
  readonly slowestTokenMs: number;
}

/** Times of one story, in milliseconds. */
interface StoryTiming {
  /** Times of `performance.now()` at the request and at the result. */
  readonly startedAt: number;
  readonly endedAt: number;
  /** Time from the request to the first token. */
  readonly startMs: number;
  /** Time from the first token to the result, divided by the number of tokens after the first. */
  readonly tokenMs: number;
}

/** A tenant that streams the same story again and again, and compares each story with the first, which it received before any attack. */
export class Canary {
  readonly #client: TenantClient;
  readonly #expected: string;
  readonly #timings: StoryTiming[] = [];
  /** Called at the end of the next story, and at the end of the streaming. */
  readonly #listeners: (() => void)[] = [];
  readonly #tokens: number;
  readonly #restMs: number;
  #restEnd = new AbortController();
  /** Number of calls of `listen` under way. The canary rests only while there is none. */
  #listening = 0;
  /** The fault that ended the streaming. */
  #problem: Error | null = null;
  #isStopped = false;
  #streaming: Promise<void> = Promise.resolve();

  private constructor(client: TenantClient, expected: string, { tokens, restMs }: Required<CanaryOptions>) {
    this.#client = client;
    this.#expected = expected;
    this.#tokens = tokens;
    this.#restMs = restMs;
  }

  /** Deploys the canary's function, streams a first story while no attack runs, and starts to compare more stories with it. */
  static async start(
    platform: Platform,
    client: TenantClient,
    { tokens = 32, restMs = 0 }: CanaryOptions = {},
  ): Promise<Canary> {
    const { apiKey } = client;
    await deploySource(platform, path.join(ROOT, 'functions', FUNCTION), { apiKey });
    const { story: expected } = await streamStory(client, tokens);
    const canary = new Canary(client, expected, { tokens, restMs });
    canary.#streaming = canary.#streamStories();
    return canary;
  }

  /**
   * Resolves when `stories` whole stories that began after this call have ended without a fault.
   *
   * @param from a time of `performance.now()`, by default the time of this call; the result covers all stories that ended later
   * @throws Error when a story differed, failed, or missed its deadline
   */
  async listen(stories: number, from = performance.now()): Promise<StoryTimes> {
    const now = performance.now();
    this.#listening++;
    this.wake();
    while (!this.#problem && this.#timings.filter(({ startedAt }) => startedAt >= now).length < stories) {
      await new Promise<void>((resolve) => this.#listeners.push(resolve));
    }
    this.#listening--;
    if (this.#problem) throw this.#problem;
    const covered = this.#timings.filter(({ endedAt }) => endedAt >= from);
    const times = covered.map(({ tokenMs }) => tokenMs);
    return {
      startMs: median(covered.map(({ startMs }) => startMs)),
      tokenMs: median(times),
      slowestTokenMs: Math.max(...times),
    };
  }

  /** Ends a rest under way, so that the next story begins now: the arena calls this before it invokes an attack. */
  wake(): void {
    this.#restEnd.abort();
    this.#restEnd = new AbortController();
  }

  /** Stops after the story under way. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.wake();
    await this.#streaming;
  }

  async #streamStories(): Promise<void> {
    try {
      while (!this.#isStopped) {
        const { story, ...timing } = await streamStory(this.#client, this.#tokens);
        if (story !== this.#expected) throw new Error(`the canary told ${story}; alone it tells ${this.#expected}`);
        this.#timings.push(timing);
        for (const listener of this.#listeners.splice(0)) listener();
        // The sleep rejects only when `wake` ends it.
        if (this.#restMs > 0 && this.#listening === 0)
          await sleep(this.#restMs, undefined, { signal: this.#restEnd.signal }).catch(() => undefined);
      }
    } catch (cause) {
      this.#problem = cause instanceof Error ? cause : new Error(String(cause));
    }
    for (const listener of this.#listeners.splice(0)) listener();
  }
}

async function streamStory(client: TenantClient, tokens: number): Promise<StoryTiming & { readonly story: string }> {
  const startedAt = performance.now();
  let firstAt = 0;
  const onEvent = ({ event }: StreamEvent) => {
    if (event === 'message') firstAt ||= performance.now();
  };
  const signal = AbortSignal.timeout(DEADLINE_MS);
  const events = await invoke(client, FUNCTION, { ...STORY, maxTokens: tokens }, { onEvent, signal });
  const endedAt = performance.now();
  const end = events.at(-1);
  if (end?.event !== 'result') throw new Error(`the canary ended with ${JSON.stringify(end?.data)}`);
  events.forEach((event, index) => {
    if (numberOf(event) !== index + 1)
      throw new Error(`the canary heard event ${event.id} in the place of ${index + 1}`);
  });
  const story = `${text(events)} | ${JSON.stringify(end.data.output)}`;
  return { story, startedAt, endedAt, startMs: firstAt - startedAt, tokenMs: (endedAt - firstAt) / (tokens - 1) };
}

/** The upper of the two middle values for an even number of values. */
const median = (values: readonly number[]): number => [...values].sort((a, b) => a - b)[values.length >> 1] ?? 0;

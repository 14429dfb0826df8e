import path from 'node:path';
import { deploySource } from '#test/harness/deploy.ts';
import { Platform, ROOT } from '#test/harness/platform.ts';
import { LIKE_THE_PEER } from '../engine/engines.ts';
import { median } from '../statistics.ts';
import { ChildServer } from './child-server.ts';
import { type Peer, type PeerSettings, startPeers } from './peers.ts';
import { type TextTokens, textTokens } from './tokens.ts';

/** Pages that hold all agents of the largest case beside the cached prefixes. */
const PAGES = 2048;
const REQUEST_TIMEOUT_MS = 300_000;

export interface WorldOptions {
  readonly models: readonly string[];
  readonly roundTripsMs: readonly number[];
  /** Programs of `test/inferlets`, which may call the tool server. */
  readonly programs: readonly string[];
  readonly functions?: readonly string[];
  /** Settings of node-llama-cpp, which runs beside the platform; false for none. */
  readonly peer: PeerSettings | false;
  readonly progress: (line: string) => void;
}

/** The name under which the platform also serves a model without the prefix cache. */
export const uncached = (model: string): string => `${model}-uncached`;

/** A platform, a tool server, peers, and networks with several round trips to the platform and the peers. `await using` ends all of them. */
export class World implements AsyncDisposable {
  readonly platform: Platform;
  readonly tool: ChildServer;
  readonly peers: readonly Peer[];
  readonly #tokens: ReadonlyMap<string, TextTokens>;
  readonly #network: ChildServer;
  readonly roundTripsMs: readonly number[];
  readonly #stack: AsyncDisposableStack;

  private constructor(parts: Parts, stack: AsyncDisposableStack) {
    ({ platform: this.platform, tool: this.tool, peers: this.peers } = parts);
    this.#tokens = parts.tokens;
    this.#network = parts.network;
    this.roundTripsMs = parts.roundTripsMs;
    this.#stack = stack;
  }

  static async start(options: WorldOptions): Promise<World> {
    await using stack = new AsyncDisposableStack();
    const { models, roundTripsMs, programs, functions = [] } = options;
    const tool = stack.use(await ChildServer.start('tool-process.ts', []));
    const peers = options.peer ? await startPeers(models, options.peer, stack, options.progress) : [];
    const config = configuration(models);
    const env = options.peer ? LIKE_THE_PEER : {};
    const platform = stack.use(await Platform.start({ functions: ['openai-completions', ...functions], config, env }));
    const grants = { hosts: [`127.0.0.1:${tool.port}`] };
    for (const name of programs)
      await deploySource(platform, path.join(ROOT, 'test/inferlets', `${name}.ts`), { name, manifest: { grants } });
    const targets = [platform.port, ...peers.map(({ server }) => server.port)];
    const routes = targets.flatMap((port) => roundTripsMs.map((roundTripMs) => `${port}:${roundTripMs}`));
    const network = stack.use(await ChildServer.start('delay-process.ts', routes));
    const tokens = new Map(await Promise.all(models.map(async (model) => [model, await textTokens(model)] as const)));
    return new World({ platform, tokens, tool, peers, network, roundTripsMs }, stack.move());
  }

  /** The tokenizer of one of the world's models. */
  tokensOf(model: string): TextTokens {
    const tokens = this.#tokens.get(model);
    if (tokens === undefined) throw new Error(`there is no tokenizer of ${model}`);
    return tokens;
  }

  /** URL of the gateway over the network with this round trip. */
  gateway(roundTripMs: number): string {
    return this.#delayedUrl(0, roundTripMs);
  }

  /** URL of a peer over the network with this round trip. */
  peer(peer: Peer, roundTripMs: number): string {
    return this.#delayedUrl(1 + this.peers.indexOf(peer), roundTripMs);
  }

  /** Posts JSON and returns the JSON of the answer, which must report success. */
  async post<T>(url: string, body: object): Promise<T> {
    const response = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${this.platform.apiKey}` },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${url}: ${response.status} ${text}`);
    return JSON.parse(text) as T;
  }

  /** Invokes a program and returns its output. */
  async invoke<T>(roundTripMs: number, name: string, input: object): Promise<T> {
    return (await this.outcome<T>(roundTripMs, name, input)).output;
  }

  /** Invokes a program and returns its output and the tokens that the platform counted. */
  outcome<T>(roundTripMs: number, name: string, input: object): Promise<Outcome<T>> {
    return this.post(`${this.gateway(roundTripMs)}/v1/functions/${name}/invocations`, input);
  }

  /** Continues token ids on the route for OpenAI's clients. */
  async complete(roundTripMs: number, model: string, prompt: readonly number[], maxTokens: number) {
    const url = `${this.gateway(roundTripMs)}/v1/completions`;
    const { choices } = await this.post<{ choices: [{ text: string; token_ids: readonly number[] }] }>(url, {
      model,
      prompt,
      max_tokens: maxTokens,
      temperature: 0,
      ignore_eos: true,
      return_token_ids: true,
    });
    return { tokens: choices[0].token_ids, text: choices[0].text };
  }

  /** Calls the tool as a client does, without a network delay. */
  async callTool(latencyMs: number, step: number): Promise<string> {
    const response = await fetch(this.toolUrl(latencyMs), { method: 'POST', body: JSON.stringify({ step }) });
    return await response.text();
  }

  toolUrl(latencyMs: number): string {
    return `http://127.0.0.1:${this.tool.port}/${latencyMs}`;
  }

  /** Measured time of a request that computes nothing, over each network. */
  async roundTrips(): Promise<Record<string, number>> {
    const measured: Record<string, number> = {};
    for (const roundTripMs of this.roundTripsMs) {
      const url = `${this.gateway(roundTripMs)}/healthz`;
      const times: number[] = [];
      for (let i = 0; i < 10; i++) {
        const startMs = performance.now();
        await (await fetch(url)).arrayBuffer();
        times.push(performance.now() - startMs);
      }
      measured[roundTripMs] = median(times);
    }
    return measured;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }

  #delayedUrl(target: number, roundTripMs: number): string {
    const roundTripIndex = this.roundTripsMs.indexOf(roundTripMs);
    return `http://127.0.0.1:${this.#network.ports[target * this.roundTripsMs.length + roundTripIndex]}`;
  }
}

/** The end of an invocation that succeeded. */
export interface Outcome<T> {
  readonly output: T;
  readonly usage: { readonly inputTokens: number; readonly outputTokens: number };
}

interface Parts {
  readonly platform: Platform;
  readonly tokens: ReadonlyMap<string, TextTokens>;
  readonly tool: ChildServer;
  readonly peers: readonly Peer[];
  readonly network: ChildServer;
  readonly roundTripsMs: readonly number[];
}

const configuration = (models: readonly string[]): string => `
[http]
private_hosts = ["127.0.0.1"]
${models
  .map(
    (model) => `
[[model]]
name = "${model}"
pages = ${PAGES}

[[model]]
name = "${uncached(model)}"
source = "${model}"
pages = ${PAGES}
prefix_cache = false
`,
  )
  .join('')}`;

import path from 'node:path';
import { randomEncoder } from '#gpu-host/models/encoder/random-encoder.ts';
import { deploySource } from '#test/harness/deploy.ts';
import { newHome, Platform, ROOT } from '#test/harness/platform.ts';
import { SearchEngine } from '../../../functions/search-generation/testing/search-engine.ts';
import { APPLICATIONS, functionOf, Queries } from './applications.ts';

/** The port that functions/search-generation/pie.json grants, and the time of a search. */
const ENGINE_PORT = 8898;
export const SEARCH_MS = 150;
/** The sizes of MiniLM-L6, with random weights: the time is that of the real ones. */
const MINI = { hidden_size: 384, intermediate_size: 1536, num_hidden_layers: 6, num_attention_heads: 12 };
const POSITIONS = { max_position_embeddings: 512 };

/** Engines on which workflows are measured. */
export interface Engines {
  readonly name: string;
  /** Name of the engines in the report. */
  readonly description: string;
  /** Sentences of a query's document. */
  readonly sentences: number;
  /** Most sequences of a batch of the model; Pie's default without. */
  readonly sequences?: number;
  /** `pace` of the model and of the encoders in `pie.toml`. */
  readonly pace?: { readonly model: string; readonly encoder: string };
}

/** By calculation: 16 GB of weights at 0.8 TB/s and 16 GFLOP an input at 80 TFLOP/s; 335 million weights for the encoders, a token a letter here. */
export const PACED: Engines = {
  name: 'paced',
  description:
    'steps paced as of an 8B model in bf16 (20 ms, 0.2 ms an input) and of BGE-large (8 ms, 0.01 ms a letter), each on a card of its own',
  sentences: 72,
  pace: { model: '{ step_ms = 20, token_ms = 0.2 }', encoder: '{ step_ms = 8, token_ms = 0.01 }' },
};

/** The same with a place for few sequences in a batch, as on a card whose memory the weights fill. */
export const CROWDED: Engines = { ...PACED, name: 'crowded', sequences: 8 };

export const CORES: Engines = {
  name: 'cores',
  description: 'stories15m and encoders as large as MiniLM-L6, both on the cores of this machine',
  sentences: 24,
};

/** A platform with the applications on some engines, and a search engine. `await using` ends both. */
export class WorkflowPlatform implements AsyncDisposable {
  readonly platform: Platform;
  readonly queries: Queries;
  /** Sentences of a query's document. */
  readonly sentences: number;
  readonly #search: SearchEngine;

  private constructor(platform: Platform, queries: Queries, sentences: number, search: SearchEngine) {
    this.platform = platform;
    this.queries = queries;
    this.sentences = sentences;
    this.#search = search;
  }

  static async start(engines: Engines): Promise<WorkflowPlatform> {
    const home = await newHome();
    const weights = path.join(home, 'mini');
    // Paced encoders need the time of their profile only, so they compute little.
    const config = engines.pace ? POSITIONS : { ...MINI, ...POSITIONS };
    await randomEncoder(`${weights}-encoder`, { kind: 'embedding', config }, 7);
    await randomEncoder(`${weights}-ranker`, { kind: 'reranker', config }, 7);
    const search = await SearchEngine.start({ delayMs: SEARCH_MS, port: ENGINE_PORT });
    try {
      const platform = await Platform.start({ home, functions: false, config: configuration(weights, engines) });
      // Not by the platform's start: these builds are kept from one platform to the next.
      for (const name of new Set(APPLICATIONS.map(functionOf)))
        await deploySource(platform, path.join(ROOT, 'functions', name));
      const queries = new Queries(platform, { sentences: engines.sentences, engine: search.url });
      return new WorkflowPlatform(platform, queries, engines.sentences, search);
    } catch (error) {
      await search[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Deploys a guest of this folder, or of the library's fixtures, under a name. */
  async deploy(file: string, name: string): Promise<void> {
    await deploySource(this.platform, path.join(ROOT, file), { name });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.platform[Symbol.asyncDispose]();
    await this.#search[Symbol.asyncDispose]();
  }
}

function configuration(weights: string, { pace, sequences }: Engines): string {
  const at = (own: string | undefined) => (own ? `pace = ${own}` : '');
  return `
[http]
private_hosts = ["127.0.0.1"]

[[model]]
name = "stories15m"
prefix_cache = false
${at(pace?.model)}
${sequences === undefined ? '' : `max_batch_sequences = ${sequences}`}

[[model]]
name = "mini-encoder"
kind = "embedding"
source = "file:${weights}-encoder"
${at(pace?.encoder)}

[[model]]
name = "mini-ranker"
kind = "reranker"
source = "file:${weights}-ranker"
${at(pace?.encoder)}
`;
}

import path from 'node:path';
import { randomEncoder } from '#gpu-host/models/testing/random-encoder.ts';
import { deploySource } from '#test/harness/deploy.ts';
import { newHome, Platform, ROOT } from '#test/harness/platform.ts';
import { SearchEngine } from '../../../functions/search-generation/testing/search-engine.ts';
import { functionOf, Queries, type Shape } from './applications.ts';
import { writingModel } from './writing-model.ts';

/** The port that functions/search-generation/pie.json grants. */
const SEARCH_ENGINE_PORT = 8898;
/** Time of a search. */
export const SEARCH_MS = 150;
/** The sizes of MiniLM-L6. Its weights are random, which does not change the time of a step. */
const MINI_LM_SIZES = { hidden_size: 384, intermediate_size: 1536, num_hidden_layers: 6, num_attention_heads: 12 };
const POSITIONS = { max_position_embeddings: 512 };
/** Enough pages for the contexts of all passages of a document at once. */
const LIMITS = { cpuMs: 60_000, wallMs: 600_000, pages: 4096 };

/** Engines on which workflows are measured. */
export interface Engines {
  readonly name: string;
  /** Name of the engines in the report. */
  readonly description: string;
  readonly shape: Shape;
  /** Maximum sequences of a batch of the model; Pie's default if absent. */
  readonly sequences?: number;
  /** `pace` of the engines in `pie.toml`; if absent, the engines run at their own speed. */
  readonly paces?: {
    readonly model: string;
    readonly small?: string;
    readonly encoder: string;
    readonly ranker: string;
  };
  /** `writer` is a model that writes sentences of 20 tokens for any input; it comes with two more models like it, `proxy` and `small`. */
  readonly model: 'stories15m' | 'writer';
}

/**
 * The times of Ayo's engines: Llama-2-7B, BGE-large and BGE-reranker-large, each on an RTX 3090. Their sources are the paper and, as "the log", the
 * log of example 1 in Ayo's repository (NetX-lab/Ayo, examples/optimized_example1_run.log).
 *
 * - `model`: for prompts, Table 3 of the paper (76 ms for 200 tokens, 260 for 1,000, 720 for 3,000); for answers, the log (21 ms a token).
 * - `encoder`: the log (26 ms for a text of 10 tokens, 158 for 128 texts of 91).
 * - `ranker`: the log (48 ms for 20 pairs, 116 for 60).
 * - `small`: Gemma-2-2B; the times of `model` scaled by the number of weights.
 */
const AYO_PACES = {
  model: '{ step_ms = 21, token_ms = 0.23 }',
  small: '{ step_ms = 8, token_ms = 0.09 }',
  encoder: '{ step_ms = 25, token_ms = 0.0116 }',
  ranker: '{ step_ms = 14, token_ms = 0.0167 }',
};

/**
 * The work of Ayo. Question answering has the document of the repository's examples (666 passages of 91 tokens) and answers of 10 tokens. As in
 * section 7 of the paper, the model words each question in three other ways, refines an answer over three passages, and writes the context of
 * each passage of 256 tokens from the four passages before it. Here a token is a letter, for the encoders and for the model `writer`.
 */
const AYO: Shape = {
  sentences: { 'contextual-retrieval': 36, others: 666 },
  inputs: {
    'search-generation': { proxy: 'proxy', queries: 3, results: 4 },
    'document-qa': { passageCharacters: 91, topK: 3, maxTokens: 10 },
    'advanced-rag': { passageCharacters: 91, topK: 3, candidates: 20, maxTokens: 10 },
    'contextual-retrieval': {
      passageCharacters: 270,
      before: 4,
      contextModel: 'small',
      candidates: 32,
      topK: 3,
      mode: 'compact',
      maxTokens: 10,
    },
  },
};

export const PACED: Engines = {
  name: 'paced',
  description: "steps paced as those of Ayo's engines, each on an RTX 3090 of its own, and Ayo's workloads",
  shape: AYO,
  paces: AYO_PACES,
  model: 'writer',
};

/**
 * Engines on which calls wait for a place in a batch: answers are longer, and the model takes few sequences in a batch, as on a card whose memory the
 * weights fill. The times are calculated: a step reads 16 GB of weights at 0.8 TB/s (20 ms), and an input takes 16 GFLOP at 80 TFLOP/s (0.2 ms).
 * The encoders have 335 million weights.
 */
export const CROWDED: Engines = {
  name: 'crowded',
  description:
    'steps paced as of an 8B model in bf16 (20 ms, 0.2 ms an input) and of BGE-large (8 ms, 0.01 ms a letter)',
  shape: {
    sentences: { 'contextual-retrieval': 24, others: 72 },
    inputs: { 'search-generation': { queries: 3 } },
  },
  sequences: 8,
  paces: {
    model: '{ step_ms = 20, token_ms = 0.2 }',
    encoder: '{ step_ms = 8, token_ms = 0.01 }',
    ranker: '{ step_ms = 8, token_ms = 0.01 }',
  },
  model: 'stories15m',
};

export const CORES: Engines = {
  name: 'cores',
  description: 'stories15m and encoders as large as MiniLM-L6, both on the cores of this machine, and short documents',
  shape: {
    sentences: { 'contextual-retrieval': 8, others: 24 },
    inputs: { 'search-generation': { queries: 3 } },
  },
  model: 'stories15m',
};

/** A platform with the applications on some engines, and a search engine. `await using` ends both. */
export class WorkflowPlatform implements AsyncDisposable {
  readonly platform: Platform;
  readonly queries: Queries;
  readonly #search: SearchEngine;

  private constructor(platform: Platform, queries: Queries, search: SearchEngine) {
    this.platform = platform;
    this.queries = queries;
    this.#search = search;
  }

  /** @param applications the applications to deploy */
  static async start(engines: Engines, applications: readonly string[]): Promise<WorkflowPlatform> {
    const home = await newHome();
    const modelPrefix = path.join(home, 'mini');
    // A paced engine takes the time of its pace whatever it computes, so its model may be small.
    if (engines.model === 'writer') await writingModel(`${modelPrefix}-writer`);
    const config = engines.paces ? { ...POSITIONS, num_hidden_layers: 1 } : { ...MINI_LM_SIZES, ...POSITIONS };
    await randomEncoder(`${modelPrefix}-encoder`, { kind: 'embedding', config }, 7);
    await randomEncoder(`${modelPrefix}-ranker`, { kind: 'reranker', config }, 7);
    const search = await SearchEngine.start({ delayMs: SEARCH_MS, port: SEARCH_ENGINE_PORT });
    try {
      const platform = await Platform.start({ home, functions: false, config: configuration(modelPrefix, engines) });
      // Deployed here and not by `Platform.start`, because `deploySource` reuses the builds of earlier platforms.
      for (const name of new Set(applications.map(functionOf)))
        await deploySource(platform, path.join(ROOT, 'functions', name), { manifest: { limits: LIMITS } });
      return new WorkflowPlatform(platform, new Queries(platform, engines.shape, search.url), search);
    } catch (error) {
      await search[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Deploys a guest's source file under a name. `file` is relative to the repository's root. */
  async deploy(file: string, name: string): Promise<void> {
    await deploySource(this.platform, path.join(ROOT, file), { name });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.platform[Symbol.asyncDispose]();
    await this.#search[Symbol.asyncDispose]();
  }
}

function configuration(modelPrefix: string, { paces, sequences, model }: Engines): string {
  const paceLine = (pace: string | undefined) => (pace === undefined ? '' : `pace = ${pace}`);
  const batchLine = sequences === undefined ? '' : `max_batch_sequences = ${sequences}`;
  const writerSection = (name: string, pace: string | undefined) => `
[[model]]
name = "${name}"
source = "file:${modelPrefix}-writer"
prefix_cache = false
pages = 32768
${paceLine(pace)}
`;
  const stories = `
[[model]]
name = "stories15m"
prefix_cache = false
${paceLine(paces?.model)}
${batchLine}
`;
  const writers = `${writerSection('writer', paces?.model)}${writerSection('proxy', paces?.model)}${writerSection('small', paces?.small)}`;
  return `
[http]
private_hosts = ["127.0.0.1"]
${model === 'writer' ? writers : stories}
[[model]]
name = "mini-encoder"
kind = "embedding"
source = "file:${modelPrefix}-encoder"
${paceLine(paces?.encoder)}

[[model]]
name = "mini-ranker"
kind = "reranker"
source = "file:${modelPrefix}-ranker"
${paceLine(paces?.ranker)}
`;
}

import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after } from 'node:test';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import { randomEncoder } from '#gpu-host/models/testing/random-encoder.ts';
import { randomAdapter, randomModel } from '#gpu-host/models/testing/random-model.ts';
import { randomVisionModel } from '#gpu-host/models/testing/random-vision-model.ts';
import type { ModelStats } from '#gpu-host/protocol/host.ts';
import { type MachineCertificate, newCertificate } from '#infra/links/security.ts';
import { deploySource, failure, modelStats } from './deploy.ts';
import { invoke, type StreamEvent, terminal } from './events.ts';
import { Machines, type Shape } from './machines.ts';
import { newHome, Platform, ROOT } from './platform.ts';

/**
 * The default model of the shared platform, which writes stories. Its output head has weights of 8 bits: the head is most of the model, and a token
 * then takes two thirds of the processor time.
 */
export const STORIES = 'stories15m';
/** A model with a chat template. */
export const CHAT = 'minimind2-small';
/** The stories' model with all weights of 8 bits. */
export const STORIES_8BIT = 'stories15m-8bit';
/** A tiny random model: context length 64, one token per byte, an adapter `other`. */
export const TINY = 'tiny';
/** The tiny model on the float64 reference backend. */
export const TINY_REFERENCE = 'tiny-reference';
/** Writes and loads the tiny model. */
export const tinyModel = (directory: string): Promise<LoadedModel> =>
  randomModel(directory, { vocabularySize: 259, contextLength: 64 }, 5);
/** A random model with the context length of the stories' model and one token per byte. Its steps take an eighth of the time. */
export const SMALL = 'small';
/** A random model of one token per byte, whose pool of 10,240 tokens is smaller than its context of 16,384. */
export const LONG = 'long';
/** A tiny random model with a vision encoder, which turns an image into nine embeds. Its chat template shows no images. */
export const TINY_VISION = 'tiny-vision';
/** The same with a longer context and a chat template that shows images. */
export const VISION_CHAT = 'vision-chat';
/** A tiny random encoder that makes vectors. */
export const ENCODER = 'tiny-encoder';
/** A tiny random encoder that makes scores. */
export const RANKER = 'tiny-ranker';

const configuration = (tiny: string, shared: string, here = '127.0.0.1'): string => `
[storage]
shared_directory = "${shared}"

[http]
private_hosts = ["${here}", "localhost"]
image_hosts = ["localhost:*"]

[[model]]
name = "${STORIES}"
head_bits = 8

[[model]]
name = "${CHAT}"

[[model]]
name = "${STORIES_8BIT}"
source = "stories15m"
bits = 8

[[model]]
name = "${TINY}"
source = "file:${tiny}"
adapters = [{ name = "other", source = "file:${tiny}-adapter" }]

[[model]]
name = "${TINY_REFERENCE}"
source = "file:${tiny}"
backend = "reference"
pages = 256

[[model]]
name = "${SMALL}"
source = "file:${tiny}-small"

[[model]]
name = "${LONG}"
source = "file:${tiny}-long"
pages = 640

[[model]]
name = "${TINY_VISION}"
source = "file:${tiny}-vision"

[[model]]
name = "${VISION_CHAT}"
source = "file:${tiny}-vision-chat"

[[model]]
name = "${ENCODER}"
kind = "embedding"
source = "file:${tiny}-encoder"

[[model]]
name = "${RANKER}"
kind = "reranker"
source = "file:${tiny}-ranker"
`;

/** True to run the shared platform on several machines in network namespaces, which `pie join` sets up, instead of on this machine alone. */
const ON_MACHINES = process.env.PIE_TEST_MACHINES === '1';
const SHAPE: Shape = {
  'gpu-1': 'gpu-host',
  'gpu-2': 'gpu-host',
  'gpu-3': 'gpu-host',
  'run-1': 'runtime',
  'run-2': 'runtime',
};

let starting: Promise<Platform> | undefined;
let machines: Machines | undefined;
/** The directory that the platform's machines share. */
let shared = '';
const deploying = new Map<string, Promise<void>>();

/**
 * Returns the platform that the tests of `functions/` share, and others that need no platform of their own. The first call in a process starts it.
 * Each step of the tests runs them one after the other in one process, so a token count belongs to the test that reads it.
 */
export function functionsPlatform(): Promise<Platform> {
  starting ??= start();
  return starting;
}

async function start(): Promise<Platform> {
  const home = await newHome();
  const tiny = path.join(home, 'tiny-model');
  const model = await tinyModel(tiny);
  await randomAdapter(`${tiny}-adapter`, model.config, 8);
  await randomModel(`${tiny}-small`, { vocabularySize: 259, contextLength: 256 }, 14);
  await randomModel(`${tiny}-long`, { vocabularySize: 259, contextLength: 16_384 }, 15);
  await randomVisionModel(`${tiny}-vision`, { text: { vocabularySize: 320 } }, 7);
  await randomVisionModel(`${tiny}-vision-chat`, { text: { vocabularySize: 320, contextLength: 512 }, chat: true }, 8);
  await randomEncoder(`${tiny}-encoder`, { kind: 'embedding' }, 7);
  await randomEncoder(`${tiny}-ranker`, { kind: 'reranker' }, 7);
  shared = await mkdtemp(path.join(os.tmpdir(), 'pie-shared-'));
  if (!ON_MACHINES) {
    const localhost = await newCertificate('localhost', Date.now());
    const trusted = path.join(home, 'localhost.pem');
    await writeFile(trusted, localhost.certificate);
    localhostCertificate = localhost;
    const config = configuration(tiny, shared);
    return Platform.start({ home, functions: false, config, env: { NODE_EXTRA_CA_CERTS: trusted } });
  }
  const config = (outside: string) => configuration(tiny, shared, outside);
  machines = await Machines.start({ shape: SHAPE, home, functions: false, config });
  await machines.joinAll();
  return machines.front;
}

let localhostCertificate: MachineCertificate | undefined;

/** A certificate of `localhost` that the shared platform trusts; undefined before the platform runs, and if it runs on several machines. */
export const trustedCertificate = (): MachineCertificate | undefined => localhostCertificate;

/** The address at which inferlets of the shared platform reach servers of this process. Valid once the platform runs. */
export const ownAddress = (): string => machines?.network.outside ?? '127.0.0.1';

after(async () => {
  const platform = await starting?.catch(() => undefined);
  await (machines ?? platform)?.[Symbol.asyncDispose]();
  if (shared !== '') await rm(shared, { recursive: true, force: true });
});

/** Outcome of one successful invocation of a function. */
export interface CallResult {
  // biome-ignore lint/suspicious/noExplicitAny: the tests read what the wire says
  readonly output: any;
  /** Text messages, in order. */
  readonly messages: readonly string[];
  readonly events: readonly StreamEvent[];
  readonly usage: Readonly<Record<string, number>>;
}

/** Invokes a function of `functions/`, which must succeed; deploys the function on its first call. */
export async function callFunction(name: string, input: unknown = {}): Promise<CallResult> {
  await deployFunction(name);
  const events = await invoke(await functionsPlatform(), name, input);
  const end = terminal(events);
  assert.equal(end?.event, 'result', JSON.stringify(end?.data));
  const messages = events.filter(({ event }) => event === 'message').map(({ data }) => data.text as string);
  return { output: end?.data.output, usage: end?.data.usage, messages, events };
}

/** Invokes a function of `functions/` and returns its error. The invocation must fail. */
export async function failingFunction(name: string, input: unknown = {}): Promise<StreamEvent['data']> {
  await deployFunction(name);
  return failure(await functionsPlatform(), name, input);
}

/** Sends an input that the function's schema must refuse. Returns the status and the refused field. */
export async function refusedInput(name: string, input: unknown): Promise<{ status: number; field?: string }> {
  const platform = await functionsPlatform();
  await deployFunction(name);
  const response = await platform.fetch(`/v1/functions/${name}/invocations`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(input),
  });
  const { field } = (await response.json()) as { field?: string };
  assert.ok(!response.ok, 'the input was accepted');
  return { status: response.status, ...(field !== undefined && { field }) };
}

/** Counters of a model since they were last reset. */
export async function countersOf(model: string = STORIES, options: { reset?: boolean } = {}): Promise<ModelStats> {
  return modelStats(await functionsPlatform(), { model, ...options });
}

type BatchSizes = Pick<ModelStats, 'batchSizes'>;

/** Maximum invocations until one shares batches (`assertBatched`) or sends several messages (`assertStreams`). */
const MAX_RUNS = 10;

/**
 * Asserts that a function's concurrent calls share batches: batches of several sequences compute at least a tenth of all sequences. A function
 * that waits for each call shares no batch. On a busy machine the calls of an inferlet may come so far apart that none shares a batch:
 * `invokeAgain` then makes further invocations.
 */
export async function assertBatched(stats: BatchSizes, invokeAgain?: () => Promise<unknown>): Promise<void> {
  let last = stats;
  for (let runs = 1; invokeAgain && runs < MAX_RUNS && !isBatched(last); runs++) {
    await countersOf(STORIES, { reset: true });
    await invokeAgain();
    last = await countersOf();
  }
  assert.ok(
    isBatched(last),
    `less than a tenth of the sequences shared a batch; batches by size: [${last.batchSizes}]`,
  );
}

/**
 * Asserts that a function sends its output in several messages. Tokens decoded while the function waits for a core share a message, so a busy machine
 * may need several invocations.
 */
export async function assertStreams(name: string, input: object): Promise<void> {
  let mostMessages = 0;
  for (let runs = 0; runs < MAX_RUNS && mostMessages <= 2; runs++) {
    mostMessages = Math.max(mostMessages, (await callFunction(name, input)).messages.length);
  }
  assert.ok(mostMessages > 2, `${name} sent at most ${mostMessages} messages`);
}

function isBatched({ batchSizes }: BatchSizes): boolean {
  const sequences = batchSizes.reduce((sum, batches, size) => sum + batches * size, 0);
  return sequences > 0 && (batchSizes[1] ?? 0) <= 0.9 * sequences;
}

/** Maximum comparisons of two runs until the traced run saves steps: on a busy machine a program's calls may come too far apart to share a step. */
const MAX_COMPARISONS = 10;

/**
 * Invokes a program twice, interpreted and traced. Asserts that both outputs are equal and returns the output. The traced run must take less than
 * `share` of the interpreted run's device steps. Their number varies, since the host decodes tokens ahead and discards some; the tests of the library
 * count the calls exactly.
 */
export async function tracedAsInterpreted(name: string, input: object, share?: number): Promise<CallResult['output']> {
  const invoked = async (interpret: boolean) => {
    await countersOf(STORIES, { reset: true });
    const { output } = await callFunction(name, { ...input, interpret });
    return { output, steps: (await countersOf()).batches };
  };
  const stepRatios: number[] = [];
  for (;;) {
    const [interpreted, traced] = [await invoked(true), await invoked(false)];
    assert.deepEqual(traced.output, interpreted.output);
    stepRatios.push(traced.steps / interpreted.steps);
    if (share === undefined || Math.min(...stepRatios) < share) return traced.output;
    assert.ok(
      stepRatios.length < MAX_COMPARISONS,
      `${name} takes ${stepRatios} of the steps; less than ${share} are expected`,
    );
  }
}

/** Deploys `functions/<name>`; later calls with this name wait for the first deploy. */
export function deployFunction(name: string): Promise<void> {
  let deployed = deploying.get(name);
  if (!deployed) {
    deployed = deployFrom(path.join(ROOT, 'functions', name));
    deploying.set(name, deployed);
  }
  return deployed;
}

/** Deploys a folder or file, under its own name or another. */
export async function deployFrom(source: string, name?: string): Promise<void> {
  await deploySource(await functionsPlatform(), source, name === undefined ? {} : { name });
}

/**
 * A text of about 1,050 tokens, four times the context of the stories' model. This model wrote it: the text is the beginning of six continuations of
 * `Once upon a time`, each of at most 220 tokens, at a temperature of 0.7 and with the seeds 1 to 6.
 */
export const longStory = (): Promise<string> => readFile(path.join(import.meta.dirname, 'long-story.txt'), 'utf8');

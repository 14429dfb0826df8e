import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { DeviceClient, Distribution, GpuHostConnection, Mask, Outcome, StepResult } from '../protocol/client.ts';
import type { AnswerOf, AskedOperation, SentOperation } from '../protocol/operations.ts';
import { BACKENDS } from './backends.ts';
import { must, NONE, Oracle, range, startTestHost, type TestHost, type TestHostOptions } from './host.ts';

export const PROMPT = [1, 5, 9, 44, 3, 17, 60, 2, 8, 31, 12];

export const ids = (...values: number[]): Uint32Array => Uint32Array.from(values);

/** One inferlet on a tiny model, with shorthands for tests. */
export class Workbench {
  readonly host: TestHost;
  readonly oracle: Oracle;
  readonly connection: GpuHostConnection;
  readonly inferlet: DeviceClient;
  readonly queue: number;

  constructor(host: TestHost, oracle: Oracle, connection: GpuHostConnection, name: string, tenant = 'default') {
    this.host = host;
    this.oracle = oracle;
    this.connection = connection;
    this.inferlet = connection.openInferlet({ id: name, tenant, maxPages: 40, arrival: 1 });
    this.queue = this.inferlet.createQueue('tiny');
  }

  pages(count: number): Uint32Array {
    return must(this.inferlet.allocatePages(this.queue, count));
  }

  embeds(count: number): Uint32Array {
    return must(this.inferlet.allocateEmbeds(this.queue, count));
  }

  ask<Asked extends AskedOperation>(operation: Asked): Promise<Outcome<AnswerOf<Asked['op']>>> {
    return this.inferlet.ask(this.queue, operation);
  }

  send(operation: SentOperation): void {
    this.inferlet.send(this.queue, operation);
  }

  embedText(tokens: Uint32Array, positions: Uint32Array, embeds: Uint32Array): void {
    this.send({ op: 'embed-text', tokens, positions, embeds });
  }

  forward(inPages: Uint32Array, inEmbeds: Uint32Array, outPages: Uint32Array, outEmbeds: Uint32Array, mask?: Mask) {
    this.send({ op: 'forward', inPages, inEmbeds, outPages, outEmbeds, mask });
  }

  next(embed: number, topK: number): Promise<Outcome<Distribution>> {
    return this.ask({ op: 'next-distribution', embed, topK });
  }

  /** Fills pages with tokens from position `start` on. */
  fill(into: Uint32Array, tokens: readonly number[], start = 0, inPages = into): Promise<Outcome<StepResult>> {
    const positions = range(start, start + tokens.length);
    const request = { tokens: Uint32Array.from(tokens), positions, inPages, outPages: into, mask: undefined, rows: 0 };
    return this.inferlet.ask(this.queue, { op: 'step', request: { ...request, output: { tag: 'none' } } });
  }

  /** The distribution after `token` at `position`, with the keys of `inPages` as context. Stores no key of the token. */
  async probe(inPages: Uint32Array, token: number, position: number, mask?: Mask): Promise<Distribution> {
    const request = { tokens: ids(token), positions: ids(position), inPages, outPages: NONE, mask, rows: 1 };
    const outcome = await this.inferlet.ask(this.queue, {
      op: 'step',
      request: { ...request, output: { tag: 'distributions', val: 5 } },
    });
    return must(outcome).distributions[0] as Distribution;
  }
}

/** Asserts that two distributions have the same tokens, with log-probabilities that are equal up to rounding. */
export function same(
  actual: Distribution,
  expected: Pick<Distribution, 'tokens' | 'logProbabilities'>,
  message = 'the same distribution',
): void {
  assert.deepEqual([...actual.tokens], [...expected.tokens], message);
  for (const [i, value] of actual.logProbabilities.entries()) {
    assert.ok(Math.abs(value - (expected.logProbabilities[i] as number)) < 1e-4, message);
  }
}

/** Declares the tests of a suite by calling `addTest` for each. */
type Suite = (addTest: (name: string, body: (bench: Workbench) => Promise<void>) => void) => void;

/** Runs a suite on one host per backend. Each test has an inferlet of its own, and must leave no page behind when the inferlet closes. */
export function withWorkbench(name: string, suite: Suite, options: TestHostOptions = {}): void {
  for (const backend of BACKENDS) suiteOn(`${name} (${backend})`, suite, { ...options, backend });
}

/** {@link withWorkbench} on one backend, for calls that only move whole pages: `backends/conformance-slots.test.ts` tests moves on each backend. */
export function onOneBackend(name: string, suite: Suite, options: TestHostOptions = {}): void {
  suiteOn(name, suite, { ...options, backend: 'onnx' });
}

function suiteOn(name: string, suite: Suite, options: TestHostOptions): void {
  describe(name, () => {
    let host: TestHost;
    let oracle: Oracle;
    let connection: GpuHostConnection;
    let opened: readonly DeviceClient[];
    before(async () => {
      host = await startTestHost(options);
      oracle = await Oracle.of(host.model);
      connection = await host.connect();
      opened = openedBy(connection);
    });
    after(() => host[Symbol.asyncDispose]());
    suite((title, body) => {
      test(title, async () => {
        const bench = new Workbench(host, oracle, connection, title);
        try {
          await body(bench);
        } finally {
          await bench.inferlet.close();
        }
        await Promise.all(opened.map((inferlet) => inferlet.close()));
        const { models, tenants } = await connection.stats();
        assert.equal(models[0]?.pages.owned, 0, 'every page is free, or cached for its content');
        assert.deepEqual(tenants, [], 'no tenant holds anything');
        checkCharged(opened, models[0]?.deviceBusyMs ?? 0);
      });
    });
  });
}

/** Collects all inferlets that a connection opens from now on. */
export function openedBy(connection: GpuHostConnection): readonly DeviceClient[] {
  const opened: DeviceClient[] = [];
  const open = connection.openInferlet.bind(connection);
  connection.openInferlet = (options) => {
    const inferlet = open(options);
    opened.push(inferlet);
    return inferlet;
  };
  return opened;
}

/** Checks that all device time was charged, up to a microsecond per inferlet: hosts report usage in whole microseconds. */
export function checkCharged(ended: readonly DeviceClient[], deviceBusyMs: number): void {
  let charged = 0;
  for (const { usage } of ended) charged += usage.gpuUs;
  const unchargedUs = deviceBusyMs * 1000 - charged;
  assert.ok(
    unchargedUs >= -1 && unchargedUs <= ended.length + 1,
    `${unchargedUs} µs of the device were charged to no inferlet`,
  );
}

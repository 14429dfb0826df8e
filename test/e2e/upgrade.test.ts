import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { PieClient } from '#gateway/client/client.ts';
import type { RuntimeDescription } from '#scheduler/runtimes/types.ts';
import { EarlierRelease } from '#test/harness/earlier-release.ts';
import { FRONT, Machines, type Shape } from '#test/harness/machines.ts';
import { Network } from '#test/harness/network.ts';
import { ROOT, until } from '#test/harness/platform.ts';

const SHAPE: Shape = {
  'gpu-1': 'gpu-host',
  'gpu-2': 'gpu-host',
  'gpu-3': 'gpu-host',
  'run-1': 'runtime',
  'run-2': 'runtime',
  'run-3': 'runtime',
};
/** A machine that runs the new code from the beginning. It joins while the gateway still runs the earlier release. */
const EARLY = 'gpu-3';
/** A machine that runs the earlier release to the end. It joins while the gateway already runs the new code. */
const LATE = 'run-3';
/** Order of the upgrades. New runtimes meet earlier GPU hosts and gateways, and earlier runtimes meet new ones. */
const ORDER = ['run-1', 'gpu-1', FRONT, 'gpu-2', 'run-2'];
/**
 * `placement = "invocation"` lets one tenant use all GPU hosts. A gateway that stops ends the streams of invocations that last longer than `drain_ms`, and the clients resume these streams.
 */
const CONFIG = 'drain_ms = 2000\n[gpu_host]\nplacement = "invocation"\n';
const PROMPTS = ['Once upon a time', 'The dog', 'Lily and Tom', 'One day'];
const STORY_CLIENTS = 4;
const LONG_CLIENTS = 4;
/** Input of an invocation that takes about 5 s, more than `drain_ms`: 80 tokens, with a pause after each. */
const LONG = { mark: 'long', tokens: 80, pauseMs: 60 };

interface Outcome {
  /** Name and input of the function. */
  readonly asked: string;
  /** End of the invocation: `result`, or its error. */
  readonly end: string;
  readonly output: unknown;
  /** The joined messages. Those of a story are pieces of any size; the others are one token each. */
  readonly text: string;
}

const missing = Network.missingReason() || EarlierRelease.missingReason();
const skip = missing || (!process.env.PIE_TEST_ALL && 'it takes minutes: npm run test:all');

describe('while the machines of an earlier release are upgraded one after another', { skip }, () => {
  const releases = missing ? [] : EarlierRelease.candidates();
  for (const release of releases)
    test(`no invocation of a streaming client fails (release ${release})`, async (t) => {
      using earlier = EarlierRelease.open(release);
      await using machines = await Machines.start({ shape: SHAPE, config: CONFIG, root: earlier.root });
      await Promise.all(
        ['gpu-1', 'gpu-2', EARLY].map((name) => machines.join(name, name === EARLY ? ROOT : undefined)),
      );
      await Promise.all(['run-1', 'run-2'].map((name) => machines.join(name)));
      const deployed = await machines.front.pie(['deploy', 'test/inferlets/counted']);
      assert.equal(deployed.code, 0, deployed.stderr);
      await untilReached(machines);
      const { front } = machines;
      const { url, apiKey } = front;
      await until('the story can be invoked', async () => (await front.fetch('/v1/functions/text-completion')).ok);

      const client = new PieClient({ url, apiKey });
      const ask = async (name: string, input: object, separator: string): Promise<Outcome> => {
        const messages: string[] = [];
        const outcomeOf = (end: string, output: unknown = null): Outcome => {
          return { asked: `${name} ${JSON.stringify(input)}`, end, output, text: messages.join(separator) };
        };
        try {
          for await (const { event, data } of await client.invoke(name, input)) {
            if (event === 'message' && 'text' in data) messages.push(data.text);
            if (event === 'result') return outcomeOf(event, data.output);
            if (event === 'error') return outcomeOf(JSON.stringify(data));
          }
          return outcomeOf('none');
        } catch (error) {
          return outcomeOf(`the client gave up: ${error}`);
        }
      };
      const story = (i: number) =>
        ask('text-completion', { prompt: PROMPTS[i % PROMPTS.length], maxTokens: 64, temperature: 0 }, '');
      const long = () => ask('counted', LONG, ' ');

      const alone = await Promise.all([...PROMPTS.map((_, i) => story(i)), long()]);
      assert.deepEqual(
        alone.map(({ end }) => end),
        alone.map(() => 'result'),
      );
      const expected = new Map(alone.map((each) => [each.asked, each]));
      const ended: Outcome[] = [];
      const stopClients = new AbortController();
      const streaming = async (next: (i: number) => Promise<Outcome>) => {
        for (let i = 0; !stopClients.signal.aborted; i++) ended.push(await next(i));
      };
      const clients = Promise.all([
        ...Array.from({ length: STORY_CLIENTS }, () => streaming(story)),
        ...Array.from({ length: LONG_CLIENTS }, () => streaming(long)),
      ]);
      const untilMoreEnd = async () => {
        const before = ended.length;
        await until('invocations end', () => ended.length >= before + STORY_CLIENTS + LONG_CLIENTS);
      };
      try {
        for (const name of ORDER) {
          await untilMoreEnd();
          // `LATE` joins while another runtime still runs the earlier release. With only new runtimes, the gateway's machine would deploy the
          // bundled functions anew, and the runtime of `LATE` may be unable to run these new versions.
          if (name === ORDER.at(-1)) {
            await machines.join(LATE);
            await untilReached(machines);
            await untilMoreEnd();
          }
          await machines.upgrade(name, ROOT);
          await untilReached(machines);
        }
        await untilMoreEnd();
      } finally {
        stopClients.abort();
        await clients;
      }
      assert.deepEqual(
        ended.filter((each) => each.end !== 'result' || each.text.length === 0),
        [],
      );
      for (const each of ended) assert.deepEqual(each, expected.get(each.asked));
      assert.deepEqual(refusals(machines), []);
      t.diagnostic(`${ended.length} invocations, none of which failed`);
    });
});

/** Waits until each runtime is linked to each GPU host. A link needs a version of the protocol that both sides know. */
async function untilReached(machines: Machines): Promise<void> {
  await until('each runtime reaches each GPU host', async () => {
    const described = Object.values(await machines.redis.hgetall('pie:runtimes'));
    const runtimes = described.map((text) => JSON.parse(text) as RuntimeDescription);
    const hosts = machines.running.filter((name) => SHAPE[name] === 'gpu-host').length;
    return (
      runtimes.length === machines.running.filter((name) => SHAPE[name] === 'runtime').length &&
      runtimes.every(({ gpuHosts = [] }) => gpuHosts.filter(({ connected }) => connected).length === hosts)
    );
  });
}

/** Lines in the logs of the machines that report a link whose one side is too old for the other side. */
function refusals(machines: Machines): string[] {
  const logs = machines.running.flatMap((name) => globSync(`${machines.platform(name).home}/logs/*.log`));
  assert.ok(logs.length >= machines.running.length, `${logs.length} logs`);
  return logs.flatMap((log) => readFileSync(log, 'utf8').match(/^.*is too old for the.*$/gm) ?? []);
}

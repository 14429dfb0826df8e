import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { deployWith, modelStats } from '#test/harness/deploy.ts';
import { hold, invoke, json, numberOf, readEvents, terminal, text } from '#test/harness/events.ts';
import { deployFunction, functionsPlatform, TINY, TINY_REFERENCE } from '#test/harness/functions.ts';
import { type Platform, until } from '#test/harness/platform.ts';

/** The first greedy tokens that llama2.c generates with stories15M from the begin-of-text token. */
const GREEDY_IDS = [9038, 2501, 263, 931, 29892, 727, 471, 263, 2217, 7826, 4257, 365];
const STORY = 'Once upon a time, there was a little girl named L';
const INPUT = { prompt: '', maxTokens: 64, temperature: 0 };
/** Far beyond every wait of a client: a test that reaches the deadline fails at the hanging call instead of waiting forever. */
const DEADLINE_MS = 120_000;
const withDeadline = () => ({ signal: AbortSignal.timeout(DEADLINE_MS) });

let platform: Platform;

describe('a story', () => {
  before(async () => {
    platform = await functionsPlatform();
    await Promise.all(['text-completion', 'echo-session'].map(deployFunction));
    await deployWith(platform, 'counted', {});
  });

  test('a text completion streams the greedy tokens of llama2.c and ends with a result', async () => {
    const events = await invoke(platform, 'text-completion', INPUT, withDeadline());
    assert.equal(events[0]?.event, 'start');
    assert.ok(text(events).trimStart().startsWith(STORY), text(events));
    // The first token comes at once. The others come in slices of 25 ms, and a fast machine may decode all of them in one slice.
    const messages = events.filter((event) => event.event === 'message');
    assert.ok(messages.length > 1, 'the text arrives in several messages');
    assert.deepEqual(terminal(events)?.data.output.tokens.slice(0, GREEDY_IDS.length), GREEDY_IDS);
    assert.equal(terminal(events)?.data.output.tokens.length, 64);
    assert.deepEqual(
      events.map(numberOf),
      events.map((_, i) => i + 1),
      'sequence numbers have no gap',
    );
  });

  test('the reference backend returns the same text', async () => {
    const [served, oracle] = await Promise.all(
      [TINY, TINY_REFERENCE].map((model) =>
        invoke(platform, 'text-completion', { prompt: 'a', maxTokens: 32, temperature: 0, model }, withDeadline()),
      ),
    );
    assert.equal(terminal(oracle ?? [])?.event, 'result');
    assert.deepEqual(terminal(served ?? [])?.data.output, terminal(oracle ?? [])?.data.output);
  });

  test('pie invoke prints the text, and events with --json', async () => {
    const plain = await platform.pie(['invoke', 'text-completion', '--input', JSON.stringify(INPUT)]);
    assert.equal(plain.code, 0, plain.stderr);
    assert.ok(plain.stdout.trimStart().startsWith(STORY), plain.stdout);
    const json = await platform.pie(['invoke', 'text-completion', '--input', JSON.stringify(INPUT), '--json']);
    const lines = json.stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    assert.equal(lines[0].event, 'start');
    assert.equal(lines.at(-1).event, 'result');
  });

  test('a JSON client gets one answer, and respond-async returns a location to poll and to resume', async () => {
    const post = (headers: Record<string, string>) =>
      platform.fetch('/v1/functions/text-completion/invocations', {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: JSON.stringify({ ...INPUT, maxTokens: 8 }),
        ...withDeadline(),
      });
    const waited = await json(await post({ accept: 'application/json' }));
    assert.equal(waited.status, 'succeeded');
    assert.deepEqual(waited.output.tokens, GREEDY_IDS.slice(0, 8));

    const accepted = await post({ prefer: 'respond-async' });
    assert.equal(accepted.status, 202);
    const location = accepted.headers.get('location') ?? '';
    const events = await readEvents(
      await platform.fetch(`${location}/events`, { headers: { accept: 'text/event-stream' }, ...withDeadline() }),
    );
    assert.deepEqual(terminal(events)?.data.output.tokens, GREEDY_IDS.slice(0, 8));
    const status = await json(await platform.fetch(location, withDeadline()));
    assert.equal(status.status, 'succeeded');

    const middle = events[1]?.id ?? '';
    const rest = await readEvents(
      await platform.fetch(`${location}/events`, { headers: { 'last-event-id': middle }, ...withDeadline() }),
    );
    assert.deepEqual(rest, events.slice(2), 'a reader resumes after its last event');
  });

  test('an equal seed repeats the text, and another seed changes it', async () => {
    const run = async (seed: number) =>
      terminal(
        await invoke(
          platform,
          'text-completion',
          { prompt: 'The cat', maxTokens: 24, temperature: 1, seed },
          withDeadline(),
        ),
      )?.data.output.text;
    const [first, repeated, other] = await Promise.all([run(7), run(7), run(8)]);
    assert.equal(first, repeated);
    assert.notEqual(first, other);
    const [largest, half] = await Promise.all([run(2 ** 32 - 1), run(2 ** 31 - 1)]);
    assert.notEqual(largest, half, 'all 32 bits of a seed count');
  });

  test('a session exchanges messages in both directions', async () => {
    const accepted = await platform.fetch('/v1/functions/echo-session/invocations', {
      method: 'POST',
      headers: { 'content-type': 'application/json', prefer: 'respond-async' },
      body: '{}',
      ...withDeadline(),
    });
    assert.equal(accepted.status, 202);
    const location = accepted.headers.get('location') ?? '';
    const say = (line: string) =>
      platform.fetch(`${location}/messages`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ text: line }),
        ...withDeadline(),
      });
    const talking = async () => {
      for (const line of ['hello', 'how are you', 'bye']) assert.equal((await say(line)).status, 202, line);
    };
    const heard: string[] = [];
    const reading = readEvents(await platform.fetch(`${location}/events`, withDeadline()), ({ id, event }) =>
      heard.push(`${id} ${event}`),
    );
    const [events] = await Promise.all([reading, talking()]).catch(async (cause) => {
      const state = await (await platform.fetch(location, withDeadline())).text();
      throw new Error(`the session broke off after [${heard}]: ${state}`, { cause });
    });
    assert.equal(terminal(events)?.event, 'result');
    assert.match(text(events), /hello[\s\S]*how are you/);
  });

  test('a cancelled invocation ends with one event and frees its pages', async () => {
    // The invocation holds its pages and waits for a message that never comes.
    const { id, ended } = await hold(platform, 'counted', { mark: 'held', tokens: 8, listenAt: 4 });
    assert.ok((await modelStats(platform)).pages.owned > 0);
    await platform.fetch(`/v1/invocations/${id}`, { method: 'DELETE', ...withDeadline() });
    const events = await ended;
    assert.equal(terminal(events)?.event, 'error');
    assert.equal(terminal(events)?.data.code, 'cancelled');
    assert.equal(events.filter((event) => event.event === 'error' || event.event === 'result').length, 1);
    await until('its pages are free', async () => (await modelStats(platform)).pages.owned === 0);
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { invoke, terminal } from '#test/harness/events.ts';
import { CHAT, countersOf, functionsPlatform } from '#test/harness/functions.ts';
import { deployGranting, ToolServer } from '#test/harness/tool-server.ts';

const stringFields = (...names: string[]) => ({
  type: 'object',
  properties: Object.fromEntries(names.map((name) => [name, { type: 'string' }])),
});

const AFTER = 'I wait for both of them and count the sheep on the hill';
const SCRIPT = [`\nconvert(unit="F")\nweather(city="Rome")\n${AFTER}`, ' It is 70 degrees.'];

/** Invokes the function. `wording` is part of the first tool's description: calls with different wordings share no cached specifications. */
async function ask(
  server: ToolServer,
  wording: string,
  input: object,
  onText: (text: string) => void = () => undefined,
) {
  const apis = [
    {
      name: 'weather',
      description: `The weather of a city, by ${wording}`,
      parameters: stringFields('city'),
      url: server.url('weather'),
    },
    {
      name: 'calendar',
      description: 'What is planned on a day',
      parameters: stringFields('day', 'month'),
      url: server.url('calendar'),
    },
    {
      name: 'convert',
      description: 'Converts degrees to another unit',
      parameters: stringFields('unit'),
      url: server.url('convert'),
      once: true,
    },
    {
      name: 'translate',
      description: 'Says it in another language',
      parameters: stringFields('to'),
      url: server.url('translate'),
      once: true,
    },
  ];
  const before = await countersOf(CHAT, { reset: true });
  let text = '';
  const events = await invoke(
    await functionsPlatform(),
    'function-calling',
    { task: 'How warm is it in Rome?', apis, script: SCRIPT, ...input },
    {
      onEvent: ({ event, data }) => {
        if (event !== 'message') return;
        text += data.text;
        onText(text);
      },
    },
  );
  const end = terminal(events);
  assert.equal(end?.event, 'result', JSON.stringify(end?.data));
  const { tokens, decodeTokens, prefix } = await countersOf(CHAT);
  return {
    ...end?.data.output,
    computed: tokens,
    prefilled: tokens - decodeTokens,
    cacheHits: prefix.hitTokens - before.prefix.hitTokens,
  };
}

describe('function-calling', () => {
  it('tells the model the status when a tool fails', async () => {
    await using server = await ToolServer.start({});
    await deployGranting('function-calling', server.host);
    const { calls } = await ask(server, 'gray', { discard: true, script: ['\ntranslate(to="French")', ' No.'] });
    assert.deepEqual(
      calls.map(({ ok, content }: { ok: boolean; content: string }) => [ok, content]),
      [[false, 'Error: the tool answered 404.']],
    );
  });

  it('prefills less with `reuse`, calls tools during decoding with `eager`, and hides used specifications with `forget`', async (t) => {
    const log: string[] = [];
    let sawAfter: PromiseWithResolvers<void> | undefined;
    await using server = await ToolServer.start({
      weather: () => 21,
      convert: async () => {
        log.push('request');
        await sawAfter?.promise;
        return 'times 1.8, plus 32';
      },
    });
    await deployGranting('function-calling', server.host);
    const off = { reuse: false, eager: false, forget: false };

    const plain = await ask(server, 'red', off);
    assert.equal(plain.answer, 'It is 70 degrees.');
    assert.deepEqual(
      plain.calls.map(({ content }: { content: string }) => content),
      ['times 1.8, plus 32', '21'],
    );
    for (const { firedAt, generated } of plain.calls) assert.equal(firedAt, generated);

    // 1: the specifications come from the export of the previous invocation.
    const first = await ask(server, 'blue', { ...off, reuse: true });
    const second = await ask(server, 'blue', { ...off, reuse: true });
    // The first invocation computes the last token of the specifications twice: for the export, and for the continuation.
    const otherTokens = plain.prefilled + plain.cacheHits - plain.specTokens;
    assert.equal(first.prefilled + first.cacheHits, first.specTokens + otherTokens + 1);
    assert.ok(second.specTokens > 32);
    assert.equal(second.prefilled, otherTokens);
    // The tokens come from the export, so the prefix cache supplied none.
    assert.equal(second.cacheHits, 0);

    // 2: the server answers only after the client has received text that was decoded after the call.
    log.length = 0;
    sawAfter = Promise.withResolvers();
    const eager = await ask(server, 'blue', { ...off, reuse: true, eager: true }, (text) => {
      if (!text.includes(AFTER) || log.includes('decoded on')) return;
      log.push('decoded on');
      sawAfter?.resolve();
    });
    // The order of the two entries depends on the machine. The server answered only after the entry `decoded on`.
    assert.deepEqual(log.toSorted(), ['decoded on', 'request']);
    for (const { firedAt, generated } of eager.calls) assert.ok(firedAt < generated, `${firedAt} of ${generated}`);
    assert.equal(eager.prefilled, second.prefilled);
    assert.equal(eager.hidden, 0);
    assert.equal(eager.entropy, second.entropy);

    // 3: all three options are on. `forget` hides the specification of `convert`, but not that of the unused `translate`.
    const whole = await ask(server, 'blue', { discard: true });
    assert.equal(whole.answer, plain.answer);
    assert.ok(whole.hidden > 8 && whole.hidden < whole.specTokens);
    assert.notEqual(whole.entropy, eager.entropy);
    // Masking splits the computation of the tools' results into two steps, but computes no token twice.
    assert.equal(whole.computed, second.computed);

    for (const [name, { prefilled, hidden, wallMs }] of Object.entries({ plain, first, second, eager, whole })) {
      t.diagnostic(`${name}: ${prefilled} tokens prefilled, ${hidden} hidden, ${wallMs} ms`);
    }
  });
});

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CHAT, callFunction, countersOf, failingFunction } from '#test/harness/functions.ts';
import { deployChanged, deployGranting, ToolServer } from '#test/harness/tool-server.ts';

const block = (code: string) => `I try.\n\`\`\`js\n${code}\n\`\`\``;
const outputs = (messages: readonly string[]) => messages.flatMap((message) => JSON.parse(message).output as string[]);

describe('agent-codeact', () => {
  it("runs the model's code with lasting state and functions, shows its errors, and computes no token twice", async () => {
    await using server = await ToolServer.start({ price: ([item]) => ({ tea: 3, cake: 4 })[item as 'tea'] });
    await deployGranting('agent-codeact', server.host);
    const before = await countersOf(CHAT, { reset: true });
    const { output, messages } = await callFunction('agent-codeact', {
      task: 'What do two teas and a cake cost?',
      functions: [
        { name: 'price', description: 'of an item', url: server.url('price') },
        { name: 'stock', url: server.url('missing') },
      ],
      script: [
        block("state.tea = await price('tea');\nconsole.log('tea', state.tea);"),
        block("const [cake] = await Promise.all([price('cake')]);\nreturn 2 * state.tea + cake;"),
        block('cake + 1'),
        block('await stock(1)'),
        '10',
      ],
    });
    const { tokens, prefix } = await countersOf(CHAT);
    assert.equal(output.answer, '10');
    assert.deepEqual(outputs(messages), [
      'tea 3',
      '10',
      'ReferenceError: cake is not defined',
      'Error: the function answered 404.',
    ]);
    assert.deepEqual(
      server.requests.flatMap(({ body }) => body),
      ['tea', 'cake', 1],
    );
    // The device computed each token of the context once, or the prefix cache supplied it.
    assert.equal(tokens + prefix.hitTokens - before.prefix.hitTokens, output.tokens);
  });

  it('gives the code the language and the listed functions, and no other part of the inferlet', async () => {
    const escapes = [
      'typeof globalThis + typeof wit + typeof setTimeout + typeof eval + typeof Function',
      '(() => 0).constructor("return globalThis")()',
      'Object.getPrototypeOf(async () => 0).constructor("return 1")()',
      '(function () { return typeof this; })()',
    ];
    const tries = escapes.map((code) => `() => ${code}`).join(',\n');
    const { messages } = await callFunction('agent-codeact', {
      task: 'Escape.',
      script: [
        block(`return [${tries}].map((f) => { try { return f(); } catch (e) { return e.name; } });`),
        block('return await import("pie:inferlet/runtime@0.1.0");'),
        'No.',
      ],
    });
    assert.deepEqual(outputs(messages), [
      JSON.stringify(['undefined'.repeat(5), 'TypeError', 'TypeError', 'undefined']),
      'SyntaxError: import is not available here',
    ]);
  });

  it('ends at its CPU limit when the code does not end', async () => {
    await deployChanged('agent-codeact', { limits: { cpuMs: 1000 } });
    const error = await failingFunction('agent-codeact', { task: 'Wait.', script: [block('for (;;);')] });
    assert.equal(error.code, 'cpu-limit', error.message);
  });
});

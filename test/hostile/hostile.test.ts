import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { Arena } from './arena.ts';
import { QUICK } from './corpus/index.ts';

/**
 * The canary, a tenant that streams stories beside the attacks, rests after each story here. Without rests it takes more CPU time than the attacks
 * and their builds. The invocation of an attack ends a rest, so the canary streams as long as the attack lasts.
 */
const CANARY = process.env.PIE_TEST_ALL ? {} : { tokens: 12, restMs: 2000 };

/** One arena for all attacks; after an attack that harms the arena, the next attack gets a new one. */
let arena: Arena | null = null;
after(() => arena?.[Symbol.asyncDispose]());

for (const attack of QUICK) {
  test(`${attack.name} harms no other tenant`, async (context) => {
    arena ??= await Arena.start(CANARY);
    const report = await arena.attack(attack).catch(async (error) => {
      await arena?.[Symbol.asyncDispose]();
      arena = null;
      throw error;
    });
    const { ends, message, canary } = report;
    context.diagnostic(`${ends.join(', ')}; the canary took at most ${canary.slowestTokenMs.toFixed(1)} ms a token`);
    for (const end of ends) assert.ok(attack.ends.includes(end), `${end}: ${message}`);
  });
}

test('the attacks leave no resources behind', async () => {
  assert.deepEqual(await arena?.leftBehind(), []);
});

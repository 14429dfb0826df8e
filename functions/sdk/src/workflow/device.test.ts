import assert from 'node:assert/strict';
import path from 'node:path';
import { before, describe, it } from 'node:test';
import { call } from '../../../../test/harness/deploy.ts';
import { invoke, terminal } from '../../../../test/harness/events.ts';
import { deployFrom, ENCODER, functionsPlatform, RANKER } from '../../../../test/harness/functions.ts';
import { ROOT } from '../../../../test/harness/platform.ts';

const models = { encoder: ENCODER, ranker: RANKER };

describe('workflows on real models', () => {
  before(() => deployFrom(path.join(ROOT, 'functions/sdk/fixtures/workflow.ts'), 'sdk-workflow'));

  it('give the same results with no pass, each pass and all passes, and programs the same traced as interpreted', async () => {
    const events = await invoke(await functionsPlatform(), 'sdk-workflow', models);
    const end = terminal(events);
    assert.ok(end?.event === 'result', JSON.stringify(end?.data));
    const { results, programs, plans, read, failed, retried, healings, sizes: seen } = end.data.output;
    // The first run has no passes. The others have all passes, or one of the six alone.
    const [plain, ...others] = Object.values(results);
    assert.equal(others.length, 1 + 6);
    for (const other of others) assert.deepEqual(other, plain);
    const { ideas, sizes, scores, told, ends, last } = plain as Record<string, string & string[]>;
    assert.deepEqual([ideas?.length, sizes?.length, scores?.length, ends?.length], [3, 3, 3, 2]);
    for (const text of [...(ideas ?? []), told, ...(ends ?? []), last]) assert.ok(text && text.length > 2, text);
    assert.notEqual(ends?.[0], ends?.[1]);
    assert.deepEqual(programs[1], programs[0]);
    assert.deepEqual(programs[2], programs[0]);
    assert.deepEqual(programs[3], programs[0]);
    assert.equal(plans, 1, 'no plan of the build is in the artifact');
    assert.ok(read.word.length > 0 && read.rest.length > 0);
    const [model, encoder, firstEncoder, ranker, missing] = seen;
    // Encoders were measured when their host started; the model may have no measured size yet.
    assert.ok(encoder >= 1 && ranker >= 1 && (model === null || model >= 1), `${seen}`);
    assert.deepEqual([firstEncoder, missing], [encoder, null]);
    // The code of the failure, and the number of vectors of an `embed` after it.
    assert.deepEqual(failed, ['closed', 1]);
    // The attempt that succeeded, the code after an abort, and the code of a generation whose window had moved.
    assert.deepEqual(retried, [2, 'cancelled', 'unavailable']);
    // The first generations do not fail; the others fail at their second or third token.
    const [whole, ...again] = healings;
    assert.ok(whole.length === 2 && again.length === 2 && whole.every((text: string) => text.length > 2));
    for (const texts of again) assert.deepEqual(texts, whole, 'another attempt heals another prompt');
    const logs = events.filter(({ event }) => event === 'log').map(({ data }) => JSON.stringify(data));
    assert.equal(
      logs.filter((text) => text.includes('\\"reader\\" is interpreted: The program reads a value')).length,
      1,
      `${logs}`,
    );
  });

  it('run a thousand nodes', async () => {
    assert.equal((await call(await functionsPlatform(), 'sdk-workflow', { ...models, nodes: 1000 })).last, 999);
  });
});
